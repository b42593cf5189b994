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

PASSES_FOUND = (
    # What names a pass is looked for whenever one is let go of, by SQLite itself, too. Rows that
    # name none, and in time most others do not, take no room here: the first is 11 bytes a value.
    "CREATE INDEX extractions_pass ON extractions (pass_id) WHERE pass_id IS NOT NULL",
    "CREATE INDEX fields_pass ON fields (pass_id) WHERE pass_id IS NOT NULL",
    "CREATE INDEX wishes_pass ON wishes (rolls_back) WHERE rolls_back IS NOT NULL",
)
"""What a pass made, found without a look at every row."""
