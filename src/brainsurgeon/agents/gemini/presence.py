"""Whether a Gemini CLI works in the project of a session.

It keeps no lock and no record of a process, and opens a session only to append to it (seen with
0.61.0). A process keeps its session in memory, and writes it anew after an interruption. So a
change while it is idle does no harm, but only the next process reads it. If the project of a
session is not known, it may be that of any process.
"""

import os
import re
from collections.abc import Iterator
from contextlib import suppress

from brainsurgeon.agents.agent import KNOWN_OPEN, MAYBE_OPEN, Presence
from brainsurgeon.agents.gemini.home import project_root

# The program of npm and npx is a link, `node …/bin/gemini`, to the package's `bundle/gemini.js`
# (0.1.1, 0.40.0, 0.61.0) or `dist/index.js` (0.1.22, 0.20.0). A clone runs `packages/cli`; there is
# a binary, too. Both processes of a run have the same script, with options of node before it.
_PROGRAM = re.compile(
    rb"(^|/)gemini(\.js)?\0|/gemini-cli(/packages/cli)?/dist(/index\.js)?\0"
    rb"|/(@google/gemini-cli|gemini-cli/packages/cli)/?\0"
)
_MOST = 4096  # bytes of a command line, or of a path
_TITLE = "Gemini CLI"


class GeminiPresence(Presence):
    remembers = True

    def in_memory(self, path: str, now: float, abandoned_after: float) -> str | None:  # noqa: ARG002
        if (named_in := project_root(path)) is None:
            return None
        project, why = b"", "it names no directory"
        try:
            with open(named_in, "rb") as file:
                project = file.read(_MOST).strip()
        except OSError as error:
            why = error.strerror or type(error).__name__
        if project.startswith(b"/"):
            is_open = os.path.realpath(os.fsdecode(project)) in _projects()
            return KNOWN_OPEN.format(_TITLE) if is_open else None
        return MAYBE_OPEN.format(f"a {_TITLE}", f"{named_in}: {why}") if any(_projects()) else None


def _projects() -> Iterator[str]:
    """Yield the working directories of the processes of Gemini CLI."""
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as words:
            if _PROGRAM.search(words.read(_MOST)):
                yield os.readlink(f"/proc/{pid}/cwd")
