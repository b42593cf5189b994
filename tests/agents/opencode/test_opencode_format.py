"""What rows of opencode say: which texts requests contain, and what may leave."""

import json

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.opencode.format import EMPTIED
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import Line

OPENCODE = FORMATS["opencode"]
LONG = "a long text " * 60
SIGNED = {"anthropic": {"signature": "CAIS" + "x" * 400}}


def line(message, part, *, number=0, role="assistant", **row):
    """Return a line of a finished answer, or of a prompt."""
    prompt = role == "user"
    stated = {
        "id": f"prt_{message}{number}", "session": "ses_1", "message": message, "role": role,
        "created": 1795889863340, "parent": None if prompt else "u", "model": "m", "error": None,
        "finish": None if prompt else "stop", "completed": int(not prompt), "summary": 0,
        "beside": 1,
    }  # fmt: skip
    return json.dumps({"row": stated | row, "part": part}).encode()


def transcript(*lines):
    at, listed = 0, []
    for number, raw in enumerate(lines, 1):
        listed.append(Line(number, at, raw))
        at += len(raw) + 1
    return Transcript.read(OPENCODE, listed)


PROMPT = line("u", {"type": "text", "text": "go on"}, role="user")
ANSWER = line("z", {"type": "text", "text": "done"}, number=9)


def values(raw, **row):
    read = transcript(PROMPT, raw, ANSWER)
    return {".".join(map(str, value.path)): value for value in read.values(1)}


def tool(status="completed", **state):
    state = {"status": status, "input": {"command": "x"}, **state}
    return {"type": "tool", "tool": "bash", "callID": "c1", "state": state}


def test_signed_thinking_is_one_value_with_its_signature():
    """Its block leaves as a whole; unsigned thinking is a text, and other signatures stay."""
    thought = {"type": "reasoning", "text": LONG, "time": {"start": 1}}
    (whole,) = values(line("a", {**thought, "metadata": SIGNED})).values()
    assert (whole.path, whole.instead, whole.block, whole.locked) == (
        ("part",), EMPTIED, True, "signed thinking of the last turn",
    )  # fmt: skip
    (plain,) = values(line("a", thought)).values()
    assert (plain.path, plain.block, plain.locked) == (("part", "text"), False, None)
    for metadata, locked in (
        ({"openai": {"itemId": "rs_1"}}, "thinking signed by its provider"),
        ({"google": {"thoughtSignature": "x"}}, "thinking signed by its provider"),
        ({"anthropic": {"redactedData": "x"}}, "thinking signed by its provider"),
    ):
        (one,) = values(line("a", {**thought, "metadata": metadata})).values()
        assert one.locked == locked
    read = transcript(line("a", {**thought, "metadata": SIGNED}), PROMPT, ANSWER)
    assert [value.locked for value in read.values(0)] == [None]
    alone = transcript(line("a", {**thought, "metadata": SIGNED}, beside=0), PROMPT, ANSWER)
    assert [value.locked for value in alone.values(0)] == ["nothing else is in its message"]
    (thoughts,) = [entry.thoughts for entry in read.entries if entry.thoughts]
    assert (thoughts.blocks, thoughts.models) == (((("part",), len(LONG)),), ("m",))
    emptied = json.dumps({"row": {}, "part": json.loads(EMPTIED)}).encode()
    marks = marks_in(emptied, json.loads(emptied), (EMPTIED,), has_emptied=True)
    assert ("part",) in marks.stands


@pytest.mark.parametrize(("state", "sent"), [
    ({"output": LONG, "metadata": {"output": LONG}}, "output"),
    ({"output": LONG, "time": {"compacted": 1}}, None),
    ({"status": "error", "error": LONG, "metadata": {"output": LONG}}, "error"),
    ({"status": "error", "error": LONG, "metadata": {"output": LONG, "interrupted": True}},
     "metadata.output"),
    ({"status": "running", "metadata": {"output": LONG}}, None),
])  # fmt: skip
def test_one_text_of_a_result_is_sent_others_are_dead(state, sent):
    """Which text it is depends on the state of the call, and whether opencode left it out."""
    found = values(line("a", tool(**state)))

    live = [path for path, value in found.items() if value.kind == "tool_result" and not value.dead]
    assert live == ([f"part.state.{sent}"] if sent else [])
    read = transcript(PROMPT, line("a", tool(**state)), ANSWER)
    assert (read.sent(1).chars > len(LONG)) == bool(sent)


def test_pictures_of_a_request_leave_as_a_whole():
    """Those of tools as one list. What only names a file, or was added as text, stays."""
    url = "data:image/png;base64," + "A" * 900
    files = [{"type": "file", "mime": "image/png", "url": url}] * 2
    found = values(line("a", tool(output="read", attachments=files)))
    assert found["part.state.attachments"].size == (0, 1, 2 * len(url))
    bare = values(line("a", tool(attachments=files)))["part.state.attachments"]
    assert bare.locked == "its result has no text"
    file = {"type": "file", "mime": "image/png", "url": url}
    (whole,) = values(line("v", file, role="user")).values()
    assert (whole.kind, whole.block, whole.path) == ("user", True, ("part",))
    for other in ({"mime": "text/plain"}, {"url": "file:///x"}):
        assert not values(line("v", {**file, **other}, role="user"))
    read = transcript(line("v", {"type": "text", "text": "x", "synthetic": True}, role="user"))
    assert (read.entries[0].role, read.entries[0].values[0].kind) == ("aside", "custom")
    read = transcript(line("v", {"type": "text", "text": LONG, "ignored": True}, role="user"))
    assert read.sent(0).chars == 0


def test_requests_begin_at_the_last_completed_compaction():
    """What is before it is dead, but not its tail; a compaction without summary changes nothing."""

    def compacted(*, tail=None, **row):
        part = {"type": "compaction", "auto": False, **({"tail_start_id": tail} if tail else {})}
        summary = {"summary": 1, "parent": "c", **row}
        return transcript(
            PROMPT, line("a", tool(output=LONG)), line("b", tool(output=LONG)),
            line("c", part, role="user"), line("s", {"type": "text", "text": "so far"}, **summary),
            line("v", {"type": "text", "text": "go on"}, role="user"),
            line("z", {"type": "text", "text": "done"}, parent="v"),
        )  # fmt: skip

    assert sorted(compacted().chain.dead) == [0, 1, 2]
    assert sorted(compacted(tail="b").chain.dead) == [0, 1]
    for row in ({"finish": None}, {"error": "APIError"}, {"summary": 0}):
        assert 0 not in compacted(**row).chain.dead
    assert compacted().chain.open_turn is None


def test_failed_answers_are_not_sent_and_close_their_turn():
    """A stopped answer is sent; that of a failed call is not, and counts as no message."""

    def after(error):
        return transcript(
            PROMPT, line("a", {"type": "text", "text": LONG}, error=error, finish=None),
        ).chain  # fmt: skip

    assert after("APIError").dead == {1: "its answer failed"}
    assert after("MessageAbortedError").dead == {}
    assert after("APIError").open_turn is after("MessageAbortedError").open_turn is None


def test_commands_of_the_user_leave_no_open_turn():
    """The answer with the result of `!command` has no step and no reason why it finished."""
    said = {"type": "text", "text": "The following tool was executed by the user"}
    prompt = line("v", {**said, "synthetic": True}, role="user")

    def after(status, *steps, completed=1):
        parts = (*steps, tool(status, output="x"))
        row = {"parent": "v", "finish": None, "completed": completed}
        return transcript(
            PROMPT, ANSWER, prompt, *(line("b", part, number=at, **row) for at, part in
                                      enumerate(parts)),
        ).chain.open_turn  # fmt: skip

    assert after("completed") is None
    assert after("running", completed=0) == "the last turn is open: a tool call"
    waiting = "the last turn is open: a prompt without a complete answer"
    assert after("completed", {"type": "step-start"}) == waiting


def test_steps_record_their_calls_of_the_model():
    """Tokens and costs are those of the last part of a message."""
    tokens = {"input": 10, "output": 3, "reasoning": 2, "cache": {"read": 100, "write": 20}}
    part = {"type": "step-finish", "reason": "stop", "tokens": tokens, "cost": 0.25}

    (call,) = [one.call for one in transcript(PROMPT, line("a", part)).entries if one.call]

    assert (call.model, call.tokens, call.cached, call.written, call.output, call.dollars) == (
        "m", 130, 100, 20, 5, 0.25,
    )  # fmt: skip
