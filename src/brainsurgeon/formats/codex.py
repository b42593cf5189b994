"""Codex sessions are recognised and read, but never changed.

A running Codex keeps its session file open, and would go on writing to a file that was replaced.
Versions from 0.146 on store offsets of the file in a database of their own; when the offsets shift,
the conversation disappears from their lists (openai/codex, issues 43744, 35746 and 38341).
"""

import json
import re

NAME = "codex"
HEAD = 65_536
"""Number of bytes at the start of a file in which its working directory is searched for."""
_WORKING_DIRECTORY = re.compile(rb'"cwd":("(?:[^"\\]|\\.)*")')
ONLY_READ = (
    "Codex sessions are only read: a running Codex keeps its file open, and newer versions store"
    " offsets in it"
)


def agent(head: bytes) -> str | None:
    """Return an agent name: the working directory, encoded as Claude Code does."""
    found = _WORKING_DIRECTORY.search(head)
    try:
        return f"{NAME}:{re.sub('[^A-Za-z0-9]', '-', json.loads(found[1]))}" if found else None
    except ValueError:
        return None
