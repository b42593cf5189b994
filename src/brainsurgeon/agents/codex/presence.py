"""Whether Codex has a thread open, and what it holds while a file is exchanged."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from typing import Any

from brainsurgeon.agents.agent import Presence
from brainsurgeon.agents.codex import offsets
from brainsurgeon.agents.codex.format import Codex
from brainsurgeon.agents.codex.home import home_directory, newest_of, page_of, thread_of
from brainsurgeon.agents.codex.locks import LOCKS, writer_locks
from brainsurgeon.agents.codex.offsets import Edges, Repair, explained
from brainsurgeon.files.reading import RefusedError, plain_file
from brainsurgeon.formats.base import UUID
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.session_files import BusyCheck, Fingerprint, Moving

_MOMENT = 5.0  # seconds for which the list of a home's files is good enough for a plan


class CodexPresence(Presence):
    """A Codex that has loaded a thread keeps its file open: then nobody else gets a lease on it."""

    def busy_check(
        self, directory: int, path: str, clock: Callable[[], float], quiet: float,
        abandoned_after: float,
    ) -> BusyCheck:  # fmt: skip
        busy_check = super().busy_check(directory, path, clock, quiet, abandoned_after)
        if at := thread_of(path):
            newest = newest_of(*at, time.monotonic() // _MOMENT)
            if newest != path and page_of(newest) > page_of(path):
                busy_check = BusyCheck(
                    "the newest file of its thread",
                    lambda: _at_work(newest, clock(), quiet, abandoned_after),
                    lambda: Fingerprint.of(os.stat(newest)), alone=True,
                )  # fmt: skip
            busy_check.hold = lambda new: _exchanging(path, *at, new)
        return busy_check

    def moving(self, path: str, *, shrinks: bool) -> Moving:
        if at := thread_of(path):
            with suppress(RefusedError), explained():
                repair = Repair(at[0], path, moment=time.monotonic() // _MOMENT)
                if not repair.needed:  # else the offsets are not understood
                    return "all edits" if shrinks or not repair.points else "restores"
        return "no edits"

    def mend(self, path: str, *, rewritten: bool = True) -> None:
        if not (at := thread_of(path)) or not os.path.exists(path):
            return
        with explained():
            if not offsets.is_paginated(path) or not (rewritten or offsets.first_line(path).key):
                return
        for own in (True, False) if rewritten else (True,):
            repair = None
            with suppress(*() if rewritten else (RefusedError,)), explained():
                repair = Repair(at[0], path, own=own)
            if repair and repair.needed:
                with explained(), _locked(*at, path, own=own) as held:
                    held.carry_out()

    def thread_in(self, meta: Mapping[str, Any]) -> str | None:
        thread = meta.get("threadId")
        return thread if isinstance(thread, str) and re.fullmatch(UUID, thread) else None

    def calling_session(self) -> str | None:
        # The shell of a tool call has it.
        thread = self.thread_in({"threadId": os.environ.get("CODEX_THREAD_ID")})
        return newest_of(home_directory(), thread, time.monotonic()) or None if thread else None


def _at_work(path: str, now: float, quiet: float, abandoned_after: float) -> str | None:
    """Return why a thread is not idle by its newest file, in which it goes on after a rewind."""
    seen = os.stat(path)
    silent = now - seen.st_mtime
    if silent < quiet:
        return "the newest file of its thread changed just now"
    return _open_turn(path, Fingerprint.of(seen)) if silent < abandoned_after else None


@lru_cache(16)
def _open_turn(path: str, _state: Fingerprint) -> str | None:
    with plain_file(path) as descriptor:
        return Transcript.read(Codex(), offsets.lines_of(descriptor)).chain.open_turn


@contextmanager
def _exchanging(path: str, home: str, thread: str, new: int | None) -> Iterator[str | None]:
    if new is None or not offsets.is_paginated(path):
        with writer_locks(os.path.join(home, LOCKS), lambda: [thread]) as why:
            yield why
        return
    offsets.check_settled(new)
    with _locked(home, thread, path, offsets.edges_of(new)) as repair:
        yield None
        with suppress(Exception):  # `mend` does it later
            repair.carry_out()


@contextmanager
def _locked(
    home: str, thread: str, path: str, edges: Edges | None = None, *, own: bool = False
) -> Iterator[Repair]:
    """Hold the locks of a thread, and of all that begin in it. Raises RefusedError if busy."""
    repairs = list[Repair]()

    def threads() -> set[str]:
        repairs.append(Repair(home, path, edges, own=own))
        return {thread, *repairs[0].threads}

    with ExitStack() as held:
        with explained():
            why = held.enter_context(writer_locks(os.path.join(home, LOCKS), threads))
            if why or not repairs:
                raise RefusedError(why or "Codex has no directory of locks")
            repairs[0].prepare(held)
        yield repairs[0]
