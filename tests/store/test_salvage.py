"""Reading rows around damaged pages, and completing the new store."""

import os
import random
import sqlite3
from contextlib import closing

import pytest

from brainsurgeon.errors import BusyError, StoreFullError
from brainsurgeon.store.database import connect, database_path
from brainsurgeon.store.salvage import by_index, by_number, highest_row_id, salvage, sequences
from building.database_pages import damage_pages, leaf_pages

ROWS = 5000
TABLES = ("numbered", "ordered", "sessions")


@pytest.fixture
def damaged(tmp_path):
    """Return a connection to a database with a damaged page in the middle of each table."""
    path = str(tmp_path / "damaged.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("CREATE TABLE numbered (id INTEGER PRIMARY KEY, text TEXT)")
        database.execute("CREATE TABLE ordered (id INTEGER PRIMARY KEY, text) WITHOUT ROWID")
        database.execute("CREATE TABLE sessions (id INTEGER PRIMARY KEY, path TEXT UNIQUE)")
        for table in TABLES:
            database.execute("BEGIN")
            database.executemany(
                f"INSERT INTO {table} VALUES (?, ?)",
                ((number, f"{table}{number:05}") for number in range(1, ROWS + 1)),
            )
            database.execute("COMMIT")
    for place in ("numbered", "ordered", "sqlite_autoindex_sessions_1"):
        pages = leaf_pages(path, place)
        damage_pages(path, pages[len(pages) // 2])
    with closing(connect(path, "ro")) as database:
        yield database


def missing_rows(rows, table):
    """Check that the rows are right except for one missing range; return its length."""
    assert rows.items() <= {number: f"{table}{number:05}" for number in range(1, ROWS + 1)}.items()
    missing = set(range(1, ROWS + 1)) - rows.keys()
    assert max(missing) - min(missing) == len(missing) - 1
    return len(missing)


@pytest.mark.parametrize("table", ["numbered", "ordered"])
def test_by_number_misses_only_rows_of_the_damaged_page(damaged, table):
    """Rows are looked up by number, and None stands for each that cannot be read."""
    rows = list(by_number(damaged, table, "id, text", "id", highest_row_id(damaged, "numbered")))

    assert 0 < rows.count(None) < 300
    assert missing_rows(dict(row for row in rows if row), table) == rows.count(None)


def test_by_index_reads_from_both_ends(damaged):
    """An index is read up to the damaged page from its beginning and from its end."""
    paths = {ident: path.decode() for ident, path in by_index(damaged, "path").items()}

    assert 0 < missing_rows(paths, "sessions") < 300


def test_intact_store_is_read_without_gaps(store):
    """Tables and indexes of an intact store are read completely, each row once."""
    with store.transaction():
        store._connection.execute(
            "INSERT INTO sessions (id, agent, agent_directory, name, path, last_path, root, format)"
            " VALUES (7, 'a', x'2f61', 's', x'2f61', x'2f61', x'2f', 'pi')"
        )
    connection = store._connection

    assert highest_row_id(connection, "sessions") == 7
    assert list(by_number(connection, "sessions", "id, agent", "rowid", 7)) == [(7, "a")]
    assert list(by_number(connection, "placements", "extraction_id", "session_id", 7)) == []
    assert by_index(connection, "path") == {7: b"/a"}
    assert sequences(connection) == {}


def test_salvage_of_an_intact_store_copies_every_row(store, directory, tmp_path):
    """Salvage copies every row but the memory of scans, and adds nothing."""
    fill(store)
    fresh = str(tmp_path / "fresh.db")
    result = salvage(directory, fresh, 9.0)

    assert (result.unread, result.values_lost, result.sessions_made) == (set(), 0, 0)
    assert table_rows(fresh) == table_rows(database_path(directory))
    assert os.stat(fresh).st_mode & 0o777 == 0o600


def test_salvage_without_enough_disk_space_is_refused(store, directory, tmp_path, monkeypatch):
    """The error names the free space. It does not say that nothing can be read."""
    fill(store)
    monkeypatch.setattr("brainsurgeon.store.database.free", lambda _: 1000)

    with pytest.raises(StoreFullError, match="1,000 are left"):
        salvage(directory, str(tmp_path / "fresh.db"), 9.0)


def test_salvage_on_a_disk_that_fills_up_is_refused(store, directory, tmp_path, monkeypatch):
    """The error names the full disk. It does not say that nothing can be read."""
    with store.transaction():
        for number in range(300):
            store.blobs.put(random.Random(number).randbytes(3000))

    def connect_to_little_room(path, mode):
        connection = connect(path, mode)
        if mode == "rw":
            connection.execute("PRAGMA max_page_count = 150")
        return connection

    monkeypatch.setattr("brainsurgeon.store.salvage.connect", connect_to_little_room)

    with pytest.raises(StoreFullError, match="the disk is full"):
        salvage(directory, str(tmp_path / "fresh.db"), 9.0)


def test_salvage_of_a_store_in_use_is_refused(store, directory, tmp_path, monkeypatch):
    """A schema that is locked is not called damaged: the file may be half written."""
    fill(store)
    monkeypatch.setattr("brainsurgeon.store.database.STORE_LOCK_SECONDS", 0.1)

    with closing(sqlite3.connect(database_path(directory), isolation_level=None)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(BusyError):
            salvage(directory, str(tmp_path / "fresh.db"), 9.0)


FILLED = """
INSERT INTO sessions (id, agent, agent_directory, name, path, last_path, root, format)
    VALUES (1, 'a', x'2f61', 's', x'2f612f73', x'2f612f73', x'2f', 'pi');
INSERT INTO runs VALUES (1, 1.0, 'scan', '{}');
INSERT INTO fields VALUES (1, 1, 'e', '_restored', NULL, x'', '', NULL, 'undone', NULL, 1);
INSERT INTO requests (id, session_id, entry_id, action, asked_at, rolls_back)
    VALUES (1, 1, 'e', 'restore', 1.0, 1), (2, 1, 'e', 'set', 1.0, NULL);
INSERT INTO events (at, kind, facts) VALUES (1.0, 'run', '{}');
INSERT INTO row_writes VALUES (1, 5);
INSERT INTO journal VALUES (4, 1, '{}');
INSERT INTO archives (id, session_id, entry_id, prompt_id, entries, tokens_before, tokens_after,
    depth, made_at) VALUES (8, 1, 'a', 'q', 3, 9, 1, 1, 1.0);
INSERT INTO extractions (name, path, replacement, unplaced_at, journal_id, archive_id, session_id,
    entry_id, kind, block, chars, size, digest, blob_id, extracted_at)
    SELECT named.*, 1, 'e', 'text', 0, 5, 5, digest, id, 1.0
    FROM (VALUES
        ('e', 't0', NULL, NULL, NULL, NULL), ('e~2', 't0', NULL, 3.0, NULL, NULL),
        ('x', 't0', '""', 3.0, NULL, NULL), ('p', 't0', NULL, NULL, 4, NULL),
        ('a', 't0', '"archive: a"', 3.0, NULL, 8), ('a', '["parentId"]', '"q"', 3.0, NULL, 8)
    ) AS named JOIN blobs;
INSERT INTO placements VALUES (1, 1, NULL);
"""


def fill(store):
    """Add rows that refer to each other to the tables that salvage completes."""
    store.blobs.put(b"value")
    store._connection.executescript(FILLED)


def table_rows(path):
    with closing(sqlite3.connect(path)) as database:
        tables = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            table: database.execute(f"SELECT * FROM {table} ORDER BY 1").fetchall()
            for (table,) in tables
        }


def test_salvage_repairs_references_to_lost_rows(store, directory, tmp_path):
    """Lost sessions are re-created, and references to other lost rows are removed."""
    fill(store)
    store._connection.execute("PRAGMA foreign_keys = OFF")
    for table in ("sessions", "runs", "journal", "placements", "blobs", "archives"):
        store._connection.execute(f"DELETE FROM {table}")
    store._connection.execute("INSERT INTO placements VALUES (1, 99, NULL)")
    fresh = str(tmp_path / "fresh.db")
    result = salvage(directory, fresh, 9.0)
    rows = table_rows(fresh)

    nowhere = b"/lost-with-a-damaged-store"
    assert [row[:6] for row in rows["sessions"]] == [
        (1, "lost", nowhere, "1", None, nowhere + b"/1")
    ]
    assert [row[0] for row in rows["requests"]] == [2]
    assert [row[8:] for row in rows["fields"]] == [("undone", None, None)]
    assert rows["placements"] == []
    assert (result.values, result.values_lost, result.sessions_made) == (0, 6, 1)
    assert result.unread == {"requests", "placements"}
    copied = rows.keys() - {"sessions", "sqlite_sequence"}
    assert result.rows == sum(len(rows[table]) for table in copied)
    with closing(sqlite3.connect(fresh)) as database:
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute(
            "SELECT DISTINCT journal_id, run_id, archive_id FROM extractions"
        ).fetchall() == [(None, None, None)]


def test_salvage_counts_values_apart_from_other_rows(store, directory, tmp_path):
    """Neither an intact value nor a damaged one counts as another row."""
    fill(store)
    store.blobs.put(b"damaged")
    store._connection.execute("UPDATE blobs SET digest = x'00' WHERE id = 2")
    fresh = str(tmp_path / "fresh.db")
    result = salvage(directory, fresh, 9.0)
    rows = table_rows(fresh)

    assert result.values == len(rows["blobs"]) == 1
    assert result.rows == sum(
        len(rows[table]) for table in rows.keys() - {"blobs", "sqlite_sequence"}
    )


def test_salvage_places_values_in_their_own_session_if_unreadable(store, directory, tmp_path):
    """If a page of placements is lost, each held value is placed in its own session."""
    fill(store)
    count = 2000
    store._connection.executescript(f"""
        INSERT INTO sessions (id, agent, agent_directory, name, last_path, root, format)
            VALUES (2, 'a', x'2f61', 'fork', x'', x'', 'pi');
        WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers LIMIT {count})
            INSERT INTO extractions (name, session_id, entry_id, path, kind, block, chars, size,
                digest, blob_id, extracted_at)
            SELECT 'n' || n, 1, 'e', 't0', 'text', 0, 5, 5, digest, blobs.id, 1.0
            FROM numbers JOIN blobs;
        INSERT OR IGNORE INTO placements SELECT s.id, e.id, NULL
            FROM sessions s JOIN extractions e WHERE e.name LIKE 'n%';
    """)
    placements = table_rows(database_path(directory))["placements"]
    assert len(placements) == 2 * count + 1
    damage_pages(database_path(directory), leaf_pages(database_path(directory), "placements")[0])
    fresh = str(tmp_path / "fresh.db")
    result = salvage(directory, fresh, 9.0)

    assert result.unread == {"placements"}
    assert table_rows(fresh)["placements"] == placements
