"""What each action of the tool answers, in pages where it is long."""

import json
import os
import time

import pytest

from brainsurgeon.lookup.scope import Scope
from brainsurgeon.render import formatting
from building.mcp_agent import (
    SESSION,
    VALUE,
    Agent,
    agent_after_scan,
    agent_with_two_values,
    append_open_call,
    file_identity,
)

# --- the actions ---------------------------------------------------------------------------------


def test_show_gives_the_value_and_touches_nothing(world):
    """`show` answers with the value under its path; file and store stay as they are."""
    agent = agent_after_scan(world)
    before = file_identity(agent.path)

    told = agent.answer(action="show", entry="[[extracted-00000003]]", session=SESSION)

    assert told == {
        "entry_id": "00000003", "session": f"main/{SESSION}",
        "content": {"message.content.0.text": VALUE},
    }  # fmt: skip
    assert file_identity(agent.path) == before


def test_get_context_lists_what_is_extracted_and_what_is_next(world):
    """`get_context` says id, kind, tool, path, size, age, expiry and beginning of each value."""
    agent = agent_after_scan(world)
    before = file_identity(agent.path)

    told = agent.answer(action="get_context", session=SESSION)

    assert told["session"] == f"main/{SESSION}"
    assert told["state"] == "idle"
    assert told["extracted_total"] == len(told["extracted"]) == 3
    oldest = told["extracted"][-1]
    assert oldest["age_seconds"] < 600
    assert oldest["expires_at"] > oldest["extracted_at"]
    assert {key: oldest[key] for key in ("entry_id", "kind", "tool", "path")} == {
        "entry_id": "00000003", "kind": "tool_result",
        "tool": "exec", "path": "message.content.0.text",
    }  # fmt: skip
    assert oldest["chars"] == len(VALUE)
    assert oldest["size_bytes"] == len(json.dumps(VALUE, ensure_ascii=False).encode())
    assert oldest["preview"].startswith("the first result: naïve 😀")
    assert len(oldest["preview"]) <= 80
    assert told["would_extract"] == []
    assert file_identity(agent.path) == before


def test_get_context_is_given_in_pages(world):
    """`limit` and `offset` page through the list, the newest first, and say where to go on."""
    agent = agent_after_scan(world)
    whole = agent.answer(action="get_context", session=SESSION)["extracted"]

    first = agent.answer(action="get_context", session=SESSION, limit=2)
    second = agent.answer(action="get_context", session=SESSION, limit=2, offset=2)

    assert first["next_offset"] == 2
    assert second["next_offset"] is None
    assert first["extracted_total"] == 3
    assert [one["entry_id"] for one in first["extracted"] + second["extracted"]] == [
        one["entry_id"] for one in whole
    ]


def test_what_will_be_next_is_told(world):
    """What the next scan would take is listed with its reason before it goes."""
    agent = Agent(world)
    for number in range(3):
        agent.conversation.turn(f"{number}" + "z" * 900)
    agent.write()
    world.scan(enabled=False)

    told = agent.answer(action="get_context", session=SESSION)

    assert told["extracted"] == []
    assert [one["entry_id"] for one in told["would_extract"]] == ["00000003", "00000007"]
    assert told["would_extract_total"] == 2
    assert "tool_result" in told["would_extract"][0]["reason"]
    assert told["gain_bytes"] > 1500


@pytest.mark.parametrize(
    ("given", "meant"), [(True, True), ("false", False), ("7", 7), (0, 0), ("TRUE", True)]
)
def test_what_models_write_for_a_value_is_understood(world, given, meant):
    """Booleans and numbers are taken as such and as words; 0 is a number and no `false`."""
    agent = agent_after_scan(world)

    told = agent.answer(action="set_extractable", entry_id="0000000f", value=given, session=SESSION)

    assert told["extractable"] == meant
    assert type(told["extractable"]) is type(meant)


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
def test_wrong_arguments_are_told_and_change_nothing(world, arguments, words):
    """What is wrong is named, as an error of the tool; session and store stay as they are."""
    agent = agent_after_scan(world, session=SESSION)
    agent.scope = Scope("main", SESSION)
    before = file_identity(agent.path)

    assert words in agent.error(**arguments)

    assert file_identity(agent.path) == before
    assert world.store._connection.execute("SELECT count(*) FROM requests").fetchone() == (0,)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"budget": 0}, "budget: Input should be greater than or equal to 1"),
        ({"note": "x" * 9000}, "note: String should have at most 8000 characters"),
    ],
)
def test_a_wrong_argument_is_told_in_one_sentence(world, arguments, words):
    """The error names what the argument can be, and not also that it can be absent."""
    assert Agent(world).error(action="get_context", **arguments) == words


def test_everything_that_is_wrong_is_told_at_once(world):
    """Two wrong arguments make one error that names both."""
    told = Agent(world).error(action="purge", limit="many")

    assert "action" in told
    assert "limit" in told


@pytest.mark.parametrize(
    "keys", [["content"], "content", "content, nothing", ["message.content.0.text"]]
)
def test_keys_come_as_a_list_or_with_commas(world, keys):
    """`keys` is a list or words with commas between; a whole path or a name in it will do."""
    agent = agent_after_scan(world)

    told = agent.answer(action="show", entry="00000003", keys=keys, session=SESSION)

    assert list(told["content"]) == ["message.content.0.text"]


def test_another_name_of_restore_is_understood(world):
    """The action may be called `restore_remote`, too."""
    agent = agent_after_scan(world)

    assert agent.answer(action="restore_remote", entry="00000003", session=SESSION)["restored"]


def test_arguments_given_as_nothing_are_not_given(world):
    """Hosts that name every argument may give null for what is not meant."""
    agent = agent_after_scan(world)

    told = agent.answer(
        action="show", entry="00000003", entry_id=None, session=SESSION, keys=None, value=None,
        limit=None, offset=None,
    )  # fmt: skip

    assert told["content"] == {"message.content.0.text": VALUE}


def test_a_bug_of_ours_is_told_without_what_it_was_about(world, monkeypatch):
    """An exception that nobody expected becomes an error of the tool that quotes nothing."""
    agent = agent_after_scan(world)

    def breaks(*_):
        raise ValueError(VALUE)

    monkeypatch.setattr(formatting, "fitted", breaks)

    words = agent.error(action="show", entry="00000003", session=SESSION)

    assert words.startswith("unexpected: ValueError at test_answering.py:")
    assert VALUE[:20] not in words


# --- pages ---------------------------------------------------------------------------------------


def test_a_value_beyond_the_limit_comes_as_its_two_ends(world):
    """Head and tail are given with the range of bytes left out between them."""
    agent = agent_after_scan(world)
    data = VALUE.encode()

    told = agent.answer(action="show", entry="00000003", session=SESSION, limit=101)
    ends = told["content"]["message.content.0.text"]

    start, end = ends["left_out"]
    assert ends["head"].encode() == data[:start]
    assert ends["tail"].encode() == data[end:]
    assert ends["size_bytes"] == len(data)
    assert start + (len(data) - end) <= 101


@pytest.mark.parametrize("limit", [1, 7, 500, 10**6])
def test_pages_put_together_are_the_value(world, limit):
    """`offset` and `limit` give every byte of a value exactly once, and no half characters."""
    agent = agent_after_scan(world, text="ä😀b" * 200)
    text, offset, pages = "", 0, 0
    while offset is not None:
        told = agent.answer(
            action="show", entry="00000003", session=SESSION, limit=limit, offset=offset
        )
        page = told["content"]["message.content.0.text"]
        text += page["text"]
        assert page["range"][0] == offset
        assert page["next_offset"] is None or page["next_offset"] > offset
        offset, pages = page["next_offset"], pages + 1
        if pages == 20:  # enough of the tiny pages
            break

    assert text == "ä😀b" * 200 or (pages == 20 and ("ä😀b" * 200).startswith(text))


def test_a_restore_in_pages_wants_one_value(world):
    """An offset for several values at once is refused, and nothing is asked for."""
    agent = agent_with_two_values(world, VALUE + "more")

    before = file_identity(agent.path)
    told = agent.error(action="restore", entry="00000003", session=SESSION, offset=0)

    assert "message.details.aggregated" in told
    assert file_identity(agent.path) == before
    assert world.store._connection.execute("SELECT count(*) FROM requests").fetchone() == (0,)


def test_a_value_that_stands_twice_is_given_once(world):
    """Of two equal values of an entry one is given, and `same_as` says where the other stands."""
    agent = agent_with_two_values(world)
    first, copy = "message.content.0.text", "message.details.aggregated"
    before = append_open_call(agent, {"action": "restore", "entry": "00000003"})

    shown = agent.answer(action="show", entry="00000003", session=SESSION)
    paged = agent.answer(action="show", entry="00000003", session=SESSION, offset=0, limit=10)
    told = agent.answer(action="restore", entry="00000003")

    assert before
    assert shown["content"] == told["content"] == {first: VALUE}
    assert shown["same_as"] == told["same_as"] == {copy: first}
    assert paged["content"][first]["text"] == VALUE[:10]
    assert told["keys_restored"] == [first, copy]
    assert list(told["sizes_bytes"]) == [first, copy]


def test_a_copy_that_is_asked_for_alone_is_the_value(world):
    """Named by its key, the second of two equal values is given in full."""
    agent = agent_with_two_values(world)

    told = agent.answer(action="show", entry="00000003", session=SESSION, keys="aggregated")

    assert told["content"] == {"message.details.aggregated": VALUE}
    assert "same_as" not in told


def test_the_first_of_equal_values_is_the_one_that_the_model_had(world):
    """Where details stand before the content in a line, the content is what is given."""
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

    told = agent.answer(action="show", entry="00000003", session=SESSION)

    assert told["content"] == {"message.content.0.text": VALUE}
    assert told["same_as"] == {"message.details.aggregated": "message.content.0.text"}


def test_half_a_character_survives_the_way(world):
    """A lone surrogate, which truncated output contains, arrives as what it is."""
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

    told = agent.answer(action="show", entry="00000003", session=SESSION)

    assert told["content"] == {"message.content.0.text": value}
