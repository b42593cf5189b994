"""Creating and opening a store, its permissions, and stores that are refused."""

import os
import re
import secrets
import shutil
import sqlite3
import stat
from contextlib import closing

import pytest

from brainsurgeon import store as room
from brainsurgeon.errors import StoreFullError, StoreUnusableError, UsageError
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
from building.world import NOBODY


def test_new_store_has_the_whole_schema(store):
    """A new store has all tables and indexes, and no file but the database and the locks."""
    created = {
        name
        for (name,) in store._connection.execute("SELECT name FROM sqlite_master WHERE sql != ''")
    }

    assert created - {"sqlite_sequence"} == set(re.findall(r"CREATE (?:TABLE|INDEX) (\w+)", SCHEMA))
    assert pragma(store, "user_version") == VERSION
    assert pragma(store, "application_id") == database.APPLICATION_ID
    assert pragma(store, "integrity_check") == "ok"
    assert sorted(os.listdir(store.directory)) == ["locks", "store.db"]


def test_opening_an_existing_store_changes_no_file(directory, store):
    """Opening an existing store, to read or to write, changes no file."""
    before = read_state_files(directory)
    for opener in (room.open_to_read, open_store):
        opener(directory).close()

    assert read_state_files(directory) == before


def test_open_to_read_without_a_store_is_empty_and_creates_nothing(directory):
    """Opening a missing store to read gives an empty one that refuses writes."""
    with room.open_to_read(directory) as empty:
        assert (empty.exists, empty.size, list(empty.sessions.all())) == (False, 0, [])
        with pytest.raises(StoreUnusableError), empty.transaction():
            empty.facts.put("last_run_at", 1.0)
    assert not os.path.exists(directory)


def test_store_in_a_directory_of_another_user_is_not_a_missing_store(store, directory):
    """Opening a store to read fails if its directory cannot be searched: it may have values."""
    os.seteuid(NOBODY) if os.geteuid() == 0 else os.chmod(directory, 0)
    try:
        with pytest.raises(StoreUnusableError, match="Run as the user that it belongs to"):
            room.open_to_read(directory)
    finally:
        os.seteuid(os.getuid())
        os.chmod(directory, 0o700)


def test_store_opened_to_read_refuses_writes_and_locks(directory, store):
    """A store opened to read refuses transactions and locks, and needs no lock file."""
    os.unlink(os.path.join(directory, "locks"))
    reader = room.open_to_read(directory)
    with pytest.raises(StoreUnusableError), reader.transaction():
        reader._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    with pytest.raises(StoreUnusableError), reader.lock(1):
        pass
    reader.close()

    assert count_rows(store, "meta") == 0
    assert os.listdir(directory) == ["store.db"]


def test_store_has_the_required_pragmas(synced, store):
    """Every commit and its rollback journal are synced, and deleted data is overwritten."""
    required = {
        "synchronous": 3, "journal_mode": "delete", "secure_delete": 1, "foreign_keys": 1,
        "trusted_schema": 0, "cell_size_check": 1,
    }  # fmt: skip

    assert {name: pragma(store, name) for name in required} == required


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


def test_store_files_are_private_from_creation(directory, no_umask):
    """Directory, database, journal and locks are the owner's even without a umask."""
    store = open_store(directory)
    with store.transaction():
        store._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
        during = {name: mode(os.path.join(directory, name)) for name in os.listdir(directory)}
    store.close()

    assert during == {"locks": 0o600, "store.db": 0o600, "store.db-journal": 0o600}
    assert mode(directory) == 0o700


def test_unfinished_store_is_private(directory, no_umask, monkeypatch):
    """The database and its journal are private while the schema is created."""
    modes = {}

    def building(connection):
        connection.execute("CREATE TABLE x (y)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO x VALUES (1)")
        modes.update({name: mode(os.path.join(directory, name)) for name in os.listdir(directory)})
        raise InterruptedError

    monkeypatch.setattr(database, "create_schema", building)
    with pytest.raises(InterruptedError):
        open_store(directory)

    assert modes == {"locks": 0o600, "store.db.new": 0o600, "store.db.new-journal": 0o600}


def test_open_state_directory_is_made_private(directory, no_umask):
    """Opening a store removes the permissions of others from its own directory."""
    os.mkdir(directory, 0o755)
    open_store(directory).close()

    assert mode(directory) == 0o700


def make_state(directory, *names, locks=False):
    os.mkdir(directory, 0o755)
    for name in (*names, *(["locks"] if locks else [])):
        path = os.path.join(directory, name)
        os.mkdir(path) if name.endswith(("+found", "store.db.new-a1")) else write(path, b"")


@pytest.mark.parametrize("opener", [open_store, room.open_to_read, database.make_directory])
@pytest.mark.parametrize("names", [["passwd"], ["lost+found", "a"], [".git"], ["init.json", "a"]])
def test_directory_with_files_of_others_is_refused_as_state_directory(directory, opener, names):
    """Without a store of ours, it is an error of the configuration, and the mode stays."""
    make_state(directory, *names)
    with pytest.raises(UsageError, match=f"^state_dir: {directory} has files of others") as error:
        opener(directory)

    assert error.value.exit_code == 2
    assert sorted(os.listdir(directory)) == sorted(names)
    assert mode(directory) == 0o755


def test_file_with_content_called_locks_is_no_mark_of_ours(directory):
    """The file of locks is empty; another one of this name is a file of others."""
    make_state(directory, "passwd")
    write(os.path.join(directory, "locks"), b"the keys of the house")
    with pytest.raises(UsageError, match="has files of others and no store"):
        open_store(directory)

    assert mode(directory) == 0o755


def test_directory_of_another_database_is_refused_as_state_directory(directory):
    """A `store.db` of another program makes no state directory; its files and mode stay."""
    make_state(directory)
    create_foreign(os.path.join(directory, "store.db"), wal=True)
    before = read_state_files(directory)
    with pytest.raises(UsageError, match="has files of others and no store"):
        open_store(directory)

    assert read_state_files(directory) == before
    assert mode(directory) == 0o755


@pytest.mark.parametrize(
    ("names", "locks"),
    [
        (["lost+found"], False), (["report.html"], False), (["init.json"], False),
        (["daemon.lock", "last_run"], False), (["store.db.new-a1", "store.db.new"], False),
        (["store.db.old", "notes"], True),
    ],
)  # fmt: skip
def test_directory_without_a_store_is_used_if_its_files_are_ours(directory, names, locks):
    """So is one whose store the user moved away."""
    make_state(directory, *names, locks=locks)
    open_store(directory).close()

    assert mode(directory) == 0o700


def test_state_directory_keeps_files_of_the_user(directory):
    """A store is used although the lock file is gone and other files lie beside it."""
    open_store(directory).close()
    os.unlink(os.path.join(directory, "locks"))
    write(os.path.join(directory, "notes"), b"mine")
    open_store(directory).close()

    assert sorted(os.listdir(directory)) == ["locks", "notes", "store.db"]


@pytest.mark.parametrize("kind", ["link", "file", "nowhere"])
def test_state_directory_that_is_a_link_or_file_is_refused(directory, tmp_path, kind):
    """A link or file in place of the state directory is refused and stays as it is."""
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


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_state_directory_of_another_user_is_refused(directory):
    """A state directory of another user is refused, even by root."""
    os.mkdir(directory, 0o700)
    os.chown(directory, 65534, 65534)

    with pytest.raises(StoreUnusableError, match="belongs to another user"):
        open_store(directory)
    assert os.listdir(directory) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_state_directory_that_cannot_be_created_is_an_error(tmp_path):
    """The error about a state directory that cannot be created gives the system's reason."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreUnusableError, match="cannot be made: Permission denied"):
            open_store(str(tmp_path / "state"))
    finally:
        tmp_path.chmod(0o700)


def test_unwritable_lock_file_is_named(directory):
    """If the directory is writable but its file of locks is not, the error names the file."""
    locks = os.path.join(directory, "locks")
    os.makedirs(locks, 0o700)

    with pytest.raises(StoreUnusableError, match=f"^{locks} cannot be written: Is a directory"):
        open_store(directory)


@pytest.mark.parametrize("name", ["store.db", "locks"])
def test_symlink_in_place_of_a_store_file_is_not_followed(directory, tmp_path, name):
    """A symlink in place of the database or the locks creates nothing at its target."""
    elsewhere = tmp_path / "elsewhere"
    os.mkdir(directory, 0o700)
    os.symlink(elsewhere, os.path.join(directory, name))

    with pytest.raises((StoreUnusableError, UsageError, OSError)):
        open_store(directory)
    assert not elsewhere.exists()


def create_foreign(path, wal=False):
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


def write_version_0_1(path):
    """Write a store with the marks of brainsurgeon 0.1."""
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
    "another program's": lambda path: (os.unlink(path), create_foreign(path)),
    "another program's, with a write-ahead log": lambda path: (
        os.unlink(path),
        create_foreign(path, wal=True),
    ),
    "an unmarked database": lambda path: change(path, "PRAGMA application_id = 0"),
    "of version 0.1": write_version_0_1,
    "zero bytes": lambda path: write(path, b""),
    "garbage": lambda path: write(path, secrets.token_bytes(8192)),
    "text": lambda path: write(path, b"no database\n"),
    "half a header": lambda path: os.truncate(path, 50),
    "truncated": lambda path: os.truncate(path, 4096),
    "truncated within a page": lambda path: os.truncate(path, 10_000),
    "a damaged header": flip_header,
}


@pytest.fixture(params=UNUSABLE)
def unusable_store(request, directory):
    """Return a state directory with an unusable store."""
    open_store(directory).close()
    UNUSABLE[request.param](os.path.join(directory, "store.db"))
    return directory


@pytest.mark.parametrize("opener", [open_store, room.open_to_read])
def test_unusable_store_is_refused_and_unchanged(unusable_store, opener):
    """A damaged, foreign, newer or older database is refused with exit code 7."""
    before = read_state_files(unusable_store)
    with pytest.raises(StoreUnusableError) as error:
        opener(unusable_store)

    assert read_state_files(unusable_store) == before
    assert error.value.exit_code == 7
    assert "store.db" in str(error.value)


@pytest.mark.parametrize("opener", [open_store, room.open_to_read])
def test_older_store_is_refused_with_instructions(directory, opener):
    """The error names its version and the command that restores its values."""
    open_store(directory).close()
    write_version_0_1(os.path.join(directory, "store.db"))

    with pytest.raises(StoreUnusableError) as error:
        opener(directory)
    assert str(error.value) == (
        f"{directory}/store.db was written by an older brainsurgeon (version 0 of the store, this "
        f"program knows {VERSION}): nothing was touched. Stop the daemon. With that version, "
        "run `brainsurgeon restore --all --pristine` until nothing waits; then move it away"
    )


def test_open_store_refuses_to_write_after_an_upgrade(store, directory):
    """An open store refuses to write once another process has raised its version."""
    change(os.path.join(directory, "store.db"), NEWER)
    before = read_state_files(directory)

    with (
        pytest.raises(StoreUnusableError, match="written by a newer brainsurgeon"),
        store.transaction(),
    ):
        store._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    assert read_state_files(directory) == before
    assert not store._connection.in_transaction


def test_failed_creation_leaves_no_store(directory, monkeypatch):
    """A failed creation leaves no store, and the next opening creates a whole one."""

    def failing(connection):
        connection.execute("CREATE TABLE half (x)")
        raise ZeroDivisionError

    monkeypatch.setattr(database, "create_schema", failing)
    with pytest.raises(ZeroDivisionError):
        open_store(directory)
    exists = os.path.exists(os.path.join(directory, "store.db"))
    monkeypatch.undo()
    with closing(open_store(directory)) as store:
        assert not exists
        assert count_rows(store, "blobs") == 0
        assert sorted(os.listdir(directory)) == ["locks", "store.db"]


def test_concurrent_first_openings_create_one_store(directory):
    """Four processes that find no store create one, and all write to it."""
    processes = [OtherProcess(OPEN_STORE[0]) for _ in range(4)]
    for process in processes:
        process.send(OPEN_STORE[1].format(directory=directory), "str(store._connection)")
    for process in processes:
        process.receive()
        process.receive()
    for number, process in enumerate(processes):
        process.execute(f"""
            with store.transaction():
                store._connection.execute("INSERT INTO meta VALUES ('key{number}', 'value')")
        """)
    for process in processes:
        process.receive()
        process.kill()
    with closing(open_store(directory)) as store:
        assert count_rows(store, "meta") == 4
        assert pragma(store, "integrity_check") == "ok"


def test_copied_state_directory_is_the_same_store(store, directory, tmp_path):
    """A copied state directory is the same store, since it contains no path of its own."""
    begin_rewrite(store, store_session(store), [removal()])
    shutil.copytree(directory, tmp_path / "copy")
    with closing(open_store(str(tmp_path / "copy"))) as copy:
        assert count_rows(copy, "extractions") == 1


def test_a_disk_that_fails_does_not_make_the_store_damaged(directory, tmp_path):
    """A check of a store that cannot be read now raises the error of the disk."""
    open_store(directory).close()
    with closing(open_store(directory)) as opened:
        path = database.database_path(directory)
        files = {name: f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")}
        [number] = [int(name) for name, link in files.items()
                    if os.path.islink(link) and os.readlink(link) == path]  # fmt: skip
        opened._connection.execute("PRAGMA shrink_memory")
        unreadable = os.open(tmp_path, os.O_RDONLY)  # reading it fails
        os.dup2(unreadable, number)
        os.close(unreadable)
        with pytest.raises(StoreUnusableError, match="the disk fails"):
            opened.damage()


@pytest.mark.parametrize("code", ["SQLITE_CANTOPEN", "SQLITE_IOERR_FSYNC"])
def test_error_of_a_disk_without_room_says_that_the_disk_is_full(directory, monkeypatch, code):
    """Without a free inode, SQLite cannot create its journal. Some full disks fail at a sync."""
    error = sqlite3.OperationalError()
    error.sqlite_errorname = code
    monkeypatch.setattr(database, "free", lambda _: 0)

    assert isinstance(database.explain(error, directory), StoreFullError)
