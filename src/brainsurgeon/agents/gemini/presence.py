"""Whether a Gemini CLI works in the project of a session.

It keeps no lock and no record of a process, and opens a session only to append to it (seen with
0.61.0). A process keeps its session in memory, and writes it anew after an interruption. So a
change while it is idle does no harm, but only the next process reads it.
"""

import os
import re
from contextlib import suppress

from brainsurgeon.agents.agent import KNOWN_OPEN, Presence
from brainsurgeon.agents.gemini.home import project_of

# The program is a script: `node …/gemini`, `node --option …/bundle/gemini.js`.
_PROGRAM = re.compile(rb"(^|/)gemini(\.js)?\0")
_MOST = 4096  # bytes of a command line


class GeminiPresence(Presence):
    remembers = True

    def in_memory(self, path: str, now: float, abandoned_after: float) -> str | None:  # noqa: ARG002
        project = project_of(path)
        if project is None:
            return None
        pids = filter(str.isdecimal, os.listdir("/proc"))
        is_open = any(_works_in(project, pid) for pid in pids)
        return KNOWN_OPEN.format("Gemini CLI") if is_open else None


def _works_in(project: str, pid: str) -> bool:
    with suppress(OSError):
        if os.readlink(f"/proc/{pid}/cwd") == project:
            with open(f"/proc/{pid}/cmdline", "rb") as words:
                return _PROGRAM.search(words.read(_MOST)) is not None
    return False
