"""Roles of entries in a turn, in each format."""

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.openclaw.format import OpenClawRows
from brainsurgeon.formats.base import NO_STEP
from building.world import Conversation

OPENCLAW, GENERIC, CLAUDE = (FORMATS[name] for name in ("openclaw", "generic", "claude-code"))


def claude(kind, content, **more):
    message = {"role": kind, "content": content}
    return {"type": kind, "uuid": "u1", "parentUuid": "u0", "message": message, **more}


def test_archive_form_of_each_format():
    """Archives are linked for OpenClaw and pi, flat for other files, and None for databases."""
    forms = [form.archives for form in (OPENCLAW, GENERIC, CLAUDE, OpenClawRows())]

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
def test_openclaw_entry_roles(entry, role):
    """Entries on which the branch depends are fixed, and so are entries of unknown types."""
    assert OPENCLAW.read(entry).step.role == role


def test_reply_closes_its_turn_by_its_stop_reason():
    """A complete reply closes the turn unless it is never sent again. The step has its last text.

    A failed or aborted reply was cut short, but is never sent again.
    """
    conversation = Conversation()
    texts = [{"type": "text", "text": "first"}, {"type": "text", "text": "last"}]
    steps = {}
    for stop in ("stop", "length", "error", "aborted", "toolUse", None):
        conversation.assistant(texts, stop=stop)
        steps[stop] = OPENCLAW.read(conversation.lines[-1]).step

    assert [stop for stop, step in steps.items() if step.closes] == ["stop", "length"]
    cut_short = [stop for stop, step in steps.items() if step.cut_short]
    assert cut_short == ["length", "error", "aborted"]
    assert (steps["stop"].text, steps["stop"].text_path) == (
        "last", ("message", "content", 1, "text"),
    )  # fmt: skip


def test_step_names_files_of_a_call_and_finding_of_a_result():
    """A call has its tool and files; a failed result has its first line as its finding."""
    conversation = Conversation()
    conversation.call("write", {"path": "/a", "content": "x"}, call="c1")
    (call,) = OPENCLAW.read(conversation.lines[-1]).step.calls
    conversation.result("\n  no such file\nmore", call="c1")
    conversation.lines[-1]["message"]["isError"] = True
    (result,) = OPENCLAW.read(conversation.lines[-1]).step.results

    assert (call.call_id, call.tool, call.files) == ("c1", "write", ("/a",))
    assert (result.call_id, result.failed, result.finding) == ("c1", True, "no such file")


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
def test_claude_code_line_roles(entry, role):
    """A prompt is a user message that is not a result, note, summary or interruption."""
    assert CLAUDE.read(entry).step.role == role


@pytest.mark.parametrize(
    ("more", "closes"), [({}, True), ({"isApiErrorMessage": True}, False)]
)  # fmt: skip
def test_claude_code_reply_closes_its_turn_if_it_is_sent_again(more, closes):
    """Claude Code never sends the message of a failed request, so this closes no turn."""
    step = CLAUDE.read(claude("assistant", [{"type": "text", "text": "API Error"}], **more)).step

    assert (step.closes, step.cut_short) == (closes, not closes)


def test_header_and_sidechain_lines_are_in_no_turn():
    """OpenClaw's header describes the session, and a sub-agent's line is outside of it."""
    assert OPENCLAW.read({"type": "session", "id": "s"}).step == NO_STEP
    assert CLAUDE.read(claude("user", "go", isSidechain=True)).step == NO_STEP


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
def test_generic_entry_roles_and_closing_replies(entry, role, closes):
    """A reply closes its turn if it has text, no call and no stop reason for a call."""
    step = GENERIC.read(entry).step

    assert (step.role, step.closes) == (role, closes)
