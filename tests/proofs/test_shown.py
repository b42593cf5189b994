"""Output shown on the pages, compared with real output (numbers and dates apart)."""

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
    [text] = [text for text in SHOWN if f"$ brainsurgeon {words}" in text]
    return text.splitlines()


def shape(line):
    """Return a line without numbers, dates, units and column widths."""
    line = re.sub(r"[0-9][0-9,.:]*(-[0-9]+)*", "0", line.partition("#")[0])
    return " ".join(re.sub(r"\b0 [KM]?B\b", "0 B", line).split())


def answers(lines, words):
    """Return the lines that a block shows below a command."""
    [at] = [at for at, line in enumerate(lines) if line.startswith(f"$ brainsurgeon {words}")]
    rest = lines[at + 1 :]
    end = next((at for at, line in enumerate(rest) if line.startswith("$")), len(rest))
    return rest[:end]


@pytest.fixture
def samples(world):
    """Return the program, bound to a world with the sessions of the demonstration."""
    shutil.rmtree(world.root)
    copy_tree(SAMPLES / "openclaw" / "2026.7.35" / "agents", world.root)
    pi = world.root / "pi" / "sessions"
    pi.mkdir(parents=True)
    shutil.copy(SAMPLES / "pi" / "large-session.derived-v3.jsonl", pi / "large-session.jsonl")
    return program_for(world, min_reclaim="1%")


def test_output_of_the_demonstration_is_as_shown(own_home):
    """Each shown line is in its output, in order; times and compression may differ."""
    process = subprocess.run(
        [sys.executable, TOP / "deploy" / "try.py"], capture_output=True, check=True, text=True
    )
    printed = iter(map(_but_times, process.stdout.splitlines()))

    for line in block("scan\n  main/"):
        wanted = _but_times(line).rstrip(LEFT_OUT)
        if wanted.strip():
            assert any(row.startswith(wanted) for row in printed), line
    assert own_home.exists()


def _but_times(line):
    return re.sub(r"[0-9.]+ (s$|[KM]?B stored)", r"0 \1", line)


def test_output_of_history_is_as_shown(samples):
    """The table has the same columns for a scan and a restore."""
    samples("scan")
    samples("restore", "240b6b1f")
    printed = samples("history").stdout.decode().splitlines()

    assert [shape(line) for line in answers(block("history"), "history")] == [
        shape(line) for line in printed
    ]


def test_output_of_relieve_is_as_shown(world):
    """A session that is too long is relieved, with the lines of the block."""
    ident = "0f3c5d1e-8a41-4b6f-9c07-1d2e5f60a8b3"
    talk = Conversation(ident)
    for number in range(40):
        talk.turn("x" * (400 * number + 8_000), tool="exec" if number % 3 else "read")
    world.put(f"{ident}.jsonl", talk.bytes())
    printed = program_for(world)("relieve", "main/0f3c").stdout.decode().splitlines()

    lines = block("relieve main/0f3c   ")
    assert [shape(line) for line in answers(lines, "relieve main/0f3c   ")] == [
        shape(line) for line in printed
    ], "\n".join(printed)


def test_every_shown_output_is_compared():
    """Every block with output on the pages belongs to a test here or in `test_bench`."""
    assert len(SHOWN) == 4  # `test_bench` runs that of the benchmark
