"""Collect the data of the report page: savings, sizes, next extractions, sessions that wait."""

import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain

from msgspec.structs import replace

from brainsurgeon.agents import COPIES, agent_at, agent_of
from brainsurgeon.config import Settings
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.lookup.entries import attributable
from brainsurgeon.lookup.sessions import Session, all_sessions
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.reports import Context, Report, SessionPage, SessionSummary, Sum
from brainsurgeon.operations.estimate import estimate
from brainsurgeon.operations.sessions import context, preview_of, summaries
from brainsurgeon.operations.status import status
from brainsurgeon.planning.calls import costs_of
from brainsurgeon.rewrite.inspect import excluded
from brainsurgeon.store import Store

MOST_READ = 25  # sessions that are read to preview the next scan
LISTED = 500  # sessions on the page
_VALUES = 40  # extracted values of each session
_PLACES = 50  # directories and databases with copies of values


def report(settings: Settings, store: Store, now: float, *, previews: bool = False) -> Report:
    """Return the report, with content of sessions only if `previews` is set. Writes nothing."""
    sessions = all_sessions(settings, store)
    listed = summaries(settings, store, sessions, now)
    by_place = {(session.path, session.file is None): session for session in sessions}
    found = [by_place[summary.path, summary.changed_at is None] for summary in listed]
    pages = []
    for number, (summary, session) in enumerate(zip(listed[:LISTED], found, strict=False)):
        values: Iterable[Extraction] = ()
        page = SessionPage(summary)
        if session.file and number < MOST_READ:
            try:
                content = context(settings, store, session, now)
            except BrainsurgeonError as why:
                page = SessionPage(summary, deferred=why.reason)
            except (RefusedError, OSError) as why:
                reason = why.strerror or "" if isinstance(why, OSError) else str(why)
                page = SessionPage(summary, deferred=reason)
            else:
                page, values = _page(summary, content), content.extracted
        if page.next_bytes is None:
            values = (
                value for part in session.parts if part.record
                for value in attributable(
                    store, part, store.extractions.contained_in(part.record.id)
                )
                if value.archive_id is None
                and (value.state == "standing" or value.blob_id is not None)
            )  # fmt: skip
        ranked = sorted(values, key=lambda value: (-value.size, value.id))
        shown = tuple(
            (value, preview_of(store, value) if previews else None) for value in ranked[:_VALUES]
        )
        spent = chain.from_iterable(store.spending.of(part.path) for part in session.parts)
        pages.append(replace(
            page, program=_program(summary), values=shown, more=len(ranked) - len(shown),
            models=costs_of(spent, settings.price_rules()),
        ))  # fmt: skip
    kinds = store.sums.by_kind()
    return Report(
        now, status(settings, store, now), tuple(store.sums.by_day()),
        _sums_by_name((_program(one), 1, one.size_bytes, one.bytes_saved) for one in listed),
        _sums_by_name((kind, number, size, 0) for kind, _, number, size in kinds),
        _sums_by_name((tool or f"({kind})", number, size, 0) for kind, tool, number, size in kinds),
        tuple(pages),
        tuple(
            summary for summary, session in zip(listed, found, strict=True)
            if _waits(summary, session, settings)
        ),
        _largest(_copies_beside(sessions)), previews,
        estimate(settings, store, found[:MOST_READ], now, skip_busy=True),
    )  # fmt: skip


def _program(summary: SessionSummary) -> str:
    """Return the title of a session's agent, or the format of a log that has none."""
    form = summary.format
    agent = agent_of(summary.path, form) if form else agent_at(summary.path)
    return agent.title if agent.home.root() else form or "unknown format"


def _waits(summary: SessionSummary, session: Session, settings: Settings) -> bool:
    never = session.file and excluded(session.file, settings)
    return summary.state not in ("idle", "gone") and not never


def _page(summary: SessionSummary, content: Context) -> SessionPage:
    due = content.pays and not content.plan.deferred
    filling = tuple(
        Sum(f"{item.kind}, {item.tool}" if item.tool else item.kind, item.values, item.chars)
        for item in content.filling
    )
    return SessionPage(
        summary, filling=filling, next_values=len(content.plan.values) if due else 0,
        next_bytes=max(0, content.plan.gain) if due else 0, deferred=content.plan.deferred or "",
    )  # fmt: skip


def _largest(places: Iterator[Sum]) -> tuple[Sum, ...]:
    ranked = sorted(places, key=lambda place: (-place.size, place.name))
    if rest := ranked[_PLACES:]:
        number, size = sum(place.number for place in rest), sum(place.size for place in rest)
        ranked[_PLACES:] = [Sum(f"{len(rest):,} smaller places", number, size)]
    return tuple(ranked)


def _sums_by_name(rows: Iterator[tuple[str, int, int, int]]) -> tuple[Sum, ...]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for name, *amounts in rows:
        sums[name] = [total + amount for total, amount in zip(sums[name], amounts, strict=True)]
    ranked = sorted(sums.items(), key=lambda item: (-item[1][1] - item[1][2], item[0]))
    return tuple(Sum(name, *counts) for name, counts in ranked)


def _copies_beside(sessions: list[Session]) -> Iterator[Sum]:
    places: set[str] = set()
    databases: set[str] = set()
    for session in sessions:
        if session.file and session.file.in_database:
            databases.add(os.path.dirname(session.file.path))
        elif session.file:
            bases = os.path.dirname(session.path), os.path.splitext(session.path)[0]
            places |= {os.path.join(base, name) for base in bases for name in COPIES}
    for place in sorted(places):
        if sizes := list(_sizes_below(place)):
            yield Sum(place, len(sizes), sum(sizes))
    for database in sorted(databases):
        with suppress(OSError):
            yield Sum(f"{database} (contains copies of values)", 1, os.stat(database).st_size)


def _sizes_below(place: str) -> Iterator[int]:
    for directory, _, names in os.walk(place):
        for name in names:
            with suppress(OSError):
                yield os.lstat(os.path.join(directory, name)).st_size
