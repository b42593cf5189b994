"""What each dialect says of its entries as parts of a turn."""

import pytest

from brainsurgeon.formats import FORMATS
from brainsurgeon.formats.openclaw import OpenClawRows
from building.world import Conversation

OPENCLAW, GENERIC, CLAUDE = (FORMATS[name] for name in ("openclaw", "generic", "claude-code"))


def claude(kind, content, **more):
    message = {"role": kind, "content": content}
    return {"type": kind, "uuid": "u1", "parentUuid": "u0", "message": message, **more}


def test_each_dialect_has_its_form():
    """Files of OpenClaw and pi are linked, others flat, and databases have no form."""
    forms = [one.archives for one in (OPENCLAW, GENERIC, CLAUDE, OpenClawRows())]

    assert forms == ["linked", "flat", "flat", None]


@pytest.mark.parametrize(
    ("entry", "role"),
    [
        ({"type": "message", "message": {"role": "user", "content": "go"}}, "prompt"),
        ({"type": "message", "message": {"role": "bashExecution", "output": "x"}}, "aside"),
        ({"type": "message", "message": {"role": "system", "content": "x"}}, "fixed"),
        ({"type": "custom_message", "content": "x"}, "aside"),
        ({"type": "label", "targetId": "a"}, "note"),
        ({"type": "model_change"}, "note"),
        *(({"type": kind}, "fixed") for kind in (
            "compaction", "thinking_level_change", "custom", "branch_summary", "leaf", "unheard of",
        )),
    ],
)  # fmt: skip
def test_what_openclaws_entries_are(entry, role):
    """Only what nothing on the branch depends on may be left behind."""
    assert OPENCLAW.turn_step(entry).role == role


def test_the_header_is_no_part_of_the_conversation():
    """A session's first entry is in no turn."""
    assert OPENCLAW.turn_step({"type": "session", "id": "s"}) is None


def test_a_reply_that_stopped_and_calls_nothing_closes_its_turn():
    """Text, no call, and a stop that is one; its last text is what a summary stands for."""
    talk = Conversation()
    texts = [{"type": "text", "text": "first"}, {"type": "text", "text": "last"}]
    said = {}
    for stop in ("stop", "length", "error", "aborted", "toolUse", None):
        talk.assistant(texts, stop=stop)
        said[stop] = OPENCLAW.turn_step(talk.lines[-1])

    assert [stop for stop, one in said.items() if one.closes] == [
        "stop", "length", "error", "aborted",
    ]  # fmt: skip
    assert [stop for stop, one in said.items() if one.cut_short] == ["length", "error", "aborted"]
    assert (said["stop"].text, said["stop"].text_path) == (
        "last", ("message", "content", 1, "text"),
    )  # fmt: skip


def test_calls_name_their_files_and_results_their_failure():
    """Of a call the tool and the files are known, of a failed result its first line."""
    talk = Conversation()
    talk.call("write", {"path": "/a", "content": "x"}, call="c1")
    (asked,) = OPENCLAW.turn_step(talk.lines[-1]).calls
    talk.result("\n  no such file\nmore", call="c1")
    talk.lines[-1]["message"]["isError"] = True
    (answered,) = OPENCLAW.turn_step(talk.lines[-1]).results

    assert (asked.call_id, asked.tool, asked.files) == ("c1", "write", ("/a",))
    assert (answered.call_id, answered.failed, answered.finding) == ("c1", True, "no such file")


@pytest.mark.parametrize(
    ("entry", "role"),
    [
        (claude("user", "go on"), "prompt"),
        (claude("user", [{"type": "text", "text": "go on"}]), "prompt"),
        (claude("user", [{"type": "image", "source": {}}]), "prompt"),
        (claude("user", "go on", isMeta=True), "aside"),
        (claude("user", "what was before", isCompactSummary=True), "aside"),
        (claude("user", "[Request interrupted by user]"), "aside"),
        (claude("user", "<local-command-stdout>x"), "aside"),
        (claude("user", [{"type": "tool_result", "tool_use_id": "t"}]), "result"),
        (claude("assistant", [{"type": "text", "text": "so"}]), "reply"),
        ({"type": "system", "uuid": "u", "subtype": "turn_duration"}, "note"),
    ],
)
def test_what_claude_codes_lines_are(entry, role):
    """A prompt is what the user said: no result, no note, no summary, no interruption."""
    assert CLAUDE.turn_step(entry).role == role


def test_a_sub_agents_line_is_in_no_turn():
    """What stands beside the chain is no part of the conversation."""
    assert CLAUDE.turn_step(claude("user", "go", isSidechain=True)) is None


@pytest.mark.parametrize(
    ("entry", "role", "closes"),
    [
        ({"type": "message", "role": "user", "content": "go"}, "prompt", False),
        ({"type": "message", "role": "assistant", "content": "so"}, "reply", True),
        ({"type": "message", "message": {"role": "assistant", "content": "so"}}, "reply", True),
        ({"type": "assistant", "text": "so", "stop_reason": "tool_use"}, "reply", False),
        ({"type": "assistant", "text": ""}, "reply", False),
        ({"type": "tool_call", "name": "exec", "arguments": {}}, "reply", False),
        ({"type": "tool_result", "output": "x"}, "result", False),
        ({"type": "thinking", "thinking": "x"}, "aside", False),
    ],
)
def test_what_generic_entries_are(entry, role, closes):
    """A reply closes its turn where it says something, calls nothing, and did not stop to call."""
    said = GENERIC.turn_step(entry)

    assert (said.role, said.closes) == (role, closes)
