"""The program for one world, in a pipe and on a terminal."""

import os
import pty
import select
import subprocess
import termios

import pytest

from building.processes import PROGRAM, TIMEOUT, NoAnswerError, program_for


@pytest.fixture
def cli(world):
    return program_for(world)


@pytest.fixture
def entry_id(world, conversation):
    """Return the id of an extracted result in the idle session `main/s`."""
    ident = conversation.turn()
    conversation.turn("y" * 2000)
    world.put("s.jsonl", conversation.bytes())

    assert world.scan().values_extracted == 1
    return ident


def _read(terminal):
    if not select.select([terminal], [], [], TIMEOUT)[0]:
        raise NoAnswerError
    return os.read(terminal, 65536)


@pytest.fixture
def run_on_terminal():
    """Return a function that runs the program on a terminal and returns its output.

    The function calls `watch` with the output so far, each time that there is more of it. Without
    `typed` keystrokes, standard input is no terminal. Without NO_COLOR="", there are no colours.
    """

    def run(*words, watch=lambda _: None, typed="", code=0, width=80, **environment):
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, width))
        variables = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"} | environment
        process = subprocess.Popen(
            [*PROGRAM, *map(str, words)],
            stdin=theirs if typed else subprocess.DEVNULL, stdout=theirs, stderr=theirs,
            env=variables,
        )  # fmt: skip
        os.close(theirs)
        os.write(ours, typed.encode())
        output = b""
        try:
            while chunk := _read(ours):
                output += chunk
                watch(output)
        except OSError:  # EIO: no process has the other end open any more
            pass
        except BaseException:
            process.kill()
            raise
        os.close(ours)
        assert process.wait() == code
        return output.decode()

    return run
