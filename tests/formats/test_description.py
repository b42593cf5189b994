"""Descriptions of logs: paths, conditions and contradictions."""

import pytest

from brainsurgeon.formats.description import (
    ContradictionError,
    conditions,
    description,
    found,
    met,
    steps_of,
)

ENTRY = {
    "role": "assistant",
    "n": 1,
    "none": None,
    "parts": [{"text": "a"}, {"text": "b", "thought": True}, {"call": {"id": "c"}}, "d"],
}
LOG = {
    "recognise": [{"kind": "*"}],
    "entries": [
        {"role": "prompt", "when": {"kind": "q"}}, {"role": "reply", "when": {"kind": "a"}},
    ],
    "texts": "said",
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "places"),
    [
        ("", [()]),
        ("role", [("role",)]),
        ("parts.*.text", [("parts", 0, "text"), ("parts", 1, "text")]),
        ("parts.*[thought=true].text", [("parts", 1, "text")]),
        ("[role=assistant].parts.*[call=x]", []),
        ("[role=assistant][n=1].role", [("role",)]),
        ("[role=user].parts", []),
        ("parts.*.call.*", [("parts", 2, "call", "id")]),
        ("parts.text", []),
        ("missing.*", []),
    ],
)
def test_a_path_leads_to_values(path, places):
    """`*` is each item, `[key=value]` selects objects, and a key that is missing leads nowhere."""
    assert [at for at, _ in found(ENTRY, steps_of(path))] == places


@pytest.mark.parametrize("path", ["a..b", "a[b]", "[a=b", "a.*c", "a]", ".a", "a[*=b]"])
def test_a_path_that_cannot_be_read_is_refused(path):
    """It is not guessed what was meant."""
    with pytest.raises(ValueError, match="is no path"):
        steps_of(path)


@pytest.mark.parametrize(
    ("wanted", "is_met"),
    [
        ({}, True),
        ({"role": "assistant"}, True),
        ({"role": ["user", "assistant"]}, True),
        ({"role": "user"}, False),
        ({"n": 1}, True),
        ({"n": True}, False),
        ({"n": "1"}, False),
        ({"parts.*.thought": True}, True),
        ({"role": "*", "parts": "*"}, True),
        ({"none": "*"}, False),
        ({"none": "-"}, True),
        ({"missing": "-"}, True),
        ({"role": "-"}, False),
        ({"role": "assistant", "missing": "*"}, False),
    ],
)
def test_every_condition_must_be_met(wanted, is_met):
    """A value, one of several, any (`*`) or none (`-`)."""
    assert met(ENTRY, conditions(wanted)) is is_met


@pytest.mark.parametrize(
    ("changed", "key", "why"),
    [
        ({"texts": []}, "texts", "none leads to a value"),
        ({"texts": "a..b"}, "texts", "no path"),
        ({"unsent": ["x", "said"]}, "unsent", "'said' is among the texts"),
        ({"recognise": []}, "recognise", "every file would fit"),
        ({"recognise": [{}]}, "recognise", "every file would fit"),
        ({"recognise": [{"a..b": "*"}]}, "recognise", "no path"),
        ({"entries": []}, "entries", "no entry is a prompt"),
        ({"entries": LOG["entries"][:1]}, "entries", "no entry is a reply"),
        ({"entries": [*LOG["entries"], {"role": "result", "when": {"kind": "a", "x": 1}}]},
         "entries[2]", "is never used: entries[1] fits whatever it fits"),
        ({"entries": [*LOG["entries"], {"role": "reply", "kind": "tool_call", "when": {"x": 1}}]},
         "arguments", "an entry is a call"),
        ({"entries": [{"rolle": "prompt"}]}, "entries[0].rolle",
         "no such key; there are role, when, kind, closes"),
        ({"entries": [{"role": "human"}]}, "entries[0].role",
         "wants prompt, reply, result, aside, note, but 'human' is given"),
        ({"newest": "2"}, "newest", "Expected `int`"),
        ({"prompt": "x"}, "prompt", "no such key; there are entries, recognise, "),
    ],
)  # fmt: skip
def test_a_contradiction_is_refused_with_its_key(changed, key, why):
    """A description that can find nothing, or says two things, is no description."""
    with pytest.raises(ContradictionError, match=r".") as refused:
        description({**LOG, **changed})

    assert refused.value.key == key
    assert why in str(refused.value)


def test_a_sound_description_is_read():
    """Its keys without values have their defaults."""
    assert description(LOG).newest == 2
