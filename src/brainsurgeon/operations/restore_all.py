"""Restore all values, in one session or in all that are below a root or known to the store.

The user may be about to uninstall brainsurgeon. Therefore each session that keeps a placeholder is
reported with the reason, even if the store does not know it.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import (
    BusyError,
    DamagedError,
    FailedError,
    GuardedError,
    NotFoundError,
    StoreFullError,
)
from brainsurgeon.lookup.sessions import Session, all_sessions, noted, session_named
from brainsurgeon.model.records import Request
from brainsurgeon.model.reports import SessionRestore
from brainsurgeon.model.sessions import Root, Unreadable
from brainsurgeon.model.text import counted
from brainsurgeon.operations.left_behind import placeholders_put_away
from brainsurgeon.operations.restore import missed, note, removed, request_to_restore
from brainsurgeon.planning.matching import NOBODYS
from brainsurgeon.rewrite.change import carry_out
from brainsurgeon.rewrite.finish import UNFINISHED, finish_now
from brainsurgeon.rewrite.inspect import NotIdleError, examine, records_of
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_listing import row_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.store import Store

LOST = "cut by a store that this one is not: name that one's directory as state_dir, if it is there"
PUT_AWAY = "put away by its agent"
UNSEEN = "placeholders may stand there"
ARCHIVED = "archives are not written; `brainsurgeon show` prints what stood there"


def restore_all(
    settings: Settings,
    store: Store,
    *,
    clock: Callable[[], float],
    session: str | None = None,
    pristine: bool = False,
    progress: Callable[[SessionFile], None] = lambda _: None,
) -> list[SessionRestore]:
    """Restore all values, in one session or in all; return the results."""
    if session is not None:
        chosen = [session_named(settings, store, session, beyond=True)]
    else:
        chosen = all_sessions(settings, store, beyond=True)
    chosen = [noted(store, item) if item.record else item for item in chosen]
    done: list[SessionRestore] = []
    rewrites: dict[int, AnyRewrite] = {}  # by the index of their result in `done`
    try:
        with store.runs.run("restore", clock()):
            for item in chosen:
                if item.file:
                    progress(item.file)
                answer, rewrite = _restore_session(settings, store, item, pristine, clock)
                untouched = answer.state == "nothing to undo" and not answer.left
                if not session and not item.record and untouched:
                    continue  # the session never had a placeholder
                done.append(answer)
                if rewrite:
                    rewrites[len(done) - 1] = rewrite
                now = time.monotonic()
                for place in [at for at, waiting in rewrites.items() if waiting.due <= now]:
                    _finish(done, place, rewrites.pop(place))
        while rewrites:
            place = next(iter(rewrites))
            _finish(done, place, rewrites.pop(place))
    except BaseException:
        finish_now(rewrites.values())
        raise
    return done if session else [*done, *_archives(settings)]


def _finish(done: list[SessionRestore], place: int, rewrite: AnyRewrite) -> None:
    if not rewrite.finish():
        done[place] = replace(done[place], missed=(*done[place].missed, UNFINISHED))


def _restore_session(
    settings: Settings, store: Store, session: Session, pristine: bool,
    clock: Callable[[], float],
) -> tuple[SessionRestore, AnyRewrite | None]:  # fmt: skip
    now = clock()
    if session.file is None:
        return _gone(store, session), None
    if session.record is None:
        answer = _unknown(settings, store, session, now)
        if answer is not None:
            return answer, None
        session = noted(store, session)
    assert session.record is not None  # noqa: S101  noted above
    assert session.file is not None  # noqa: S101  checked above
    request = request_to_restore(session.record, None, None, pristine, now)
    try:
        planned, rewrite = carry_out(
            settings, store, session.file, session.record, (request,), clock
        )
    except NotIdleError as why:
        note(settings, store, session.record, None, None, pristine, now)
        return SessionRestore(session.title, "pending", 0, reason=str(why)), None
    except (DamagedError, FailedError, GuardedError, NotFoundError, StoreFullError) as why:
        reason = str(why).removeprefix(f"{session.title}: ")
        return SessionRestore(session.title, "failed", 0, reason=reason), None
    nothing = "nothing put back" if planned.missed else "nothing to undo"
    state = "restored" if planned.edits else nothing
    return SessionRestore(
        session.title, state, len(planned.putbacks), removed(planned), missed(planned),
        note=_note_on_seals(len(planned.unfit), pristine=pristine), left=_left(planned),
    ), rewrite  # fmt: skip


def _note_on_seals(unfit: int, *, pristine: bool) -> str:
    """Return a note on thinking that was signed after placeholders which are gone now, or ""."""
    if not unfit:
        return ""
    outcome = "they stand there all the same" if pristine else "they stay out"
    entries = counted(unfit, "entry", "entries")
    return f"signed thinking of {entries} does not fit what stands before it now: {outcome}"


def _left(planned: Plan) -> tuple[str, ...]:
    """Return the entries that keep a placeholder, each once, with the reason."""
    return tuple(f"{entry}: {why}" for entry, why in dict.fromkeys(planned.left))


def _unknown(
    settings: Settings, store: Store, session: Session, now: float
) -> SessionRestore | None:
    """Return the result for a session without a row, or None if something can be restored."""
    assert session.file is not None  # noqa: S101  a session has a file or a record
    everything = Request(None, 0, None, "restore", None, None, True, now, None)
    try:
        with examine(settings, session.file, None, now, window=0) as examined:
            records = records_of(settings, store, examined.session, None, now, (everything,))
            planned = examined.plan(records, cut=False)
    except RefusedError:
        return SessionRestore(session.title, "nothing to undo", 0)
    except BusyError as why:
        return SessionRestore(
            session.title, "failed", 0, reason=f"{why}; nobody knows its placeholders"
        )
    except OSError as why:
        error = why.strerror or type(why).__name__
        return SessionRestore(
            session.title, "failed", 0, reason=f"{error}; nobody knows its placeholders"
        )
    if planned.putbacks or planned.fields:
        return None
    state = "nothing put back" if planned.left else "nothing to undo"
    lost = any(why.endswith(NOBODYS) for _, why in planned.left)
    return SessionRestore(session.title, state, 0, reason=LOST if lost else "",
                          left=_left(planned))  # fmt: skip


def _gone(store: Store, session: Session) -> SessionRestore:
    """Return the result for a session whose file is gone or cannot be seen."""
    record = session.record
    assert record is not None  # noqa: S101  a session has a file or a record
    try:
        os.stat(record.root)
        hidden = ""
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(record.path)
        at = row_at([Root(record.root)], record.path)
        if isinstance(at, Unreadable):
            hidden = f"{at.path} cannot be looked into ({at.why}): its placeholders may stand there"
    except OSError as why:
        hidden = (
            f"{record.root} cannot be looked into ({why.strerror}): its placeholders may stand "
            "there"
        )
    if not hidden or not store.placements.of_session(record.id):
        return SessionRestore(session.title, "gone", 0, reason="its file is gone")
    return SessionRestore(session.title, "failed", 0, reason=hidden, left=(record.path,))


def _archives(settings: Settings) -> Iterator[SessionRestore]:
    """Yield a result for each archive of an agent with placeholders. Archives are only read."""
    for placeholders in placeholders_put_away(settings):
        if placeholders.sure:
            left = tuple(f"{entry}: {ARCHIVED}" for entry in placeholders.entries)
            yield SessionRestore(placeholders.session, PUT_AWAY, 0, left=left)
        else:
            yield SessionRestore(
                placeholders.session, "failed", 0, reason=f"{placeholders.note}; {UNSEEN}"
            )
