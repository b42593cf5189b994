"""Check the promises on the live files and the store; repair what is safe to repair.

Nothing is guessed: a stub that the store does not know, or a temporary file that no rewrite
names, is reported with what to do, and left.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from brainsurgeon.errors import DamagedError
from brainsurgeon.formats.base import parse
from brainsurgeon.hosts import openclaw
from brainsurgeon.model.entries import STUB_PREFIX, stub_in, value_at
from brainsurgeon.model.sessions import NO_SURVEY, SessionFile, Unreadable
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import filesystems
from brainsurgeon.sessions.discover import discover
from brainsurgeon.sessions.reading import RefusedError, carry_on, open_session
from brainsurgeon.sessions.temporary import TEMPORARY, leases_work
from brainsurgeon.store.opening import database_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, KeyPath
    from brainsurgeon.model.records import Extraction
    from brainsurgeon.sessions.reading import OpenSession
    from brainsurgeon.store import Store

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it stands, and what to do about it."""

    level: Level
    what: str
    advice: str = ""


def doctor(
    settings: Settings,
    store: Store | None,
    *,
    repair: bool = False,
    check_stop: Callable[[], None] = carry_on,
) -> list[Finding]:
    """Look at everything; with `repair` (the store open for writing) finish what is safe."""
    findings = list(_state_directory(settings))
    if not settings.enabled:
        findings.append(
            Finding(
                "note",
                "nothing is extracted: enabled = false",
                "set enabled = true in the configuration, or leave out the key",
            )
        )
    if store is not None:
        if damage := store.damage():  # nothing is written to it, and where stubs lead is not told
            advice = "keep a copy of it, then restore it from a backup"
            return [*findings, Finding("error", damage, advice), *_roots(settings)]
        if repair:
            findings += [
                Finding("note", f"recovered {one.path}: {one.what}")
                for one in recover.recover(store)
            ]
        findings += _store(store)
    findings += _roots(settings)
    findings += _sessions(settings, store, check_stop, repair=repair)
    return findings


def _state_directory(settings: Settings) -> Iterator[Finding]:
    path = settings.state_dir
    for place, wanted in ((path, 0o700), (database_path(path), 0o600)):
        try:
            status = os.lstat(place)
        except FileNotFoundError:
            yield Finding("note", f"{place}: not there yet; the first scan makes it")
            return
        if status.st_uid != os.geteuid():
            yield Finding("error", f"{place} belongs to another user", "run as the agent's user")
        elif stat.S_IMODE(status.st_mode) & ~wanted:
            mode = stat.S_IMODE(status.st_mode)
            yield Finding("error", f"{place} is open to others ({mode:04o})",
                          f"chmod {wanted:o} {place}")  # fmt: skip
        else:
            yield Finding("ok", f"{place} is this user's alone")


def _store(store: Store) -> Iterator[Finding]:
    missing = store.dangling()
    if missing:
        yield Finding("error", f"{missing} rows of the store lead to what is not there",
                      "restore the database from a backup; they are not put back")  # fmt: skip
    broken = total = 0
    for blob, name in store.blobs.named():
        total += 1
        try:
            store.blobs.get(blob, name)
        except DamagedError:
            broken += 1
    if broken:
        yield Finding("error", f"{broken} of {total} stored values are damaged",
                      "restore the database from a backup; they are not put back")  # fmt: skip
    else:
        yield Finding("ok", f"the database is sound, all {total} stored values have their digest")
    for rewrite in store.journal.open_rewrites():
        yield Finding("warning", f"{rewrite.path}: a rewrite was interrupted",
                      "the next scan finishes it, or: brainsurgeon doctor --repair")  # fmt: skip


def _roots(settings: Settings) -> Iterator[Finding]:
    """Try a lease in each root, on a temporary file of our own."""
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        try:
            unproven = filesystems.unproven_at(path)
            if unproven and not root.exclusive:
                yield Finding("warning", f"{path}: leases prove nothing on {unproven}",
                              "nothing is touched there, unless its root says `exclusive = true`: "
                              "that nobody else writes there")  # fmt: skip
                continue
            works = leases_work(path)
        except FileNotFoundError:
            level: Level = "error" if root.required else "note"
            yield Finding(level, f"{path}: no such directory", "correct roots in the configuration")
        except OSError as error:
            yield Finding("error", f"{path}: {error.strerror}", "run as the user that owns it")
        else:
            if works:
                yield Finding("ok", f"{path}: leases work")
            else:
                yield Finding("warning", f"{path}: leases do not work here",
                              "only sessions quiet for a day are touched")  # fmt: skip


def _sessions(
    settings: Settings, store: Store | None, check_stop: Callable[[], None], *, repair: bool
) -> Iterator[Finding]:
    """Look for stubs that lead nowhere, for files of ours left behind, for migrated agents."""
    named = {rewrite.temporary for rewrite in store.journal.open_rewrites()} if store else set()
    stubs = unknown = gone = 0
    migrated: set[str] = set()
    left: Counter[tuple[str, str]] = Counter()
    for item in discover(settings.root_directories(), wanted=_ours_or_session):
        check_stop()
        if isinstance(item, Unreadable) or TEMPORARY.fullmatch(item.name):
            yield from _no_session(item, named)
            continue
        if item.agent_directory not in migrated and openclaw.migrated(item.agent_directory):
            migrated.add(item.agent_directory)
            yield Finding("note", f"{item.agent}: its sessions are in SQLite now",
                          "its files are not written any more")  # fmt: skip
        found = _looked(item, store, repair=repair)
        if isinstance(found, Finding):
            yield found
            continue
        stubs, gone = stubs + found.known, gone + found.gone
        if found.obstacle:
            left[item.agent, found.obstacle] += 1
        if found.unknown:
            unknown += found.unknown
            yield Finding(
                "warning",
                f"{item.title}: {found.unknown} texts look like stubs, unknown to the store",
                "typed or pasted ones are harmless; else the store is not the one that cut them",
            )  # fmt: skip
    for (agent, why), number in left.items():
        yield Finding("warning", f"{agent}: {number} of its sessions left alone: {why}")
    level: Level = "ok" if not unknown else "note"
    yield Finding(level, f"{stubs} stubs stand in live files, {stubs - gone} lead to a value, "
                         f"{gone} to a tombstone")  # fmt: skip


def _no_session(item: SessionFile | Unreadable, named: set[str]) -> Iterator[Finding]:
    """Name a place that cannot be looked into, and a file of ours that was left behind."""
    if isinstance(item, SessionFile):
        if item.name not in named:
            yield Finding("error", f"{item.path}: a file of ours that no journal names",
                          "it may hold original lines: compare it before removing it")  # fmt: skip
    elif item.failed and os.path.lexists(item.path):  # a missing root has been named
        yield Finding("error", f"{item.path}: {item.why}", "run as the user that owns it")


def _ours_or_session(name: str) -> bool:
    return openclaw.is_session_name(name) or TEMPORARY.fullmatch(name) is not None


@dataclass(slots=True)
class _Look:
    """How many stubs of one file are known, expired, and unknown; why it is left alone, if so."""

    obstacle: str | None
    known: int = 0
    gone: int = 0
    unknown: int = 0


def _looked(file: SessionFile, store: Store | None, *, repair: bool) -> _Look | Finding:
    """Look into one session, or say why that cannot be."""
    try:
        return _look(file, store, repair=repair)
    except (FileNotFoundError, BlockingIOError, RefusedError):
        return _Look(None)  # it went away, is being replaced by us, or is no session
    except OSError as error:
        return Finding("error", f"{file.path}: {error.strerror}", "run as the user that owns it")


def _look(file: SessionFile, store: Store | None, *, repair: bool) -> _Look:
    """Look into one session; raise RefusedError or OSError where that cannot be."""
    known = _recorded(file, store)
    sighted: list[int] = []
    with open_session(file) as session:
        form = session.format
        found = _Look(session.obstacle)
        for stub, place in _stubs_of(session, form):
            here = [one for one in known.get(stub, ()) if _stands_at(one, place)]
            if not here:
                found.unknown += 1
                continue
            found.known += 1
            found.gone += here[-1].blob_id is None
            sighted.append(here[-1].id)
    if repair and store and sighted:
        with store.transaction():
            store.expiry.stand_again(sighted)
    return found


def _recorded(file: SessionFile, store: Store | None) -> dict[str, list[Extraction]]:
    """Give what was cut out of a session and those it was forked from, by the text of the stub."""
    record = store.sessions.at(file.path) if store else None
    known: dict[str, list[Extraction]] = {}
    if store and record:
        for one in store.extractions.of_sessions(store.sessions.family(record)):
            known.setdefault(one.stub, []).append(one)
    return known


def _stubs_of(session: OpenSession, form: Format) -> Iterator[tuple[str, KeyPath]]:
    for line in session.lines:
        if line.raw is None or STUB_PREFIX not in line.raw:
            continue
        entry = parse(line.raw)
        if entry is not None:
            yield from _stubs(entry, form)


def _stands_at(one: Extraction, place: KeyPath) -> bool:
    return place == ((*one.path, "text") if one.block else one.path)


def _stubs(entry: Entry, form: Format) -> Iterator[tuple[str, KeyPath]]:
    """Yield the whole values of an entry that have the shape of a stub, with their place."""
    for part in form.parts(entry, NO_SURVEY, None):
        stub = stub_in(value_at(entry, part.path))
        if stub is not None:
            yield stub, part.path
