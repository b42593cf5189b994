"""The data of the report page: savings, sizes, next extractions, and sessions that wait."""

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

# Limits; the largest come first.
TAKEN_APART = 25  # sessions that are read to list what the next scan would extract
LISTED = 500  # sessions that the page lists: a browser has to open it
_VALUES = 40  # extracted values listed for each session
_PLACES = 50  # places with copies
# Directories beside a session in which agents keep copies of values.
_SIDE = ("tool-results", "file-history")


@dataclass(frozen=True, slots=True)
class Sum:
    """The number of items in a group, their size and the savings, in bytes."""

    name: str
    number: int
    size: int
    saved: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """An extracted value; `preview` is its beginning, if requested."""

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
    """One session. `more` counts the values that are not in `values`.

    `next_bytes` is None if the session was not read; `untold` is the reason, if there is one.
    """

    about: SessionSummary
    values: tuple[Value, ...]
    more: int
    filling: tuple[Sum, ...] = ()
    next_values: int = 0
    next_bytes: int | None = None
    untold: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """The content of the page. Sizes are in bytes, times in seconds since 1970.

    `days` has the number of each day since 1970, its values and their size. `unreached` are
    copies of values in files that are never pruned. `states` counts all sessions by state.
    `smaller` is the sum of the sessions that are not in `sessions`.
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
    """Return the report. Writes nothing; the report has session content only with `previews`."""
    known = all_sessions(settings, store)
    listed = summaries(settings, store, known, now)
    by_path = {session.path: session for session in known}
    pages = []
    for number, about in enumerate(listed[:LISTED]):
        session = by_path[about.path]
        if session.file and number < TAKEN_APART:
            progress(session.file)
            pages.append(_taken_apart(settings, store, session, about, now, previews=previews))
        else:
            pages.append(_page(store, session, about, previews=previews))
    rest = listed[LISTED:]
    smaller = Sum("", len(rest), sum(item.size for item in rest), sum(item.saved for item in rest))
    kinds = store.sums.by_kind() if store else []
    return Report(
        now, status(settings, store, now), tuple(store.sums.by_day() if store else ()),
        _added((summary.agent, 1, summary.size, summary.saved) for summary in listed),
        _added((kind, values, size, 0) for kind, _, values, size in kinds),
        _added((tool or f"({kind})", values, size, 0) for kind, tool, values, size in kinds),
        tuple(Counter(summary.state for summary in listed).most_common()), tuple(pages),
        smaller,
        tuple(summary for summary in listed if summary.state not in ("idle", "gone")),
        _largest(_unreached(known)), previews,
    )  # fmt: skip


def _taken_apart(
    settings: Settings, store: Store | None, session: Session, about: SessionSummary, now: float,
    *, previews: bool,
) -> SessionPage:  # fmt: skip
    try:
        content = context(settings, store, session, now)
    except (BrainsurgeonError, RefusedError, OSError) as why:
        reason = why.strerror or "" if isinstance(why, OSError) else str(why)
        return _page(store, session, about, previews=previews, untold=reason)
    due = content.pays and not content.deferred
    values, more = _values(store, content.extracted, previews=previews)
    return SessionPage(
        about, values, more,
        tuple(Sum(f"{f.kind}, {f.tool}" if f.tool else f.kind, f.values, f.chars)
              for f in content.filling),
        len(content.next) if due else 0, max(0, content.gain) if due else 0,
        content.deferred or "",
    )  # fmt: skip


def _page(
    store: Store | None, session: Session, about: SessionSummary, *, previews: bool,
    untold: str = "",
) -> SessionPage:  # fmt: skip
    ident = session.record.id if session.record else None
    held = [
        value for value in (store.extractions.held_in(ident) if store and ident is not None else [])
        if value.archive_id is None and (value.state == "standing" or value.blob_id is not None)
    ]  # fmt: skip
    return SessionPage(about, *_values(store, held, previews=previews), untold=untold)


def _values(
    store: Store | None, listed: tuple[Extraction, ...] | list[Extraction], *, previews: bool
) -> tuple[tuple[Value, ...], int]:
    """Return the largest values, and the number of the others."""
    largest = sorted(listed, key=lambda item: (-item.size, item.id))[:_VALUES]
    values = tuple(
        Value(item.entry_id, dotted(item.path), item.kind, item.tool, item.size, item.extracted_at,
              item.blob_id is None, preview_of(store, item) if previews else None)
        for item in largest
    )  # fmt: skip
    return values, len(listed) - len(values)


def _largest(places: Iterator[Sum]) -> tuple[Sum, ...]:
    ranked = sorted(places, key=lambda place: (-place.size, place.name))
    rest = ranked[_PLACES:]
    if not rest:
        return tuple(ranked)
    name = f"{len(rest):,} smaller places of this kind"
    number, size = sum(place.number for place in rest), sum(place.size for place in rest)
    return (*ranked[:_PLACES], Sum(name, number, size))


def _added(rows: Iterator[tuple[str, int, int, int]]) -> tuple[Sum, ...]:
    """Sum up rows of name, number, size and savings by name, largest first."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, *amounts in rows:
        for place, amount in enumerate(amounts):
            sums[name][place] += amount
    ranked = sorted(sums.items(), key=lambda item: (-item[1][1] - item[1][2], item[0]))
    return tuple(Sum(name, *counts) for name, counts in ranked)


def _unreached(known: list[Session]) -> Iterator[Sum]:
    """Yield the size of each place with copies beside sessions, which is never pruned."""
    places: set[str] = set()
    databases: set[str] = set()
    for session in known:
        if session.file is None:
            continue
        if session.file.in_database:
            databases.add(os.path.dirname(session.file.path))
            continue
        bases = os.path.dirname(session.path), os.path.splitext(session.path)[0]
        places |= {os.path.join(base, side) for base in bases for side in _SIDE}
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
