"""Which window a session has, and from which share of it on it is too full."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.model.loads import Tier

WINDOW = 200_000
"""Tokens that a model is taken to take where nobody says."""
BELOW = 0.15
"""How far below the threshold (in shares of the window) relief leads, so that it lasts."""
THRESHOLDS: dict[Tier, float] = {"frontier": 0.85, "mid": 0.65, "small": 0.35}
_NAMES: tuple[tuple[str, Tier], ...] = (
    *((name, "small") for name in (
        "haiku", "-mini", "-nano", "flash", "-lite", "small", "gemma", "phi-", "-3b", "-7b", "-8b",
    )),
    *((name, "frontier") for name in ("opus", "mythos", "gpt-5", "grok-4", "gemini-3", "-pro")),
    *((name, "mid") for name in (
        "sonnet", "gpt-4", "gemini", "deepseek", "kimi", "glm", "qwen", "grok", "llama", "mistral",
    )),
)  # fmt: skip
"""Parts of the ids of models; the first that an id holds decides."""


@dataclass(frozen=True, slots=True)
class Budget:
    """What a configuration says of budgets, for one session.

    `threshold` holds where nothing else is said, `of_profile` is that of the session's profile,
    and `by_tier` are those that the user set for a tier. `windows` are globs of models with the
    tokens that they take, `tiers` parts of their ids with their tiers, before those known here.
    """

    enabled: bool = False
    max_step: int = 3
    max_messages: int = 0
    threshold: float = 0.75
    of_profile: float | None = None
    by_tier: tuple[tuple[Tier, float], ...] = ()
    windows: tuple[tuple[str, int], ...] = ()
    tiers: tuple[tuple[str, Tier], ...] = ()

    def tier(self, model: str | None) -> Tier | None:
        """Tell how capable a model is, by its id; None where that is not known."""
        name = (model or "").lower()
        known = (*((part.lower(), tier) for part, tier in self.tiers), *_NAMES)
        return next((tier for part, tier in known if name and part in name), None)

    def threshold_of(self, tier: Tier | None) -> float:
        """Give the share of the window from which on a session is too full.

        What the user set for the tier comes first, then the profile's, then what is usual for the
        tier, then the common one.
        """
        mine = dict(self.by_tier).get(tier) if tier else None
        if mine is not None:
            return mine
        if self.of_profile is not None:
            return self.of_profile
        return THRESHOLDS[tier] if tier else self.threshold

    def window(self, model: str | None, recorded: int | None) -> int:
        """Give the tokens that a model takes: as its agent noted, as configured, or as usual."""
        name = (model or "").lower()
        said = (size for glob, size in self.windows if fnmatchcase(name, glob.lower()))
        return recorded or next(said, WINDOW)
