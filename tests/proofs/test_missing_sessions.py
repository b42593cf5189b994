"""Sessions that are missing or behind a link: how long their values are kept.

A day is simulated at a time, each with a scan and a retention run.
"""

import gzip
import os

import pytest

from brainsurgeon.files import processes as clocks
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.status import check, status
from brainsurgeon.planning.retention import MISSING
from brainsurgeon.sessions.discovery import LINK
from building.claw import GATEWAY, ClawWorld
from building.file_moves import (
    check_restored,
    generic_log,
    with_own_id,
    write_old_session,
    write_three_sessions,
)
from building.world import append

pytestmark = pytest.mark.usefixtures("clock")

DAY = 86_400


@pytest.fixture
def files(world):
    """Yield three pruned sessions of two agents, known to retention."""
    return pruned(world, with_own_id)


def pruned(world, session):
    """Write and prune three sessions, and run retention; return their original content."""
    files = write_three_sessions(world, session)
    assert world.scan().values_extracted == 3
    run_retention(world)
    return files


def run_retention(world):
    return retention(world.settings(), world.store, clock=world.clock)


def live_days(world, days):
    """Scan and run retention once a day; return the reports of retention."""
    reports = []
    for _ in range(days):
        world.clock.now += DAY
        world.scan()
        reports.append(run_retention(world))
    return reports


def touch(world, paths):
    """Change sessions now: values expire only while other sessions of the root change."""
    for path in paths:
        os.utime(path, (world.clock.now,) * 2)


def deleted(reports):
    return sum(report.values_deleted for report in reports)


def live_29_days(world):
    """Live 29 days, in which the existing sessions change and no value expires."""
    reports = live_days(world, 15)
    touch(world, world.root.rglob("*.jsonl"))
    assert deleted(reports + live_days(world, 14)) == 0


def troubles(world):
    now = world.clock()
    return tuple(check(status(world.settings(), world.store, now), now, max_age=float("inf")))


def announcements(world):
    """Return the warnings of `status --check` about values that are about to expire."""
    return [problem for problem in troubles(world) if "missing sessions" in problem]


# --- behind something else -----------------------------------------------------------------------


def move_behind_a_link(path, disk):
    """Move a path to another disk and leave a link; return a function that undoes it."""
    path.symlink_to(path.rename(disk))

    def back():
        path.unlink()
        disk.rename(path)

    return back


def agent_linked(world):
    return move_behind_a_link(world.root / "main", world.base / "disk")


def directory_linked(world):
    return move_behind_a_link(world.directory, world.base / "disk")


def session_linked(world):
    return move_behind_a_link(world.directory / "a.jsonl", world.base / "disk")


LINKED = [agent_linked, directory_linked, session_linked]


@pytest.mark.parametrize("hide", LINKED)
def test_values_behind_a_link_never_expire(world, files, hide):
    """It is unknown whether a session behind a link exists, so 40 days expire no value."""
    back = hide(world)
    reports = live_days(world, 29)
    touch(world, [path for path in files if path.exists()])
    reports += live_days(world, 11)

    assert deleted(reports) == 0
    assert announcements(world) == []
    back()
    check_restored(world, files)


@pytest.mark.parametrize("hide", LINKED)
def test_retention_month_restarts_after_a_link(world, files, hide):
    """A session that was missing, then behind a link, is kept for a month after that."""
    path = next(iter(files))
    aside = path.rename(world.base / "aside")
    assert deleted(live_days(world, 25)) == 0
    assert announcements(world)
    aside.rename(path)
    touch(world, files)
    back = hide(world)
    assert deleted(live_days(world, 10)) == 0
    assert announcements(world) == []
    back()
    path.unlink()
    live_29_days(world)

    assert deleted(live_days(world, 3)) == 1


def test_pending_rollback_of_a_deleted_session_expires(world, files):
    """A rollback that waits for a deleted session holds its values for a month only."""
    path = next(iter(files))
    append(path, [{"type": "message", "id": "0000abcd", "parentId": None, "timestamp": "",
                   "message": {"role": "user", "content": "go on"}}])  # fmt: skip
    assert [session.state for session in world.rollback(1, [str(path)]).sessions] == ["pending"]
    path.unlink()
    live_29_days(world)

    assert announcements(world) == []
    assert deleted(live_days(world, 3)) == 1


@pytest.mark.parametrize(
    ("link", "place"),
    [(agent_linked, "main"), (directory_linked, "main/sessions"),
     (session_linked, "main/sessions/a.jsonl")],
)  # fmt: skip
def test_link_in_place_of_sessions_is_reported_as_unreadable(world, files, link, place):
    """Scan, `status --check` and `doctor` report a link at a path that had sessions."""
    back = link(world)
    path = str(world.root / place)
    report = world.scan()

    assert [(entry.path, entry.reason) for entry in report.unreadable] == [(path, LINK)]
    assert report.failed
    assert [entry for entry in troubles(world) if path in entry and LINK in entry]
    findings = doctor(world.settings(), world.store)
    assert [entry.level for entry in findings if entry.what == f"{path}: {LINK}"] == ["error"]
    back()
    assert not world.scan().unreadable
    check_restored(world, files)


# --- under another name --------------------------------------------------------------------------


def renamed_to_bak(world, path):
    """Rename a session as a backup; return a function that undoes it."""
    backup = path.rename(path.with_name(f"{path.name}.bak"))
    return lambda: backup.rename(path)


def rotated_and_compressed(world, path):
    """Compress a log and begin a new one in its place; return a function that undoes it."""
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
    """Move a session out of every root; return a function that undoes it."""
    away = path.rename(world.base / path.name)
    return lambda: away.rename(path)


@pytest.mark.parametrize("session", [with_own_id, generic_log])
@pytest.mark.parametrize("hide", [renamed_to_bak, rotated_and_compressed, moved_out_of_the_root])
def test_values_of_a_session_out_of_reach_are_kept_for_a_month(world, session, hide):
    """A session that was a backup, compressed or elsewhere for 29 days is restored."""
    files = pruned(world, session)
    back = hide(world, next(iter(files)))

    assert deleted(live_days(world, 29)) == 0
    back()
    check_restored(world, files)


@pytest.mark.parametrize("session", [with_own_id, generic_log])
@pytest.mark.parametrize("hide", [renamed_to_bak, rotated_and_compressed])
def test_values_of_a_readable_archive_are_kept_until_it_is_gone(world, session, hide):
    """A copy or a compressed archive below the root is a session that is there."""
    files = pruned(world, session)
    before = {*world.root.rglob("*.jsonl*")}
    hide(world, next(iter(files)))
    [archive] = {*world.root.rglob("*.jsonl*")} - before
    reports = live_days(world, 50)
    assert (deleted(reports), announcements(world)) == (0, [])
    archive.unlink()
    reports = live_days(world, 23)
    assert announcements(world) == []
    reports += live_days(world, 7)

    assert (deleted(reports), len(announcements(world))) == (0, 1)
    assert [report.reasons for report in live_days(world, 1)] == [{MISSING: 1}]


@pytest.mark.parametrize("session", [with_own_id, generic_log])
def test_expiry_is_announced_a_week_before(world, session):
    """`status --check` warns for seven days; then only the missing session's value expires."""
    files = pruned(world, session)
    missing, *others = files
    moved_out_of_the_root(world, missing)
    reports = live_days(world, 23)
    assert announcements(world) == []
    reports += live_days(world, 1)
    [warning] = announcements(world)
    touch(world, world.root.rglob("*.jsonl"))
    reports += live_days(world, 6)

    assert warning.startswith("1 value of missing sessions")
    assert deleted(reports) == 0
    assert [report.reasons for report in live_days(world, 1)] == [{MISSING: 1}]
    assert announcements(world) == []
    check_restored(world, {path: files[path] for path in others})


# --- databases -----------------------------------------------------------------------------------


@pytest.fixture
def claw(tmp_path, monkeypatch):
    """Yield a world in which OpenClaw keeps its sessions in a database, with values extracted."""
    world = ClawWorld(tmp_path / "claw-world")
    monkeypatch.setattr(clocks, "boot_clock", lambda: world.clock.now)
    world.texts = world.claw.texts(GATEWAY)
    assert world.scan().values_extracted
    run_retention(world)
    yield world
    world.close()


def test_values_of_a_database_behind_a_link_never_expire(claw):
    """The link is reported as unreadable, and the values are restored afterwards."""
    agent = claw.claw.path.parent.parent
    back = move_behind_a_link(agent, claw.base / "disk")

    assert [(problem.path, problem.reason) for problem in claw.scan().unreadable] == [
        (str(agent), LINK)
    ]
    assert [problem for problem in troubles(claw) if LINK in problem]
    assert deleted(live_days(claw, 40)) == 0
    back()
    claw.restore_all(pristine=True)
    assert claw.claw.texts(GATEWAY) == claw.texts


def test_values_of_a_renamed_database_are_kept_for_a_month(claw):
    """Their expiry is announced, and they are restored when the database is back."""
    away = claw.claw.path.rename(claw.claw.path.with_suffix(".old"))
    reports = live_days(claw, 23)
    assert announcements(claw) == []
    reports += live_days(claw, 6)
    assert announcements(claw)

    assert deleted(reports) == 0
    away.rename(claw.claw.path)
    claw.restore_all(pristine=True)
    assert claw.claw.texts(GATEWAY) == claw.texts


def test_values_of_a_missing_database_expire_after_a_month(claw):
    """All values of the database expire in one run."""
    claw.claw.path.rename(claw.claw.path.with_suffix(".old"))
    reports = live_days(claw, 31)

    assert deleted(reports[:-1]) == 0
    assert reports[-1].reasons == {MISSING: reports[0].values_held}
