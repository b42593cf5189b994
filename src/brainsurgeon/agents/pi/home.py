"""pi's session files, and those in OpenClaw's format outside of any directory that is known.

A running pi keeps a session in memory and never reads its file again (seen with 0.73.1 to 1.5.2):
its requests and forks still contain extracted values.
"""

import os

from brainsurgeon.agents.agent import Home, directory_named
from brainsurgeon.agents.openclaw.presence import LockFiles

_PREFIX, _FORMER = "pi:", "openclaw:"


class PiHome(Home):
    name_pattern = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9-]+Z?_(.+)"  # after the time of its start

    def root(self) -> str:
        return os.path.join(directory_named("PI_CODING_AGENT_DIR", "~/.pi/agent"), "sessions")

    def names_before(self, name: str) -> tuple[str, ...]:
        return (_FORMER + name.removeprefix(_PREFIX),) if name.startswith(_PREFIX) else ()


class PiPresence(LockFiles):
    remembers = True
    drops_blocks = True
