"""What the agents' own programs, as their authors publish them, read out of a session."""

import json
import subprocess
from pathlib import Path

import pytest

from proofs.agent_packages import OPENCLAW, PI, PI_NOW, node_binary, package

# What they load of a session and would send to each provider; what to Anthropic's alone.
LOOK, CONVERTED = (
    Path(__file__).parent / "readers" / name for name in ("look.mjs", "converted.mjs")
)
AGENTS = [
    "pi",
    "pi-now",
    pytest.param("openclaw", marks=pytest.mark.long(proves=("formats", "planning"))),
]  # fmt: skip


def reader(script, agent, directory):
    place = {
        "pi": lambda: package(PI),
        "pi-now": lambda: package(PI_NOW) / "@earendil-works" / "pi-coding-agent",
        "openclaw": lambda: package(OPENCLAW) / "openclaw",
    }[agent]()
    copy, node = directory / "looked-at.jsonl", node_binary()

    def read(data):
        copy.write_bytes(data)
        done = subprocess.run(
            [node, script, agent, place, copy],
            capture_output=True, timeout=120, check=False, env={"HOME": str(directory)},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr.decode()
        return json.loads(done.stdout)

    return read
