"""Register our tool and skill in opencode and Kilo CLI. Tried with opencode 1.18.33.

They have no command that removes a server.
"""

import os

from brainsurgeon.agents.agent import NAME, SKILL, Install, directory_named
from brainsurgeon.files.configurations import loads


class OpencodeInstall(Install):
    title = command = "opencode"
    keys = ("mcp", NAME)
    parsed = staticmethod(loads)
    skill = f"deploy/opencode/{SKILL}"

    def configuration(self) -> str:
        path = os.path.join(self.directory(), f"{self.command}.json")
        return f"{path}c" if os.path.exists(f"{path}c") and not os.path.exists(path) else path

    def directory(self) -> str:
        return os.path.join(directory_named("XDG_CONFIG_HOME", "~/.config"), self.command)

    def remove(self) -> tuple[str, ...]:
        return ()


class KiloInstall(OpencodeInstall):
    title, command = "Kilo CLI", "kilo"
