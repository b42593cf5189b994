"""The rules that a configuration sets: for extraction, archives and the context load."""

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from brainsurgeon.model.entries import KeyPath, Value
from brainsurgeon.model.plans import Plan, freed
from brainsurgeon.model.providers import REQUEST_BYTES, known
from brainsurgeon.model.turns import Tier

ValueIds = frozenset[tuple[str | None, KeyPath]]  # each by its entry's id and its path


class Terms(Struct, frozen=True):
    """How long (seconds) the store keeps a value; None: for ever."""

    retention: float | None  # its placeholder is in no session any more
    missing: float | None  # its session or its entry is missing
    standing: float | None  # its placeholder is in a session


class Rule(Struct, frozen=True):
    kind: str
    tools: tuple[str, ...]  # globs; without any, all tools match
    min_value_length: int  # characters
    keep_recent: int  # messages

    def matches(self, value: Value) -> bool:
        return value.kind == self.kind and (
            not self.tools or any(fnmatchcase(value.tool or "", glob) for glob in self.tools)
        )


class ValueRules(Struct, frozen=True):
    rules: tuple[Rule, ...]  # the first rule that matches a value applies
    keep_recent: int = 3  # messages, if no rule matches
    min_value_length: int = 500  # characters, if no rule matches
    enabled: bool = True
    keep_after_restore: float = 600.0  # seconds
    exclude_tools: tuple[str, ...] = ()
    giant: int = 0  # if not 0: results with more characters are extracted at any position
    max_messages: int = 0  # if not 0: before the newest N messages, any length is extracted
    superseded: bool = False  # extract superseded values, for which `keep_recent` is at most 2
    heavy: ValueIds = frozenset()  # pictures and documents that are extracted at any position

    def match(self, value: Value) -> Rule | None:
        return next((rule for rule in self.rules if rule.matches(value)), None)

    def excludes(self, value: Value) -> bool:
        tool = value.tool
        return tool is not None and any(fnmatchcase(tool, glob) for glob in self.exclude_tools)

    @property
    def shortest(self) -> int:
        """No rule extracts a value of at most so many characters."""
        if self.max_messages or not self.rules:
            return 0
        giant = self.giant or self.min_value_length
        return min(self.min_value_length, giant, *(rule.min_value_length for rule in self.rules))

    @property
    def kept_messages(self) -> int:
        kept = (rule.keep_recent for rule in self.rules)
        return max(self.keep_recent, self.max_messages, *kept)


class Rules(ValueRules, frozen=True):
    # Globs of the models whose signatures cover the request before the thinking.
    signed_models: tuple[str, ...] = ()
    min_reclaim: float | int = 0.01  # a share (float) or a number of bytes
    # Signed thinking to extract in any turn. `broken`: with an invalid signature, or without text.
    drop_signatures: Literal["", "broken", "all"] = ""
    when: str = "pays"  # sent values are extracted if it `pays`, with a `cold` cache, or `always`
    waits: str = ""  # if set: why sent values stay for now, except those that a user asked for
    # Values that a relief need not extract, and last answers of turns that it need not archive.
    spared: ValueIds = frozenset()

    def pays(self, plan: Plan, size: int) -> bool:
        """Check whether a plan frees at least `min_reclaim` of a session of `size` bytes.

        A share of the last call's tokens is enough, too, and so is a prompt on the cheaper side of
        a line of prices. If these tokens are known, only values that save no tokens count as bytes.
        """
        if isinstance(self.min_reclaim, int):
            return plan.freed > 0 and plan.freed >= self.min_reclaim
        less = plan.freed
        if plan.load and plan.tokens > 0:
            if plan.tokens / plan.load >= self.min_reclaim or plan.is_below_line:
                return less > 0
            less = freed(removal for removal in plan.removals if not removal.tokens)
        return less > 0 and less / size >= self.min_reclaim


class ArchiveRules(Struct, frozen=True):
    enabled: bool = False
    token_threshold: int = 8000
    tool_call_threshold: int = 5
    keep_turns: int = 2  # live turns
    keep_recent: int = 3  # messages


WINDOW = 200_000  # tokens, if the window of the model is unknown
THRESHOLDS: dict[Tier, float] = {"frontier": 0.85, "mid": 0.65, "small": 0.35}
# Globs that match a part of `/<model id>`. If several match, the longest applies.
_NAMES: tuple[tuple[str, Tier], ...] = (
    *((name, "frontier") for name in (
        "claude*opus", "claude*fable", "claude*mythos", "gpt-5", "gpt-6", "gemini-3*pro",
        "gemini-4", "/o3",
    )),
    *((name, "mid") for name in (
        "claude*sonnet", "gpt-4.1", "gpt-5*-mini", "gpt-?*-terra", "gemini-2.5-pro",
        "gemini-4-carbon",
    )),
    *((name, "small") for name in (
        "claude*haiku", "gemini*flash", "gpt-4o-mini", "gpt-*-nano", "gpt-?*-luna", "/o?-mini",
        "gemini-4-hydrogen",
    )),
)  # fmt: skip


class Budget(Struct, frozen=True):
    """The windows of models, and the shares of them above which a session is too full."""

    profile_threshold: float | None = None
    by_tier: tuple[tuple[Tier | None, float], ...] = ()  # the user's thresholds; None: no tier
    windows: tuple[tuple[str, int], ...] = ()  # in tokens, by globs of models
    tiers: tuple[tuple[str, Tier], ...] = ()  # by globs that take precedence over `_NAMES`
    request_bytes: tuple[tuple[str, int], ...] = ()  # by globs before REQUEST_BYTES; 0: no limit

    def tier(self, model: str | None) -> Tier | None:
        globs = _longest_first(self.tiers) + _longest_first(_NAMES)
        ident = f"/{model}".lower()
        return next((tier for glob, tier in globs if fnmatchcase(ident, f"*{glob}*")), None)

    def threshold_of(self, tier: Tier | None) -> float:
        """Return the user's threshold, else the lower of tier's and profile's, else 0.75."""
        usual = THRESHOLDS[tier] if tier else self.profile_threshold or 0.75
        lower = min(usual, self.profile_threshold or usual)
        return dict(self.by_tier).get(tier, lower)

    def window(
        self, model: str | None, recorded: int | None, stated: int | None = None
    ) -> int:  # fmt: skip
        """Return the window that is recorded, else configured, else that of the model.

        It is at most the `stated` one.
        """
        found = known(model)
        window = recorded or _first(self.windows, model) or (found.window if found else None)
        return min(filter(None, (window, stated)), default=WINDOW)

    def most_bytes(self, model: str | None) -> int | None:
        return _first((*self.request_bytes, *REQUEST_BYTES), model) or None


def _first(sizes: Iterable[tuple[str, int]], model: str | None) -> int | None:
    name = (model or "").lower()
    return next((size for glob, size in sizes if fnmatchcase(name, glob.lower())), None)


def _longest_first(names: tuple[tuple[str, Tier], ...]) -> list[tuple[str, Tier]]:
    lowered = [(name.lower(), tier) for name, tier in names]
    return sorted(lowered, key=lambda named: -len(named[0]))
