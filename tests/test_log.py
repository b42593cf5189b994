"""Logging: ids, paths, counts and sizes are logged, and never the content of a value."""

import ast
import json
import os
import random
import re
import signal
import sys
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from brainsurgeon import cli, log
from brainsurgeon.errors import ConfigError, NotFoundError
from brainsurgeon.model.plans import Outcome
from brainsurgeon.model.reports import Recovery, RetentionReport, ScanReport, Watch
from brainsurgeon.model.session_files import Unreadable
from brainsurgeon.operations.restore import note_answer
from brainsurgeon.render import sessions as render
from building.full_disk import empty_store_disk, fill_store_disk
from building.processes import DaemonProcess
from building.world import TOP, Conversation, append

CANARY = "c4n4ry-9e1f77"
VALUE = f"{CANARY} " * 200


@pytest.fixture(autouse=True)
def reset_logging():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def logs_of(speak, *given):
    with capture_logs() as logs:
        speak(*given)
    return logs


def logs_of_scan(world, reported=None, *, dry_run=False, **settings):
    """Scan as the commands do, which log each session when it is done; return the log."""
    watch = Watch(ended=partial(log.session, dry_run=dry_run))
    with capture_logs() as logs:
        log.scan_finished(world.scan(dry_run, watch=watch, **settings), reported)
    return logs


def entries_named(logs, event):
    return [
        {key: value for key, value in entry.items() if key != "event"}
        for entry in logs if entry["event"] == event
    ]  # fmt: skip


@pytest.fixture
def session_with_two_values(world, conversation):
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


def test_log_of_a_scan_names_extracted_keys_and_sizes(world, session_with_two_values):
    """At debug, each entry is logged with its session and the keys and bytes extracted."""
    _, ident = session_with_two_values

    assert entries_named(logs_of_scan(world), "extraction") == [
        {"module": "extraction", "entry_id": ident, "session": "main/s",
         "keys_extracted": list(SIZES),
         "sizes_bytes": SIZES, "log_level": "debug"}
    ]  # fmt: skip


def test_log_of_a_dry_run_has_no_extractions(world, session_with_two_values):
    """A dry run logs its end, marked as one, and no extraction."""
    logs = logs_of_scan(world, dry_run=True)

    assert entries_named(logs, "extraction") == []
    assert entries_named(logs, "scan_finished")[0]["dry_run"] is True


def test_log_of_a_scan_names_recovered_rewrites():
    """A rewrite that the scan finished or undid after a crash is logged with its path."""
    report = ScanReport(dry_run=False, recovered=[Recovery("/a/s.jsonl", "undone")])

    assert entries_named(logs_of(log.scan_finished, report), "rewrite_recovered") == [
        {"module": "scan", "path": "/a/s.jsonl", "what": "undone", "log_level": "info"}
    ]


def test_log_of_a_restore_names_keys_and_sizes(world, session_with_two_values):
    """At debug, a restore command logs the keys and bytes restored, and no redacted call."""
    _, ident = session_with_two_values
    world.scan()
    answer = world.restore(ident)

    assert entries_named(logs_of(log.restored, answer), "restoration") == [
        {"module": "extraction", "entry_id": ident, "session": "main/s",
         "keys_restored": list(SIZES),
         "sizes_bytes": SIZES, "pending": False, "redacted": False, "log_level": "debug"}
    ]  # fmt: skip


@pytest.mark.parametrize("keep_calls", [False, True])
def test_log_of_a_scan_names_a_fulfilled_restore_request(
    world, conversation, session_with_two_values, keep_calls
):
    """A run that fulfils an agent's restore request logs whether it redacted the call."""
    path, ident = session_with_two_values
    settings = {"keep_purge_control_calls": keep_calls}
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
    logs = logs_of_scan(world, **settings)

    assert entries_named(logs, "restoration") == [
        {"module": "extraction", "entry_id": ident, "session": "main/s",
         "keys_restored": list(SIZES),
         "sizes_bytes": SIZES, "redacted": not keep_calls, "log_level": "debug"}
    ]  # fmt: skip
    assert (b'"_redacted":true' in path.read_bytes()) is not keep_calls


def test_log_of_a_scan_ends_with_its_counts(world, session_with_two_values):
    """At info, a scan's end is logged with its files, sessions, values and bytes."""
    path, _ = session_with_two_values
    before = path.stat().st_size
    [finished] = entries_named(logs_of_scan(world), "scan_finished")

    assert finished.pop("duration_seconds") >= 0
    assert finished == {
        "module": "scan", "log_level": "info", "files_seen": 1, "files_unchanged": 0,
        "files_deferred": 0, "files_failed": 0, "sessions_changed": 1, "values_extracted": 2,
        "values_restored": 0, "bytes_before": before, "bytes_after": path.stat().st_size,
        "dry_run": False,
    }  # fmt: skip


def test_log_of_a_scan_names_changed_and_deferred_sessions(
    world, session_with_two_values, conversation
):
    """A changed session is logged at info with sizes, a deferred one at debug with its reason."""
    path, _ = session_with_two_values
    before = path.stat().st_size
    conversation.user()
    world.put("busy.jsonl", conversation.bytes(), age=60)
    logs = logs_of_scan(world)

    assert entries_named(logs, "session_changed") == [
        {"module": "scan", "session": "main/s", "reason": "2 extracted", "log_level": "info",
         "bytes_before": before, "bytes_after": path.stat().st_size}
    ]  # fmt: skip
    assert entries_named(logs, "session_left") == [
        {"module": "scan", "session": "main/busy", "outcome": "deferred", "log_level": "debug",
         "reason": "the last turn is open: a user message"}
    ]  # fmt: skip


def test_log_of_a_scan_notes_a_deferred_session_once(world, conversation):
    """While the same number of sessions is deferred, scans that change nothing end at debug."""
    conversation.user()
    world.put("busy.jsonl", conversation.bytes(), age=60)
    reported = set()
    ends = [entries_named(logs_of_scan(world, reported), "scan_finished") for _ in range(3)]

    assert [end["log_level"] for [end] in ends] == ["info", "debug", "debug"]


def test_log_warns_once_of_a_lasting_problem(world):
    """A missing root or a disabled scan is a warning at first and debug while it lasts."""
    root, warned = world.root, set()
    away = [{"path": str(root)}, {"path": str(world.base / "later")}]
    levels = []
    for roots, enabled in ((away, False), (away, False), (away[:1], True), (away, True)):
        logs = logs_of_scan(world, warned, roots=roots, enabled=enabled)
        levels.append([
            {entry["log_level"] for entry in entries_named(logs, event)}
            for event in ("root_unreadable", "scan_disabled", "scan_finished")
        ])  # fmt: skip

    assert levels == [
        [{"warning"}, {"warning"}, {"info"}], [{"debug"}, {"debug"}, {"debug"}],
        [set(), set(), {"debug"}], [{"warning"}, set(), {"info"}],
    ]  # fmt: skip


def test_log_names_failed_sessions_and_unreadable_roots(
    world, session_with_two_values, monkeypatch
):
    """A failed session is logged as an error, an unreadable root as a warning, with reasons."""

    def fail(*_, **__):
        raise OSError(5, "Input/output error", CANARY)

    monkeypatch.setattr("brainsurgeon.files.exchange.prepare", fail)
    roots = [{"path": str(world.root)}, {"path": str(world.base / "none")}]
    logs = logs_of_scan(world, roots=roots)

    assert entries_named(logs, "session_failed") == [
        {"module": "scan", "session": "main/s", "reason": "Input/output error",
         "log_level": "error"}
    ]  # fmt: skip
    assert entries_named(logs, "root_unreadable") == [
        {"module": "scan", "path": str(world.base / "none"), "reason": "no such directory",
         "log_level": "warning"}
    ]  # fmt: skip


def test_sessions_are_logged_while_the_scan_goes_on(world, conversation, monkeypatch):
    """Changed sessions are logged before the last session is read, and a long scan shows life."""
    monkeypatch.setattr("brainsurgeon.operations.scan.ALIVE_SECONDS", 0.0)
    conversation.turn()
    conversation.turn("short")
    for number in range(20):
        world.put(f"s{number:02}.jsonl", conversation.bytes())
    seen = []
    watch = Watch(
        lambda file: seen.append(file.name), ended=lambda one: seen.append(one.outcome),
        alive=lambda *counts: seen.append(counts),
    )  # fmt: skip
    world.scan(watch=watch, keep_recent=0)

    assert seen.index("changed") < seen.index("s19.jsonl")
    assert seen[:2] == [(1, 20), "s00.jsonl"]
    assert (20, 20) in seen


def test_full_disk_is_logged_once(world):
    """If the store's disk is full, one session failed; the others wait, and all are tried again."""
    for number in range(20):
        other = Conversation(f"11111111-0000-4000-8000-0000000000{number:02}")
        other.turn(random.Random(number).randbytes(50_000).hex())
        other.turn("short")
        world.put(f"s{number:02}.jsonl", other.bytes())
    world.scan(enabled=False)
    fill_store_disk(world.store)
    logs = logs_of_scan(world, keep_recent=0)
    [failed] = entries_named(logs, "session_failed")

    assert "the disk is full" in failed["reason"]
    assert [entry["outcome"] for entry in entries_named(logs, "session_left")] == ["deferred"] * 19
    empty_store_disk(world.store)
    assert world.scan(keep_recent=0).sessions_changed == 20


def test_log_of_retention_names_roots_held_back():
    """A retention run logs its counts, and a warning for each root where it deletes nothing."""
    report = RetentionReport(
        False, values_held=5, values_deleted=1, bytes_deleted=900,
        held_back={"/agents": "no such directory"},
    )  # fmt: skip

    assert logs_of(log.retention_finished, report) == [
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
def test_reason_of_an_unknown_error_is_its_type(error, words):
    """Only texts of own and system errors are logged; others may quote a session."""
    assert log.reason(error) == words


# --- how it looks --------------------------------------------------------------------------------


def log_lines(world, capsys, **settings):
    """Log a scan with a problem and a debug event, and return the lines on stderr."""
    log.set_up(world.settings(**settings))
    report = ScanReport(dry_run=False, unreadable=[Unreadable("/r", "/r", "no such directory")])
    log.scan_finished(report)
    structlog.get_logger().debug("detail", module="test")
    shown = capsys.readouterr()

    assert shown.out == ""
    return shown.err.splitlines()


def test_log_without_a_terminal_is_json_lines(world, capsys):
    """Without a terminal, each event is one JSON line on stderr with level and time."""
    events = [json.loads(line) for line in log_lines(world, capsys)]

    assert [(event["event"], event["level"]) for event in events] == [
        ("root_unreadable", "warning"), ("scan_finished", "info"),
    ]  # fmt: skip
    assert all(event["timestamp"].endswith("Z") for event in events)


def test_log_line_begins_with_event_and_session(world, monkeypatch, tmp_path):
    """The event comes first, then level and session, then the figures; JSON and text alike."""
    outcome = Outcome("main/s", "/r/s.jsonl", "pi", "changed", "1 extracted", 900, 100)
    names = ["session", "reason", "bytes_before", "bytes_after", "module"]
    for is_terminal in (False, True):
        with open(tmp_path / "log", "w+") as stream:
            monkeypatch.setattr(stream, "isatty", lambda shown=is_terminal: shown)
            monkeypatch.setattr(sys, "stderr", stream)
            log.set_up(world.settings())
            log.session(outcome)
        line = (tmp_path / "log").read_text()
        if is_terminal:
            plain = re.sub(r"\x1b\[\d*m", "", line)

            assert re.findall(r"(\w+)=", plain) == names
            assert plain.split("] ")[1].startswith("session_changed ")
        else:
            assert [*json.loads(line)] == ["event", "level", *names, "timestamp"]


@pytest.mark.parametrize("connected", [True, False])
def test_log_in_a_journal_has_priorities(world, monkeypatch, tmp_path, connected):
    """If JOURNAL_STREAM names stderr, each line begins with its priority in angle brackets."""
    with open(tmp_path / "log", "w+") as stream:
        status = os.fstat(stream.fileno())
        named = f"{status.st_dev}:{status.st_ino + (not connected)}"
        monkeypatch.setenv("JOURNAL_STREAM", named)
        monkeypatch.setattr(sys, "stderr", stream)
        log.set_up(world.settings(log_level="debug"))
        for level in ("error", "warning", "info", "debug"):
            getattr(structlog.get_logger(), level)("happened", module="test")
    begins = [line.partition("{")[0] for line in (tmp_path / "log").read_text().splitlines()]

    assert begins == (["<3>", "<4>", "<6>", "<7>"] if connected else [""] * 4)


@pytest.mark.parametrize(
    ("level", "count"), [("debug", 3), ("info", 2), ("warning", 1), ("error", 0)]
)
def test_log_level_hides_lower_events(world, capsys, level, count):
    """Events below `log_level` are not printed."""
    assert len(log_lines(world, capsys, log_level=level)) == count


# --- the canary ----------------------------------------------------------------------------------


def canary_conversation(session="11111111-0000-4000-8000-000000000001"):
    """Return a conversation with the canary in every text, and an entry's id."""
    conversation = Conversation(session)
    conversation.user(VALUE)
    conversation.assistant([
        {"type": "thinking", "thinking": VALUE},
        {"type": "toolCall", "id": "call_1", "name": "exec", "arguments": {"command": VALUE}},
    ], stop="toolUse")  # fmt: skip
    ident = conversation.result(VALUE, details={"aggregated": VALUE})
    conversation.assistant(VALUE)
    conversation.entry("custom", customType="state", data={"secret": VALUE})
    conversation.turn(VALUE)
    conversation.user("odd fields", _restored=CANARY)
    conversation.result(VALUE, _extractable=CANARY)
    conversation.assistant()
    conversation.turn("short")
    conversation.lines.append({"type": VALUE})
    return conversation, ident


@pytest.fixture
def canary_session(world):
    conversation, ident = canary_conversation()
    whole = conversation.bytes()
    broken = f'{{"type":"message","id":"{CANARY[:4]}", "message": {VALUE}\n'.encode()
    path = world.put("s.jsonl", whole.replace(b"\n", b"\n" + broken, 1))
    other, _ = canary_conversation("22222222-0000-4000-8000-000000000002")
    world.put("t.jsonl", other.bytes() + b'{"torn": "' + VALUE.encode())
    return path, ident


@pytest.fixture
def run_command(world, monkeypatch, capfdbinary):
    """Return a function that runs a command in this process with the log level debug."""
    config = str(world.config_file(log_level="debug"))

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["brainsurgeon", *words, "--config", config])
        code = cli._run()
        shown = capfdbinary.readouterr()
        return code, shown.out, shown.err

    return command


def test_only_show_prints_the_content_of_a_value(canary_session, run_command):
    """Scans, restores, listings, checks and errors print no content of a session; show does."""
    path, ident = canary_session
    name = ("--session", "main/s")
    commands = [
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
    for words in commands:
        code, out, err = run_command(*words)
        codes[words] = code

        assert CANARY.encode() not in out + err, words
        assert b"Traceback" not in err
    assert codes["scan", "--once"] == 0
    assert codes["restore", "nosuchentry"] == 3
    assert CANARY.encode() in path.read_bytes()

    for words in (("show", ident, *name), ("show", "main/s")):
        code, out, err = run_command(*words)

        assert code == 0
        assert CANARY.encode() in out
        assert CANARY.encode() not in err


def test_a_pending_restore_prints_values_to_stdout_only(canary_session, run_command):
    """While the turn is open, restore prints the values to stdout; stderr has none of them."""
    path, ident = canary_session
    run_command("scan", "--once")
    append(
        path, [{"type": "message", "id": "abcdef01", "message": {"role": "user", "content": "?"}}]
    )
    os.utime(path)
    for words in ((), ("--json",)):
        code, out, err = run_command("restore", ident, "--session", "main/s", *words)

        assert code == 0
        assert CANARY.encode() in out
        assert b"restoration" in err
        assert CANARY.encode() not in err


@pytest.mark.parametrize(
    "broken",
    ["planning.plan.archive_turns", "lookup.sessions.discover", "lookup.opening.open_store"],
)
def test_an_unexpected_error_does_not_quote_a_session(
    canary_session, run_command, monkeypatch, broken
):
    """An unexpected error exits 1 with its type, without its text or a traceback."""

    def fail(*_, **__):
        raise ValueError(VALUE)

    monkeypatch.setattr(f"brainsurgeon.{broken}", fail)
    code, out, err = run_command("scan", "--once", "--session", "main/s")

    assert code == 1
    assert b"ValueError" in out + err
    assert CANARY.encode() not in out + err
    assert b"Traceback" not in err


def test_daemon_log_has_no_content_of_a_value(world, canary_session):
    """At debug, extracting and fulfilling a restore request log no content of a value."""
    path, ident = canary_session
    daemon = DaemonProcess(world, scan_interval_seconds=1)
    try:
        daemon.wait_for("scan_finished", sessions_changed=2)
        world.restore(ident, session="main/s", quiet_seconds=10**6)
        with closing(world.store):
            daemon.wait_for("restoration")
        world._stores.clear()
        os.kill(daemon.process.pid, signal.SIGTERM)

        assert daemon.process.wait(20) == 0
    finally:
        daemon.kill()
    output = daemon.err.read_bytes() + daemon.out.read_bytes()

    assert daemon.logged("extraction")
    assert CANARY.encode() in path.read_bytes()
    assert CANARY.encode() not in output


def events_in_source():
    """Return the fields of each event, read from the logging calls in the source."""
    events = {}
    for name in ("log.py", "daemon.py"):
        for node in ast.walk(ast.parse((Path(log.__file__).parent / name).read_text())):
            if not (isinstance(node, ast.Call) and node.args and node.keywords):
                continue
            event, fields = node.args[0], {keyword.arg for keyword in node.keywords}
            if isinstance(event, ast.Constant) and fields & {"module", None}:
                shared = (
                    {"session", "reason"} if None in fields else set()
                )  # fields passed on as keywords
                events.setdefault(event.value, set()).update(fields - {"module", None} | shared)
    return events


def test_reference_lists_all_events_and_their_fields():
    """The table of events in operations.md matches the logging calls in the source."""
    page = (TOP / "deploy" / "docs" / "operations.md").read_text()
    table = re.search(r"<!-- log -->\n(.*?)<!-- end of log -->", page, re.DOTALL)[1]
    rows = re.findall(r"^\| `(\w+)` \| .*? \| (.*)\|$", table, re.MULTILINE)
    documented = {event: set(re.findall(r"`(\w+)`", fields)) for event, fields in rows}

    assert documented == events_in_source()
