"""Check the session files and the store, and repair what is safe to repair.

Placeholders that the store does not know and temporary files that no rewrite names are reported
with advice and never changed.
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
from brainsurgeon.operations.left_behind import placeholders_of
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
    from brainsurgeon.operations.left_behind import Placeholders
    from brainsurgeon.store import Store

# For placeholders that no record explains.
ADVICE = (
    "they lead to no value of this store: if another one cut them, name its directory as state_dir,"
    " or put its backup back; else only a backup of the session has the values"
)
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
    """The result of one check, with advice."""

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
    """Check everything; with `repair` (needs a writable store) also repair what is safe."""
    findings = [*_state_directory(settings), *_disks(settings)]
    if not settings.enabled:
        findings.append(Finding(
            "note", "nothing is extracted: enabled = false",
            "set enabled = true in the configuration, or leave out the key",
        ))  # fmt: skip
    if store is not None:
        if damage := store.damage():  # no repairs, and no check of the values of placeholders
            return [*findings, Finding("error", damage, database.ADVICE), *_roots(settings)]
        if repair:
            findings += [
                Finding("note", f"recovered {rewrite.path}: {rewrite.what}")
                for rewrite in recover.recover(store)
            ]
        findings += _store(store)
    findings += _roots(settings)
    findings += _sessions(settings, store, check_stop, repair=repair)
    return findings


def _state_directory(settings: Settings) -> Iterator[Finding]:
    directory = settings.state_dir
    unwritable = database.why_not_writable(directory)
    if unwritable:
        yield Finding("error", unwritable, "make it writable for this user, or set state_dir")
    for path, wanted in ((directory, 0o700), (database.database_path(directory), 0o600)):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            if not unwritable:
                yield Finding("note", f"{path}: not there yet; the first scan makes it")
            return
        except OSError as error:
            yield Finding("error", f"{path}: {error.strerror}", "run as the agent's user")
            return
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != os.geteuid():
            yield Finding("error", f"{path} belongs to another user", "run as the agent's user")
        elif mode & ~wanted:
            yield Finding("error", f"{path} is open to others ({mode:04o})",
                          f"chmod {wanted:o} {path}")  # fmt: skip
        else:
            yield Finding("ok", f"{path} is this user's alone")


def _disks(settings: Settings) -> Iterator[Finding]:
    """Check the free space on the disks of the store and of each root."""
    roots = [os.path.realpath(root.path) for root in settings.root_directories()]
    for path in (settings.state_dir, *roots):
        left = database.free(path)
        if left is not None and left < database.SCARCE:
            yield Finding(
                "error" if left < database.NONE_LEFT else "warning",
                f"{path}: the disk is full, {left:,} bytes are left",
                "make room: values are stored, and files written, before others go",
            )


def _store(store: Store) -> Iterator[Finding]:
    missing = store.dangling()
    if missing:
        lead = counted(missing, "row of the store leads", "rows of the store lead")
        yield Finding("error", f"{lead} to what is not there", _FROM_BACKUP)
    broken = total = 0
    for blob, name in store.blobs.named():
        total += 1
        try:
            store.blobs.get(blob, name)
        except DamagedError:
            broken += 1
    if broken:
        yield Finding("error", f"{broken} of {total} stored values are damaged", _FROM_BACKUP)
    else:
        values = counted(total, "stored value has its", "stored values have their")
        yield Finding("ok", f"the database is sound, {values} digest")
    for rewrite in store.journal.open_rewrites():
        if rewrite.stays:
            advice = _BESIDE if rewrite.ended_at else _WAITS
            yield Finding("warning", f"{rewrite.path}: {rewrite.temporary} stays beside it: "
                                     f"{rewrite.stays}", advice)  # fmt: skip
        else:
            yield Finding("warning", f"{rewrite.path}: a rewrite was interrupted", _INTERRUPTED)


def _roots(settings: Settings) -> Iterator[Finding]:
    """Test in each root whether leases work, on a temporary file."""
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
    """Look for placeholders without a value, leftover temporary files and migrated agents."""
    named = {rewrite.temporary for rewrite in store.journal.open_rewrites()} if store else set()
    placeholders = unknown = gone = 0
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
        result = _looked(settings, item, store, repair=repair)
        if isinstance(result, Finding):
            yield result
            continue
        if result is None:
            continue
        seen, obstacle = result
        placeholders += len(seen.standing)
        gone += seen.expired
        unknown += seen.unknown + len(seen.orphans)
        if obstacle:
            left[item.agent, obstacle] += 1
        if seen.unknown:
            odd = counted(
                seen.unknown, "text looks like a placeholder", "texts look like placeholders"
            )
            yield Finding(
                "warning", f"{item.title}: {odd}, unknown to the store",
                "typed or pasted ones are harmless",
            )  # fmt: skip
        if seen.orphans:
            names = ", ".join(entry for entry, _ in seen.orphans[:_MOST])
            more = " …" if len(seen.orphans) > _MOST else ""
            orphans = counted(
                len(seen.orphans), "placeholder is an orphan", "placeholders are orphans"
            )
            yield Finding(
                "warning", f"{item.title}: {orphans}, in {names}{more}", ADVICE,
            )  # fmt: skip
    for (agent, why), number in left.items():
        yield Finding("warning", f"{agent}: {number} of its sessions left alone: {why}")
    level: Level = "ok" if not unknown else "note"
    standing = counted(placeholders, "placeholder stands", "placeholders stand")
    yield Finding(level, f"{standing} in live files, "
                         f"{counted(placeholders - gone, 'leads', 'lead')} to a value, "
                         f"{gone} to a tombstone")  # fmt: skip


def _no_session(item: SessionFile | Unreadable, named: set[str]) -> Iterator[Finding]:
    """Report an unreadable place or a leftover temporary file."""
    if isinstance(item, SessionFile):
        if item.name not in named:
            yield Finding("error", f"{item.path}: a file of ours that no journal names",
                          "it may hold original lines: compare it before removing it")  # fmt: skip
    elif item.failed and os.path.lexists(item.path):  # `_roots` reports a missing root
        advice = _FOLLOW if item.why == LINK else "run as the user that owns it"
        yield Finding("error", f"{item.path}: {item.why}", advice)


def _databases(settings: Settings) -> Iterator[Finding]:
    for layout in describe_databases(settings):
        if layout.left_alone:
            level: Level = "warning" if settings.databases != "off" else "note"
            yield Finding(
                level, f"{layout.path}: {layout.left_alone}", "its sessions are only read"
            )
        else:
            made = f"OpenClaw {layout.program or 'unknown'}, layout {layout.layout}"
            yield Finding("ok", f"{layout.path}: a layout that is known ({made})")


def _ours_or_session(name: str) -> bool:
    return openclaw.is_session_name(name) or TEMPORARY.fullmatch(name) is not None


def _looked(
    settings: Settings, file: SessionFile, store: Store | None, *, repair: bool
) -> tuple[Placeholders, str | None] | Finding | None:
    """Return the placeholders of a session and why it is never changed, if so.

    With `repair`, record the placeholders in the store.
    """
    try:
        with open_session(file) as session:
            placeholders, obstacle = placeholders_of(settings, store, session), session.obstacle
    except (FileNotFoundError, BlockingIOError, RefusedError, BusyError):
        return None  # it was removed, is being replaced by brainsurgeon, or is no session
    except OSError as error:
        return Finding("error", f"{file.path}: {error.strerror}", "run as the user that owns it")
    if repair and store and placeholders.standing and placeholders.session_id is not None:
        with store.transaction():
            store.placements.add(placeholders.session_id, placeholders.standing)
    return placeholders, obstacle
