"""Running brainsurgeon beside a real agent, waiting, and a command whose output is pruned."""

import json
import re
import shutil
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

DEADLINE = 300
TAKEN = re.compile(r"\[\[extracted-[^\]]+\]\]")


def configure(base, root, tables="", **keys):
    """Write the configuration for one root; `tables` is the text of further tables."""
    keys = {"state_dir": f"{base}/state", "quiet_seconds": 0, "min_reclaim": 0, **keys}
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    (base / "config.toml").write_text(f'{lines}[[roots]]\npath = "{root}"\n{tables}')


def ours(agent, *words, code=0):
    process = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words], env=agent.environment,
        capture_output=True, timeout=120, check=False, cwd=agent.environment["HOME"],
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


def whole_request(agent, home, base):
    """Return what the next turn would send; afterwards, the home is as before."""
    shutil.copytree(home, base / "kept", symlinks=True)
    request = agent.turn()[0]
    shutil.rmtree(home)
    (base / "kept").rename(home)
    return request


@contextmanager
def scanning(agent, base):
    """Scan without pause meanwhile. Afterwards, some scans changed a session, and none failed."""
    command = [sys.executable, Path(__file__).with_name("scanning.py"), base / "config.toml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=agent.environment) as process:
        try:
            assert process.stdout.readline() == b"scanning\n"
            yield
        finally:
            process.terminate()
        counts = json.loads(process.stdout.read())
    assert counts["changed"] > 0
    assert "failed" not in counts
