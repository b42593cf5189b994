"""Running brainsurgeon beside a real agent, waiting, and a command whose output is pruned."""

import subprocess
import sys
import time

DEADLINE = 300


def ours(agent, *words, code=0):
    process = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words], env=agent.environment,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert process.returncode == code, (words, process.stdout[-1500:], process.stderr[-1500:])
    return process.stdout.decode()


def wait(what, until, deadline=DEADLINE):
    """Wait until a function returns something true, and return that."""
    end = time.monotonic() + deadline
    while not (result := until()):
        assert time.monotonic() < end, f"not within {deadline} s: {what}"
        time.sleep(0.02)
    return result


def lines_of(tag, lines=80):
    return f"yes 'this is a line of {tag}, which says nothing' | head -{lines}"
