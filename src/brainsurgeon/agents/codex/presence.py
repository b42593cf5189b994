"""Whether Codex has a thread open."""

import os
from collections.abc import Callable

from brainsurgeon.agents.agent import Presence
from brainsurgeon.agents.codex.home import thread_of
from brainsurgeon.agents.codex.locks import LOCKS, writer_lock
from brainsurgeon.model.sessions import Signs


class CodexPresence(Presence):
    """A Codex that has loaded a thread keeps its file open: then nobody else gets a lease on it."""

    def signs(
        self, directory: int, path: str, clock: Callable[[], float], quiet: float,
        abandoned_after: float,
    ) -> Signs:  # fmt: skip
        signs = super().signs(directory, path, clock, quiet, abandoned_after)
        if at := thread_of(path):
            signs.hold = lambda: writer_lock(os.path.join(at[0], LOCKS), f"{at[1]}.lock")
        return signs
