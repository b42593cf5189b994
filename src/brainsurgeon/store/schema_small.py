"""The part of the schema by which a record takes little more room than what it says."""

from __future__ import annotations

SMALLER = (
    "DROP INDEX extractions_place",
    # The path of a value in its entry is JSON, or a letter and a number in the usual places:
    # `t0` is message.content.0.text, `c0` is message.content.0.content.
    *(
        statement.replace("LAST", last).replace("SHORT", short)
        for statement in (
            """
            UPDATE extractions SET path = 'SHORT'
            || substr(path, 24, instr(path, ', "LAST"]') - 24)
            WHERE path GLOB '[[]"message", "content", [0-9]*, "LAST"]'
            AND substr(path, 24, instr(path, ', "LAST"]') - 24) NOT GLOB '*[^0-9]*'
            """,
        )
        for short, last in (("t", "text"), ("c", "content"))
    ),
    "CREATE INDEX extractions_place ON extractions (session_id, entry_id)",
)
"""What is changed in every store."""

SMALLER_BLOBS = (
    # `stored_at` is not told any more: `loose` does.
    "DROP TABLE blobs",
    """
    CREATE TABLE blobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        agent_id INTEGER NOT NULL REFERENCES agents,
        digest BLOB NOT NULL,
        size INTEGER NOT NULL,
        codec TEXT NOT NULL,
        data BLOB NOT NULL,
        stored_at REAL NOT NULL
    ) STRICT
    """,
    "CREATE INDEX blobs_digest ON blobs (agent_id, substr(digest, 1, 8))",
)
"""What is changed in a store without values."""
