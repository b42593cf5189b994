"""The commands under "Removing it" in deploy/docs/operations.md."""

import re
import subprocess
import sys

from building.world import TOP

_BLOCK = re.search(
    r"\n## Removing it\n.*?```console\n(.*?)```",
    (TOP / "deploy" / "docs" / "operations.md").read_text(),
    re.DOTALL,
)[1]
COMMANDS = [
    line.partition("#")[0].split()
    for line in re.findall(r"^\$ brainsurgeon (.*)$", _BLOCK, re.MULTILINE)
]


def run_documented_commands(environment):
    """Run the commands; return what each printed. Each must exit 0."""
    outputs = []
    for words in COMMANDS:
        if words[0] == "init":  # `init` set nothing up here
            continue
        answer = ["--yes"] if words[-1] == "purge" else []  # a person says so at a terminal
        result = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", *words, *answer],
            env=environment, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        outputs.append(result.stdout.decode() + result.stderr.decode())
        assert result.returncode == 0, (words, outputs)
    return outputs
