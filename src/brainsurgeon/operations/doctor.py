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

from brainsurgeon.errors import BusyError, DamagedError
from brainsurgeon.hosts import openclaw
from brainsurgeon.model.sessions import SessionFile, Unreadable
from brainsurgeon.model.text import counted
from brainsurgeon.operations.left_behind import stubs_of
from brainsurgeon.operations.status import describe_databases, out_of_sight
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.inspect import moved_away
from brainsurgeon.sessions import leases
from brainsurgeon.sessions.discovery import LINK, discover, nothing_recorded
from brainsurgeon.sessions.exchange import TEMPORARY, leases_work
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.reading import RefusedError, carry_on
from brainsurgeon.sessions.row_listing import list_rows
from brainsurgeon.store import database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.operations.left_behind import Stubs
    from brainsurgeon.store import Store

ADVICE = (
    "they lead to no value of this store: if another one cut them, name its directory as state_dir,"
    " or put its backup back; else only a backup of the session has the values"
)
"""What can be done about stubs of ours that no record explains."""
_INTERRUPTED = "the next scan finishes it, or: brainsurgeon doctor --repair"
_WAITS = "the next scan tries again"
_BESIDE = "compare the two, add the lines that the session lacks, and remove that file"
_EXCLUSIVE = (
    "nothing is touched there, unless its root says `exclusive = true`: that nobody else writes "
    "there"
)
_FROM_BACKUP = "put a backup in its place (store restore FILE); they are not put back"
_FOLLOW = "sessions lay there: name the directory that it leads to as a root, or undo the link"
_MOST = 5
Level = Literal["ok", "note", "warning", "error"]


NO_ROOT = "its database lies below no root: name the directory of OpenClaw's agents as one"


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
    findings = [*_state_directory(settings), *_disks(settings)]
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
            advice = database.ADVICE
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
    shut = database.why_not_writable(path)
    if shut:
        yield Finding("error", shut, "make it writable for this user, or set state_dir")
    for there, wanted in ((path, 0o700), (database.database_path(path), 0o600)):
        try:
            status = os.lstat(there)
        except FileNotFoundError:
            if not shut:
                yield Finding("note", f"{there}: not there yet; the first scan makes it")
            return
        except OSError as error:
            yield Finding("error", f"{there}: {error.strerror}", "run as the agent's user")
            return
        if status.st_uid != os.geteuid():
            yield Finding("error", f"{there} belongs to another user", "run as the agent's user")
        elif stat.S_IMODE(status.st_mode) & ~wanted:
            mode = stat.S_IMODE(status.st_mode)
            yield Finding("error", f"{there} is open to others ({mode:04o})",
                          f"chmod {wanted:o} {there}")  # fmt: skip
        else:
            yield Finding("ok", f"{there} is this user's alone")


def _disks(settings: Settings) -> Iterator[Finding]:
    """Name the disks, of the store and of each root, on which there is no room."""
    roots = [os.path.realpath(root.path) for root in settings.root_directories()]
    for where in (settings.state_dir, *roots):
        left = database.free(where)
        if left is not None and left < database.SCARCE:
            level: Level = "error" if left < database.NONE_LEFT else "warning"
            yield Finding(
                level,
                f"{where}: the disk is full, {left:,} bytes are left",
                "make room: values are stored, and files written, before others go",
            )


def _store(store: Store) -> Iterator[Finding]:
    missing = store.dangling()
    if missing:
        lead = counted(missing, "row of the store leads", "rows of the store lead")
        yield Finding("error", f"{lead} to what is not there",
                      _FROM_BACKUP)  # fmt: skip
    broken = total = 0
    for blob, name in store.blobs.named():
        total += 1
        try:
            store.blobs.get(blob, name)
        except DamagedError:
            broken += 1
    if broken:
        yield Finding("error", f"{broken} of {total} stored values are damaged",
                      _FROM_BACKUP)  # fmt: skip
    else:
        all_of_them = counted(total, "stored value has its", "stored values have their")
        yield Finding("ok", f"the database is sound, {all_of_them} digest")
    for rewrite in store.journal.open_rewrites():
        if rewrite.stays:
            advice = _BESIDE if rewrite.ended_at else _WAITS
            yield Finding("warning", f"{rewrite.path}: {rewrite.temporary} stays beside it: "
                                     f"{rewrite.stays}", advice)  # fmt: skip
        else:
            yield Finding("warning", f"{rewrite.path}: a rewrite was interrupted", _INTERRUPTED)


def _roots(settings: Settings) -> Iterator[Finding]:
    """Try a lease in each root, on a temporary file of our own."""
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        try:
            unproven = leases.unproven_at(path)
            if unproven and not root.exclusive:
                yield Finding("warning", f"{path}: leases prove nothing on {unproven}", _EXCLUSIVE)
                continue
            works = leases_work(path)
        except FileNotFoundError:
            level: Level = "error" if root.required else "note"
            yield Finding(level, f"{path}: no such directory", "correct roots in the configuration")
        except OSError as error:
            yield Finding("error", f"{path}: {error.strerror}", "run as the user that owns it")
        else:
            if works or root.exclusive:
                yield Finding("ok", f"{path}: leases {'work' if works else 'are not needed'}")
            else:
                yield Finding("warning", f"{path}: leases do not work here", _EXCLUSIVE)


def _sessions(
    settings: Settings, store: Store | None, check_stop: Callable[[], None], *, repair: bool
) -> Iterator[Finding]:
    """Look for stubs that lead nowhere, for files of ours left behind, for migrated agents."""
    named = {rewrite.temporary for rewrite in store.journal.open_rewrites()} if store else set()
    stubs = unknown = gone = 0
    migrated: set[str] = set()
    left: Counter[tuple[str, str]] = Counter()
    roots = settings.root_directories()
    hidden = out_of_sight(roots)
    yield from _databases(settings)
    recorded = store.sessions.is_below if store else nothing_recorded
    files = discover(roots, wanted=_ours_or_session, recorded=recorded)
    for item in (*files, *list_rows(roots)):
        check_stop()
        if isinstance(item, Unreadable) or TEMPORARY.fullmatch(item.name):
            yield from _no_session(item, named)
            continue
        if item.agent_directory not in migrated and moved_away(item):
            migrated.add(item.agent_directory)
            what = f"{item.agent}: its sessions are in SQLite now"
            unseen = hidden(item.agent_directory)
            yield Finding("note", what, NO_ROOT if unseen else "its files are not written any more")
        found = _looked(settings, item, store, repair=repair)
        if isinstance(found, Finding):
            yield found
            continue
        if found is None:
            continue
        seen, obstacle = found
        stubs, gone = stubs + len(seen.standing), gone + seen.expired
        unknown += seen.unknown + len(seen.orphans)
        if obstacle:
            left[item.agent, obstacle] += 1
        if seen.unknown:
            odd = counted(seen.unknown, "text looks like a stub", "texts look like stubs")
            yield Finding(
                "warning", f"{item.title}: {odd}, unknown to the store",
                "typed or pasted ones are harmless",
            )  # fmt: skip
        if seen.orphans:
            names = ", ".join(entry for entry, _ in seen.orphans[:_MOST])
            more = " …" if len(seen.orphans) > _MOST else ""
            orphans = counted(len(seen.orphans), "stub is an orphan", "stubs are orphans")
            yield Finding(
                "warning", f"{item.title}: {orphans}, in {names}{more}",
                ADVICE,
            )  # fmt: skip
    for (agent, why), number in left.items():
        yield Finding("warning", f"{agent}: {number} of its sessions left alone: {why}")
    level: Level = "ok" if not unknown else "note"
    yield Finding(level, f"{counted(stubs, 'stub stands', 'stubs stand')} in live files, "
                         f"{counted(stubs - gone, 'leads', 'lead')} to a value, "
                         f"{gone} to a tombstone")  # fmt: skip


def _no_session(item: SessionFile | Unreadable, named: set[str]) -> Iterator[Finding]:
    """Name a place that cannot be looked into, and a file of ours that was left behind."""
    if isinstance(item, SessionFile):
        if item.name not in named:
            yield Finding("error", f"{item.path}: a file of ours that no journal names",
                          "it may hold original lines: compare it before removing it")  # fmt: skip
    elif item.failed and os.path.lexists(item.path):  # a missing root has been named
        advice = _FOLLOW if item.why == LINK else "run as the user that owns it"
        yield Finding("error", f"{item.path}: {item.why}", advice)


def _databases(settings: Settings) -> Iterator[Finding]:
    for one in describe_databases(settings):
        if one.left_alone:
            level: Level = "warning" if settings.databases != "off" else "note"
            yield Finding(level, f"{one.path}: {one.left_alone}", "its sessions are only read")
        else:
            made = f"OpenClaw {one.program or 'unknown'}, layout {one.layout}"
            yield Finding("ok", f"{one.path}: a layout that is known ({made})")


def _ours_or_session(name: str) -> bool:
    return openclaw.is_session_name(name) or TEMPORARY.fullmatch(name) is not None


def _looked(
    settings: Settings, file: SessionFile, store: Store | None, *, repair: bool
) -> tuple[Stubs, str | None] | Finding | None:
    """Look into one session: its stubs, and why it is left alone, if so; or why that cannot be."""
    try:
        with open_session(file) as session:
            found, obstacle = stubs_of(settings, store, session), session.obstacle
    except (FileNotFoundError, BlockingIOError, RefusedError, BusyError):
        return None  # it went away, is being replaced by us, or is no session
    except OSError as error:
        return Finding("error", f"{file.path}: {error.strerror}", "run as the user that owns it")
    if repair and store and found.standing and found.session_id is not None:
        with store.transaction():
            store.placements.add(found.session_id, found.standing)
    return found, obstacle
