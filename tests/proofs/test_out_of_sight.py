"""What is out of sight is not gone: its values are kept for weeks, and all of them come back.

A day is simulated at a time, each with a scan and a retention run.
"""

import gzip
import os

import pytest

from brainsurgeon.hosts import processes as clocks
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.status import check, status
from brainsurgeon.planning.retention import MISSING
from brainsurgeon.sessions.discovery import LINK
from building.claw import GATEWAY, ClawWorld
from building.file_moves import generic_log, with_own_id, write_old_session, write_three_sessions
from building.world import dump

pytestmark = pytest.mark.usefixtures("clock")

DAY = 86_400


@pytest.fixture
def files(world):
    """Let two sessions of one agent be pruned, and one of another, and be known to retention."""
    return pruned(world, with_own_id)


def pruned(world, session):
    """Let three sessions be pruned, and be known to retention; return what they said."""
    files = write_three_sessions(world, session)
    assert world.scan().values_extracted == 3
    a_run(world)
    return files


def a_run(world):
    return retention(world.settings(), world.store, clock=world.clock)


def live(world, days):
    """Let days pass; return the reports of their retention runs."""
    reports = []
    for _ in range(days):
        world.clock.now += DAY
        world.scan()
        reports.append(a_run(world))
    return reports


def something_happens(world, paths):
    """Let sessions change just now: what is in sight expires only after a month of silence."""
    for path in paths:
        os.utime(path, (world.clock.now,) * 2)


def deleted(reports):
    return sum(one.values_deleted for one in reports)


def troubles(world):
    now = world.clock()
    return tuple(check(status(world.settings(), world.store, now), now, max_age=float("inf")))


def announced(world):
    """Return what `status --check` says of values that are about to expire."""
    return [one for one in troubles(world) if "missing sessions" in one]


def is_undone(world, files):
    """Undo everything; check that each file is as it was, and that nothing of ours stays."""
    done = world.restore_all(pristine=True)
    assert {path: path.read_bytes() for path in files} == files
    assert not any(one.unfinished for one in done)


# --- behind something else -----------------------------------------------------------------------


def linked(path, disk):
    """Move something to another disk, and link it back; return what undoes that."""
    path.symlink_to(path.rename(disk))

    def back():
        path.unlink()
        disk.rename(path)

    return back


def agent_linked(world):
    return linked(world.root / "main", world.base / "disk")


def directory_linked(world):
    return linked(world.directory, world.base / "disk")


def session_linked(world):
    return linked(world.directory / "a.jsonl", world.base / "disk")


LINKED = [agent_linked, directory_linked, session_linked]


@pytest.mark.parametrize("hide", LINKED)
def test_what_is_behind_something_else_never_expires(world, files, hide):
    """While nobody can look whether a session is there, not even a month lets its values go."""
    back = hide(world)
    reports = live(world, 29)
    something_happens(world, [path for path in files if path.exists()])
    reports += live(world, 11)

    assert deleted(reports) == 0
    assert announced(world) == []
    back()
    is_undone(world, files)


@pytest.mark.parametrize("hide", LINKED)
def test_the_month_begins_anew_where_nobody_could_look(world, files, hide):
    """A session that was missed, and then was behind a link, is kept for a month after that."""
    path = next(iter(files))
    aside = path.rename(world.base / "aside")
    assert deleted(live(world, 25)) == 0
    assert announced(world)
    aside.rename(path)
    something_happens(world, files)
    back = hide(world)
    assert deleted(live(world, 10)) == 0
    assert announced(world) == []
    back()
    path.unlink()
    reports = live(world, 15)
    something_happens(world, world.root.rglob("*.jsonl"))
    reports += live(world, 14)

    assert deleted(reports) == 0
    assert deleted(live(world, 3)) == 1


def test_an_undo_that_waits_for_a_deleted_session_ends_with_the_month(world, files):
    """What it would restored is out of sight for as long as anything else, and goes then."""
    path = next(iter(files))
    with path.open("ab") as file:
        file.write(dump({"type": "message", "id": "0000abcd", "parentId": None, "timestamp": "",
                         "message": {"role": "user", "content": "go on"}}))  # fmt: skip
    assert [one.state for one in world.rollback(1, [str(path)]).sessions] == ["pending"]
    path.unlink()
    reports = live(world, 15)
    something_happens(world, world.root.rglob("*.jsonl"))
    reports += live(world, 14)

    assert deleted(reports) == 0
    assert announced(world) == []
    assert deleted(live(world, 3)) == 1


@pytest.mark.parametrize(
    ("link", "place"),
    [(agent_linked, "main"), (directory_linked, "main/sessions"),
     (session_linked, "main/sessions/a.jsonl")],
)  # fmt: skip
def test_a_link_in_the_place_of_sessions_is_reported_as_unreadable(world, files, link, place):
    """A scan, `status --check` and `doctor` name a link behind which sessions were seen."""
    back = link(world)
    path = str(world.root / place)
    report = world.scan()

    assert [(one.path, one.why) for one in report.problems] == [(path, LINK)]
    assert report.failed
    assert [one for one in troubles(world) if path in one and LINK in one]
    findings = doctor(world.settings(), world.store)
    assert [one.level for one in findings if one.what == f"{path}: {LINK}"] == ["error"]
    back()
    assert not world.scan().problems
    is_undone(world, files)


# --- under another name --------------------------------------------------------------------------


def renamed_to_bak(world, path):
    """Give a session the name of a backup; return what undoes that."""
    backup = path.rename(path.with_name(f"{path.name}.bak"))
    return lambda: backup.rename(path)


def rotated_and_compressed(world, path):
    """Compress a log, and begin a new one in its place; return what takes it out of the archive."""
    archive = path.with_name(f"{path.name}.1.gz")
    archive.write_bytes(gzip.compress(path.read_bytes()))
    write_old_session(
        path, (generic_log if b"msg-1" in path.read_bytes() else with_own_id)("the new one")
    )

    def back():
        write_old_session(path, gzip.decompress(archive.read_bytes()))
        archive.unlink()

    return back


def moved_out_of_the_root(world, path):
    """Move a session to where no root is; return what undoes that."""
    away = path.rename(world.base / path.name)
    return lambda: away.rename(path)


@pytest.mark.parametrize("session", [with_own_id, generic_log])
@pytest.mark.parametrize("hide", [renamed_to_bak, rotated_and_compressed, moved_out_of_the_root])
def test_what_has_another_name_is_kept_for_a_month(world, session, hide):
    """A backup, a compressed log, a session elsewhere: what comes back in time is restored."""
    files = pruned(world, session)
    back = hide(world, next(iter(files)))

    assert deleted(live(world, 29)) == 0
    back()
    is_undone(world, files)


@pytest.mark.parametrize("session", [with_own_id, generic_log])
@pytest.mark.parametrize("hide", [renamed_to_bak, rotated_and_compressed, moved_out_of_the_root])
def test_what_expires_is_announced_a_week_before(world, session, hide):
    """`status --check` names it for seven days; it goes where the root is there and known."""
    files = pruned(world, session)
    gone, *others = files
    hide(world, gone)
    reports = live(world, 23)
    assert announced(world) == []
    reports += live(world, 1)
    [said] = announced(world)
    something_happens(world, world.root.rglob("*.jsonl"))
    reports += live(world, 6)

    assert said.startswith("1 value of missing sessions")
    assert deleted(reports) == 0
    assert [one.reasons for one in live(world, 1)] == [{MISSING: 1}]
    assert announced(world) == []
    is_undone(world, {path: files[path] for path in others})


# --- databases -----------------------------------------------------------------------------------


@pytest.fixture
def claw(tmp_path, monkeypatch):
    """Give a world in which OpenClaw keeps its sessions in a database, with values extracted."""
    one = ClawWorld(tmp_path / "claw-world")
    monkeypatch.setattr(clocks, "boot_clock", lambda: one.clock.now)
    one.texts = one.claw.texts(GATEWAY)
    assert one.scan().values_extracted
    a_run(one)
    yield one
    one.close()


def test_a_database_behind_a_link_never_expires(claw):
    """It is reported as unreadable while the link is there, and restored afterwards."""
    agent = claw.claw.path.parent.parent
    back = linked(agent, claw.base / "disk")

    assert [(one.path, one.why) for one in claw.scan().problems] == [(str(agent), LINK)]
    assert [one for one in troubles(claw) if LINK in one]
    assert deleted(live(claw, 40)) == 0
    back()
    claw.restore_all(pristine=True)
    assert claw.claw.texts(GATEWAY) == claw.texts


def test_a_database_that_was_renamed_is_kept_for_a_month(claw):
    """All of its values are held, announced and, where it came back, restored."""
    away = claw.claw.path.rename(claw.claw.path.with_suffix(".old"))
    reports = live(claw, 23)
    assert announced(claw) == []
    reports += live(claw, 6)
    assert announced(claw)

    assert deleted(reports) == 0
    away.rename(claw.claw.path)
    claw.restore_all(pristine=True)
    assert claw.claw.texts(GATEWAY) == claw.texts


def test_a_database_that_stays_away_expires(claw):
    """After a month its values go, all in one run."""
    claw.claw.path.rename(claw.claw.path.with_suffix(".old"))
    reports = live(claw, 31)

    assert deleted(reports[:-1]) == 0
    assert reports[-1].reasons == {MISSING: reports[0].values_held}
