"""Model tiers, context windows, thresholds, and the steps that relieve a session."""

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.model.entries import OLD, Value
from brainsurgeon.model.rules import Budget, Rule, Rules
from brainsurgeon.planning.budget import blocks_sent, relief_levels, rules_at
from brainsurgeon.planning.rules import EntryState, Extract, Keep, decision_on
from building.claude import ClaudeConversation
from building.format_reading import Reading

# The length of a giant result, and half of the messages.
HALF = 80_000, 26
RULES = Rules((Rule("thinking", (), 500, 3), Rule("tool_result", ("a*",), 900, 9)), 3, 500)

SOURCE = {"type": "base64", "media_type": "image/png", "data": "A" * 4000}
PICTURE = {"type": "image", "source": SOURCE}


def test_blocks_that_cannot_leave_are_not_counted_as_leaving():
    """Of too many pictures, others leave in place of one that the agent keeps."""
    talk = ClaudeConversation()
    for text in ("<persisted-output>\nSaved to out.txt", "shown"):
        talk.user()
        talk.call()
        talk.result([{"type": "text", "text": text}, PICTURE])
    blocks = blocks_sent(Reading(FORMATS["claude-code"], talk.bytes()).transcript)

    assert [block.ident for block in blocks] == [talk.lines[-1]["uuid"]]


@pytest.mark.parametrize(
    ("model", "threshold"),
    [
        ("claude-opus-4-5-20251101", 0.85), ("claude-3-opus-20240229", 0.85),
        ("claude-fable-5", 0.85), ("claude-mythos-5-1", 0.85), ("gpt-5.3-codex", 0.85),
        ("gemini-3-pro-preview", 0.85), ("gemini-3.1-pro", 0.85), ("o3", 0.85), ("openai/o3", 0.85),
        ("anthropic/Claude-Sonnet-4-5", 0.65), ("gpt-4.1", 0.65), ("gpt-5-mini", 0.65),
        ("gpt-5.4-mini", 0.65), ("gemini-2.5-pro", 0.65),
        ("claude-haiku-4-5", 0.35), ("gemini-2.5-flash", 0.35), ("gemini-3-flash-preview", 0.35),
        ("gpt-4o-mini", 0.35), ("gpt-5-nano", 0.35), ("gpt-4.1-nano", 0.35), ("o3-mini", 0.35),
        ("openai/o4-mini-high", 0.35), ("o3-pro", 0.85), ("gpt-4.1-mini", 0.65),
        ("gpt-6-sol", 0.85), ("openai/gpt-6.2-astra", 0.85), ("gpt-6.1-terra", 0.65),
        ("gpt-6-luna", 0.35), ("gemini-4-neon", 0.85), ("google/gemini-4-argon", 0.85),
        ("gemini-4-carbon", 0.65), ("gemini-4-hydrogen", 0.35),
        ("mock-1", 0.75), ("turbo3", 0.75), ("", 0.75), (None, 0.75),
    ],
)  # fmt: skip
def test_threshold_depends_on_the_tier_of_the_model(model, threshold):
    """Frontier 0.85, mid 0.65, small 0.35, and 0.75 for unknown models."""
    budget = Budget()

    assert budget.threshold_of(budget.tier(model)) == threshold


def test_longest_configured_glob_decides_the_tier():
    """The order of the globs is irrelevant, and any of them takes precedence over built-in ones."""
    budget = Budget(tiers=(("gpt", "small"), ("GPT-5", "mid"), ("house-*-xl", "frontier")))

    assert budget.tier("gpt-5-nano") == "mid"
    assert budget.tier("gpt-4.1") == "small"
    assert budget.tier("House-7-XL") == "frontier"
    assert budget.tier("o3") == "frontier"


def test_window_is_recorded_configured_or_the_default():
    """The first configured glob that matches counts, in any case."""
    budget = Budget(windows=(("House-*", 32_000), ("*", 64_000)))

    assert budget.window("house-1", 128_000) == 128_000
    assert budget.window("HOUSE-1", None) == 32_000
    assert budget.window(None, None) == 64_000
    assert Budget().window("house-1", None) == 200_000
    assert Budget().window("claude-opus-5-5", None) == 1_000_000
    assert Budget(windows=(("claude-*", 64_000),)).window("claude-opus-5-5", None) == 64_000


def test_relief_steps_add_up():
    """Each relief step adds its own change to those of the steps before it."""
    levels = (relief_levels(to, "flat")[-1] for to in (1, 2, 4, 5, 6, 7))
    first, two, four, five, six, seven = (rules_at(level, RULES, *HALF) for level in levels)

    assert [rule.min_value_length for rule in first.rules] == [200, 200]
    assert first.min_value_length == 200
    assert (first.giant, first.keep_recent, first.max_messages) == (0, 3, 0)
    assert two.giant == 80_000
    assert [rule.keep_recent for rule in two.rules] == [3, 9]
    assert [rule.keep_recent for rule in four.rules] == [1, 1]
    assert [rule.kind for rule in five.rules] == ["thinking", "tool_result", "tool_call"]
    assert (five.rules[-1].min_value_length, five.rules[-1].keep_recent) == (200, 1)
    assert (six.max_messages, six.giant, six.min_value_length) == (26, 80_000, 200)
    assert seven.max_messages == 13


def test_relief_steps_never_loosen_a_rule():
    """A rule with a smaller length or window than the step's stays as it is."""
    short = Rules((Rule("user", (), 20, 0),), 0, 10, max_messages=5)
    last = rules_at(relief_levels(6, "flat")[-1], short, *HALF)

    assert last.rules[0] == Rule("user", (), 20, 0)
    assert (last.min_value_length, last.keep_recent, last.max_messages) == (10, 0, 5)


def test_relief_steps_of_a_database_exclude_the_halves():
    """A database allows steps 1, 2, 4 and 5; a file also the last ones, up to the given one.

    Each level adds a step. Only sessions with linked archives have step 3.
    """
    assert relief_levels(7, None)[-1] == (0, 1, 2, 4, 5)
    assert relief_levels(3, "flat") == [(), (0,), (0, 1), (0, 1, 2)]
    assert relief_levels(0, "flat") == [(), (0,)]
    assert relief_levels(6, "flat")[-1] == (0, 1, 2, 4, 5, 6)
    assert relief_levels(7, "linked")[-1] == (0, 1, 2, 3, 4, 5, 6, 7)


def decide(kind="tool_result", chars=100, position=0, rules=RULES, **state):
    part = Value(("x",), kind, chars, "b", block=state.pop("block", False))
    entry = EntryState("e", position, **state)
    return decision_on(part, None, entry, rules, 1000.0)


def test_giant_result_is_extracted_at_any_position():
    """Images, other kinds, pinned and just restored values stay."""
    giant = Rules((Rule("thinking", (), 500, 3),), giant=5000)

    assert isinstance(decide(chars=5001, rules=giant), Extract)
    assert decide(chars=5000, rules=giant) == Keep("recent")
    assert isinstance(decide(chars=5001, rules=giant, block=True), Keep)
    assert isinstance(decide("user", chars=5001, rules=giant), Keep)
    assert decide(chars=5001, rules=giant, extractable=False) == Keep("pinned")
    assert decide(chars=5001, rules=giant, extractable=1) == Keep("recent by its _extractable")
    assert isinstance(decide(chars=5001, rules=giant, restored_at=900.0), Keep)


@pytest.mark.parametrize("limits", [{"giant": 5000}, {"max_messages": 50}])
def test_limits_of_requests_ignore_values_that_are_never_sent(limits):
    """Removing a value that no request contains makes none shorter; it waits for its rule."""
    for dead, decision in ((False, Extract), (True, Keep)):
        part = Value(("x",), "tool_result", 9000, dead=dead)
        decided = decision_on(part, None, EntryState("e", 60), Rules((), 100, **limits), 1000.0)
        assert isinstance(decided, decision)


def test_max_messages_extracts_all_older_values():
    """With max_messages = 50, the 51st message from the end loses its values, however short."""
    capped = Rules((), max_messages=50)

    for kind in ("user", "assistant", "tool_result", "thinking"):
        assert isinstance(decide(kind, 30, 50, capped), Extract)
        assert isinstance(decide(kind, 9000, 49, capped), Keep)
    assert isinstance(decide("user", 30, OLD, capped), Extract)
    assert decide("user", 30, 50, capped, extractable=False) == Keep("pinned")
    assert isinstance(decide("user", 30, 50, capped, dead="off the active branch"), Keep)
    assert capped.kept_messages == 50
    assert capped.shortest == 0


def test_max_messages_keeps_call_arguments_without_a_rule():
    """A model copies what it sees, so placeholders appear in calls only if a rule asks for it."""
    capped = Rules((), max_messages=5)
    with_rule = Rules((Rule("tool_call", (), 500, 3),), max_messages=5)

    assert isinstance(decide("tool_call", 900, 9, capped), Keep)
    assert isinstance(decide("tool_call", 30, 9, with_rule), Extract)
