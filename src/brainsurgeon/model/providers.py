"""Prices, cache lives and context windows of models, as their providers state them.

As of 28 November 2026. Sources: the pages "Pricing", "Prompt caching" and "Models" of Anthropic
(platform.claude.com) and OpenAI (developers.openai.com), "Context caching" of Google
(ai.google.dev) and DeepSeek (api-docs.deepseek.com), and the model data of @earendil-works/pi-ai
1.6.0, with which a long test compares this table. The keys `prices` and `windows` take precedence.
A model that is not listed is unknown; it counts as one whose cache is dear to break.
"""

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.model.turns import ModelCall

# Seconds for which Anthropic keeps an unused cache: by default, and on request. OpenAI keeps it
# for 5 to 10 minutes.
LIFE, LONG_LIFE = 300.0, 3600.0

# The largest requests that providers accept, in bytes, by globs of models: Anthropic (page "API
# overview" of platform.claude.com).
REQUEST_BYTES = (("*claude*", 32_000_000),)


class Price(Struct, frozen=True):
    """`read` to `write_hour` and `output` are multiples of the price of an uncached input token."""

    read: float = 0.1  # from the cache
    write: float = 1.25  # to the cache of 5 minutes
    write_hour: float = 2.0  # to the cache of an hour
    input: float | None = None  # dollars for a million uncached input tokens, if known
    output: float = 0.0
    # Prompts of more tokens than `line` cost `above` times as much, their answers `output_above`
    # times. 0: there is no such line.
    line: int = 0
    above: float = 1.0
    output_above: float = 1.0

    @property
    def redone(self) -> float:
        """The price of a token that the model writes again; about 5 for most models."""
        return self.output or 5.0

    def of_write(self, *, hour: bool) -> float:
        return self.write_hour if hour else self.write

    def is_above(self, tokens: float) -> bool:
        return 0 < self.line < tokens

    def of_prompt(self, tokens: float) -> float:
        return self.above if self.is_above(tokens) else 1.0

    def paid(self, call: ModelCall) -> float:
        """Return the cost of a prompt in uncached input tokens."""
        return self._paid(call) * self.of_prompt(call.tokens)

    def dollars(self, call: ModelCall, calls: int = 1) -> float | None:
        """Return the cost of a call, or of a number of calls on the same side of the line."""
        if self.input is None:
            return None
        tokens = call.tokens / max(1, calls)
        output = self.output * call.output * (self.output_above if self.is_above(tokens) else 1.0)
        return (self._paid(call) * self.of_prompt(tokens) + output) * self.input / 1e6

    def _paid(self, call: ModelCall) -> float:
        uncached = max(0, call.tokens - call.cached - call.written)
        return uncached + self.read * call.cached + self.of_write(hour=call.hour) * call.written


class Model(Struct, frozen=True):
    price: Price
    window: int  # tokens


# Globs of model ids and their prices.
Prices = Collection[tuple[str, Price]]
Dollars = tuple[float, float] | None  # for a million tokens of input, and of output

_CLAUDE, _OTHER = Price(), Price(0.1, 1.0, 1.0)
_LONG = Price(0.1, 1.0, 1.0, line=272_000, above=2.0, output_above=1.5)
# Ids with `-` in their versions. The windows of GPT-5.4 and later end where prompts get dearer.
_GROUPS: tuple[tuple[Price, int, dict[str, Dollars]], ...] = (
    (_CLAUDE, 200_000, {
        "claude-sonnet-4": (3, 15), "claude-sonnet-4-5": (3, 15), "claude-opus-4": (15, 75),
        "claude-opus-4-1": (15, 75), "claude-opus-4-5": (5, 25), "claude-haiku-4-5": (1, 5),
    }),
    (_CLAUDE, 1_000_000, {
        "claude-sonnet-4-6": (3, 15), "claude-sonnet-5": (2, 10), "claude-opus-4-6": (5, 25),
        "claude-opus-4-7": (5, 25), "claude-opus-4-8": (5, 25), "claude-opus-5": (5, 25),
        "claude-fable-5": (10, 50), "claude-mythos-5": None,
    }),
    (replace(_CLAUDE, line=100_000, above=5.0, output_above=5.0), 1_000_000, {
        "claude-haiku-5-5": (0.1, 0.5),
    }),
    (replace(_CLAUDE, read=0.05), 1_000_000, {
        "claude-sonnet-5-5": (2, 10), "claude-opus-5-5": (4, 20),
    }),
    (replace(_CLAUDE, read=0.025), 1_000_000, {
        "claude-fable-5-1": (10, 50), "claude-fable-5-2": (8, 40), "claude-mythos-5-1": None,
        "claude-mythos-5-2": None,
    }),
    (replace(_OTHER, read=0.5), 128_000, {"gpt-4o": (2.5, 10), "gpt-4o-mini": (0.15, 0.6)}),
    (Price(1.0, 1.0, 1.0), 128_000, {"gpt-4o-2024-05-13": (5, 15)}),
    (replace(_OTHER, read=0.25), 1_047_576, {
        "gpt-4-1": (2, 8), "gpt-4-1-mini": (0.4, 1.6), "gpt-4-1-nano": (0.1, 0.4),
    }),
    (replace(_OTHER, read=0.5), 200_000, {"o1": (15, 60), "o3-mini": (1.1, 4.4)}),
    (Price(1.0, 1.0, 1.0), 200_000, {"o1-pro": (150, 600), "o3-pro": (20, 80)}),
    (replace(_OTHER, read=0.25), 200_000, {"o3": (2, 8), "o4-mini": (1.1, 4.4)}),
    (_OTHER, 400_000, {
        "gpt-5": (1.25, 10), "gpt-5-mini": (0.25, 2), "gpt-5-nano": (0.05, 0.4),
        "gpt-5-codex": (1.25, 10), "gpt-5-1": (1.25, 10), "gpt-5-1-codex": (1.25, 10),
        "gpt-5-1-codex-max": (1.25, 10), "gpt-5-1-codex-mini": (0.25, 2), "gpt-5-2": (1.75, 14),
        "gpt-5-2-codex": (1.75, 14), "gpt-5-3-codex": (1.75, 14), "gpt-5-4-mini": (0.75, 4.5),
        "gpt-5-4-nano": (0.2, 1.25),
    }),
    (_OTHER, 128_000, {"gpt-5-chat-latest": (1.25, 10), "gpt-5-3-codex-spark": (1.75, 14)}),
    (Price(1.0, 1.0, 1.0), 400_000, {"gpt-5-pro": (15, 120), "gpt-5-2-pro": (21, 168)}),
    (replace(_LONG, read=1.0), 1_050_000, {
        "gpt-5-4-pro": (30, 180), "gpt-5-5-pro": (30, 180),
    }),
    (_LONG, 272_000, {"gpt-5-4": (2.5, 15), "gpt-5-5": (5, 30)}),
    # From GPT-5.6 on, OpenAI's writes are priced like Claude's.
    (replace(_LONG, write=1.25, write_hour=2.0), 272_000, {
        "gpt-5-6-luna": (0.2, 1.2), "gpt-5-6-terra": (2, 12), "gpt-5-6-sol": (4, 20),
        "gpt-6-luna": (0.1, 0.5), "gpt-6-sol": (2, 10), "gpt-6-astra": (10, 50),
    }),
    (_CLAUDE, 400_000, {"gpt-5-6-cyber": (12.5, 75)}),
    (_CLAUDE, 1_050_000, {"gpt-6-cyber": (20, 100)}),
    (replace(_LONG, read=0.05, write=1.25, write_hour=2.0), 272_000, {
        "gpt-6-1-terra": (1, 5), "gpt-6-1-sol": (2, 10), "gpt-6-2-sol": (2, 10),
        "gpt-6-2-astra": (8, 40),
    }),
    (_OTHER, 1_048_576, {
        "gemini-2-5-flash": (0.3, 2.5), "gemini-2-5-flash-lite": (0.1, 0.4),
        "gemini-3-flash-preview": (0.5, 3), "gemini-3-1-flash-lite": (0.25, 1.5),
        "gemini-3-5-flash": (1.5, 9), "gemini-3-5-flash-lite": (0.3, 2.5),
        "gemini-3-6-flash": (0.75, 3.75), "gemini-3-7-flash": (0.75, 3.75),
        "gemini-3-8-flash": (0.75, 3.75),
    }),
    (replace(_LONG, line=200_000), 1_048_576, {
        "gemini-2-5-pro": (1.25, 10), "gemini-3-1-pro-preview": (2, 12),
    }),
    (replace(_OTHER, read=0.05), 1_048_576, {
        "gemini-4-argon": (2, 10), "gemini-4-carbon": (2, 10), "gemini-4-hydrogen": (1.5, 7.5),
        "gemini-4-neon": (3, 15),
    }),
    (Price(0.02, 1.0, 1.0), 1_000_000, {"deepseek-flash": (0.3, 1.2)}),
    (Price(1 / 30, 1.0, 1.0), 1_000_000, {"deepseek-v4-pro": (1.32, 3.96)}),
)  # fmt: skip
MODELS = {
    name: Model(
        replace(price, input=dollars[0], output=dollars[1] / dollars[0]) if dollars else price,
        window,
    )
    for price, window, names in _GROUPS for name, dollars in names.items()
}  # fmt: skip
_CLOUD = re.compile(r"(?:[a-z-]+\.)*(?:anthropic|openai)\.(?=[a-z])")  # of Amazon Bedrock
# What may follow the name of a model. Another number is another version.
_REST = re.compile(
    r"(?:[-@](?:[0-9]{8}|[0-9]{4}-[0-9]{2}-[0-9]{2}))?(?:-v[0-9](?::[0-9])?)?"
    r"(?P<variant>[-:@][a-z].*)?"
)


@cache
def known(model: str | None) -> Model | None:
    """Return what is known about a model. `model` may name its provider, and a date.

    The dollars of variants (such as `-fast`), and those of Amazon Bedrock, are unknown.
    """
    ident = (model or "").lower().rpartition("/")[2].removesuffix("[1m]")
    plain = _CLOUD.sub("", ident, count=1).replace(".", "-")
    name = max((name for name in MODELS if plain.startswith(name)), key=len, default="")
    rest = _REST.fullmatch(plain.removeprefix(name))
    if not name or not rest:
        return None
    found = MODELS[name]
    if rest["variant"] or _CLOUD.match(ident):
        return replace(found, price=replace(found.price, input=None, output=0.0))
    return found


def price_of(model: str | None, configured: Prices = ()) -> Price:
    """Return the price of a model: the configured one, or the known one.

    Unknown models count as Claude up to 5, whose cache is the dearest to break.
    """
    name = (model or "").lower()
    names = (name, name.rpartition("/")[2])
    own = (
        price for glob, price in configured
        if any(fnmatchcase(one, glob.lower()) for one in names)
    )  # fmt: skip
    found = known(model)
    return next(own, found.price if found else Price())
