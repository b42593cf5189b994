"""A store, and a second process that has it open."""

import pytest

from brainsurgeon.store import open_store
from building.processes import OtherProcess
from building.store_rows import OPEN_STORE


@pytest.fixture
def directory(tmp_path):
    return str(tmp_path / "state")


@pytest.fixture
def store(directory):
    opened = open_store(directory)
    yield opened
    opened.close()


@pytest.fixture
def other_process(directory, store):
    process = OtherProcess(*(step.format(directory=directory) for step in OPEN_STORE))
    yield process
    process.kill()
