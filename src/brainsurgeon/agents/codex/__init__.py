"""Codex. Its sessions are shown, never changed."""

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.codex.home import CodexHome
from brainsurgeon.agents.codex.install import CodexInstall

CODEX = Agent("codex", "Codex", home=CodexHome(), install=CodexInstall(), only_read=True)
