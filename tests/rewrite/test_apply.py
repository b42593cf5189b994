"""Rewrites that must not, or cannot, be carried out."""

import os
import sqlite3
import time

import pytest
from msgspec.structs import replace

from brainsurgeon.errors import BusyError
from brainsurgeon.files import exchange, retire
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.records import Request
from brainsurgeon.model.session_files import SessionFile
from brainsurgeon.rewrite import apply, recover
from brainsurgeon.rewrite.inspect import ExaminationPlanner
from brainsurgeon.sessions.discovery import open_session
from brainsurgeon.store import open_store
from building.exchange import APPEND, LATE, directory_state, discovered
from building.processes import wait_until
from building.world import appending, dump, entry_text, open_rewrites, put_session


def test_session_with_a_hard_link_is_skipped(world, conversation):
    """A session with two names is skipped with the reason, since a rewrite would part them."""
    path = put_session(world, conversation)
    os.link(path, world.base / "second-name")
    before = directory_state(path)
    report = world.scan(keep_recent=0)
    with open_session(discovered(path)) as session:
        why = session.obstacle

    assert "hard links" in why
    [outcome] = report.sessions
    assert (outcome.outcome, outcome.reason) == ("skipped", why)
    assert directory_state(path) == before


# To root no file is foreign; any other account proves it.
@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to everybody's files")
def test_file_of_another_user_is_skipped():
    """A file that another user owns has an obstacle that says so."""
    with open_session(
        SessionFile("/etc", "/etc", "passwd", "a", "/etc", "auto", None)
    ) as session:  # fmt: skip
        why = session.obstacle

    assert "another user" in why


def test_links_pipes_and_directories_are_not_opened(world, conversation, other_process):
    """A link, pipe or directory named like a session is neither opened nor followed."""
    outside = world.base / "outside.jsonl"
    conversation.turn("x" * 4000)
    outside.write_bytes(conversation.bytes())
    os.symlink(outside, world.directory / "link.jsonl")
    os.symlink(world.base / "nowhere", world.directory / "broken.jsonl")
    os.mkfifo(world.directory / "pipe.jsonl")
    (world.directory / "directory.jsonl").mkdir()
    pipe = str(world.directory / "pipe.jsonl")
    other_process.send(f"os.open({pipe!r}, os.O_WRONLY)")
    report = world.scan(keep_recent=0)
    opened = other_process.answers_within(0.1)

    assert not opened
    assert (report.files_seen, report.failed) == (0, False)
    assert outside.read_bytes() == conversation.bytes()


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_session_replaced_by_a_special_file_is_refused(world, conversation, kind):
    """A session replaced by a link, pipe or directory after the walk is refused at once."""
    path = put_session(world, conversation)
    file = discovered(path)
    path.rename(world.base / "moved.jsonl")
    if kind == "link":
        os.symlink(world.base / "moved.jsonl", path)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()

    with pytest.raises((RefusedError, OSError)), open_session(file):
        pass


def test_rewrite_with_both_files_open_is_finished_later(
    world, conversation, other_process, second_process, race, monkeypatch
):
    """A rewrite given up while others write to both files is finished by a later run."""
    path = put_session(world, conversation)
    monkeypatch.setattr(exchange, "WAIT_FOR_CLOSING", 0.05)
    monkeypatch.setattr(retire, "LOOK_BACK_LONGEST", 0.05)
    monkeypatch.setattr(recover, "_WAIT", 0.05)
    race.before = lambda: race.opens(
        other_process, race.leased[1], path, APPEND, f"os.write(fd, {LATE!r})"
    )
    line = dump({"type": "custom", "id": "z"})
    race.after = lambda: race.opens(
        second_process, race.leased[0], path, APPEND, f"os.write(fd, {line!r})"
    )
    first = world.scan(keep_recent=0)
    wait_until(lambda: path.read_bytes() == conversation.bytes() + LATE)
    left = world.leftovers()
    other_process.kill()
    second_process.kill()
    second = world.scan(keep_recent=0, enabled=False)

    assert first.sessions_changed == 0
    assert len(left) == 1
    assert len(second.recovered) == 1
    assert path.read_bytes() == conversation.bytes() + LATE + line
    assert world.leftovers() == []


def test_full_disk_of_the_store_after_the_exchange_says_so(world, conversation, monkeypatch):
    """If only the store's disk is full, the error says that the session was replaced."""
    path = put_session(world, conversation)

    def full(*_):
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorname = "SQLITE_FULL"
        raise error

    monkeypatch.setattr(apply.Attempt, "record", full)
    [outcome] = world.scan(keep_recent=0).sessions

    assert outcome.outcome == "failed"
    assert "the disk is full" in outcome.reason
    assert "The session was replaced" in outcome.reason
    assert b"[[extracted-" in path.read_bytes()


def test_disk_error_after_the_exchange_is_cleaned_up(world, conversation, monkeypatch):
    """If a sync fails right after the exchange, the same run fails and leaves no other file."""
    path = put_session(world, conversation)
    fsync, failed = os.fsync, []

    def failing(descriptor):
        if os.path.isdir(f"/proc/self/fd/{descriptor}") and not failed and world.leftovers():
            failed.append(descriptor)
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", failing)
    report = world.scan(keep_recent=0)

    assert [outcome.outcome for outcome in report.sessions] == ["failed"]
    assert b"[[extracted-" in path.read_bytes()
    assert world.leftovers() == []
    assert open_rewrites(world) == []
    world.restore_all(pristine=True)
    assert path.read_bytes() == conversation.bytes()


def test_change_is_given_up_if_a_request_was_recorded_since_it_was_planned(world, conversation):
    """A request that a plan does not consider stops it; the next run carries out both."""
    path = put_session(world, conversation)
    first = conversation.lines[-2]["id"]
    world.scan(keep_recent=0)
    with appending(path, conversation):
        second = conversation.turn("y" * 4000)
    before, settings = path.read_bytes(), world.settings(keep_recent=0)
    with (
        apply.examine_to_change(settings, world.store, discovered(path), world.clock) as quiet,
        open_store(str(world.state)) as other,
    ):
        record = world.store.sessions.at(str(path))
        examined = replace(quiet, record=record)
        plan = ExaminationPlanner(examined, examined.records).plan()
        with other.transaction():
            other.requests.add(Request(record.id, "restore", world.clock(), first))
        [refused] = apply.apply(world.store, [apply.Change(examined, plan)], world.clock)
    after, left = path.read_bytes(), (world.leftovers(), open_rewrites(world))
    world.scan(keep_recent=0)

    assert [edit.entry_id for edit in plan.removals] == [second]
    assert isinstance(refused, BusyError)
    assert (after, left) == (before, ([], []))
    assert entry_text(path, first) == "x" * 4000
    assert entry_text(path, second) == f"[[extracted-{second}]]"


def test_old_file_is_checked_for_the_last_time_after_a_while(world, conversation, monkeypatch):
    """A process that opened the old file just before the exchange has this time to write to it."""
    path = put_session(world, conversation)
    monkeypatch.setattr(retire, "LOOK_BACK", 60)
    settings = world.settings(keep_recent=0)
    begun = time.monotonic()
    with apply.examine_to_change(settings, world.store, discovered(path), world.clock) as examined:
        plan = ExaminationPlanner(examined, examined.records).plan()
        [rewrite] = apply.apply(world.store, [apply.Change(examined, plan)], world.clock)
    recover.finish(rewrite, hurry=True)

    assert begun + 60 <= rewrite.due <= time.monotonic() + 60
    assert world.leftovers() == []


def test_rewrite_records_which_placeholders_its_session_lost(world, conversation):
    """A placeholder that the agent replaced no longer counts as standing after the next rewrite."""
    path = put_session(world, conversation)
    world.scan(keep_recent=0)
    record = world.store.sessions.at(str(path))
    before = world.store.placements.of_session(record.id)
    second = conversation.turn("y" * 4000)
    world.put("s.jsonl", conversation.bytes().replace(b"x" * 4000, b"a summary"))
    report = world.scan(keep_recent=0)
    [standing] = world.store.placements.of_session(record.id)

    assert report.sessions_changed == 1
    assert standing not in before
    assert entry_text(path, second) == f"[[extracted-{second}]]"
