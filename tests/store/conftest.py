"""A store of its own, and a second process that has it open."""

import pytest

from brainsurgeon.store import open_store
from building.processes import Puppet
from building.rows import OPEN


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "state")


@pytest.fixture
def store(directory):
    one = open_store(directory)
    yield one
    one.close()


@pytest.fixture
def neighbour(directory, store):
    one = Puppet(*(step.format(directory=directory) for step in OPEN))
    yield one
    one.kill()
