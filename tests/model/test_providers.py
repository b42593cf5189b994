"""What is known about models: cache prices, dollars and windows."""

import pytest

from brainsurgeon.model.providers import Price, known, price_of
from brainsurgeon.model.turns import ModelCall

CLAUDE = Price()


@pytest.mark.parametrize(
    ("models", "read", "write", "hour"),
    [
        ("claude-opus-4-5 claude-opus-5-20260301 claude-fable-5 claude-mythos-5", 0.1, 1.25, 2),
        ("claude-haiku-5-5 gpt-5.6-sol gpt-6-astra openai/gpt-6-luna", 0.1, 1.25, 2),
        ("claude-opus-5-5 us.anthropic.claude-sonnet-5-5-20260901-v1:0", 0.05, 1.25, 2),
        ("gpt-6.1-terra gpt-6.2-sol openai.gpt-6.2-astra gpt-6.2-sol-fast", 0.05, 1.25, 2),
        ("claude-fable-5-1 anthropic/claude-fable-5.2 CLAUDE-MYTHOS-5-1", 0.025, 1.25, 2),
        ("claude-mythos-5-2@20261001", 0.025, 1.25, 2),
        ("gemini-4-neon google/gemini-4-argon", 0.05, 1, 1),
        ("gpt-5.3-codex gpt-5 gemini-2.5-pro gpt-5.4", 0.1, 1, 1),
        ("openai/gpt-4.1 o3 openai/o4-mini", 0.25, 1, 1),
        ("gpt-4o-mini o1 o3-mini-2025-01-31", 0.5, 1, 1),
    ],
)
def test_cache_prices_depend_on_the_model(models, read, write, hour):
    """A read costs a share of an input token; the writes of some models cost more than one."""
    for model in models.split():
        price = price_of(model)
        prices = price.read, price.of_write(hour=False), price.of_write(hour=True)
        assert (model, *prices) == (model, read, write, hour)


@pytest.mark.parametrize(
    "model", ["claude-opus-5-7", "claude-opus-50", "claude-sonnet-6", "gpt-7", "gpt-6.3-sol",
              "gpt-5.7", "mock-1", "gpt-oss-120b", "", None],
)  # fmt: skip
def test_an_unlisted_version_is_unknown(model):
    """It costs no known dollars, and its cache counts as one that is dear to break."""
    assert known(model) is None
    assert price_of(model) == CLAUDE


def test_a_configured_price_takes_precedence():
    """The price of the first glob that matches, in any case, replaces the known one."""
    house = Price(0.2, 1.0, 1.0, 3.0)

    assert price_of("HOUSE-claude-1", [("House-*", house)]) == house
    assert price_of("openai/gpt-6.2-sol", [("gpt-6*", house)]) == house
    assert price_of("claude-1", [("House-*", house)]) == CLAUDE


def test_dollars_are_those_of_the_provider_itself():
    """Clouds and variants of a model have the same multiples, but dollars of their own."""
    assert price_of("anthropic/claude-opus-5.5").input == 4
    assert price_of("claude-fable-5-2").output * 8 == 40
    for other in ("us.anthropic.claude-opus-5-5", "claude-opus-5-5-fast", "claude-opus-5.5:batch"):
        assert price_of(other).input is None
    assert price_of("claude-mythos-5-1").input is None


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("claude-opus-4-5", 200_000), ("claude-opus-4-6", 1_000_000), ("claude-opus-5", 1_000_000),
        ("claude-haiku-4-5", 200_000), ("claude-haiku-5-5", 1_000_000), ("gpt-6.2-sol", 272_000),
        ("gpt-5.3-codex", 400_000), ("gemini-4-neon", 1_048_576),
    ],
)  # fmt: skip
def test_windows_are_known(model, window):
    """Claude from 4.6 on takes a million tokens; GPT is dearer above 272,000."""
    assert known(model).window == window


def test_long_prompts_can_be_dearer():
    """A call above the line costs more as a whole: five times with Haiku 5.5."""
    haiku, gpt = price_of("claude-haiku-5-5"), price_of("gpt-6.2-sol")
    short, long = (ModelCall(None, None, tokens, output=10_000) for tokens in (100_000, 100_001))

    assert haiku.dollars(short) == pytest.approx(0.01 + 0.005)
    assert haiku.dollars(long) == pytest.approx(0.05 + 0.025, rel=1e-4)
    assert haiku.paid(long) == 5 * 100_001
    assert gpt.dollars(ModelCall(None, None, 300_000, output=10_000)) == pytest.approx(1.2 + 0.15)
    # The sums of two calls below the line.
    assert haiku.dollars(ModelCall(None, None, 200_000), 2) == pytest.approx(0.02)
