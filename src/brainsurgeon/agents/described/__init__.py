"""Logs of agents that are not known: their format is described, their habits are unknown."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.described.format import Generic
from brainsurgeon.agents.openclaw.presence import LockFiles

DESCRIBED = Agent(Generic(), "an agent", presence=LockFiles())
