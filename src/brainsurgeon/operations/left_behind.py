"""Find the placeholders in session files and agent archives, and places that cannot be read."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.formats.base import parse
from brainsurgeon.formats.openclaw import OpenClawRows
from brainsurgeon.hosts import openclaw
from brainsurgeon.lookup import catalogue
from brainsurgeon.lookup.sessions import walk
from brainsurgeon.model.entries import PLACEHOLDER_PREFIX, placeholder_in, value_at
from brainsurgeon.model.records import Request
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.operations.status import databases_below
from brainsurgeon.planning.matching import ANOTHERS, NOBODYS, SEVERAL
from brainsurgeon.planning.plan import plan
from brainsurgeon.rewrite.inspect import records_of
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.placeholders import (
    archived,
    entries_with_placeholders,
    sessions_and_archives,
    with_own_placeholders,
)
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.sessions.opening import AnyOpen
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Placeholders:
    """The placeholders of one session; `session_id` is its row, if it has one.

    `standing` are the ids of their extractions, `expired` the number of these that are tombstones.
    `orphans` are the entries with placeholders that no record can restore, each with the reason.
    `unknown` counts the texts that only look like placeholders.
    """

    standing: tuple[int, ...]
    expired: int
    orphans: tuple[tuple[str, str], ...]
    unknown: int
    session_id: int | None = None


def placeholders_of(settings: Settings, store: Store | None, session: AnyOpen) -> Placeholders:
    """Return the placeholders of a session, from the plan of a restore of all of them."""
    form = session.format
    survey = form.survey(session.lines, 0)
    everything = Request(None, 0, None, "restore", None, None, True, 0.0, None)
    record = catalogue.find(store, session) if store else None
    records = records_of(settings, store, session, record, 0.0, (everything,))
    rules = settings.decision_rules()
    planned = plan(session.lines, form, rules, records, 0.0, survey, cut=False)
    gone = {
        value.id: value.blob_id is None
        for value in records.extractions if value.replacement is None
    }  # fmt: skip
    standing = tuple(ident for ident in planned.sighted if ident in gone)
    orphans = tuple(
        (entry, why) for entry, why in planned.left if why in (NOBODYS, ANOTHERS, SEVERAL)
    )
    texts = sum(1 for _ in _texts(session))
    return Placeholders(
        standing, sum(gone[ident] for ident in standing), orphans,
        texts - len(standing) - len(orphans), records.own,
    )  # fmt: skip


def _texts(session: AnyOpen) -> Iterator[str]:
    """Yield the values of entries that have the form of a placeholder."""
    for line in session.lines:
        entry = parse(line.raw) if line.raw and PLACEHOLDER_PREFIX in line.raw else None
        for part in session.format.parts(entry, NO_SURVEY, None) if entry else ():
            text = placeholder_in(value_at(entry, part.path)) if entry else None
            if text is not None:
                yield text


ARCHIVED = "put away by its agent; archives are not written"


@dataclass(frozen=True, slots=True)
class PlaceholdersLeft:
    """The number of placeholders in one session, `led` with and `orphans` without a record.

    `sure` is false if the place could not be read; `note` is then the reason. `entries` are the
    ids of the entries with placeholders, set for archives only.
    """

    session: str
    led: int
    orphans: int
    note: str = ""
    sure: bool = True
    entries: tuple[str, ...] = ()

    @property
    def placeholders(self) -> int:
        return self.led + self.orphans


def placeholders_left(settings: Settings, store: Store | None) -> Iterator[PlaceholdersLeft]:
    """Yield the sessions with placeholders, and the places that cannot be read."""
    seen = walk(settings, store, beyond=True)
    for problem in seen.problems:
        if problem.failed:
            yield _unsure(problem.path, problem.why)
    for session in seen.sessions:
        placeholders = _of(settings, store, session)
        if placeholders and (placeholders.placeholders or not placeholders.sure):
            yield placeholders


def placeholders_put_away(settings: Settings) -> Iterator[PlaceholdersLeft]:
    """Yield the agents' archives below the roots that have placeholders or cannot be read."""
    for file in sessions_and_archives(settings.root_directories()):
        if openclaw.is_session_name(file.name):
            continue
        try:
            yield from _put_away(file.path, entries_with_placeholders(file))
        except RefusedError:
            continue
        except OSError as why:
            yield _unsure(file.path, why.strerror or type(why).__name__)
    for database in databases_below(settings.root_directories()):
        try:
            for session, lines in archived(database):
                entries = with_own_placeholders(lines, OpenClawRows())
                yield from _put_away(f"{database.path}/{session}", entries)
        except (OSError, RefusedError, BusyError) as why:
            yield _unsure(database.path, f"its archives cannot be read ({why})")


def _put_away(archive: str, entries: Iterable[str]) -> Iterator[PlaceholdersLeft]:
    if ids := tuple(entries):
        yield PlaceholdersLeft(archive, 0, len(ids), ARCHIVED, entries=ids)


def _of(settings: Settings, store: Store | None, session: Session) -> PlaceholdersLeft | None:
    if session.file is None:
        return _gone(store, session)
    try:
        with open_session(session.file) as opened:
            placeholders = placeholders_of(settings, store, opened)
    except (FileNotFoundError, RefusedError):
        return None  # it was removed, or is no session
    except (BlockingIOError, BusyError):
        return _unsure(session.title, "it is being written just now")
    except OSError as why:
        return _unsure(session.title, why.strerror or type(why).__name__)
    return PlaceholdersLeft(session.title, len(placeholders.standing), len(placeholders.orphans))


def _gone(store: Store | None, session: Session) -> PlaceholdersLeft | None:
    """Report a missing session whose root cannot be read: its file may still exist."""
    record = session.record
    if record is None or store is None or not store.placements.of_session(record.id):
        return None
    try:
        os.stat(record.root)
    except OSError as why:
        return _unsure(session.title, f"{record.root} cannot be looked into ({why.strerror})")
    return None


def _unsure(session: str, why: str) -> PlaceholdersLeft:
    return PlaceholdersLeft(session, 0, 0, why, sure=False)
