"""Reduce a session until it fits its model's context window, without calling a model."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError, FailedError, GoneError, GuardedError
from brainsurgeon.formats import base
from brainsurgeon.lookup import catalogue
from brainsurgeon.lookup.sessions import file_of, session_named
from brainsurgeon.model.entries import placeholder_in, value_at
from brainsurgeon.model.plans import Amount
from brainsurgeon.model.reports import Relief
from brainsurgeon.planning.signatures import BROKEN, DOUBTFUL, HOLLOW, STALE
from brainsurgeon.rewrite.budget import Fitting, Wanted, folding_of, relieve_by, weigh
from brainsurgeon.rewrite.change import change, end_redactions
from brainsurgeon.rewrite.inspect import (
    HELD,
    NotIdleError,
    examine_quiet,
    examine_to_show,
    excluded,
    moved_away,
    records_of,
)
from brainsurgeon.sessions.opening import as_it_is_now, failing, open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Records, SessionRecord
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.store import Store

_SEALS = (BROKEN, DOUBTFUL, HOLLOW, STALE)


def relieve(
    settings: Settings, store: Store, session: str | Session, wanted: Wanted,
    *, clock: Callable[[], float],
) -> Relief:  # fmt: skip
    """Extract values until the session fits, or record the request if it is not idle.

    Raises GuardedError if its agent has moved its sessions elsewhere, FailedError if its file is
    excluded or cannot be read or replaced, and the errors of `session_named`.
    """
    chosen = session_named(settings, store, session)
    file = file_of(chosen)
    if moved_away(file):
        raise GuardedError(f"{chosen.title}: its agent keeps its sessions in SQLite now")
    if why := excluded(file, settings, asked=True):
        raise FailedError(f"{chosen.title}: {why}; its file was left as it is")
    try:
        with _translated(file), store.runs.run("relieve", clock()):
            relief, rewrite = _relieved(settings, store, as_it_is_now(file), wanted, clock)
    except NotIdleError as why:
        _note_request(store, file, wanted, clock())
        return Relief(chosen.title, pending=True, reason=str(why))
    if rewrite is not None:
        rewrite.finish()
    return relief


def would_relieve(
    settings: Settings, store: Store | None, session: str, wanted: Wanted, now: float
) -> Relief:
    """Return the result that `relieve` would have, whether idle or not. Writes nothing."""
    chosen = session_named(settings, store, session)
    file = file_of(chosen)
    state = store.files.at(file.path) if store else None
    with examine_to_show(settings, file, state, now) as examined:
        records = records_of(settings, store, examined.session, chosen.record, now)
        fitting = _fitting(store, examined, records, wanted)
        return _told(examined, fitting, reason=fitting.plan.deferred or _not_idle(examined))


def _fitting(
    store: Store | None, examined: Examination, records: Records, wanted: Wanted
) -> Fitting:  # fmt: skip
    make = partial(examined.plan, records, explain=True)
    weighed, folding = weigh(examined, records, store), folding_of(examined, records)
    return relieve_by(examined, weighed, wanted, make, folding)


def _relieved(
    settings: Settings, store: Store, file: SessionFile, wanted: Wanted,
    clock: Callable[[], float],
) -> tuple[Relief, AnyRewrite | None]:  # fmt: skip
    now = clock()
    with examine_quiet(settings, file, store.files.at(file.path), now) as examined:
        examined.check_turn()
        record = catalogue.note(store, examined.session)
        records = records_of(settings, store, examined.session, record, now)
        fitting = _fitting(store, examined, records, wanted)
        planned = fitting.plan
        end_redactions(settings, store, record, planned, now)
        if planned.deferred:
            raise NotIdleError(planned.deferred)
        relief, rewrite = _told(examined, fitting), None
        if planned.edits:
            rewrite = _changed(store, examined, record, planned, clock)
        else:
            catalogue.record_look(store, examined.session, record, planned, now)
        if fitting.after:
            with store.transaction():
                store.calibrations.remember(record.id, fitting.after, now)
    return relief, rewrite


def _changed(
    store: Store, examined: Examination, record: SessionRecord, planned: Plan,
    clock: Callable[[], float],
) -> AnyRewrite:  # fmt: skip
    try:
        rewrite = change(store, examined, record, planned, clock)
    except RefusedError as why:  # the session itself was valid when it was examined
        raise NotIdleError(str(why)) from why
    if rewrite.left:  # the finished part is recorded; the rest waits
        raise NotIdleError(rewrite.left)
    return rewrite


@contextmanager
def _translated(file: SessionFile) -> Iterator[None]:
    """Translate errors of the operating system and of a busy store."""
    with failing(file):
        try:
            yield
        except BlockingIOError as why:
            raise NotIdleError(HELD) from why
        except BusyError as why:
            raise NotIdleError(str(why)) from why
        except FileNotFoundError as why:
            raise GoneError(f"{file.title}: its file went away") from why


def _note_request(store: Store, file: SessionFile, wanted: Wanted, now: float) -> None:
    with failing(file), open_session(file) as session, store.transaction():
        record = catalogue.note_within(store, session)
        store.requests.add_relieve(record.id, wanted.write(), now)


def _not_idle(examined: Examination) -> str:
    try:
        examined.check_idle()
    except (NotIdleError, RefusedError) as why:
        return str(why)
    return ""


def _told(examined: Examination, fitting: Fitting, *, reason: str = "") -> Relief:
    """Return the amounts of extracted and remaining live values, by kind and tool."""
    planned, size = fitting.plan, examined.session.fingerprint.size
    going = {(cut.entry_id, cut.path) for cut in planned.cuts}
    went, stays = dict[_Sort, list[int]](), dict[_Sort, list[int]]()
    for place, sort, chars in _live(examined):
        counts = (went if place in going else stays).setdefault(sort, [0, 0])
        counts[0] += 1
        counts[1] += chars
    return Relief(
        examined.session.file.title, reason=reason, fits=fitting.fits, rounds=fitting.rounds,
        room=fitting.room, before=fitting.before, after=fitting.after, went=_amounts(went),
        stays=_amounts(stays), values=sum(not cut.folds for cut in planned.cuts), bytes_before=size,
        bytes_after=size - planned.gain,
        seals=sum(cut.empties and cut.reason in _SEALS for cut in planned.cuts),
    )  # fmt: skip


_Sort = tuple[str, str | None]


def _live(examined: Examination) -> Iterator[tuple[object, _Sort, int]]:
    """Yield each value that requests carry: its place, its kind and tool, and its characters."""
    for line in examined.session.lines:
        entry = base.parse(line.raw) if line.raw else None
        if entry is None or line.raw is None or examined.survey.dead(line.offset):
            continue
        ident = examined.format.identity(entry, line.raw, line.number)
        for part in examined.format.parts(entry, examined.survey, line.offset):
            if not part.dead and placeholder_in(value_at(entry, part.path)) is None:
                yield (ident, part.path), (part.kind, part.tool), part.chars


def _amounts(counted: dict[_Sort, list[int]]) -> tuple[Amount, ...]:
    ranked = sorted(counted.items(), key=lambda item: -item[1][1])
    return tuple(Amount(*sort, *counts) for sort, counts in ranked)
