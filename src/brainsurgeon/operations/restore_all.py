"""Put everything back, in one session or in all that the store knows."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import Damaged, Failed, Guarded, NotFound, StoreFull
from brainsurgeon.operations import look
from brainsurgeon.operations.carry_out import carry_out
from brainsurgeon.operations.field_edits import EVERY_ENTRY
from brainsurgeon.operations.find import Session, all_sessions, row_of, session_named
from brainsurgeon.operations.operate import UNFINISHED, finish_now
from brainsurgeon.operations.restore import missed, note, removed, wish_to_restore
from brainsurgeon.store import extractions

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.operations.operate import Rewrite
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class SessionRestored:
    """What `--all` did with one session."""

    session: str
    state: str
    values: int
    insertions_removed: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    reason: str = ""


def restore_all(
    settings: Settings,
    store: Store,
    *,
    clock: Callable[[], float],
    session: str | None = None,
    pristine: bool = False,
) -> list[SessionRestored]:
    """Put everything back, in one session or in all that the store knows."""
    if session is not None:
        chosen = [session_named(settings, store, session)]
    else:
        chosen = all_sessions(settings, store)
    chosen = [noted for one in chosen if (noted := _noted(store, one)).row or session]
    done: list[SessionRestored] = []
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


def _finish(done: list[SessionRestored], place: int, rewrite: Rewrite) -> None:
    if not rewrite.finish():
        done[place] = replace(done[place], missed=(*done[place].missed, UNFINISHED))


def _noted(store: Store, session: Session) -> Session:
    """Give a fork that no scan has seen yet a row of its own: its stubs are its parent's."""
    if session.row or session.found is None:
        return session
    row = row_of(store, session)
    if row is None or row.parent is None:
        return session
    with store.transaction() as connection:
        noted = extractions.note_session(connection, session.found, row.format, row.parent)
    return replace(session, row=noted)


def _restore_session(
    settings: Settings, store: Store, session: Session, pristine: bool,
    clock: Callable[[], float],
) -> tuple[SessionRestored, Rewrite | None]:  # fmt: skip
    if session.row is None:
        return SessionRestored(session.title, "nothing to undo", 0), None
    if session.found is None:
        return SessionRestored(session.title, "gone", 0, reason="its file is gone"), None
    now = clock()
    wish = wish_to_restore(session.row, EVERY_ENTRY, None, pristine, now)
    try:
        planned, rewrite = carry_out(settings, store, session.found, session.row, (wish,), clock)
    except look.Unsettled as why:
        note(settings, store, session.row, EVERY_ENTRY, None, pristine, now)
        return SessionRestored(session.title, "pending", 0, reason=str(why)), None
    except (Damaged, Failed, Guarded, NotFound, StoreFull) as why:
        reason = str(why).removeprefix(f"{session.title}: ")
        return SessionRestored(session.title, "failed", 0, reason=reason), None
    nothing = "nothing put back" if planned.missed else "nothing to undo"
    state = "restored" if planned.edits else nothing
    return SessionRestored(
        session.title, state, len(planned.putbacks), removed(planned), missed(planned)
    ), rewrite
