"""What is logged: ids, paths of keys, counts and sizes; what a value says, never."""

import ast
import json
import os
import re
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from brainsurgeon import cli, log
from brainsurgeon.errors import ConfigError, NotFoundError
from brainsurgeon.model.reports import RetentionReport, ScanReport
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.operations.restore import note_answer
from brainsurgeon.render import sessions as render
from building.processes import DaemonProcess
from building.world import TOP, Conversation, append

CANARY = "c4n4ry-9e1f77"
VALUE = f"{CANARY} " * 200


@pytest.fixture(autouse=True)
def logging_anew():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def logged(speak, *given):
    with capture_logs() as logs:
        speak(*given)
    return logs


def named(logs, event):
    return [
        {key: value for key, value in entry.items() if key != "event"}
        for entry in logs if entry["event"] == event
    ]  # fmt: skip


@pytest.fixture
def two_values(world, conversation):
    conversation.user()
    conversation.call()
    texts = ("x" * 1000, "ü" * 600)
    ident = conversation.entry(message={
        "role": "toolResult", "toolCallId": "call_1", "toolName": "exec", "isError": False,
        "content": [{"type": "text", "text": text} for text in texts],
    })  # fmt: skip
    conversation.assistant()
    conversation.turn("short")
    return world.put("s.jsonl", conversation.bytes()), ident


SIZES = {"message.content.0.text": 1002, "message.content.1.text": 1202}


# --- events --------------------------------------------------------------------------------------


def test_an_extraction_is_logged_entry_by_entry(world, two_values):
    """At debug: which keys of which entry of which session went, and how many bytes each had."""
    _, ident = two_values
    report = world.scan()

    assert named(logged(log.scanned, report), "extraction") == [
        {"module": "extraction", "entry_id": ident, "session": "main/s",
         "keys_extracted": list(SIZES),
         "sizes_bytes": SIZES, "log_level": "debug"}
    ]  # fmt: skip


def test_a_dry_run_logs_no_extraction(world, two_values):
    """What was not done is not logged as done; the run itself is, and says what it was."""
    logs = logged(log.scanned, world.scan(dry_run=True))

    assert named(logs, "extraction") == []
    assert named(logs, "scan_finished")[0]["dry_run"] is True


def test_a_restoration_is_logged_where_it_was_asked_for(world, two_values):
    """At debug: the same of what went back, and whether the agent's call is redacted for it."""
    _, ident = two_values
    world.scan()
    answer = world.restore(ident)

    assert named(logged(log.restored, answer), "restoration") == [
        {"module": "restoration", "entry_id": ident, "session": "main/s",
         "keys_restored": list(SIZES),
         "sizes_bytes": SIZES, "pending": False, "redacted": False, "log_level": "debug"}
    ]  # fmt: skip


@pytest.mark.parametrize("kept", [False, True])
def test_a_restoration_is_logged_by_the_run_that_makes_it(world, conversation, two_values, kept):
    """What an agent asked for in its turn is logged when it goes back, its redacted call too."""
    path, ident = two_values
    settings = {"keep_purge_control_calls": kept}
    world.scan()
    conversation.user("show me that again")
    conversation.call("bash", {"command": f"brainsurgeon restore {ident}"}, call="call_9")
    append(path, conversation.lines[-2:])
    answer = world.restore(ident, **settings)

    assert answer.pending

    text = render.restored(answer) + "\n" + "x" * 1000
    note_answer(world.store, answer, text)
    conversation.result(text, "bash", call="call_9")
    conversation.assistant("there it is")
    append(path, conversation.lines[-2:])
    os.utime(path, (time.time() - 3600,) * 2)
    logs = logged(log.scanned, world.scan(**settings))

    assert named(logs, "restoration") == [
        {"module": "restoration", "entry_id": ident, "session": "main/s",
         "keys_restored": list(SIZES),
         "sizes_bytes": SIZES, "redacted": not kept, "log_level": "debug"}
    ]  # fmt: skip
    assert (b'"_redacted":true' in path.read_bytes()) is not kept


def test_a_run_is_logged_with_its_counts(world, two_values):
    """At info, what it saw and did."""
    path, _ = two_values
    before = path.stat().st_size
    [finished] = named(logged(log.scanned, world.scan()), "scan_finished")

    assert finished.pop("duration_seconds") >= 0
    assert finished == {
        "module": "scan", "log_level": "info", "files_seen": 1, "files_unchanged": 0,
        "files_deferred": 0, "files_failed": 0, "sessions_changed": 1, "values_extracted": 2,
        "values_restored": 0, "bytes_before": before, "bytes_after": path.stat().st_size,
        "dry_run": False,
    }  # fmt: skip


def test_each_change_is_logged_and_each_deferral_at_debug(world, two_values, conversation):
    """At info which session changed and how, at debug which was left alone and why."""
    path, _ = two_values
    before = path.stat().st_size
    conversation.user()
    world.put("busy.jsonl", conversation.bytes(), age=60)
    logs = logged(log.scanned, world.scan())

    assert named(logs, "session_changed") == [
        {"module": "scan", "session": "main/s", "reason": "2 extracted", "log_level": "info",
         "bytes_before": before, "bytes_after": path.stat().st_size}
    ]  # fmt: skip
    assert named(logs, "session_left") == [
        {"module": "scan", "session": "main/busy", "outcome": "deferred", "log_level": "debug",
         "reason": "the last turn is open: a user message"}
    ]  # fmt: skip


def test_a_trouble_that_lasts_is_said_once(world):
    """A root that is not there, or a switch that is off, is said when it begins and no more."""
    there, said = world.root, set()
    away = [{"path": str(there)}, {"path": str(world.base / "later")}]
    levels = []
    for roots, enabled in ((away, False), (away, False), (away[:1], True), (away, True)):
        logs = logged(log.scanned, world.scan(roots=roots, enabled=enabled), said)
        levels.append([
            {one["log_level"] for one in named(logs, event)}
            for event in ("root_unreadable", "scan_disabled", "scan_finished")
        ])  # fmt: skip

    assert levels == [
        [{"warning"}, {"warning"}, {"info"}], [{"debug"}, {"debug"}, {"debug"}],
        [set(), set(), {"debug"}], [{"warning"}, set(), {"info"}],
    ]  # fmt: skip


def test_what_went_wrong_is_logged_by_name(world, two_values, monkeypatch):
    """A session that failed is an error, a root that cannot be read a warning."""

    def fail(*_, **__):
        raise OSError(5, "Input/output error", CANARY)

    monkeypatch.setattr("brainsurgeon.sessions.exchange.prepare", fail)
    report = world.scan(roots=[{"path": str(world.root)}, {"path": str(world.base / "none")}])
    logs = logged(log.scanned, report)

    assert named(logs, "session_failed") == [
        {"module": "scan", "session": "main/s", "reason": "Input/output error",
         "log_level": "error"}
    ]  # fmt: skip
    assert named(logs, "root_unreadable") == [
        {"module": "scan", "path": str(world.base / "none"), "reason": "no such directory",
         "log_level": "warning"}
    ]  # fmt: skip


def test_a_retention_run_is_logged_with_what_it_held_back():
    """At info what it did, and as a warning each root where nothing was deleted, and why."""
    report = RetentionReport(
        False, values_held=5, values_deleted=1, bytes_deleted=900,
        held_back={"/agents": "no such directory"},
    )  # fmt: skip

    assert logged(log.retained, report) == [
        {"event": "retention_held_back", "module": "retention", "root": "/agents",
         "reason": "no such directory", "log_level": "warning"},
        {"event": "retention_finished", "module": "retention", "values_held": 5,
         "values_deleted": 1, "bytes_deleted": 900,
         "log_level": "info"},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (NotFoundError("no session is called 'x'"), "no session is called 'x'"),
        (ConfigError("c.toml", ["a: no such key"]),
         "c.toml: 1 problem, nothing was run:\n  a: no such key"),
        (OSError(28, "No space left on device", CANARY), "No space left on device"),
        (OSError(CANARY), "OSError"),
        (ValueError(CANARY), "ValueError"),
        (KeyError(CANARY), "KeyError"),
        (UnicodeEncodeError("utf-8", CANARY, 0, 1, CANARY), "UnicodeEncodeError"),
    ],
)  # fmt: skip
def test_a_reason_is_in_our_words_or_the_systems(error, words):
    """The words of any other error may quote what a session says."""
    assert log.reason(error) == words


# --- how it looks --------------------------------------------------------------------------------


def lines_of(world, capsys, **settings):
    """Set logging up, log a run of nothing that met a trouble, and give what stderr shows."""
    log.set_up(world.settings(**settings))
    report = ScanReport(dry_run=False, problems=[Unreadable("/r", "/r", "no such directory")])
    log.scanned(report)
    structlog.get_logger().debug("detail", module="test")
    shown = capsys.readouterr()

    assert shown.out == ""
    return shown.err.splitlines()


@pytest.mark.parametrize("settings", [{}, {"log_format": "json"}])
def test_without_a_terminal_each_event_is_one_line_of_json(world, capsys, settings):
    """To stderr, with level and moment; debug is left out unless asked for."""
    events = [json.loads(line) for line in lines_of(world, capsys, **settings)]

    assert [(one["event"], one["level"]) for one in events] == [
        ("root_unreadable", "warning"), ("scan_finished", "info"),
    ]  # fmt: skip
    assert all(one["timestamp"].endswith("Z") for one in events)


@pytest.mark.parametrize(
    ("level", "count"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)]
)
def test_the_level_says_what_is_shown(world, capsys, level, count):
    """Events below `log_level` are not printed."""
    assert len(lines_of(world, capsys, log_level=level)) == count


def test_the_console_has_no_colour_without_a_terminal(world, capsys):
    """Asked for in a file, it is text for people and no more."""
    lines = lines_of(world, capsys, log_format="console")

    assert len(lines) == 2
    assert "root_unreadable" in lines[0]
    assert re.match(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} ", lines[0])
    assert "\x1b" not in "".join(lines)


# --- the canary ----------------------------------------------------------------------------------


def a_canary_everywhere(session="11111111-0000-4000-8000-000000000001"):
    """Make a conversation that says the canary wherever something can be said."""
    talk = Conversation(session)
    talk.user(VALUE)
    talk.entry(message={"role": "assistant", "api": "openai-completions", "stopReason": "toolUse",
                        "content": [
        {"type": "thinking", "thinking": VALUE},
        {"type": "toolCall", "id": "call_1", "name": "exec", "arguments": {"command": VALUE}},
    ]})  # fmt: skip
    ident = talk.result(VALUE, details={"aggregated": VALUE})
    talk.assistant(VALUE)
    talk.entry("custom", customType="state", data={"secret": VALUE})
    talk.turn(VALUE)
    talk.user("odd fields", _restored=CANARY)
    talk.result(VALUE, _extractable=CANARY)
    talk.assistant()
    talk.turn("short")
    talk.lines.append({"type": VALUE})
    return talk, ident


@pytest.fixture
def haunted(world):
    talk, ident = a_canary_everywhere()
    whole = talk.bytes()
    broken = f'{{"type":"message","id":"{CANARY[:4]}", "message": {VALUE}\n'.encode()
    path = world.put("s.jsonl", whole.replace(b"\n", b"\n" + broken, 1))
    other, _ = a_canary_everywhere("22222222-0000-4000-8000-000000000002")
    world.put("t.jsonl", other.bytes() + b'{"torn": "' + VALUE.encode())
    return path, ident


@pytest.fixture
def say(world, monkeypatch, capfdbinary):
    """Give a way to run commands in this process at the most talkative level."""
    config = str(world.config_file(log_level="debug"))

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["brainsurgeon", *words, "--config", config])
        code = cli._run()
        shown = capfdbinary.readouterr()
        return code, shown.out, shown.err

    return command


def test_the_canary_is_said_only_where_it_was_asked_for(world, haunted, say):
    """Through scans, restores, listings, checks and errors nothing shows what a value says."""
    path, ident = haunted
    name = ("--session", "main/s")
    silent = [
        ("scan", "--once", "--dry-run"),
        ("scan", "--once", "--dry-run", "--json"),
        ("scan", "--once"),
        ("scan", "--once", "--json"),
        ("sessions",),
        ("sessions", "main/s"),
        ("sessions", "main/s", "--json"),
        ("status",),
        ("doctor",),
        ("history", "--events", "--json"),
        ("scan", "--retention", "--dry-run"),
        ("scan", "--retention", "--json"),
        ("pin", ident, *name),
        ("restore", ident, *name),
        ("restore", ident, *name),
        ("restore", "nosuchentry"),
        ("restore", "--all", "--json"),
        ("scan", "--once", "--session", "nosuch"),
    ]
    codes = {}
    for words in silent:
        code, out, err = say(*words)
        codes[words] = code

        assert CANARY.encode() not in out + err, words
        assert b"Traceback" not in err
    assert codes["scan", "--once"] == 0
    assert codes["restore", "nosuchentry"] == 3
    assert CANARY.encode() in path.read_bytes()

    for words in (("show", ident, *name), ("show", "main/s")):
        code, out, err = say(*words)

        assert code == 0
        assert CANARY.encode() in out
        assert CANARY.encode() not in err


def test_a_pending_restore_says_it_to_whoever_asked(world, haunted, say):
    """The values go to stdout, and nowhere else."""
    path, ident = haunted
    say("scan", "--once")
    append(
        path, [{"type": "message", "id": "abcdef01", "message": {"role": "user", "content": "?"}}]
    )
    os.utime(path)
    for words in ((), ("--json",)):
        code, out, err = say("restore", ident, "--session", "main/s", *words)

        assert code == 0
        assert CANARY.encode() in out
        assert b"restoration" in err
        assert CANARY.encode() not in err


@pytest.mark.parametrize(
    "broken", ["rewrite.inspect.plan", "lookup.sessions.discover", "store.open_store"]
)
def test_an_error_that_nobody_expected_does_not_quote(world, haunted, say, monkeypatch, broken):
    """It is told by its kind and its place, without a traceback."""

    def fail(*_, **__):
        raise ValueError(VALUE)

    monkeypatch.setattr(f"brainsurgeon.{broken}", fail)
    code, out, err = say("scan", "--once", "--session", "main/s")

    assert code == 1
    assert b"ValueError" in out + err
    assert CANARY.encode() not in out + err
    assert b"Traceback" not in err


def test_the_daemons_log_does_not_say_it(world, haunted):
    """Neither at its most talkative, nor through a restore that it carries out."""
    path, ident = haunted
    one = DaemonProcess(world, scan_interval_seconds=1)
    try:
        one.wait_for("scan_finished", sessions_changed=2)
        world.restore(ident, session="main/s", quiet_seconds=10**6)
        with closing(world.store):
            one.wait_for("restoration")
        world._stores.clear()
        os.kill(one.process.pid, signal.SIGTERM)

        assert one.process.wait(20) == 0
    finally:
        one.kill()
    said = one.err.read_bytes() + one.out.read_bytes()

    assert one.logged("extraction")
    assert CANARY.encode() in path.read_bytes()
    assert CANARY.encode() not in said


def events_in_the_source():
    """Give every event that the program logs, with the fields that its calls name."""
    found = {}
    for name in ("log.py", "daemon.py"):
        for node in ast.walk(ast.parse((Path(log.__file__).parent / name).read_text())):
            if not (isinstance(node, ast.Call) and node.args and node.keywords):
                continue
            event, fields = node.args[0], {one.arg for one in node.keywords}
            if isinstance(event, ast.Constant) and fields & {"module", None}:
                known = {"session", "reason"} if None in fields else set()  # what `said` holds
                found.setdefault(event.value, set()).update(fields - {"module", None} | known)
    return found


def test_the_reference_names_every_event_with_its_fields():
    """The table of events in the reference has all that is logged, and no other."""
    page = (TOP / "deploy" / "docs" / "operations.md").read_text()
    table = re.search(r"<!-- log -->\n(.*?)<!-- end of log -->", page, re.DOTALL)[1]
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*)\|$", table, re.MULTILINE)
    told = {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in rows}

    assert told == events_in_the_source()
