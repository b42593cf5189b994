"""The end of rewrites that share their commit: what they have in common, and what not."""

import os

from brainsurgeon.sessions import retire
from building.world import Conversation, open_rewrites


def put(world, *numbers):
    for number in numbers:
        conversation = Conversation(f"33333333-0000-4000-8000-{number:012}")
        conversation.turn(f"{number} " + "x" * 4000)
        world.put(f"{number}.jsonl", conversation.bytes())


def test_an_old_file_that_stays_holds_up_no_other(world, monkeypatch, other_process):
    """While somebody keeps one old file open, those of the others go, and only it is named."""
    put(world, 1, 2, 3)
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
    left = world.leftovers()
    other_process.evaluate("os.close(fd)")
    again = world.scan(keep_recent=0)

    assert report.sessions_changed == 3
    assert report.interrupted == ["2.jsonl"]
    assert len(left) == 1
    assert len(again.recovered) == 1
    assert world.leftovers() == []


def test_a_removal_that_is_not_durable_stays_in_the_journal(world, monkeypatch):
    """Where the directory cannot be synced, the next command sees to the rest."""
    put(world, 1, 2)
    assert world.store
    fsync, removed = os.fsync, []
    unlink = os.unlink

    def removing(name, **keywords):
        removed.append(name)
        unlink(name, **keywords)

    def failing(descriptor):
        if removed and os.path.isdir(f"/proc/self/fd/{descriptor}"):
            raise OSError(5, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "unlink", removing)
    monkeypatch.setattr(os, "fsync", failing)
    report = world.scan(keep_recent=0)
    named = open_rewrites(world)
    monkeypatch.setattr(os, "fsync", fsync)
    world.scan(keep_recent=0)

    assert report.sessions_changed == 2
    assert len(named) == len(report.interrupted) == 2
    assert open_rewrites(world) == []
    assert world.leftovers() == []
