"""What deploy/docs/operations.md says under "Removing it", as it is typed."""

import re
import subprocess
import sys

from building.world import TOP

_BLOCK = re.search(
    r"\n## Removing it\n.*?```console\n(.*?)```",
    (TOP / "deploy" / "docs" / "operations.md").read_text(),
    re.DOTALL,
)[1]
# The commands of ours, in their order, as words.
COMMANDS = [
    line.partition("#")[0].split()
    for line in re.findall(r"^\$ brainsurgeon (.*)$", _BLOCK, re.MULTILINE)
]


def run_documented_commands(environment):
    """Type its commands; return what each printed. Each of them ends with 0."""
    printed = []
    for words in COMMANDS:
        if words[0] == "init":  # `init` set nothing up here
            continue
        answer = ["--yes"] if words[-1] == "purge" else []  # a person says so at a terminal
        done = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", *words, *answer],
            env=environment, capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        printed.append(done.stdout.decode() + done.stderr.decode())
        assert done.returncode == 0, (words, printed)
    return printed
