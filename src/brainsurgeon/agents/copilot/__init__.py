"""GitHub Copilot CLI."""

from typing import TYPE_CHECKING

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.copilot.format import Copilot
from brainsurgeon.agents.copilot.home import CopilotHome
from brainsurgeon.agents.copilot.install import CopilotInstall
from brainsurgeon.agents.copilot.presence import CopilotPresence

if TYPE_CHECKING:
    from brainsurgeon.planning.budget import Measure


def _measure() -> "Measure":
    # Few commands measure sessions, and every command imports the agents.
    from brainsurgeon.agents.copilot.measure import CopilotMeasure  # noqa: PLC0415

    return CopilotMeasure()


COPILOT = Agent(
    Copilot(), "Copilot CLI", home=CopilotHome(), presence=CopilotPresence(),
    install=CopilotInstall(), measure=_measure,
)  # fmt: skip
