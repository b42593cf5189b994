"""Bring a session that is too full back under what its model takes, without asking a model."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError, FailedError, GoneError, GuardedError
from brainsurgeon.formats import base
from brainsurgeon.lookup import catalogue
from brainsurgeon.lookup.sessions import file_of, session_named
from brainsurgeon.model.entries import stub_in, value_at
from brainsurgeon.model.plans import Amount
from brainsurgeon.model.reports import Relief
from brainsurgeon.planning.signatures import BROKEN, DOUBTFUL, HOLLOW, STALE
from brainsurgeon.rewrite.budget import Fitting, Wanted, folding_of, relieve_by, weigh
from brainsurgeon.rewrite.change import change, end_redactions
from brainsurgeon.rewrite.inspect import (
    HELD,
    UnsettledError,
    examine_quiet,
    examine_to_show,
    excluded,
    moved_away,
    records_of,
)
from brainsurgeon.sessions.opening import as_it_is_now, failing, open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.store import Store

_SEALS = (BROKEN, DOUBTFUL, HOLLOW, STALE)


def relieve(
    settings: Settings, store: Store, session: str | Session, wanted: Wanted,
    *, clock: Callable[[], float],
) -> Relief:  # fmt: skip
    """Take as much out of a session as it takes for it to fit, or note the wish to.

    Raise GuardedError where its agent keeps its sessions elsewhere now, FailedError where its file
    cannot be read or replaced, or is excluded, and what finding it raises.
    """
    chosen = session_named(settings, store, session) if isinstance(session, str) else session
    file = file_of(chosen)
    if moved_away(file):
        raise GuardedError(f"{chosen.title}: its agent keeps its sessions in SQLite now")
    if why := excluded(file, settings, asked=True):
        raise FailedError(f"{chosen.title}: {why}; its file was left as it is")
    try:
        with _translated(file), store.passes.run("relieve", clock()):
            relief, rewrite = _relieved(settings, store, as_it_is_now(file), wanted, clock)
    except UnsettledError as why:
        _note_wish(store, file, wanted, clock())
        return Relief(chosen.title, pending=True, reason=str(why))
    if rewrite is not None:
        rewrite.finish()
    return relief


def would_relieve(
    settings: Settings, store: Store | None, session: str, wanted: Wanted, now: float
) -> Relief:
    """Say what a relief would do, settled or not; nothing is touched."""
    chosen = session_named(settings, store, session)
    file = file_of(chosen)
    state = store.files.at(file.path) if store else None
    with examine_to_show(settings, file, state, now) as one:
        records = records_of(settings, store, one.session, chosen.record, now)
        make = partial(one.plan, records, explain=True)
        fitting = relieve_by(
            one, weigh(one, records, store), wanted, make, folding_of(one, records)
        )
        return _told(one, fitting, reason=fitting.plan.deferred or _unsettled(one))


def _relieved(
    settings: Settings, store: Store, file: SessionFile, wanted: Wanted,
    clock: Callable[[], float],
) -> tuple[Relief, AnyRewrite | None]:  # fmt: skip
    now = clock()
    with examine_quiet(settings, file, store.files.at(file.path), now) as one:
        one.check_turn()
        record = catalogue.note(store, one.session)
        records = records_of(settings, store, one.session, record, now)
        make = partial(one.plan, records, explain=True)
        fitting = relieve_by(
            one, weigh(one, records, store), wanted, make, folding_of(one, records)
        )
        planned = fitting.plan
        end_redactions(settings, store, record, planned, now)
        if planned.deferred:
            raise UnsettledError(planned.deferred)
        told, rewrite = _told(one, fitting), None
        if planned.edits:
            rewrite = _changed(store, one, record, planned, clock)
        else:
            catalogue.record_look(store, one.session, record, planned, now)
        if fitting.after:
            with store.transaction():
                store.calibrations.remember(record.id, fitting.after, now)
    return told, rewrite


def _changed(
    store: Store, one: Examination, record: SessionRecord, planned: Plan,
    clock: Callable[[], float],
) -> AnyRewrite:  # fmt: skip
    try:
        rewrite = change(store, one, record, planned, clock)
    except RefusedError as why:  # by then the session as such was fine
        raise UnsettledError(str(why)) from why
    if rewrite.left:  # what was done is recorded; the rest waits for another moment
        raise UnsettledError(rewrite.left)
    return rewrite


@contextmanager
def _translated(file: SessionFile) -> Iterator[None]:
    """Say in our own words what keeps a session from being relieved now, or for good."""
    with failing(file):
        try:
            yield
        except BlockingIOError as why:
            raise UnsettledError(HELD) from why
        except BusyError as why:
            raise UnsettledError(str(why)) from why
        except FileNotFoundError as why:
            raise GoneError(f"{file.title}: its file went away") from why


def _note_wish(store: Store, file: SessionFile, wanted: Wanted, now: float) -> None:
    with failing(file), open_session(file) as session, store.transaction():
        record = catalogue.note_within(store, session)
        store.wishes.add_relieve(record.id, wanted.write(), now)


def _unsettled(one: Examination) -> str:
    try:
        one.check_settled()
    except (UnsettledError, RefusedError) as why:
        return str(why)
    return ""


def _told(one: Examination, fitting: Fitting, *, reason: str = "") -> Relief:
    """Say what a relief comes to: what goes of what is sent, and what is left, by kind and tool."""
    planned, size = fitting.plan, one.session.fingerprint.size
    going = {(cut.entry_id, cut.path) for cut in planned.cuts}
    went, stays = dict[_Sort, list[int]](), dict[_Sort, list[int]]()
    for place, sort, chars in _live(one):
        counts = (went if place in going else stays).setdefault(sort, [0, 0])
        counts[0] += 1
        counts[1] += chars
    return Relief(
        one.session.file.title, reason=reason, fits=fitting.fits, rounds=fitting.rounds,
        room=fitting.room, before=fitting.before, after=fitting.after, went=_amounts(went),
        stays=_amounts(stays), values=sum(not cut.folds for cut in planned.cuts), bytes_before=size,
        bytes_after=size - planned.gain,
        seals=sum(cut.empties and cut.reason in _SEALS for cut in planned.cuts),
    )  # fmt: skip


_Sort = tuple[str, str | None]


def _live(one: Examination) -> Iterator[tuple[object, _Sort, int]]:
    """Yield the place, the kind with the tool, and the length of each value that is sent."""
    for line in one.session.lines:
        entry = base.parse(line.raw) if line.raw else None
        if entry is None or line.raw is None or one.survey.dead(line.offset):
            continue
        ident = one.format.identity(entry, line.raw, line.number)
        for part in one.format.parts(entry, one.survey, line.offset):
            if not part.dead and stub_in(value_at(entry, part.path)) is None:
                yield (ident, part.path), (part.kind, part.tool), part.chars


def _amounts(counted: dict[_Sort, list[int]]) -> tuple[Amount, ...]:
    ranked: Iterable[tuple[_Sort, list[int]]] = sorted(counted.items(), key=lambda one: -one[1][1])
    return tuple(Amount(*sort, *counts) for sort, counts in ranked)
