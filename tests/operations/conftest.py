"""A pruned session, and a wall and boot clock that the tests move."""

import time

import pytest

from building.world import Clock


@pytest.fixture
def clock(world, monkeypatch):
    world.clock = Clock(int(time.time()))
    monkeypatch.setattr("brainsurgeon.files.processes.boot_clock", lambda: world.clock.now)
    return world.clock


@pytest.fixture
def pruned(world, conversation, clock):
    """Return the id of an entry whose value a scan has extracted from the session `s`."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())

    assert world.scan().values_extracted == 1
    return ident


@pytest.fixture
def path(world):
    return world.directory / "s.jsonl"
