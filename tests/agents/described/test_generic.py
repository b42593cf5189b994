"""Generic entries: extractable parts, ids, positions and closed turns."""

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.model.entries import Line
from building.format_reading import entries, parts, record, survey, unlocked_paths
from building.world import dump

GENERIC = FORMATS["generic"]
TEXT = {"type": "text", "text": "words"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


def ident_of(entry, number):
    """Return the id of an entry in the line with this number."""
    return GENERIC.entries(Line(number, 0, dump(entry)), 0)[0].ident


@pytest.mark.parametrize(
    ("entry", "kind", "listed"),
    [
        ({"type": "tool_result", "output": "x"}, "tool_result", {"output"}),
        ({"type": "tool_result", "content": "x"}, "tool_result", {"content"}),
        ({"type": "tool_result", "text": "x"}, "tool_result", {"text"}),
        ({"type": "tool_result", "result": {"stdout": "x", "code": 0, "lines": ["y", 1]}},
         "tool_result", {"result.stdout", "result.lines.0"}),
        ({"type": "tool_result", "data": "x", "note": "y"}, "tool_result", {"data"}),
        ({"type": "tool_result", "message": "x"}, "tool_result", {"message"}),
        ({"type": "tool_result", "message": {"role": "tool", "content": "x"}}, "tool_result",
         {"message.content"}),
        ({"type": "message", "message": {"role": "tool", "content": "x"}}, "tool_result",
         {"message.content"}),
        ({"type": "message", "message": {"role": "user", "content": "x"}}, "user",
         {"message.content"}),
        ({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]},
         "assistant", {"content.0.text"}),
        ({"type": "message", "role": "system", "text": "x"}, "system", {"text"}),
        ({"type": "thinking", "thinking": "x"}, "thinking", {"thinking"}),
        ({"type": "custom", "text": "x"}, "custom", {"text"}),
        ({"type": "user", "text": "x"}, "user", {"text"}),
        ({"type": "tool_call", "name": "write", "arguments": {"path": "/w", "content": "x"}},
         "tool_call", {"arguments.path", "arguments.content"}),
        ({"type": "tool_result", "arguments": {"path": "/w"}, "output": "x"}, "tool_result",
         {"output"}),
        ({"type": "tool_result", "content": [{"stdout": "x"}, "y", 7]}, "tool_result",
         {"content.0.stdout", "content.1"}),
    ],
)  # fmt: skip
def test_generic_parts_are_strings_below_value_keys(entry, kind, listed):
    """Strings below a value key at the top level or inside `message` are parts."""
    assert unlocked_paths(GENERIC, entry) == listed
    assert {part.kind for part in parts(GENERIC, entry)} == {kind}


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "message", "role": "narrator", "text": "x"},
        {"type": "message", "message": {"content": "x"}},
        {"type": "message", "message": "x"},
        {"type": "note", "text": "x"},
        {"text": "x"},
        {"type": ["tool_result"], "text": "x"},
        {"type": "message", "role": ["user"], "text": "x"},
    ],
)
def test_generic_entry_without_a_kind_has_no_parts(entry):
    """An entry whose type and role map to no kind does not count as a message either."""
    assert parts(GENERIC, entry) == []
    assert record(GENERIC, entry).is_message is False


def message_of(*content, **fields):
    body = {"role": "assistant", "content": list(content)}
    return {"type": "message", "__id": "m", "message": body, **fields}


@pytest.mark.parametrize(
    ("block", "kind", "listed"),
    [
        ({"type": "text", "text": "x"}, "assistant", {"text"}),
        ({"type": "thinking", "thinking": "x"}, "thinking", {"thinking"}),
        ({"type": "tool_use", "id": "t", "name": "read", "input": {"path": "x"}}, "tool_call",
         {"input.path"}),
        ({"type": "toolCall", "id": "t", "name": "read", "arguments": {"path": "x"}}, "tool_call",
         {"arguments.path"}),
        ({"type": "tool_result", "tool_use_id": "t", "content": "x"}, "tool_result", {"content"}),
        ({"type": "tool_result", "tool_use_id": "t", "content": [TEXT, TEXT]}, "tool_result",
         {"content.0.text", "content.1.text"}),
        ({"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}, "tool_result",
         {"content.0"}),
        (IMAGE, "assistant", {""}),
    ],
)  # fmt: skip
def test_generic_parts_of_content_blocks(block, kind, listed):
    """Blocks in the shape that providers read keep their type and ids."""
    entry = message_of(block)
    inner = block.get("content") if isinstance(block.get("content"), list) else []

    assert unlocked_paths(GENERIC, entry) == {
        f"message.content.0.{end}".rstrip(".") for end in listed
    }
    assert {part.kind for part in parts(GENERIC, entry)} == {kind}
    assert {part.block for part in parts(GENERIC, entry)} == {IMAGE in (block, *inner)}


@pytest.mark.parametrize(
    "entry",
    [
        message_of({"type": "thinking", "thinking": "x", "signature": "c2ln"}),
        message_of({"type": "thinking", "thinking": "x", "thinkingSignature": "c2ln"}),
        {"type": "thinking", "thinking": "x", "signature": "c2ln"},
        {"type": "message", "message": {"role": "assistant", "thinking": "x", "signature": "s"}},
    ],
)
def test_generic_signed_thinking_is_locked(entry):
    """Signed thinking is locked, since its signer is unknown."""
    (part,) = parts(GENERIC, entry)

    assert part.kind == "thinking"
    assert part.locked == "thinking signed by its provider"


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"__id": "msg-7", "id": "other"}, "msg-7"),
        ({"__id": None, "id": "other"}, "other"),
        ({"id": 7}, "7"),
        ({"__id": "", "id": "other"}, None),
        ({"__id": True}, None),
    ],
)
def test_generic_id_is_dunder_id_or_id(entry, name):
    """An unusable `__id` gives no id, even if `id` is usable."""
    assert ident_of(entry, 3) == name


def test_generic_entry_without_an_id_gets_line_and_digest():
    """The digest excludes the values that an extraction or a restore changes."""
    name = ident_of({"type": "tool_result"}, 3)

    assert name.startswith("L3-")
    assert name == ident_of({"type": "tool_result"}, 3)
    assert name != ident_of({"type": "tool_result"}, 4)
    assert name != ident_of({"type": "tool_result", "tool": "x"}, 3)
    assert name == ident_of({"type": "tool_result", "output": "y"}, 3)
    assert name == ident_of({"type": "tool_result", "_restored": "z"}, 3)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"type": "message", "role": "assistant", "text": "x"}, None),
        ({"type": "thinking", "thinking": "x"}, None),
        ({"type": "system", "text": "x"}, None),
        ({"type": "custom", "text": "x"}, None),
        ({"type": "message", "role": "user", "text": "x"}, "a user message"),
        ({"type": "tool_call", "name": "read"}, "a tool call"),
        ({"type": "tool_result", "output": "x"}, "a tool result"),
        ({"type": "message", "message": {"role": "tool", "content": "x"}}, "a tool result"),
    ],
)
def test_generic_turn_is_open_after_a_prompt_call_or_result(last, reason):
    """Following lines that do not count as messages change nothing."""
    before = dump({"type": "message", "__id": 1, "role": "user", "text": "x"})
    for after in (b"", dump({"type": "note", "text": "x"}), b"\n", b"[1]\n", b"{broken\n"):
        open_turn = survey(GENERIC, before + dump(last) + after).open_turn

        assert open_turn is None if reason is None else open_turn.endswith(reason)


def test_generic_positions_follow_file_order():
    """Every entry with a kind takes one position; other entries share the next one's."""
    lines = [
        {"type": "tool_result", "__id": 1}, {"type": "note"}, {"type": "tool_call", "__id": 2},
        {"type": "note"}, {"type": "message", "__id": 3, "role": "assistant"}, {"type": "note"},
    ]  # fmt: skip
    data = b"".join(dump(line) for line in lines)
    offsets = [offset for offset, *_ in entries(data)]
    look = survey(GENERIC, data)

    assert [look.position(offset) for offset in offsets] == [2, 1, 1, 0, 0, 0]
