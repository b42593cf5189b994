"""A store of its own, and a second process that has it open."""

import pytest

from brainsurgeon.store import open_store
from building.processes import OtherProcess
from building.store_rows import OPEN_STORE


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
    one = OtherProcess(*(step.format(directory=directory) for step in OPEN_STORE))
    yield one
    one.kill()
