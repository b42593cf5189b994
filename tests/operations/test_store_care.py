"""The store as a whole: a backup is whole or not there, and nothing that is needed is removed."""

import os
import sqlite3
import stat
import sys
import threading
import time
from contextlib import closing, suppress

import pytest

from brainsurgeon.errors import BusyError, StoreFullError, StoreUnusableError, UsageError
from brainsurgeon.operations import store as store_care
from brainsurgeon.store import backup, open_store
from brainsurgeon.store import database as opening
from brainsurgeon.store.database import hold_daemon_lock, hold_sessions
from brainsurgeon.store.schema import VERSION
from building.processes import wait_until
from building.world import LATER, Conversation, entry_text, sql

STAMP = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(LATER))


@pytest.fixture
def target(tmp_path):
    (tmp_path / "media").mkdir()
    return str(tmp_path / "media" / "kept.db")


def second_session(world):
    one = Conversation("22222222-0000-4000-8000-000000000002")
    one.turn("z" * 3000)
    one.turn("w" * 2500)
    world.put("t.jsonl", one.bytes())
    assert world.scan(only=[str(world.directory / "t.jsonl")], keep_recent=0).values_extracted == 2


def replace(world, source):
    world.close()
    with store_care.replacing_store(world.settings(), source) as (_, carry_out):
        return carry_out(LATER)


# --- backup --------------------------------------------------------------------------------------


def test_a_backup_is_its_owners_alone_and_leaves_nothing_beside(world, pruned, target):
    """Even without a umask a backup is 0600, and nothing else stands beside it afterwards."""
    before = os.umask(0)
    try:
        store_care.back_up(world.settings(), target)
    finally:
        os.umask(before)

    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    assert os.listdir(os.path.dirname(target)) == ["kept.db"]


def test_a_backup_writes_each_value_once(world, pruned, target):
    """No value passes through a temporary file, which would be outside of the directory."""
    with world.store.transaction():
        for _ in range(16):
            world.store.blobs.put(os.urandom(1 << 20))
    world.close()
    before = written()
    store_care.back_up(world.settings(), target)

    assert 16 << 20 < written() - before < 24 << 20


def written():
    """Count the bytes that this process has written to files."""
    with open("/proc/self/io") as counts:
        return int(next(line for line in counts if line.startswith("wchar")).split()[1])


def test_a_backup_ends_while_others_write_without_a_pause(world, pruned, target):
    """However often others commit, a backup ends, is whole, and they go on meanwhile."""
    done, commits = threading.Event(), []

    def write():
        with open_store(str(world.state)) as store:
            while not done.is_set():
                with store.transaction():
                    number = len(commits)
                    blob, digest, _ = store.blobs.put(b"%d" % number * 500)
                    store._connection.execute(
                        "INSERT INTO extractions (session_id, entry_id, name, path, kind, block,"
                        " chars, size, digest, blob_id, extracted_at)"
                        " VALUES (1, 'e', ?, 't0', 'text', 0, 5, 5, ?, ?, 1.0)",
                        (f"e{number}", digest, blob),
                    )
                    if number % 3 == 0:  # as retention does
                        where = "blob_id = (SELECT max(blob_id) FROM extractions WHERE id > 1)"
                        store._connection.execute(
                            f"UPDATE extractions SET blob_id = NULL WHERE {where}"
                        )
                        store.blobs.release([blob])
                commits.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: len(commits) > 300)
        before = len(commits)
        values = store_care.back_up(world.settings(), target).values
        during = len(commits) - before
    finally:
        done.set()
        writer.join()

    assert during > 0
    assert 200 < values <= len(commits)


def test_a_file_that_is_there_is_replaced_only_on_request(world, pruned, target):
    """A backup never takes the place of a file, unless that is asked for."""
    with open(target, "w") as file:
        file.write("precious")
    with pytest.raises(UsageError, match="--force"):
        store_care.back_up(world.settings(), target)
    with open(target) as file:
        assert file.read() == "precious"
    assert store_care.back_up(world.settings(), target, force=True).values == 1


@pytest.mark.parametrize("wrong", ["nowhere/kept.db", ".", "state/store.db"])
def test_a_backup_that_can_go_nowhere_is_refused(world, pruned, wrong):
    """No directory, a directory, the store itself: refused in words, and nothing is written."""
    before = sorted(world.base.rglob("*"))
    with pytest.raises(UsageError):
        store_care.back_up(world.settings(), str(world.base / wrong), force=True)
    assert sorted(world.base.rglob("*")) == before


def test_without_a_store_there_is_nothing_to_copy(world, target):
    """Where no scan has been, no backup is made, and no store either."""
    with pytest.raises(UsageError, match="no store yet"):
        store_care.back_up(world.settings(), target)
    assert not world.state.exists()
    assert not os.path.exists(target)


def test_a_store_that_is_not_sound_is_not_copied(world, pruned, target):
    """A value that is not what was stored stops a backup, so that nobody trusts it later."""
    sql(world, "UPDATE blobs SET data = zeroblob(40)")
    with pytest.raises(StoreUnusableError, match="1 of its values are damaged"):
        store_care.back_up(world.settings(), target)
    assert os.listdir(os.path.dirname(target)) == []


def test_a_backup_needs_room_before_it_begins(world, pruned, target, monkeypatch):
    """Where the disk has too little room the backup says how much is needed."""
    monkeypatch.setattr("brainsurgeon.store.database.free", lambda _: 1000)
    with pytest.raises(StoreFullError, match="1,000 are left"):
        store_care.back_up(world.settings(), target)
    assert os.listdir(os.path.dirname(target)) == []


def test_no_backup_is_made_in_the_middle_of_a_rewrite(world, pruned, target, monkeypatch):
    """While a session is being rewritten a backup waits, and then says that it is busy."""
    monkeypatch.setattr("brainsurgeon.store.backup._PATIENCE", 0.1)
    with world.store.lock(1), pytest.raises(BusyError, match="rewriting"):
        store_care.back_up(world.settings(), target)
    assert store_care.back_up(world.settings(), target).values == 1


# --- restore -------------------------------------------------------------------------------------


def test_what_was_cut_after_a_backup_is_named_and_kept(world, pruned, target):
    """Each session with newer placeholders is named, and the old store stays beside."""
    store_care.back_up(world.settings(), target)
    second_session(world)
    done = replace(world, target)
    (newer,) = done.newer
    assert (newer.session, newer.orphans, newer.sure) == ("main/t", 2, True)
    assert done.kept == str(world.state / f"store.db.replaced-{STAMP}")
    assert sorted(os.listdir(world.state)) == [
        "daemon.lock", "locks", "store.db", os.path.basename(done.kept),
    ]  # fmt: skip

    again = replace(world, done.kept)
    world.restore_all()
    assert again.newer == ()
    assert (world.directory / "t.jsonl").read_bytes().count(b"z" * 3000) == 1


def test_looking_at_a_backup_changes_nothing(world, pruned, target):
    """Until somebody says yes the store is as it was, and nothing is left in its directory."""
    store_care.back_up(world.settings(), target)
    world.close()
    before = (world.state / "store.db").read_bytes()
    with store_care.replacing_store(world.settings(), target):
        pass
    assert (world.state / "store.db").read_bytes() == before
    assert sorted(os.listdir(world.state)) == ["daemon.lock", "locks", "store.db"]


def cut_short(path):
    os.truncate(path, os.stat(path).st_size - opening.PAGE)


def of_the_future(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")


def of_the_past(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA user_version = 0")


def another_programs(path):
    os.unlink(path)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE precious (data)")


@pytest.mark.parametrize(
    "harm", [os.unlink, cut_short, of_the_future, of_the_past, another_programs]
)
def test_what_is_no_sound_backup_is_not_used(world, pruned, target, harm):
    """Missing, cut short, of another version, another program's: the store stays as it was."""
    store_care.back_up(world.settings(), target)
    harm(target)
    world.close()
    before = (world.state / "store.db").read_bytes()
    with (
        pytest.raises((StoreUnusableError, UsageError), match=r"kept\.db"),
        store_care.replacing_store(world.settings(), target),
    ):
        pass
    assert (world.state / "store.db").read_bytes() == before
    assert sorted(os.listdir(world.state)) == ["daemon.lock", "locks", "store.db"]


def test_a_backup_takes_the_place_of_a_ruined_store(world, pruned, path, target):
    """A store of which nothing can be read gives way to its backup, and stays beside."""
    store_care.back_up(world.settings(), target)
    world.close()
    (world.state / "store.db").write_bytes(b"\xff" * 3000)
    done = replace(world, target)
    world.restore_all()

    assert entry_text(path, pruned) == "x" * 2000
    with open(done.kept, "rb") as kept:
        assert kept.read() == b"\xff" * 3000


def test_who_has_the_old_store_open_writes_nothing_more(world, pruned, target):
    """A process that opened the store before it was replaced is stopped before it writes."""
    store_care.back_up(world.settings(), target)
    with open_store(str(world.state)) as older:
        replace(world, target)
        with pytest.raises(StoreUnusableError, match="replaced"), older.transaction():
            older.facts.put("late", 1)
    assert sql(world, "SELECT * FROM meta WHERE key = 'late'") == []


def test_who_opens_the_store_while_it_is_replaced_gets_the_new_one(world, pruned, target):
    """A process that had to wait for the old database writes into the one that came after it."""
    store_care.back_up(world.settings(), target)
    world.close()
    path, got, begun = str(world.state / "store.db"), [], threading.Event()

    def heard(event, arguments):
        if event == "sqlite3.connect" and str(arguments[0]).endswith("mode=rw"):
            begun.set()

    def late():
        with open_store(str(world.state)) as store, store.transaction():
            store.facts.put("late", 1)
            got.append(store.facts.get("late"))

    waiting = threading.Thread(target=late)
    with closing(sqlite3.connect(path, isolation_level=None)) as held:
        held.execute("BEGIN EXCLUSIVE")
        before = opened(path)
        sys.addaudithook(heard)
        waiting.start()
        begun.wait(60)
        while opened(path) == before:
            time.sleep(0.001)
        os.rename(target, path)
    waiting.join()

    assert got == [1]
    assert sql(world, "SELECT value FROM meta WHERE key = 'late'") == [("1",)]


def opened(path):
    """Count the descriptors of this process on a database."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}") == path)
    return sum(found)


@pytest.mark.parametrize("act", [
    lambda world: replace(world, str(world.base / "none")),
    lambda world: store_care.purge(world.settings()),
])  # fmt: skip
def test_beside_a_daemon_the_store_is_not_taken_away(world, pruned, act):
    """While a daemon runs nothing is put in the place of the store, and nothing removed."""
    with hold_daemon_lock(str(world.state)), pytest.raises(BusyError, match="stop it"):
        act(world)
    assert (world.state / "store.db").exists()


def test_a_backup_never_replaces_a_file_that_appears_meanwhile(world, pruned, monkeypatch):
    """Without force the other file stays as it is, and nothing is left beside it."""
    refuse, target = backup._refuse_target, world.base / "backup.db"

    def late(*given, **named):
        refuse(*given, **named)
        target.write_bytes(b"another")

    monkeypatch.setattr(backup, "_refuse_target", late)
    with pytest.raises(UsageError, match="is there already"):
        backup.write_copy(str(world.state), str(target))

    assert target.read_bytes() == b"another"
    assert not list(world.base.glob("*.new"))


# --- purge ---------------------------------------------------------------------------------------


def test_a_session_that_is_not_understood_any_more_keeps_the_store(world, pruned, path):
    """What its agent wrote anew in a newer version may hold placeholders still."""
    path.write_bytes(path.read_bytes().replace(b'"version":3', b'"version":99'))
    assert [one.unfinished for one in world.restore_all()] == [True]
    world.close()
    done = store_care.purge(world.settings())

    assert not done.removed
    assert [(one.session, one.sure) for one in done.placeholders] == [("main/s", False)]
    assert "version 99" in done.placeholders[0].note


def test_a_placeholder_in_an_archive_keeps_the_store(world, pruned, path):
    """What an agent put away counts: only the store still leads on from there."""
    world.close()
    path.rename(path.with_name("s.jsonl.deleted.2026-11-01T10-00-00.000Z"))
    done = store_care.purge(world.settings())

    assert [(one.placeholders, one.note) for one in done.placeholders] == [
        (1, "archived by its agent; archives are not written")
    ]
    assert (world.state / "store.db").exists()


def test_even_so_the_store_goes_and_what_is_not_ours_stays(world, pruned):
    """With `--even-so` the store goes, with its older ones; a file of somebody else does not."""
    world.close()
    (world.state / "mine.txt").write_text("mine")
    (world.state / "store.db.replaced-20260101T000000Z").write_bytes(b"older")
    done = store_care.purge(world.settings(), even_so=True)

    assert (done.removed, done.left) == (True, ("mine.txt",))
    assert os.listdir(world.state) == ["mine.txt"]


def test_of_an_unusable_store_every_placeholder_counts(world, pruned):
    """Where nobody can tell whose a placeholder is, it keeps the store in its place."""
    world.close()
    (world.state / "store.db").write_bytes(b"\xff" * 3000)
    done = store_care.purge(world.settings())

    assert (done.removed, [one.placeholders for one in done.placeholders]) == (False, [1])


def test_the_locks_of_all_sessions_are_one_lock(world, pruned):
    """Who holds the sessions keeps each of them from being rewritten, and lets go at the end."""
    with (
        hold_sessions(str(world.state)),
        pytest.raises(BusyError),
        world.store.lock(7, patience=0.0),
    ):
        pass
    with world.store.lock(7, patience=0.0):
        pass
