"""Register our tool and skill in opencode and Kilo CLI. Tried with opencode 1.18.33.

They have no command that removes a server.
"""

import json
import os
import re
from typing import Any

from brainsurgeon.agents.agent import NAME, SKILL, Install, directory_named
from brainsurgeon.formats import splice

# Strings, and what is replaced by spaces: comments, and commas before a closing bracket.
_PIECE = re.compile(
    r'(?s)("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*\n|/\*.*?\*/)*[\]}])'
)


def as_json(text: str) -> str:
    """Return JSON with comments as JSON of the same number of bytes."""
    return _PIECE.sub(lambda match: match[1] or " " * len(match[0].encode()), text)


class OpencodeInstall(Install):
    title = "opencode"
    command = "opencode"
    keys = ("mcp", NAME)
    skill = f"deploy/opencode/{SKILL}"

    def configuration(self) -> str:
        paths = [os.path.join(_directory(self.command), f"{self.command}.{end}")
                 for end in ("json", "jsonc")]  # fmt: skip
        return next(filter(os.path.exists, paths), paths[0])

    @staticmethod
    def parsed(text: str, /) -> Any:
        table = json.loads(as_json(text))
        found = table.get("mcp", {}).get(NAME) if isinstance(table, dict) else None
        if isinstance(found, dict) and isinstance(found.get("command"), list):
            words = found["command"]
            found |= {"command": words[0], "args": words[1:]}
        return table

    @staticmethod
    def directory() -> str:
        return _directory("opencode")

    def remove(self) -> tuple[str, ...]:
        return ()

    def without_server(self, text: str) -> str:
        raw = as_json(text).encode()
        servers = json.loads(raw).get("mcp") or {}
        keys = self.keys[:1] if servers.keys() == {NAME} else self.keys
        start, end = splice.locate(raw, [keys])[keys]
        start, behind = raw.rindex(json.dumps(keys[-1]).encode(), 0, start), raw[end:].lstrip()
        if behind.startswith(b","):
            end = len(raw) - len(behind[1:].lstrip())
        else:
            before = raw[:start].rstrip()
            start = len(before) - before.endswith(b",")
        return (text.encode()[:start] + text.encode()[end:]).decode()


class KiloInstall(OpencodeInstall):
    title = "Kilo CLI"
    command = "kilo"

    @staticmethod
    def directory() -> str:
        return _directory("kilo")


def _directory(program: str) -> str:
    return os.path.join(directory_named("XDG_CONFIG_HOME", "~/.config"), program)
