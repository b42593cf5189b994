"""The answers of the tool's actions, and the pages of long ones."""

import json
import os
import time

import pytest

from brainsurgeon.lookup.scope import Scope
from brainsurgeon.render import formatting
from building.claw import migrate
from building.mcp_agent import (
    OTHER,
    SESSION,
    VALUE,
    Agent,
    agent_after_scan,
    agent_with_two_values,
    append_open_call,
    file_identity,
)
from building.world import sql


def test_show_returns_the_value_and_changes_nothing(agent):
    """`show` answers with the value under its path; the session and the store stay unchanged."""
    before = file_identity(agent.path)

    answer = agent.answer(action="show", entry="[[extracted-00000003]]", session=SESSION)

    assert answer == {
        "entry_id": "00000003", "session": f"main/{SESSION}",
        "content": {"message.content.0.text": VALUE},
    }  # fmt: skip
    assert file_identity(agent.path) == before


def test_get_context_lists_the_extracted_values(agent):
    """Each value has its id, kind, tool, path, size, age, expiry and the start of its text."""
    before = file_identity(agent.path)

    answer = agent.answer(action="get_context", session=SESSION)

    assert answer["session"] == f"main/{SESSION}"
    assert answer["state"] == "idle"
    assert answer["extracted_total"] == len(answer["extracted"]) == 3
    oldest = answer["extracted"][-1]
    assert oldest["age_seconds"] < 600
    assert oldest["expires_at"] is None  # its placeholder is in a session
    assert {key: oldest[key] for key in ("entry_id", "kind", "tool", "path")} == {
        "entry_id": "00000003", "kind": "tool_result",
        "tool": "exec", "path": "message.content.0.text",
    }  # fmt: skip
    assert oldest["chars"] == len(VALUE)
    assert oldest["size_bytes"] == len(json.dumps(VALUE, ensure_ascii=False).encode())
    assert oldest["preview"].startswith("the first result: naïve 😀")
    assert len(oldest["preview"]) <= 80
    assert answer["would_extract"] == []
    assert file_identity(agent.path) == before


def test_get_context_is_paged_by_limit_and_offset(agent):
    """`limit` and `offset` page through the list, newest first; the answer has the next offset."""
    whole = agent.answer(action="get_context", session=SESSION)["extracted"]

    first = agent.answer(action="get_context", session=SESSION, limit=2)
    second = agent.answer(action="get_context", session=SESSION, limit=2, offset=2)

    assert first["next_offset"] == 2
    assert second["next_offset"] is None
    assert first["extracted_total"] == 3
    parts = first["extracted"] + second["extracted"]
    for value in (*whole, *parts):
        del value["age_seconds"]
    assert parts == whole


def test_get_context_lists_what_the_next_scan_extracts(world):
    """Values that the next scan would extract are listed with the reason and the gain."""
    agent = Agent(world)
    for number in range(3):
        agent.conversation.turn(f"{number}" + "z" * 900)
    agent.write()
    world.scan(enabled=False)

    answer = agent.answer(action="get_context", session=SESSION)

    assert answer["extracted"] == []
    assert [value["entry_id"] for value in answer["would_extract"]] == ["00000003", "00000007"]
    assert answer["would_extract_total"] == 2
    assert "tool_result" in answer["would_extract"][0]["reason"]
    assert answer["gain_bytes"] > 1500


@pytest.mark.parametrize(
    ("value", "stored"), [(True, True), ("false", False), ("7", 7), (0, 0), ("TRUE", True)]
)
def test_set_extractable_accepts_booleans_and_numbers_as_text(agent, value, stored):
    """`value` may be a boolean or a number, or either of them as text; 0 is a number."""
    answer = agent.answer(
        action="set_extractable", entry_id="0000000f", value=value, session=SESSION
    )

    assert answer["extractable"] == stored
    assert type(answer["extractable"]) is type(stored)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({}, "action"),
        ({"action": "purge"}, "action"),
        ({"action": "show"}, "entry"),
        ({"action": "restore", "entry": "00000003", "keys": 7}, "keys"),
        ({"action": "show", "entry": "00000003", "keys": ["nothing"]}, "there are message.content"),
        ({"action": "show", "entry": "00000003", "sesion": "x"}, "sesion"),
        ({"action": "show", "entry": "00000003", "limit": 0}, "limit"),
        ({"action": "show", "entry": "00000003", "offset": -1}, "offset"),
        ({"action": "set_extractable", "entry": "00000003"}, "value"),
        ({"action": "set_extractable", "entry": "00000003", "value": -1}, "value"),
        ({"action": "set_extractable", "entry": "00000003", "value": 1.5}, "value"),
        ({"action": "set_extractable", "entry": "00000003", "value": "perhaps"}, "value"),
        # Numbers that JavaScript would round.
        ({"action": "set_extractable", "entry": "00000003", "value": 10**30}, "too many"),
        ({"action": "set_extractable", "entry": "00000003", "value": "9" * 4000}, "value"),
        ({"action": "set_extractable", "entry": "00000003", "value": 2**53 + 1}, "too many"),
    ],
)
def test_invalid_arguments_are_an_error_and_change_nothing(world, arguments, words):
    """The error names the argument, and the session and the requests stay unchanged."""
    agent = agent_after_scan(world, session=SESSION)
    agent.scope = Scope("main", SESSION)
    before = file_identity(agent.path)

    assert words in agent.error(**arguments)

    assert file_identity(agent.path) == before
    assert world.store.requests.count_open() == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"budget": 0}, "budget: Input should be greater than or equal to 1"),
        ({"note": "x" * 9000}, "note: String should have at most 8000 characters"),
    ],
)
def test_invalid_argument_is_described_in_one_sentence(world, arguments, words):
    """The error says what the argument may be, without adding that it may be absent."""
    assert Agent(world).error(action="get_context", **arguments) == words


def test_two_invalid_arguments_are_in_one_error(world):
    """A call with two invalid arguments is answered by one error that names both."""
    error = Agent(world).error(action="purge", limit="many")

    assert "action" in error
    assert "limit" in error


@pytest.mark.parametrize(
    "keys", [["content"], "content", "content, nothing", ["message.content.0.text"]]
)
def test_keys_are_a_list_or_text_with_commas(agent, keys):
    """`keys` may be a list or text with commas, of whole paths or names in them."""
    answer = agent.answer(action="show", entry="00000003", keys=keys, session=SESSION)

    assert list(answer["content"]) == ["message.content.0.text"]


def test_restore_remote_is_an_alias_of_restore(agent):
    """The action `restore_remote` restores the entry."""
    assert agent.answer(action="restore_remote", entry="00000003", session=SESSION)["restored"]


def test_null_arguments_count_as_absent(agent):
    """An argument that is null is ignored, since some hosts pass every argument."""
    answer = agent.answer(
        action="show", entry="00000003", entry_id=None, session=SESSION, keys=None, value=None,
        limit=None, offset=None,
    )  # fmt: skip

    assert answer["content"] == {"message.content.0.text": VALUE}


@pytest.mark.parametrize(("entry", "entry_id"), [("00000003", ""), ("", "00000003")])
def test_empty_texts_count_as_absent(agent, entry, entry_id):
    """An argument that is an empty text is ignored, since some models fill in every argument."""
    answer = agent.answer(
        action="show", entry=entry, entry_id=entry_id, session=SESSION, keys="", value="", note="",
    )  # fmt: skip

    assert answer["content"] == {"message.content.0.text": VALUE}


def test_unexpected_exception_is_an_error_without_content(agent, monkeypatch):
    """An unexpected exception is answered with its type and place and without its text."""

    def breaks(*_):
        raise ValueError(VALUE)

    monkeypatch.setattr(formatting, "fitted", breaks)

    words = agent.error(action="show", entry="00000003", session=SESSION)

    assert words.startswith("unexpected: ValueError at test_answering.py:")
    assert VALUE[:20] not in words


# --- pages ---------------------------------------------------------------------------------------


def test_value_above_the_limit_is_shortened_in_the_middle(agent):
    """The head and the tail are answered with the range of bytes left out."""
    data = VALUE.encode()

    answer = agent.answer(action="show", entry="00000003", session=SESSION, limit=101)
    ends = answer["content"]["message.content.0.text"]

    start, end = ends["left_out"]
    assert ends["head"].encode() == data[:start]
    assert ends["tail"].encode() == data[end:]
    assert ends["size_bytes"] == len(data)
    assert start + (len(data) - end) <= 101


@pytest.mark.parametrize("limit", [1, 7, 500, 10**6])
def test_pages_of_a_value_join_to_the_value(world, limit):
    """Pages by `offset` and `limit` contain every byte once and split no character."""
    agent = agent_after_scan(world, text="ä😀b" * 200)
    text, offset, pages = "", 0, 0
    while offset is not None:
        answer = agent.answer(
            action="show", entry="00000003", session=SESSION, limit=limit, offset=offset
        )
        page = answer["content"]["message.content.0.text"]
        text += page["text"]
        assert page["range"][0] == offset
        assert page["next_offset"] is None or page["next_offset"] > offset
        offset, pages = page["next_offset"], pages + 1
        if pages == 20:  # enough of the tiny pages
            break

    assert text == "ä😀b" * 200 or (pages == 20 and ("ä😀b" * 200).startswith(text))


def test_restore_with_an_offset_needs_a_single_value(world):
    """An offset for several values is refused, and no request is recorded."""
    agent = agent_with_two_values(world, VALUE + "more")

    before = file_identity(agent.path)
    error = agent.error(action="restore", entry="00000003", session=SESSION, offset=0)

    assert "message.details.aggregated" in error
    assert file_identity(agent.path) == before
    assert world.store.requests.count_open() == 0


def test_equal_values_of_an_entry_are_answered_once(world):
    """Of two equal values one is answered, and `same_as` names the path of the other."""
    agent = agent_with_two_values(world)
    first, copy = "message.content.0.text", "message.details.aggregated"
    before = append_open_call(agent, {"action": "restore", "entry": "00000003"})

    shown = agent.answer(action="show", entry="00000003", session=SESSION)
    paged = agent.answer(action="show", entry="00000003", session=SESSION, offset=0, limit=10)
    answer = agent.answer(action="restore", entry="00000003")

    assert before
    assert shown["content"] == answer["content"] == {first: VALUE}
    assert shown["same_as"] == answer["same_as"] == {copy: first}
    assert paged["content"][first]["text"] == VALUE[:10]
    assert answer["keys_restored"] == [first, copy]
    assert list(answer["sizes_bytes"]) == [first, copy]


def test_equal_value_named_by_its_key_is_answered_in_full(world):
    """If `keys` names only the second of two equal values, it is answered in full."""
    agent = agent_with_two_values(world)

    answer = agent.answer(action="show", entry="00000003", session=SESSION, keys="aggregated")

    assert answer["content"] == {"message.details.aggregated": VALUE}
    assert "same_as" not in answer


def test_content_is_answered_before_equal_details(world):
    """Of equal values the content is answered, even if the details precede it in the line."""
    agent = Agent(world)
    agent.conversation.user()
    agent.conversation.call()
    agent.conversation.result(VALUE, details={"aggregated": VALUE})
    message = agent.conversation.lines[-1]["message"]
    agent.conversation.lines[-1]["message"] = {"details": message.pop("details"), **message}
    agent.conversation.assistant()
    for _ in range(3):
        agent.conversation.turn("short")
    agent.write()
    world.scan()

    answer = agent.answer(action="show", entry="00000003", session=SESSION)

    assert answer["content"] == {"message.content.0.text": VALUE}
    assert answer["same_as"] == {"message.details.aggregated": "message.content.0.text"}


def test_lone_surrogate_is_answered_unchanged(world):
    """A lone surrogate, as in truncated tool output, arrives unchanged."""
    agent = Agent(world)
    value = "cut in two \ud83d" + "x" * 900
    agent.conversation.turn("PLACE")
    for _ in range(3):
        agent.conversation.turn("short")
    agent.path.write_bytes(
        agent.conversation.bytes().replace(b'"PLACE"', json.dumps(value).encode())
    )
    os.utime(agent.path, (time.time() - 3600,) * 2)
    world.scan()

    answer = agent.answer(action="show", entry="00000003", session=SESSION)

    assert answer["content"] == {"message.content.0.text": value}


@pytest.mark.parametrize(
    ("action", "place"), [("show", "message.details.aggregated"), ("restore", "00000003")]
)
def test_expired_value_is_listed_before_the_other_values(world, action, place):
    """An expired value is listed as missed, before the entry's other values, which may be long."""
    agent = agent_with_two_values(world, VALUE + "more")
    sql(
        world,
        "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
        " expired_why = 'test' WHERE path LIKE '%aggregated%'",
    )

    answer = agent.answer(action=action, entry="00000003", session=SESSION)

    assert answer["missed"] == [f"{place}: expired"]
    assert answer["content"] == {"message.content.0.text": VALUE}
    assert list(answer)[-2:] == ["missed", "content"]


def test_pin_in_a_deleted_session_is_an_error(agent):
    """The error says that the file is gone and names the action `show`, which still works."""
    agent.path.unlink()

    error = agent.error(action="set_extractable", entry="00000003", value=False, session=SESSION)

    assert "its file is gone" in error
    assert "the action `show`" in error
    assert "brainsurgeon show" not in error
    assert agent.answer(action="show", entry="00000003", session=SESSION)


def test_an_entry_without_a_value_is_not_set_to_be_extracted(agent):
    """The error of `set_extractable` says that the entry has no value that could be extracted."""
    ident = agent.conversation.entry("model_change", provider="mock", modelId="mock-1")
    agent.write()

    error = agent.error(action="set_extractable", entry=ident, value=True, session=SESSION)

    assert "the entry has no value that could be extracted" in error


def test_errors_name_actions_and_arguments_not_options(world, agent):
    """Errors name actions and arguments of the tool instead of commands and options."""
    placeholder, other = b"[[extracted-00000003]]", b"something else"
    agent.path.write_bytes(agent.path.read_bytes().replace(placeholder, other))
    os.utime(agent.path, (time.time() - 3600,) * 2)

    changed_error = agent.error(action="restore", entry="00000003", session=SESSION)
    agent_after_scan(world, "main", OTHER)
    ambiguous_error = agent.error(action="show", entry="00000003")

    assert "the action `show` still" in changed_error
    assert "give `session`" in ambiguous_error
    assert "--" not in changed_error + ambiguous_error


@pytest.mark.parametrize(
    "entry", [" 00000003\n", "`[[extracted-00000003]]`", "'[[extracted-00000003]]'"]
)
def test_entry_may_have_quotes_or_spaces_around_it(agent, entry):
    """White space, back quotes and quotes around an id or a placeholder are ignored."""
    answer = agent.answer(action="show", entry=entry, entry_id=entry, session=SESSION)

    assert answer["entry_id"] == "00000003"


def test_values_of_a_migrated_agent_are_shown(agent):
    """After an agent moved to SQLite, values of its deleted session file are listed and shown."""
    migrate(agent.path.parent.parent)
    agent.path.unlink()

    listed = agent.answer(action="get_context", session=SESSION)
    shown = agent.answer(action="show", entry="00000003", session=SESSION)

    assert listed["state"] == "its file is gone"
    assert listed["extracted_total"] == 3
    assert shown["content"] == {"message.content.0.text": VALUE}
