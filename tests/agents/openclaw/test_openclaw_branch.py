"""OpenClaw's and pi's active branch: positions and the last prompt."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.agents import FORMATS
from brainsurgeon.model.entries import OLD
from building.format_reading import HEADER, WINDOW, entries, parts_in, survey
from building.world import Conversation, dump

OPENCLAW = FORMATS["openclaw"]
TEXT = {"type": "text", "text": "words"}
SIGNED = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2lnbmVk"}


def positions(lines, window=WINDOW):
    data = b"".join(dump(line) for line in lines)
    look = survey(OPENCLAW, data, window)
    return {
        entry.get("id"): None if look.position(offset) == OLD else look.position(offset)
        for offset, _, _, entry in entries(data)
        if entry.get("type") != "session"
    }


def node(ident, parent, kind="message", **fields):
    body = {"message": {"role": "user", "content": "x"}} if kind == "message" else {}
    return {"type": kind, "id": ident, "parentId": parent, **body, **fields}


CHAIN = [node("a", None), node("b", "a"), node("c", "b")]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param([], {"a": 2, "b": 1, "c": 0}, id="a chain"),
        pytest.param([node("d", "a")], {"a": 1, "b": None, "c": None, "d": 0}, id="a branch"),
        pytest.param([node("l", "c", "label")], {"a": 2, "b": 1, "c": 0, "l": 0}, id="a label"),
        pytest.param([node("k", "c", "compaction"), node("d", "k")],
                     {"a": 3, "b": 2, "c": 1, "k": 0, "d": 0}, id="a compaction"),
        pytest.param([node("l", "c", "leaf", targetId="a")],
                     {"a": 0, "b": None, "c": None, "l": None}, id="a leaf control"),
        pytest.param([node("l", "c", "leaf", targetId="a"), node("d", "a")],
                     {"a": 1, "b": None, "c": None, "l": None, "d": 0}, id="after a leaf control"),
        pytest.param([node("l", "c", "leaf", targetId="a"), node("d", "l")],
                     {"a": 1, "b": None, "c": None, "l": None, "d": 0}, id="through the control"),
        pytest.param([node("l", "c", "leaf", targetId=None)],
                     {"a": None, "b": None, "c": None, "l": None}, id="a leaf control to nothing"),
        pytest.param([node("l", "c", "leaf", targetId=None), node("d", None)],
                     {"a": None, "b": None, "c": None, "l": None, "d": 0}, id="a fresh root"),
        pytest.param([node("l", "c", "leaf", targetId="gone")],
                     {"a": 2, "b": 1, "c": 0, "l": None}, id="a leaf control to a missing entry"),
        pytest.param([node("l", "c", "leaf", targetId="gone"), node("d", "l")],
                     {"a": 3, "b": 2, "c": 1, "l": None, "d": 0}, id="through such a control"),
        pytest.param([node("l", "b", "leaf", targetId="a", appendParentId="gone"), node("d", "l")],
                     {"a": 2, "b": 1, "c": None, "l": None, "d": 0}, id="a missing cursor"),
        pytest.param([node("l", "c", "leaf", targetId="gone"), node("m", "b", "leaf", targetId="l"),
                      node("d", "m")],
                     {"a": 2, "b": 1, "c": None, "l": None, "m": None, "d": 0},
                     id="a leaf control to such a control"),
        pytest.param([node("l", "c", "leaf", targetId="a", appendParentId="gone"),
                      node("m", "c", "leaf", targetId=None, appendParentId="l")],
                     {"a": 2, "b": 1, "c": 0, "l": None, "m": None},
                     id="the cursor at such a control"),
        pytest.param([node("l", "c", "leaf", targetId="d"), node("d", "l")],
                     {"a": 3, "b": 2, "c": 1, "l": None, "d": 0}, id="a control to a later entry"),
        pytest.param([node("s", "c", appendMode="side")],
                     {"a": 2, "b": 1, "c": 0, "s": None}, id="a side append"),
        pytest.param([node("s", "c", appendMode="side"), node("d", "c")],
                     {"a": 3, "b": 2, "c": 1, "s": None, "d": 0}, id="after a side append"),
        pytest.param([node("s", "b", appendMode="side"), node("d", "s")],
                     {"a": 3, "b": 2, "c": 1, "s": None, "d": 0}, id="the cursor at a side append"),
        pytest.param([node("l", "c", "leaf", targetId="c", appendParentId="a"), node("d", "a")],
                     {"a": 3, "b": 2, "c": 1, "l": None, "d": 0}, id="the cursor beside the leaf"),
        pytest.param([node("l", "c", "leaf", targetId="c", appendParentId=None), node("d", None)],
                     {"a": 3, "b": 2, "c": 1, "l": None, "d": 0}, id="the cursor at the root"),
        pytest.param([node("p", "c", "plugin-metadata"), node("d", "p")],
                     {"a": 3, "b": 2, "c": 1, "p": None, "d": 0}, id="an unknown type"),
        pytest.param([node("p", "a", "plugin-metadata"), node("d", "c"), node("e", "p")],
                     {"a": 1, "b": None, "c": None, "p": None, "d": None, "e": 0},
                     id="a branch from an unknown type"),
        pytest.param([{"type": "message", "id": "d", "message": {"role": "user", "content": "x"}}],
                     {"a": 3, "b": 2, "c": 1, "d": 0}, id="an entry without a parent"),
        pytest.param([node("d", 7)], {"a": 2, "b": 1, "c": 0, "d": None}, id="no parent at all"),
        pytest.param([node("", "c")], {"a": 2, "b": 1, "c": 0, "": None}, id="no id"),
        pytest.param([node("d", "gone")], {"a": None, "b": None, "c": None, "d": 0},
                     id="a parent that is gone"),
        pytest.param([node("d", "d")], {"a": None, "b": None, "c": None, "d": 0}, id="a loop"),
    ],
)  # fmt: skip
def test_positions_follow_the_active_branch(more, expected):
    """Entries off the path from the leaf to the root are old.

    openclaw 2026.7.35 `transcript-tree`: a leaf control selects its target, and moves nothing if
    that is not before it; a side append or an entry of an unknown type moves the cursor but not the
    leaf.
    """
    assert positions([HEADER, *CHAIN, *more], window=10) == expected


def active_branch(lines):
    """Return the active branch, read forwards as openclaw's `scanSessionTranscriptTree` does."""
    known, void, leaf, cursor = {None: None}, set(), None, None
    for entry in lines:
        ident, kind = entry["id"], entry["type"]
        moves = kind != "plugin-metadata" and entry.get("appendMode") != "side"
        if kind == "leaf":
            target, after = entry["targetId"], entry.get("appendParentId", entry["targetId"])
            if {target, after} <= known.keys() - void:
                known[ident] = (entry, target)
                leaf, cursor = target, after
            else:
                known[ident] = (entry, entry["parentId"])
                void.add(ident)
            continue
        parent = entry.get("parentId", leaf)
        if kind != "plugin-metadata":
            if "parentId" in entry and entry.get("appendMode") != "side" and parent == cursor:
                parent = leaf
            while known.get(parent) and known[parent][0]["type"] == "leaf":
                parent = known[parent][1]
        known[ident] = (entry, parent)
        cursor = ident
        leaf = ident if moves else leaf
    branch = []
    while known.get(leaf):
        entry, leaf = known[leaf]
        branch.append(entry)
    return branch


@st.composite
def trees(draw):
    """Return a random session file: entries of any type anywhere on the tree."""
    lines = []
    for number in range(draw(st.integers(1, 14))):
        idents = [entry["id"] for entry in lines]
        place = st.sampled_from([None, *idents, *idents[-1:] * 3])
        kind = draw(st.sampled_from(("message", "message", "message", "label", "leaf",
                                     "plugin-metadata")))  # fmt: skip
        entry = node(f"n{number}", draw(place), kind)
        if kind == "leaf":
            named = place | st.sampled_from(("gone", f"n{number + 1}"))
            entry["targetId"] = draw(named)
            if draw(st.booleans()):
                entry["appendParentId"] = draw(named)
        elif draw(st.integers(0, 5)) == 0:
            entry["appendMode"] = "side"
        elif kind == "message" and draw(st.integers(0, 5)) == 0:
            del entry["parentId"]
        lines.append(entry)
    return lines


@settings(max_examples=300, deadline=None)
@given(trees())
def test_positions_match_a_forward_read_of_the_tree(lines):
    """Walking back from the end finds the branch that reading the whole tree forwards finds."""
    expected, messages = {}, 0
    for entry in active_branch(lines):
        counts = entry["type"] == "message"
        if entry["type"] in ("message", "label"):
            expected[entry["id"]] = messages if counts else max(messages - 1, 0)
        messages += counts

    actual = {key: value for key, value in positions(lines, 100).items() if value is not None}

    assert actual == expected


def test_prompt_off_the_branch_does_not_end_a_turn():
    """Thinking signed since the last prompt on the branch stays locked."""
    conversation = Conversation()
    conversation.user("the prompt")
    conversation.assistant([SIGNED, TEXT], api="anthropic-messages")
    answer = conversation.last
    before = conversation.bytes()
    conversation.user("a prompt that was taken back")
    conversation.entry("leaf", targetId=answer)
    after = conversation.bytes()

    assert thinking_part(before).locked == "signed thinking of the last turn"
    assert thinking_part(after).locked == "signed thinking of the last turn"


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_prompts_after_unanswered_results_join_their_turn(stop):
    """Signed thinking stays locked after failed replies, until one answers its results."""
    conversation = conversation_with_an_unanswered_result()
    conversation.assistant([], stop=stop)
    conversation.user("and now?")
    conversation.assistant([], stop=stop)
    conversation.user("now?")
    unanswered = conversation.bytes()
    conversation.assistant([TEXT])
    conversation.user("thanks")
    answered = conversation.bytes()

    assert thinking_part(unanswered).locked == "signed thinking of the last turn"
    assert thinking_part(answered).locked is None


def test_reset_ends_a_turn_with_unanswered_results():
    """Entries before a reset are not joined with later prompts."""
    conversation = conversation_with_an_unanswered_result()
    conversation.entry("reset")
    conversation.user("from the beginning")

    assert thinking_part(conversation.bytes()).locked is None


def conversation_with_an_unanswered_result():
    """Return a conversation that ends with signed thinking, its call and the call's result."""
    conversation = Conversation()
    conversation.user("the prompt")
    call = {"type": "toolCall", "id": "c1", "name": "exec", "arguments": {}}
    conversation.assistant([SIGNED, call], stop="toolUse", api="anthropic-messages")
    conversation.result("long")
    return conversation


def thinking_part(data):
    """Return the thinking part of the third entry."""
    look = survey(OPENCLAW, data)
    (offset, _, _, entry) = entries(data)[2]
    return next(part for part in parts_in(OPENCLAW, entry, look, offset) if part.kind == "thinking")


def test_last_prompt_is_found_beyond_the_window():
    """A turn of 50 calls does not hide the prompt that opened it."""
    conversation = Conversation()
    conversation.user("the prompt")
    for _ in range(50):
        conversation.call()
        conversation.result('a result that says "user"')
    data = conversation.bytes()

    assert survey(OPENCLAW, data, window=2).last_user == entries(data)[1][0]
