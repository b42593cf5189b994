"""The part of the schema that says which pass made what, and what happened when."""

from __future__ import annotations

PASSES = (
    # One run of a command that changed something. `facts` are counts, as JSON.
    """
    CREATE TABLE passes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        command TEXT NOT NULL,
        facts TEXT NOT NULL
    ) STRICT
    """,
    # What happened, in the order in which it was committed: ids are never used again, and since
    # only one writes at a time, whoever has seen one has seen all before it. `facts` is JSON.
    """
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        at REAL NOT NULL,
        pass_id INTEGER REFERENCES passes,
        session_id INTEGER REFERENCES sessions,
        kind TEXT NOT NULL,
        facts TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX events_pass ON events (pass_id, session_id)",
    # NULL: made before passes were counted.
    "ALTER TABLE extractions ADD COLUMN pass_id INTEGER REFERENCES passes",
    "ALTER TABLE fields ADD COLUMN pass_id INTEGER REFERENCES passes",
    # The pass that a put-back undoes, and nothing else (NULL: it is no rollback).
    "ALTER TABLE wishes ADD COLUMN rolls_back INTEGER REFERENCES passes",
)
"""Which pass made what, and what happened."""
