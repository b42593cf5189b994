"""The schema of the store.

Times are in seconds since 1970 (UTC), sizes in bytes. `missed_at` and `unplaced_at` are marks:
times that retention runs counted, or negative times of the wall clock, which the next run counts.
Paths of files are BLOBs, as the operating system gives them. A store whose `PRAGMA user_version` is
not VERSION is refused.
"""

VERSION = 6  # brainsurgeon 0.1 wrote 0

SCHEMA = """
-- The catalogue of sessions, as in SessionRecord. `path` is NULL if another session took it over;
-- `last_path` is where the session was last seen.
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    agent TEXT NOT NULL,
    agent_directory BLOB NOT NULL,
    name TEXT NOT NULL,
    path BLOB UNIQUE,
    last_path BLOB NOT NULL,
    root BLOB NOT NULL,
    format TEXT NOT NULL,
    identity TEXT,
    missed_at REAL
) STRICT;
CREATE INDEX sessions_identity ON sessions (identity);

-- Values and texts of summaries. Equal ones share a row. Ids are never reused, so a reference never
-- leads to another value. `codec` is 'zstd' or 'raw'.
CREATE TABLE blobs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB NOT NULL,
    size INTEGER NOT NULL,
    codec TEXT NOT NULL,
    data BLOB NOT NULL
) STRICT;
CREATE INDEX blobs_digest ON blobs (substr(digest, 1, 8));

-- Extracted values, as in Extraction. The same placeholder (`name` is its id) at the same key path
-- always means the same value. Therefore the row of a completed rewrite is kept, even after its
-- value expired, until a new row of the same value replaces it.
-- `path` is JSON, or a short form: t0 is message.content.0.text, c0 is message.content.0.content.
-- `journal_id` is set until the rewrite is confirmed. `unplaced_at` is the time since when no
-- session contains the placeholder.
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
    tokens INTEGER NOT NULL DEFAULT 0,
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

-- The sessions in which a placeholder was last seen: the value's own session, forks and copies.
-- `missed_at` is when a scan first found the entry missing.
CREATE TABLE placements (
    session_id INTEGER NOT NULL REFERENCES sessions,
    extraction_id INTEGER NOT NULL REFERENCES extractions,
    missed_at REAL,
    PRIMARY KEY (session_id, extraction_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX placements_extraction ON placements (extraction_id);
CREATE INDEX placements_missed ON placements (missed_at) WHERE missed_at IS NOT NULL;

-- Fields that brainsurgeon wrote to files, as in FieldRecord. `state`: pending (the rewrite is not
-- confirmed), standing (in the file), undone (a fork may still contain the field).
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

-- Requests that wait until their session is idle. `paths`, `value` and `answer` are JSON. Ids are
-- never reused: a newer request has a higher one.
CREATE TABLE requests (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id INTEGER NOT NULL REFERENCES sessions,
    entry_id TEXT,
    action TEXT NOT NULL,
    paths TEXT,
    value TEXT,
    pristine INTEGER NOT NULL DEFAULT 0,
    asked_at REAL NOT NULL,
    lapses_at REAL,
    answer TEXT,
    rolls_back INTEGER REFERENCES runs
) STRICT;
CREATE INDEX requests_session ON requests (session_id);

-- Archived turns. `entry_id` is the entry with the summary.
CREATE TABLE archives (
    id INTEGER PRIMARY KEY,
    session_id INTEGER NOT NULL REFERENCES sessions,
    entry_id TEXT NOT NULL,
    prompt_id TEXT NOT NULL,
    entries INTEGER NOT NULL,
    tokens_before INTEGER NOT NULL,
    tokens_after INTEGER NOT NULL,
    depth INTEGER NOT NULL,
    note TEXT,
    run_id INTEGER,
    made_at REAL NOT NULL,
    turns INTEGER NOT NULL DEFAULT 0,
    calls INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX archives_of ON archives (session_id);

-- Summaries that a command wrote. `digest` is the digest of the turn.
CREATE TABLE summaries (digest BLOB PRIMARY KEY, blob_id INTEGER NOT NULL) STRICT;

-- Runs of commands that changed something. `facts` is JSON, as in Run.
CREATE TABLE runs (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    command TEXT NOT NULL,
    facts TEXT NOT NULL
) STRICT;

-- Events in the order in which they were committed; ids are never reused.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at REAL NOT NULL,
    run_id INTEGER REFERENCES runs,
    session_id INTEGER REFERENCES sessions,
    kind TEXT NOT NULL,
    facts TEXT NOT NULL
) STRICT;
CREATE INDEX events_run ON events (run_id, session_id);

-- An unfinished rewrite: an OpenRewrite as JSON.
CREATE TABLE journal (
    id INTEGER PRIMARY KEY,
    session_id INTEGER NOT NULL REFERENCES sessions,
    rewrite TEXT NOT NULL
) STRICT;

-- Not used any more. Earlier programs that open this store expect it.
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

-- The time (milliseconds) that our last write set for a session in a database of its agent.
CREATE TABLE row_writes (
    session_id INTEGER PRIMARY KEY REFERENCES sessions,
    noted_ms INTEGER NOT NULL
) STRICT;

-- Savings by extraction in a session so far: a Savings as MessagePack.
CREATE TABLE savings (
    session_id INTEGER PRIMARY KEY REFERENCES sessions,
    savings BLOB NOT NULL
) STRICT;

-- The tables below, except `meta`, can be lost without losing a value. Scans fill them again, and
-- retention runs `searches`. Nothing fills `vanished` and the costs of deleted sessions again.

-- The load of a session: a Fullness as MessagePack.
CREATE TABLE calibration (
    session_id INTEGER PRIMARY KEY REFERENCES sessions ON DELETE CASCADE,
    fullness BLOB NOT NULL
) STRICT;

-- Recorded calls of sessions, by model ('': unknown). If `priced` is 1, agents recorded `dollars`.
-- The cost of other calls depends on the configuration; if it is 2, their prompts are dearer.
CREATE TABLE spending (
    path BLOB NOT NULL,
    model TEXT NOT NULL,
    priced INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    tokens INTEGER NOT NULL,
    cached INTEGER NOT NULL,
    written INTEGER NOT NULL,
    output INTEGER NOT NULL,
    dollars REAL NOT NULL,
    PRIMARY KEY (path, model, priced)
) STRICT, WITHOUT ROWID;

-- The calls counted in `spending`; `id` is the key of a call (`keyed_calls`).
CREATE TABLE counted_calls (id INTEGER PRIMARY KEY) STRICT;

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

-- Not used any more. Earlier programs that open this store expect it.
CREATE TABLE resumes (path BLOB PRIMARY KEY, resume BLOB NOT NULL) STRICT, WITHOUT ROWID;

-- Single facts, as JSON.
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
"""

# By name. A store of an earlier program gets these tables when it is opened for writing.
ADDED = {
    # How many placeholders without a stored value a scan found in a session, not counting those
    # with a tombstone.
    "lost": "TABLE lost (path BLOB PRIMARY KEY, number INTEGER NOT NULL) STRICT",
    # What the last retention run found in files and databases, as in Search. `names` is JSON.
    "searches": (
        "TABLE searches (id INTEGER PRIMARY KEY, path BLOB NOT NULL UNIQUE,"
        " device INTEGER NOT NULL, inode INTEGER NOT NULL, size INTEGER NOT NULL,"
        " mtime_ns INTEGER NOT NULL, ctime_ns INTEGER NOT NULL, is_proven INTEGER NOT NULL,"
        " active_at REAL NOT NULL, names TEXT NOT NULL) STRICT"
    ),
    # Extractions behind whose placeholder spaces fill the place of the value: they save no bytes.
    "padded": "TABLE padded (extraction_id INTEGER PRIMARY KEY) STRICT",
    # How many further places of its session the value of an extraction left.
    "copies": "TABLE copies (extraction_id INTEGER PRIMARY KEY, number INTEGER NOT NULL) STRICT",
    # Placeholders whose file (a session or an archive) is gone, and where and when a retention run
    # found that.
    "vanished": (
        "TABLE vanished (name TEXT PRIMARY KEY, root TEXT NOT NULL, missed_at REAL NOT NULL) STRICT"
    ),
}
SCHEMA += "".join(f"CREATE {table};\n" for table in ADDED.values())
