"""What recovery makes of a rewrite that was stopped halfway."""

import functools
import os

import pytest

from brainsurgeon.rewrite import recover
from brainsurgeon.sessions.reading import open_session
from building.exchange import (
    APPEND,
    LATE,
    NAME,
    NEW,
    OLD,
    TEMPORARY,
    begin_interrupted_rewrite,
    directory_names,
    discovered,
    replace,
)
from building.world import open_rewrites


def test_recovery_never_takes_a_half_written_file_for_a_session(world, path):
    """Killed while the new file was written: the half goes, and nothing of it is moved anywhere."""
    begin_interrupted_rewrite(world, path)
    path.with_name(TEMPORARY).write_bytes(NEW + b"x" * 5000)
    recover.recover(world.store)

    assert path.read_bytes() == OLD
    assert directory_names(path) == [NAME]
    assert open_rewrites(world) == []


@pytest.mark.parametrize("kept_open", [False, True])
def test_recovery_moves_over_what_came_after_the_exchange(world, path, other_process, kept_open):
    """After a crash the old file's late bytes come over, once nobody has it open any more."""
    entry = begin_interrupted_rewrite(world, path)
    with open_session(discovered(path)) as session:
        update = functools.partial(world.store.journal.update, entry)
        replace(session, filled=lambda inode, ends: update(new_inode=inode, ends=ends))
    late = str(path.with_name(TEMPORARY))
    other_process.evaluate(f"globals().update(fd=os.open({late!r}, {APPEND}))")
    other_process.evaluate(f"os.write(fd, {LATE!r})")
    if not kept_open:
        other_process.evaluate("os.close(fd)")
    recover_quickly(world)
    first = directory_names(path), open_rewrites(world)
    other_process.kill()
    recover.recover(world.store)

    assert first == (([TEMPORARY, NAME], [str(path)]) if kept_open else ([NAME], []))
    assert path.read_bytes() == NEW + LATE
    assert directory_names(path) == [NAME]
    assert open_rewrites(world) == []


def recover_quickly(world):
    """Recover without the wait for whoever keeps a file open."""
    patience, recover._WAIT = recover._WAIT, 0.02
    try:
        recover.recover(world.store)
    finally:
        recover._WAIT = patience


def test_recovery_that_fails_does_not_stop_the_run(world, conversation, path, monkeypatch):
    """When the disk refuses to finish an interrupted rewrite, the other sessions get their turn."""
    path.with_name(TEMPORARY).write_bytes(NEW)
    begin_interrupted_rewrite(world, path, path.with_name(TEMPORARY))
    conversation.turn("x" * 4000)
    world.put("other.jsonl", conversation.bytes())
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
