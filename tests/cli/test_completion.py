"""What a shell offers when it completes a line."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "brainsurgeon"


def test_sessions_are_offered_by_name(world, session):
    """Behind a command that takes a session, the names that begin as typed; never an error."""
    config = world.config_file()

    def offered(line, **environment):
        done = subprocess.run(
            [PROGRAM], capture_output=True, check=False, text=True, env={
                **os.environ, "BRAINSURGEON_CONFIG": str(config),
                "_BRAINSURGEON_COMPLETE": "complete_bash",
                "COMP_WORDS": f"brainsurgeon {line}",
                "COMP_CWORD": str(len(line.split(" "))), **environment,
            },
        )  # fmt: skip
        assert done.stderr == ""
        return done.stdout.split()

    assert "scan" in offered("sc")
    for line in ("sessions ma", "relieve ma", "archive ma", "show ma", "restore --session ma"):
        assert offered(line) == ["main/s"], line
    assert offered("sessions ma", BRAINSURGEON_CONFIG="/nowhere") == []
