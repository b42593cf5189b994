"""Shell completion."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(sys.executable).parent / "brainsurgeon"


def test_completion_offers_sessions_by_name_prefix(world, entry_id):
    """Names of sessions, ids of entries and numbers of runs, or nothing without a configuration."""
    config = world.config_file()

    def complete(line, **environment):
        result = subprocess.run(
            [PROGRAM], capture_output=True, check=False, text=True, env={
                **os.environ, "BRAINSURGEON_CONFIG": str(config),
                "_BRAINSURGEON_COMPLETE": "complete_bash",
                "COMP_WORDS": f"brainsurgeon {line}",
                "COMP_CWORD": str(len(line.split(" "))), **environment,
            },
        )  # fmt: skip
        assert result.stderr == ""
        return result.stdout.split()

    assert "scan" in complete("sc")
    for line in ("sessions ma", "relieve ma", "archive ma", "show ma", "restore --session ma"):
        assert complete(line) == ["main/s"], line
    assert complete("sessions ma", BRAINSURGEON_CONFIG="/nowhere") == []
    assert complete(f"restore {entry_id[:4]}") == complete(f"pin {entry_id[:4]}") == [entry_id]
    assert complete("restore --run ") == ["1"]
