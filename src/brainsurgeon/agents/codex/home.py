"""Codex's session files."""

import json
import os
import re
from collections.abc import Callable

from brainsurgeon.agents.agent import Home, directory_named

_WORKING_DIRECTORY = re.compile(rb'"cwd":("(?:[^"\\]|\\.)*")')


def home_directory() -> str:
    return directory_named("CODEX_HOME", "~/.codex")


class CodexHome(Home):
    name_pattern = "rollout-[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}-[0-9]{2}-[0-9]{2}-(.+)"
    note = "its sessions are shown, never changed"

    def root(self) -> str:
        return os.path.join(home_directory(), "sessions")

    def named_in(self, head: Callable[[], bytes]) -> str | None:
        found = _WORKING_DIRECTORY.search(head())
        try:  # the directory, encoded roughly as in Claude Code
            return f"codex:{re.sub('[^A-Za-z0-9]', '-', json.loads(found[1]))}" if found else None
        except ValueError:
            return None
