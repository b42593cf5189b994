"""pi, whose sessions have OpenClaw's format."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.openclaw.format import OpenClaw
from brainsurgeon.agents.pi.home import PiHome, PiPresence

PI = Agent(OpenClaw(), "pi", "pi", PiHome(), PiPresence())
