"""Register our tool and skill in Codex. Tried with Codex 0.169.0 and 0.171.0."""

import os
import tomllib

from brainsurgeon.agents.agent import NAME, SKILL, Install
from brainsurgeon.agents.codex.home import home_directory


class CodexInstall(Install):
    title = "Codex"
    command = "codex"
    keys = ("mcp_servers", NAME)
    parsed, directory = staticmethod(tomllib.loads), staticmethod(home_directory)
    skill = f"deploy/codex/{SKILL}"

    def configuration(self) -> str:
        return os.path.join(home_directory(), "config.toml")

    def add(self, *server: str) -> tuple[str, ...]:
        # Codex starts servers without this variable of its own (0.171.0).
        home = os.environ.get("CODEX_HOME", "").strip()
        given = ("--env", f"CODEX_HOME={home_directory()}") if home else ()
        return (self.command, "mcp", "add", NAME, *given, "--", *server)
