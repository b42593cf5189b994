"""The schema of the store, readable from top to bottom.

Times are seconds since 1970 (UTC), sizes are bytes, paths are bytes as the operating system gives
them. `PRAGMA user_version` holds VERSION; a store of any other version is refused.
"""

from __future__ import annotations

# Version of the schema. Stores of brainsurgeon 0.1 have none: their `user_version` is 0.
VERSION = 2

SCHEMA = """
CREATE TABLE agents (
    id INTEGER PRIMARY KEY,
    directory BLOB NOT NULL UNIQUE,
    name TEXT NOT NULL
) STRICT;

-- The catalogue of sessions: one row a path. Where another session took over the path, it is NULL
-- and `last_path` says where the session was last seen. `identity` is the session's id as its agent
-- gave it, NULL where its file says none. `missed_at` is when a retention run first found nothing
-- at the path; NULL while there is something.
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    agent_id INTEGER NOT NULL REFERENCES agents,
    name TEXT NOT NULL,
    path BLOB UNIQUE,
    last_path BLOB NOT NULL,
    root BLOB NOT NULL,
    format TEXT NOT NULL,
    identity TEXT,
    missed_at REAL
) STRICT;
CREATE INDEX sessions_identity ON sessions (identity);

-- Values as they stood in their lines, each distinct one once. Row ids are never used again: a row
-- that names one must not come to mean another value. `codec` is 'zstd' or 'raw'.
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL,
    size INTEGER NOT NULL,
    codec TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX blobs_digest ON blobs (substr(digest, 1, 8));

-- One pair of placeholder text and key path means one value, for ever: rows are never deleted. The
-- text is [[extracted-ID]], from `number` 2 on [[extracted-ID~2]].
CREATE TABLE placeholders (
    id TEXT NOT NULL,
    path TEXT NOT NULL,
    number INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (id, path, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX placeholders_numbered ON placeholders (id, path, digest) WHERE number > 1;

-- A value that was extracted from an entry of a session. `name` is the id that stands in its
-- placeholder; where a JSON token stands there instead (`replacement`), the entry's id. `path` is
-- the value's place in the entry: JSON, or in short t0 for message.content.0.text and c0 for
-- message.content.0.content. `anchor` is the id of the tool call that the value belongs to. `rest`
-- is a digest of what else its line says, kept where entry ids may be used twice. `journal_id` is
-- set until the rewrite is confirmed. `unplaced_at` is when a scan first found the value standing
-- in no session any more. A row without `blob_id` is a tombstone.
CREATE TABLE extractions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id INTEGER NOT NULL REFERENCES sessions,
    entry_id TEXT NOT NULL,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    kind TEXT NOT NULL,
    tool TEXT,
    block INTEGER NOT NULL,
    replacement TEXT,
    anchor TEXT,
    rest BLOB,
    chars INTEGER NOT NULL,
    size INTEGER NOT NULL,
    digest BLOB NOT NULL,
    blob_id INTEGER REFERENCES blobs,
    journal_id INTEGER,
    run_id INTEGER REFERENCES runs,
    archive_id INTEGER REFERENCES archives,
    extracted_at REAL NOT NULL,
    restored_at REAL,
    unplaced_at REAL,
    expired_at REAL,
    expired_why TEXT
) STRICT;
CREATE INDEX extractions_session ON extractions (session_id);
CREATE INDEX extractions_name ON extractions (name, path);
CREATE INDEX extractions_blob ON extractions (blob_id);
CREATE INDEX extractions_open ON extractions (journal_id) WHERE journal_id IS NOT NULL;
CREATE INDEX extractions_run ON extractions (run_id) WHERE run_id IS NOT NULL;
CREATE INDEX extractions_unplaced ON extractions (unplaced_at)
    WHERE unplaced_at IS NOT NULL AND blob_id IS NOT NULL;

-- In which sessions extracted values stand, as they were last read: the session they were taken
-- from, its forks, its copies. `missed_at` is when a scan first found the entry gone from the file.
CREATE TABLE placements (
    session_id INTEGER NOT NULL REFERENCES sessions,
    extraction_id INTEGER NOT NULL REFERENCES extractions,
    missed_at REAL,
    PRIMARY KEY (session_id, extraction_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX placements_extraction ON placements (extraction_id);
CREATE INDEX placements_missed ON placements (missed_at) WHERE missed_at IS NOT NULL;

-- A field of ours in a file: `before` is the token that stood there (NULL: none), `after` the bytes
-- that stand there now, with comma and key where the field was absent. `rest` is as in
-- extractions. `state`: pending, standing, undone (what a fork may still hold).
CREATE TABLE fields (
    id INTEGER PRIMARY KEY,
    session_id INTEGER NOT NULL REFERENCES sessions,
    entry_id TEXT NOT NULL,
    name TEXT NOT NULL,
    before BLOB,
    after BLOB NOT NULL,
    value TEXT NOT NULL,
    rest BLOB,
    state TEXT NOT NULL,
    journal_id INTEGER,
    run_id INTEGER REFERENCES runs
) STRICT;
CREATE INDEX fields_place ON fields (session_id, entry_id, name);
CREATE INDEX fields_entry ON fields (entry_id);
CREATE INDEX fields_run ON fields (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE restores (
    session_id INTEGER NOT NULL REFERENCES sessions,
    entry_id TEXT NOT NULL,
    restored_at REAL NOT NULL,
    PRIMARY KEY (session_id, entry_id)
) STRICT;

-- What was asked for and waits until its session is idle. `action`: restore, set, relieve, redact.
-- `paths` narrows a restore (JSON; NULL: all), `value` is what to set (JSON), `answer` the id by
-- which the call to redact is recognised, `rolls_back` the run that a restore undoes. `state`:
-- open, done, lapsed.
CREATE TABLE requests (
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
    rolls_back INTEGER REFERENCES runs,
    state TEXT NOT NULL DEFAULT 'open',
    why TEXT
) STRICT;
CREATE INDEX requests_open ON requests (session_id) WHERE state = 'open';
CREATE INDEX requests_run ON requests (rolls_back) WHERE rolls_back IS NOT NULL;

-- Turns that were folded into their closing entries. `state`: asked (to be folded when possible),
-- made, undone. Tokens are those that a model gets.
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
    run_id INTEGER,
    state TEXT NOT NULL,
    made_at REAL NOT NULL,
    turns INTEGER NOT NULL DEFAULT 0,
    calls INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX archives_of ON archives (session_id);

-- Summaries written by a command, by the digest of the turn; held for a day at least.
CREATE TABLE summaries (
    digest BLOB PRIMARY KEY,
    blob_id INTEGER NOT NULL,
    blob_digest BLOB NOT NULL,
    made_at REAL NOT NULL
) STRICT;

-- One run of a command that changed something; `facts` are counts, as JSON.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    command TEXT NOT NULL,
    facts TEXT NOT NULL
) STRICT;

-- What happened, in the order in which it was committed; ids are never used again.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    run_id INTEGER REFERENCES runs,
    session_id INTEGER REFERENCES sessions,
    kind TEXT NOT NULL,
    facts TEXT NOT NULL
) STRICT;
CREATE INDEX events_run ON events (run_id, session_id);

-- A rewrite under way. `new_inode` is set once the new file is whole and before it may be
-- exchanged. `note` lists, as JSON, what becomes true when the rewrite is confirmed; a confirmed
-- one still has the old file beside the session. `moving_to` is the inode of the file to which
-- lines are being moved, `stays` is why the old file could not be removed. `ended_at` is since when
-- no try could change that: both files stay.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    session_id INTEGER NOT NULL REFERENCES sessions,
    root BLOB NOT NULL,
    directory BLOB NOT NULL,
    name BLOB NOT NULL,
    temporary TEXT NOT NULL,
    inode INTEGER NOT NULL,
    new_inode INTEGER,
    old_size INTEGER NOT NULL DEFAULT 0,
    old_mark BLOB NOT NULL DEFAULT x'',
    new_size INTEGER NOT NULL DEFAULT 0,
    new_mark BLOB NOT NULL DEFAULT x'',
    note TEXT NOT NULL,
    confirmed INTEGER NOT NULL DEFAULT 0,
    moving_to INTEGER,
    stays TEXT,
    ended_at REAL
) STRICT;

-- Sessions in a database of their agent: the columns in which the agent itself kept an event that
-- we changed (`digest` is that of the event's text), and when we last wrote to a session, in the
-- milliseconds that we noted there ourselves.
CREATE TABLE row_columns (
    session_id INTEGER NOT NULL REFERENCES sessions,
    entry_id TEXT NOT NULL,
    digest BLOB NOT NULL,
    packed BLOB,
    size INTEGER,
    navigation BLOB,
    PRIMARY KEY (session_id, entry_id, digest)
) STRICT;
CREATE INDEX row_columns_digest ON row_columns (digest);
CREATE TABLE row_writes (
    session_id INTEGER PRIMARY KEY REFERENCES sessions,
    noted_ms INTEGER NOT NULL
) STRICT;

-- From here on memories that cost only time to lose.

-- How full a session is. `rate` and `fixed` are tokens for a character and from the start, `calls`
-- those that they were compared with, `load` and `window` are tokens.
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
) STRICT;

-- Files as a scan last saw them.
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
) STRICT;

-- Where the next look at a file may begin: `begins_at` is the offset of the first line to read,
-- `line` its number, `mark` a digest of bytes of the file, `cursor` what the lines from there on
-- say of those before, `placeholders` whether something of ours stands before it.
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
    placeholders INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Single facts, as JSON.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""
