"""Register our tool and skill in Codex. Seen with Codex 0.169.0."""

import os
import tomllib

from brainsurgeon.agents.agent import NAME, SKILL, Install
from brainsurgeon.agents.codex.home import home_directory


class CodexInstall(Install):
    title = "Codex"
    command = "codex"
    keys = ("mcp_servers", NAME)
    parsed, directory = staticmethod(tomllib.loads), staticmethod(home_directory)
    skill = f"deploy/claude-code/{SKILL}"  # in both agents, our tool has the name that it mentions

    def configuration(self) -> str:
        return os.path.join(home_directory(), "config.toml")
