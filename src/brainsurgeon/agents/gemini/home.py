"""Gemini CLI's sessions: `tmp/<name of the project>/chats/session-<minute>-<beginning of the id>`.

Those of sub-agents are one directory deeper, which has the id of the session that started them.
Gemini CLI deletes a session if another file in `chats` has such a name and cannot be read.
"""

import os
import re

from brainsurgeon.agents.agent import Home, Owner, directory_named

_HOME = "/.gemini/tmp/"
_SESSION = re.compile(rf"(.*{_HOME}([^/]+))/chats/(?:session-[^/]+|[^/]+/[^/]+)\.jsonl")


def home_directory() -> str:
    return os.path.join(directory_named("GEMINI_CLI_HOME", "~"), ".gemini")


class GeminiHome(Home):
    archives = r"^(session-.*|checkpoint-.*)\.json$"  # of former releases, and of `/chat save`
    copies = ("tool-outputs",)
    name_pattern = "session-[0-9T-]+-([^-]+)"
    note = "by itself, Gemini CLI deletes sessions that were resumed once, and those of 30 days ago"

    def root(self) -> str:
        return os.path.join(home_directory(), "tmp")

    def holds(self, path: str) -> bool:
        return _HOME in path

    def owner(self, path: str) -> Owner | None:
        at = _SESSION.fullmatch(path)
        return Owner(f"gemini:{at[2]}", at[1]) if at else None


def project_root(path: str) -> str | None:
    """Return the path of the file that names the directory of a session's project."""
    at = _SESSION.fullmatch(path)
    return os.path.join(at[1], ".project_root") if at else None
