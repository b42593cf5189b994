"""The part of the schema that says how full sessions are."""

from __future__ import annotations

# A memory that costs only time to lose, and goes with its session. `rate` and `fixed` are tokens
# for a character and from the start, `calls` those that they were compared with, `method` says
# where they come from. `load` and `window` are tokens.
CALIBRATION = """
    CREATE TABLE calibration (
        session_id INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
        rate REAL NOT NULL,
        fixed REAL NOT NULL,
        calls INTEGER NOT NULL,
        method TEXT NOT NULL,
        error REAL,
        load INTEGER NOT NULL,
        "window" INTEGER NOT NULL,
        threshold REAL NOT NULL,
        model TEXT,
        step INTEGER NOT NULL,
        at REAL NOT NULL
    ) STRICT
"""
