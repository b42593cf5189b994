"""Whether an agent of OpenClaw is at work on a session file: the session's lock and its status."""

import errno
import math
import os
from collections.abc import Callable

from brainsurgeon.agents.agent import UNREADABLE_LOCK_FILE, Presence
from brainsurgeon.agents.openclaw import registry
from brainsurgeon.agents.openclaw.registry import REGISTRY, oddity, opened
from brainsurgeon.files.processes import lives
from brainsurgeon.model.entries import parse
from brainsurgeon.model.session_files import BusyCheck, Fingerprint
from brainsurgeon.model.text import parse_time

# Observed with OpenClaw 2026.2.19 and 2026.7.35: a run of the agent locks its session, but releases
# the lock at each model call for 30 to 110 ms. Then only the status `running` in `sessions.json`
# shows the run, so the status is read after the lock. Runs without the gateway do not set it: for
# them, the lock is then read again. A new lock file is empty for a millisecond.

UNREADABLE_LOCK = 1800.0  # seconds for which a lock of an unknown owner counts as held


class LockFiles(Presence):
    def busy_check(
        self, directory: int, path: str, clock: Callable[[], float], quiet: float,  # noqa: ARG002
        abandoned_after: float,
    ) -> BusyCheck:  # fmt: skip
        name = os.path.basename(path)

        def busy() -> str | None:
            now = clock()
            return (
                lock_held(directory, name, now)
                or _marked_running(directory, name, now, abandoned_after)
                or lock_held(directory, name, now)
            )

        files = [f"{name}.lock", REGISTRY]
        return BusyCheck(
            "its agent's lock file or sessions.json", busy,
            lambda: [_mark(directory, file) for file in files],
        )  # fmt: skip


def _mark(directory: int, name: str) -> object:
    try:
        return Fingerprint.of(os.stat(name, dir_fd=directory, follow_symlinks=False))
    except OSError as error:
        return error.errno


def lock_held(directory: int, name: str, now: float) -> str | None:
    try:
        with opened(name + ".lock", directory) as lock:
            modified = os.fstat(lock.fileno()).st_mtime
            payload = parse(os.read(lock.fileno(), 65536)) or {}
    except FileNotFoundError:
        return None
    except OSError as error:  # some programs use a directory as a lock
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return UNREADABLE_LOCK_FILE
    pid = payload.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid <= 0:
        return "there is a lock file" if now - modified < UNREADABLE_LOCK else None
    # Older versions record no start time. A process that is younger than its lock has a pid of
    # another: in containers, pids are small and return after each start.
    lived = lives(pid, payload.get("starttime"), parse_time(payload.get("createdAt")))
    return f"locked by process {pid}" if lived else None


def _marked_running(directory: int, name: str, now: float, abandoned_after: float) -> str | None:
    try:
        for _, entry in registry.read(directory, REGISTRY).of(name):
            if oddity(entry) is None and entry.get("status") == "running":
                updated = entry.get("updatedAt")  # milliseconds; without it, the run counts as new
                if not isinstance(updated, int | float) or isinstance(updated, bool):
                    updated = math.inf
                if now - updated / 1000 < abandoned_after:
                    return "marked as running by its agent"
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        # An agent at work soon writes it anew. Of one that stays so, only lock and turn count.
        if now - _modified(directory, REGISTRY) < abandoned_after:
            return "its agent may be at work: sessions.json cannot be read or understood"
    return None


def _modified(directory: int, name: str) -> float:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
    except OSError:
        return math.inf
