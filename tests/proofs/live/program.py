"""Our program beside a real agent, what is waited for, and what an agent prints."""

import subprocess
import sys
import time

DEADLINE = 300


def ours(agent, *words, code=0):
    done = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words], env=agent.environment,
        capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == code, (words, done.stdout[-1500:], done.stderr[-1500:])
    return done.stdout.decode()


def wait(what, until, deadline=DEADLINE):
    end = time.monotonic() + deadline
    while not (found := until()):
        assert time.monotonic() < end, f"not within {deadline} s: {what}"
        time.sleep(0.02)
    return found


def lines_of(tag, lines=80):
    return f"yes 'this is a line of {tag}, which says nothing' | head -{lines}"
