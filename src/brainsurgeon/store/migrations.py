"""The schema, as steps that are only ever appended.

Each step runs in one transaction with the record that it ran. A step says what it assumes of the
rows of older versions. Times are seconds since 1970 (UTC), sizes are bytes, paths are bytes as
the operating system gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlite_utils import Migrations

from brainsurgeon.store.schema_archives import ARCHIVES, COUNTS
from brainsurgeon.store.schema_due import AGES, LOOSE
from brainsurgeon.store.schema_identities import IDENTITIES
from brainsurgeon.store.schema_loads import CALIBRATION
from brainsurgeon.store.schema_passes import PASSES, PASSES_FOUND
from brainsurgeon.store.schema_resume import RESUMES
from brainsurgeon.store.schema_rows import ROWS
from brainsurgeon.store.schema_small import SMALLER, SMALLER_BLOBS

if TYPE_CHECKING:
    from sqlite_utils import Database

migrations = Migrations("brainsurgeon")


@migrations()
def m001_create_tables(db: Database) -> None:
    """Create everything; nothing came before."""
    for statement in _TABLES:
        db.execute(statement)


@migrations()
def m002_know_sessions_by_what_they_say(db: Database) -> None:
    """Name sessions by what their files say, and values by the entry that they were cut out of.

    Rows of 0.1.0 keep the older rule: what they lack is filled in when their files are next seen.
    What pi wrote was shown under the name of the format that it shares with OpenClaw.
    """
    for statement in IDENTITIES:
        db.execute(statement)


@migrations()
def m003_note_what_is_being_moved(db: Database) -> None:
    """Note in the journal what is moved, and why an old file stays; older rows do not know it."""
    db.execute("ALTER TABLE journal ADD COLUMN moving_to INTEGER")
    db.execute("ALTER TABLE journal ADD COLUMN stays TEXT")
    db.execute("ALTER TABLE fields DROP COLUMN set_at")  # nobody ever read it


@migrations()
def m004_keep_rows(db: Database) -> None:
    """Keep what rows in an agent's database held, and when we wrote to them; files need neither."""
    for statement in ROWS:
        db.execute(statement)


@migrations()
def m005_resume(db: Database) -> None:
    """Remember where the next look at a file may begin; what is not known yet is read whole."""
    db.execute(RESUMES)


@migrations()
def m006_find_what_is_due(db: Database) -> None:
    """Let retention find what is due, and values that nothing names, without a look at all rows."""
    for statement in (*AGES, *LOOSE):
        db.execute(statement)


@migrations()
def m007_keep_records_small(db: Database) -> None:
    """Write usual paths in short, and no text and no digest whole into an index.

    Stored values are not written anew: only where there never was one does their table change.
    """
    for statement in SMALLER:
        db.execute(statement)
    if not db.execute("SELECT 1 FROM sqlite_sequence WHERE name = 'blobs'").fetchone():
        for statement in SMALLER_BLOBS:
            db.execute(statement)


@migrations()
def m008_name_passes(db: Database) -> None:
    """Let what is cut and set name the pass that did it, and keep events; older rows name none."""
    for statement in PASSES:
        db.execute(statement)


@migrations()
def m009_remember_loads(db: Database) -> None:
    """Remember how full sessions are; nothing was known of that before."""
    db.execute(CALIBRATION)


@migrations()
def m010_keep_archives(db: Database) -> None:
    """Say which turns were folded, and which values belong to that; no older row does."""
    for statement in ARCHIVES:
        db.execute(statement)


@migrations()
def m011_count_what_folded(db: Database) -> None:
    """Say how many turns and calls an archive holds; of older ones nobody knows."""
    for statement in COUNTS:
        db.execute(statement)


@migrations()
def m012_find_what_passes_made(db: Database) -> None:
    """Let what a pass made be found without a look at all rows."""
    for statement in PASSES_FOUND:
        db.execute(statement)


_TABLES = (
    """
    CREATE TABLE agents (
        id INTEGER PRIMARY KEY,
        directory BLOB NOT NULL UNIQUE,
        name TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE sessions (
        id INTEGER PRIMARY KEY,
        agent_id INTEGER NOT NULL REFERENCES agents,
        name TEXT NOT NULL,
        path BLOB NOT NULL UNIQUE,
        root BLOB NOT NULL,
        format TEXT NOT NULL,
        parent TEXT
    ) STRICT
    """,
    # Row ids are never used again: a row that names one must not come to mean another value.
    # One row a distinct value of an agent; `codec` is 'zstd' or 'raw'.
    """
    CREATE TABLE blobs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        agent_id INTEGER NOT NULL REFERENCES agents,
        digest BLOB NOT NULL,
        size INTEGER NOT NULL,
        codec TEXT NOT NULL,
        data BLOB NOT NULL,
        stored_at REAL NOT NULL,
        UNIQUE (agent_id, digest)
    ) STRICT
    """,
    # `replacement` is the token that stands in the place of a redacted value (NULL: the stub).
    # `state`: pending (its rewrite has not been confirmed), standing (the stub was last known to
    # stand in the file), restored (the value was put back), expired (a tombstone).
    """
    CREATE TABLE extractions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id INTEGER NOT NULL REFERENCES sessions,
        entry_id TEXT NOT NULL,
        stub TEXT NOT NULL,
        path TEXT NOT NULL,
        kind TEXT NOT NULL,
        tool TEXT,
        block INTEGER NOT NULL,
        replacement TEXT,
        anchor TEXT,
        exact INTEGER NOT NULL,
        chars INTEGER NOT NULL,
        size INTEGER NOT NULL,
        digest BLOB NOT NULL,
        blob_id INTEGER REFERENCES blobs,
        reason TEXT NOT NULL,
        state TEXT NOT NULL,
        journal_id INTEGER,
        extracted_at REAL NOT NULL,
        sighted_at REAL NOT NULL,
        restored_at REAL,
        marked_at REAL,
        expired_at REAL,
        expired_why TEXT
    ) STRICT
    """,
    "CREATE INDEX extractions_place ON extractions (session_id, entry_id, path)",
    "CREATE INDEX extractions_stub ON extractions (stub)",
    "CREATE INDEX extractions_blob ON extractions (blob_id)",
    "CREATE INDEX extractions_open ON extractions (journal_id) WHERE journal_id IS NOT NULL",
    # A field of ours in a file: `before` is the token that stood there (NULL: none), `after` the
    # bytes as they stand now, with comma and key where the field was absent.
    """
    CREATE TABLE fields (
        id INTEGER PRIMARY KEY,
        session_id INTEGER NOT NULL REFERENCES sessions,
        entry_id TEXT NOT NULL,
        name TEXT NOT NULL,
        before BLOB,
        after BLOB NOT NULL,
        value TEXT NOT NULL,
        state TEXT NOT NULL,
        journal_id INTEGER,
        set_at REAL NOT NULL
    ) STRICT
    """,
    "CREATE INDEX fields_place ON fields (session_id, entry_id, name)",
    """
    CREATE TABLE restores (
        session_id INTEGER NOT NULL REFERENCES sessions,
        entry_id TEXT NOT NULL,
        restored_at REAL NOT NULL,
        PRIMARY KEY (session_id, entry_id)
    ) STRICT
    """,
    # `action`: restore, set or redact. `paths` narrows a restore (JSON; NULL: all), `value` is
    # what to set (JSON), `answer` the id (of version 0.1.0: the digest) by which
    # the call to redact is recognised. `state`: open, done or lapsed.
    """
    CREATE TABLE wishes (
        id INTEGER PRIMARY KEY,
        session_id INTEGER NOT NULL REFERENCES sessions,
        entry_id TEXT NOT NULL,
        action TEXT NOT NULL,
        paths TEXT,
        value TEXT,
        pristine INTEGER NOT NULL DEFAULT 0,
        asked_at REAL NOT NULL,
        lapses_at REAL,
        answer BLOB,
        state TEXT NOT NULL DEFAULT 'open',
        closed_at REAL,
        why TEXT
    ) STRICT
    """,
    "CREATE INDEX wishes_open ON wishes (session_id) WHERE state = 'open'",
    # The scan's memory of a file; losing it costs time only.
    """
    CREATE TABLE files (
        path BLOB PRIMARY KEY,
        device INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        ctime_ns INTEGER NOT NULL,
        rules TEXT NOT NULL,
        format TEXT,
        outcome TEXT NOT NULL,
        reason TEXT NOT NULL,
        first_seen REAL NOT NULL,
        looked_at REAL NOT NULL,
        due_at REAL
    ) STRICT
    """,
    # A rewrite under way. `new_inode` is set once the new file is whole and before it may be
    # exchanged. `note` lists, as JSON, what becomes true when the rewrite is confirmed;
    # a confirmed one still has the old file beside the session.
    """
    CREATE TABLE journal (
        id INTEGER PRIMARY KEY,
        session_id INTEGER NOT NULL REFERENCES sessions,
        root BLOB NOT NULL,
        directory BLOB NOT NULL,
        name BLOB NOT NULL,
        temporary TEXT NOT NULL,
        device INTEGER NOT NULL,
        inode INTEGER NOT NULL,
        new_inode INTEGER,
        old_size INTEGER NOT NULL DEFAULT 0,
        old_mark BLOB NOT NULL DEFAULT x'',
        new_size INTEGER NOT NULL DEFAULT 0,
        new_mark BLOB NOT NULL DEFAULT x'',
        note TEXT NOT NULL,
        confirmed INTEGER NOT NULL DEFAULT 0,
        begun_at REAL NOT NULL
    ) STRICT
    """,
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
)
