"""Fixtures of the proofs: a session and its exchange, a clock, and processes ended after a test."""

import os
import signal
import subprocess
import time
from contextlib import ExitStack

import pytest

from building.exchange import long_closing_wait, path, race, session, short_closing_wait
from building.world import Clock
from proofs.agent_readers import Reader


@pytest.fixture
def clock(world, monkeypatch):
    world.clock = Clock(int(time.time()))
    monkeypatch.setattr("brainsurgeon.files.processes.boot_clock", lambda: world.clock.now)
    return world.clock


@pytest.fixture(scope="session")
def reader(tmp_path_factory):
    """Yield a function that returns the `read` of a script with an agent; tests share processes."""
    readers = {}

    def start(script, agent):
        if (script, agent) not in readers or readers[script, agent].ended:
            readers[script, agent] = Reader(script, agent, tmp_path_factory.mktemp("reader"))
        return readers[script, agent].read

    yield start
    for started in readers.values():
        started.close()


@pytest.fixture
def start(tmp_path):
    """Yield a function that starts a process; the process is ended after the test."""
    with ExitStack() as stack:

        def begin(words, environment, log):
            output = stack.enter_context(open(tmp_path / log, "ab"))
            process = subprocess.Popen(
                words, env=environment, cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=output,
                stderr=output, start_new_session=True,
            )  # fmt: skip
            stack.callback(_end, process)
            return process

        yield begin


def _end(process):
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
