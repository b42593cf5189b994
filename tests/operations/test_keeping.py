"""What is wanted is kept: standing values, old copies, absences with a break, blocked sessions."""

import json
import os
import shutil
from contextlib import nullcontext

import pytest

from brainsurgeon.errors import FailedError
from brainsurgeon.files import processes
from brainsurgeon.operations.retention import expiring, retention
from brainsurgeon.planning.retention import DAY, MISSING, SILENT, UNPLACED
from building.world import Conversation, entry_text, fork, sql

HOUR = 3600.0
YEARS = 3653 * DAY
MONTH = {"retention_standing": "30d"}


class Clocks:
    """A wall clock and a boot clock; a reboot begins another boot."""

    def __init__(self):
        self.now, self.ahead, self.boots = 1_800_000_000.0, 0.0, 0

    def set(self, seconds):
        self.now, self.ahead = self.now + seconds, self.ahead + seconds

    def boot(self):
        return self.now - self.ahead

    def __call__(self):
        return self.now


@pytest.fixture
def clock(world, monkeypatch):
    world.clock = Clocks()
    monkeypatch.setattr(processes, "boot_clock", world.clock.boot)
    monkeypatch.setattr(processes, "boot_id", lambda: str(world.clock.boots))
    return world.clock


@pytest.fixture
def pruned(world, clock):
    """Return the path of a pruned session, the id of its value and its original content."""
    conversation = Conversation()
    ident = conversation.turn("x" * 2000)
    conversation.turn("short")
    path = world.put("s.jsonl", conversation.bytes())
    touch(path, clock, -3 * DAY)
    world.put("other.jsonl", Conversation("22222222-0000-4000-8000-000000000002").bytes())
    assert world.scan().values_extracted == 1
    return path, ident, conversation.bytes()


def touch(path, clock, seconds=0.0):
    os.utime(path, (clock.now + seconds,) * 2)


def run(world, **settings):
    """Run retention, and return the reasons of the deleted values."""
    return retention(world.settings(**settings), world.store, clock=world.clock).reasons


def live(world, days, step=1.0, scans=True, **settings):
    """Scan and run retention every `step` days; return the day of each deletion, and why."""
    begin, deleted = world.clock.now, {}
    while world.clock.now < begin + days * DAY:
        world.clock.now += step * DAY
        if scans:
            world.scan(**settings)
        if reasons := run(world, **settings):
            deleted[(world.clock.now - begin) / DAY] = reasons
    return deleted


# --- a placeholder in a session can be restored --------------------------------------------------


def test_placeholder_in_a_silent_session_can_be_restored(world, pruned):
    """By default, a value whose placeholder is in a session never expires."""
    path, ident, original = pruned

    assert live(world, 400, step=7) == {}
    assert expiring(world.settings(), world.store, world.clock(), 10 * YEARS) == []
    world.restore(ident, pristine=True)
    assert path.read_bytes() == original


@pytest.mark.parametrize("in_place", [True, False])
def test_older_copy_with_its_times_does_not_end_the_activity(world, clock, pruned, in_place):
    """After an old copy was put back as by `cp -p`, the last activity that a run saw counts."""
    path, _, _ = pruned
    copy = shutil.copy2(path, world.base / "copy")
    for _ in range(50):
        touch(path, clock)
        assert live(world, 1, **MONTH) == {}
    if not in_place:
        path.unlink()
    shutil.copy2(copy, path)

    assert live(world, 40, **MONTH) == {30: {SILENT: 1}}


def test_copy_that_appears_with_an_old_time_counts_as_active(world, clock, pruned):
    """A fork restored from a backup holds the value for the term after it appeared."""
    path, _, _ = pruned
    live(world, 20, **MONTH)
    touch(fork(path, "33333333-0000-4000-8000-000000000003"), clock, -90 * DAY)

    assert live(world, 40, **MONTH) == {30: {SILENT: 1}}


def test_time_of_a_file_in_the_future_counts_as_now(world, clock, pruned):
    """A modification time ten years ahead keeps no value longer than the term."""
    path, _, _ = pruned
    run(world, **MONTH)
    touch(path, clock, YEARS)

    assert live(world, 40, **MONTH) == {31: {SILENT: 1}}


def test_clock_ten_years_ahead_across_a_reboot_deletes_nothing(world, clock, pruned):
    """Neither the first nor the second run with the wrong clock deletes anything, nor later ones.

    Restored, standing and missing values are kept for their terms.
    """
    path, _, _ = pruned
    live(world, 3, **MONTH)
    away = path.rename(world.base / "away")
    run(world, **MONTH)
    clock.now, clock.boots = clock.now + YEARS, 1
    assert live(world, 5, **MONTH) == {}
    clock.now, clock.boots = clock.now - YEARS, 2
    away.rename(path)
    assert live(world, 20, **MONTH) == {}
    path.rename(away)

    assert live(world, 40, **MONTH) == {31: {MISSING: 1}}


# --- missing sessions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "expired"), [(0.25, 30.25), (1, 31), (3, 33), (7, 42), (10, 60), (20, 120)]
)
def test_missing_session_expires_however_rare_the_runs(world, pruned, step, expired):
    """A month after the first run that missed it; a longer pause than a week counts as a week."""
    path, _, _ = pruned
    run(world)
    path.unlink()

    assert live(world, expired + step, step=step) == {expired: {MISSING: 1}}


def test_absence_must_be_seen_on_three_days(world, clock, pruned):
    """Runs of a day (UTC) count once: with a term of an hour, the third day deletes."""
    path, _, _ = pruned
    clock.now += DAY - clock.now % DAY
    run(world)
    path.unlink()

    assert live(world, 4, step=1 / 8, retention_missing="1h") == {2: {MISSING: 1}}


@pytest.mark.parametrize("changed", [False, True])
def test_absence_with_a_break_begins_anew(world, clock, pruned, changed):
    """A session that a scan saw in between has another month, even if no retention run saw it."""
    path, _, _ = pruned
    run(world)
    away = path.rename(world.base / "away")
    assert live(world, 29) == {}
    away.rename(path)
    if changed:
        touch(path, clock)
    world.scan()
    path.rename(away)

    assert live(world, 40) == {31: {MISSING: 1}}


def test_another_session_at_the_path_does_not_hide_an_absence(world, clock, pruned):
    """A new session in place of a deleted one is not the deleted one, though it has no values."""
    path, _, _ = pruned
    run(world)
    path.unlink()
    other = Conversation("44444444-0000-4000-8000-000000000004")
    other.user()
    other.assistant()
    path.write_bytes(other.bytes())
    touch(path, clock)

    assert live(world, 40) == {31: {MISSING: 1}}


def test_recorded_absence_of_an_earlier_version_counts_as_first_seen(world, clock, pruned):
    """A store with an absence of 40 days and no list of days needs two more days."""
    path, _, _ = pruned
    run(world)
    path.unlink()
    run(world)
    facts = json.loads(sql(world, "SELECT value FROM meta WHERE key = 'retention'")[0][0])
    for name in ("counted", "days"):
        del facts[name]
    clock.now += 40 * DAY
    facts["clock"] |= {"wall": clock.now, "boot": clock.now}
    world.store._connection.execute(
        "UPDATE meta SET value = ? WHERE key = 'retention'", (json.dumps(facts),)
    )
    world.store._connection.execute("DROP TABLE searches")
    world.close()

    assert live(world, 5) == {2: {MISSING: 1}}


# --- every byte is searched ----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["copy.jsonl", "s.jsonl.reset.2027", "s.jsonl~", "s.jsonl.1"])
def test_placeholder_that_no_scan_saw_holds_its_value(world, clock, pruned, name):
    """A restored value is kept while its placeholder is in any copy, and a month after that."""
    path, ident, _ = pruned
    run(world)
    copy = shutil.copy2(path, path.with_name(name))
    world.restore(ident)
    keeping = {"trigger_types": ["thinking"]}
    assert live(world, 20, scans=False, **keeping) == {}
    copy.unlink()

    assert live(world, 40, **keeping) == {31: {MISSING: 1}}


@pytest.mark.parametrize("gone", [True, False])
def test_run_that_first_misses_the_last_placeholder_deletes_nothing(world, clock, pruned, gone):
    """After a copy lost it, unseen by any scan, the term begins, although a scan was in between."""
    path, ident, original = pruned
    copy = shutil.copy2(path, path.with_name("s.jsonl.1"))
    run(world)
    world.restore(ident)
    keeping = {"trigger_types": ["thinking"]}
    world.scan(**keeping)
    if gone:
        copy.unlink()
    else:
        copy.write_bytes(original)

    expected = {32: {MISSING: 1}} if gone else {4: {UNPLACED: 1}}
    assert live(world, 40, step=2, **keeping) == expected


@pytest.mark.parametrize("jump", [-YEARS, -40 * DAY, 40 * DAY])
@pytest.mark.parametrize("runs", [0, 1])
@pytest.mark.parametrize("known", [True, False])
def test_clock_that_is_wrong_for_a_while_shortens_no_term(world, clock, pruned, jump, runs, known):
    """A value that was restored meanwhile is kept for a day, whoever saw that clock."""
    path, ident, original = pruned
    keeping = {"trigger_types": ["thinking"]}
    if known:
        run(world, **keeping)
    else:  # the last run was before the extraction
        world.restore(ident)
        run(world, **keeping)
        world.clock.now += HOUR
        path.write_bytes(original)
        touch(path, clock, -3 * DAY)
        world.scan()
    clock.set(jump)
    for number in range(max(runs, 1)):
        if runs:
            run(world, **keeping)
        if not number:
            world.restore(ident)
        clock.now += HOUR
        world.scan(**keeping)
    clock.set(-jump)
    [day] = live(world, 3, step=0.25, **keeping)

    assert 1 - 2 / 24 <= day <= 1.5


def test_archive_packed_in_an_unknown_way_holds_every_value(world, clock, pruned):
    """While a file may contain any placeholder, nothing is deleted, and the reason is given."""
    path, ident, _ = pruned
    run(world)
    packed = path.with_name("s.jsonl.lz4")
    packed.write_bytes(b"\x04\x22\x4d\x18\0\0\0")
    world.restore(ident)
    keeping = {"trigger_types": ["thinking"]}
    assert live(world, 3, **keeping) == {}
    report = retention(world.settings(**keeping), world.store, clock=clock)
    assert "packed in a way" in report.held_back[str(world.root)]
    packed.unlink()

    assert live(world, 1, **keeping) == {1: {UNPLACED: 1}}


# --- blocked is not gone -------------------------------------------------------------------------


def unknown_version(path):
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"version":3', b'"version":99', 1))
    return lambda: path.write_bytes(data)


def unreadable_lock(path):
    lock = path.with_name(f"{path.name}.lock")
    lock.mkdir()
    return lock.rmdir


def locked_by_a_foreign_process(path):
    lock = path.with_name(f"{path.name}.lock")
    lock.write_text(json.dumps({"pid": os.getpid()}))
    return lock.unlink


BLOCKS = [unknown_version, unreadable_lock, locked_by_a_foreign_process]


@pytest.mark.parametrize("block", BLOCKS)
def test_values_of_a_blocked_session_are_kept(world, clock, pruned, block):
    """While a session is blocked, its values do not expire, although the user set a term."""
    path, _, _ = pruned
    run(world, **MONTH)
    undo = block(path)
    assert live(world, 50, **MONTH) == {}
    assert expiring(world.settings(**MONTH), world.store, world.clock()) == []
    undo()

    assert list(live(world, 31, **MONTH).values()) == [{SILENT: 1}]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("everything", [False, True])
def test_request_for_a_blocked_session_waits_until_it_can_be_done(
    world, clock, pruned, block, everything
):
    """A restore that was asked for while a session is blocked does not lapse; its value is kept."""
    path, ident, original = pruned
    run(world, **MONTH)
    undo, refused = block(path), block is unknown_version
    if everything:
        outcomes = {one.session: one for one in world.restore_all(pristine=True)}
        assert outcomes["main/s"].state == ("failed" if refused else "pending")
    else:
        with pytest.raises(FailedError, match="the request waits") if refused else nullcontext():
            assert world.restore(ident, pristine=True).pending
    assert live(world, 60, **MONTH) == {}
    undo()
    touch(path, clock, -60)
    world.scan()

    assert path.read_bytes() == original
    assert sql(world, "SELECT count(*) FROM requests") == [(0,)]


@pytest.mark.parametrize("away", ["root", "mount point", "file"])
def test_request_for_a_blocked_session_outlasts_an_unmounted_disk(world, clock, pruned, away):
    """It waits while the session is out of sight, and is carried out when that is back and idle."""
    path, ident, original = pruned
    undo = unreadable_lock(path)
    assert world.restore(ident, pristine=True).pending
    clock.now += HOUR
    world.scan()
    moved = path if away == "file" else world.root
    moved.rename(world.base / "away")
    if away == "mount point":
        world.root.mkdir()
    for _ in range(3):
        clock.now += HOUR
        world.scan()
        run(world)
    if away == "mount point":
        world.root.rmdir()
    (world.base / "away").rename(moved)
    undo()
    touch(path, clock)
    clock.now += 60
    world.scan()

    assert path.read_bytes() == original


def test_request_lapses_once_its_session_is_only_busy(world, clock, pruned):
    """A request that waited for a blocked session lapses in time if its agent then works on it."""
    path, ident, _ = pruned
    undo = unreadable_lock(path)
    assert world.restore(ident).pending
    live(world, 3)
    undo()
    busy = {"quiet_seconds": 10**9}
    for seconds, left in ((60, 1), (300, 1), (301, 0)):
        clock.now += seconds
        world.scan(**busy)
        assert sql(world, "SELECT count(*) FROM requests") == [(left,)]
    assert entry_text(path, ident) == f"[[extracted-{ident}]]"
