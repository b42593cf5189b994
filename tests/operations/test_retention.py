"""Retention: what expires and when, what is held back, and how values are deleted."""

import itertools
import json
import os
import secrets
import shutil
import sys
import time
from contextlib import closing

import pytest
from freezegun import freeze_time
from msgspec.structs import asdict, replace

from brainsurgeon import cli, interruption
from brainsurgeon.errors import ExpiredError, StoppedError
from brainsurgeon.files import exchange
from brainsurgeon.files import processes as clocks
from brainsurgeon.files.reading import CHUNK
from brainsurgeon.lookup import byte_search
from brainsurgeon.lookup.sessions import REPLACED
from brainsurgeon.model.records import EVERYTHING, Request
from brainsurgeon.model.session_files import Root
from brainsurgeon.model.text import iso
from brainsurgeon.operations import retention as operation
from brainsurgeon.operations.restore import restore
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.operations.show import cat, show
from brainsurgeon.operations.status import check, status
from brainsurgeon.planning.retention import MISSING, SILENT, UNPLACED
from brainsurgeon.sessions.placeholders import placeholders_in, sessions_and_archives
from brainsurgeon.store import journal, open_store, open_to_read
from brainsurgeon.store.expiry import PAGE, Expiry
from building.claw import migrate
from building.processes import program_for
from building.store_rows import count_rows, removal, store_extraction, store_session
from building.world import Conversation, file_states, fork

HOUR = 3600.0
DAY = 24 * HOUR
TEN_YEARS = 3653 * DAY
OTHERS = 4


class Clocks:
    """A wall clock, and a boot clock that runs with it except when the wall clock jumps."""

    def __init__(self):
        self.now = self.began = float(int(time.time()))
        self.jumped = 0.0

    def __call__(self):
        return self.now

    def boot(self):
        """Return the seconds since a boot a million seconds before the test."""
        return 1e6 + self.now - self.began - self.jumped

    def later(self, seconds):
        self.now += seconds

    def jump(self, seconds):
        self.now += seconds
        self.jumped += seconds


@pytest.fixture
def clock(world, monkeypatch):
    """Replace the clocks of the world and of the boot by clocks that stand still."""
    world.clock = Clocks()
    monkeypatch.setattr(clocks, "boot_clock", world.clock.boot)
    return world.clock


@pytest.fixture
def other_sessions(world):
    for number in range(OTHERS):
        put(world.directory, f"other{number}", Conversation())


_starts = itertools.count(0x1000, 0x1000)


def old_conversation(text="x" * 2000):
    """Return a conversation with ids of its own, and the id of its old tool result."""
    start = next(_starts)
    conversation = Conversation(f"{start:08x}-0000-4000-8000-000000000001")
    conversation._ids = itertools.count(start)
    ident = conversation.turn(text)
    conversation.turn("short")
    return conversation, ident


def put(directory, name, data, age=3 * DAY):
    path = directory / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.bytes())
    os.utime(path, (time.time() - age,) * 2)
    return path


def prune(world, name="s", text="x" * 2000, directory=None, **settings):
    """Write a session, extract its old result, and return the file and the entry id."""
    conversation, ident = old_conversation(text)
    path = put(directory or world.directory, name, conversation)

    assert world.scan(**settings).values_extracted == 1
    return path, ident


# The user wants values to go although their placeholders are in sessions.
MONTH = {"retention_standing": "30d"}


def run(world, dry_run=False, store=None, **settings):
    settings = world.settings(**MONTH | settings)
    return retention(settings, store or world.store, clock=world.clock, dry_run=dry_run)


def deletions(report):
    return report.values_deleted, report.reasons


def query(world, *statement):
    return world.store._connection.execute(*statement).fetchall()


def held_entries(world):
    rows = query(world, "SELECT entry_id FROM extractions WHERE blob_id NOT NULL")
    return {ident for (ident,) in rows}


NOTHING = (0, {})


def run_daily(world, days, **settings):
    """Scan and run retention once a day, and return the number of deleted values."""
    deleted = 0
    for _ in range(days):
        world.clock.later(DAY)
        world.scan(**settings)
        deleted += run(world, **settings).values_deleted
    return deleted


# --- what expires when ---------------------------------------------------------------------------


def test_restored_value_expires_after_retention(world, other_sessions, clock):
    """A value restored everywhere is deleted after `retention` and leaves a tombstone."""
    _path, ident = prune(world)
    run(world)
    clock.later(HOUR)
    world.restore(ident)
    clock.later(DAY - 1)

    assert deletions(run(world)) == NOTHING

    clock.later(1)
    before = file_states(world.root)
    last = run(world)

    assert deletions(last) == (1, {UNPLACED: 1})
    assert (last.bytes_deleted, last.blobs_deleted) == (2002, 1)
    assert held_entries(world) == set()
    tombstones = query(world, "SELECT expired_at, expired_why, blob_id FROM extractions")
    assert tombstones == [(clock.now, UNPLACED, None)]
    assert query(world, "SELECT count(*) FROM blobs") == [(0,)]
    assert file_states(world.root) == before


def test_retention_counts_from_the_scan_that_missed_a_placeholder(world, other_sessions, clock):
    """If the agent wrote a value back, retention begins when a scan sees that."""
    conversation, _ = old_conversation()
    path = put(world.directory, "s", conversation)
    world.scan()
    run(world)
    path.write_bytes(conversation.bytes())
    os.utime(path, (clock.now - 3 * DAY,) * 2)
    clock.later(20 * HOUR)
    world.scan(trigger_types=["thinking"])
    clock.later(20 * HOUR)

    assert deletions(run(world)) == NOTHING

    clock.later(4 * HOUR)

    assert deletions(run(world)) == (1, {UNPLACED: 1})


@pytest.mark.parametrize("deleted", ["session", "entry"])
def test_values_of_a_deleted_session_or_entry_expire(world, other_sessions, clock, deleted):
    """The month begins with the first scan that misses the session, or the entry in it."""
    path, ident = prune(world)
    run(world)
    if deleted == "session":
        path.unlink()
    else:
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join(line for line in lines if b"[[extracted-" not in line))
        os.utime(path, (clock.now - 3 * DAY,) * 2)

    assert run_daily(world, 30) == 0
    assert show(world.settings(), world.store, ident).content

    clock.later(DAY)

    assert deletions(run(world)) == (1, {MISSING: 1})


def test_session_that_returns_gets_another_month(world, other_sessions, clock):
    """If a missing session returns and is deleted again, its values are held for another month."""
    path, _ = prune(world)
    run(world)
    away = path.rename(world.base / "away.jsonl")
    run_daily(world, 29)
    away.rename(path)
    os.utime(path, (clock.now,) * 2)
    run_daily(world, 1)
    path.rename(away)

    assert run_daily(world, 30) == 0
    assert run_daily(world, 1) == 1


def since_the_extraction(world, path, ident, clock):
    return clock.now


def since_the_activity(world, path, ident, clock):
    clock.later(20 * DAY)
    os.utime(path, (clock.now, clock.now))
    return clock.now


def since_the_restore(world, path, ident, clock):
    """Restore the value after 20 days, then write the placeholder back as agents do."""
    clock.later(20 * DAY)
    data, times = path.read_bytes(), path.stat()
    world.restore(ident)
    path.write_bytes(data)
    os.utime(path, (times.st_atime, times.st_mtime))
    return clock.now


@pytest.mark.parametrize("since", [since_the_extraction, since_the_activity, since_the_restore])
def test_value_expires_a_month_after_the_last_activity(world, other_sessions, clock, since):
    """A value in place expires 30 days after its extraction, restore or session's last change."""
    path, ident = prune(world)
    moment = since(world, path, ident, clock)
    run(world)
    for days in (1, 2, 3, 9, 16, 23, 29):
        clock.now = moment + days * DAY
        world.scan()

        assert deletions(run(world)) == NOTHING

    clock.now = moment + 30 * DAY - 1

    assert deletions(run(world)) == NOTHING

    clock.later(1)
    before = file_states(world.root)

    assert deletions(run(world)) == (1, {SILENT: 1})
    assert file_states(world.root) == before


@pytest.mark.parametrize(
    ("settings", "goes"),
    [
        ({"retention": "never"}, {"stands", "lost"}),
        ({"retention_standing": "never"}, {"restored"}),
        ({"retention_standing": "never", "retention_missing": "30d"}, {"lost", "restored"}),
        ({"retention_missing": "never"}, {"stands", "restored"}),
        ({"retention_missing": "60d"}, {"stands", "restored"}),
        ({"retention": "60d"}, {"stands", "lost"}),
        ({}, {"stands", "lost", "restored"}),
    ],
)
def test_retention_keys_apply_to_their_own_values(world, other_sessions, clock, settings, goes):
    """`retention`: restored values, `retention_standing`: values in place, the third: missing ones.

    If only `retention_standing` is set, it applies to missing ones, too.
    """
    names = {prune(world)[1]: "stands"}
    path, ident = prune(world, "t")
    names[ident] = "lost"
    names[prune(world, "u", text="y" * 2000)[1]] = "restored"
    run(world, **settings)
    path.unlink()
    world.restore(next(ident for ident, name in names.items() if name == "restored"))
    # Nothing is extracted anew meanwhile.
    run_daily(world, 32, trigger_types=["thinking"], **settings)

    assert {names[ident] for ident in names.keys() - held_entries(world)} == goes


@pytest.mark.parametrize("lost", ["24h", "7d", "never"])
def test_retention_standing_of_24h_expires_a_value_after_a_day(world, other_sessions, clock, lost):
    """With `retention_standing = "24h"` a value in place expires a day after its extraction."""
    settings = {"retention_standing": "24h", "retention": lost}
    _, ident = prune(world)
    run(world, **settings)
    clock.later(DAY - 1)

    assert deletions(run(world, **settings)) == NOTHING

    clock.later(1)

    assert deletions(run(world, **settings)) == (1, {SILENT: 1})
    with pytest.raises(ExpiredError):
        world.restore(ident, **settings)


# --- what is asked for ---------------------------------------------------------------------------


def prune_due_value(world, clock):
    """Write a session whose value the next run would delete; return its path and entry id."""
    path, ident = prune(world)
    for _ in range(5):
        run(world)
        clock.later(6 * DAY)
        world.scan()
    return path, ident


@pytest.mark.parametrize("everything", [False, True])
def test_pending_request_holds_its_value(world, other_sessions, clock, everything):
    """A value is held while a request for it, or for its whole session, is pending."""
    path, ident = prune_due_value(world, clock)
    os.utime(path, (clock.now - 40 * DAY,) * 2)
    busy = {"quiet_seconds": 10**9}
    if everything:
        [outcome] = world.restore_all(session="main/s", **busy)
        assert outcome.state == "pending"
    else:
        assert world.restore(ident, **busy).pending

    assert deletions(run(world)) == NOTHING
    assert held_entries(world) == {ident}


def test_pending_request_holds_no_other_value(world, other_sessions, clock):
    """Values of other sessions expire although a request is pending."""
    _path, _ident = prune_due_value(world, clock)
    other, there = prune(world, "t", text="y" * 2000)
    os.utime(other, (clock.now - 40 * DAY,) * 2)
    query(world, "UPDATE extractions SET extracted_at = 1")
    assert world.restore(there, quiet_seconds=10**9).pending

    assert deletions(run(world)) == (1, {SILENT: 1})
    assert held_entries(world) == {there}


def old_fork(world, path, clock):
    """Return a fork of a session, which a scan has seen and which is not in use."""
    forked = fork(path, "22222222-0000-4000-8000-000000000002")
    os.utime(forked, (clock.now - 40 * DAY,) * 2)
    world.scan()
    os.utime(forked, (clock.now - 40 * DAY,) * 2)
    return forked


@pytest.mark.parametrize("term", ["30d", "never"])
def test_pins_and_archives_of_a_deleted_session_end_with_it(world, other_sessions, clock, term):
    """The run that misses the session ends them; its restores wait until its values expire."""
    keys = {"retention_standing": term, "quiet_seconds": 10**9}
    path, ident = prune(world)
    world.scan()
    settings = world.settings(**keys)
    pinned = set_extractable(settings, world.store, ident, False, clock=clock)
    [record] = [one for one in world.store.sessions.all() if one.path == str(path)]
    with world.store.transaction():
        world.store.requests.add(Request(record.id, "archive", clock.now, ident))
        world.store.requests.add(Request(record.id, "restore", clock.now, ident))
    run(world, **keys)
    waiting = [one.action for one in world.store.requests.of_session(record.id)]
    path.unlink()
    run(world, dry_run=True, **keys)
    after_dry_run = len(world.store.requests.of_session(record.id))
    run(world, **keys)

    assert pinned.pending
    assert (waiting, after_dry_run) == (["set", "archive", "restore"], 3)
    assert [one.action for one in world.store.requests.of_session(record.id)] == ["restore"]
    lapses = world.store.events.after(0, kinds=("lapse",))
    assert [(one.facts["action"], one.facts["reason"]) for one in lapses] == [
        ("set", "its session is gone"), ("archive", "its session is gone"),
    ]  # fmt: skip
    assert status(settings, world.store, clock()).unfinished.requests_open == 1


def test_requests_of_a_session_whose_disk_is_not_mounted_wait(world, other_sessions, clock):
    """A root that is empty or away says nothing about its sessions."""
    path, ident = prune(world)
    run(world)
    pinned = set_extractable(
        world.settings(quiet_seconds=10**9), world.store, ident, False, clock=clock
    )
    root = world.root.rename(world.base / "away")
    world.root.mkdir()
    run(world)
    world.root.rmdir()
    root.rename(world.root)

    assert pinned.pending
    assert path.exists()
    assert world.store.requests.count_open() == 1


def test_dry_run_on_an_empty_store_deletes_nothing(world):
    """Without a store, retention has nothing to delete, and creates none."""
    with world.no_store as store:
        report = retention(world.settings(), store, dry_run=True)

    assert (report.dry_run, report.values_held, report.values_deleted) == (True, 0, 0)
    assert not os.path.exists(world.base / "no state")


def test_pending_request_of_a_fork_holds_the_parent_value(world, other_sessions, clock):
    """A value extracted from the parent is held while its restore in a fork is pending."""
    path, ident = prune_due_value(world, clock)
    forked = old_fork(world, path, clock)
    busy = {"quiet_seconds": 10**9}

    assert world.restore(ident, session=f"main/{forked.stem}", **busy).pending
    assert deletions(run(world)) == NOTHING
    assert b"x" * 2000 in b"".join(cat(world.settings(), world.store, str(forked), clock()))


def test_placeholder_in_an_active_fork_holds_the_parent_value(world, other_sessions, clock):
    """A value is held while a fork with its placeholder is in use, though the parent is deleted."""
    path, ident = prune(world)
    run(world)
    forked = old_fork(world, path, clock)
    path.unlink()
    for _ in range(3):
        assert run_daily(world, 20) == 0
        os.utime(forked, (clock.now,) * 2)
    assert held_entries(world) == {ident}


def test_retention_holds_a_value_requested_during_the_run(world, other_sessions, clock):
    """A value requested while retention reads the files is not deleted."""
    _, ident = prune_due_value(world, clock)
    busy = world.settings(quiet_seconds=10**9)
    answers = []

    def request():
        answers.append(restore(busy, world.store, ident, clock=clock))

    check = after_reading(OTHERS + 1, request)
    retention(world.settings(**MONTH), world.store, clock=clock, check_stop=check)

    assert [answer.pending for answer in answers] == [True]
    assert held_entries(world) == {ident}


# --- tombstones ----------------------------------------------------------------------------------


def test_restore_of_an_expired_value_prints_its_tombstone(world, other_sessions, clock):
    """`restore` and `show` exit with 5 and print when and why the value expired, and its size."""
    _, ident = prune_due_value(world, clock)
    run(world)
    before = file_states(world.root)
    with pytest.raises(ExpiredError) as caught:
        world.restore(ident)
    [tombstone] = caught.value.tombstones

    assert tombstone == {
        "entry_id": ident, "path": "message.content.0.text", "size_bytes": 2002,
        "extracted_at": iso(clock.began), "expired_at": iso(clock.now),
        "reason": SILENT,
    }  # fmt: skip
    command = program_for(world)
    for words in (("restore", ident), ("show", f"[[extracted-{ident}]]")):
        shown = command(*words)

        assert shown.returncode == 5
        assert shown.stdout == b""
        expired_at = iso(clock.now).replace("T", " ").replace("Z", " UTC")
        assert f"{ident}: the value expired at {expired_at}".encode() in shown.stderr
        assert b"it was 2002 bytes" in shown.stderr
    answer = command("restore", ident, "--json")

    assert answer.returncode == 5
    assert json.loads(answer.stdout)["tombstones"] == [tombstone]
    assert file_states(world.root) == before


# --- where a placeholder stands ------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["reset.2026-11-21T10-00-00.000Z", "deleted.1763719200000"])
def test_rotated_session_holds_its_values_and_is_not_written(world, other_sessions, clock, ending):
    """A session that its agent renamed holds values for a month after its last change."""
    path, ident = prune(world)
    run(world)
    archive = path.rename(f"{path}.{ending}")
    run_daily(world, 20)
    os.utime(archive, (clock.now,) * 2)
    before = file_states(world.root)

    assert run_daily(world, 29) == 0
    assert run_daily(world, 2) == 1
    assert file_states(world.root) == before
    assert ident.encode() in archive.read_bytes()


def test_placeholder_in_another_agents_session_holds_the_value(world, other_sessions, clock):
    """A placeholder in a session of another agent holds the value while that session is active."""
    path, ident = prune(world)
    run(world)
    elsewhere = world.root / "other" / "sessions"
    stranger = Conversation("22222222-0000-4000-8000-000000000002")
    stranger.turn(path.read_text())
    world.restore(ident)
    copied = put(elsewhere, "s", stranger)
    os.utime(copied, (clock.now,) * 2)

    assert run_daily(world, 29, trigger_types=["thinking"]) == 0
    assert run_daily(world, 2, trigger_types=["thinking"]) == 1


def test_equal_entry_id_of_another_agent_holds_no_value(world, other_sessions, clock):
    """An equal entry id of another agent has a placeholder with a number and holds nothing."""
    _path, ident = prune(world)
    elsewhere = world.root / "other" / "sessions"
    stranger = Conversation("22222222-0000-4000-8000-000000000002")
    stranger._ids = itertools.count(int(ident, 16) - 2)
    stranger.turn("z" * 2000)
    stranger.turn("short")
    other = put(elsewhere, "s", stranger)
    world.scan()
    assert f"[[extracted-{ident}~2]]".encode() in other.read_bytes()
    run(world)
    world.restore(ident, session="main/s")

    assert run_daily(world, 1, trigger_types=["thinking"]) == 1
    assert len(held_entries(world)) == 1


@pytest.mark.parametrize("before", [0, 1, 8, 20, 21, 140, 159, 160, 161])
@pytest.mark.parametrize("ident", ["0000abcd", "~" + "f" * 128])
def test_placeholder_across_a_chunk_boundary_is_found(world, before, ident):
    """A placeholder is found at any distance from the end of a chunk."""
    placeholder = f"[[extracted-{ident}]]"
    world.put("s.jsonl", b"x" * (CHUNK - before) + placeholder.encode() + b"x" * 300)
    [file] = sessions_and_archives([Root(str(world.root))])

    assert placeholders_in(file, interruption.check) == {placeholder}


def test_retention_holds_values_beside_an_unreadable_database(world, other_sessions, clock):
    """If an agent has an unreadable database, values of its deleted files are held."""
    path, ident = prune(world)
    run(world)
    path.unlink()
    migrate(world.root / "main")

    assert run_daily(world, 32) == 0
    assert "not the database of an OpenClaw agent" in run(world).held_back[str(world.root)]
    assert held_entries(world) == {ident}


# --- what is held back ---------------------------------------------------------------------------


@pytest.fixture
def two_roots(world, clock):
    """Return settings with two roots, each with the value of a session that a run has missed."""
    return make_two_roots(world)


def make_two_roots(world):
    """Make two roots, each with a session and a value of a deleted one that a run has missed."""
    other = world.base / "other"
    settings = {"roots": [{"path": str(world.root)}, {"path": str(other)}]}
    for number, root in enumerate((world.root, other)):
        directory = root / "main" / "sessions"
        prune(world, "t", directory=directory, text="yz"[number] * 3000, **settings)
        prune(world, "s", directory=directory, **settings)[0].unlink()
    run(world, **settings)
    return settings


def run_for_a_month(world, settings, why):
    """Run for a month, check the reason for the first root, and count the held values."""
    for _ in range(16):
        world.clock.later(2 * DAY)
        touch(world, settings)
        report = run(world, **settings)
    now = status(world.settings(**settings), world.store, world.clock())

    assert why in report.held_back[str(world.root)]
    assert now.places.held_back == report.held_back
    return held_below(world)


def touch(world, settings):
    """Touch the existing sessions, so that their values do not expire."""
    for root in settings["roots"]:
        for path in world.base.glob(f"{os.path.basename(root['path'])}/main/sessions/t.jsonl"):
            os.utime(path, (world.clock.now,) * 2)


def held_below(world):
    """Count the held values of each root by the root's name."""
    rows = query(
        world, "SELECT s.root, count(*) FROM extractions e JOIN sessions s ON s.id = e.session_id"
        " WHERE e.blob_id NOT NULL GROUP BY 1",
    )  # fmt: skip
    return {os.path.basename(os.fsdecode(root)): number for root, number in rows}


def check_nothing_held_back(world, settings, agents=1):
    """Run on two more days and check that nothing is held back, and how many values are left."""
    for _ in range(2):
        world.clock.later(DAY)
        touch(world, settings)
        report = run(world, **settings)
    now = status(world.settings(**settings), world.store, world.clock())

    assert (report.held_back, now.places.held_back) == ({}, {})
    assert held_below(world) == {"agents": agents, "other": 1}


ALL_HELD = {"agents": 2, "other": 1}


@pytest.mark.parametrize(
    ("replaced", "reason"),
    [(False, "no such directory"), (True, REPLACED)],
    ids=["missing", "replaced"],
)
def test_retention_holds_back_a_missing_or_replaced_root(world, two_roots, replaced, reason):
    """While a root is missing, or an empty directory like a mount point, nothing of it expires."""
    away = world.root.rename(world.base / "away")
    if replaced:
        world.root.mkdir()

    assert run_for_a_month(world, two_roots, reason) == ALL_HELD

    if replaced:
        world.root.rmdir()
    away.rename(world.root)
    check_nothing_held_back(world, two_roots)


def test_new_sessions_do_not_prove_a_replaced_root(world, two_roots):
    """Sessions recorded after a root was replaced do not end its protection; known ones do."""
    away = world.root.rename(world.base / "away")
    world.root.mkdir()
    run(world, **two_roots)
    prune(world, "new", text="w" * 4000, **two_roots)

    assert run_for_a_month(world, two_roots, REPLACED) == {"agents": 3, "other": 1}

    shutil.rmtree(world.root)
    away.rename(world.root)
    check_nothing_held_back(world, two_roots, agents=2)  # a month begins for the new session

    shutil.copytree(world.root, away)
    shutil.rmtree(world.root)
    away.rename(world.root)
    check_nothing_held_back(world, two_roots, agents=2)


def test_replaced_root_counts_as_new_after_a_run_without_it(world, two_roots):
    """The advice of `status` works: after one run without the root, its values expire in time."""
    world.root.rename(world.base / "away")
    world.root.mkdir()
    prune(world, "t", text="w" * 4000, **two_roots)

    assert list(run(world, **two_roots).held_back) == [str(world.root)]

    run(world, roots=two_roots["roots"][1:])
    assert run(world, **two_roots).held_back == {}
    for _ in range(29):
        world.clock.later(DAY)
        touch(world, two_roots)
        run(world, **two_roots)

    assert held_below(world) == {"agents": 3, "other": 2}

    world.clock.later(DAY)
    check_nothing_held_back(world, two_roots)


def test_retention_expires_values_of_an_emptied_root(world, two_roots):
    """An emptied root is still the same directory, so its values expire after a month."""
    for path in world.directory.iterdir():
        path.unlink()
    for _ in range(17):
        world.clock.later(2 * DAY)
        touch(world, two_roots)
        report = run(world, **two_roots)

    assert (report.held_back, held_below(world)) == ({}, {"other": 1})


def test_values_of_a_removed_root_expire_after_a_month(world, two_roots):
    """Values of a root that is no longer configured are held for a month, with a warning."""
    settings = {"roots": two_roots["roots"][1:]}
    for _ in range(15):
        world.clock.later(2 * DAY)
        touch(world, settings)
        run(world, **settings)
    now = status(world.settings(**settings), world.store, world.clock())
    [trouble] = check(now, world.clock())

    assert trouble.startswith("1 value of missing sessions expire")
    assert trouble.endswith("or add roots that were removed from the configuration")
    assert held_below(world)["agents"] == 1  # the session that was gone before had its month

    world.clock.later(2 * DAY)
    run(world, **settings)

    assert "agents" not in held_below(world)


def test_values_of_a_root_removed_before_the_first_run_expire(world, clock):
    """A former root is trusted if a recorded session is there, even if no run saw it before."""
    prune(world, "s")
    other = world.base / "other"
    other.mkdir()
    reports = []
    for _ in range(17):
        reports.append(run(world, roots=[{"path": str(other)}]))
        clock.later(2 * DAY)

    assert reports[-2].held_back == {}
    assert sum(report.values_deleted for report in reports) == 1


@pytest.fixture
def ordinary(unprivileged_world, monkeypatch):
    """Return a world of an unprivileged user with clocks that stand still."""
    unprivileged_world.clock = Clocks()
    monkeypatch.setattr(clocks, "boot_clock", unprivileged_world.clock.boot)
    return unprivileged_world


@pytest.mark.parametrize("place", ["", "main/sessions", "main/sessions/t.jsonl"])
def test_retention_deletes_nothing_while_a_part_is_unreadable(ordinary, place):
    """An unreadable root, directory or session holds all values: it may contain placeholders."""
    world = ordinary
    settings = make_two_roots(world)
    shut = world.root / place
    mode = shut.stat().st_mode
    shut.chmod(0)
    try:
        assert run_for_a_month(world, settings, "Permission denied") == {"agents": 2, "other": 2}
    finally:
        shut.chmod(mode)
    check_nothing_held_back(world, settings)


def test_nothing_expires_beside_an_unreadable_directory(ordinary):
    """Beside an unreadable directory, not even the values of readable idle sessions expire."""
    prune(ordinary)
    shut = ordinary.root / "shut"
    shut.mkdir(mode=0)
    reports = []
    for _ in range(17):
        ordinary.clock.later(2 * DAY)
        reports.append(run(ordinary))
    shut.chmod(0o700)
    ordinary.clock.later(DAY)

    assert list(reports[-1].held_back) == [str(ordinary.root)]
    assert [report.values_deleted for report in reports] == [0] * 17
    assert deletions(run(ordinary)) == (1, {SILENT: 1})


def test_time_between_two_runs_counts_as_a_week_at_most(world, other_sessions, clock):
    """However long nothing ran, the next run counts seven days, and deletes what is due then."""
    prune(world)
    run(world)
    for _ in range(4):
        clock.later(40 * DAY)
        assert deletions(run(world)) == NOTHING
    clock.later(2 * DAY - 1)
    assert deletions(run(world)) == NOTHING
    clock.later(1)

    assert deletions(run(world)) == (1, {SILENT: 1})


@pytest.mark.parametrize("seconds", [TEN_YEARS, -TEN_YEARS], ids=["forward", "back"])
def test_retention_deletes_nothing_after_a_clock_jump(world, other_sessions, clock, seconds):
    """The runs after a jump of the clock, and after its end, delete nothing and miss no session."""
    prune(world)
    path, _ = prune(world, "t")
    run(world)
    path.unlink()
    clock.later(6 * HOUR)
    clock.jump(seconds)
    world.scan()
    report = run(world)

    assert report.values_deleted == 0
    reason = f"the wall clock moved by {seconds / HOUR:+,.0f} hours"
    assert report.held_back == {str(world.root): reason}
    assert query(world, "SELECT count(*) FROM sessions WHERE missed_at NOT NULL") == [(0,)]

    clock.later(6 * HOUR)
    clock.jump(-seconds)
    world.scan()

    assert run(world).values_deleted == 0

    clock.later(6 * HOUR)
    calm = run(world)

    assert (calm.held_back, calm.values_deleted) == ({}, 0)
    assert len(held_entries(world)) == 2


def test_retention_is_held_back_if_a_reboot_set_the_clock_back(
    world, other_sessions, clock, monkeypatch
):
    """A clock behind the last run is recognized although the boot clock restarted."""
    prune(world)
    run(world)
    monkeypatch.setattr(clocks, "boot_id", lambda: "another")
    monkeypatch.setattr(clocks, "boot_clock", lambda: 60.0)
    clock.now -= TEN_YEARS

    assert "across a reboot" in run(world).held_back[str(world.root)]


def at(moment, monkeypatch, capsys, *words):
    """Run a command in this process at a time of the wall clock; the boot clock is real."""
    monkeypatch.setattr(sys, "argv", ["brainsurgeon", *words, "--json"])
    with freeze_time(moment):
        code = cli._run()
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("seconds", [TEN_YEARS, -TEN_YEARS], ids=["forward", "back"])
def test_retention_command_detects_a_jump_of_the_clock(
    world, other_sessions, monkeypatch, capsys, seconds
):
    """The command compares the wall clock with the real boot clock and deletes nothing."""
    _, ident = prune(world)
    config = ("--config", str(world.config_file()))
    now = iso(time.time())
    then = iso(time.time() + seconds)

    for _ in range(2):
        assert at(now, monkeypatch, capsys, "retention", *config)[0] == 0
    code, report = at(then, monkeypatch, capsys, "retention", *config)

    assert (code, report["values_deleted"]) == (0, 0)
    assert "the wall clock moved" in report["held_back"][str(world.root)]
    assert at(now, monkeypatch, capsys, "retention", *config)[1]["values_deleted"] == 0
    assert program_for(world)("show", ident).stdout == b"x" * 2000


# --- nothing but what it says --------------------------------------------------------------------


def test_retention_dry_run_reports_what_the_run_deletes(world, other_sessions, clock):
    """A dry run writes nothing and reports the same counts, reasons and roots as the run."""
    prune(world)
    path, _ = prune(world, "t")
    run(world)
    path.unlink()
    run_daily(world, 29)
    for hours in (12, 12, 24):
        clock.later(hours * HOUR)
        before = file_states(world.base, directories=True)
        with closing(open_to_read(str(world.state))) as reading:
            expected = run(world, dry_run=True, store=reading)

        assert file_states(world.base, directories=True) == before

        real = run(world)
        differing = {"dry_run": False, "blobs_deleted": real.blobs_deleted}

        assert {**asdict(expected), **differing} == asdict(real)
    assert held_entries(world) == set()


def test_retention_dry_run_creates_no_store(world):
    """Without a store a dry run reports no values and creates no state directory."""
    shown = program_for(world)("scan", "--retention", "--dry-run", "--json")

    assert (shown.returncode, json.loads(shown.stdout)["values_held"]) == (0, 0)
    assert not world.state.exists()


def test_stopped_retention_deletes_nothing(world, other_sessions, clock):
    """A run stopped while it reads files deletes nothing, and the next run does."""
    _, ident = prune_due_value(world, clock)
    calls = itertools.count()

    def stop():
        if next(calls) >= OTHERS:
            raise StoppedError

    report = retention(world.settings(**MONTH), world.store, clock=clock, check_stop=stop)

    assert (report.stopped, deletions(report)) == (True, NOTHING)
    assert held_entries(world) == {ident}
    assert deletions(run(world)) == (1, {SILENT: 1})


def test_retention_can_be_stopped_between_recorded_sessions(world, clock):
    """Each recorded session costs a look at its file, so a run may also stop between these."""
    path, _ = prune_due_value(world, clock)
    path.unlink()

    def stop():
        raise StoppedError

    report = retention(world.settings(**MONTH), world.store, clock=clock, check_stop=stop)

    assert report.stopped
    assert query(world, "SELECT missed_at FROM sessions") == [(None,)]


def test_retention_can_be_stopped_while_it_shrinks_the_store(world, clock, monkeypatch):
    """A large store takes minutes to shrink. The next run goes on with it."""
    steps = []
    monkeypatch.setattr(Expiry, "shrink", lambda _: not steps.append(1) and len(steps) < 3)

    def stop():
        if steps:
            raise StoppedError

    assert retention(world.settings(**MONTH), world.store, clock=clock, check_stop=stop).stopped
    assert len(steps) == 1


def test_shared_blob_is_deleted_with_its_last_value(world, other_sessions, clock):
    """Equal values are stored once, and the blob is deleted with the last extraction of it."""
    _, ident = prune(world, "s")
    _, other = prune(world, "t")
    run(world)

    assert query(world, "SELECT count(*) FROM blobs") == [(1,)]

    world.restore(ident)
    clock.later(DAY)
    report = run(world, trigger_types=["thinking"])

    assert (report.values_deleted, report.blobs_deleted) == (1, 0)
    content = show(world.settings(), world.store, other).content
    assert content == {"message.content.0.text": "x" * 2000}
    with pytest.raises(ExpiredError):
        show(world.settings(), world.store, ident)

    world.restore(other)
    clock.later(DAY)
    report = run(world)

    assert (report.values_deleted, report.blobs_deleted) == (1, 1)


def scan_while_open(world, path, monkeypatch):
    """Scan while the session is open, without the check that would defer it before the rewrite."""
    with open(path, "rb"), monkeypatch.context() as patch:
        patch.setattr(exchange, "check_closed", lambda _: None)
        return world.scan()


def test_abandoned_rewrite_leaves_no_blob(world, other_sessions, monkeypatch):
    """A value stored for a rewrite that was given up leaves nothing in the store."""
    path = put(world.directory, "s", old_conversation()[0])
    report = scan_while_open(world, path, monkeypatch)

    assert (report.values_extracted, report.files_deferred) == (0, 1)
    assert query(world, "SELECT count(*) FROM blobs") == [(0,)]


def begin_rewrite(world, other):
    """Begin a rewrite as another process and return a function that ends it."""
    session = query(world, "SELECT id, path FROM sessions ORDER BY id LIMIT 1")[0][0]
    lock = other.lock(session)
    lock.__enter__()
    files = sessions_and_archives([Root(str(world.root))])
    [file] = [file for file in files if file.session == "other0"]
    with other.transaction():
        row = other.journal.begin(session, file, ".brainsurgeon-x", journal.Confirmation())

    def end():
        with other.transaction():
            other.journal.close(row)
        lock.__exit__(None, None, None)

    return end


def test_rewrite_in_progress_holds_only_its_own_session(world, other_sessions, clock):
    """Values of the session are held while a rewrite of it is in progress; others expire."""
    prune(world)
    prune(world, "t", text="y" * 2000)
    for _ in range(5):
        run(world)
        clock.later(6 * DAY)
    with closing(open_store(str(world.state))) as second:
        end = begin_rewrite(world, second)
        report = run(world)

        assert (deletions(report), report.held_back) == ((1, {SILENT: 1}), {})
        assert len(held_entries(world)) == 1

        end()
    assert deletions(run(world)) == (1, {SILENT: 1})


def test_retention_reads_only_what_changed_since_its_last_search(
    world, other_sessions, clock, monkeypatch
):  # fmt: skip
    """A file is searched again only if its status changed, and its last search still counts."""
    path, _ = prune(world)
    read = []

    def reading(file, check_stop):
        read.append(file.session)
        return placeholders_in(file, check_stop)

    monkeypatch.setattr(byte_search.placeholders, "placeholders_in", reading)
    monkeypatch.setattr(byte_search, "AGED", -HOUR)  # the files are new, but do not change
    run(world)
    assert sorted(read) == ["other0", "other1", "other2", "other3", "s"]
    read.clear()
    path.rename(f"{path}.bak")
    clock.later(DAY)
    put(world.directory, "other1", Conversation())
    run(world)

    assert sorted(read) == ["other1", "s.jsonl.bak"]


def after_reading(sessions, act):
    calls = itertools.count(1)

    def check():
        if next(calls) == sessions + 2:  # one of them has a record
            act()

    return check


def test_retention_holds_a_session_whose_rewrite_begins_meanwhile(world, other_sessions, clock):
    """The transaction that deletes checks the journal again."""
    _, ident = prune_due_value(world, clock)
    with closing(open_store(str(world.state))) as other:
        ends = []
        check = after_reading(OTHERS + 1, lambda: ends.append(begin_rewrite(world, other)))
        retention(world.settings(**MONTH), world.store, clock=clock, check_stop=check)

        assert held_entries(world) == {ident}

        ends[0]()


# --- in turns ------------------------------------------------------------------------------------


DUE = 2 * PAGE + 7
CHANGES = ("UPDATE EXTRACTIONS", "DELETE FROM BLOBS", "UPDATE SESSIONS", "DELETE FROM ROW_COLUMNS")


@pytest.fixture
def many_due_values(world, clock, monkeypatch):
    """Return a world with more than two pages of values that are due."""
    monkeypatch.setattr(operation, "PAUSE", 0.0)
    put(world.directory, "s", Conversation())
    row = store_session(world.store, session="s", root=str(world.root))
    with world.store.transaction():
        for number in range(DUE):
            store_extraction(world.store, row, 0, removal(f"e{number}"), b"value %d" % number)
        query(world, "UPDATE extractions SET journal_id = NULL, unplaced_at = 1")
    return world


def changes_per_transaction(world, act):
    """Call a function and return the number of changes in each transaction."""
    changes = []

    def note(statement):
        text = statement.strip().upper()
        if text.startswith("BEGIN IMMEDIATE"):
            changes.append(0)
        elif text.startswith(CHANGES):
            changes[-1] += 1

    world.store._connection.set_trace_callback(note)
    act()
    world.store._connection.set_trace_callback(None)
    return changes


def test_retention_deletes_a_page_in_a_transaction(many_due_values):
    """However many values are due, a transaction changes a bounded number of rows."""
    reports = []
    world = many_due_values
    deleting = changes_per_transaction(world, lambda: reports.append(run(world)))

    assert [report.values_deleted for report in reports] == [DUE]
    assert 2 * DUE <= sum(deleting) <= 3 * DUE + 10
    assert max(deleting) <= 3 * PAGE  # a tombstone, a value, and columns of its entry each


def test_other_processes_write_between_retention_pages(many_due_values):
    """Between two pages another process can write, and its requests hold their values."""
    with closing(open_store(str(many_due_values.state))) as other:
        turns = []

        def write():
            with other.transaction():
                ident = f"e{DUE - 1 - len(turns)}"
                other.requests.add(replace(EVERYTHING, session_id=1, entry_id=ident, asked_at=1.0))
                turns.append(1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operation, "give_way", write)
            report = run(many_due_values)

    assert len(turns) >= 2
    assert DUE - len(turns) <= report.values_deleted <= DUE - 2
    assert count_rows(many_due_values.store, "blobs") == DUE - report.values_deleted


def test_killed_retention_leaves_complete_pages(many_due_values):
    """After a kill between pages each value has its bytes or a tombstone; the next run goes on."""

    class KilledError(Exception):
        """The end of the process."""

    def die():
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operation, "give_way", die)
        with pytest.raises(KilledError):
            run(many_due_values)

    states = "SELECT expired_at IS NULL, blob_id IS NULL, count(*) FROM extractions GROUP BY 1, 2"
    assert query(many_due_values, states) == [(0, 1, PAGE), (1, 0, DUE - PAGE)]
    assert count_rows(many_due_values.store, "blobs") == DUE - PAGE
    assert run(many_due_values).values_deleted == DUE - PAGE


# --- really gone ---------------------------------------------------------------------------------


def test_retention_erases_the_bytes_from_the_database(world, other_sessions, clock):
    """After expiry the database file is smaller and contains no piece of the stored value."""
    canary = secrets.token_hex(300_000)
    _, ident = prune(world, text=canary)
    prune(world, "t")
    database = world.state / "store.db"
    [(stored,)] = query(world, "SELECT data FROM blobs ORDER BY size DESC LIMIT 1")
    pieces = [stored[start : start + 64] for start in range(0, len(stored) - 64, 4096)]
    before = database.read_bytes()

    assert sum(piece in before for piece in pieces) > len(pieces) * 0.9

    run(world)
    world.restore(ident)
    clock.later(DAY)

    assert run(world).values_deleted == 1

    after = database.read_bytes()

    assert not any(piece in after for piece in pieces)
    assert canary[1000:1100].encode() not in after
    assert len(after) < len(before) - len(stored) * 0.9
    assert sorted(os.listdir(world.state)) == ["last_run", "locks", "store.db"]
    assert query(world, "PRAGMA integrity_check") == [("ok",)]
