"""Codex's session files."""

import os
from collections.abc import Callable

from brainsurgeon.agents.agent import Home, directory_named
from brainsurgeon.formats import codex


def home_directory() -> str:
    return directory_named("CODEX_HOME", "~/.codex")


class CodexHome(Home):
    note = "its sessions are shown, never changed"

    def root(self) -> str:
        return os.path.join(home_directory(), "sessions")

    def named_in(self, head: Callable[[], bytes]) -> str | None:
        return codex.agent(head())
