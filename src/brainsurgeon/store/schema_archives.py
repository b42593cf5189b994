"""The part of the schema that says which turns were folded into their last answers."""

from __future__ import annotations

ARCHIVES = (
    # `entry_id` is the closing entry, empty while it is not known; tokens are those that a model
    # gets. `state`: asked (to be folded when it can be), made, or undone (taken back).
    # Whether one stands is told by the extractions that name it.
    """
    CREATE TABLE archives (
        id INTEGER PRIMARY KEY,
        session_id INTEGER NOT NULL REFERENCES sessions,
        entry_id TEXT NOT NULL,
        prompt_id TEXT NOT NULL,
        entries INTEGER NOT NULL,
        tokens_before INTEGER NOT NULL,
        tokens_after INTEGER NOT NULL,
        depth INTEGER NOT NULL,
        style TEXT NOT NULL,
        note TEXT,
        digest BLOB NOT NULL,
        pass_id INTEGER,
        state TEXT NOT NULL,
        made_at REAL NOT NULL
    ) STRICT
    """,
    # What a command said of a turn: the value is held like any other, for a day at least.
    """
    CREATE TABLE summaries (
        digest BLOB PRIMARY KEY,
        blob_id INTEGER NOT NULL,
        blob_digest BLOB NOT NULL,
        made_at REAL NOT NULL
    ) STRICT
    """,
    "CREATE INDEX archives_of ON archives (session_id)",
    "ALTER TABLE extractions ADD COLUMN archive_id INTEGER REFERENCES archives",
)
"""The archives, and which values belong to them."""
COUNTS = tuple(f"ALTER TABLE archives ADD COLUMN {name} INTEGER" for name in (
    "turns", "calls", "failed",
))  # fmt: skip
"""How many turns and calls an archive holds, and how many of these failed."""
