"""What Codex's session files say: items, copies of items, turns, and what is never taken."""

import hashlib
import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple, replace

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.codex.format import IMAGE, OLD_CONTEXT
from brainsurgeon.formats.recognition import recognise
from brainsurgeon.formats.splice import locate
from brainsurgeon.model.entries import KINDS, value_at
from brainsurgeon.model.session_files import BEFORE_COMPACTION
from building.format_reading import Reading
from building.world import SAMPLES, dump

CODEX = FORMATS["codex"]
FILES = sorted((SAMPLES / "codex").glob("*.jsonl"))
META = {"type": "session_meta", "payload": {"id": "thread", "cwd": "/w"}}
PAGES = {"type": "session_meta", "payload": {"id": "thread", "history_mode": "paginated"}}
NEVER = {
    "encrypted_content", "id", "call_id", "turn_id", "thread_id", "role", "type", "name",
    "namespace", "path", "cwd", "status", "summary", "ordinal", "history_base",
}  # fmt: skip
files = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def item(**payload):
    return {"type": "response_item", "payload": payload}


def event(**payload):
    return {"type": "event_msg", "payload": payload}


def message(role, *blocks, **more):
    return item(type="message", role=role, content=list(blocks), **more)


def output(text, call="c", **more):
    return item(type="function_call_output", call_id=call, output=text, **more)


TEXT = {"type": "input_text", "text": "t" * 900}
PICTURE = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 900}


def reading(*lines):
    return Reading(CODEX, b"".join(map(dump, lines)))


def values_of(transcript):
    """Return (index, value) of all values that may be taken."""
    return [
        (index, value) for index in range(len(transcript.entries))
        for value in transcript.values(index) if not value.locked
    ]  # fmt: skip


@files
def test_values_are_in_the_items_and_do_not_overlap(file):
    """Each path begins at its item, and leads to a text or a picture of the stated length."""
    read = Reading(CODEX, file.read_bytes())
    found = values_of(read.transcript)

    assert recognise(file.read_bytes().split(b"\n")[:20], FORMATS).form is CODEX
    assert len(found) > 3
    for index, group in itertools.groupby(found, key=lambda one: one[0]):
        parsed, listed = read.parsed(index), [value for _, value in group]
        spans = sorted(locate(parsed.raw, [value.path for value in listed]).values())
        assert parsed.ident
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
        for value in listed:
            there = value_at(parsed.entry, value.path)
            assert value.kind in KINDS
            assert value.path[-1] not in NEVER
            assert len(there["image_url"] if value.block else there) == value.chars


@files
def test_texts_of_people_and_encrypted_content_are_no_values(file):
    """No rule can take a user's or the assistant's text, reasoning, or what Codex reads back."""
    read = Reading(CODEX, file.read_bytes())
    for index, value in values_of(read.transcript):
        entry = read.parsed(index).entry
        assert entry.get("type") not in ("reasoning", "compaction", "AgentMessage", "Reasoning")
        if entry.get("type") in ("message", "UserMessage"):
            assert value.block or value.path[-1] in ("image_url", "url")


def test_changed_results_have_a_new_version():
    """If the format finds other values in the same bytes, its version must be increased."""
    digest = hashlib.blake2b(digest_size=4)
    for file in FILES:
        transcript = Reading(CODEX, file.read_bytes()).transcript
        digest.update(repr((transcript.chain.open_turn, transcript.chain.last_user)).encode())
        for index, entry in enumerate(transcript.entries):
            found = entry.ident, entry.at, transcript.position(index)
            values = [astuple(replace(one, hashed=None)) for one in transcript.values(index)]
            digest.update(repr((*found, *values, transcript.chain.dead.get(index))).encode())

    assert (CODEX.version, digest.hexdigest()) == (4, "10a4ad0d")


def test_a_compaction_replaces_the_items_before_it():
    """Its copies of items are entries with the ids of the items; older items are dead."""
    user = message("user", TEXT, PICTURE, id="msg_1")
    answer, more = message("assistant", TEXT, id="msg_2"), output("o" * 900, id="fco_1")
    compaction = {"type": "compacted", "payload": {
        "message": "", "replacement_history": [user["payload"], 7],
        "guardian_history": [user["payload"], more["payload"]],
    }}  # fmt: skip
    transcript = reading(META, user, more, answer, compaction, output("p" * 900)).transcript
    entries, dead = transcript.entries, transcript.chain.dead
    shown = [(entry.ident, entry.at) for entry in entries if entry.at and entry.own is None]
    history, kept = ("payload", "replacement_history"), ("payload", "guardian_history")

    assert shown == [
        ("msg_1", ("payload",)), ("fco_1", ("payload",)), ("msg_2", ("payload",)),
        ("msg_1", (*history, 0)), ("msg_1", (*kept, 0)), ("fco_1", (*kept, 1)),
        ("c", ("payload",)),
    ]  # fmt: skip
    assert dead == dict.fromkeys((1, 2, 3), BEFORE_COMPACTION)
    assert [transcript.sent(at).chars for at in (5, 6, 7)] == [900, 0, 0]
    assert [value.dead for at in (1, 5, 6) for value in transcript.values(at)] == [
        True, False, True,
    ]  # fmt: skip


def test_an_older_compaction_without_items_replaces_nothing():
    """Before 0.30, a compaction had only a summary, and user messages stayed."""
    lines = META, output("o" * 900), {"type": "compacted", "payload": {"message": "12"}}

    assert reading(*lines).transcript.chain.dead == {}
    assert reading(*lines).transcript.entries[2].sent.chars == 2


def test_only_files_with_pages_keep_their_length():
    """Offsets point into paginated files, whose header says so."""
    assert [reading(header).transcript.chain.keeps_length for header in (META, PAGES)] == [
        False, True,
    ]  # fmt: skip
    assert CODEX.refuses({"payload": {"history_mode": "woven"}})
    assert not any(map(CODEX.refuses, (META, PAGES)))
    assert Reading(CODEX, b"\n" + dump(PAGES)).transcript.chain.keeps_length


@pytest.mark.parametrize(("marks", "is_open"), [
    (["task_started"], True), (["task_started", "task_complete"], False),
    (["task_started", "turn_aborted"], False), (["turn_started", "turn_complete"], False),
    (["task_started", "task_complete", "task_started"], True),
])  # fmt: skip
def test_a_turn_is_open_until_its_end_is_written(marks, is_open):
    """Whatever the last items are, the newest beginning or end of a turn decides."""
    answer = message("assistant", {"type": "output_text", "text": "done"})
    lines = [META, *(event(type=mark, turn_id="t") for mark in marks), answer]

    assert bool(reading(*lines).transcript.chain.open_turn) == is_open


def test_a_file_without_turns_is_open_after_a_prompt_or_call():
    """Very old files have no such events: then the last item decides."""
    answer = message("assistant", {"type": "output_text", "text": "done"})
    call = item(type="function_call", name="shell", arguments="{}", call_id="c")
    ends = {"none": [], "prompt": [message("user", TEXT)], "call": [answer, call],
            "output": [call, output("x")], "answer": [call, output("x"), answer]}  # fmt: skip
    found = {
        name: bool(reading(META, *lines).transcript.chain.open_turn) for name, lines in ends.items()
    }

    assert found == {name: name not in ("none", "answer") for name in ends}


def test_items_of_one_answer_count_as_one_message():
    """A text, calls and reasoning between two results are one message for `keep_recent`."""
    call = item(type="function_call", name="shell", arguments="{}", call_id="c")
    answer = message("assistant", TEXT)
    lines = META, message("user", TEXT), answer, call, call, output("x"), answer
    transcript = reading(*lines).transcript

    assert [transcript.position(at) for at in range(1, 7)] == [3, 2, 2, 2, 1, 0]


def test_context_of_a_turn_is_dead_once_another_has_its_own():
    """Old releases repeated all instructions in every turn; the newest ones stay."""
    context = {
        "type": "turn_context",
        "payload": {
            "turn_id": "t",
            "user_instructions": "i" * 900,
            "collaboration_mode": {"settings": {"developer_instructions": "d" * 900}},
        },
    }
    transcript = reading(META, context, context).transcript

    assert transcript.chain.dead == {1: OLD_CONTEXT}
    assert [(index, value.path[-1], value.dead) for index, value in values_of(transcript)] == [
        (1, "user_instructions", True),
        (1, "developer_instructions", True),
    ]


def test_pictures_of_users_have_a_tool_name_of_their_own():
    """Rules and `exclude` can name the pictures that users attached."""
    legacy = event(type="user_message", message="look", images=["data:" + "A" * 900])
    transcript = reading(META, message("user", TEXT, PICTURE), legacy).transcript
    found = [(value.tool, value.block, value.dead) for _, value in values_of(transcript)]

    assert found == [(IMAGE, True, False), (IMAGE, False, True)]


def test_messages_without_an_id_are_named_by_their_texts():
    """The name stays the same once a placeholder stands for a picture."""
    placeholder = {"type": "input_text", "text": "[[extracted-user-0123456789abcdef]]"}
    names = {
        reading(META, message(role, *blocks)).transcript.entries[1].ident
        for role, blocks in [("user", (TEXT, PICTURE)), ("user", (TEXT, placeholder))]
    }

    assert len(names) == 1
    assert reading(META, message("user", PICTURE, TEXT)).transcript.entries[1].ident not in names


def test_items_without_ids_have_names_that_nothing_else_has():
    """In old files, a call, its result, and what is shown of it have only the id of the call."""
    call = item(type="custom_tool_call", name="apply_patch", input="p", call_id="call_1")
    shown = event(type="patch_apply_end", call_id="call_1", stdout="s" * 900)
    newer = event(type="item_completed", item={
        "type": "FileChange", "id": "call_1", "stdout": "s" * 900})  # fmt: skip
    entries = reading(META, call, shown, output("o", "call_1"), newer).transcript.entries

    assert [entry.ident for entry in entries[1:]] == [
        "call_1-call", "call_1-shown", "call_1", "call_1-shown",
    ]  # fmt: skip
    random = f"call_{'Ab3' * 8}"
    assert all(CODEX.random_ids.fullmatch(random + end) for end in ("", "-call", "-shown"))
    assert not CODEX.random_ids.fullmatch("call_1")


@pytest.mark.parametrize("line", [
    dump({"type": "response_item", "payload": {"type": [], "role": {}, "content": 5}}),
    dump({"type": "compacted", "payload": {"replacement_history": [7, None], "message": 5}}),
    dump({"type": {}, "payload": "x", "timestamp": 5}), dump({"payload": {"item": {"type": 5}}}),
    b"\xef\xbb\xbf" + dump(META), b"no JSON", b"",
])  # fmt: skip
def test_odd_lines_have_no_values(line):
    """What cannot be understood is one entry that is never edited."""
    transcript = Reading(CODEX, dump(META) + line.strip() + b"\n" + dump(META)).transcript

    assert len(transcript.entries) == 3
    assert values_of(transcript) == []
    assert transcript.chain.dead == {}


WORDS = (
    "type", "payload", "item", "response_item", "event_msg", "compacted", "replacement_history",
    "guardian_history", "turn_context", "message", "role", "user", "assistant", "content", "output",
    "input_text", "input_image", "image_url", "text", "function_call_output", "custom_tool_call",
    "input", "call_id", "id", "CommandExecution", "aggregated_output", "UserMessage", "images",
    "user_message", "item_completed", "collaboration_mode", "settings", "user_instructions",
)  # fmt: skip


def test_random_entries_never_raise():
    """For any JSON object, values lead to what the item holds."""
    word = st.sampled_from(WORDS)
    value = st.recursive(
        st.one_of(word, st.none(), st.integers(-1, 3), st.just("x" * 9)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(word, inner, max_size=4)
        ),
        max_leaves=12,
    )

    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.dictionaries(word, value, max_size=5), min_size=1, max_size=3))
    def check(lines):
        read = reading(*lines)
        for index in range(len(read.transcript.entries)):
            entry = read.parsed(index).entry
            for one in read.transcript.values(index):
                assert value_at(entry, one.path)
            content = CODEX.read(entry)
            assert all(value_at(entry, call.path) is call.arguments for call in content.calls)

    check()


def test_a_header_without_an_id_is_of_no_session():
    """The id of the thread names the conversation."""
    assert CODEX.session([META]) == "thread"
    assert json.loads(dump(META))["payload"]["id"] == "thread"
