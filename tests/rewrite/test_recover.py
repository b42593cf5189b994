"""What recovery makes of a rewrite that was stopped halfway."""

import os

import pytest

from brainsurgeon.model.sessions import Root
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.recover import waiting
from brainsurgeon.sessions.reading import open_session
from building.exchange import (
    APPEND,
    LATE,
    NAME,
    NEW,
    OLD,
    TEMPORARY,
    append,
    found_at,
    interrupted,
    names,
    replace,
    swap,
)

HALFWAY = {
    "before the second name": (True, ("temporary",)),
    "the old file has two names": (True, ("temporary", "kept")),
    "the new file has the name": (False, ("kept",)),
    "the old file waits": (False, ("old",)),
    "nothing is left": (False, ()),
}


@pytest.mark.parametrize("stop", HALFWAY)
def test_recovery_from_each_halfway_point_without_leases(world, stop, path, unleased):
    """Whatever a crash leaves of a rename without leases, recovery leaves one whole session."""
    untouched, beside = HALFWAY[stop]
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    interrupted(world, path, new)
    if "kept" in beside or "old" in beside:
        os.link(path, f"{new}.old")
    if not untouched:
        os.rename(new, path)
    if "old" in beside:
        os.rename(f"{new}.old", new)
    resolved = recover.recover(world.store)

    assert [one.what for one in resolved] == ["undone" if untouched else "finished"]
    assert path.read_bytes() == (OLD if untouched else NEW)
    assert names(path) == [NAME]
    assert path.stat().st_nlink == 1
    assert waiting(world.store) == []


def test_a_halfway_point_without_leases_is_recovered_where_it_moved(world, path, unleased):
    """So it is where the directory was renamed before anybody recovered."""
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    interrupted(world, path, new)
    os.link(path, f"{new}.old")
    os.rename(new, path)
    append(f"{new}.old", LATE)
    moved = path.parent.rename(path.parent.with_name("moved")) / NAME
    recover.recover(world.store, [Root(str(moved.parent.parent))])

    assert moved.read_bytes() == NEW + LATE
    assert names(moved) == [NAME]
    assert waiting(world.store) == []


def test_recovery_gives_a_file_in_between_its_name_back(world, path):
    """Killed after exchanging a file that the agent had just renamed into place: that stands."""
    new = path.with_name(TEMPORARY)
    new.write_bytes(NEW)
    interrupted(world, path, new)
    swap(path, OLD + LATE)
    os.rename(path, f"{new}.agents")
    os.rename(new, path)
    os.rename(f"{new}.agents", new)
    recover.recover(world.store)

    assert path.read_bytes() == OLD + LATE
    assert names(path) == [NAME]
    assert waiting(world.store) == []


def test_recovery_never_takes_a_half_written_file_for_a_session(world, path):
    """Killed while the new file was written: the half goes, and nothing of it is moved anywhere."""
    interrupted(world, path)
    path.with_name(TEMPORARY).write_bytes(NEW + b"x" * 5000)
    recover.recover(world.store)

    assert path.read_bytes() == OLD
    assert names(path) == [NAME]
    assert waiting(world.store) == []


@pytest.mark.parametrize("kept_open", [False, True])
def test_recovery_moves_over_what_came_after_the_exchange(world, path, puppet, kept_open):
    """After a crash the old file's late bytes come over, once nobody has it open any more."""
    entry = interrupted(world, path)
    with open_session(found_at(path)) as session:
        replace(session, filled=lambda *new: world.store.journal.filled(entry, *new))
    late = str(path.with_name(TEMPORARY))
    puppet.ask(f"globals().update(fd=os.open({late!r}, {APPEND}))")
    puppet.ask(f"os.write(fd, {LATE!r})")
    if not kept_open:
        puppet.ask("os.close(fd)")
    recover_quickly(world)
    first = names(path), waiting(world.store)
    puppet.kill()
    recover.recover(world.store)

    assert first == (([TEMPORARY, NAME], [str(path)]) if kept_open else ([NAME], []))
    assert path.read_bytes() == NEW + LATE
    assert names(path) == [NAME]
    assert waiting(world.store) == []


def recover_quickly(world):
    """Recover without the wait for whoever keeps a file open."""
    patience, recover._WAIT = recover._WAIT, 0.02
    try:
        recover.recover(world.store)
    finally:
        recover._WAIT = patience


def test_recovery_that_fails_does_not_stop_the_pass(world, conversation, path, monkeypatch):
    """When the disk refuses to finish an interrupted rewrite, the other sessions get their turn."""
    path.with_name(TEMPORARY).write_bytes(NEW)
    interrupted(world, path, path.with_name(TEMPORARY))
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
    assert waiting(world.store) == [str(path)]
    assert path.read_bytes() == OLD
