"""Prices of the tokens of a prompt, relative to tokens that no cache is involved with."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from brainsurgeon.model.rules import Price

# Globs of model ids; the first that matches counts. Sources: the pages "Prompt caching" and
# "Pricing" of Anthropic (platform.claude.com), "Pricing" of OpenAI (developers.openai.com) and
# "Context caching" of Google (ai.google.dev) and DeepSeek (api-docs.deepseek.com).
RATIOS = (
    ("*claude*", Price()),
    ("*gpt-4o*", Price(0.5, 1.0, 1.0)),
    ("*gpt-4.1*", Price(0.25, 1.0, 1.0)),
    ("*gpt*", Price(0.1, 1.0, 1.0)),
    ("*gemini*", Price(0.1, 1.0, 1.0)),
    ("*deepseek*", Price(0.1, 1.0, 1.0)),
)  # fmt: skip


def price_of(model: str | None, configured: Iterable[tuple[str, Price]] = ()) -> Price:
    """Return the price of a model: as configured, as built in, else that of Claude.

    No other provider's cache is dearer to break.
    """
    name = (model or "").lower()
    listed = (*((glob.lower(), price) for glob, price in configured), *RATIOS)
    return next((price for glob, price in listed if fnmatchcase(name, glob)), Price())
