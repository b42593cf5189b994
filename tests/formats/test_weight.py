"""Characters and images that a request carries, token counts of calls, and provider errors."""

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.openclaw.format import EMPTIED
from brainsurgeon.formats.weight import tokens_off
from brainsurgeon.model.entries import placeholder_named, placeholder_token
from brainsurgeon.model.turns import TOO_LONG, Refusal, Sent
from building.format_reading import record

CLAW, CLAUDE, GENERIC, CODEX = (
    FORMATS[name] for name in ("openclaw", "claude-code", "generic", "codex")
)
IMAGE = {"type": "image", "data": "A" * 9999, "mimeType": "image/png"}


def claw(**message):
    return {"type": "message", "id": "a", "message": message}


def claude(kind="user", content="", **more):
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {"type": kind, "uuid": "u", "message": message, **more}


def codex(**payload):
    return {"type": "response_item", "payload": payload}


@pytest.mark.parametrize(
    ("dialect", "entry", "sent"),
    [
        (CLAW, claw(role="user", content="12345"), Sent(5)),
        (CLAW, claw(role="user", content=[{"type": "text", "text": "123"}, IMAGE]),
         Sent(3, 1, 9999)),
        (CLAW, claw(role="toolResult", content=[{"type": "text", "text": "12"}],
                    details={"all": "x" * 99}), Sent(2)),
        (CLAW, claw(role="assistant", stopReason="toolUse", content=[
            {"type": "thinking", "thinking": "123", "thinkingSignature": "s" * 50},
            {"type": "toolCall", "name": "exec", "arguments": {"a": 1}},
        ]), Sent(3 + 4 + 8)),
        (CLAW, claw(role="assistant", stopReason="error", content="12"), Sent()),
        (CLAW, claw(role="bashExecution", command="ls", output="123"), Sent(5)),
        (CLAW, claw(role="bashExecution", command="ls", output="1", excludeFromContext=True),
         Sent()),
        (CLAW, {"type": "custom_message", "content": "1234"}, Sent(4)),
        (CLAW, {"type": "branch_summary", "summary": "12"}, Sent(2)),
        (CLAW, {"type": "model_change", "modelId": "m"}, Sent()),
        (CLAUDE, claude(content="1234"), Sent(4)),
        (CLAUDE, claude(content=[{"type": "tool_result", "content": [
            {"type": "text", "text": "12"}, {"type": "image", "source": {"data": "A" * 99}},
        ]}], toolUseResult={"stdout": "x" * 99}), Sent(2, 1, 99)),
        (CLAUDE, claude("assistant", [{"type": "tool_use", "name": "Bash", "input": {}}]),
         Sent(6)),
        (CLAUDE, claude("assistant", "Prompt is too long", isApiErrorMessage=True), Sent()),
        (CLAUDE, claude(content="1", isVisibleInTranscriptOnly=True), Sent()),
        (CLAUDE, {"type": "attachment", "uuid": "u", "rendered": "123",
                  "attachment": {"type": "file", "content": "x" * 99}}, Sent(3)),
        (CLAUDE, {"type": "queue-operation", "content": "123"}, Sent()),
        (CODEX, codex(type="function_call", name="sh", arguments="{}"), Sent(4)),
        (CODEX, codex(type="function_call_output", output="123"), Sent(3)),
        (CODEX, codex(type="reasoning", encrypted_content="x" * 99), Sent()),
        (CODEX, {"type": "event_msg", "payload": {"type": "agent_message", "message": "x"}},
         Sent()),
        (CODEX, {"type": "compacted", "payload": {"message": "12"}}, Sent(2)),
        (GENERIC, {"type": "tool_result", "__id": "a", "output": "12345"}, Sent(5)),
        (GENERIC, {"type": "note", "text": "12345"}, Sent()),
        (GENERIC, {"type": "tool_result", "content": [IMAGE, {**IMAGE, "type": "document"}]},
         Sent(0, 2, 19_998)),
        (CODEX, codex(type="message", content=[{"type": "input_image", "image_url": "data:,AA"}]),
         Sent(0, 1, 8)),
        (CLAUDE, claude(content=[{"type": "document", "source": {"type": "text", "data": "123"}}]),
         Sent(3)),
    ],
)  # fmt: skip
def test_sent_counts_only_characters_and_images_of_requests(dialect, entry, sent):
    """Values shown only on the screen, failed replies and control entries count nothing."""
    assert record(dialect, entry).sent == sent


SIGNED = {"type": "thinking", "thinking": "", "thinkingSignature": "s" * 4000}


@pytest.mark.parametrize(
    ("form", "entry", "path", "block", "tokens"),
    [
        ("openclaw", claw(role="toolResult", content="x" * 1000), ("message", "content"), False,
         492),
        ("openclaw", claw(role="toolResult", content=[IMAGE]), ("message", "content", 0), True,
         1492),
        ("openclaw", claw(role="toolResult", content="1", details={"diff": "x" * 1000}),
         ("message", "details", "diff"), False, 0),
        ("openclaw", claw(role="bashExecution", output="x" * 1000, excludeFromContext=True),
         ("message", "output"), False, 0),
        ("openclaw", claw(role="assistant", content=[SIGNED]), ("message", "content", 0), None, 0),
        ("claude-code", claude(content="1", toolUseResult={"stdout": "x" * 1000}),
         ("toolUseResult", "stdout"), False, 0),
        ("claude-code", claude("assistant", [{"type": "tool_use", "input": {"a": "x\n" * 500}}]),
         ("message", "content", 0, "input", "a"), False, 742),
    ],
)  # fmt: skip
def test_tokens_off_is_zero_for_what_requests_omit(form, entry, path, block, tokens):
    """Text counts at the session's rate and an image 1,500 tokens, whatever its size.

    A signature without text weighs nothing.
    """
    placeholder = placeholder_token(placeholder_named("a"), block=block is True)
    token = EMPTIED if block is None else placeholder
    before = repr(entry)

    assert tokens_off(FORMATS[form], entry, path, token, 0.5) == tokens
    assert repr(entry) == before


def test_call_tokens_include_cache_reads_and_writes():
    """The whole prompt counts, whatever the provider calls its parts."""
    usage = {"input": 1, "output": 999, "cacheRead": 20, "cacheWrite": 300}
    claude_usage = {
        "input_tokens": 1,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 300,
    }
    generic = {"type": "message", "usage": {"prompt_tokens": 321}, "model": "m"}

    assert record(CLAW, claw(role="assistant", usage=usage, model="m")).call.tokens == 321
    assert (
        record(CLAUDE, claude("assistant", message={"usage": claude_usage, "id": "i"})).call.tokens
        == 321
    )
    call = record(
        CLAUDE, claude("assistant", message={"usage": claude_usage, "id": "i"}, requestId="r")
    ).call
    assert call.ident == "i r"
    assert record(GENERIC, generic).call.tokens == 321
    assert record(GENERIC, generic).call.model == "m"
    nested = {"type": "message", "usage": None, "model": None, "message": generic}
    assert record(GENERIC, nested).call == record(GENERIC, generic).call
    assert record(CLAW, claw(role="user", content="x")).call is None
    assert record(CLAUDE, claude("assistant", message={"model": "<synthetic>"})).call is None


def test_openclaw_repeated_answer_is_not_a_call():
    """After a refused prompt OpenClaw writes the previous answer again, with zero usage."""
    nothing = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}

    assert record(CLAW, claw(role="assistant", api="cli", usage=nothing, model="m")).call is None
    assert (
        record(CLAW, claw(role="assistant", api="cli", usage={"input": 9}, model="m")).call.tokens
        == 9
    )


def test_malformed_values_weigh_nothing():
    """Values of unexpected types count as nothing, and none of them raises."""
    for odd in (None, 7, "x", [], [7], {"type": 7}, [{"type": ["x"], "text": 7}]):
        for dialect in FORMATS.values():
            for entry in (
                {"type": "message", "message": odd}, {"type": "assistant", "uuid": "u",
                "message": odd}, {"type": "response_item", "payload": odd},
                {"type": "event_msg", "payload": {"type": "token_count", "info": odd}},
                claw(role="assistant", content=odd, usage=odd, model=odd),
                claude("assistant", odd, message={"usage": odd, "id": odd, "model": odd}),
            ):  # fmt: skip
                assert dialect.read(entry).sent.pictures == 0
                call = record(dialect, entry).call
                assert call is None or call.tokens == 0
    assert record(CODEX, {"payload": {"model_context_window": "x"}}).own.window is None


def test_claude_code_limit_is_read_from_error_details():
    """Claude Code shows a short text and keeps the provider's answer in `errorDetails`."""
    shown = [{"type": "text", "text": "API Error"}]
    details = "63056 tokens > 45000 maximum"
    line = claude("assistant", shown, isApiErrorMessage=True, errorDetails=details)
    call = record(CLAUDE, line).call

    assert call.refusal == Refusal(TOO_LONG, 63_056, 45_000)
