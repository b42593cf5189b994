"""Recovery of interrupted rewrites, and rewrites that stay unfinished."""

import functools
import os

import pytest

from brainsurgeon.files import retire
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions.discovery import open_session
from building.exchange import (
    APPEND,
    LATE,
    NAME,
    NEW,
    OLD,
    TEMPORARY,
    append_bytes,
    begin_interrupted_rewrite,
    directory_names,
    discovered,
    replace,
)
from building.world import Conversation, dump, open_rewrites, put_session


def test_recovery_deletes_an_incomplete_new_file(world, path):
    """After a kill before the exchange the incomplete file is deleted, and the session stays."""
    begin_interrupted_rewrite(world, path)
    path.with_name(TEMPORARY).write_bytes(NEW + b"x" * 5000)
    recover.recover(world.store)

    assert path.read_bytes() == OLD
    assert directory_names(path) == [NAME]
    assert open_rewrites(world) == []


@pytest.mark.parametrize("kept_open", [False, True])
def test_recovery_moves_late_bytes_to_the_new_file(world, path, other_process, kept_open):
    """Bytes appended to the old file are moved once no process has that file open."""
    entry = begin_interrupted_rewrite(world, path)
    with open_session(discovered(path)) as session:
        update = functools.partial(world.store.journal.update, entry)
        replace(session, filled=lambda inode, ends: update(new_inode=inode, ends=ends))
    late = str(path.with_name(TEMPORARY))
    other_process.evaluate(f"globals().update(fd=os.open({late!r}, {APPEND}))")
    other_process.evaluate(f"os.write(fd, {LATE!r})")
    if not kept_open:
        other_process.evaluate("os.close(fd)")
    recover_without_waiting(world)
    first = directory_names(path), open_rewrites(world)
    other_process.kill()
    recover.recover(world.store)

    assert first == (([TEMPORARY, NAME], [str(path)]) if kept_open else ([NAME], []))
    assert path.read_bytes() == NEW + LATE
    assert directory_names(path) == [NAME]
    assert open_rewrites(world) == []


UUID = "0b0c6f0e-0000-4000-8000-000000000001"


@pytest.mark.parametrize(("form", "line", "known"), [
    ("openclaw", {"type": "message", "id": "a1b2c3d4"}, True),
    ("claude-code", {"type": "user", "uuid": UUID, "parentUuid": None}, True),
    ("claude-code", {"type": "summary", "id": "a1b2c3d4"}, False),
    ("generic", {"type": "message", "__id": "m"}, True),
    ("generic", {"type": "message"}, False),
])  # fmt: skip
def test_move_that_a_crash_interrupted_goes_by_ids_of_the_format(world, path, form, line, known):
    """A line in both files counts as moved if it has an id; else it is unknown, and both stay."""
    entry, raw = begin_interrupted_rewrite(world, path), dump(line)
    with world.store.transaction():
        world.store.sessions.note(discovered(path), form)
    with open_session(discovered(path)) as session:
        update = functools.partial(world.store.journal.update, entry)
        replace(session, filled=lambda inode, ends: update(
            new_inode=inode, ends=ends, moving_to=inode,
        ))  # fmt: skip
    for name in (NAME, TEMPORARY):
        append_bytes(path.with_name(name), raw)
    [recovery] = recover.recover(world.store)

    assert path.read_bytes() == NEW + raw
    assert directory_names(path) == ([NAME] if known else [TEMPORARY, NAME])
    assert ("it is unknown whether lines were moved" in recovery.what) != known


def recover_without_waiting(world):
    """Recover without waiting for processes that have a file open."""
    wait, recover._WAIT = recover._WAIT, 0.02
    try:
        recover.recover(world.store)
    finally:
        recover._WAIT = wait


def test_failed_recovery_does_not_stop_the_scan(world, conversation, path, monkeypatch):
    """If a disk error prevents a recovery, the other sessions are scanned all the same."""
    path.with_name(TEMPORARY).write_bytes(NEW)
    begin_interrupted_rewrite(world, path, path.with_name(TEMPORARY))
    put_session(world, conversation, "other.jsonl")
    unlink = os.unlink

    def failing(name, **keywords):
        if name == TEMPORARY:
            raise OSError(30, "Read-only file system")
        unlink(name, **keywords)

    monkeypatch.setattr(os, "unlink", failing)
    report = world.scan(keep_recent=0)

    assert report.sessions_changed == 1
    assert open_rewrites(world) == [str(path)]
    assert path.read_bytes() == OLD


def write_sessions(world, *numbers):
    """Write sessions with one large result each."""
    for number in numbers:
        conversation = Conversation(f"33333333-0000-4000-8000-{number:012}")
        conversation.turn(f"{number} " + "x" * 4000)
        world.put(f"{number}.jsonl", conversation.bytes())


def test_old_file_kept_open_delays_no_other_rewrite(world, monkeypatch, other_process):
    """Of several rewrites only the one whose old file is kept open is reported as interrupted."""
    write_sessions(world, 1, 2, 3)
    monkeypatch.setattr(retire, "LOOK_BACK_LONGEST", 0.1)
    finish = retire.retire

    def retiring(place, **keywords):
        if place.name == "2.jsonl":
            late = os.path.join(world.directory, place.temporary)
            other_process.evaluate(f"globals().update(fd=os.open({late!r}, os.O_WRONLY))")
        return finish(place, **keywords)

    monkeypatch.setattr(retire, "retire", retiring)
    report = world.scan(keep_recent=0)
    monkeypatch.setattr(retire, "retire", finish)
    leftovers = world.leftovers()
    other_process.evaluate("os.close(fd)")
    second_report = world.scan(keep_recent=0)

    assert report.sessions_changed == 3
    assert report.interrupted == ["2.jsonl"]
    assert len(leftovers) == 1
    assert len(second_report.recovered) == 1
    assert world.leftovers() == []


def test_deletion_that_is_not_synced_stays_in_the_journal(world, monkeypatch):
    """If the directory cannot be synced, the rewrites stay open until the next command."""
    write_sessions(world, 1, 2)
    assert world.store  # opened before syncs fail
    fsync, deleted = os.fsync, []
    unlink = os.unlink

    def removing(name, **keywords):
        deleted.append(name)
        unlink(name, **keywords)

    def failing(descriptor):
        if deleted and os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "unlink", removing)
    monkeypatch.setattr(os, "fsync", failing)
    report = world.scan(keep_recent=0)
    unfinished = open_rewrites(world)
    monkeypatch.setattr(os, "fsync", fsync)
    world.scan(keep_recent=0)

    assert report.sessions_changed == 2
    assert len(unfinished) == len(report.interrupted) == 2
    assert open_rewrites(world) == []
    assert world.leftovers() == []
