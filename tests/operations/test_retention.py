"""Runs of retention: what expires and when, what is held back, and that it is really gone."""

import itertools
import json
import os
import secrets
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import pytest
from freezegun import freeze_time
from msgspec.structs import asdict, replace

from brainsurgeon import cli
from brainsurgeon.errors import ExpiredError, StoppedError
from brainsurgeon.hosts import processes as clocks
from brainsurgeon.model.records import EVERYTHING
from brainsurgeon.model.sessions import Root
from brainsurgeon.model.text import iso
from brainsurgeon.operations import retention as operation
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.restore import restore
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.show import show
from brainsurgeon.operations.status import status
from brainsurgeon.planning import retention as decide
from brainsurgeon.planning.retention import MISSING, SILENT, UNPLACED
from brainsurgeon.sessions import exchange
from brainsurgeon.sessions.placeholders import placeholders_in, sessions_and_archives
from brainsurgeon.sessions.reading import CHUNK, carry_on
from brainsurgeon.store import journal, open_store, open_to_read
from brainsurgeon.store.expiry import PAGE
from building.store_rows import count_rows, removal, store_extraction, store_session
from building.world import Conversation, file_states

HOUR = 3600.0
DAY = 24 * HOUR
# Ten of them.
YEARS = 3653 * DAY
# Sessions that stand beside.
COMPANY = 4


class Clocks:
    """The wall clock, and a boot clock that goes with it unless the wall clock jumps."""

    def __init__(self):
        self.now = self.began = float(int(time.time()))
        self.jumped = 0.0

    def __call__(self):
        return self.now

    def boot(self):
        """Tell the seconds since a boot a million seconds ago."""
        return 1e6 + self.now - self.began - self.jumped

    def later(self, seconds):
        self.now += seconds

    def jump(self, seconds):
        self.now += seconds
        self.jumped += seconds


@pytest.fixture
def clock(world, monkeypatch):
    """Give the world clocks that go only when told."""
    world.clock = Clocks()
    monkeypatch.setattr(clocks, "boot_clock", world.clock.boot)
    return world.clock


@pytest.fixture
def company(world):
    for number in range(COMPANY):
        put(world.directory, f"company{number}", Conversation())


_starts = itertools.count(0x1000, 0x1000)


def talk(text="x" * 2000, **header):
    """Make a conversation whose first tool result is old; ids stand in no other conversation."""
    start = next(_starts)
    one = Conversation(**{"session": f"{start:08x}-0000-4000-8000-000000000001", **header})
    one._ids = itertools.count(start)
    one.turn(text)
    one.turn("short")
    return one


def result_of(one):
    return next(line["id"] for line in one.lines if line.get("message", {}).get("toolName"))


def put(directory, name, one, age=3 * DAY):
    path = directory / f"{name}.jsonl"
    path.write_bytes(one if isinstance(one, bytes) else one.bytes())
    os.utime(path, (time.time() - age,) * 2)
    return path


def prune(world, name="s", text="x" * 2000, directory=None, **settings):
    """Put a session and have its old result cut; give its file and the entry's id."""
    one = talk(text)
    path = put(directory or world.directory, name, one)

    assert world.scan(**settings).values_extracted == 1
    return path, result_of(one)


def run(world, dry_run=False, store=None, **settings):
    return retention(
        world.settings(**settings), store or world.store, clock=world.clock, dry_run=dry_run
    )


def done(report):
    return report.values_deleted, report.reasons


def ask(world, *statement):
    return world.store._connection.execute(*statement).fetchall()


def held(world):
    return {row[0] for row in ask(world, "SELECT entry_id FROM extractions WHERE blob_id NOT NULL")}


NOTHING = (0, {})


def live(world, days, **settings):
    """Let days pass, with a scan and a retention run on each; give what the runs deleted."""
    deleted = 0
    for _ in range(days):
        world.clock.later(DAY)
        world.scan(**settings)
        deleted += run(world, **settings).values_deleted
    return deleted


# --- what expires when ---------------------------------------------------------------------------


def test_a_restored_value_is_kept_for_a_day(world, company, clock):
    """What was restored everywhere goes `retention` after that, and leaves a tombstone."""
    _path, ident = prune(world)
    run(world)
    clock.later(HOUR)
    world.restore(ident)
    clock.later(DAY - 1)

    assert done(run(world)) == NOTHING

    clock.later(1)
    before = file_states(world.root)
    last = run(world)

    assert (done(last), last.bytes_deleted, last.blobs_deleted) == ((1, {UNPLACED: 1}), 2002, 1)
    assert held(world) == set()
    assert ask(world, "SELECT expired_at, expired_why, blob_id FROM extractions") == [
        (clock.now, UNPLACED, None)
    ]
    assert ask(world, "SELECT count(*) FROM blobs") == [(0,)]
    assert file_states(world.root) == before


def test_what_was_written_anew_counts_from_when_that_was_seen(world, company, clock):
    """It counts from the scan that found the placeholder gone, not from when that happened."""
    path = put(world.directory, "s", one := talk())
    world.scan()
    run(world)
    path.write_bytes(one.bytes())
    os.utime(path, (clock.now - 3 * DAY,) * 2)
    clock.later(20 * HOUR)
    world.scan(trigger_types=["thinking"])
    clock.later(20 * HOUR)

    assert done(run(world)) == NOTHING

    clock.later(4 * HOUR)

    assert done(run(world)) == (1, {UNPLACED: 1})


def test_a_session_that_is_gone_is_missed_for_a_month(world, company, clock):
    """It counts from the first run that missed it, which is written once."""
    path, ident = prune(world)
    run(world)
    path.unlink()

    assert live(world, 30) == 0
    assert show(world.settings(), world.store, ident).content

    clock.later(DAY)

    assert done(run(world)) == (1, {MISSING: 1})


def test_a_session_that_comes_back_is_missed_no_more(world, company, clock):
    """Gone again, it has another month."""
    path, _ = prune(world)
    run(world)
    away = path.rename(world.base / "away.jsonl")
    live(world, 29)
    away.rename(path)
    os.utime(path, (clock.now,) * 2)
    live(world, 1)
    path.rename(away)

    assert live(world, 30) == 0
    assert live(world, 1) == 1


def test_an_entry_that_is_gone_is_missed_for_a_month(world, company, clock):
    """An agent that took an entry out of its session may restore it."""
    path, _ident = prune(world)
    run(world)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b"[[extracted-" not in line))
    os.utime(path, (clock.now - 3 * DAY,) * 2)

    assert live(world, 30) == 0
    assert live(world, 1) == 1


def came_from_extraction(world, path, ident, clock):
    return clock.now


def came_from_activity(world, path, ident, clock):
    clock.later(20 * DAY)
    os.utime(path, (clock.now, clock.now))
    return clock.now


def came_from_a_restore(world, path, ident, clock):
    """Restore the value twenty days later.

    Then its agent writes the placeholder back from memory.
    """
    clock.later(20 * DAY)
    cut, times = path.read_bytes(), path.stat()
    world.restore(ident)
    path.write_bytes(cut)
    os.utime(path, (times.st_atime, times.st_mtime))
    return clock.now


@pytest.mark.parametrize("since", [came_from_extraction, came_from_activity, came_from_a_restore])
def test_a_standing_value_lives_a_month_in_silence(world, company, clock, since):
    """It counts from the latest of its extraction, its restore, and its session's activity."""
    path, ident = prune(world)
    moment = since(world, path, ident, clock)
    run(world)
    for days in (1, 2, 3, 29):
        clock.now = moment + days * DAY
        world.scan()

        assert done(run(world)) == NOTHING

    clock.now = moment + 30 * DAY - 1

    assert done(run(world)) == NOTHING

    clock.later(1)
    before = file_states(world.root)

    assert done(run(world)) == (1, {SILENT: 1})
    assert file_states(world.root) == before


@pytest.mark.parametrize(
    ("settings", "goes"),
    [
        ({"retention": "never"}, {"stands", "lost"}),
        ({"retention_standing": "never"}, {"restored"}),
        ({"retention": "60d"}, {"stands", "lost"}),
        ({}, {"stands", "lost", "restored"}),
    ],
)
def test_each_threshold_holds_for_its_own(world, company, clock, settings, goes):
    """What stands or is out of sight never goes by the threshold for what was restored."""
    names = {prune(world)[1]: "stands"}
    path, ident = prune(world, "t")
    names[ident] = "lost"
    names[prune(world, "u", text="y" * 2000)[1]] = "restored"
    run(world, **settings)
    path.unlink()
    world.restore(next(one for one, name in names.items() if name == "restored"))
    # Nothing is extracted anew meanwhile.
    live(world, 32, trigger_types=["thinking"], **settings)

    assert {names[ident] for ident in names.keys() - held(world)} == goes


@pytest.mark.parametrize("lost", ["24h", "7d", "never"])
def test_a_day_for_what_stands_gives_the_plain_rule(world, company, clock, lost):
    """With `retention_standing = "24h"` a value goes a day after it was extracted."""
    settings = {"retention_standing": "24h", "retention": lost}
    _, ident = prune(world)
    run(world, **settings)
    clock.later(DAY - 1)

    assert done(run(world, **settings)) == NOTHING

    clock.later(1)

    assert done(run(world, **settings)) == (1, {SILENT: 1})
    with pytest.raises(ExpiredError):
        world.restore(ident, **settings)


# --- what is asked for ---------------------------------------------------------------------------


def due(world, clock):
    """Have a standing value that the next run would delete; give its session and entry."""
    path, ident = prune(world)
    clock.later(30 * DAY)
    world.scan()

    assert done(run(world)) == NOTHING  # the first in two days

    clock.later(60)
    return path, ident


@pytest.mark.parametrize("everything", [False, True])
def test_a_pending_request_holds_its_value(world, company, clock, everything):
    """Asked for in the middle of a turn, alone or with all others, it is held until that ends."""
    path, ident = due(world, clock)
    os.utime(path, (clock.now - 40 * DAY,) * 2)
    busy = {"quiet_seconds": 10**9}
    if everything:
        assert [one.state for one in world.restore_all(session="main/s", **busy)] == ["pending"]
    else:
        assert world.restore(ident, **busy).pending

    assert done(run(world)) == NOTHING
    assert held(world) == {ident}


def test_a_pending_request_holds_nothing_else(world, company, clock):
    """Other values of the same session expire beside it."""
    _path, _ident = due(world, clock)
    other, there = prune(world, "t", text="y" * 2000)
    os.utime(other, (clock.now - 40 * DAY,) * 2)
    ask(world, "UPDATE extractions SET extracted_at = 1")
    assert world.restore(there, quiet_seconds=10**9).pending

    assert done(run(world)) == (1, {SILENT: 1})
    assert held(world) == {there}


def fork(world, path, clock):
    lines = path.read_bytes().split(b"\n")
    header = json.loads(lines[0])
    header.update(id="22222222-0000-4000-8000-000000000002", parentSession=str(path))
    lines[0] = json.dumps(header, separators=(",", ":")).encode()
    forked = put(world.directory, header["id"], b"\n".join(lines))
    os.utime(forked, (clock.now - 40 * DAY,) * 2)
    world.scan()
    os.utime(forked, (clock.now - 40 * DAY,) * 2)
    return forked


def test_a_fork_holds_what_it_asks_for(world, company, clock):
    """A value that was extracted from its parent is held for the fork that asked for it."""
    path, ident = due(world, clock)
    forked = fork(world, path, clock)
    busy = {"quiet_seconds": 10**9}

    assert world.restore(ident, session=f"main/{forked.stem}", **busy).pending
    assert done(run(world)) == NOTHING
    assert b"x" * 2000 in b"".join(cat(world.settings(), world.store, str(forked), clock()))


def test_a_value_that_stands_in_a_fork_lives_as_long_as_that(world, company, clock):
    """Its parent may be gone for a month; the fork in use holds the value."""
    path, ident = prune(world)
    run(world)
    forked = fork(world, path, clock)
    path.unlink()
    for _ in range(3):
        assert live(world, 20) == 0
        os.utime(forked, (clock.now,) * 2)
    assert held(world) == {ident}


def test_a_request_that_comes_during_the_run_is_respected(world, company, clock):
    """What somebody asks for while the files are read is not deleted at the end of it."""
    _, ident = due(world, clock)
    busy = world.settings(quiet_seconds=10**9)
    asked = []

    def ask_for_it():
        asked.append(restore(busy, world.store, ident, clock=clock))

    check = once_files_are_read(COMPANY + 1, ask_for_it)
    retention(world.settings(), world.store, clock=clock, check_stop=check)

    assert [answer.pending for answer in asked] == [True]
    assert held(world) == {ident}


# --- tombstones ----------------------------------------------------------------------------------


def command(world, *words, **settings):
    return subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words, "--config", world.config_file(**settings)],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip


def test_an_expired_value_shows_its_tombstone(world, company, clock):
    """Restoring it says when it went, why and how big it was, and leaves the file alone."""
    _, ident = due(world, clock)
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
    for words in (("restore", ident), ("show", f"[[extracted-{ident}]]")):
        shown = command(world, *words)

        assert shown.returncode == 5
        assert shown.stdout == b""
        told = iso(clock.now).replace("T", " ").replace("Z", " UTC")
        assert f"{ident}: the value expired at {told}".encode() in shown.stderr
        assert b"it was 2002 bytes" in shown.stderr
    answer = command(world, "restore", ident, "--json")

    assert answer.returncode == 5
    assert json.loads(answer.stdout)["tombstones"] == [tombstone]
    assert file_states(world.root) == before


# --- where a placeholder stands ------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["reset.2026-11-21T10-00-00.000Z", "deleted.1763719200000"])
def test_an_archive_counts_and_is_never_written(world, company, clock, ending):
    """A placeholder in a session that its agent put away holds the value while that is young."""
    path, ident = prune(world)
    run(world)
    archive = path.rename(f"{path}.{ending}")
    live(world, 20)
    os.utime(archive, (clock.now,) * 2)
    before = file_states(world.root)

    assert live(world, 29) == 0
    assert live(world, 2) == 1
    assert file_states(world.root) == before
    assert ident.encode() in archive.read_bytes()


def test_a_placeholder_counts_wherever_it_stands(world, company, clock):
    """Also in a session of another agent, which knows nothing of the value."""
    path, ident = prune(world)
    run(world)
    elsewhere = world.root / "other" / "sessions"
    elsewhere.mkdir(parents=True)
    stranger = Conversation("22222222-0000-4000-8000-000000000002")
    stranger.turn(path.read_text())
    world.restore(ident)
    copied = put(elsewhere, "s", stranger)
    os.utime(copied, (clock.now,) * 2)

    assert live(world, 29, trigger_types=["thinking"]) == 0
    assert live(world, 2, trigger_types=["thinking"]) == 1


def test_the_same_entry_id_elsewhere_holds_nothing(world, company, clock):
    """The placeholder of an equal entry of another agent says another number."""
    _path, ident = prune(world)
    elsewhere = world.root / "other" / "sessions"
    elsewhere.mkdir(parents=True)
    stranger = Conversation("22222222-0000-4000-8000-000000000002")
    stranger._ids = itertools.count(int(ident, 16) - 2)
    stranger.turn("z" * 2000)
    stranger.turn("short")
    other = put(elsewhere, "s", stranger)
    world.scan()
    assert f"[[extracted-{ident}~2]]".encode() in other.read_bytes()
    run(world)
    world.restore(ident, session="main/s")

    assert live(world, 1, trigger_types=["thinking"]) == 1
    assert len(held(world)) == 1


@pytest.mark.parametrize("before", [0, 1, 8, 20, 21, 140, 159, 160, 161])
@pytest.mark.parametrize("ident", ["0000abcd", "~" + "f" * 128])
def test_a_placeholder_is_seen_wherever_it_stands(world, before, ident):
    """Also where it begins some bytes before the end of a chunk."""
    placeholder = f"[[extracted-{ident}]]"
    world.put("s.jsonl", b"x" * (CHUNK - before) + placeholder.encode() + b"x" * 300)
    [found] = sessions_and_archives([Root(str(world.root))])

    assert placeholders_in(found, carry_on) == {placeholder}


def test_what_a_migrated_agent_has_never_expires_unseen(world, company, clock):
    """Its files went away because of a database; while that cannot be read, nothing goes."""
    path, ident = prune(world)
    run(world)
    path.unlink()
    database = world.root / "main" / "agent" / "openclaw-agent.sqlite"
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE transcript_events (session TEXT)")
        connection.execute("INSERT INTO transcript_events VALUES ('s')")

    assert live(world, 32) == 0
    assert "not the database of an OpenClaw agent" in run(world).held_back[str(world.root)]
    assert held(world) == {ident}


# --- what is held back ---------------------------------------------------------------------------


@pytest.fixture
def two(world, clock):
    """Give settings with two roots, each with five sessions and a value of one that is gone."""
    return two_roots(world)


def two_roots(world):
    """Make two roots of five sessions, each with a value of a sixth that a run has missed."""
    other = world.base / "other"
    settings = {"roots": [{"path": str(world.root)}, {"path": str(other)}]}
    for number, root in enumerate((world.root, other)):
        directory = root / "main" / "sessions"
        directory.mkdir(parents=True, exist_ok=True)
        prune(world, "t", directory=directory, text="yz"[number] * 3000, **settings)
        prune(world, "s", directory=directory, **settings)[0].unlink()
    run(world, **settings)
    return settings


def waits(world, settings, why):
    """Let a month pass; check that nothing of the first root was deleted, and what is said."""
    for _ in range(16):
        world.clock.later(2 * DAY)
        touch(world, settings)
        report = run(world, **settings)
    now = status(world.settings(**settings), world.store, world.clock())
    [root] = [one for one in report.held_back if one == str(world.root)]

    assert why in report.held_back[root]
    assert now.held_back == report.held_back
    return held_below(world)


def touch(world, settings):
    """Let something happen in the sessions that are there, so that these do not expire."""
    for root in settings["roots"]:
        for path in world.base.glob(f"{os.path.basename(root['path'])}/main/sessions/t.jsonl"):
            os.utime(path, (world.clock.now,) * 2)


def held_below(world):
    """Count the values that are held of each root, by its last name."""
    rows = ask(
        world, "SELECT s.root, count(*) FROM extractions e JOIN sessions s ON s.id = e.session_id"
        " WHERE e.blob_id NOT NULL GROUP BY 1",
    )  # fmt: skip
    return {os.path.basename(os.fsdecode(root)): number for root, number in rows}


def goes_on(world, settings):
    """Run again; check that nothing is held back any more."""
    world.clock.later(6 * HOUR)
    touch(world, settings)
    report = run(world, **settings)
    now = status(world.settings(**settings), world.store, world.clock())

    assert (report.held_back, now.held_back) == ({}, {})
    assert held_below(world) == {"agents": 1, "other": 1}


ALL_HELD = {"agents": 2, "other": 1}


def test_a_missing_root_is_believed_in_no_run(world, two):
    """Nothing below it is deleted while it cannot be found, the other root goes on."""
    away = world.root.rename(world.base / "away")

    assert waits(world, two, "no such directory") == ALL_HELD

    away.rename(world.root)
    goes_on(world, two)


def test_an_empty_directory_in_the_place_of_a_root_is_not_believed(world, two):
    """The mount point of a disk that is not there is not the directory that it was."""
    away = world.root.rename(world.base / "away")
    world.root.mkdir()

    assert waits(world, two, operation._ANOTHER) == ALL_HELD

    world.root.rmdir()
    away.rename(world.root)
    goes_on(world, two)


def test_a_root_that_was_emptied_is_believed(world, two):
    """It is the directory that it was: what lay there expires a month after it was missed."""
    for path in world.directory.iterdir():
        path.unlink()
    for _ in range(17):
        world.clock.later(2 * DAY)
        touch(world, two)
        report = run(world, **two)

    assert (report.held_back, held_below(world)) == ({}, {"other": 1})


def test_a_root_that_is_not_configured_any_more_is_missed(world, two):
    """What was extracted below it is held for a month, while the directory is there."""
    settings = {"roots": two["roots"][1:]}
    for _ in range(15):
        world.clock.later(2 * DAY)
        touch(world, settings)
        run(world, **settings)

    assert held_below(world)["agents"] == 1  # the session that was gone before had its month

    world.clock.later(2 * DAY)
    run(world, **settings)

    assert "agents" not in held_below(world)


@pytest.fixture
def ordinary(unprivileged_world, monkeypatch):
    """Give a world of an ordinary user with clocks that go only when told."""
    unprivileged_world.clock = Clocks()
    monkeypatch.setattr(clocks, "boot_clock", unprivileged_world.clock.boot)
    return unprivileged_world


@pytest.mark.parametrize("place", ["", "main/sessions", "main/sessions/t.jsonl"])
def test_nothing_expires_where_something_cannot_be_read(ordinary, place):
    """A root, a directory or a single session that is shut: a placeholder might stand there."""
    world = ordinary
    settings = two_roots(world)
    shut = world.root / place
    mode = shut.stat().st_mode
    shut.chmod(0)
    try:
        assert waits(world, settings, "Permission denied") == ALL_HELD
    finally:
        shut.chmod(mode)
    goes_on(world, settings)


def test_the_first_run_in_two_days_deletes_nothing(world, company, clock):
    """Whoever was away for long finds everything as it was; the next run deletes."""
    prune(world)
    run(world)
    clock.later(40 * DAY)
    first = run(world)

    assert first.values_deleted == 0
    assert first.held_back == {str(world.root): decide.first_in_days(None, None)}

    clock.later(60)

    assert done(run(world)) == (1, {SILENT: 1})


@pytest.mark.parametrize("years", [YEARS, -YEARS])
def test_a_clock_that_moves_by_years_lets_nothing_go(world, company, clock, years):
    """Neither the run after the jump nor the one after its end deletes; then all is as before."""
    prune(world)
    path, _ = prune(world, "t")
    run(world)
    path.unlink()
    clock.later(6 * HOUR)
    clock.jump(years)
    world.scan()
    report = run(world)

    assert report.values_deleted == 0
    assert report.held_back == {
        str(world.root): f"the wall clock moved by {years / HOUR:+,.0f} hours"
    }
    assert ask(world, "SELECT count(*) FROM sessions WHERE missed_at NOT NULL") == [(0,)]

    clock.later(6 * HOUR)
    clock.jump(-years)
    world.scan()

    assert run(world).values_deleted == 0

    clock.later(6 * HOUR)
    calm = run(world)

    assert (calm.held_back, calm.values_deleted) == ({}, 0)
    assert len(held(world)) == 2


def test_a_clock_that_goes_back_across_a_reboot_is_not_believed(world, company, clock, monkeypatch):
    """A machine without a clock of its own boots in another year."""
    prune(world)
    run(world)
    monkeypatch.setattr(clocks, "boot_id", lambda: "another")
    monkeypatch.setattr(clocks, "boot_clock", lambda: 60.0)
    clock.now -= YEARS

    assert "across a reboot" in run(world).held_back[str(world.root)]


def at(moment, monkeypatch, capsys, *words):
    """Run a command in this process at a moment of the wall clock; the boot clock goes on."""
    monkeypatch.setattr(sys, "argv", ["brainsurgeon", *words, "--json"])
    with freeze_time(moment):
        code = cli._run()
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("years", [YEARS, -YEARS])
def test_a_jump_is_seen_at_the_door(world, company, monkeypatch, capsys, years):
    """`retention` beside a real boot clock refuses to delete in a year that cannot be."""
    _, ident = prune(world)
    config = ("--config", str(world.config_file()))
    now = iso(time.time())
    then = iso(time.time() + years)

    for _ in range(2):
        assert at(now, monkeypatch, capsys, "retention", *config)[0] == 0
    code, report = at(then, monkeypatch, capsys, "retention", *config)

    assert (code, report["values_deleted"]) == (0, 0)
    assert "the wall clock moved" in report["held_back"][str(world.root)]
    assert at(now, monkeypatch, capsys, "retention", *config)[1]["values_deleted"] == 0
    assert command(world, "show", ident).stdout == b"x" * 2000


# --- nothing but what it says --------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_counts_the_same(world, company, clock):
    """It foretells deletions, sizes, reasons and what is held back of the run that follows."""
    prune(world)
    path, _ = prune(world, "t")
    run(world)
    path.unlink()
    live(world, 29)
    for hours in (12, 12, 24):
        clock.later(hours * HOUR)
        before = file_states(world.base, directories=True)
        with closing(open_to_read(str(world.state))) as reading:
            foretold = run(world, dry_run=True, store=reading)

        assert file_states(world.base, directories=True) == before

        real = run(world)
        said = {"dry_run": False, "blobs_deleted": real.blobs_deleted}

        assert {**asdict(foretold), **said} == asdict(real)
    assert held(world) == set()


def test_a_dry_run_without_a_store_makes_none(world):
    """There is nothing to release, and no state directory afterwards."""
    shown = command(world, "scan", "--retention", "--dry-run", "--json")

    assert (shown.returncode, json.loads(shown.stdout)["values_held"]) == (0, 0)
    assert not world.state.exists()


def test_a_run_that_is_stopped_changes_nothing(world, company, clock):
    """Asked to stop while it reads, it leaves the values as they are, and the next run goes on."""
    _, ident = due(world, clock)
    calls = itertools.count()

    def stop():
        if next(calls) >= COMPANY:
            raise StoppedError

    report = retention(world.settings(), world.store, clock=clock, check_stop=stop)

    assert (report.stopped, done(report)) == (True, NOTHING)
    assert held(world) == {ident}
    assert done(run(world)) == (1, {SILENT: 1})


def test_a_shared_value_stays_until_both_sessions_are_gone(world, company, clock):
    """Equal values are stored once, and go with the last extraction that names them."""
    _, ident = prune(world, "s")
    _, other = prune(world, "t")
    run(world)

    assert ask(world, "SELECT count(*) FROM blobs") == [(1,)]

    world.restore(ident)
    clock.later(DAY)
    report = run(world, trigger_types=["thinking"])

    assert (report.values_deleted, report.blobs_deleted) == (1, 0)
    assert show(world.settings(), world.store, other).content == {
        "message.content.0.text": "x" * 2000
    }
    with pytest.raises(ExpiredError):
        show(world.settings(), world.store, ident)

    world.restore(other)
    clock.later(DAY)
    report = run(world)

    assert (report.values_deleted, report.blobs_deleted) == (1, 1)


def opened_meanwhile(world, path, monkeypatch):
    """Do a run in which somebody opens a session between the first look and the exchange."""
    with open(path, "rb"), monkeypatch.context() as patch:
        patch.setattr(exchange, "check_closed", lambda _: None)
        return world.scan()


def test_what_an_abandoned_rewrite_stored_goes_with_it(world, company, monkeypatch):
    """A value that was stored and never extracted leaves nothing in the store."""
    path = put(world.directory, "s", talk())
    report = opened_meanwhile(world, path, monkeypatch)

    assert (report.values_extracted, report.files_deferred) == (0, 1)
    assert ask(world, "SELECT count(*) FROM blobs") == [(0,)]


def rewriting(world, other):
    """Have another process of ours be in the middle of a rewrite; give how it ends."""
    session = ask(world, "SELECT id, path FROM sessions ORDER BY id LIMIT 1")[0][0]
    lock = other.lock(session)
    lock.__enter__()
    [found] = [
        found for found in sessions_and_archives([Root(str(world.root))])
        if found.session == "company0"
    ]  # fmt: skip
    with other.transaction():
        row = other.journal.begin(session, found, ".brainsurgeon-x", journal.Confirmation())

    def end():
        with other.transaction():
            other.journal.close(row)
        lock.__exit__(None, None, None)

    return end


def test_a_rewrite_under_way_holds_back_its_own_session_alone(world, company, clock):
    """It may be about to restored what expired; other sessions do not wait for it."""
    path, _ = prune(world)
    other, _there = prune(world, "t", text="y" * 2000)
    run(world)
    for one in (path, other):
        os.utime(one, (clock.now - 40 * DAY,) * 2)
    ask(world, "UPDATE extractions SET extracted_at = 1")
    clock.later(60)
    with closing(open_store(str(world.state))) as second:
        end = rewriting(world, second)
        report = run(world)

        assert (done(report), report.held_back) == ((1, {SILENT: 1}), {})
        assert len(held(world)) == 1

        end()
    assert done(run(world)) == (1, {SILENT: 1})


def once_files_are_read(sessions, act):
    calls = itertools.count(1)

    def check():
        if next(calls) == sessions + 1:
            act()

    return check


def test_a_rewrite_that_begins_during_the_run_is_respected(world, company, clock):
    """The journal is looked at again in the transaction that deletes."""
    _, ident = due(world, clock)
    with closing(open_store(str(world.state))) as other:
        ends = []
        check = once_files_are_read(COMPANY + 1, lambda: ends.append(rewriting(world, other)))
        retention(world.settings(), world.store, clock=clock, check_stop=check)

        assert held(world) == {ident}

        ends[0]()


# --- in turns ------------------------------------------------------------------------------------


DUE = 2 * PAGE + 7
CHANGES = ("UPDATE EXTRACTIONS", "DELETE FROM BLOBS", "UPDATE SESSIONS", "DELETE FROM ROW_COLUMNS")


@pytest.fixture
def full(world, clock, monkeypatch):
    """Give a world with more than two pages of values whose placeholders stand nowhere any more."""
    monkeypatch.setattr(operation, "PAUSE", 0.0)
    put(world.directory, "s", Conversation())
    row = store_session(world.store, session="s", root=str(world.root))
    with world.store.transaction():
        for number in range(DUE):
            store_extraction(world.store, row, 0, removal(f"e{number}"), b"value %d" % number)
        ask(world, "UPDATE extractions SET journal_id = NULL, unplaced_at = 1")
    run(world)
    clock.later(60)
    return world


def transactions(world, act):
    """Count what each transaction changes while something is done."""
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


def test_no_transaction_is_longer_than_a_page(full):
    """Deleting changes a bounded number of rows under one lock, whatever is due."""
    reports = []
    deleting = transactions(full, lambda: reports.append(run(full)))

    assert [one.values_deleted for one in reports] == [DUE]
    assert 2 * DUE <= sum(deleting) <= 3 * DUE + 10
    assert max(deleting) <= 3 * PAGE  # a tombstone, a value, and columns of its entry each


def test_others_can_write_between_two_pages(full):
    """Whoever wants to write has a turn after each page, and what it writes is respected."""
    with closing(open_store(str(full.state))) as other:
        turns = []

        def write():
            with other.transaction():
                entry_id = f"e{DUE - 1 - len(turns)}"
                other.requests.add(
                    replace(EVERYTHING, session_id=1, entry_id=entry_id, asked_at=1.0)
                )
                turns.append(1)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operation, "give_way", write)
            report = run(full)

    assert len(turns) >= 2
    assert DUE - len(turns) <= report.values_deleted <= DUE - 2
    assert count_rows(full.store, "blobs") == DUE - report.values_deleted


def test_a_run_that_is_killed_between_pages_did_nothing_wrong(full):
    """Each page is whole: a value has its tombstone or its bytes, and the next does the rest."""

    class KilledError(Exception):
        """The end of the process."""

    def die():
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(operation, "give_way", die)
        with pytest.raises(KilledError):
            run(full)

    states = "SELECT expired_at IS NULL, blob_id IS NULL, count(*) FROM extractions GROUP BY 1, 2"
    assert ask(full, states) == [(0, 1, PAGE), (1, 0, DUE - PAGE)]
    assert count_rows(full.store, "blobs") == DUE - PAGE
    assert run(full).values_deleted == DUE - PAGE


# --- really gone ---------------------------------------------------------------------------------


def test_afterwards_the_bytes_are_really_gone(world, company, clock):
    """No piece of the value, as it was stored, stands in the database, and the file is smaller."""
    canary = secrets.token_hex(300_000)
    _, ident = prune(world, text=canary)
    prune(world, "t")
    database = world.state / "store.db"
    [(stored,)] = ask(world, "SELECT data FROM blobs ORDER BY size DESC LIMIT 1")
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
    assert ask(world, "PRAGMA integrity_check") == [("ok",)]
