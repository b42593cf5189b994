"""What it means for one session that looking at it or changing it ended with an error."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    BrainsurgeonError,
    BusyError,
    DamagedError,
    FailedError,
    StoppedError,
    StoreFullError,
)
from brainsurgeon.model.plans import Outcome
from brainsurgeon.operations.growing import Look
from brainsurgeon.rewrite.examine import HELD, UnsettledError
from brainsurgeon.rewrite.untouchable import moved_away
from brainsurgeon.sessions.reading import ObstacleError, RefusedError
from brainsurgeon.store.opening import DatabaseError
from brainsurgeon.store.table import AGAIN, WAITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.plans import Result
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.store import Store
    from brainsurgeon.store.memory import FileMemory


def verdict_on(error: Exception) -> tuple[Result, str] | None:
    """Give the outcome of the session and why; None where it is everybody's error, not its own."""
    match error:
        case UnsettledError() | BusyError():
            return "deferred", str(error)
        case RefusedError():
            return "skipped", str(error)
        case StoreFullError() | DamagedError() | FailedError():
            return "failed", str(error)
        case BrainsurgeonError() | DatabaseError() | StoppedError():
            return None  # the store itself is in trouble, or we are to stop
        case FileNotFoundError():
            return "deferred", "the file went away during the scan"
        case BlockingIOError():
            return "deferred", HELD
        case OSError():
            return "failed", error.strerror or type(error).__name__
    return "failed", f"unexpected {type(error).__name__}"  # one odd file must not stop the rest


def left_as_it_is(file: SessionFile, why: Exception, memory: FileMemory, now: float) -> Look | None:
    """Say of a file that it was left as it is, and when it is looked at again.

    None where the error is everybody's.
    """
    verdict = verdict_on(why)
    if verdict is None:
        return None
    result, reason = verdict
    size, state = file.fingerprint.size, memory.state_of(file)
    form = state.format if state else None
    outcome = Outcome(file.title, file.path, form, result, reason, size, size)
    look = Look(outcome, file.fingerprint, form)
    if isinstance(why, UnsettledError) and why.idle:
        return replace(look, again=WAITS, due_at=why.until)
    if isinstance(why, RefusedError) and file.in_database:
        return replace(look, again=WAITS)
    if result == "failed":
        look = replace(look, due_at=memory.try_again_at(file, now))
    tried = isinstance(why, ObstacleError) or result == "deferred" or moved_away(file)
    return replace(look, again=AGAIN if tried else None)


def tell_failures(store: Store, memory: FileMemory, seen: Iterable[Outcome], now: float) -> None:
    """Note which sessions failed, each once for as long as it fails for the same reason.

    Part of the transaction in which the pass writes down what it saw.
    """
    for one in seen:
        if one.outcome != "failed" or memory.failed_before(one.path) == one.reason:
            continue
        record = store.sessions.at(one.path)
        facts = {"session": one.session, "reason": one.reason}
        ident = None if record is None else record.id
        store.events.add(now, "failure", ident, facts, store.passes.so_far)
