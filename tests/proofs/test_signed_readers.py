"""Requests that the agents' own converters build from signed sessions after extraction.

A session is signed as its provider would sign it: each block of thinking with a digest of
everything that the converter puts before it.
"""

import json
import re

import pytest

from brainsurgeon.model.entries import KINDS
from brainsurgeon.model.turns import MARK
from building.model_requests import add_answer
from building.world import value_at
from proofs.agent_readers import AGENTS, REQUEST
from proofs.live.binding import prefixes
from proofs.live.messages import _ids

PLACEHOLDER = re.compile(r"\[\[extracted-[A-Za-z0-9._~-]+\]\]")
API = "anthropic-messages"
SIGNS, OLDER = "claude-fable-5-1", "claude-sonnet-4-5"
NAME = "11111111-0000-4000-8000-000000000001.jsonl"


@pytest.fixture(params=AGENTS)
def converted(request, reader):
    return reader(REQUEST, request.param)


def thought(tag, hollow=False, redacted=False):
    """Return a block of thinking that waits for its signature."""
    block = {"type": "thinking", "thinking": "" if hollow else f"thought {tag}, at length. " * 8,
             "thinkingSignature": f"<sign {tag}>"}  # fmt: skip
    return block | ({"redacted": True, "thinking": "[Reasoning redacted]"} if redacted else {})


def turn(conversation, tag, model=SIGNS, **odd):
    conversation.user(f"question {tag}")
    block = {"type": "toolCall", "id": f"call_{tag}", "name": "exec",
             "arguments": {"command": f"echo {tag}"}}  # fmt: skip
    add_answer(conversation, [thought(f"{tag}a"), block], API, "toolUse", model)
    ident = conversation.result(f"result of {tag}\n" * 100, call=f"call_{tag}")
    answer = {"type": "text", "text": f"answer {tag}"}
    add_answer(conversation, [thought(f"{tag}b", **odd), answer], API, model=model)
    return ident


def signed(converted, data):
    """Sign every thought of a session by what its converter puts before it."""
    marks = {}
    for before, block in prefixes(without_signatures(converted(data))):
        if mark := block.get("signature") or block.get("data"):
            marks[mark] = before
    text = data.decode()
    for mark, before in marks.items():
        text = text.replace(mark, f"{mark[1:-1]}={before}".replace(" ", "-"))
    return text.encode()


def without_signatures(messages):
    return [
        {**message, "content": [
            {**block, "signature": _bare(block["signature"])} if "signature" in block else
            {**block, "data": _bare(block["data"])} if "data" in block else block
            for block in blocks_of(message)
        ]}
        for message in messages
    ]  # fmt: skip


def _bare(signature):
    return (
        signature if signature.startswith("<") else f"<{signature.split('=')[0].replace('-', ' ')}>"
    )


def blocks_of(message):
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def broken(messages):
    """Return the signatures that follow something else than when they were signed."""
    marks = [block.get("signature") or block.get("data") for block in all_blocks(messages)]
    now = [before for before, _ in prefixes(without_signatures(messages))]
    return [
        mark for mark, before in zip(marks, now, strict=False)
        if mark and "=" in mark and mark.split("=")[1] != before
    ]  # fmt: skip


def all_blocks(messages):
    return [block for message in messages for block in blocks_of(message)]


def check(messages):
    """Check roles, calls and texts as a provider does, and that no text has a placeholder."""
    assert messages[0]["role"] == "user"
    for message in messages:
        assert blocks_of(message)
        for block in blocks_of(message):
            assert block.get("text", "words").strip()
            assert block["type"] != "thinking" or block["signature"].strip()
            if message["role"] == "assistant" and block["type"] == "text":
                assert not PLACEHOLDER.search(block["text"])
    calls = [call for message in messages for call in _ids(message, "tool_use", "id")]
    results = [call for message in messages for call in _ids(message, "tool_result", "tool_use_id")]
    assert calls == results != []


def write_signed(world, converted, conversation):
    """Write a session with signed thoughts; return its path and content."""
    data = signed(converted, conversation.bytes())
    return world.put(NAME, data), data


def converted_file(converted, path):
    """Return the checked request of a session file, whose signatures are all valid."""
    messages = converted(path.read_bytes())
    assert broken(messages) == []
    check(messages)
    return messages


def test_signatures_are_valid_after_extraction_and_restore(world, converted, conversation):
    """After a scan and after a restore the request is valid, and the undo is exact."""
    first = turn(conversation, "0")
    turn(conversation, "1", hollow=True)
    turn(conversation, "2", redacted=True)
    turn(conversation, "3")
    path, data = write_signed(world, converted, conversation)
    converted_file(converted, path)

    assert world.scan().sessions_changed == 1

    after = converted_file(converted, path)
    assert len(PLACEHOLDER.findall(json.dumps(after))) == 3
    assert "sign-0a" in json.dumps(after)
    assert "sign-0b" not in json.dumps(after)

    world.restore(first)

    restored = converted_file(converted, path)
    assert "result of 0\\n" in json.dumps(restored)

    world.restore_all(pristine=True)

    assert path.read_bytes() == data


def test_signatures_are_valid_while_turns_are_archived(world, converted, conversation):
    """Archiving turns and restoring one leaves no invalid signature; the undo is exact."""
    for number in range(5):
        turn(conversation, str(number))
    path, data = write_signed(world, converted, conversation)

    (outcome,) = world.scan(archive={"enabled": True, "token_threshold": 0}).sessions

    archived = converted_file(converted, path)
    archives = [
        block["text"] for block in all_blocks(archived) if block.get("text", "").startswith(MARK)
    ]
    assert len(archives) == len(outcome.plan.archives) == 3
    assert [message["role"] for message in archived[:7]] == ["user", "assistant"] * 3 + ["user"]

    world.restore(outcome.plan.archives[1].entry_id)

    assert len(converted_file(converted, path)) == len(archived) + 2

    world.restore_all(pristine=True)

    assert path.read_bytes() == data


def test_signatures_break_if_the_model_counts_as_unsigned(world, converted, conversation):
    """The check can fail: with `signed_models` set to no model, signatures are invalid."""
    for number in range(3):
        turn(conversation, str(number))
    path, _ = write_signed(world, converted, conversation)

    world.scan(signed_models=["!claude-*"])

    assert broken(converted(path.read_bytes())) != []


def test_signatures_are_valid_after_extracting_every_kind(world, converted, conversation):
    """Extracting texts and arguments as well leaves no invalid signature."""
    for number in range(4):
        turn(conversation, str(number))
    path, _ = write_signed(world, converted, conversation)

    world.scan(trigger_types=KINDS, keep_recent=0, min_value_length=60)

    after = converted(path.read_bytes())
    assert broken(after) == []
    check([
        {**message, "content": [
            block for block in blocks_of(message)
            if not PLACEHOLDER.fullmatch(block.get("text", ""))
        ]}
        for message in after
    ])  # fmt: skip


def test_only_thinking_of_signing_models_is_extracted(world, converted, conversation):
    """In a session of two models, the thinking of the unsigned one stays."""
    turn(conversation, "0", OLDER)
    turn(conversation, "1", OLDER)
    turn(conversation, "2", SIGNS)
    turn(conversation, "3", SIGNS)
    path, _ = write_signed(world, converted, conversation)

    report = world.scan(trigger_types=["tool_result"])

    models = [entry["message"]["model"] for line in path.read_bytes().splitlines()
            for entry in [json.loads(line)] if value_at(line).get("message", {}).get("role") ==
            "assistant" and entry["message"]["content"][0]["thinkingSignature"]]  # fmt: skip
    assert models == [OLDER] * 4
    assert report.values_extracted == 3 + 4
    check(converted(path.read_bytes()))
