"""The store: whole or not at all, its owner's alone, durable, refused where not understood."""

import fcntl
import os
import secrets
import shutil
import sqlite3
import stat
import threading
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from brainsurgeon import store as room
from brainsurgeon.errors import Busy, Damaged, StoreFull, StoreUnusable
from brainsurgeon.model import Cut, End, Fingerprint, Found
from brainsurgeon.store import blobs, extractions, files, journal, migrations, open_store, opening
from workers.puppet import Puppet

OPEN = (
    "globals().update(room=__import__('brainsurgeon.store', fromlist=['x']))",
    "globals().update(store=room.open_store({directory!r}))",
)


@pytest.fixture
def directory(tmp_path):
    """Give the place of a store that does not exist yet."""
    return str(tmp_path / "state")


@pytest.fixture
def store(directory):
    """Give an open store."""
    one = open_store(directory)
    yield one
    one.close()


@pytest.fixture
def neighbour(directory, store):
    """Give another process that has the same store open."""
    one = Puppet(*(step.format(directory=directory) for step in OPEN))
    yield one
    one.kill()


def contents(directory):
    """Take down every file of a state directory, but for the locks, which hold nothing."""
    taken = {}
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if name != "locks" and os.path.isfile(path):
            with open(path, "rb") as handle:
                taken[name] = handle.read()
    return taken


def pragma(store, name):
    """Ask SQLite for one setting."""
    return store.connection.execute(f"PRAGMA {name}").fetchone()[0]


def count(store, table):
    """Count the rows of a table."""
    return store.connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def put(connection, agent, value):
    """Store a value."""
    return blobs.put(connection, agent, value, 1.0)


def found(session="one", agent="main", root="/agents"):
    """Give a session as the walk finds it."""
    home = f"{root}/{agent}"
    state = Fingerprint(1, 2, 3000, 4, 5)
    return Found(root, f"{home}/sessions", f"{session}.jsonl", agent, home, "auto", state)


def session(store, **where):
    """Note a session."""
    with store.transaction() as connection:
        return extractions.note_session(connection, found(**where), "openclaw", None)


def cut(entry="e1", path=("message", "content", 0, "text")):
    """Give a cut as it is planned."""
    stub = f"[[extracted-{entry}]]"
    return Cut(0, 9, b'"' + stub.encode() + b'"', entry, stub, path, "tool_result", "exec", 7,
               block=False, forced=False, reason="old")  # fmt: skip


def begin(store, row, cuts=(), value=b"value", note=None):
    """Begin a rewrite: values, rows and the journal entry, as the knife does."""
    with store.transaction() as connection:
        shelved = []
        for one in cuts:
            blob, digest, _ = put(connection, row.agent_id, value)
            shelved.append((one, blob, digest, len(value)))
        entry = journal.begin(
            connection, row.id, found(), ".brainsurgeon-0.tmp", note or journal.Note()
        )
        extractions.add(connection, row.id, entry, shelved, 1.0)
    return entry


def confirm(store, row, entry, note=None):
    """Confirm a rewrite."""
    with store.transaction() as connection:
        journal.confirm(connection, entry, row.id, note or journal.Note(at=2.0))


def standing(store, row):
    """Give the extractions of a session as entry, state."""
    return [
        (one.entry_id, one.state) for one in extractions.of_sessions(store.connection, [row.id])
    ]


def test_a_new_store_has_the_whole_schema(store):
    """From nothing comes a store with every table, our mark, and a record of what was applied."""
    tables = {
        name
        for (name,) in store.connection.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
        )
    }
    applied = store.connection.execute(
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
    with pytest.raises(StoreUnusable), looking.transaction() as connection:
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    with pytest.raises(StoreUnusable), looking.lock(1):
        pass
    looking.close()

    assert looking.readonly
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
    with store.transaction() as connection:
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
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

    with pytest.raises(StoreUnusable):
        open_store(directory)
    assert os.listdir(tmp_path / "elsewhere") == []
    assert not (tmp_path / "gone").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_another_users_state_directory_is_refused(directory):
    """A state directory that belongs to somebody else is not used, by root either."""
    os.mkdir(directory, 0o700)
    os.chown(directory, 65534, 65534)

    with pytest.raises(StoreUnusable, match="not this user's own"):
        open_store(directory)
    assert os.listdir(directory) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_state_directory_that_cannot_be_made_is_said(tmp_path):
    """Where no directory can be made the store is unusable, with the system's reason."""
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreUnusable, match="cannot be made: Permission denied"):
            open_store(str(tmp_path / "state"))
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("name", ["store.db", "locks"])
def test_a_link_in_the_place_of_a_file_of_ours_is_not_followed(directory, tmp_path, name):
    """A link planted in the state directory never makes us write elsewhere."""
    elsewhere = tmp_path / "elsewhere"
    os.mkdir(directory, 0o700)
    os.symlink(elsewhere, os.path.join(directory, name))

    with pytest.raises((StoreUnusable, OSError)):
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
def test_a_store_that_is_not_understood_is_refused_and_left_as_it_is(unusable, opened):
    """A damaged, foreign or newer store is unusable, and not one byte of it changes."""
    before = contents(unusable)
    with pytest.raises(StoreUnusable) as refused:
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

    with pytest.raises(StoreUnusable, match="newer brainsurgeon"):
        world.scan(keep_recent=0)
    assert path.read_bytes() == conversation.bytes()


def test_a_failing_migration_leaves_nothing_behind(directory, monkeypatch):
    """A step that fails is undone whole, is not recorded, and may be tried again."""
    with closing(open_store(directory)) as store:
        begin(store, session(store), [cut()])
        before = store.connection.serialize()
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
    tables = again.connection.execute(
        "SELECT name FROM sqlite_master WHERE name = 'half'"
    ).fetchall()

    assert tables == []
    assert count(again, "extractions") == 1
    assert again.connection.serialize() == before
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
        one.say(OPEN[1].format(directory=directory), "str(store.connection)")
    for one in several:
        one.hear()
        one.hear()
    for number, one in enumerate(several):
        one.start(f"""
            with store.transaction() as connection:
                connection.execute("INSERT INTO meta VALUES ('key{number}', 'value')")
        """)
    for one in several:
        one.hear()
        one.kill()
    with closing(open_store(directory)) as store:
        assert count(store, "meta") == 4
        assert pragma(store, "integrity_check") == "ok"


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(value=st.one_of(st.binary(max_size=200), st.binary(max_size=3).map(lambda x: x * 3000)))
def test_values_come_back_bit_for_bit(store, value):
    """Whatever bytes are stored, those bytes are read, compressed or not."""
    agent = session(store).agent_id
    with store.transaction() as connection:
        blob, digest, _ = put(connection, agent, value)

    assert blobs.get(store.connection, blob, digest) == value
    assert digest == blobs.digest(value)


def test_what_does_not_compress_is_stored_as_it_is(store):
    """Packing never makes a value larger than it was."""
    agent = session(store).agent_id
    value = secrets.token_bytes(10_000)
    with store.transaction() as connection:
        random, digest, written = put(connection, agent, value)
        _, _, packed = put(connection, agent, b"x" * 10_000)

    assert blobs.get(store.connection, random, digest) == value
    assert written == 10_000
    assert packed < 100


def test_equal_values_of_one_agent_are_stored_once(store):
    """The second of two equal values costs nothing, from another session of the agent too."""
    one, other = session(store, session="one"), session(store, session="two")
    with store.transaction() as connection:
        first = put(connection, one.agent_id, b"same" * 100)
        second = put(connection, other.agent_id, b"same" * 100)
        third = put(connection, one.agent_id, b"different" * 100)

    assert one.agent_id == other.agent_id
    assert first[0] == second[0] != third[0]
    assert second[2] == 0
    assert count(store, "blobs") == 2


@pytest.mark.parametrize("elsewhere", [{"agent": "other"}, {"root": "/elsewhere"}])
def test_nothing_is_shared_between_agents(store, elsewhere):
    """Equal values of two agents are two values, also of agents that only have the same name."""
    one, other = session(store), session(store, session="two", **elsewhere)
    with store.transaction() as connection:
        first = put(connection, one.agent_id, b"same" * 100)
        second = put(connection, other.agent_id, b"same" * 100)

    assert first[0] != second[0]
    assert second[2] > 0
    assert count(store, "blobs") == 2


@pytest.mark.parametrize("value", [secrets.token_bytes(300), b"words " * 500])
def test_a_flipped_bit_is_noticed(store, value):
    """A value of which one bit changed in the store is never given out, packed or not."""
    agent = session(store).agent_id
    with store.transaction() as connection:
        blob, digest, _ = put(connection, agent, value)
    (data,) = store.connection.execute("SELECT data FROM blobs").fetchone()
    given = []
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << (place % 8)
        store.connection.execute("UPDATE blobs SET data = ?", (bytes(damaged),))
        try:
            given.append(blobs.get(store.connection, blob, digest))
        except Damaged:
            continue

    assert all(got == value for got in given)
    assert len(given) <= len(data) // 20


DAMAGES = [
    "DELETE FROM blobs",
    "UPDATE blobs SET size = size + 1",
    "UPDATE blobs SET size = 0",
    "UPDATE blobs SET data = x''",
    "UPDATE blobs SET data = zeroblob(2998)",
    "UPDATE blobs SET codec = 'raw'",
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_value_that_is_not_what_was_stored_is_refused(store, damage):
    """Missing, of another length, of other bytes: the value is damaged, and not given out."""
    agent = session(store).agent_id
    with store.transaction() as connection:
        blob, digest, _ = put(connection, agent, b"words " * 500)
    store.connection.execute("PRAGMA foreign_keys = OFF")
    store.connection.execute(damage)

    with pytest.raises(Damaged):
        blobs.get(store.connection, blob, digest)


def test_one_value_is_never_given_out_for_another(store):
    """A blob that is whole but is not the value asked for is as good as damaged."""
    agent = session(store).agent_id
    with store.transaction() as connection:
        blob, _, _ = put(connection, agent, b"one" * 100)
        _, other, _ = put(connection, agent, b"another" * 100)

    with pytest.raises(Damaged):
        blobs.get(store.connection, blob, other)


def test_a_packed_value_cannot_blow_up(store):
    """A blob that claims a small size does not unpack to a large one."""
    agent = session(store).agent_id
    with store.transaction() as connection:
        blob, digest, _ = put(connection, agent, b"\0" * (64 << 20))
    store.connection.execute("UPDATE blobs SET size = 10")

    with pytest.raises(Damaged):
        blobs.get(store.connection, blob, digest)


def test_what_is_deleted_is_really_gone(store, directory):
    """The bytes of a deleted value do not stay behind in the file."""
    agent = session(store).agent_id
    secret = secrets.token_bytes(3000)
    with store.transaction() as connection:
        put(connection, agent, secret)
    stored = secret[:100] in contents(directory)["store.db"]
    with store.transaction() as connection:
        connection.execute("DELETE FROM blobs")
    left = any(secret[:100] in data for data in contents(directory).values())

    assert stored
    assert not left


def test_a_transaction_is_all_or_nothing(store):
    """A block that fails leaves nothing of what it wrote."""

    def failing():
        with store.transaction() as connection:
            connection.execute("INSERT INTO meta VALUES ('a', 'b')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()

    assert count(store, "meta") == 0
    assert not store.connection.in_transaction


def test_a_full_disk_is_said_as_one_and_undone(store):
    """When the database cannot grow, StoreFull says so and nothing of the transaction stays."""
    agent = session(store).agent_id
    pages = pragma(store, "page_count")
    store.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreFull) as full, store.transaction() as connection:
        put(connection, agent, secrets.token_bytes(100_000))

    assert count(store, "blobs") == 0
    assert not store.connection.in_transaction
    assert full.value.exit_code == 1


def test_a_store_that_somebody_writes_to_for_long_is_busy(directory, monkeypatch):
    """A writer that does not let go in time makes the others Busy, not broken."""
    monkeypatch.setattr(opening, "PATIENCE", 0.05)
    store = open_store(directory)
    other = Puppet(*(step.format(directory=directory) for step in OPEN))
    other.ask("str(store.connection.execute('BEGIN IMMEDIATE'))")
    with pytest.raises(Busy) as busy, store.transaction():
        pass
    other.ask("str(store.connection.execute('COMMIT'))")
    with store.transaction() as connection:
        connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    other.kill()

    assert busy.value.exit_code == 6
    assert count(store, "meta") == 1
    store.close()


def test_two_processes_write_at_once(store, neighbour):
    """Transactions of two processes wait for each other; none is lost, torn or refused."""
    rounds = 40
    session(store)
    neighbour.start(f"""
        for number in range({rounds}):
            with store.transaction() as connection:
                connection.execute(
                    "INSERT INTO meta VALUES (?, ?)", (f"theirs{{number}}", "x" * 5000))
                connection.execute("UPDATE sessions SET parent = coalesce(parent, '') || 't'")
    """)
    for number in range(rounds):
        with store.transaction() as connection:
            connection.execute("INSERT INTO meta VALUES (?, ?)", (f"ours{number}", "x" * 5000))
            connection.execute("UPDATE sessions SET parent = coalesce(parent, '') || 'o'")
    neighbour.hear(60)
    (parent,) = store.connection.execute("SELECT parent FROM sessions").fetchone()

    assert count(store, "meta") == 2 * rounds
    assert (parent.count("o"), parent.count("t")) == (rounds, rounds)
    assert pragma(store, "integrity_check") == "ok"


def test_a_session_is_one_writers_at_a_time(store, neighbour):
    """The lock of a session that another process holds is refused when patience ends."""
    neighbour.ask("globals().update(held=store.lock(7))")
    neighbour.ask("held.__enter__()")
    with pytest.raises(Busy, match="another brainsurgeon"), store.lock(7, patience=0.06):
        pass
    with store.lock(8, patience=0):
        others = True
    neighbour.ask("held.__exit__(None, None, None)")
    with store.lock(7, patience=0):
        ours = True

    assert others
    assert ours


def test_a_lock_is_waited_for(store, neighbour):
    """A lock that is let go in time is got."""
    neighbour.ask("globals().update(held=store.lock(7))")
    neighbour.ask("held.__enter__()")
    neighbour.say("time.sleep(0.15) or held.__exit__(None, None, None)")
    with store.lock(7):
        got = True

    neighbour.hear()

    assert got


def test_the_lock_of_a_dead_holder_is_free(store, neighbour):
    """A holder that is killed leaves nothing to clean up."""
    neighbour.ask("globals().update(held=store.lock(7))")
    neighbour.ask("held.__enter__()")
    neighbour.kill()
    with store.lock(7, patience=0):
        got = True

    assert got


def test_a_lock_keeps_others_out_while_it_is_held(store, neighbour):
    """What this process holds, another is refused, and gets when it is let go."""
    neighbour.start("""
        def attempt():
            with store.lock(7, patience=0.05):
                return "got"
    """)
    neighbour.hear()
    with store.lock(7), pytest.raises(OSError, match="another brainsurgeon") as refused:
        neighbour.ask("attempt()")

    assert refused.value.filename == "Busy"
    assert neighbour.ask("attempt()") == "got"


def test_pending_rows_are_nobodys(store):
    """Until its rewrite is confirmed a swap is not there for anybody to restore or to show."""
    row = session(store)
    begin(store, row, [cut("e1"), cut("e2")])

    assert count(store, "extractions") == 2
    assert standing(store, row) == []
    assert extractions.of_entry(store.connection, "e1") == []
    assert extractions.totals(store.connection) == {}


def test_a_confirmed_rewrite_counts_and_stays_open_until_it_is_closed(store):
    """Confirming makes the rows count; the journal keeps the rewrite until the old file is gone."""
    row = session(store)
    entry = begin(store, row, [cut("e1"), cut("e2")])
    confirm(store, row, entry)
    kept = journal.row(store.connection, entry)
    with store.transaction() as connection:
        journal.close(connection, entry)

    assert standing(store, row) == [("e1", "standing"), ("e2", "standing")]
    assert kept.confirmed
    assert journal.open_rows(store.connection) == []


def test_an_abandoned_rewrite_never_was(store):
    """Abandoning takes the rows away, leaves those of other rewrites, and keeps the values."""
    row = session(store)
    confirm(store, row, begin(store, row, [cut("e1")], b"first"))
    entry = begin(store, row, [cut("e2")], b"second")
    with store.transaction() as connection:
        extractions.add_field(connection, row.id, entry, "e2", "_restored", None, b"x", "y", 1.0)
        journal.abandon(connection, entry)

    assert standing(store, row) == [("e1", "standing")]
    assert extractions.fields(store.connection, row.id) == []
    assert len(journal.open_rows(store.connection)) == 1
    assert count(store, "blobs") == 2


def test_a_rewrite_that_was_seen_for_an_instant_stays_idle(store):
    """Where somebody may have read the new content, its stubs still resolve, and count for none."""
    row = session(store)
    entry = begin(store, row, [cut("e1")])
    with store.transaction() as connection:
        journal.filled(connection, entry, 2**63 + 5, (End(7, b"old"), End(5, b"new")))
        journal.idle(connection, entry)
    kept = journal.row(store.connection, entry)

    assert standing(store, row) == [("e1", "restored")]
    assert kept.new_inode == 2**63 + 5
    assert kept.ends == (End(7, b"old"), End(5, b"new"))
    assert extractions.of_entry(store.connection, "e1")[0].blob_id is not None


def test_a_rewrite_that_puts_back_marks_what_it_put_back(store):
    """Confirming a put-back notes value, entry and moment, and touches no other session's rows."""
    row, other = session(store), session(store, session="two")
    confirm(store, row, begin(store, row, [cut("e1"), cut("e2")]))
    confirm(store, other, begin(store, other, [cut("e1")]))
    ids = {one.entry_id: one.id for one in extractions.of_sessions(store.connection, [row.id])}
    (foreign_id,) = [one.id for one in extractions.of_sessions(store.connection, [other.id])]
    note = journal.Note(put_back=[ids["e1"], foreign_id], restored=["e1"], at=50.0)
    confirm(store, row, begin(store, row, note=note), note)

    assert standing(store, row) == [("e1", "restored"), ("e2", "standing")]
    assert standing(store, other) == [("e1", "standing")]
    assert extractions.restores(store.connection, row.id) == {"e1": 50.0}


def test_a_value_cut_again_replaces_the_record_of_the_first_cut(store):
    """Cut, put back, cut again: one row speaks for the place; another value keeps its history."""
    row = session(store)
    confirm(store, row, begin(store, row, [cut("e1")], b"same"))
    (first,) = extractions.of_sessions(store.connection, [row.id])
    note = journal.Note(put_back=[first.id], restored=["e1"], at=5.0)
    confirm(store, row, begin(store, row, note=note), note)
    confirm(store, row, begin(store, row, [cut("e1")], b"same"))
    once = standing(store, row)
    confirm(store, row, begin(store, row, [cut("e1")], b"another"))

    assert once == [("e1", "standing")]
    assert sorted(standing(store, row)) == [("e1", "restored"), ("e1", "standing")]


def test_confirming_twice_is_no_error(store):
    """What recovery confirms again stays as it was."""
    row = session(store)
    entry = begin(store, row, [cut("e1")])
    confirm(store, row, entry)
    confirm(store, row, entry)

    assert standing(store, row) == [("e1", "standing")]


NUMBERS = st.integers(0, (1 << 64) - 1)
NAMES = st.binary(min_size=1, max_size=30).filter(
    lambda name: b"\0" not in name and b"/" not in name
)


@settings(
    max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(device=NUMBERS, inode=NUMBERS, name=NAMES)
def test_any_file_can_be_noted(store, device, inode, name):
    """Journal and memory keep devices and inodes of 64 bits and names of any bytes as they are."""
    row = session(store)
    state = Fingerprint(device, inode, 1, 2, 3)
    place = Found("/agents", "/agents/" + os.fsdecode(name), os.fsdecode(name) + ".jsonl", "a",
                  "/agents/a", "auto", state)  # fmt: skip
    seen = files.Seen(state, "rules", None, "unchanged", "", 1.0, None, 2.0)
    with store.transaction() as connection:
        entry = journal.begin(connection, row.id, place, "t", journal.Note(restored=["é"], at=1.5))
        noted = extractions.note_session(connection, place, "generic", None)
        files.remember(connection, place.path, seen)
    kept = journal.row(store.connection, entry)

    assert (kept.device, kept.inode) == (device, inode)
    assert (kept.directory, kept.name) == (place.directory, place.name)
    assert kept.note == journal.Note(restored=["é"], at=1.5)
    assert noted.path == place.path
    assert files.remembered(store.connection)[os.fsencode(place.path)] == seen


def test_a_store_moved_with_its_directory_still_works(store, directory, tmp_path):
    """The store holds no path of its own: a copy of the directory is the same store."""
    begin(store, session(store), [cut()])
    shutil.copytree(directory, tmp_path / "copy")
    with closing(open_store(str(tmp_path / "copy"))) as copy:
        assert count(copy, "extractions") == 1


def test_whoever_asks_for_the_daemon_never_keeps_it_from_starting(tmp_path):
    """A look at who holds the daemon's lock takes it for a moment; starting waits that long."""
    with room.hold_daemon_lock(str(tmp_path)):
        pass
    looking = os.open(tmp_path / "daemon.lock", os.O_RDONLY)
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.05, os.close, (looking,)).start()

    with room.hold_daemon_lock(str(tmp_path)):
        assert room.daemon_holder(str(tmp_path)) == os.getpid()


def test_a_failing_disk_is_never_called_untouched():
    """An error of the disk may come after the exchange: what is said then holds there too."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"

    told = str(opening.explain(error, "/state"))

    assert "the disk fails" in told
    assert "nothing was touched" not in told
