"""What README and reference show as printed is what is printed, numbers and dates apart."""

import re
import shutil
import subprocess
import sys

import pytest

from building.processes import program_for
from building.world import SAMPLES, TOP, Conversation, copy_tree

PAGES = [TOP / "README.md", *sorted((TOP / "deploy" / "docs").glob("*.md"))]
# The blocks that show what a command prints.
SHOWN = [
    block for page in PAGES
    for block in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
    if re.search(r"^[^$\n]", block, re.MULTILINE)
]  # fmt: skip
LEFT_OUT = "…"


def block(words):
    [found] = [one for one in SHOWN if f"$ brainsurgeon {words}" in one]
    return found.splitlines()


def shape(line):
    """Give a line without what differs from run to run: numbers, dates, units and columns."""
    line = re.sub(r"[0-9][0-9,.:]*(-[0-9]+)*", "0", line.partition("#")[0])
    return " ".join(re.sub(r"\b0 [KM]?B\b", "0 B", line).split())


def answers(lines, words):
    """Give the lines that a block shows behind a command."""
    [at] = [at for at, line in enumerate(lines) if line.startswith(f"$ brainsurgeon {words}")]
    rest = lines[at + 1 :]
    end = next((at for at, line in enumerate(rest) if line.startswith("$")), len(rest))
    return rest[:end]


@pytest.fixture
def samples(world):
    """Give the program for a world with the sessions that the demonstration works on."""
    shutil.rmtree(world.root)
    copy_tree(SAMPLES / "openclaw" / "2026.7.35" / "agents", world.root)
    pi = world.root / "pi" / "sessions"
    pi.mkdir(parents=True)
    shutil.copy(SAMPLES / "pi" / "large-session.derived-v3.jsonl", pi / "large-session.jsonl")
    return program_for(world, min_reclaim="1%")


def test_what_the_demonstration_shows_is_what_it_prints(own_home):
    """Each line of the block stands in its output, in order; times and compression may differ."""
    done = subprocess.run(
        [sys.executable, TOP / "deploy" / "try.py"], capture_output=True, check=True, text=True
    )
    printed = iter(map(_but_times, done.stdout.splitlines()))

    for line in block("scan\n  main/"):
        wanted = _but_times(line).rstrip(LEFT_OUT)
        if wanted.strip():
            assert any(one.startswith(wanted) for one in printed), line
    assert own_home.exists()


def _but_times(line):
    return re.sub(r"[0-9.]+ (s$|[KM]?B stored)", r"0 \1", line)


def test_what_is_shown_of_the_passes_is_what_is_printed(samples):
    """The same columns for a scan and for a restore, under the same heading."""
    samples("scan")
    samples("restore", "240b6b1f")
    printed = samples("runs").stdout.decode().splitlines()

    assert [shape(line) for line in answers(block("history"), "history")] == [
        shape(line) for line in printed
    ]


def test_what_is_shown_of_a_relief_is_what_is_printed(world):
    """A session that is too long is relieved; the lines are those of the block."""
    ident = "0f3c5d1e-8a41-4b6f-9c07-1d2e5f60a8b3"
    one = Conversation(ident)
    for number in range(40):
        one.turn("x" * (400 * number + 8_000), tool="exec" if number % 3 else "read")
    world.put(f"{ident}.jsonl", one.bytes())
    printed = program_for(world)("relieve", "main/0f3c").stdout.decode().splitlines()

    lines = block("relieve main/0f3c   ")
    assert [shape(line) for line in answers(lines, "relieve main/0f3c   ")] == [
        shape(line) for line in printed
    ], "\n".join(printed)


def test_every_block_with_output_is_compared():
    """A block that shows more than what is typed is one of those that a test here runs."""
    assert len(SHOWN) == 4  # `test_bench` runs that of the benchmark
