"""The part of the schema by which sessions are known by what they say."""

from __future__ import annotations

IDENTITIES = (
    # `identity` is the JSON of a name and when it began. `device` and `inode` are those of the
    # file as which it was last seen. The path of a session whose place another one has taken
    # ends in a zero byte and its row's id.
    "ALTER TABLE sessions ADD COLUMN identity TEXT",
    "ALTER TABLE sessions ADD COLUMN device INTEGER",
    "ALTER TABLE sessions ADD COLUMN inode INTEGER",
    "ALTER TABLE sessions ADD COLUMN parent_id INTEGER REFERENCES sessions",
    "CREATE INDEX sessions_identity ON sessions (identity)",
    # Where a session was seen before.
    """
    CREATE TABLE places (
        path BLOB NOT NULL,
        session_id INTEGER NOT NULL REFERENCES sessions,
        PRIMARY KEY (path, session_id)
    ) STRICT
    """,
    # `said` is the digest of the parsed value, `whole` that of the entry with nothing of ours in
    # it; NULL: not known, cut by 0.1.0 or beside a value that was.
    "ALTER TABLE extractions ADD COLUMN said BLOB",
    "ALTER TABLE extractions ADD COLUMN whole BLOB",
    "ALTER TABLE files ADD COLUMN identity TEXT",
    "UPDATE agents SET name = 'pi' || substr(name, 9) WHERE name LIKE 'openclaw:%'",
    # Nobody ever read these.
    "ALTER TABLE extractions DROP COLUMN reason",
    "ALTER TABLE wishes DROP COLUMN closed_at",
    "ALTER TABLE journal DROP COLUMN begun_at",
)
"""What m002 adds."""
