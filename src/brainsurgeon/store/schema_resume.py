"""The part of the schema that says where the next look at a file may begin."""

from __future__ import annotations

# Beside `files`, and like it a memory that costs only time to lose. `begins_at` is the offset of
# the first line that is read, `line` its number, `mark` a digest of bytes of the file, `cursor`
# what the lines from there on say of those before, `stubs` whether something of ours stands there.
RESUMES = """
    CREATE TABLE resumes (
        path BLOB PRIMARY KEY,
        device INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        ctime_ns INTEGER NOT NULL,
        mark BLOB NOT NULL,
        rules TEXT NOT NULL,
        format TEXT NOT NULL,
        identity TEXT,
        session_id INTEGER,
        begins_at INTEGER NOT NULL,
        line INTEGER NOT NULL,
        cursor TEXT NOT NULL,
        stubs INTEGER NOT NULL,
        whole_at REAL NOT NULL
    ) STRICT, WITHOUT ROWID
"""
