"""Node scripts that load a session with the published code of an agent."""

import json
import subprocess
from pathlib import Path

import pytest

from proofs.agent_packages import OPENCLAW, PI, PI_LATEST, node_binary, package

_SCRIPTS = Path(__file__).parent / "readers"
# Prints the loaded session and the requests built from it for every provider.
VIEW = _SCRIPTS / "view.mjs"
# Prints the messages of the request for Anthropic's interface.
REQUEST = _SCRIPTS / "request.mjs"
AGENTS = [
    "pi",
    "pi-latest",
    pytest.param("openclaw", marks=pytest.mark.long(proves=("formats", "planning"))),
]  # fmt: skip


def build_reader(script, agent, directory):
    """Return a function that runs `script` on the bytes of a session and returns its JSON."""
    place = {
        "pi": lambda: package(PI),
        "pi-latest": lambda: package(PI_LATEST) / "@earendil-works" / "pi-coding-agent",
        "openclaw": lambda: package(OPENCLAW) / "openclaw",
    }[agent]()
    copy, node = directory / "looked-at.jsonl", node_binary()

    def read(data):
        copy.write_bytes(data)
        process = subprocess.run(
            [node, script, agent, place, copy],
            capture_output=True, timeout=120, check=False, env={"HOME": str(directory)},
        )  # fmt: skip
        assert process.returncode == 0, process.stderr.decode()
        return json.loads(process.stdout)

    return read
