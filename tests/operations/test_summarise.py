"""A command of the operator summarises turns before they are archived."""

import json
import sys

import pytest

from brainsurgeon.hosts.processes import lives
from brainsurgeon.rewrite import turns as turns_room
from brainsurgeon.sessions.reading import RefusedError
from building.turns import conversation_of_turns, text_blocks

SUMMARY = """
import json, pathlib, sys
lines = [json.loads(line) for line in sys.stdin]
with open(sys.argv[1], "a") as noted:
    noted.write(json.dumps([one["id"] for one in lines]) + "\\n")
size = max(len(one["message"]["content"][0]["text"]) for one in lines
           if one["message"]["role"] == "toolResult")
print(f"{len(lines)} lines, {size}")
"""


@pytest.fixture
def archiving(world, monkeypatch):
    """Give a session of five turns.

    A run that lets a program summarise those that are archived.
    """
    talk, ends = conversation_of_turns(5)
    for line in talk.lines[2::12]:
        line["message"]["content"].insert(0, {"type": "text", "text": "so " * 600})
    path = world.put("s.jsonl", talk.bytes())

    def scan(program, *words, timeout=60.0, **keys):
        command = [sys.executable, "-c", program, *words]
        monkeypatch.setattr(turns_room, "_PATIENCE", timeout)
        archive = {"enabled": True, "command": command}
        return world.scan(archive=archive, **keys)

    return path, talk, ends, scan


def test_the_command_gets_the_turn_and_says_what_it_came_to(world, archiving):
    """It reads the turn as JSON lines with what was extracted; what it prints stands."""
    path, talk, ends, scan = archiving
    assert world.scan().values_extracted == 24
    assert b"[[extracted-" in path.read_bytes()
    noted = world.base / "noted"
    report = scan(SUMMARY, str(noted))

    assert report.sessions[0].plan.warnings == ()
    (text,) = text_blocks(path.read_bytes(), ends[0][1])
    assert text == f"[archived turn]\narchive: {ends[0][1]}\n\n12 lines, 910"
    read = [json.loads(line) for line in noted.read_text().splitlines()]
    assert [(one[0], one[-1], len(one)) for one in read] == [(*pair, 12) for pair in ends[:3]]
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("raise SystemExit(3)", "exited with 3"),
        ("pass", "printed 0 characters"),
        ("print('x' * 9000)", "printed 9,000 characters"),
        ("print('x' * 99_999)", "printed too much"),
        ("import sys; sys.stdout.buffer.write(b'\\xff')", "invalid text"),
    ],
)  # fmt: skip
def test_a_command_that_fails_leaves_the_summary_to_us(archiving, program, why):
    """Whatever it does instead, the turn is archived with our own summary, and the run says so."""
    path, _, ends, scan = archiving
    report = scan(program)

    assert why in report.sessions[0].plan.warnings[0]
    (text,) = text_blocks(path.read_bytes(), ends[0][1])
    assert json.loads(text.partition("\n\n")[2])["outcome"] == "Number 0 is done."


def test_a_command_that_takes_too_long_is_ended(archiving):
    """After its time it is killed with what it started, and our summary stands."""
    path, _, ends, scan = archiving
    report = scan("import subprocess; subprocess.run(['sleep', '60'])", timeout=1.0)

    assert "took too long" in report.sessions[0].plan.warnings[0]
    assert b"archive: " + ends[0][1].encode() in path.read_bytes()


HANGING = """
import os, subprocess, sys, time
with open(sys.argv[1], "a") as noted:
    for started in (["timeout", "60", "sleep", "61"], ["setsid", "sleep", "62"]):
        print(subprocess.Popen(started).pid, file=noted, flush=True)
    time.sleep(0.5)
    children = f"/proc/{os.getpid()}/task/{os.getpid()}/children"
    for child in open(children).read().split():
        print(open(f"/proc/{child}/task/{child}/children").read(), file=noted, flush=True)
time.sleep(60)
"""


def test_a_command_that_hangs_is_not_called_again_in_that_run(world, archiving):
    """Turns of every session get our summary, and all that the command started ends with it."""
    _, talk, _, scan = archiving
    world.put("t.jsonl", talk.bytes())
    noted = world.base / "noted"
    report = scan(HANGING, str(noted), timeout=2.0)

    warnings = [text for one in report.sessions for text in one.plan.warnings]
    assert [text.rpartition(", ")[2] for text in warnings] == [
        "its command took too long",
        *["its command hung before in this run"] * 5,
    ]
    pids = [int(pid) for pid in noted.read_text().split()]
    assert len(pids) == 3
    assert not any(map(lives, pids))
    world.put("u.jsonl", talk.bytes())
    again = scan("import time; time.sleep(9)", timeout=1.0).sessions
    assert [one.plan.warnings[0][-13:] for one in again if one.plan.warnings] == ["took too long"]


def test_what_it_said_is_kept_where_the_rewrite_is_refused(world, archiving, monkeypatch):
    """The same turn is not summarised twice."""
    path, talk, _, scan = archiving
    noted = world.base / "noted"
    with monkeypatch.context() as patched:

        def refuse(*_):
            raise RefusedError("not now")

        patched.setattr("brainsurgeon.rewrite.apply.exchange.prepare", refuse)
        assert scan(SUMMARY, str(noted)).sessions_changed == 0
    assert path.read_bytes() == talk.bytes()
    assert scan(SUMMARY, str(noted)).sessions_changed == 1
    assert len(noted.read_text().splitlines()) == 3


def test_a_dry_run_runs_no_command(world, archiving):
    """Nothing is run where nothing is to happen."""
    _, _, _, scan = archiving
    noted = world.base / "noted"
    scan(SUMMARY, str(noted), dry_run=True)

    assert not noted.exists()
