"""Carry out what is asked of one session, with the requests that already wait, if it is idle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError, DamagedError, FailedError, GoneError, GuardedError
from brainsurgeon.rewrite import inspect
from brainsurgeon.rewrite.apply import Change, apply
from brainsurgeon.rewrite.apply_rows import RowsRewrite, apply_rows
from brainsurgeon.rewrite.finish import Rewrite
from brainsurgeon.rewrite.inspect import NotIdleError, moved_away
from brainsurgeon.sessions.opening import as_it_is_now, failed
from brainsurgeon.sessions.reading import RefusedError
from brainsurgeon.sessions.row_session import OpenRows

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Request, SessionRecord
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.rewrite.shelving import Values
    from brainsurgeon.store import Store


NO_ANSWER = "no answer of ours stands in the turn in which it was asked"
# Why a redaction ends without one.
KEPT = "the configuration keeps such calls"

# A session that was changed, in either medium.
AnyRewrite = Rewrite | RowsRewrite


def change(
    store: Store, one: Examination, record: SessionRecord, planned: Plan,
    clock: Callable[[], float], values: Values | None = None,
) -> AnyRewrite:  # fmt: skip
    """Carry out one plan in the medium that its session lies in."""
    if isinstance(one.session, OpenRows):
        return apply_rows(store, one, one.session, record, planned, clock, values)
    return apply(store, Change(one, one.session, record, planned, values or {}), clock)


def carry_out(
    settings: Settings, store: Store, file: SessionFile, record: SessionRecord,
    asked: tuple[Request, ...], clock: Callable[[], float], values: Values | None = None,
) -> tuple[Plan, AnyRewrite | None]:  # fmt: skip
    """Carry out what is asked, with the requests that already wait, if the session is idle.

    Raise NotIdleError where it is not; nothing is cut on the way. The caller finishes the
    rewrite. `values` are stored values that were read already.
    """
    damaged: set[int] = set()
    while True:
        try:
            now_here = as_it_is_now(file)
            return _rewrite(settings, store, now_here, record, asked, clock, values or {}, damaged)
        except DamagedError as why:  # what is whole still goes back
            if why.extraction_id is None or why.extraction_id in damaged:
                raise
            damaged.add(why.extraction_id)
        except BlockingIOError as why:
            raise NotIdleError(inspect.HELD) from why
        except BusyError as why:
            raise NotIdleError(str(why)) from why
        except RefusedError as why:
            if moved_away(file):
                told = f"{record.title}: {why}; `brainsurgeon show` still prints the value"
                raise GuardedError(told) from why
            raise FailedError(f"{record.title}: {why}; its file was left as it is") from why
        except FileNotFoundError as why:
            raise GoneError(f"{record.title}: its file went away") from why
        except OSError as why:
            raise failed(record.title, why) from why


def end_redactions(
    settings: Settings, store: Store, record: SessionRecord, planned: Plan, now: float
) -> None:
    """End the redactions that are over without anything to redact, each with its reason.

    The session was seen idle: whether it is rewritten now changes nothing about that.
    """
    ended = {planned.unanswered: NO_ANSWER}
    if settings.keep_purge_control_calls:
        kept = (one.id for one in store.requests.open_of(record.id) if one.action == "redact")
        ended[tuple(ident for ident in kept if ident is not None)] = KEPT
    if not any(ended):
        return
    with store.transaction():
        for ids, why in ended.items():
            store.requests.let_go(ids, why, now, store.runs.so_far)


def _rewrite(
    settings: Settings, store: Store, file: SessionFile, record: SessionRecord,
    asked: tuple[Request, ...], clock: Callable[[], float], values: Values, damaged: set[int],
) -> tuple[Plan, AnyRewrite | None]:  # fmt: skip
    now = clock()
    state = store.files.at(file.path)
    with inspect.examine_quiet(settings, file, state, now) as one:
        one.check_turn()
        records = inspect.records_of(settings, store, one.session, record, now, asked)
        whole = (replace(value, damaged=value.id in damaged) for value in records.extractions)
        planned = one.plan(replace(records, extractions=tuple(whole)), cut=False)
        end_redactions(settings, store, record, planned, now)
        if planned.deferred:
            raise NotIdleError(planned.deferred)
        if not planned.edits:
            return planned, None
        try:
            rewrite = change(store, one, record, planned, clock, values)
        except RefusedError as why:  # by then the session as such was fine
            raise NotIdleError(str(why)) from why
        if rewrite.left:  # what was done is recorded; the rest waits for another moment
            raise NotIdleError(rewrite.left)
        return planned, rewrite
