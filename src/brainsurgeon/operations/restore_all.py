"""Put everything back, in one session or in all that stand below a root or the store knows.

Whoever undoes everything may be about to remove us: each session in which a stub of ours stays is
named, with why, whether the store knows it or not.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.decide.matching import NOBODYS
from brainsurgeon.errors import (
    BusyError,
    DamagedError,
    FailedError,
    GuardedError,
    NotFoundError,
    StoreFullError,
)
from brainsurgeon.formats.openclaw_rows import OpenClawRows
from brainsurgeon.hosts import openclaw
from brainsurgeon.lookup.sessions import Session, all_sessions, noted, session_named
from brainsurgeon.model.records import Records, Wish
from brainsurgeon.model.reports import SessionRestore
from brainsurgeon.model.sessions import Root, Unreadable
from brainsurgeon.model.words import counted
from brainsurgeon.operations.databases import databases_below
from brainsurgeon.operations.restore import missed, note, removed, wish_to_restore
from brainsurgeon.rewrite.carry_out import carry_out
from brainsurgeon.rewrite.examine import UnsettledError, examine
from brainsurgeon.rewrite.finishing import UNFINISHED, finish_now
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_listing import row_at
from brainsurgeon.sessions.row_sighting import archived
from brainsurgeon.sessions.sighting import (
    entries_with_stubs,
    sessions_and_archives,
    with_own_stubs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.carry_out import AnyRewrite
    from brainsurgeon.store import Store

LOST = "cut by a store that this one is not: name that one's directory as state_dir, if it is there"
PUT_AWAY = "put away by its agent"
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
    """Put everything back, in one session or in all."""
    if session is not None:
        chosen = [session_named(settings, store, session, beyond=True)]
    else:
        chosen = all_sessions(settings, store, beyond=True)
    chosen = [noted(store, one) for one in chosen]
    done: list[SessionRestore] = []
    rewrites: dict[int, AnyRewrite] = {}  # by the place of their answer
    try:
        with store.passes.run("restore", clock()):
            for one in chosen:
                if one.file:
                    progress(one.file)
                answer, rewrite = _restore_session(settings, store, one, pristine, clock)
                if not session and not one.record and not answer.left and answer.state != "failed":
                    continue  # nothing of ours was ever there
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
    return done if session else [*done, *_archives(settings)]


def _finish(done: list[SessionRestore], place: int, rewrite: AnyRewrite) -> None:
    if not rewrite.finish():
        done[place] = replace(done[place], missed=(*done[place].missed, UNFINISHED))


def _restore_session(
    settings: Settings, store: Store, session: Session, pristine: bool,
    clock: Callable[[], float],
) -> tuple[SessionRestore, AnyRewrite | None]:  # fmt: skip
    now = clock()
    if session.record is None:
        return _unknown(settings, store, session, now), None
    if session.file is None:
        return _gone(store, session), None
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
        note=_note_on_seals(len(planned.unfit), pristine=pristine), left=_left(planned),
    ), rewrite  # fmt: skip


def _note_on_seals(unfit: int, *, pristine: bool) -> str:
    """Say what became of thinking that was signed behind stubs which stand there no more."""
    if not unfit:
        return ""
    what = "they stand there all the same" if pristine else "they stay out"
    entries = counted(unfit, "entry", "entries")
    return f"signed thinking of {entries} does not fit what stands before it now: {what}"


def _left(planned: Plan) -> tuple[str, ...]:
    """Name the entries in which a stub of ours stays, each once with why."""
    return tuple(f"{entry}: {why}" for entry, why in dict.fromkeys(planned.left))


def _unknown(settings: Settings, store: Store, session: Session, now: float) -> SessionRestore:
    """Look for what is ours in a session of which the store knows nothing."""
    assert session.file is not None  # noqa: S101  what has neither a file nor a record is not known
    everything = Wish(None, 0, None, "restore", None, None, True, now, None)
    try:
        with examine(settings, session.file, None, now, window=0) as one:
            alike = tuple(store.extractions.elsewhere(one.session.identity, ()))
            planned = one.plan(Records(elsewhere=alike, wishes=(everything,)), cut=False)
    except RefusedError:
        return SessionRestore(session.title, "nothing to undo", 0)
    except BusyError as why:
        return SessionRestore(session.title, "failed", 0, reason=f"{why}; nobody knows its stubs")
    except OSError as why:
        told = why.strerror or type(why).__name__
        return SessionRestore(session.title, "failed", 0, reason=f"{told}; nobody knows its stubs")
    state = "nothing put back" if planned.left else "nothing to undo"
    lost = any(why.endswith(NOBODYS) for _, why in planned.left)
    return SessionRestore(session.title, state, 0, reason=LOST if lost else "",
                          left=_left(planned))  # fmt: skip


def _gone(store: Store, session: Session) -> SessionRestore:
    """Say that a session's file is gone, and whether that is certain."""
    record = session.record
    assert record is not None  # noqa: S101  see above
    try:
        os.stat(record.root)
        hidden = ""
        with suppress(FileNotFoundError, NotADirectoryError):
            os.stat(record.path)
        at = row_at([Root(record.root)], record.path)
        if isinstance(at, Unreadable):
            hidden = f"{at.path} cannot be looked into ({at.why}): its stubs may stand there"
    except OSError as why:
        hidden = f"{record.root} cannot be looked into ({why.strerror}): its stubs may stand there"
    if not hidden or not store.extractions.totals().get(record.id or 0):
        return SessionRestore(session.title, "gone", 0, reason="its file is gone")
    return SessionRestore(session.title, "failed", 0, reason=hidden, left=(record.path,))


def _archives(settings: Settings) -> Iterator[SessionRestore]:
    """Name what agents put away with stubs of ours in it: it is read, never written."""
    for file in sessions_and_archives(settings.root_directories()):
        if openclaw.is_session_name(file.name):
            continue
        try:
            ours = tuple(f"{entry}: {ARCHIVED}" for entry in entries_with_stubs(file))
        except (OSError, RefusedError):
            continue
        if ours:
            yield SessionRestore(file.path, PUT_AWAY, 0, left=ours)
    yield from _archives_in_databases(settings)


def _archives_in_databases(settings: Settings) -> Iterator[SessionRestore]:
    for database in databases_below(settings.root_directories()):
        try:
            for session, lines in archived(database):
                entries = with_own_stubs(lines, OpenClawRows())
                if ours := tuple(f"{entry}: {ARCHIVED}" for entry in entries):
                    yield SessionRestore(f"{database.path}/{session}", PUT_AWAY, 0, left=ours)
        except (OSError, RefusedError, BusyError) as why:
            told = f"its archives cannot be read ({why}); stubs may stand there"
            yield SessionRestore(database.path, "failed", 0, reason=told)
