"""Register our tool and skill in Gemini CLI. Tried with 0.61.0."""

import json
import os

from brainsurgeon.agents.agent import NAME, SKILL, Install
from brainsurgeon.agents.gemini.home import home_directory


class GeminiInstall(Install):
    title = "Gemini CLI"
    command = "gemini"
    keys = ("mcpServers", NAME)
    adds, removes = ("add", "--scope", "user"), ("remove", "--scope", "user")
    parsed, directory = staticmethod(json.loads), staticmethod(home_directory)
    skill = f"deploy/gemini/{SKILL}"

    def configuration(self) -> str:
        return os.path.join(home_directory(), "settings.json")

    def add(self, *server: str) -> tuple[str, ...]:
        program, *words = server  # the program has to be before the dashes
        return (self.command, "mcp", *self.adds, NAME, program, "--", *words)
