"""Codex. Its sessions are shown, never changed."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.codex.format import Codex
from brainsurgeon.agents.codex.home import CodexHome
from brainsurgeon.agents.codex.install import CodexInstall
from brainsurgeon.model.entries import Line

if TYPE_CHECKING:
    from brainsurgeon.planning.budget import Measure


def _measure(lines: Iterable[Line]) -> "Measure":
    # Few commands measure sessions, and every command imports the agents.
    from brainsurgeon.agents.codex.measure import measure_codex  # noqa: PLC0415

    return measure_codex(lines)


CODEX = Agent(Codex(), "Codex", home=CodexHome(), install=CodexInstall(), measure=_measure)
