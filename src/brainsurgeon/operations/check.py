"""Check the promises on the live files and the store; repair what is safe to repair.

Nothing is guessed: a stub that the store does not know, or a temporary file that no journal row
names, is reported with what to do, and left.
"""

from __future__ import annotations

import os
import secrets
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from brainsurgeon.errors import Damaged, StoreUnusable
from brainsurgeon.formats.base import parse, stub_in, value_at
from brainsurgeon.model import Found, Survey, Unreadable
from brainsurgeon.operations import look, recover
from brainsurgeon.sessions import leases, quiet
from brainsurgeon.sessions.discover import TEMPORARY, discover, is_session_name
from brainsurgeon.sessions.reading import Refused, carry_on, open_session
from brainsurgeon.store import blobs, extractions, journal, retaining
from brainsurgeon.store.opening import database_path, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model import Entry, KeyPath
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import Extraction

Level = Literal["ok", "note", "warning", "error"]
_NOTHING = Survey(0, {}, None)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: how it stands, and what to do about it."""

    level: Level
    what: str
    advice: str = ""


def check(
    settings: Settings,
    store: Store | None,
    *,
    repair: bool = False,
    check_stop: Callable[[], None] = carry_on,
) -> list[Finding]:
    """Look at everything; with `repair` (the store open for writing) finish what is safe."""
    findings = list(_state_directory(settings))
    if store is not None:
        if damage := _damage(store):  # nothing is written to it, and where stubs lead is not told
            return [*findings, damage, *_roots(settings)]
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


def _damage(store: Store) -> Finding | None:
    try:
        with translated(store.directory):
            problems = [row[0] for row in store.connection.execute("PRAGMA quick_check(5)")]
    except StoreUnusable:
        problems = []
    if problems == ["ok"]:
        return None
    return Finding("error", "the database is damaged",
                   "keep a copy of it, then restore it from a backup")  # fmt: skip


def _store(store: Store) -> Iterator[Finding]:
    missing = len(store.connection.execute("PRAGMA foreign_key_check").fetchall())
    if missing:
        yield Finding("error", f"{missing} rows of the store lead to what is not there",
                      "restore the database from a backup; they are not put back")  # fmt: skip
    broken = total = 0
    for blob, name in blobs.named(store.connection):
        total += 1
        try:
            blobs.get(store.connection, blob, name)
        except Damaged:
            broken += 1
    if broken:
        yield Finding("error", f"{broken} of {total} stored values are damaged",
                      "restore the database from a backup; they are not put back")  # fmt: skip
    else:
        yield Finding("ok", f"the database is sound, all {total} stored values have their digest")
    for row in journal.open_rows(store.connection):
        yield Finding("warning", f"{row.directory}/{row.name}: a rewrite was interrupted",
                      "the next scan finishes it, or: brainsurgeon doctor --repair")  # fmt: skip


def _roots(settings: Settings) -> Iterator[Finding]:
    """Try a lease in each root, on a temporary file of our own."""
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        try:
            works = _lease_works(path)
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


def _lease_works(directory: str) -> bool:
    name = os.path.join(directory, f".brainsurgeon-{secrets.token_hex(8)}.tmp")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(name, flags, 0o600)
    try:
        return leases.take(descriptor)
    except leases.LeaseUnsupportedError:
        return False
    finally:
        os.close(descriptor)
        os.unlink(name)


def _sessions(
    settings: Settings, store: Store | None, check_stop: Callable[[], None], *, repair: bool
) -> Iterator[Finding]:
    """Look for stubs that lead nowhere, for files of ours left behind, for migrated agents."""
    named = {row.temporary for row in journal.open_rows(store.connection)} if store else set()
    stubs = unknown = gone = 0
    migrated: set[str] = set()
    for item in discover(settings.root_directories(), wanted=_ours_or_session):
        check_stop()
        if isinstance(item, Unreadable):
            if item.failed and os.path.lexists(item.path):  # a missing root has been named
                yield Finding("error", f"{item.path}: {item.why}", "run as the user that owns it")
            continue
        if TEMPORARY.fullmatch(item.name):
            if item.name not in named:
                yield Finding(
                    "error", f"{item.path}: a file of ours that no journal names",
                    "it may hold original lines: compare it before removing it",
                )  # fmt: skip
            continue
        if item.agent_directory not in migrated and quiet.migrated(item.agent_directory):
            migrated.add(item.agent_directory)
            yield Finding("note", f"{item.agent}: its sessions are in SQLite now",
                          "its files are not written any more")  # fmt: skip
        found = _look(item, store, repair=repair)
        stubs, gone = stubs + found[0], gone + found[1]
        if found[2]:
            unknown += found[2]
            yield Finding(
                "warning", f"{item.title}: {found[2]} texts look like stubs, unknown to the store",
                "typed or pasted ones are harmless; else the store is not the one that cut them",
            )  # fmt: skip
    level: Level = "ok" if not unknown else "note"
    yield Finding(level, f"{stubs} stubs stand in live files, {stubs - gone} lead to a value, "
                         f"{gone} to a tombstone")  # fmt: skip


def _ours_or_session(name: str) -> bool:
    return is_session_name(name) or TEMPORARY.fullmatch(name) is not None


def _look(found: Found, store: Store | None, *, repair: bool) -> tuple[int, int, int]:
    """Count the stubs of one file that are known, expired, and unknown."""
    row = extractions.session_at(store.connection, found.path) if store else None
    known: dict[str, list[Extraction]] = {}
    if store and row:
        for one in extractions.of_sessions(
            store.connection, extractions.family(store.connection, row)
        ):
            known.setdefault(one.stub, []).append(one)
    counts = [0, 0, 0]
    sighted: list[int] = []
    try:
        with open_session(found) as session:
            form = look.recognise(session)
            for line in session.lines:
                if line.raw is None or b"[[extracted-" not in line.raw:
                    continue
                entry = parse(line.raw)
                for stub, place in _stubs(entry, form) if entry else ():
                    rows = [one for one in known.get(stub, ()) if _stands_at(one, place)]
                    if not rows:
                        counts[2] += 1
                        continue
                    counts[0] += 1
                    counts[1] += rows[-1].blob_id is None
                    sighted.append(rows[-1].id)
    except (OSError, Refused):
        return 0, 0, 0
    if repair and store and sighted:
        with store.transaction() as connection:
            retaining.stand_again(connection, sighted)
    return counts[0], counts[1], counts[2]


def _stands_at(one: Extraction, place: KeyPath) -> bool:
    return place == ((*one.path, "text") if one.block else one.path)


def _stubs(entry: Entry, form: Format) -> Iterator[tuple[str, KeyPath]]:
    """Yield the whole values of an entry that have the shape of a stub, with their place."""
    for part in form.parts(entry, _NOTHING, -1):
        stub = stub_in(value_at(entry, part.path))
        if stub is not None:
            yield stub, part.path
