"""Commands for the whole store: backup, restore from a backup, and purge."""

import os
import shutil
import sqlite3
import stat
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress

import pytest
from msgspec import structs

from brainsurgeon.errors import BusyError, StoreFullError, StoreUnusableError, UsageError
from brainsurgeon.model.reports import PlaceholdersLeft
from brainsurgeon.operations import store as store_care
from brainsurgeon.operations.retention import retention
from brainsurgeon.render.sessions import before_replacing, purge, replacement
from brainsurgeon.store import backup, open_store
from brainsurgeon.store import database as opening
from brainsurgeon.store.database import hold_daemon_lock, hold_sessions
from brainsurgeon.store.schema import VERSION
from building.claude import ClaudeConversation, ClaudeWorld
from building.processes import wait_until
from building.world import LATER, NOBODY, Conversation, entry_text, put_session, sql

STAMP = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(LATER))


@pytest.fixture
def claude_world(tmp_path):
    """Write a session of Claude Code with six long thoughts."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    for number in range(6):
        talk.user()
        block = {"type": "thinking", "thinking": "hm " * 900, "signature": f"s{number}"}
        talk.assistant(block, message=f"m{number}", stop=None)
        talk.assistant(message=f"m{number}")
    world.put("talk.jsonl", talk.bytes())
    yield world
    world.close()


def scan_thinking(world):
    rules = [{"kind": "thinking", "keep_recent": 0}]
    assert world.scan(rules=rules).values_extracted == 6


@pytest.fixture
def target(tmp_path):
    (tmp_path / "media").mkdir()
    return str(tmp_path / "media" / "backup.db")


def scan_second_session(world):
    conversation = Conversation("22222222-0000-4000-8000-000000000002")
    conversation.turn("z" * 3000)
    conversation.turn("w" * 2500)
    world.put("t.jsonl", conversation.bytes())
    assert world.scan(only=[str(world.directory / "t.jsonl")], keep_recent=0).values_extracted == 2


def replace(world, source):
    world.close()
    return store_care.replace_store(world.settings(), source, lambda: LATER, lambda _: None)


# --- backup --------------------------------------------------------------------------------------


def test_backup_has_mode_600_and_leaves_no_other_file(world, pruned, target):
    """With any umask a backup has mode 600, and no temporary file is left."""
    before = os.umask(0)
    try:
        store_care.back_up(world.settings(), target)
    finally:
        os.umask(before)

    assert stat.S_IMODE(os.stat(target).st_mode) == 0o600
    assert os.listdir(os.path.dirname(target)) == ["backup.db"]


def test_backup_leaves_out_tables_of_other_programs(world, pruned, target):
    """A table that another program added to the store, such as SQLite's statistics, is left out."""
    world.close()
    with closing(sqlite3.connect(world.state / "store.db")) as other:
        other.execute("ANALYZE")
        other.execute("CREATE TABLE foreign_table (id)")

    assert store_care.back_up(world.settings(), target).values_held == 1
    with closing(sqlite3.connect(target)) as copy:
        assert not copy.execute("PRAGMA table_info(foreign_table)").fetchall()
        assert not copy.execute("PRAGMA table_info(sqlite_stat1)").fetchall()


def test_backup_writes_each_value_once(world, pruned, target):
    """Values do not pass through a temporary file, which could be on another filesystem."""
    with world.store.transaction():
        for _ in range(16):
            world.store.blobs.put(os.urandom(1 << 20))
    world.close()
    before = bytes_written()
    store_care.back_up(world.settings(), target)

    assert 16 << 20 < bytes_written() - before < 24 << 20


def bytes_written():
    """Count the bytes that this process has written to files."""
    with open("/proc/self/io") as counts:
        return int(next(line for line in counts if line.startswith("wchar")).split()[1])


def test_backup_completes_during_continuous_writes(world, pruned, target):
    """While another thread commits without a pause, a backup completes with a whole store."""
    stop, commits = threading.Event(), []

    def write():
        with open_store(str(world.state)) as store:
            while not stop.is_set():
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
        before = during = len(commits)
        # A backup can be shorter than a turn of the other thread.
        while during == before and writer.is_alive():
            before = len(commits)
            values = store_care.back_up(world.settings(), target, force=True).values_held
            during = len(commits)
    finally:
        stop.set()
        writer.join()

    assert 200 < values <= len(commits)


def test_backup_waits_longer_than_other_commands(world, pruned, target, monkeypatch):
    """Commits of other processes may leave few gaps, so a backup waits up to a minute for one."""
    monkeypatch.setattr(opening, "STORE_LOCK_SECONDS", 0.05)
    refuse_without_room = backup.refuse_without_room
    with closing(sqlite3.connect(world.state / "store.db", check_same_thread=False)) as other:
        release = threading.Timer(0.5, other.rollback)

        def lock(*arguments):
            refuse_without_room(*arguments)
            other.execute("BEGIN EXCLUSIVE")
            release.start()

        monkeypatch.setattr(backup, "refuse_without_room", lock)
        try:
            assert store_care.back_up(world.settings(), target).values_held == 1
        finally:
            release.join()


def test_backup_replaces_an_existing_file_only_with_force(world, pruned, target):
    """An existing file is refused without `--force`."""
    with open(target, "w") as file:
        file.write("precious")
    with pytest.raises(UsageError, match="--force"):
        store_care.back_up(world.settings(), target)
    with open(target) as file:
        assert file.read() == "precious"
    assert store_care.back_up(world.settings(), target, force=True).values_held == 1


@pytest.mark.parametrize("wrong", ["nowhere/backup.db", ".", "state/store.db", "pipe"])
def test_backup_refuses_an_impossible_target(world, pruned, wrong):
    """A missing directory, a directory, a device or pipe and the store itself are refused."""
    os.mkfifo(world.base / "pipe")
    before = sorted(world.base.rglob("*"))
    with pytest.raises(UsageError):
        store_care.back_up(world.settings(), str(world.base / wrong), force=True)
    assert sorted(world.base.rglob("*")) == before


def test_backup_without_a_store_is_refused(world, target):
    """Before the first scan neither a backup nor a store is created."""
    with pytest.raises(UsageError, match="no store yet"):
        store_care.back_up(world.settings(), target)
    assert not world.state.exists()
    assert not os.path.exists(target)


def test_store_in_a_directory_of_another_user_is_not_a_missing_store(world, pruned):
    """In a directory that cannot be searched, backup and purge do not report a missing store."""
    settings, target = world.settings(), f"{tempfile.gettempdir()}/backup.db"
    os.seteuid(NOBODY) if os.geteuid() == 0 else os.chmod(world.state, 0)
    try:
        for change in (
            lambda: store_care.back_up(settings, target),
            lambda: store_care.purge(settings),
        ):
            with pytest.raises(StoreUnusableError):
                change()
    finally:
        os.seteuid(os.getuid())
        os.chmod(world.state, 0o700)


def test_backup_of_a_damaged_store_is_refused(world, pruned, target):
    """A value that does not match its digest prevents the backup."""
    sql(world, "UPDATE blobs SET data = zeroblob(40)")
    with pytest.raises(StoreUnusableError, match="has 1 damaged value;"):
        store_care.back_up(world.settings(), target)
    assert os.listdir(os.path.dirname(target)) == []


def test_backup_without_enough_disk_space_is_refused(world, pruned, target, monkeypatch):
    """The error names the free space, and nothing is written."""
    monkeypatch.setattr("brainsurgeon.store.database.free", lambda _: 1000)
    with pytest.raises(StoreFullError, match="1,000 are left"):
        store_care.back_up(world.settings(), target)
    assert os.listdir(os.path.dirname(target)) == []


def test_backup_waits_for_a_rewrite_and_reports_busy(world, pruned, target, monkeypatch):
    """While a session is being rewritten a backup waits and then fails as busy."""
    monkeypatch.setattr("brainsurgeon.store.backup._BACKUP_LOCK_SECONDS", 0.1)
    with world.store.lock(1), pytest.raises(BusyError, match="locked a session"):
        store_care.back_up(world.settings(), target)
    assert store_care.back_up(world.settings(), target).values_held == 1


# --- restore -------------------------------------------------------------------------------------


def test_store_restore_lists_newer_placeholders(world, pruned, target):
    """Sessions with placeholders newer than the backup are listed, and the old store is kept."""
    store_care.back_up(world.settings(), target)
    scan_second_session(world)
    result = replace(world, target)
    (newer,) = result.newer
    assert (newer.session, newer.orphans, newer.sure) == ("main/t", 2, True)
    assert result.kept_store == str(world.state / f"store.db.replaced-{STAMP}")
    assert sorted(os.listdir(world.state)) == [
        "daemon.lock", "locks", "store.db", os.path.basename(result.kept_store),
    ]  # fmt: skip

    again = replace(world, result.kept_store)
    world.restore_all()
    assert again.newer == ()
    assert (world.directory / "t.jsonl").read_bytes().count(b"z" * 3000) == 1


def test_store_restore_lists_newer_values_without_a_placeholder(claude_world, target):
    """The current store tells which thinking is newer than the backup; else this is unknown."""
    world = claude_world
    assert world.store.exists
    store_care.back_up(world.settings(), target)
    scan_thinking(world)
    result = replace(world, target)
    (newer,) = result.newer
    again = replace(world, result.kept_store)
    (world.state / "store.db").write_bytes(b"\xff" * 3000)
    unreadable = replace(world, target)
    (unread,) = unreadable.newer

    assert (newer.orphans, newer.sure, again.newer) == (6, True, ())
    assert (unread.session, unread.sure) == (str(world.state / "store.db"), False)
    assert "perhaps there are extracted values newer" in replacement(unreadable)


def test_store_restore_names_the_store_with_the_newer_values(world, pruned, target):
    """The values are in the current store; afterwards in the old one, if there was a store."""
    store_care.back_up(world.settings(), target)
    scan_second_session(world)
    planned = []
    world.close()
    done = store_care.replace_store(world.settings(), target, lambda: LATER, planned.append)
    os.unlink(world.state / "store.db")
    without_old_store = replace(world, target)

    assert "only the current store has the values" in before_replacing(planned[0])
    assert "only the old store has the values" in replacement(done)
    assert "`brainsurgeon store restore`" in replacement(done)
    assert "only a newer backup can have the values" in replacement(without_old_store)


def test_newer_placeholders_add_up_and_unreadable_sessions_are_named(world, pruned, target):
    """Each session is listed with its newer placeholders only; with none, some are possible."""
    store_care.back_up(world.settings(), target)
    done = replace(world, target)
    newer = PlaceholdersLeft("main/t", placeholders=5, orphans=2)
    unreadable = PlaceholdersLeft("main/u", 0, 0, reason="permission denied", sure=False)
    both, one = (
        replacement(structs.replace(done, newer=left))
        for left in ((newer, unreadable), (unreadable,))
    )

    assert "2 extracted values newer than the backup" in both
    assert "main/t: 2 extracted values" in both
    assert "perhaps there are extracted values newer than the backup" in one
    assert "main/u: there may be extracted values, permission denied" in one


def test_store_restore_changes_nothing_before_confirmation(world, pruned, target):
    """Checking a backup leaves the store and its directory unchanged."""
    store_care.back_up(world.settings(), target)
    world.close()
    before = (world.state / "store.db").read_bytes()

    def refuse(_):
        raise UsageError("no")

    with pytest.raises(UsageError, match="no"):
        store_care.replace_store(world.settings(), target, time.time, refuse)
    assert (world.state / "store.db").read_bytes() == before
    assert sorted(os.listdir(world.state)) == ["daemon.lock", "locks", "store.db"]


@pytest.mark.parametrize("act", ["restore", "purge"])
def test_copies_that_a_killed_command_left_are_removed(world, pruned, target, act):
    """A killed `store restore` leaves a copy of all values: the next one removes it, or a purge."""
    store_care.back_up(world.settings(), target)
    left = world.state / "store.db.new-0a1b2c3d"
    left.mkdir()
    (left / "store.db").write_bytes(b"values")
    if act == "restore":
        replace(world, target)
    else:
        world.close()
        assert store_care.purge(world.settings(), even_so=True).left == ()

    assert not left.exists()


def truncate(path):
    os.truncate(path, os.stat(path).st_size - opening.PAGE)


def changing(statement):
    """Return a function that changes a database by a statement."""

    def change(path):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute(statement)

    return change


def replace_by_foreign_database(path):
    os.unlink(path)
    changing("CREATE TABLE precious (data)")(path)


@pytest.mark.parametrize("damage", [
    os.unlink, truncate, changing(f"PRAGMA user_version = {VERSION + 1}"),
    changing("PRAGMA user_version = 0"), replace_by_foreign_database,
    changing("UPDATE blobs SET codec = CAST(x'ff' AS TEXT)"),
], ids=["missing", "truncated", "newer", "older", "foreign", "invalid text"])  # fmt: skip
def test_store_restore_refuses_an_unusable_backup(world, pruned, target, damage):
    """A missing, truncated, foreign or other version's file is refused, and the store stays."""
    store_care.back_up(world.settings(), target)
    damage(target)
    world.close()
    before = (world.state / "store.db").read_bytes()
    with pytest.raises((StoreUnusableError, UsageError), match=r"backup\.db"):
        store_care.replace_store(world.settings(), target, time.time, lambda _: None)
    assert (world.state / "store.db").read_bytes() == before
    assert {*os.listdir(world.state)} - {"daemon.lock"} == {"locks", "store.db"}


def test_store_restore_replaces_an_unreadable_store(world, pruned, path, target):
    """An unreadable store is replaced by its backup and kept beside it."""
    store_care.back_up(world.settings(), target)
    world.close()
    (world.state / "store.db").write_bytes(b"\xff" * 3000)
    result = replace(world, target)
    world.restore_all()

    assert entry_text(path, pruned) == "x" * 2000
    with open(result.kept_store, "rb") as old_store:
        assert old_store.read() == b"\xff" * 3000


def test_process_with_the_replaced_store_open_cannot_write(world, pruned, target):
    """A process that opened the store before its replacement fails before it writes."""
    store_care.back_up(world.settings(), target)
    with open_store(str(world.state)) as older:
        replace(world, target)
        with pytest.raises(StoreUnusableError, match="replaced"), older.transaction():
            older.facts.put("late", 1)
    assert sql(world, "SELECT * FROM meta WHERE key = 'late'") == []


def test_store_opened_during_its_replacement_is_the_new_one(world, pruned, target):
    """A process that waited for a lock on the old database writes into the new one."""
    store_care.back_up(world.settings(), target)
    world.close()
    path, values, connecting = str(world.state / "store.db"), [], threading.Event()

    def audit(event, arguments):
        if event == "sqlite3.connect" and str(arguments[0]).endswith("mode=rw"):
            connecting.set()

    def write():
        with open_store(str(world.state)) as store, store.transaction():
            store.facts.put("late", 1)
            values.append(store.facts.get("late"))

    waiting = threading.Thread(target=write)
    with closing(sqlite3.connect(path, isolation_level=None)) as locked:
        locked.execute("BEGIN EXCLUSIVE")
        before = open_descriptors(path)
        sys.addaudithook(audit)
        waiting.start()
        connecting.wait(60)
        while open_descriptors(path) == before:
            time.sleep(0.001)
        os.rename(target, path)
    waiting.join()

    assert values == [1]
    assert sql(world, "SELECT value FROM meta WHERE key = 'late'") == [("1",)]


def open_descriptors(path):
    """Count the descriptors of this process on a file."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            count += os.readlink(f"/proc/self/fd/{name}") == path
    return count


@pytest.mark.parametrize("act", [
    lambda world: replace(world, str(world.base / "backup.db")),
    lambda world: store_care.purge(world.settings()),
])  # fmt: skip
def test_store_restore_and_purge_refuse_beside_a_daemon(world, pruned, act):
    """While a daemon runs, the store is neither replaced nor deleted."""
    store_care.back_up(world.settings(), str(world.base / "backup.db"))
    with hold_daemon_lock(str(world.state)), pytest.raises(BusyError, match="stop it"):
        act(world)
    assert (world.state / "store.db").exists()


def test_backup_keeps_a_file_created_meanwhile(world, pruned, monkeypatch):
    """A file created after the first check is not replaced without force."""
    refuse, target = backup._refuse_target, world.base / "backup.db"

    def refuse_then_write(*arguments, **keywords):
        refuse(*arguments, **keywords)
        target.write_bytes(b"another")

    monkeypatch.setattr(backup, "_refuse_target", refuse_then_write)
    with pytest.raises(UsageError, match="is there already"):
        backup.write_copy(str(world.state), str(target))

    assert target.read_bytes() == b"another"
    assert not list(world.base.glob("*.new"))


# --- purge ---------------------------------------------------------------------------------------


def test_purge_refuses_while_a_session_is_unreadable(world, pruned, path):
    """A session in an unknown version may contain placeholders, so the store stays."""
    path.write_bytes(path.read_bytes().replace(b'"version":3', b'"version":99'))
    assert [outcome.unfinished for outcome in world.restore_all()] == [True]
    world.close()
    result = store_care.purge(world.settings())

    assert not result.removed
    [remaining] = result.in_the_way
    assert (remaining.session, remaining.sure) == ("main/s", False)
    assert "version 99" in remaining.reason


@pytest.mark.parametrize("former", [False, True], ids=["root", "former root"])
@pytest.mark.parametrize("name", [None, "new.jsonl"], ids=["empty", "new session"])
def test_purge_refuses_while_a_disk_is_not_mounted(world, pruned, path, former, name):
    """Sessions of a root that is empty, or another directory than before, may still exist."""
    placeholder = entry_text(path, pruned)
    other = world.base / "other"
    other.mkdir()
    roots = {"roots": [{"path": str(other)}]} if former else {}
    retention(world.settings(), world.store, clock=world.clock)
    disk = world.root.rename(world.base / "disk")
    world.directory.mkdir(parents=True) if name else world.root.mkdir()
    if name:
        put_session(world, Conversation("22222222-0000-4000-8000-000000000002"), name)
        world.scan(keep_recent=0)
    states = {outcome.session: outcome.state for outcome in world.restore_all(**roots)}
    world.close()
    refused = store_care.purge(world.settings(**roots))
    shutil.rmtree(world.root)
    disk.rename(world.root)
    world.restore_all(**roots)
    world.close()

    assert states == {"main/s": "failed"} | ({"main/new": "restored"} if name else {})
    assert not refused.removed
    assert [(left.session, left.sure) for left in refused.in_the_way] == [("main/s", False)]
    assert store_care.purge(world.settings(**roots)).removed
    assert entry_text(path, pruned) != placeholder


def test_purge_counts_the_sessions_of_an_emptied_root_as_gone(world, pruned):
    """An empty root that is the same directory as before is no mount point of a missing disk."""
    retention(world.settings(), world.store, clock=world.clock)
    for directory in world.root.iterdir():
        shutil.rmtree(directory)

    assert [outcome.state for outcome in world.restore_all()] == ["gone"]
    world.close()
    assert store_care.purge(world.settings()).removed


def test_known_sessions_prove_a_copied_former_root(world, pruned, path):
    """Sessions that are missing in a copy of a former root are gone if others are there."""
    scan_second_session(world)
    retention(world.settings(), world.store, clock=world.clock)
    (world.base / "other").mkdir()
    path.unlink()
    shutil.copytree(world.root, world.base / "copy")
    world.root.rename(world.base / "away")
    (world.base / "copy").rename(world.root)
    outcomes = world.restore_all(roots=[{"path": str(world.base / "other")}])

    assert {one.session: one.state for one in outcomes} == {"main/s": "gone", "main/t": "restored"}


def test_a_session_that_left_a_root_does_not_prove_it(world, pruned):
    """Purge refuses while a disk is not mounted, even if one of its sessions was moved before."""
    scan_second_session(world)
    retention(world.settings(), world.store, clock=world.clock)
    other = world.base / "other"
    moved = other / "main" / "sessions"
    moved.mkdir(parents=True)
    (world.directory / "t.jsonl").rename(moved / "t.jsonl")
    world.root.rename(world.base / "disk")
    world.directory.mkdir(parents=True)
    roots = [{"path": str(world.root)}, {"path": str(other)}]
    world.close()
    refused = store_care.purge(world.settings(roots=roots))

    assert not refused.removed
    assert "main/s" in [left.session for left in refused.in_the_way if not left.sure]


def test_purge_refuses_while_a_rotated_session_has_placeholders(world, pruned, path):
    """Placeholders in a session that its agent renamed count, so the store stays."""
    world.close()
    path.rename(path.with_name("s.jsonl.deleted.2026-11-01T10-00-00.000Z"))
    result = store_care.purge(world.settings())

    [remaining] = result.in_the_way
    assert remaining.placeholders == 1
    assert "`restore --all` restores it" in remaining.reason
    assert (world.state / "store.db").exists()


def test_purge_refuses_while_a_value_without_a_placeholder_is_extracted(claude_world):
    """Emptied thinking counts until it is restored or the session's file is gone."""
    world = claude_world
    before = world.files()
    scan_thinking(world)
    world.close()
    refused = store_care.purge(world.settings())
    world.restore_all(pristine=True)
    world.close()

    [remaining] = refused.in_the_way
    assert (refused.removed, remaining.placeholders, remaining.orphans) == (False, 6, 0)
    assert world.files() == before
    assert store_care.purge(world.settings()).removed


def test_purge_ignores_values_of_sessions_that_are_gone(claude_world):
    """Values of a session whose file was deleted do not keep the store."""
    world = claude_world
    scan_thinking(world)
    world.close()
    (world.directory / "talk.jsonl").unlink()

    assert store_care.purge(world.settings()).removed


def test_purge_advises_to_restore_only_what_can_be_restored(world, pruned):
    """The refusal counts values that are expired or unknown: only `--even-so` helps there."""
    scan_second_session(world)
    sql(world, "UPDATE extractions SET blob_id = NULL, expired_at = 1.0 WHERE id = 1")
    some = purge(store_care.purge(world.settings()))
    sql(world, "UPDATE extractions SET blob_id = NULL, expired_at = 1.0")
    expired = store_care.purge(world.settings())
    world.close()
    (world.state / "store.db").unlink()
    world.scan(enabled=False)
    world.close()
    unknown = purge(store_care.purge(world.settings()))

    total = sum(left.placeholders for left in expired.in_the_way)
    assert "cannot restore 1 value (1 expired, 0 without a record): only --even-so" in some
    assert some.endswith("`brainsurgeon restore --all --pristine` restores the others")
    assert f"cannot restore {total} values ({total} expired, 0 without" in purge(expired)
    assert f"cannot restore {total} values (0 expired, {total} without" in unknown
    assert "--pristine" not in purge(expired) + unknown


def test_purge_even_so_deletes_the_store_and_keeps_other_files(world, pruned):
    """`--even-so` deletes the store and its older copies, and keeps other files."""
    world.close()
    kept = ("mine.txt", "store.db-old", "store.db.backup", "store.db.newest")
    older = "store.db.replaced-20260101T000000Z"
    for name in (*kept, older, f"{older}-2", f"{older}-journal", "store.db.new-journal"):
        (world.state / name).write_bytes(b"a copy")
    result = store_care.purge(world.settings(), even_so=True)

    assert (result.removed, result.left) == (True, kept)
    assert sorted(os.listdir(world.state)) == [*kept]


def test_purge_keeps_a_staging_directory_with_a_file_of_the_user(world, pruned):
    """The copy in a directory that a killed command left is removed, and a user's file stays."""
    world.close()
    left = world.state / "store.db.new-0a1b2c3d"
    left.mkdir()
    (left / "store.db").write_bytes(b"values")
    (left / "mine.txt").write_text("mine")

    assert store_care.purge(world.settings(), even_so=True).left == (left.name,)
    assert os.listdir(left) == ["mine.txt"]


def test_purge_of_an_unusable_store_counts_every_placeholder(world, pruned):
    """If the store cannot be read, every placeholder counts and the store stays."""
    world.close()
    (world.state / "store.db").write_bytes(b"\xff" * 3000)
    result = store_care.purge(world.settings())

    assert not result.removed
    assert [remaining.placeholders for remaining in result.in_the_way] == [0, 1]


def test_purge_keeps_a_damaged_store_that_may_have_the_only_values(claude_world):
    """Only the store's records tell which thinking is extracted, and a repair may save them."""
    world = claude_world
    scan_thinking(world)
    world.close()
    (world.state / "store.db").write_bytes(b"\xff" * 3000)
    refused = store_care.purge(world.settings())
    kept = (world.state / "store.db").exists()

    assert (refused.removed, kept) == (False, True)
    assert [remaining.sure for remaining in refused.in_the_way] == [False]
    assert store_care.purge(world.settings(), even_so=True).removed


def test_hold_sessions_locks_every_session(world, pruned):
    """No session can be locked while all are held; afterwards each can."""
    with (
        hold_sessions(str(world.state)),
        pytest.raises(BusyError),
        world.store.lock(7, patience=0.0),
    ):
        pass
    with world.store.lock(7, patience=0.0):
        pass
