"""Gemini CLI."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.gemini.format import Gemini
from brainsurgeon.agents.gemini.home import GeminiHome
from brainsurgeon.agents.gemini.install import GeminiInstall
from brainsurgeon.agents.gemini.presence import GeminiPresence

GEMINI = Agent(
    Gemini(), "Gemini CLI", home=GeminiHome(), presence=GeminiPresence(), install=GeminiInstall()
)
