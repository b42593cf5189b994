"""Put everything back, in one session or in all that the store knows."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    DamagedError,
    FailedError,
    GuardedError,
    NotFoundError,
    StoreFullError,
)
from brainsurgeon.lookup.sessions import Session, all_sessions, record_of, session_named
from brainsurgeon.model.reports import SessionRestore
from brainsurgeon.operations.restore import missed, note, removed, wish_to_restore
from brainsurgeon.rewrite.apply import UNFINISHED, finish_now
from brainsurgeon.rewrite.carry_out import carry_out
from brainsurgeon.rewrite.examine import UnsettledError

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.rewrite.apply import Rewrite
    from brainsurgeon.store import Store


def restore_all(
    settings: Settings,
    store: Store,
    *,
    clock: Callable[[], float],
    session: str | None = None,
    pristine: bool = False,
) -> list[SessionRestore]:
    """Put everything back, in one session or in all that the store knows."""
    if session is not None:
        chosen = [session_named(settings, store, session)]
    else:
        chosen = all_sessions(settings, store)
    chosen = [noted for one in chosen if (noted := _noted(store, one)).record or session]
    done: list[SessionRestore] = []
    rewrites: dict[int, Rewrite] = {}  # by the place of their answer
    try:
        for one in chosen:
            answer, rewrite = _restore_session(settings, store, one, pristine, clock)
            done.append(answer)
            if rewrite:
                rewrites[len(done) - 1] = rewrite
            for place in [at for at, one in rewrites.items() if one.due <= time.monotonic()]:
                _finish(done, place, rewrites.pop(place))
        while rewrites:
            place = next(iter(rewrites))
            _finish(done, place, rewrites.pop(place))
    except BaseException:
        finish_now(rewrites.values())
        raise
    return done


def _finish(done: list[SessionRestore], place: int, rewrite: Rewrite) -> None:
    if not rewrite.finish():
        done[place] = replace(done[place], missed=(*done[place].missed, UNFINISHED))


def _noted(store: Store, session: Session) -> Session:
    """Give a fork that no scan has seen yet a record of its own: its stubs are its parent's."""
    if session.record or session.file is None:
        return session
    record = record_of(store, session)
    if record is None or record.parent is None:
        return session
    with store.transaction():
        noted = store.sessions.note(session.file, record.format, record.parent)
    return replace(session, record=noted)


def _restore_session(
    settings: Settings, store: Store, session: Session, pristine: bool,
    clock: Callable[[], float],
) -> tuple[SessionRestore, Rewrite | None]:  # fmt: skip
    if session.record is None:
        return SessionRestore(session.title, "nothing to undo", 0), None
    if session.file is None:
        return SessionRestore(session.title, "gone", 0, reason="its file is gone"), None
    now = clock()
    wish = wish_to_restore(session.record, None, None, pristine, now)
    try:
        planned, rewrite = carry_out(settings, store, session.file, session.record, (wish,), clock)
    except UnsettledError as why:
        note(settings, store, session.record, None, None, pristine, now)
        return SessionRestore(session.title, "pending", 0, reason=str(why)), None
    except (DamagedError, FailedError, GuardedError, NotFoundError, StoreFullError) as why:
        reason = str(why).removeprefix(f"{session.title}: ")
        return SessionRestore(session.title, "failed", 0, reason=reason), None
    nothing = "nothing put back" if planned.missed else "nothing to undo"
    state = "restored" if planned.edits else nothing
    return SessionRestore(
        session.title, state, len(planned.putbacks), removed(planned), missed(planned),
        note=_note_on_seals(len(planned.unfit), pristine=pristine),
    ), rewrite  # fmt: skip


def _note_on_seals(unfit: int, *, pristine: bool) -> str:
    """Say what became of thinking that was signed behind stubs which stand there no more."""
    if not unfit:
        return ""
    what = "they stand there all the same" if pristine else "they stay out"
    return f"signed thinking of {unfit} entries does not fit what stands before it now: {what}"
