"""Copilot CLI's sessions: `session-state/<id>/events.jsonl`, beside files of other kinds."""

import os
import re

from brainsurgeon.agents.agent import Home, Owner, directory_named
from brainsurgeon.formats.base import UUID

SESSIONS = "session-state"
EVENTS = "events.jsonl"
_SESSION = re.compile(rf"/{SESSIONS}/({UUID})/(.+)")


def home_directory() -> str:
    return directory_named("COPILOT_HOME", "~/.copilot")


class CopilotHome(Home):
    copies = ("rewind-file-snapshots",)

    def root(self) -> str:
        return os.path.join(home_directory(), SESSIONS)

    def holds(self, path: str) -> bool:
        return _SESSION.search(path) is not None

    def owner(self, path: str) -> Owner | None:
        at = _SESSION.search(path)
        is_session = at is not None and at[3] == EVENTS
        return Owner(f"copilot:{at[1]}", os.path.dirname(path)) if at and is_session else None
