"""Whether Codex has a thread open."""

import os
import re
from collections.abc import Callable, Mapping
from glob import escape, glob
from typing import Any

from brainsurgeon.agents.agent import Presence
from brainsurgeon.agents.codex.home import CodexHome, thread_of
from brainsurgeon.agents.codex.locks import LOCKS, writer_lock
from brainsurgeon.formats.base import UUID
from brainsurgeon.model.session_files import Signs


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

    def thread_in(self, meta: Mapping[str, Any]) -> str | None:
        thread = meta.get("threadId")
        return thread if isinstance(thread, str) and re.fullmatch(UUID, thread) else None

    def calling_session(self) -> str | None:
        # The shell of a tool call has it. After a rewind, the thread continues in a newer file.
        thread = self.thread_in({"threadId": os.environ.get("CODEX_THREAD_ID")})
        pages = f"{escape(CodexHome().root())}/*/*/*/rollout-*{thread}*.jsonl"
        return max(glob(pages), key=os.path.getmtime, default=None) if thread else None
