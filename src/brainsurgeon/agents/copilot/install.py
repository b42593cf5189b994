"""Register our tool and skill in Copilot CLI. Tried with 1.0.102."""

import json
import os

from brainsurgeon.agents.agent import NAME, SKILL, Install
from brainsurgeon.agents.copilot.home import home_directory


class CopilotInstall(Install):
    title = "Copilot CLI"
    command = "copilot"
    keys = ("mcpServers", NAME)
    parsed, directory = staticmethod(json.loads), staticmethod(home_directory)
    skill = f"deploy/copilot/{SKILL}"

    def configuration(self) -> str:
        return os.path.join(home_directory(), "mcp-config.json")
