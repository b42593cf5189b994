"""Runs of retention: marked first, deleted later, braked where something looks wrong."""

import itertools
import json
import os
import secrets
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import asdict

import pytest
from freezegun import freeze_time

from brainsurgeon import cli
from brainsurgeon import clock as clocks
from brainsurgeon.errors import ExpiredError, StoppedError
from brainsurgeon.model.sessions import Root
from brainsurgeon.model.times import iso
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.restore import restore
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.show import show
from brainsurgeon.operations.status import status
from brainsurgeon.sessions import leases
from brainsurgeon.sessions.reading import CHUNK, carry_on
from brainsurgeon.sessions.sighting import sessions_and_archives, stubs_in
from brainsurgeon.store import journal, open_store, open_to_read
from building.world import Conversation, state

HOUR = 3600.0
DAY = 24 * HOUR
YEARS = 3653 * DAY
"""Ten of them."""
GONE = "its stub stands nowhere any more"
SILENT = "its session has been silent"
COMPANY = 4
"""Sessions that stand beside, so that one that is deleted is not half of the root."""


class Clocks:
    """The wall clock, and a boot clock that goes with it unless the wall clock jumps."""

    def __init__(self):
        self.now = self.began = float(int(time.time()))
        self.jumped = 0.0

    def __call__(self):
        """Tell the time."""
        return self.now

    def boot(self):
        """Tell the seconds since a boot a million seconds ago."""
        return 1e6 + self.now - self.began - self.jumped

    def later(self, seconds):
        """Let time pass."""
        self.now += seconds

    def jump(self, seconds):
        """Set the wall clock."""
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
    """Let other sessions stand in the root."""
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
    """Name the entry of the tool result that goes."""
    return next(line["id"] for line in one.lines if line.get("message", {}).get("toolName"))


def put(directory, name, one, age=3 * DAY):
    """Write a conversation as a session last changed `age` seconds ago."""
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
    """Do one retention run."""
    return retention(
        world.settings(**settings), store or world.store, clock=world.clock, dry_run=dry_run
    )


def done(report):
    """Give what a run marked, unmarked and deleted."""
    return report.values_marked, report.values_unmarked, report.values_deleted


def ask(world, *statement):
    """Ask the store."""
    return world.store._connection.execute(*statement).fetchall()


def held(world):
    """Name the entries whose values are still held, with whether they are marked."""
    return dict(
        ask(world, "SELECT entry_id, marked_at IS NOT NULL FROM extractions WHERE blob_id NOT NULL")
    )


WAITS = "marked; waits for a scan that sees its root without error"


# --- two thresholds ------------------------------------------------------------------------------


def test_a_day_after_its_session_is_gone_a_value_is_gone(world, company, clock):
    """It is marked after `retention`, and deleted by the next run after a scan of the root."""
    path, ident = prune(world)
    path.unlink()
    clock.later(DAY - 1)

    assert done(run(world)) == (0, 0, 0)

    clock.later(1)
    first = run(world)

    assert done(first) == (1, 0, 0)
    assert first.reasons == {f"mark: {GONE}": 1}
    assert show(world.settings(), world.store, ident).content == {
        "message.content.0.text": "x" * 2000
    }

    clock.later(6 * HOUR)
    again = run(world)

    assert done(again) == (0, 0, 0)
    assert again.reasons == {f"keep: {WAITS.partition(';')[0]}": 1}

    clock.later(1)
    world.scan()
    last = run(world)

    assert (done(last), last.bytes_deleted, last.blobs_deleted) == ((0, 0, 1), 2002, 1)
    assert held(world) == {}
    assert ask(world, "SELECT state, expired_at, expired_why, blob_id FROM extractions") == [
        ("expired", clock.now, f"{GONE}; expired 6 hours ago", None)
    ]
    assert ask(world, "SELECT count(*) FROM blobs") == [(0,)]


def test_a_scan_that_did_not_see_the_root_does_not_count(world, company, clock):
    """Neither a scan of one session nor one that met an error lets a marked value go."""
    path, _ = prune(world)
    path.unlink()
    clock.later(DAY)
    run(world)
    clock.later(60)
    world.scan(only=[str(world.directory / "company0.jsonl")])
    away = world.root.rename(world.base / "away")
    world.scan()
    away.rename(world.root)

    assert done(run(world)) == (0, 0, 0)

    world.scan()

    assert done(run(world)) == (0, 0, 1)


def test_a_scan_before_the_marking_does_not_count(world, company, clock):
    """Only a scan in between the two runs does, not one of the same moment."""
    path, _ = prune(world)
    path.unlink()
    clock.later(DAY)
    world.scan()
    run(world)
    world.scan()

    assert done(run(world)) == (0, 0, 0)

    clock.later(1)
    world.scan()

    assert done(run(world)) == (0, 0, 1)


def came_from_extraction(world, path, ident, clock):
    """Let nothing happen since the value was cut."""
    return clock.now


def came_from_activity(world, path, ident, clock):
    """Let the session be changed twenty days later."""
    clock.later(20 * DAY)
    os.utime(path, (clock.now, clock.now))
    return clock.now


def came_from_a_restore(world, path, ident, clock):
    """Restore the value twenty days later; then its agent writes the stub back from memory."""
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
    for days in (1, 10, 29):
        clock.now = moment + days * DAY
        world.scan()

        assert done(run(world)) == (0, 0, 0)

    clock.now = moment + 30 * DAY - 1

    assert done(run(world)) == (0, 0, 0)

    clock.later(1 + DAY)
    before = state(world.root)
    first = run(world)

    assert (done(first), first.reasons) == ((1, 0, 0), {f"mark: {SILENT}": 1})

    clock.later(60)
    world.scan()

    assert done(run(world)) == (0, 0, 1)
    assert state(world.root) == before


def test_a_run_that_meets_a_stub_renews_its_sighting(world, company, clock):
    """A value whose session goes after weeks has its day from when its stub was last met."""
    path, _ = prune(world)
    clock.later(20 * DAY)
    run(world)
    clock.later(HOUR)
    path.unlink()
    clock.later(DAY - HOUR - 1)

    assert done(run(world)) == (0, 0, 0)

    clock.later(1)

    assert done(run(world)) == (1, 0, 0)


def test_never_keeps(world, company, clock):
    """With both thresholds `never` nothing goes, standing or not, however long ago."""
    prune(world)
    path, _ = prune(world, "t")
    path.unlink()
    forever = {"retention": "never", "retention_standing": "never"}
    for _ in range(3):
        clock.later(400 * DAY)
        world.scan(**forever)

        assert done(run(world, **forever)) == (0, 0, 0)
    assert len(held(world)) == 2


@pytest.mark.parametrize(
    ("settings", "goes"),
    [
        ({"retention": "never"}, {"stands"}),
        ({"retention_standing": "never"}, {"lost"}),
        ({"retention": "60d"}, {"stands"}),
        ({}, {"stands", "lost"}),
    ],
)
def test_each_threshold_holds_for_its_own(world, company, clock, settings, goes):
    """What stands never goes by the threshold for what is lost, nor the other way round."""
    names = {prune(world)[1]: "stands"}
    path, ident = prune(world, "t")
    names[ident] = "lost"
    path.unlink()
    clock.later(31 * DAY)
    run(world, **settings)
    clock.later(60)
    world.scan(**settings)
    run(world, **settings)

    assert {names[ident] for ident in names.keys() - held(world).keys()} == goes


@pytest.mark.parametrize("lost", ["24h", "7d", "never"])
def test_a_day_for_what_stands_gives_the_plain_rule(world, company, clock, lost):
    """With `retention_standing = "24h"` a value goes a day after it was cut, stub or no stub."""
    settings = {"retention_standing": "24h", "retention": lost}
    _, ident = prune(world)
    clock.later(DAY - 1)

    assert done(run(world, **settings)) == (0, 0, 0)

    clock.later(1)

    assert done(run(world, **settings)) == (1, 0, 0)

    clock.later(60)
    world.scan(**settings)

    assert done(run(world, **settings)) == (0, 0, 1)
    with pytest.raises(ExpiredError):
        world.restore(ident, **settings)


# --- restored ------------------------------------------------------------------------------------


def test_a_restored_value_has_its_day(world, company, clock):
    """The store lets go of it a day after it was put back: that was its stub's last sighting."""
    _, ident = prune(world)
    clock.later(20 * DAY)
    world.restore(ident)

    assert done(run(world)) == (0, 0, 0)

    clock.later(DAY - 1)
    world.scan(trigger_types=["thinking"])

    assert done(run(world, trigger_types=["thinking"])) == (0, 0, 0)

    clock.later(1)

    assert done(run(world)) == (1, 0, 0)
    assert held(world) == {ident: True}


def marked(world, clock, **header):
    """Have a standing value marked after a month of silence; give its session and entry."""
    path, ident = prune(world)
    clock.later(31 * DAY)

    assert done(run(world)) == (1, 0, 0)

    clock.later(60)
    world.scan()
    return path, ident


def test_restoring_a_marked_value_unmarks_it(world, company, clock):
    """Put back into a settled session, it is not deleted by the next run."""
    _, ident = marked(world, clock)
    world.restore(ident)

    assert held(world) == {ident: False}
    assert done(run(world)) == (0, 0, 0)


def open_a_turn(path, clock):
    """Let the agent begin a turn just now."""
    with open(path, "ab") as handle:
        handle.write(
            b'{"type":"message","id":"abcdef01","message":{"role":"user","content":"?"}}\n'
        )
    os.utime(path, (clock.now, clock.now))


def test_wishing_for_a_marked_value_unmarks_it(world, company, clock):
    """Asked for in the middle of a turn, it is held until the turn ends and then put back."""
    path, ident = marked(world, clock)
    open_a_turn(path, clock)

    assert world.restore(ident).pending
    assert held(world) == {ident: False}
    assert done(run(world)) == (0, 0, 0)


def test_wishing_for_everything_unmarks_everything(world, company, clock):
    """So does `restore --all` for a session that is not settled."""
    path, ident = marked(world, clock)
    open_a_turn(path, clock)

    assert [one.state for one in world.restore_all(session="main/s")] == ["pending"]
    assert held(world) == {ident: False}


def fork(world, path, clock):
    """Let the agent fork a session, stubs and all; give the fork."""
    lines = path.read_bytes().split(b"\n")
    header = json.loads(lines[0])
    header.update(id="22222222-0000-4000-8000-000000000002", parentSession=str(path))
    lines[0] = json.dumps(header, separators=(",", ":")).encode()
    forked = put(world.directory, header["id"], b"\n".join(lines))
    os.utime(forked, (clock.now - 40 * DAY,) * 2)
    world.scan()
    return forked


@pytest.mark.parametrize("settled", [True, False])
def test_a_fork_unmarks_what_it_asks_for(world, company, clock, settled):
    """A value that its parent's session extracted is held for the fork that asked for it."""
    path, ident = marked(world, clock)
    forked = fork(world, path, clock)
    if not settled:
        open_a_turn(forked, clock)

    assert world.restore(ident, session=f"main/{forked.stem}").pending is not settled
    run(world)

    assert b"x" * 2000 in b"".join(cat(world.settings(), world.store, str(forked), clock()))
    assert show(world.settings(), world.store, ident, f"main/{forked.stem}").content


def test_restoring_what_came_back_from_memory_unmarks_it(world, company, clock):
    """A stub that stood nowhere for a day, and that its agent wrote again, can be restored."""
    path, ident = prune(world)
    cut = path.read_bytes()
    world.restore(ident)
    clock.later(2 * DAY)
    settings = {"trigger_types": ["thinking"]}

    assert done(run(world, **settings)) == (1, 0, 0)

    clock.later(60)
    world.scan(**settings)
    path.write_bytes(cut)
    os.utime(path, (clock.now - 100,) * 2)
    world.restore(ident, **settings)

    assert held(world) == {ident: False}
    assert done(run(world, **settings)) == (0, 0, 0)


def test_what_stands_again_is_unmarked(world, company, clock):
    """A value whose session was moved away and comes back lives on."""
    path, ident = prune(world)
    away = path.rename(world.base / "away.jsonl")
    clock.later(DAY)
    run(world)
    away.rename(path)
    clock.later(60)
    world.scan()
    again = run(world)

    assert (done(again), held(world)) == ((0, 1, 0), {ident: False})
    assert again.reasons == {"unmark: not expired any more": 1}


# --- tombstones ----------------------------------------------------------------------------------


def command(world, *words, **settings):
    """Run a command as a person would."""
    return subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words, "--config", world.config_file(**settings)],
        capture_output=True, check=False, timeout=60,
    )  # fmt: skip


def test_an_expired_value_shows_its_tombstone(world, company, clock):
    """Restoring it says when it went, why and how big it was, and leaves the file alone."""
    _, ident = marked(world, clock)
    run(world)
    before = state(world.root)
    with pytest.raises(ExpiredError) as caught:
        world.restore(ident)
    [tombstone] = caught.value.tombstones

    assert tombstone == {
        "entry_id": ident, "path": "message.content.0.text", "size_bytes": 2002,
        "extracted_at": iso(clock.began), "expired_at": iso(clock.now),
        "reason": f"{SILENT}; expired 1 day ago",
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
    assert state(world.root) == before


# --- where a stub stands -------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["reset.2026-11-21T10-00-00.000Z", "deleted.1763719200000"])
def test_an_archive_counts_and_is_never_written(world, company, clock, ending):
    """A stub in a session that its agent put away stands; the archive stays untouched."""
    path, ident = prune(world)
    archive = path.rename(f"{path}.{ending}")
    before = state(world.root)
    clock.later(29 * DAY)
    world.scan()

    assert done(run(world)) == (0, 0, 0)

    clock.later(DAY)
    first, second = (run(world), clock.later(60), world.scan(), run(world))[::3]

    assert (first.reasons, done(second)) == ({f"mark: {SILENT}": 1}, (0, 0, 1))
    assert state(world.root) == before
    assert ident.encode() in archive.read_bytes()


def test_a_stub_that_stands_in_a_fork_alone_counts(world, company, clock):
    """The parent's session is gone; its values live as long as the fork has been silent."""
    path, ident = prune(world)
    fork(world, path, clock)
    path.unlink()
    clock.later(29 * DAY)
    world.scan()

    assert done(run(world)) == (0, 0, 0)
    assert held(world) == {ident: False}


def test_a_stub_that_no_record_explains_counts_wherever_it_stands(world, company, clock):
    """Nobody knows whose it is: below another agent's directory it holds a value all the same."""
    path, _ = prune(world)
    elsewhere = world.root / "other" / "sessions"
    elsewhere.mkdir(parents=True)
    stranger = Conversation("22222222-0000-4000-8000-000000000002")
    stranger.lines += map(json.loads, path.read_bytes().splitlines()[1:])
    path.unlink()
    put(elsewhere, "s", stranger)
    clock.later(DAY)

    assert done(run(world)) == (0, 0, 0)


def test_a_stub_that_another_record_explains_holds_nothing_else(world, company, clock):
    """Of two sessions with the same ids, the one that is gone has its day like any other."""
    path, ident = prune(world)
    elsewhere = world.root / "other" / "sessions"
    elsewhere.mkdir(parents=True)
    stranger = Conversation("22222222-0000-4000-8000-000000000002")
    stranger._ids = itertools.count(int(ident, 16) - 2)
    stranger.turn("z" * 2000)
    stranger.turn("short")
    other = put(elsewhere, "s", stranger)
    world.scan()
    assert f"[[extracted-{ident}]]".encode() in other.read_bytes()
    path.unlink()
    clock.later(DAY)

    assert done(run(world)) == (1, 0, 0)


@pytest.mark.parametrize("before", [0, 1, 8, 20, 21, 140, 159, 160, 161])
@pytest.mark.parametrize("ident", ["0000abcd", "~" + "f" * 128])
def test_a_stub_is_seen_wherever_it_stands(world, before, ident):
    """Also where it begins some bytes before the end of a chunk."""
    stub = f"[[extracted-{ident}]]"
    world.put("s.jsonl", b"x" * (CHUNK - before) + stub.encode() + b"x" * 300)
    [found] = sessions_and_archives([Root(str(world.root))])

    assert stubs_in(found, carry_on) == {stub}


def test_what_a_migrated_agent_has_never_expires_unseen(world, company, clock):
    """Its files went away because of a database; while that cannot be read, nothing goes."""
    path, ident = prune(world)
    path.unlink()
    clock.later(DAY)
    run(world)
    database = world.root / "main" / "agent" / "openclaw-agent.sqlite"
    database.parent.mkdir()
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE transcript_events (session TEXT)")
        connection.execute("INSERT INTO transcript_events VALUES ('s')")
    clock.later(60)
    world.scan()
    after = run(world)

    assert done(after) == (0, 0, 0)
    assert "not the database of an OpenClaw agent" in after.brakes[str(world.root)]
    for _ in range(3):
        clock.later(100 * DAY)
        world.scan()

        assert done(run(world)) == (0, 0, 0)
    assert held(world) == {ident: True}


# --- brakes --------------------------------------------------------------------------------------


@pytest.fixture
def two(world, clock):
    """Give settings with two roots, each with five sessions and a marked value ready to go."""
    return two_roots(world)


def two_roots(world):
    """Make two roots of five sessions, each with a marked value of a sixth that is gone."""
    other = world.base / "other"
    settings = {"roots": [{"path": str(world.root)}, {"path": str(other)}]}
    for root in (world.root, other):
        directory = root / "main" / "sessions"
        directory.mkdir(parents=True, exist_ok=True)
        for number in range(5):
            put(directory, f"company{number}", Conversation())
        prune(world, "s", directory=directory, **settings)[0].unlink()
    world.clock.later(DAY)

    assert done(run(world, **settings)) == (2, 0, 0)

    world.clock.later(60)
    world.scan(**settings)
    return settings


def braked(world, settings, root, why):
    """Run; check that nothing of this root was deleted, that the other went on, and why."""
    report = run(world, **settings)
    now = status(world.settings(**settings), world.store, world.clock())

    assert report.values_deleted == 1
    assert [here for (here,) in ask(
        world, "SELECT s.root FROM extractions e JOIN sessions s ON s.id = e.session_id"
        " WHERE e.blob_id NOT NULL AND e.marked_at NOT NULL",
    )] == [os.fsencode(root)]  # fmt: skip
    assert list(report.brakes) == [str(root)]
    assert why in report.brakes[str(root)]
    assert {one.path: one.brake for one in now.roots if one.brake} == report.brakes


def goes_on(world, settings):
    """Run again; check that the brake is off and the value went."""
    world.clock.later(6 * HOUR)
    world.scan(**settings)
    report = run(world, **settings)
    now = status(world.settings(**settings), world.store, world.clock())

    assert (report.values_deleted, report.brakes) == (1, {})
    assert not any(one.brake for one in now.roots)


def test_a_missing_root_is_braked_until_it_is_back(world, two):
    """Nothing below it is deleted while it cannot be found, the other root goes on."""
    away = world.root.rename(world.base / "away")
    braked(world, two, world.root, "no such directory")

    assert run(world, **two).brakes.keys() == {str(world.root)}

    away.rename(world.root)
    goes_on(world, two)


def test_an_empty_root_is_braked_for_one_run(world, two):
    """A root that suddenly holds no session is believed when the next run finds it the same."""
    for path in world.directory.iterdir():
        path.unlink()
    braked(world, two, world.root, "it is suddenly empty (5 sessions before)")
    goes_on(world, two)


def test_a_root_that_lost_more_than_half_is_braked_for_one_run(world, two):
    """Three of five sessions gone at once is suspicious, and believed the second time."""
    for number in range(3):
        (world.directory / f"company{number}.jsonl").unlink()
    braked(world, two, world.root, "it lost more than half of its sessions (5 -> 2)")
    goes_on(world, two)


def test_a_root_that_is_back_but_empty_is_braked_again(world, two):
    """A volume that was gone and whose mount point is empty now is not believed either."""
    away = world.root.rename(world.base / "away")
    braked(world, two, world.root, "no such directory")
    world.root.mkdir()
    world.clock.later(6 * HOUR)
    world.scan(**two)
    report = run(world, **two)

    assert (report.values_deleted, report.brakes) == (
        0, {str(world.root): "it is suddenly empty (5 sessions before)"},
    )  # fmt: skip

    world.root.rmdir()
    away.rename(world.root)
    goes_on(world, two)


def test_a_root_that_is_not_configured_any_more_is_left_alone(world, two):
    """What was extracted below it is neither deleted nor forgotten."""
    settings = {"roots": two["roots"][1:]}
    report = run(world, **settings)

    assert report.values_deleted == 1
    assert report.brakes == {str(world.root): "it is not configured any more"}


@pytest.fixture
def ordinary(ordinary_world, monkeypatch):
    """Give a world of an ordinary user with clocks that go only when told."""
    ordinary_world.clock = Clocks()
    monkeypatch.setattr(clocks, "boot_clock", ordinary_world.clock.boot)
    return ordinary_world


@pytest.mark.parametrize("place", ["", "main/sessions", "main/sessions/company0.jsonl"])
def test_what_cannot_be_read_is_braked(ordinary, place):
    """A root, a directory or a single session that is shut: a stub might stand there."""
    world = ordinary
    settings = two_roots(world)
    shut = world.root / place
    mode = shut.stat().st_mode
    shut.chmod(0)
    try:
        braked(world, settings, world.root, "Permission denied")
    finally:
        shut.chmod(mode)
    goes_on(world, settings)


@pytest.mark.parametrize("years", [YEARS, -YEARS])
def test_a_clock_that_jumps_by_years_lets_nothing_go(world, company, clock, years):
    """Neither the run after the jump nor the one after its end deletes; then all is as before."""
    prune(world)
    path, _ = prune(world, "t")
    path.unlink()
    run(world)
    clock.later(6 * HOUR)
    clock.jump(years)
    world.scan()
    report = run(world)

    assert report.values_deleted == 0
    assert report.brakes == {
        str(world.root): f"the wall clock jumped by {years / HOUR:+,.0f} hours"
    }

    world.scan()
    clock.later(6 * HOUR)
    clock.jump(-years)
    world.scan()

    assert run(world).values_deleted == 0

    world.scan()
    clock.later(6 * HOUR)
    calm = run(world)

    assert (calm.brakes, calm.values_deleted) == ({}, 0)
    assert list(held(world).values()) == [False, False]


def test_a_jump_across_a_reboot_is_braked(world, company, clock, monkeypatch):
    """A machine without a clock of its own boots in another year."""
    prune(world)
    run(world)
    monkeypatch.setattr(clocks, "boot_id", lambda: "another")
    monkeypatch.setattr(clocks, "boot_clock", lambda: 60.0)
    clock.now -= YEARS
    report = run(world)

    assert "across a reboot" in report.brakes[str(world.root)]


def at(moment, monkeypatch, capsys, *words):
    """Run a command in this process at a moment of the wall clock; the boot clock goes on."""
    monkeypatch.setattr(sys, "argv", ["brainsurgeon", *words, "--json"])
    with freeze_time(moment):
        code = cli._run()
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("years", [YEARS, -YEARS])
def test_a_jump_is_seen_at_the_door(world, company, monkeypatch, capsys, years):
    """`retention` beside a real boot clock refuses to delete in a year that cannot be."""
    path, ident = prune(world)
    path.unlink()
    config = ("--config", str(world.config_file()))
    now = iso(time.time())
    then = iso(time.time() + years)

    assert at(now, monkeypatch, capsys, "retention", *config)[1]["brakes"] == {}
    for _ in range(2):
        code, report = at(then, monkeypatch, capsys, "retention", *config)

        assert (code, report["values_deleted"]) == (0, 0)
    assert at(now, monkeypatch, capsys, "retention", *config)[1]["values_deleted"] == 0
    assert command(world, "show", ident).stdout == b"x" * 2000


def test_both_thresholds_hold_at_the_door(world, company, monkeypatch, capsys):
    """The command marks at its own time of day what a scan at its own time of day cut."""
    path, ident = prune(world)
    standing = prune(world, "t")[1]
    path.unlink()
    config = ("--config", str(world.config_file()))
    monkeypatch.setattr(clocks, "boot_clock", time.time)
    cut = time.time()

    def marked_after(days):
        moment = iso(cut + days * DAY)
        at(moment, monkeypatch, capsys, "retention", *config)
        return {name for name, marked in held(world).items() if marked}

    assert marked_after(0.9) == set()
    assert marked_after(1.1) == {ident}
    assert marked_after(29.9) == {ident}
    assert marked_after(32.1) == {ident, standing}


# --- nothing but what it says --------------------------------------------------------------------


def test_a_dry_run_writes_nothing_and_counts_the_same(world, company, clock):
    """It foretells marks, deletions, sizes, reasons and brakes of the run that follows."""
    stands = prune(world)[0]
    path, _ = prune(world, "t")
    path.unlink()
    clock.later(DAY)
    run(world)
    clock.later(60)
    world.scan()
    prune(world, "u", text="z" * 3000)[0].unlink()
    clock.later(DAY)
    for days in (0, 35):
        clock.later(days * DAY)
        before = state(world.base, directories=True)
        with closing(open_to_read(str(world.state))) as reading:
            foretold = run(world, dry_run=True, store=reading)

        assert state(world.base, directories=True) == before

        real = run(world)
        said = {"dry_run": False, "blobs_deleted": real.blobs_deleted}

        assert {**asdict(foretold), **said} == asdict(real)
        assert any(done(real))
    assert stands.exists()


def test_a_dry_run_without_a_store_makes_none(world):
    """There is nothing to let go of, and no state directory afterwards."""
    shown = command(world, "retention", "--dry-run", "--json")

    assert (shown.returncode, json.loads(shown.stdout)["values_held"]) == (0, 0)
    assert not world.state.exists()


def test_a_run_that_is_stopped_between_pages_goes_on_next_time(world, company, clock):
    """What is marked by then stays marked, and the next run marks the rest."""
    prune(world)
    clock.later(40 * DAY)
    calls, marked = itertools.count(), []

    def stop():
        next(calls)
        marked.extend(held(world).values())
        if any(held(world).values()):
            raise StoppedError

    report = retention(world.settings(), world.store, clock=clock, check_stop=stop)

    assert (report.stopped, report.values_marked) == (True, 1)
    assert not retention(world.settings(), world.store, clock=clock).stopped


def test_a_run_that_is_stopped_changes_nothing(world, company, clock):
    """Asked to stop while it reads, it leaves marks and values as they are."""
    prune(world)
    clock.later(40 * DAY)
    calls = itertools.count()

    def stop():
        if next(calls) > COMPANY:
            raise StoppedError

    report = retention(world.settings(), world.store, clock=clock, check_stop=stop)

    assert (report.stopped, done(report)) == (True, (0, 0, 0))
    assert list(held(world).values()) == [False]
    assert ask(world, "SELECT value FROM meta WHERE key = 'last_retention_run_at'") == []


def test_a_shared_value_stays_until_both_sessions_are_gone(world, company, clock):
    """Equal values of one agent are stored once, and go with the last that names them."""
    first, ident = prune(world, "s")
    second, other = prune(world, "t")

    assert ask(world, "SELECT count(*) FROM blobs") == [(1,)]

    first.unlink()
    clock.later(DAY)
    run(world)
    clock.later(60)
    world.scan()
    report = run(world)

    assert (report.values_deleted, report.blobs_deleted) == (1, 0)
    assert show(world.settings(), world.store, other).content == {
        "message.content.0.text": "x" * 2000
    }
    with pytest.raises(ExpiredError):
        show(world.settings(), world.store, ident)

    second.unlink()
    clock.later(2 * DAY)
    run(world)
    clock.later(60)
    world.scan()
    report = run(world)

    assert (report.values_deleted, report.blobs_deleted) == (1, 1)


def opened_meanwhile(world, path, monkeypatch):
    """Do a pass in which somebody opens a session between the first look and the exchange."""
    with open(path, "rb"), monkeypatch.context() as patch:
        patch.setattr(leases, "open_elsewhere", lambda _: False)
        return world.scan()


def test_what_an_abandoned_rewrite_shelved_goes_after_a_day(world, company, clock, monkeypatch):
    """A value that was stored and never cut waits for its grace, then it is swept."""
    path = put(world.directory, "s", talk())
    report = opened_meanwhile(world, path, monkeypatch)

    assert (report.values_extracted, report.files_deferred) == (0, 1)
    assert ask(world, "SELECT count(*) FROM blobs") == [(1,)]

    clock.later(DAY)

    assert run(world).blobs_deleted == 0

    clock.later(1)

    assert run(world).blobs_deleted == 1
    assert ask(world, "SELECT count(*) FROM blobs") == [(0,)]


def test_a_value_that_is_shelved_again_has_a_new_grace(world, company, clock, monkeypatch):
    """An orphan that the next rewrite takes up is not swept from under it."""
    path = put(world.directory, "s", talk())
    for _ in range(2):
        opened_meanwhile(world, path, monkeypatch)
        assert ask(world, "SELECT count(*) FROM blobs") == [(1,)]
        clock.later(DAY - 1)

    assert run(world).blobs_deleted == 0


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


def test_nothing_is_deleted_while_a_rewrite_is_under_way(world, two, clock):
    """It may be about to put back what expired; the next run deletes it."""
    with world.store.transaction():
        world.store.blobs.put(1, b"orphan", clock.now - 2 * DAY)
    with closing(open_store(str(world.state))) as other:
        end = rewriting(world, other)
        report = run(world, **two)

        assert (done(report), report.blobs_deleted) == ((0, 0, 0), 0)
        assert set(report.brakes.values()) == {"a rewrite is under way"}

        end()
    report = run(world, **two)

    assert (done(report), report.blobs_deleted) == ((0, 0, 2), 3)


def once_files_are_read(sessions, act):
    """Make a check that acts once the run has counted the sessions and reads the first."""
    calls = itertools.count(1)

    def check():
        if next(calls) == sessions + 1:
            act()

    return check


def test_a_wish_that_comes_during_the_run_is_respected(world, company, clock):
    """What somebody asks for while the files are read is not deleted at the end of it."""
    _, ident = marked(world, clock)
    busy = world.settings(quiet_seconds=10**9)
    asked = []

    def ask_for_it():
        asked.append(restore(busy, world.store, ident, clock=clock))

    check = once_files_are_read(COMPANY + 1, ask_for_it)
    retention(world.settings(), world.store, clock=clock, check_stop=check)

    assert [answer.pending for answer in asked] == [True]
    assert held(world) == {ident: False}
    assert show(world.settings(), world.store, ident).content == {
        "message.content.0.text": "x" * 2000
    }


def test_a_rewrite_that_begins_during_the_run_is_respected(world, two, clock):
    """The journal is looked at again in the transaction that deletes."""
    with closing(open_store(str(world.state))) as other:
        ends = []
        check = once_files_are_read(10, lambda: ends.append(rewriting(world, other)))
        report = retention(world.settings(**two), world.store, clock=clock, check_stop=check)

        assert report.brakes == {}
        assert list(held(world).values()) == [True, True]
        assert ask(world, "SELECT count(*) FROM extractions WHERE state = 'expired'") == [(0,)]

        ends[0]()


# --- really gone ---------------------------------------------------------------------------------


def test_afterwards_the_bytes_are_really_gone(world, company, clock):
    """No piece of the value, as it was stored, stands in the database, and the file is smaller."""
    canary = secrets.token_hex(300_000)
    path, _ = prune(world, text=canary)
    prune(world, "t")
    database = world.state / "store.db"
    [(stored,)] = ask(world, "SELECT data FROM blobs ORDER BY size DESC LIMIT 1")
    pieces = [stored[start : start + 64] for start in range(0, len(stored) - 64, 4096)]
    before = database.read_bytes()

    assert sum(piece in before for piece in pieces) > len(pieces) * 0.9

    path.unlink()
    clock.later(DAY)
    run(world)
    clock.later(60)
    world.scan()

    assert run(world).values_deleted == 1

    after = database.read_bytes()

    assert not any(piece in after for piece in pieces)
    assert canary[1000:1100].encode() not in after
    assert len(after) < len(before) - len(stored) * 0.9
    assert sorted(os.listdir(world.state)) == ["last_pass", "locks", "store.db"]
    assert ask(world, "PRAGMA integrity_check") == [("ok",)]
