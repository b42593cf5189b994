"""Gather what a page about everything shows: savings, sizes, what would go, what waits and why."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.lookup.sessions import all_sessions
from brainsurgeon.model.entries import dotted
from brainsurgeon.operations.context import context, preview_of
from brainsurgeon.operations.sessions import summaries
from brainsurgeon.operations.status import status
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.records import Extraction
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.operations.sessions import SessionSummary
    from brainsurgeon.operations.status import Status
    from brainsurgeon.store import Store

TAKEN_APART = 25
"""Sessions, the largest, that are read to say what the next scan would take."""
LISTED = 500
"""Sessions, the largest, that the page has one by one: a browser has to open it."""
_VALUES = 40
"""Extracted values, the largest, that are listed of one session."""
_PLACES = 50
"""Places with copies, the largest, that are listed one by one."""
_SIDE = ("tool-results", "file-history")
"""Directories beside a session in which agents keep copies of values."""


@dataclass(frozen=True, slots=True)
class Sum:
    """What belongs together under a name: how many, and their size in bytes; what is saved."""

    name: str
    number: int
    size: int
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """An extracted value; `preview` is how it begins, where that was asked for."""

    entry_id: str
    path: str
    kind: str
    tool: str | None
    size: int
    extracted_at: float
    expired: bool
    preview: str | None = None


@dataclass(frozen=True, slots=True)
class SessionPage:
    """One session; `next_bytes` is None where it was not taken apart, for the reason `untold`."""

    about: SessionSummary
    values: tuple[Value, ...]
    more: int
    filling: tuple[Sum, ...] = ()
    next_values: int = 0
    next_bytes: int | None = None
    untold: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that the page shows; sizes are bytes, moments seconds since 1970.

    `days` are the day's number since 1970, its values and their size. `unreached` are files in
    which agents keep copies that no pruning reaches. `states` counts all sessions by their state;
    `smaller` sums those up that are too many to be among `sessions`.
    """

    made_at: float
    status: Status
    days: tuple[tuple[int, int, int], ...]
    agents: tuple[Sum, ...]
    kinds: tuple[Sum, ...]
    tools: tuple[Sum, ...]
    states: tuple[tuple[str, int], ...]
    sessions: tuple[SessionPage, ...]
    smaller: Sum
    waiting: tuple[SessionSummary, ...]
    unreached: tuple[Sum, ...]
    previews: bool


def report(
    settings: Settings, store: Store | None, now: float, *, previews: bool = False,
    progress: Callable[[SessionFile], None] = lambda _: None,
) -> Report:  # fmt: skip
    """Look at everything and touch nothing; content is in it only as `previews`."""
    known = all_sessions(settings, store)
    listed = summaries(settings, store, known, now)
    by_path = {one.path: one for one in known}
    pages = []
    for number, about in enumerate(listed[:LISTED]):
        session = by_path[about.path]
        if session.file and number < TAKEN_APART:
            progress(session.file)
            pages.append(_taken_apart(settings, store, session, about, now, previews=previews))
        else:
            pages.append(_page(store, session, about, previews=previews))
    kinds = store.sums.by_kind() if store else []
    return Report(
        now, status(settings, store, now), tuple(store.sums.by_day() if store else ()),
        _agents(listed), _added((kind, values, size) for kind, _, values, size in kinds),
        _added((tool or f"({kind})", values, size) for kind, tool, values, size in kinds),
        tuple(Counter(one.state for one in listed).most_common()), tuple(pages),
        _together("", listed[LISTED:]),
        tuple(one for one in listed if one.state not in ("settled", "gone")),
        _largest(_unreached(known)), previews,
    )  # fmt: skip


def _taken_apart(
    settings: Settings, store: Store | None, session: Session, about: SessionSummary, now: float,
    *, previews: bool,
) -> SessionPage:  # fmt: skip
    try:
        one = context(settings, store, session, now)
    except (BrainsurgeonError, RefusedError, OSError) as why:
        told = why.strerror or "" if isinstance(why, OSError) else str(why)
        return _page(store, session, about, previews=previews, untold=told)
    takes = one.pays and not one.deferred
    values, more = _values(store, one.extracted, previews=previews)
    return SessionPage(
        about, values, more,
        tuple(Sum(f"{f.kind}, {f.tool}" if f.tool else f.kind, f.values, f.chars)
              for f in one.filling),
        len(one.next) if takes else 0, max(0, one.gain) if takes else 0, one.deferred or "",
    )  # fmt: skip


def _page(
    store: Store | None, session: Session, about: SessionSummary, *, previews: bool,
    untold: str = "",
) -> SessionPage:  # fmt: skip
    ident = session.record.id if session.record else None
    found = store.extractions.held_in(ident) if store and ident is not None else []
    held = [
        one for one in found
        if one.archive_id is None and (one.state == "standing" or one.blob_id is not None)
    ]  # fmt: skip
    return SessionPage(about, *_values(store, held, previews=previews), untold=untold)


def _values(
    store: Store | None, found: tuple[Extraction, ...] | list[Extraction], *, previews: bool
) -> tuple[tuple[Value, ...], int]:
    largest = sorted(found, key=lambda one: (-one.size, one.id))[:_VALUES]
    values = tuple(
        Value(one.entry_id, dotted(one.path), one.kind, one.tool, one.size, one.extracted_at,
              one.blob_id is None, preview_of(store, one) if previews else None)
        for one in largest
    )  # fmt: skip
    return values, len(found) - len(values)


def _together(name: str, listed: list[SessionSummary]) -> Sum:
    return Sum(name, len(listed), sum(one.size for one in listed), sum(one.saved for one in listed))


def _largest(places: Iterator[Sum]) -> tuple[Sum, ...]:
    """Give the largest places, and the sum of the others."""
    ranked = sorted(places, key=lambda one: (-one.size, one.name))
    rest = ranked[_PLACES:]
    if not rest:
        return tuple(ranked)
    others = Sum(f"{len(rest):,} smaller places of this kind",
                 sum(one.number for one in rest), sum(one.size for one in rest))  # fmt: skip
    return (*ranked[:_PLACES], others)


def _agents(listed: list[SessionSummary]) -> tuple[Sum, ...]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for one in listed:
        for place, amount in enumerate((1, one.size, one.saved)):
            sums[one.agent][place] += amount
    ranked = sorted(sums.items(), key=lambda item: (-item[1][1] - item[1][2], item[0]))
    return tuple(Sum(name, *counts) for name, counts in ranked)


def _added(rows: Iterator[tuple[str, int, int]]) -> tuple[Sum, ...]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for name, values, size in rows:
        sums[name][0] += values
        sums[name][1] += size
    ranked = sorted(sums.items(), key=lambda item: (-item[1][1], item[0]))
    return tuple(Sum(name, *counts) for name, counts in ranked)


def _unreached(known: list[Session]) -> Iterator[Sum]:
    """Add up, by place, what lies beside sessions and is never pruned."""
    places: set[str] = set()
    databases: set[str] = set()
    for one in known:
        if one.file is None:
            continue
        if one.file.in_database:
            databases.add(os.path.dirname(one.file.path))
            continue
        around, own = os.path.dirname(one.path), os.path.splitext(one.path)[0]
        places |= {os.path.join(base, side) for base in (around, own) for side in _SIDE}
    for place in sorted(places):
        sizes = list(_sizes_below(place))
        if sizes:
            yield Sum(place, len(sizes), sum(sizes))
    for database in sorted(databases):
        with suppress(OSError):
            yield Sum(f"{database} (what its agent copies within it)", 1, os.stat(database).st_size)


def _sizes_below(place: str) -> Iterator[int]:
    for directory, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(directory, name)).st_size
