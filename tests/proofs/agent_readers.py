"""Node scripts that load a session with the published code of an agent."""

import itertools
import json
import select
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
TIMEOUT = 120.0


class Reader:
    """A process with the code of an agent, which takes a third of a second to load."""

    def __init__(self, script, agent, directory):
        place = {
            "pi": lambda: package(PI),
            "pi-latest": lambda: package(PI_LATEST) / "@earendil-works" / "pi-coding-agent",
            "openclaw": lambda: package(OPENCLAW) / "openclaw",
        }[agent]()
        self._directory, self._numbers = directory, itertools.count()
        self._errors = directory / "errors"
        with open(self._errors, "wb") as errors:
            self._process = subprocess.Popen(
                [node_binary(), script, agent, place], env={"HOME": str(directory)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            )  # fmt: skip

    def read(self, data):
        """Run the script on the bytes of a session; return its JSON. A failure ends the process."""
        copy = self._directory / f"{next(self._numbers)}.jsonl"
        copy.write_bytes(data)
        self._process.stdin.write(f"{copy}\n".encode())
        self._process.stdin.flush()
        assert select.select([self._process.stdout], [], [], TIMEOUT)[0], "no answer"
        output = self._process.stdout.readline()
        if not output:
            self.close()
            raise AssertionError(self._errors.read_text())
        return json.loads(output)

    @property
    def ended(self):
        return self._process.poll() is not None

    def close(self):
        self._process.stdin.close()
        self._process.wait(TIMEOUT)
        self._process.stdout.close()
