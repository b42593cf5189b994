"""How full a session is: what its next request weighs, and what its model takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Method = Literal["session", "agent", "default"]
Tier = Literal["frontier", "mid", "small"]
LAST_STEP = 6
"""The highest step of the ladder that relieves a session."""
TIERS: tuple[Tier, ...] = ("frontier", "mid", "small")


@dataclass(frozen=True, slots=True)
class Calibration:
    """How many tokens the characters of a session take: `fixed`, and `rate` for each character.

    `method` says where that comes from: the recorded usage of the session's own calls, the median
    of its agent's other sessions, or what is assumed where nothing is known. `calls` are those of
    the session's own that it was compared with, and `error` by how much of what they took it is
    wrong on the average, None without any.
    """

    rate: float
    fixed: float
    calls: int
    method: Method
    error: float | None = None

    def tokens(self, chars: int, pictures: int) -> int:
        """Estimate the tokens of a request with so many characters and pictures."""
        return max(0, round(self.fixed + self.rate * chars + PICTURE * pictures))


PICTURE = 1500
"""Tokens of a picture: providers scale what is larger to about so much, whatever its bytes are."""


@dataclass(frozen=True, slots=True)
class Fullness:
    """What the next request of a session carries (`load`) and what its model takes (`window`).

    Both are in tokens. `recorded` tells that the agent itself noted the window. From the
    `threshold` (a share of the window) on it is too full. `step` is the one of the ladder that
    holds in it.
    """

    load: int
    window: int
    threshold: float
    calibration: Calibration
    model: str | None = None
    tier: Tier | None = None
    recorded: bool = False
    step: int = 0

    @property
    def pressure(self) -> float:
        """How much of the window the next request takes."""
        return self.load / self.window


@dataclass(frozen=True, slots=True)
class Loads:
    """What the store remembers of the loads of all sessions: counts, and tokens in all."""

    sessions: int = 0
    load: int = 0
    window: int = 0
    too_full: int = 0


NO_LOADS = Loads()
