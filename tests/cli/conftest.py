"""The program for one world."""

import pytest

from building.processes import program_for


@pytest.fixture
def cli(world):
    return program_for(world)


@pytest.fixture
def session(world, conversation):
    """Give the id of an old result in the idle, pruned session `main/s`."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())

    assert world.scan().values_extracted == 1
    return ident
