"""The part of the schema that knows sessions whose events lie in a database of their agent."""

from __future__ import annotations

ROWS = (
    # The columns in which an agent itself kept an event that we changed: `digest` is that of the
    # event's text, which is put together again from the values cut out of it.
    """
    CREATE TABLE row_columns (
        session_id INTEGER NOT NULL REFERENCES sessions,
        entry_id TEXT NOT NULL,
        digest BLOB NOT NULL,
        packed BLOB,
        size INTEGER,
        navigation BLOB,
        PRIMARY KEY (session_id, entry_id, digest)
    ) STRICT
    """,
    "CREATE INDEX row_columns_digest ON row_columns (digest)",
    # When we last wrote to a session, in the milliseconds that we noted there ourselves.
    """
    CREATE TABLE row_writes (
        session_id INTEGER PRIMARY KEY REFERENCES sessions,
        noted_ms INTEGER NOT NULL
    ) STRICT
    """,
)
