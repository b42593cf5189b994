"""pi, whose sessions have OpenClaw's format."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.pi.home import PiHome, PiPresence

PI = Agent("openclaw", "pi", "pi", PiHome(), PiPresence())
