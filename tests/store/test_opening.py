"""How a store comes into being, who may read it, and which one is refused."""

import os
import secrets
import shutil
import sqlite3
import stat
from contextlib import closing

import pytest

from brainsurgeon import store as room
from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.store import migrations, open_store, opening
from building.processes import Puppet
from building.rows import OPEN, begin, contents, count, cut, pragma, session


def test_a_new_store_has_the_whole_schema(store):
    """From nothing comes a store with every table, our mark, and a record of what was applied."""
    tables = {
        name
        for (name,) in store._connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        )
    }
    applied = store._connection.execute(
        "SELECT name FROM _sqlite_migrations WHERE migration_set = 'brainsurgeon' ORDER BY id"
    ).fetchall()

    assert tables >= {
        "agents", "sessions", "blobs", "extractions", "fields", "restores", "wishes", "files",
        "journal", "meta",
    }  # fmt: skip
    assert [name for (name,) in applied] == list(opening.KNOWN_MIGRATIONS)
    assert pragma(store, "application_id") == opening.APPLICATION_ID
    assert pragma(store, "integrity_check") == "ok"
    assert sorted(os.listdir(store.directory)) == ["locks", "store.db"]


def test_every_known_migration_is_one_that_exists():
    """The list of known migrations, kept apart for speed, names exactly the steps there are."""
    assert (
        tuple(step.name for step in migrations.migrations._migrations) == opening.KNOWN_MIGRATIONS
    )


def test_opening_again_changes_nothing(directory, store):
    """A store that is up to date is opened without a byte written, for reading or for writing."""
    before = contents(directory)
    for opened in (room.open_to_read, open_store):
        opened(directory).close()

    assert contents(directory) == before


def test_reading_where_nothing_is_makes_nothing(directory):
    """Opening for reading gives nothing where there is no store, and leaves it so."""
    assert room.open_to_read(directory) is None
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

    assert count(store, "meta") == 0
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
    """Take the umask away."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path):
    """Give the permissions of a path."""
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
    """While it is being built, under its other name, the database is its owner's alone."""
    seen = {}

    def building(connection):
        connection.execute("CREATE TABLE x (y)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO x VALUES (1)")
        seen.update({name: mode(os.path.join(directory, name)) for name in os.listdir(directory)})
        raise InterruptedError

    monkeypatch.setattr(opening, "_apply_migrations", building)
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
    """Make another program's database."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {'WAL' if wal else 'DELETE'}")
        connection.execute("PRAGMA application_id = 42")
        connection.execute("CREATE TABLE precious (data)")
        connection.execute("INSERT INTO precious VALUES ('precious')")


def change(path, *statements):
    """Change a store behind its back."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


NEWER = (
    "INSERT INTO _sqlite_migrations (migration_set, name, applied_at)"
    " VALUES ('brainsurgeon', 'm999_from_the_future', '2099')"
)


def write(path, data):
    """Write a file."""
    with open(path, "wb") as handle:
        handle.write(data)


def flip_header(path):
    """Damage the first page."""
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
    "without record": lambda path: change(path, "DROP TABLE _sqlite_migrations"),
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
    """A damaged, foreign or newer store is unusable, and not one byte of it changes."""
    before = contents(unusable)
    with pytest.raises(StoreUnusableError) as refused:
        opened(unusable)

    assert contents(unusable) == before
    assert refused.value.exit_code == 7
    assert "store.db" in str(refused.value)


def test_a_pass_with_a_newer_store_touches_nothing(world, conversation):
    """Where the store is refused no session is pruned."""
    conversation.turn("x" * 4000)
    path = world.put("one.jsonl", conversation.bytes())
    world.store.close()
    world._stores.clear()
    change(world.state / "store.db", NEWER)

    with pytest.raises(StoreUnusableError, match="newer brainsurgeon"):
        world.scan(keep_recent=0)
    assert path.read_bytes() == conversation.bytes()


def test_a_failing_migration_leaves_nothing_behind(directory, monkeypatch):
    """A step that fails is undone whole, is not recorded, and may be tried again."""
    with closing(open_store(directory)) as store:
        begin(store, session(store), [cut()])
        before = store._connection.serialize()
    steps = type(migrations.migrations)("brainsurgeon")
    for step in migrations.migrations._migrations:
        steps._migrations.append(step)

    @steps()
    def m998_fails(db):
        db.execute("CREATE TABLE half (x)")
        db.execute("DELETE FROM extractions")
        raise ZeroDivisionError

    monkeypatch.setattr(migrations, "migrations", steps)
    monkeypatch.setattr(opening, "KNOWN_MIGRATIONS", (*opening.KNOWN_MIGRATIONS, "m998_fails"))
    with pytest.raises(ZeroDivisionError):
        open_store(directory)
    monkeypatch.undo()
    again = open_store(directory)
    tables = again._connection.execute(
        "SELECT name FROM sqlite_master WHERE name = 'half'"
    ).fetchall()

    assert tables == []
    assert count(again, "extractions") == 1
    assert again._connection.serialize() == before
    again.close()


def test_a_creation_that_fails_leaves_no_store(directory, monkeypatch):
    """A store whose first step fails does not exist, and the next opening makes it whole."""

    def failing(connection):
        connection.execute("CREATE TABLE half (x)")
        raise ZeroDivisionError

    monkeypatch.setattr(opening, "_apply_migrations", failing)
    with pytest.raises(ZeroDivisionError):
        open_store(directory)
    half = os.path.exists(os.path.join(directory, "store.db"))
    monkeypatch.undo()
    with closing(open_store(directory)) as store:
        assert not half
        assert count(store, "blobs") == 0
        assert sorted(os.listdir(directory)) == ["locks", "store.db"]


def test_many_first_openings_at_once_make_one_store(directory):
    """Processes that all find no store agree on one."""
    several = [Puppet(OPEN[0]) for _ in range(4)]
    for one in several:
        one.say(OPEN[1].format(directory=directory), "str(store._connection)")
    for one in several:
        one.hear()
        one.hear()
    for number, one in enumerate(several):
        one.start(f"""
            with store.transaction():
                store._connection.execute("INSERT INTO meta VALUES ('key{number}', 'value')")
        """)
    for one in several:
        one.hear()
        one.kill()
    with closing(open_store(directory)) as store:
        assert count(store, "meta") == 4
        assert pragma(store, "integrity_check") == "ok"


def test_a_store_moved_with_its_directory_still_works(store, directory, tmp_path):
    """The store holds no path of its own: a copy of the directory is the same store."""
    begin(store, session(store), [cut()])
    shutil.copytree(directory, tmp_path / "copy")
    with closing(open_store(str(tmp_path / "copy"))) as copy:
        assert count(copy, "extractions") == 1
