"""`archive.command`: a command of the user summarizes turns before they are archived."""

import json
import shlex
import sys

import pytest
import structlog
from structlog.testing import capture_logs

from brainsurgeon import log
from brainsurgeon.config import load
from brainsurgeon.files.processes import lives
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.archive import archive
from brainsurgeon.render.turns import archived, archived_json
from brainsurgeon.rewrite import archived_turns
from building.turns import conversation_of_turns, text_blocks
from building.world import TOP

SUMMARY = """
import json, pathlib, sys
lines = [json.loads(line) for line in sys.stdin]
with open(sys.argv[1], "a") as noted:
    noted.write(json.dumps([line["id"] for line in lines]) + "\\n")
size = max(len(line["message"]["content"][0]["text"]) for line in lines
           if line["message"]["role"] == "toolResult")
print(f"{len(lines)} lines, {size}")
"""


@pytest.fixture
def archiving(world, monkeypatch):
    """Return a session of five turns and a function that scans with a summarizing program."""
    talk, ends = conversation_of_turns(5)
    for line in talk.lines[2::12]:
        line["message"]["content"].insert(0, {"type": "text", "text": "so " * 600})
    path = world.put("s.jsonl", talk.bytes())

    def scan(program, *words, timeout=60.0, **keys):
        command = [sys.executable, "-c", program, *words]
        monkeypatch.setattr(archived_turns, "_COMMAND_SECONDS", timeout)
        return world.scan(archive={"enabled": True, "command": command}, **keys)

    return path, talk, ends, scan


def test_archive_command_gets_the_turn_and_prints_its_summary(world, archiving):
    """The command reads the turn as JSON lines with extracted values; its output is the summary."""
    path, talk, ends, scan = archiving
    assert world.scan().values_extracted == 24
    assert b"[[extracted-" in path.read_bytes()
    noted = world.base / "noted"
    report = scan(SUMMARY, str(noted))

    assert report.sessions[0].plan.warnings == ()
    (text,) = text_blocks(path.read_bytes(), ends[0][1])
    assert text == f"[archived turn]\narchive: {ends[0][1]}\n\n12 lines, 910"
    read = [json.loads(line) for line in noted.read_text().splitlines()]
    assert [(ids[0], ids[-1], len(ids)) for ids in read] == [(*pair, 12) for pair in ends[:3]]
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


def test_archive_command_summarises_a_turn_archived_on_request(world, archiving):
    """With `archive.enabled = false`, it writes the summary of a turn that a user archives."""
    path, _, ends, _ = archiving
    command = json.dumps([sys.executable, "-c", SUMMARY, str(world.base / "noted")])
    file = world.config_file()
    file.write_text(f"{file.read_text()}[archive]\nenabled = false\ncommand = {command}\n")
    settings, warnings = load(str(file))
    archive(settings, world.store, "main/s", clock=world.clock)

    assert warnings == []
    (text,) = text_blocks(path.read_bytes(), ends[0][1])
    assert text.endswith("\n\n12 lines, 910")


def test_a_note_is_in_the_summary_that_archive_command_printed(world, archiving):
    """A note comes before the text that the command printed, in a turn without one nothing."""
    path, _, ends, _ = archiving
    table = {"command": [sys.executable, "-c", "print('MINE')"]}
    archive(
        world.settings(archive=table), world.store, "main/s", clock=world.clock, note="it is fixed"
    )

    (text,) = text_blocks(path.read_bytes(), ends[2][1])
    assert text == f"[archived turn]\narchive: {ends[2][1]}\n\nit is fixed\n\nMINE"
    (text,) = text_blocks(path.read_bytes(), ends[1][1])
    assert text.endswith(f"{ends[1][1]}\n\nMINE")


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
def test_failed_archive_command_is_replaced_by_the_own_summary(archiving, program, why):
    """If the command fails, the turn gets the built-in summary and the run a warning."""
    path, _, ends, scan = archiving
    report = scan(program)

    assert why in report.sessions[0].plan.warnings[0]
    (text,) = text_blocks(path.read_bytes(), ends[0][1])
    assert json.loads(text.partition("\n\n")[2])["outcome"] == "Number 0 is done."


def test_archive_warns_of_a_failed_archive_command(world, archiving):
    """`archive` warns in text and JSON, as a scan does, that the summary command failed."""
    table = {"command": [str(world.base / "missing")]}
    answer = archive(world.settings(archive=table), world.store, "main/s", clock=world.clock)

    assert len(answer.warnings) == len(answer.archived) == 3
    assert archived_json(answer)["warnings"] == list(answer.warnings)
    assert archived(answer).count("because `archive.command` failed") == 3


def test_failed_archive_command_is_logged(world, archiving):
    """The log warns of a summary command that cannot be run, with session, key and reason."""
    table = {"enabled": True, "command": [str(world.base / "missing")]}
    structlog.reset_defaults()
    with capture_logs() as logs:
        world.scan(archive=table, watch=Watch(ended=log.session))
    warnings = [entry for entry in logs if entry["event"] == "session_warning"]

    assert [entry["session"] for entry in warnings] == ["main/s"] * 3
    assert all(
        "`archive.command` failed: the command cannot be run: No such file" in entry["reason"]
        for entry in warnings
    )


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


def test_hung_archive_command_is_not_run_again_in_the_run(world, archiving):
    """Every turn gets the built-in summary, and no process of the command is left."""
    path, talk, ends, scan = archiving
    world.put("t.jsonl", talk.bytes())
    noted = world.base / "noted"
    report = scan(HANGING, str(noted), timeout=2.0)

    warnings = [text for outcome in report.sessions for text in outcome.plan.warnings]
    assert [text.rpartition(": ")[2] for text in warnings] == [
        "the command took too long",
        *["the command hung earlier in this run"] * 5,
    ]
    assert b"archive: " + ends[0][1].encode() in path.read_bytes()
    pids = [int(pid) for pid in noted.read_text().split()]
    assert len(pids) == 3
    assert not any(map(lives, pids))
    world.put("u.jsonl", talk.bytes())
    again = scan("import time; time.sleep(9)", timeout=1.0).sessions
    [warning] = [outcome.plan.warnings[0] for outcome in again if outcome.plan.warnings]
    assert warning.endswith("took too long")


def test_summary_is_reused_after_a_refused_rewrite(world, archiving, monkeypatch):
    """If the rewrite is refused, the next scan does not run the command for the same turn again."""
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


def test_dry_run_runs_no_archive_command(world, archiving):
    """A dry run does not run the command."""
    _, _, _, scan = archiving
    noted = world.base / "noted"
    scan(SUMMARY, str(noted), dry_run=True)

    assert not noted.exists()


STAND_IN = """
import pathlib, sys
prompt = sys.stdin.read()
pathlib.Path(sys.argv[1]).write_text(prompt)
print("\\n".join(line for line in prompt.splitlines() if line.startswith("## ")))
"""


@pytest.mark.parametrize(("form", "last"), [
    ("handover", "## Exact next steps"), ("record", "## Where we are"),
])  # fmt: skip
def test_example_of_an_archive_command_asks_a_model(world, archiving, monkeypatch, form, last):
    """The example passes on the turn, the focus and the headings, and its answer is the summary."""
    path, _, ends, _ = archiving
    asked = world.base / "asked"
    model = shlex.join([sys.executable, "-c", STAND_IN, str(asked)])
    monkeypatch.setenv("SUMMARISE_WITH", model)
    example = str(TOP / "deploy" / "summarise.py")
    command = [sys.executable, example, "--form", form, "--focus", "the open questions"]
    report = world.scan(archive={"enabled": True, "command": command})

    assert report.sessions[0].plan.warnings == ()
    (text,) = text_blocks(path.read_bytes(), ends[0][1])
    assert text.startswith(f"[archived turn]\narchive: {ends[0][1]}\n\n## ")
    assert text.endswith(last)
    assert text.count("## Files & changes") == 1
    prompt = asked.read_text()
    assert "do not leave out: the open questions" in prompt
    assert "so so so" in prompt
    assert "[toolResult]" in prompt


@pytest.mark.parametrize("model", ["", "false"])
def test_example_of_an_archive_command_fails_with_its_model(archiving, monkeypatch, model):
    """Without a model, or if it fails, the run warns and the built-in summary is used."""
    _, _, _, scan = archiving
    monkeypatch.setenv("SUMMARISE_WITH", model)
    warnings = scan((TOP / "deploy" / "summarise.py").read_text()).sessions[0].plan.warnings

    assert len(warnings) == 3
    assert all("the command exited with 1" in warning for warning in warnings)
