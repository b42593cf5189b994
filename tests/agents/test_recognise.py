"""Recognising the format of a file by its first entries."""

import pytest

from brainsurgeon.agents import FORMATS, is_session_name
from brainsurgeon.formats.recognition import recognise
from brainsurgeon.model.session_files import ANY
from building.format_reading import HEADER
from building.world import dump

OPENCLAW = FORMATS["openclaw"]
GENERIC = FORMATS["generic"]
RESULT = {"type": "tool_result", "__id": "msg-1", "output": "x"}
META = {"timestamp": "t", "type": "session_meta", "payload": {"id": "thread"}}
CLAUDE = {"parentUuid": None, "sessionId": "s", "type": "user", "uuid": "u",
          "message": {"role": "user", "content": "hi"}}  # fmt: skip


@pytest.mark.parametrize(
    ("head", "hint", "form"),
    [
        ([HEADER], "auto", OPENCLAW),
        ([{**HEADER, "version": 2}], "auto", OPENCLAW),
        ([HEADER, RESULT], "openclaw", OPENCLAW),
        ([HEADER, CLAUDE], "auto", OPENCLAW),
        ([RESULT], "auto", GENERIC),
        ([RESULT], "generic", GENERIC),
        ([{"note": 1}, {"type": "message", "__id": 7, "role": "user", "text": "x"}],
         "auto", GENERIC),
        ([{"type": "tool_result", "id": "1", "output": "x"}], "generic", GENERIC),
    ],
)  # fmt: skip
def test_recognise_finds_the_format_by_the_first_entries(head, hint, form):
    """A matching hint changes nothing, and the session id is read from the same entries."""
    recognition = recognise([dump(entry) for entry in head], FORMATS, hint)

    assert (recognition.form, recognition.reason, recognition.name) == (form, "", form.name)
    assert recognition.identity == form.session(head)


@pytest.mark.parametrize(
    ("head", "hint", "reason"),
    [
        ([{key: HEADER[key] for key in ("type", "id", "cwd")}], "auto",
         "version 1: pi migrates it"),
        ([{**HEADER, "version": 1}], "auto", "version 1: pi migrates it"),
        ([{**HEADER, "version": 4}], "auto", "version 4 is not known"),
        ([{**HEADER, "version": "3"}], "auto", "version of an unknown kind is not known"),
        ([{**HEADER, "version": None}], "auto", "version of an unknown kind is not known"),
        ([{**HEADER, "version": [3]}], "auto", "version of an unknown kind is not known"),
        ([{**HEADER, "id": 7}], "auto", "not a known session format"),
        ([{"id": "s", "timestamp": "t", "instructions": None}, {"record_type": "state"}],
         "auto", "not a known session format"),
        ([{"type": []}, {"type": {}}], "auto", "not a known session format"),
        ([RESULT], "openclaw", "configured as openclaw, but has another format"),
        ([HEADER], "codex", "configured as codex, but has another format"),
    ],
)  # fmt: skip
def test_recognise_refuses_unknown_versions_and_formats(head, hint, reason):
    """A file with another version or format gets a reason. If its format is known, it is named."""
    recognition = recognise([dump(entry) for entry in head], FORMATS, hint)
    known = "openclaw" if "version" in reason else None

    assert (recognition.form, recognition.name, recognition.identity) == (None, known, None)
    assert reason in recognition.reason


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ([], "empty"),
        ([b"", b"  ", b"\r"], "empty"),
        ([b"{", b'  "sessionId": "x",'], "pretty-printed JSON"),
        ([b"[", b"  1"], "pretty-printed JSON"),
        ([b"hello", b"[1]", b'"text"', b"null", b'{"torn":'], "no JSON objects"),
        ([b'{"type":"session","version":3,"id":"\xff"}'], "no JSON objects"),
    ],
)
def test_recognise_refuses_what_is_not_json_lines(head, reason):
    """Empty, pretty-printed and other files without JSON objects in lines get a reason."""
    recognition = recognise(head, FORMATS)

    assert (recognition.form, recognition.name, recognition.identity) == (None, None, None)
    assert reason in recognition.reason


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ([META], "codex"),
        ([CLAUDE], "claude-code"),
        ([{"type": "summary", "summary": "s", "leafUuid": "u"}], "claude-code"),
        ([{"type": "file-history-snapshot", "messageId": "m"}, CLAUDE], "claude-code"),
        ([{"type": "queue-operation", "operation": "enqueue"}], "claude-code"),
        ([{**CLAUDE, "type": "progress", "isSidechain": False, "message": None}], "claude-code"),
    ],
)
def test_recognise_names_claude_code_and_codex(head, name):
    """Files of Claude Code and Codex are never generic ones."""
    recognition = recognise([dump(entry) for entry in head], FORMATS)

    assert (recognition.form, recognition.reason) == (FORMATS[name], "")
    assert recognition.name == name


# The first lines that other agents wrote, without texts: Qwen Code 0.24.4, OpenClaw's trajectories,
# Kimi Code, nanobot.
OTHERS = {
    "qwen": [
        {"uuid": "u", "parentUuid": None, "sessionId": "s", "timestamp": "t", "type": "user",
         "provenance": "real_user", "cwd": "/ws", "version": "0.24.4",
         "message": {"role": "user", "parts": [{"text": "hi"}]}},
        {"uuid": "v", "parentUuid": "u", "sessionId": "s", "timestamp": "t", "type": "system",
         "provenance": "system", "cwd": "/ws", "version": "0.24.4", "subtype": "ui_telemetry",
         "systemPayload": {"uiEvent": {}}},
    ],
    "trajectory": [
        {"type": "session.started", "sessionId": "s", "sessionKey": "k", "traceId": "t", "seq": 1,
         "data": {}},
    ],
    "kimi": [{"type": "metadata", "protocol_version": "1.5", "created_at": 1}],
    "nanobot": [{"_type": "metadata", "key": "cli:six"}, {"role": "user", "content": "hi"}],
    "a summary": [{"type": "summary", "text": "s", "sessionId": "s"}],
    "progress": [{"type": "progress", "percent": 10}],
}  # fmt: skip


@pytest.mark.parametrize("agent", OTHERS)
def test_sessions_of_other_agents_are_unknown(agent):
    """Keys that several agents write, such as `sessionId` and `parentUuid`, recognise none."""
    recognition = recognise([dump(entry) for entry in OTHERS[agent]], FORMATS)

    assert (recognition.form, recognition.name) == (None, None)
    assert recognition.reason == "not a known session format"


def test_configured_format_does_not_make_a_codex_file_editable():
    """A Codex file is left alone below a root that is configured as another format."""
    for hint in ("generic", "openclaw"):
        recognition = recognise([dump(META)], FORMATS, hint)

        assert (recognition.form, recognition.name) == (None, "codex")
        assert recognition.reason == f"configured as {hint}, but has another format"


def test_recognise_skips_byte_order_marks_and_broken_lines():
    """The first entry that parses decides, as it does for pi."""
    marked = recognise([b"\xef\xbb\xbf" + dump(HEADER)], FORMATS)
    torn = recognise([b"", b'{"torn', b"7", dump(HEADER)], FORMATS)

    assert marked.form is torn.form is OPENCLAW


def test_name_of_a_session_has_something_before_its_ending():
    """A hidden file that is called only `.jsonl` is no session."""
    assert is_session_name("a.jsonl")
    assert not is_session_name(".jsonl")


def test_a_value_that_is_nested_too_deeply_is_no_type():
    """It would end the walk, and so the run: no format asks for the text of such a value."""
    deep = b'{"type":' + b"[" * 1000 + b"]" * 1000 + b"}"
    talk = [b'{"type":"title","v":1}', deep, b'{"type":"session","id":"one"}']

    assert recognise([deep], FORMATS, ANY).reason == "not a known session format"
    assert recognise(talk, FORMATS, ANY)[1:] == ("", "oh-my-pi", "one")
