"""The known models, compared with the model data that pi publishes."""

import json

import pytest

from brainsurgeon.model.providers import LIFE, LONG_LIFE, MODELS, known
from proofs.agent_packages import PI_MODELS, package

pytestmark = pytest.mark.long(proves=("model",))

# The providers of the models themselves. Gateways and clouds have other prices and windows.
PROVIDERS = ("anthropic", "openai", "google", "deepseek")
# pi has no data of these.
UNPUBLISHED = {
    "claude-mythos-5", "claude-mythos-5-1", "claude-mythos-5-2", "claude-opus-4",
    "claude-opus-4-1", "claude-sonnet-4", "gpt-5-codex", "gpt-5-1-codex", "gpt-5-1-codex-max",
    "gpt-5-1-codex-mini", "gpt-5-2-codex",
}  # fmt: skip


def published():
    data = package(PI_MODELS) / "@earendil-works" / "pi-ai" / "dist" / "providers" / "data"
    for provider in PROVIDERS:
        for models in json.loads((data / f"{provider}.json").read_text()).values():
            yield from (model for model in models.values() if model["type"] == "chat")


def test_known_models_are_those_of_their_providers():
    """Prices, lines, windows and lives are equal, and no model of Claude or GPT is missing."""
    names, differing = set(), []
    for model in published():
        name, cost, found = model["id"], model["cost"], known(model["id"])
        if found is None:
            missing = name.startswith(("claude-", "gpt-5", "gpt-6", "gemini-4"))
            differing += [name] if missing else []
            continue
        names |= {key for key, value in MODELS.items() if value is found}
        price, [above] = found.price, cost.get("tiers") or [None]
        ours = [found.window, price.read, price.write, price.line, price.above, price.output_above]
        if price.input is not None:
            ours += [price.input, price.input * price.output]
        # 0: a read or write costs as much as any other token.
        theirs = [
            model["contextWindow"], (cost["cacheRead"] or cost["input"]) / cost["input"],
            (cost["cacheWrite"] or cost["input"]) / cost["input"],
            *((above["inputTokensAbove"], above["input"] / cost["input"],
               above["output"] / cost["output"]) if above else (0, 1, 1)),
        ]  # fmt: skip
        if price.input is not None:
            theirs += [cost["input"], cost["output"]]
        lives = model.get("promptCache", {"short": LIFE, "long": LONG_LIFE})
        if ours != pytest.approx(theirs) or lives != {"short": LIFE, "long": LONG_LIFE}:
            differing.append((name, ours, theirs, lives))
    assert differing == []
    assert set(MODELS) - names == UNPUBLISHED
