"""Which format a file is, told by its first entries."""

import pytest

from brainsurgeon.formats import FORMATS, codex, recognise
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
def test_a_file_is_known_by_its_first_entries(head, hint, form):
    """Entries of a format that is supported name its adapter; a hint can only help."""
    said = recognise([dump(entry) for entry in head], hint)

    assert (said.form, said.reason, said.name) == (form, "", form.name)
    assert said.identity == form.session(head)


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
        ([{**HEADER, "id": 7}], "auto", "not a session format that is known"),
        ([{"id": "s", "timestamp": "t", "instructions": None}, {"record_type": "state"}],
         "auto", "not a session format that is known"),
        ([{"type": []}, {"type": {}}], "auto", "not a session format that is known"),
        ([RESULT], "openclaw", "configured as openclaw, but the file is not"),
        ([HEADER], "codex", "configured as codex, but the file is not"),
    ],
)  # fmt: skip
def test_a_file_that_is_left_alone_says_why(head, hint, reason):
    """A version or a format that nobody here understands is left alone, with the reason."""
    said = recognise([dump(entry) for entry in head], hint)

    assert (said.form, said.name, said.identity) == (None, None, None)
    assert reason in said.reason


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
def test_lines_that_are_no_entries_are_no_session(head, reason):
    """What is not JSON lines is left alone, with the reason."""
    said = recognise(head)

    assert (said.form, said.name, said.identity) == (None, None, None)
    assert reason in said.reason


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ([META], "codex"),
        ([CLAUDE], "claude-code"),
        ([{"type": "summary", "summary": "s", "leafUuid": "u"}], "claude-code"),
        ([{"type": "file-history-snapshot", "messageId": "m"}, CLAUDE], "claude-code"),
        ([{"type": "queue-operation", "operation": "enqueue"}], "claude-code"),
        ([{"type": "progress"}, RESULT], "claude-code"),
    ],
)
def test_files_of_other_agents_are_named(head, name):
    """Claude Code and Codex are known by their entries, and never taken for a generic file."""
    said = recognise([dump(entry) for entry in head])

    assert (said.form, said.name) == (FORMATS.get(name), name)
    assert said.reason == ("" if name in FORMATS else codex.ONLY_READ)


def test_byte_order_marks_and_broken_lines_are_passed_over():
    """The first entry that parses decides, as it does for pi."""
    marked = recognise([b"\xef\xbb\xbf" + dump(HEADER)])
    torn = recognise([b"", b'{"torn', b"7", dump(HEADER)])

    assert marked.form is torn.form is OPENCLAW
