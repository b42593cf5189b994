"""What the lines of Gemini CLI say: which messages count, and what of them is never taken."""

import hashlib
import itertools
import json

import pytest
from msgspec.structs import astuple, replace

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.gemini.format import IMAGE, REPLACED, REWOUND
from brainsurgeon.formats.recognition import recognise
from brainsurgeon.formats.splice import locate
from brainsurgeon.model.entries import KINDS, OLD, value_at
from building.format_reading import Reading
from building.gemini import LONG, PICTURE, Chat
from building.world import SAMPLES, dump

GEMINI = FORMATS["gemini"]
FILES = sorted((SAMPLES / "gemini").glob("*.jsonl"))
NEVER = {"id", "type", "name", "mimeType", "data", "thoughtSignature", "timestamp", "status"}
FREE = {"args", "response", "resultDisplay"}
files = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def reading(chat):
    return Reading(GEMINI, chat.bytes())


def values_of(transcript):
    """Return (index, value) of all values that may be taken."""
    return [
        (index, value) for index in range(len(transcript.entries))
        for value in transcript.values(index) if not value.locked
    ]  # fmt: skip


def shown(transcript):
    """Return the messages that count, in their order, with the entries of each that have values."""
    places = {index: transcript.position(index) for index in range(len(transcript.entries))}
    live = [at for at in places if at not in transcript.chain.dead and places[at] != OLD]
    return [transcript.entries[at].ident for at in sorted(live, key=lambda at: -places[at])]


@files
def test_values_are_in_the_entries_and_do_not_overlap(file):
    """Each path begins at its entry, and leads to a text or a picture of the stated length."""
    read = Reading(GEMINI, file.read_bytes())
    found = values_of(read.transcript)

    assert recognise(file.read_bytes().split(b"\n")[:20], FORMATS).form is GEMINI
    assert len(found) > 2
    for index, group in itertools.groupby(found, key=lambda one: one[0]):
        parsed, listed = read.parsed(index), [value for _, value in group]
        spans = sorted(locate(parsed.raw, [value.path for value in listed]).values())
        assert parsed.ident
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
        for value in listed:
            there = value_at(parsed.entry, value.path)
            there = there["inlineData"]["data"] if value.block else there
            whole = there if isinstance(there, str) else json.dumps(there)
            assert value.kind in KINDS
            assert FREE & {*value.path} or NEVER.isdisjoint(value.path[-1:])
            assert len(whole) == value.chars


def test_changed_results_have_a_new_version():
    """If the format finds other values in the same bytes, its version must be increased."""
    digest = hashlib.blake2b(digest_size=4)
    for file in FILES:
        transcript = Reading(GEMINI, file.read_bytes()).transcript
        digest.update(repr((transcript.chain.open_turn, transcript.chain.last_user)).encode())
        for index, entry in enumerate(transcript.entries):
            found = entry.ident, entry.at, transcript.position(index)
            values = [astuple(replace(one, hashed=None)) for one in transcript.values(index)]
            digest.update(repr((*found, *values, transcript.chain.dead.get(index))).encode())

    assert (GEMINI.version, digest.hexdigest()) == (2, "6ac96fdc")


def test_a_result_has_the_id_of_its_call_wherever_it_stands():
    """Under the call, in the message after it, and in what a resume writes, with one path."""
    chat = Chat()
    chat.turn("read_file__1")
    chat.resume()
    read = reading(chat)
    listed = [
        (entry.ident, value.path) for entry in read.transcript.entries for value in entry.values
        if value.kind == "tool_result" and not value.dead
    ]  # fmt: skip

    path = ("functionResponse", "response", "output")
    assert listed == [("read_file__1", path)] * 5


def test_a_picture_of_a_result_is_an_entry():
    """Its whole part is the value; one that a user attached belongs to the message."""
    chat = Chat()
    attached = chat.user({"text": "look"}, PICTURE)
    chat.call("read_file__1", {"output": "a picture"}, PICTURE, PICTURE)
    chat.answer()
    transcript = reading(chat).transcript
    pictures = [
        (transcript.entries[index].ident, value.path, value.tool)
        for index, value in values_of(transcript) if value.block
    ]  # fmt: skip

    numbered = [("read_file__1.1", (), None), ("read_file__1.2", (), None)]
    assert pictures == [(attached, ("content", 1), IMAGE), *numbered, *numbered]
    assert sum(transcript.sent(at).pictures for at in range(len(transcript.entries))) == 5


def test_of_several_lines_with_an_id_the_last_counts():
    """Earlier ones are dead, and it has the place of the first in the conversation."""
    chat = Chat()
    first = chat.user("one")
    stray = chat.message("gemini", "", ident="stray")
    last = chat.answer()
    chat.message("gemini", "", ident="stray", toolCalls=[chat.under("read_file__1")])
    transcript = reading(chat).transcript

    names = [entry.ident for entry in transcript.entries]
    assert transcript.chain.dead == {names.index("stray"): REPLACED}
    assert shown(transcript)[:2] == [first, stray]
    assert shown(transcript)[-1] == last
    assert transcript.chain.open_turn is None


def test_a_set_line_replaces_the_whole_conversation():
    """Everything before it is dead, but for lines that only set other fields."""
    chat = Chat()
    chat.turn("read_file__1")
    before = reading(chat).transcript
    chat.resume()
    transcript = reading(chat).transcript

    dead = {index for index, why in transcript.chain.dead.items() if why == REPLACED}
    assert {index for index, entry in enumerate(before.entries) if entry.ident} <= dead
    assert all(value.dead for index, value in values_of(transcript) if index in dead)
    assert not all(value.dead for _, value in values_of(transcript))
    assert not any(transcript.sent(index).chars for index in dead if index not in dead)


@pytest.mark.parametrize("cut", [2, None])
def test_a_rewind_cuts_from_its_message_on(cut):
    """An unknown id cuts everything."""
    chat = Chat()
    prompts = [chat.turn(f"read_file__{number}") for number in range(3)]
    chat.add({"$rewindTo": "unknown" if cut is None else prompts[cut]})
    transcript = reading(chat).transcript
    prompts = [at for at, one in enumerate(transcript.entries) if one.role == "prompt"]
    cuts = [at for at in prompts if transcript.chain.dead.get(at) == REWOUND]

    assert cuts == prompts[cut or 0 :]
    assert bool(transcript.chain.open_turn) is (cut is None)


@pytest.mark.parametrize(
    ("steps", "is_open"),
    [
        ([], False), (["context"], False), (["user"], True), (["user", "empty"], True),
        (["user", "answer"], False), (["user", "call"], True), (["user", "call", "answer"], False),
        (["user", "answer", "info"], False), (["user", "answer", "context"], False),
        (["user", "answer", "user", "error"], True), (["user", "answer", "begin"], True),
    ],
)  # fmt: skip
def test_a_turn_ends_with_an_answer_that_has_a_text(steps, is_open):
    """What is only shown does not matter; nor does what a user wrote to the program itself."""
    chat = Chat()
    for step in steps:
        if step == "user":
            chat.user("go on")
        elif step == "call":
            chat.call("read_file__1", {"output": LONG})
        elif step == "answer":
            chat.answer()
        elif step == "empty":
            chat.message("gemini", "")
        elif step == "context":
            chat.user("<session_context>\n")
        elif step == "begin":
            chat.begin()
        else:
            chat.message(step, "a text")

    assert bool(reading(chat).transcript.chain.open_turn) is is_open


def test_what_a_resume_writes_anew_is_locked_while_it_is_sent():
    """Thoughts and arguments of calls; in dead lines they are values."""
    chat = Chat()
    chat.user("go on")
    chat.call("write_file__1", {"output": "done"}, args={"content": LONG},
              thoughts=[{"subject": "Plan", "description": LONG}])  # fmt: skip
    chat.answer()
    kinds = {"tool_call", "thinking"}
    locked = {value.kind for value in all_values(chat) if value.locked}
    chat.resume()
    dead = {value.kind for value in all_values(chat) if value.dead and not value.locked}

    assert locked == kinds
    assert kinds <= dead


def all_values(chat):
    transcript = reading(chat).transcript
    return [one for at in range(len(transcript.entries)) for one in transcript.values(at)]


def test_form_for_the_screen_is_dead_but_not_a_changed_file():
    """A text, or a list of cells, is a whole value. `/rewind` writes a changed file's old text."""
    cells = [[{"text": "x" * 80, "bold": False}] * 3] * 9
    change = {"fileDiff": LONG, "originalContent": LONG, "newContent": "", "fileName": "f"}
    for display, taken in ((LONG, True), (cells, True), (change, False)):
        chat = Chat()
        chat.user("go on")
        chat.call("write_file__1", {"output": "done"}, resultDisplay=display)
        chat.answer()
        listed = [one for one in all_values(chat) if one.path[:1] == ("resultDisplay",)]
        assert [one for one in listed if not one.locked] == (listed if taken else [])
        assert all(one.dead for one in listed)
        chat.resume()
        dead = [one for one in all_values(chat) if one.path[:1] == ("resultDisplay",)]
        assert any(one.dead and not one.locked for one in dead)


def test_failed_calls_have_their_exit_code_and_finding():
    """A command that failed, and a tool that failed."""
    chat = Chat()
    chat.user("go on")
    chat.call("run_shell_command__1", {"output": "Output: it broke\nExit Code: 3\nPGID: 7"})
    chat.call("read_file__2", {"error": "no such file\nat all"})
    results = [
        one for entry in reading(chat).transcript.entries if entry.at[:1] == ("content",)
        for one in entry.results
    ]  # fmt: skip

    assert [(one.failed, one.exit_code) for one in results] == [(True, 3), (True, None)]


def test_odd_lines_never_raise():
    """Whatever stands in place of messages, calls and parts, only what is there is a value."""
    odd = [None, 7, "x", [], {}, [None], [[]], {"id": 3}, [{"id": "a"}], [{"functionResponse": 1}]]
    for one, two in itertools.product(odd, odd):
        lines = (
            {"$set": one}, {"$set": {"messages": one}}, {"$rewindTo": one}, {"messages": one},
            {"id": "m", "type": one, "content": two}, {"id": one, "type": "user"},
            {"id": "m", "type": "gemini", "content": one, "toolCalls": two, "thoughts": one},
            {"id": "m", "type": "user", "content": [
                {"functionResponse": {"id": "c", "response": one, "parts": two}},
                {"inlineData": two}, {"functionCall": one},
            ]},
            {"id": "m", "type": "gemini", "toolCalls": [
                {"id": one, "name": two, "args": one, "result": two, "resultDisplay": one},
            ]},
        )  # fmt: skip
        read = Reading(GEMINI, b"".join(map(dump, lines)))
        for index, value in values_of(read.transcript):
            assert value_at(read.parsed(index).entry, value.path)
