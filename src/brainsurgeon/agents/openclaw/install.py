"""Register our tool and skill in OpenClaw. Seen with openclaw 2026.9.6."""

import json
import os

from brainsurgeon.agents.agent import NAME, SKILL, Install
from brainsurgeon.agents.openclaw import database
from brainsurgeon.agents.openclaw.home import state_directory


class OpenClawInstall(Install):
    title = "OpenClaw"
    command = "openclaw"
    keys = ("mcp", "servers", NAME)
    removes = ("unset",)
    parsed, directory = staticmethod(database.loads), staticmethod(state_directory)
    skill = f"deploy/openclaw/{SKILL}"

    def configuration(self) -> str:
        return database.config_path(state_directory())

    def options(self) -> tuple[str, ...]:
        names = _names()
        return ("--agent", names[0]) if names else ()

    def add(self, *server: str) -> tuple[str, ...]:
        entry = json.dumps({"command": server[0], "args": list(server[1:])})
        return (self.command, "mcp", "set", NAME, entry)

    def advice(self) -> str:
        first, *others = _names() or ["main"]
        if not others:
            return ""
        return (
            f"it serves only the agent {first}. For {', '.join(others)}, register one server"
            " each. Set a tool policy that gives each agent only its own server"
        )


def _names() -> list[str]:
    agents = os.path.join(state_directory(), "agents")
    try:
        names = [item.name for item in os.scandir(agents) if item.is_dir()]
    except OSError:
        return []
    return sorted(names, key=lambda name: (name != "main", name))
