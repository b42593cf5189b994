"""Codex."""

from typing import TYPE_CHECKING

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.codex.format import Codex
from brainsurgeon.agents.codex.home import CodexHome
from brainsurgeon.agents.codex.install import CodexInstall
from brainsurgeon.agents.codex.presence import CodexPresence

if TYPE_CHECKING:
    from brainsurgeon.planning.budget import Measure


def _measure() -> "Measure":
    # Few commands measure sessions, and every command imports the agents.
    from brainsurgeon.agents.codex.measure import CodexMeasure  # noqa: PLC0415

    return CodexMeasure()


CODEX = Agent(
    Codex(), "Codex", home=CodexHome(), presence=CodexPresence(), install=CodexInstall(),
    measure=_measure,
)  # fmt: skip
