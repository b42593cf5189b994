"""Logs of agents that are not known: their format is described, their habits are unknown."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.described.format import Described
from brainsurgeon.agents.described.shipped import SHIPPED
from brainsurgeon.agents.openclaw.presence import LockFiles
from brainsurgeon.formats.description import description

FORMS = {name: Described(name, description(table)) for name, table in SHIPPED.items()}
DESCRIBED = Agent(FORMS["generic"], "an agent", presence=LockFiles())
