"""Reasoning of GPT-6.2, which OpenAI drops behind each change of a session."""

import json

import pytest

from brainsurgeon.operations.estimate import estimate
from brainsurgeon.operations.sessions import context, session_costs
from brainsurgeon.render.estimate import costs, costs_json
from brainsurgeon.render.estimate import estimate as estimate_text
from brainsurgeon.render.turns import context as context_text
from brainsurgeon.render.turns import context_json
from building.cached_conversation import CachedConversation
from building.world import entry_text

HOUR = 3600
EARLY, LATE = "early " * 500, "late " * 6000
LATE_TOKENS = 200


class ReasoningConversation(CachedConversation):
    """A session of pi with GPT-6.2. Each answer has encrypted reasoning of `tokens`."""

    def __init__(self, at, model="gpt-6.2-sol"):
        super().__init__(at, model=model)
        self.tokens = 4000

    def assistant(self, content="done.", stop="stop", **fields):
        item = {"type": "reasoning", "id": f"rs_{len(self.lines)}", "encrypted_content": "e" * 900}
        block = {"type": "thinking", "thinking": "", "thinkingSignature": json.dumps(item)}
        text = content if isinstance(content, list) else [{"type": "text", "text": content}]
        ident = super().assistant([block, *text], stop, "openai-responses", **fields)
        self.lines[-1]["message"]["usage"]["reasoning"] = self.tokens
        return ident


def write(world, clock, *, late=LATE, dropped=(), **keys):
    """Write a session with an early and a late result; return the ids of their entries."""
    talk = ReasoningConversation(clock.now - 2 * HOUR, **keys)
    early = talk.turn(EARLY, details={"stdout": "d" * 5000})
    for _ in range(4):
        talk.turn("short")
    talk.tokens = LATE_TOKENS
    late = talk.turn(late)
    talk.turn("short")
    talk.lines[-1]["message"]["diagnostics"] = [{
        "type": "openai_input_transformations",
        "details": {"transformations": [
            {"type": "reasoning", "id": "rs_1", "action": "removed", "reason": reason}
            for reason in dropped
        ]},
    }]  # fmt: skip
    world.put("s.jsonl", talk.bytes(), age=2 * HOUR)
    return early, late


def taken(world, path, *idents):
    return [entry_text(path, ident).startswith("[[extracted-") for ident in idents]


def test_late_values_and_those_never_sent_are_extracted_first(world, clock, path):
    """An early value stays while the reasoning behind it is worth more; no reasoning is removed."""
    early, late = write(world, clock)
    before = path.read_text().count("rs_")
    report = world.scan(min_reclaim=0)

    assert taken(world, path, early, late) == [False, True]
    assert report.values_extracted == 2
    assert path.read_text().count("rs_") == before
    assert "d" * 5000 not in path.read_text()


def test_no_value_is_extracted_if_all_cost_more_than_they_save(world, clock, path):
    """The reason is shown, and the reasoning that the extraction would lose."""
    early, _ = write(world, clock, late="short")
    report = world.scan(min_reclaim=0)

    [session] = report.sessions
    assert taken(world, path, early) == [False]
    assert "the reasoning behind its values is worth more" in str(session.plan.kept)
    shown = context(world.settings(min_reclaim=0), world.no_store, "main/s", clock.now)
    # Each turn has two answers.
    assert shown.plan.reasoning_lost == context_json(shown, [])["reasoning_lost"] > 8 * 4000
    assert "tokens behind the first value to extract: the provider drops them" in context_text(
        shown, []
    )  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        ({"model": "gpt-6.1-sol"}, {}), ({"model": "gpt-5.3-codex"}, {}),
        ({}, {"signed_models": ["!gpt-6.2*"]}), ({}, {"when": "cold"}), ({}, {"when": "always"}),
        ({}, {"windows": {"*": 20_000}}),
    ],
    ids=str,
)  # fmt: skip
def test_other_models_and_settings_extract_all_values(world, clock, path, keys, settings):
    """So do a configured `when`, and a session that is too full."""
    early, late = write(world, clock, **keys)
    world.scan(min_reclaim=0, **settings)

    assert taken(world, path, early, late) == [True, True]


def test_signed_models_adds_models_whose_reasoning_is_dropped(world, clock, path):
    """The key covers reasoning of OpenAI as it covers signed thinking."""
    early, late = write(world, clock, model="house-gpt")
    world.scan(min_reclaim=0, signed_models=["house-*"])

    assert taken(world, path, early, late) == [False, True]


def test_reasoning_of_a_former_model_is_not_counted(world, clock, path):
    """After a change of the model, no request contains it."""
    early, late = write(world, clock)
    data = path.read_bytes()
    head, _, tail = data.rpartition(b'"gpt-6.2-sol"')
    world.put("s.jsonl", head + b'"gpt-6.2-astra"' + tail, age=2 * HOUR)
    world.scan(min_reclaim=0)

    assert taken(world, path, early, late) == [True, True]


def test_reasoning_that_is_lost_already_costs_nothing_more(world, clock, path):
    """Behind an earlier extraction, the provider has dropped it."""
    talk = ReasoningConversation(clock.now - 2 * HOUR)
    first, second = talk.turn(3 * EARLY), talk.turn(EARLY)
    for _ in range(4):
        talk.turn("short")
    world.put("s.jsonl", talk.bytes(), age=2 * HOUR)
    world.scan(min_reclaim=0)
    assert taken(world, path, first, second) == [False, False]

    world.scan(min_reclaim=0, when="always", min_value_length=len(EARLY))
    assert taken(world, path, first, second) == [True, False]
    clock.now += 2 * HOUR
    world.scan(min_reclaim=0)
    assert taken(world, path, first, second) == [True, True]


def test_dropped_reasoning_is_shown(world, clock):
    """The newest call's records of `prefix_mismatch` are counted; other reasons are not.

    Anthropic calls it `prefix_binding_mismatch`.
    """
    write(world, clock, dropped=("prefix_mismatch", "prefix_binding_mismatch", "model_mismatch"))
    found = session_costs(world.settings(), world.no_store, "main/s")

    assert costs_json(found)["reasoning_dropped"] == 2
    assert "reasoning  2 items dropped by the provider in the last call: prefix_mismatch" in costs(
        found, 0
    )


@pytest.mark.parametrize(("late", "lost"), [(LATE, 5 * LATE_TOKENS), ("short", 0)])
def test_estimate_takes_what_a_run_would_take_when_cold(world, clock, late, lost):
    """The values that a run leaves for the reasoning behind them stay in the replay, too."""
    talk = ReasoningConversation(clock.now - 5 * HOUR)
    talk.turn(EARLY)
    for _ in range(4):
        talk.turn("short")
    talk.tokens = LATE_TOKENS
    for text in (late, "short", "short"):
        talk.turn(text)
    world.put("s.jsonl", talk.bytes(), age=3 * HOUR)
    cold = context(world.settings(min_reclaim=0), world.no_store, "main/s", clock.now)
    taken = [one for one in cold.plan.optional if cold.plan.reasoning_lost == lost]
    talk.at += 2 * HOUR
    for _ in range(3):
        talk.turn("short")
    world.put("s.jsonl", talk.bytes(), age=2 * HOUR)
    policies = estimate(world.settings(min_reclaim=0), world.no_store, (), clock.now).policies

    assert len(taken) == (lost > 0)
    assert policies["configured"].reasoning_lost == lost < policies["cold"].reasoning_lost
    sent = policies["raw"].tokens_sent - policies["configured"].tokens_sent
    # Six calls follow the pause.
    assert sent == pytest.approx(6 * sum(one.tokens for one in taken), rel=0.05)


def test_estimate_prints_how_much_reasoning_is_lost(world, clock):
    """Each policy loses what stands behind its first extraction."""
    write(world, clock)
    found = estimate(world.settings(), world.no_store, (), clock.now)

    assert found.policies["raw"].reasoning_lost == 0
    assert found.policies["always"].reasoning_lost >= 3 * 4000
    assert "reasoning lost" in estimate_text(found)
