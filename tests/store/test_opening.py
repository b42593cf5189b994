"""How a store is created, who may read it, and which stores are refused."""

import os
import re
import secrets
import shutil
import sqlite3
import stat
from contextlib import closing

import pytest

from brainsurgeon import store as room
from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.store import database, open_store
from brainsurgeon.store.schema import SCHEMA, VERSION
from building.processes import OtherProcess
from building.store_rows import (
    OPEN_STORE,
    begin_rewrite,
    count_rows,
    pragma,
    read_state_files,
    removal,
    store_session,
)


def test_a_new_store_has_the_whole_schema(store):
    """A new store has every table and index of the schema, and its version."""
    created = {
        name
        for (name,) in store._connection.execute("SELECT name FROM sqlite_master WHERE sql != ''")
    }

    assert created - {"sqlite_sequence"} == set(re.findall(r"CREATE (?:TABLE|INDEX) (\w+)", SCHEMA))
    assert pragma(store, "user_version") == VERSION
    assert pragma(store, "application_id") == database.APPLICATION_ID
    assert pragma(store, "integrity_check") == "ok"
    assert sorted(os.listdir(store.directory)) == ["locks", "store.db"]


def test_opening_again_changes_nothing(directory, store):
    """Opening an existing store writes nothing, whether for reading or for writing."""
    before = read_state_files(directory)
    for opened in (room.open_to_read, open_store):
        opened(directory).close()

    assert read_state_files(directory) == before


def test_reading_where_nothing_is_makes_nothing(directory):
    """Opening for reading gives an empty store where there is none, and leaves it so."""
    with room.open_to_read(directory) as empty:
        assert (empty.exists, empty.size, list(empty.sessions.all())) == (False, 0, [])
        with pytest.raises(StoreUnusableError), empty.transaction():
            empty.facts.put("last_run_at", 1.0)
    assert not os.path.exists(directory)


def test_a_store_opened_for_reading_cannot_be_written(directory, store):
    """What was opened for looking refuses to write, and needs no lock file."""
    os.unlink(os.path.join(directory, "locks"))
    looking = room.open_to_read(directory)
    with pytest.raises(StoreUnusableError), looking.transaction():
        (
            pytest.raises(StoreUnusableError),
            looking._connection.execute("INSERT INTO meta VALUES ('a', 'b')"),
        )
    with pytest.raises(StoreUnusableError), looking.lock(1):
        pass
    looking.close()

    assert count_rows(store, "meta") == 0
    assert os.listdir(directory) == ["store.db"]


def test_the_settings_that_the_promises_need_hold(store):
    """Every commit is synced, in a rollback journal that is synced too, and what goes is wiped."""
    wanted = {
        "synchronous": 3, "journal_mode": "delete", "secure_delete": 1, "foreign_keys": 1,
        "trusted_schema": 0, "cell_size_check": 1,
    }  # fmt: skip

    assert {name: pragma(store, name) for name in wanted} == wanted


@pytest.fixture
def careless():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_nobody_else_can_read_the_store_from_birth(directory, careless):
    """Even without a umask directory, database, journal and locks are their owner's alone."""
    store = open_store(directory)
    with store.transaction():
        store._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
        during = {name: mode(os.path.join(directory, name)) for name in os.listdir(directory)}
    store.close()

    assert during == {"locks": 0o600, "store.db": 0o600, "store.db-journal": 0o600}
    assert mode(directory) == 0o700


def test_the_unfinished_database_is_nobody_elses_either(directory, careless, monkeypatch):
    """While it is being created, only its owner can read the database and its journal."""
    seen = {}

    def building(connection):
        connection.execute("CREATE TABLE x (y)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO x VALUES (1)")
        seen.update({name: mode(os.path.join(directory, name)) for name in os.listdir(directory)})
        raise InterruptedError

    monkeypatch.setattr(database, "create_schema", building)
    with pytest.raises(InterruptedError):
        open_store(directory)

    assert seen == {"locks": 0o600, "store.db.new": 0o600, "store.db.new-journal": 0o600}


def test_a_directory_that_was_too_open_is_closed(directory, careless):
    """A state directory of ours that others could look into is made ours alone."""
    os.mkdir(directory, 0o755)
    open_store(directory).close()

    assert mode(directory) == 0o700


@pytest.mark.parametrize("kind", ["link", "file", "nowhere"])
def test_a_state_directory_that_is_none_is_refused(directory, tmp_path, kind):
    """A link or a file in the directory's place is refused and left as it is."""
    (tmp_path / "elsewhere").mkdir()
    if kind == "link":
        os.symlink(tmp_path / "elsewhere", directory)
    elif kind == "nowhere":
        os.symlink(tmp_path / "gone", directory)
    else:
        (tmp_path / "state").write_text("mine")

    with pytest.raises(StoreUnusableError):
        open_store(directory)
    assert os.listdir(tmp_path / "elsewhere") == []
    assert not (tmp_path / "gone").exists()


# Others cannot make a directory of another user; root, for whom it matters most, can.
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_another_users_state_directory_is_refused(directory):
    """A state directory that belongs to somebody else is not used, by root either."""
    os.mkdir(directory, 0o700)
    os.chown(directory, 65534, 65534)

    with pytest.raises(StoreUnusableError, match="not this user's own"):
        open_store(directory)
    assert os.listdir(directory) == []


# No mode closes a directory to root, who meets this case nowhere; any other account proves it.
@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_state_directory_that_cannot_be_made_is_said(tmp_path):
    """Where no directory can be made the store is unusable, with the system's reason."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreUnusableError, match="cannot be made: Permission denied"):
            open_store(str(tmp_path / "state"))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("name", ["store.db", "locks"])
def test_a_link_in_the_place_of_a_file_of_ours_is_not_followed(directory, tmp_path, name):
    """A link planted in the state directory never makes us write elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    os.mkdir(directory, 0o700)
    os.symlink(elsewhere, os.path.join(directory, name))

    with pytest.raises((StoreUnusableError, OSError)):
        open_store(directory)
    assert not elsewhere.exists()


def foreign(path, wal=False):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
        connection.execute("PRAGMA application_id = 42")
        connection.execute("CREATE TABLE precious (data)")
        connection.execute("INSERT INTO precious VALUES ('precious')")


def change(path, *statements):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


NEWER = f"PRAGMA user_version = {VERSION + 1}"


def version_0_1(path):
    """Make a store as brainsurgeon 0.1 marked its own."""
    os.unlink(path)
    change(
        path,
        f"PRAGMA application_id = {database.APPLICATION_ID}",
        "CREATE TABLE _sqlite_migrations (migration_set TEXT, name TEXT, applied_at TEXT)",
        "INSERT INTO _sqlite_migrations VALUES ('brainsurgeon', 'm001_create_tables', '2026')",
        "CREATE TABLE blobs (id INTEGER PRIMARY KEY, data BLOB)",
        "INSERT INTO blobs (data) VALUES (zeroblob(9000))",
    )


def write(path, data):
    with open(path, "wb") as handle:
        handle.write(data)


def flip_header(path):
    with open(path, "r+b") as handle:
        handle.seek(100)
        handle.write(b"\xff" * 64)


UNUSABLE = {
    "newer": lambda path: change(path, NEWER),
    "newer, with a write-ahead log": lambda path: change(path, NEWER, "PRAGMA journal_mode = WAL"),
    "another program's": lambda path: (os.unlink(path), foreign(path)),
    "another program's, with a write-ahead log": lambda path: (
        os.unlink(path),
        foreign(path, wal=True),
    ),
    "an unmarked database": lambda path: change(path, "PRAGMA application_id = 0"),
    "of version 0.1": version_0_1,
    "zero bytes": lambda path: write(path, b""),
    "garbage": lambda path: write(path, secrets.token_bytes(8192)),
    "text": lambda path: write(path, b"no database\n"),
    "half a header": lambda path: os.truncate(path, 50),
    "truncated": lambda path: os.truncate(path, 4096),
    "truncated within a page": lambda path: os.truncate(path, 10_000),
    "a damaged header": flip_header,
}


@pytest.fixture(params=UNUSABLE)
def unusable(request, directory):
    """Give a state directory whose store is not to be used."""
    open_store(directory).close()
    UNUSABLE[request.param](os.path.join(directory, "store.db"))
    return directory


@pytest.mark.parametrize("opened", [open_store, room.open_to_read])
def test_a_store_that_is_not_understood_is_refused(unusable, opened):
    """A damaged or foreign store or one of another version is refused and does not change."""
    before = read_state_files(unusable)
    with pytest.raises(StoreUnusableError) as refused:
        opened(unusable)

    assert read_state_files(unusable) == before
    assert refused.value.exit_code == 7
    assert "store.db" in str(refused.value)


@pytest.mark.parametrize("opened", [open_store, room.open_to_read])
def test_an_older_store_is_refused_with_what_to_do(directory, opened):
    """Its refusal names its version, and how to restore its values with the older program."""
    open_store(directory).close()
    version_0_1(os.path.join(directory, "store.db"))

    with pytest.raises(StoreUnusableError) as refused:
        opened(directory)
    assert str(refused.value) == (
        f"{directory}/store.db was written by an older brainsurgeon (version 0 of the store, this "
        f"program knows {VERSION}): nothing was touched. Stop its daemon and run its "
        "`brainsurgeon restore --all --pristine` until nothing waits; then move the file away"
    )


def test_a_process_that_had_the_store_open_writes_nothing_to_a_newer_one(store, directory):
    """Each transaction checks the version, since another process may have upgraded the store."""
    change(os.path.join(directory, "store.db"), NEWER)
    before = read_state_files(directory)

    with (
        pytest.raises(StoreUnusableError, match="written by a newer brainsurgeon"),
        store.transaction(),
    ):
        store._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    assert read_state_files(directory) == before
    assert not store._connection.in_transaction


def test_a_creation_that_fails_leaves_no_store(directory, monkeypatch):
    """A store whose creation fails does not exist, and the next opening creates it whole."""

    def failing(connection):
        connection.execute("CREATE TABLE half (x)")
        raise ZeroDivisionError

    monkeypatch.setattr(database, "create_schema", failing)
    with pytest.raises(ZeroDivisionError):
        open_store(directory)
    half = os.path.exists(os.path.join(directory, "store.db"))
    monkeypatch.undo()
    with closing(open_store(directory)) as store:
        assert not half
        assert count_rows(store, "blobs") == 0
        assert sorted(os.listdir(directory)) == ["locks", "store.db"]


def test_many_first_openings_at_once_make_one_store(directory):
    """Processes that all find no store agree on one."""
    several = [OtherProcess(OPEN_STORE[0]) for _ in range(4)]
    for one in several:
        one.send(OPEN_STORE[1].format(directory=directory), "str(store._connection)")
    for one in several:
        one.receive()
        one.receive()
    for number, one in enumerate(several):
        one.execute(f"""
            with store.transaction():
                store._connection.execute("INSERT INTO meta VALUES ('key{number}', 'value')")
        """)
    for one in several:
        one.receive()
        one.kill()
    with closing(open_store(directory)) as store:
        assert count_rows(store, "meta") == 4
        assert pragma(store, "integrity_check") == "ok"


def test_a_store_moved_with_its_directory_still_works(store, directory, tmp_path):
    """The store holds no path of its own: a copy of the directory is the same store."""
    begin_rewrite(store, store_session(store), [removal()])
    shutil.copytree(directory, tmp_path / "copy")
    with closing(open_store(str(tmp_path / "copy"))) as copy:
        assert count_rows(copy, "extractions") == 1
