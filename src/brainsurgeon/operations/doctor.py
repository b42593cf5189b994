"""Check the session files, the databases and the store. On request, make safe repairs."""

import errno
import os
import stat
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from brainsurgeon import agents, interruption
from brainsurgeon.config import RootSettings, Settings
from brainsurgeon.errors import BusyError
from brainsurgeon.files import leases
from brainsurgeon.files.exchange import TEMPORARY, leases_work
from brainsurgeon.files.reading import OpenFile, RefusedError
from brainsurgeon.files.sqlite import AgentDatabaseError
from brainsurgeon.lookup.opening import missing_store
from brainsurgeon.lookup.sessions import EMPTY, Session, find_record, record_of, walk, why_hidden
from brainsurgeon.model.entries import KeyPath
from brainsurgeon.model.reports import Finding, Level, LostValues, PlaceholdersLeft, Trouble
from brainsurgeon.model.session_files import SessionFile, Unreadable
from brainsurgeon.model.text import counted
from brainsurgeon.operations.retention import expiring
from brainsurgeon.operations.status import describe_databases
from brainsurgeon.operations.troubles import (
    LINKED,
    doubtful_roots,
    knows,
    of_surroundings,
    troubles,
)
from brainsurgeon.planning.matching import (
    EXPIRED,
    NO_RECORD,
    OTHER_AGENT,
    OTHER_ENTRY,
    SEVERAL,
)
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.inspect import examine_open, excluded, plan_of_everything
from brainsurgeon.sessions import placeholders
from brainsurgeon.sessions.discovery import (
    LINK,
    AnyOpen,
    discover,
    links_below,
    open_session,
)
from brainsurgeon.sessions.row_listing import databases_below, list_rows, out_of_sight
from brainsurgeon.store import Store, database

ARCHIVED = "archived by its agent: `restore --all` restores it if it is an uncompressed file"
ADVICE = (
    "no record in this store fits; if another store has the values, set state_dir to its directory"
    " or restore its backup; otherwise, only a backup of the session has the values"
)
_ORPHANED = (NO_RECORD, EXPIRED, OTHER_AGENT, OTHER_ENTRY, SEVERAL)
_EXCLUSIVE = "no session is changed there unless the root has `exclusive = true` (no other writers)"
_FROM_BACKUP = "restore a backup of the store (store restore FILE), or these values are lost"
_EXPIRED = (
    "an older backup of the store (store restore FILE) or a backup of the session may have them"
)
_FOLLOW = "sessions were there: configure the target of the link as a root, or remove the link"
_REFUSED = "nothing in it is restored until its format is recognised again: mend its description"
_OWNER = "run as its owner; if you are the owner, chmod u+rwX it"
_REMEDY = "remove the cause, or run as a user who may do this; `exclude` leaves sessions out"
_AGENT = "run as the agent's user"
_DAMAGED = "restore it from a backup of its agent; other sessions in the database are handled"
_REPORT = "it contains no sessions: report it, so that this layout becomes known"
_UNUSABLE = (
    "while the file is new, its sessions are left alone: their agent may be at work; later, their"
    " locks and last turns decide"
)
_ODD = "correct or remove it while OpenClaw does not run; the other entries count"
_MOST = 5  # names in a list
NO_SESSIONS = "no agent that is known keeps sessions here: see deploy/docs/describe.md for others"
NO_ROOT = "its database is below no root: configure the directory of OpenClaw's agents as a root"


class SessionPlaceholders(Struct, frozen=True):
    """What `doctor` finds about the placeholders in one session."""

    matched: tuple[int, ...]  # ids of extractions, one per placeholder with a matching record
    expired: int  # matched placeholders whose value expired
    orphans: tuple[str, ...]  # ids of entries, one per placeholder without exactly one record
    # Ids of entries, one per placeholder or archive that has a record but no stored value, and one
    # per orphan that names its entry.
    expired_in: tuple[str, ...]
    nowhere: tuple[str, ...]
    unknown: int  # texts that only look like placeholders
    # Unexpired values without a placeholder: emptied thinking, shortened calls, archived turns.
    unmarked: frozenset[tuple[str, KeyPath, bytes]]  # entry id, path and digest
    session_id: int | None


def doctor(settings: Settings, store: Store, *, repair: bool = False) -> list[Finding]:
    """Run the checks. `repair` needs a writable store."""
    findings = list(_state_directory(settings))
    if store.exists:
        if damage := store.damage():  # repairs and checks of placeholders need a sound store
            findings += map(_finding, of_surroundings(settings))
            return [*findings, Finding("error", damage, database.ADVICE), *_roots(settings, None)]
        if repair:
            findings += [
                Finding("note", f"recovered {rewrite.path}: {rewrite.what}")
                for rewrite in recover.recover(store)
            ]
        findings += _store(store)
    findings += _troubles(settings, store, time.time())
    findings += _roots(settings, store)
    findings += _sessions(settings, store, repair=repair)
    return list(dict.fromkeys(findings))  # several checks find the same unreadable root


def _troubles(settings: Settings, store: Store, now: float) -> Iterator[Finding]:
    """Yield the troubles of `status --check`, except those that other checks report in detail."""
    soon = expiring(settings, store, now)
    for trouble in troubles(settings, store, now, (), LostValues(0), soon):
        if trouble.kind not in ("roots", "damaged_values"):
            yield _finding(trouble)


def _finding(trouble: Trouble) -> Finding:
    return Finding("note" if trouble.harmless else "error", trouble.what, trouble.advice)


def _closed_store(path: str) -> Iterator[Finding]:
    if os.path.exists(path) and not database.has_access(path, os.W_OK):
        yield Finding("error", f"{path} cannot be written by this user", f"chmod 600 {path}")


def _state_directory(settings: Settings) -> Iterator[Finding]:
    directory, missing = settings.state_dir, missing_store(settings)
    unwritable = database.why_not_writable(directory)
    if unwritable:
        yield Finding("error", unwritable, "make it writable for this user, or set state_dir")
    yield from _closed_store(database.database_path(directory))
    for path, wanted in ((directory, 0o700), (database.database_path(directory), 0o600)):
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            if missing:
                yield Finding("error", missing, database.NO_STORE)
            elif not unwritable:
                yield Finding("note", f"{path}: does not exist yet; the first scan creates it")
            return
        except OSError as error:
            yield Finding("error", f"{path}: {error.strerror}", _AGENT)
            return
        if stat.S_ISLNK(status.st_mode):
            advice = "set state_dir to" if path == directory else "replace the link by its target,"
            real = os.path.realpath(path)
            yield Finding("error", f"{path} is a symbolic link", f"{advice} {real}")
            return
        mode = stat.S_IMODE(status.st_mode)
        if status.st_uid != os.geteuid():
            yield Finding("error", f"{path} belongs to another user", _AGENT)
        elif mode & ~wanted:
            yield Finding("error", f"{path}: other users have access ({mode:04o})",
                          f"chmod {wanted:o} {path}")  # fmt: skip
        else:
            yield Finding("ok", f"{path}: only this user has access")


def _store(store: Store) -> Iterator[Finding]:
    missing = store.count_dangling()
    if missing:
        lead = counted(missing, "record of the store refers", "records of the store refer")
        yield Finding("error", f"{lead} to a missing record", _FROM_BACKUP)
    total, damaged = store.blobs.check_all()
    if damaged:
        yield Finding("error", f"{len(damaged)} of {total} stored values are damaged", _FROM_BACKUP)
    else:
        values = counted(total, "stored value matches its", "stored values match their")
        yield Finding("ok", f"the database is sound, {values} digest")


def _roots(settings: RootSettings, store: Store | None) -> Iterator[Finding]:
    for link, real in links_below(settings.root_directories()):
        if not (store and store.sessions.any_at_or_below(link)):  # else it is reported below
            advice = f"to include its sessions, add {real} to the roots"
            yield Finding("warning", f"{link}: {LINK}", advice)
    doubts = {doubt.root: doubt.reason for doubt in doubtful_roots(settings)}
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        if (why := doubts.get(path)) in (EMPTY, LINKED):
            is_new = why == EMPTY and store and not knows(store, path)
            yield Finding("note" if is_new else "error", f"{path}: {why}")
            continue
        try:
            unproven = leases.unproven_at(path)
            if unproven and not root.exclusive:
                yield Finding("warning", f"{path}: leases prove nothing on {unproven}", _EXCLUSIVE)
                continue
            works = leases_work(path)
        except FileNotFoundError:
            level: Level = "error" if root.required else "note"
            advice = "correct roots in the configuration" if settings.roots else NO_SESSIONS
            yield Finding(level, f"{path}: no such directory", advice)
        except OSError as error:
            yield Finding("error", f"{path}: {error.strerror}", _OWNER)
        else:
            if works or root.exclusive:
                yield Finding("ok", f"{path}: leases {'work' if works else 'are not needed'}")
            else:
                yield Finding("warning", f"{path}: leases do not work here", _EXCLUSIVE)


def _sessions(settings: Settings, store: Store, *, repair: bool) -> Iterator[Finding]:
    matched = expired = orphans = unknown = lost = values = 0
    totals = store.extractions.totals()
    migrated: set[str] = set()
    registries: set[str] = set()
    unwritable = defaultdict[tuple[Level, str, str], list[str]](list)
    roots = settings.root_directories()
    hidden = out_of_sight(roots)
    yield from _databases(settings)
    files = discover(
        roots, was_recorded=store.sessions.any_at_or_below,
        wanted=lambda name: agents.is_session_name(name) or bool(TEMPORARY.fullmatch(name)),
    )  # fmt: skip
    for item in (*files, *list_rows(roots)):
        if isinstance(item, Unreadable) or TEMPORARY.fullmatch(item.name):
            yield from _no_session(item, store)
            continue
        if not item.in_database and item.directory not in registries:
            registries.add(item.directory)
            yield from _registry(item.directory)
        if item.agent_directory not in migrated and agents.superseded(item):
            migrated.add(item.agent_directory)
            unseen = hidden(item.agent_directory)
            yield Finding("note", f"{item.agent}: its sessions are in SQLite now",
                          NO_ROOT if unseen else "the agent no longer uses its files")  # fmt: skip
        try:
            with open_session(item) as session:
                seen = placeholders_of(settings, store, session)
                mounted = isinstance(session, OpenFile) and session.mounted
                obstacle = session.obstacle or mounted
                closed = None if item.in_database else database.why_not_writable(item.directory)
        except (FileNotFoundError, BlockingIOError, RefusedError, BusyError) as why_not:
            yield from _not_read(item, store, why_not)
            continue
        except OSError as error:
            advice = _DAMAGED if isinstance(error, AgentDatabaseError) else _OWNER
            yield Finding("error", f"{item.path}: {error.strerror}", advice)
            continue
        if repair and seen.matched and seen.session_id is not None:
            with store.transaction():
                store.placements.add(seen.session_id, seen.matched)
        values += totals[seen.session_id].values if seen.session_id in totals else 0
        matched += len(seen.matched)
        expired += seen.expired
        orphans += len(seen.orphans)
        unknown += seen.unknown
        lost += len(seen.expired_in) + len(seen.nowhere)
        if (why := obstacle or closed) and not excluded(item, settings):
            unwritable["warning" if obstacle else "error", item.agent, why].append(item.session)
        yield from _without_value(item, seen)
    for (level, agent, why), names in unwritable.items():
        number = counted(len(names), "session")
        what = f"{agent}: {number} cannot be changed ({_some(names)}): {why}"
        yield Finding(level, what, _REMEDY)
    yield Finding(
        "error" if lost else "note" if orphans or unknown else "ok",
        f"{counted(matched + orphans, 'placeholder')} in sessions: {matched - expired:,} with a "
        f"value, {expired:,} expired, {orphans:,} without a record{_total(values, matched)}",
    )


def _total(values: int, placeholders: int) -> str:
    if values == placeholders:
        return ""
    total = counted(values, "value")
    return f"; that makes {total}: copies count once, and blocks removed whole count, too"


def _not_read(file: SessionFile, store: Store, why: Exception) -> Iterator[Finding]:
    """Yield what a session had of ours when its format was recognised.

    Another file was removed, is being written, or never was a session.
    """
    record = record_of(store, file, None) if isinstance(why, RefusedError) else None
    if record and (placed := store.placements.of_session(record.id)):
        had = counted(len(placed), "placeholder", "placeholders")
        yield Finding("error", f"{file.title}: {why}; {had} stood in it", _REFUSED)


def _registry(directory: str) -> Iterator[Finding]:
    odd = defaultdict[tuple[str, str], list[str]](list)
    for path, key, why in agents.index_problems(directory):
        if key is None:
            yield Finding("warning", f"{path} cannot be used: {why}", _UNUSABLE)
        else:
            odd[path, why].append(key)
    for (path, why), keys in odd.items():
        number = counted(len(keys), "entry is ignored", "entries are ignored")
        yield Finding("warning", f"{path}: {number} ({_some(keys)}): {why}", _ODD)


def _without_value(file: SessionFile, seen: SessionPlaceholders) -> Iterator[Finding]:
    if seen.unknown:
        texts = counted(
            seen.unknown, "text looks like a placeholder", "texts look like placeholders"
        )
        yield Finding("warning", f"{file.title}: {texts}, unknown to the store",
                      "typed or pasted texts are harmless")  # fmt: skip
    if seen.expired_in:
        have = "placeholder has a value", "placeholders have values"
        number = counted(len(seen.expired_in), *have)
        what = f"{number} that expired or was lost, in {_some(seen.expired_in)}"
        yield Finding("error", f"{file.title}: {what}", _EXPIRED)
    harmless = list((Counter(seen.orphans) - Counter(seen.nowhere + seen.expired_in)).elements())
    levels: tuple[tuple[Level, Sequence[str]], ...] = ("error", seen.nowhere), ("warning", harmless)
    for level, orphans in levels:
        if orphans:
            are = "placeholder is an orphan", "placeholders are orphans"
            number = counted(len(orphans), *are)
            yield Finding(level, f"{file.title}: {number}, in {_some(orphans)}", ADVICE)


def _some(items: Iterable[str]) -> str:
    names = list(dict.fromkeys(items))
    return ", ".join(names[:_MOST]) + (" …" if len(names) > _MOST else "")


def _no_session(item: SessionFile | Unreadable, store: Store) -> Iterator[Finding]:
    if isinstance(item, SessionFile):
        recorded = {rewrite.temporary for rewrite in store.journal.open_rewrites()}
        if item.name not in recorded and os.path.lexists(item.path):  # a scan may be at work
            yield Finding("error", f"{item.path}: a temporary file of an unknown rewrite",
                          "compare it with its session before you remove it")  # fmt: skip
        return
    in_database = os.path.isfile(os.path.dirname(item.path))
    if item.failed and (in_database or os.path.lexists(item.path)):
        # `_roots` reports a missing root.
        advice = {LINK: _FOLLOW, os.strerror(errno.EACCES): _OWNER}.get(item.reason, "")
        yield Finding("error", f"{item.path}: {item.reason}", _DAMAGED if in_database else advice)


def _databases(settings: Settings) -> Iterator[Finding]:
    for layout in describe_databases(settings):
        if layout.left_alone:
            level: Level = "warning" if settings.databases != "off" else "note"
            reason = f"{layout.path}: {layout.left_alone}"
            yield Finding(level, reason, "its sessions are only read")
            for difference in layout.differences:
                yield Finding("note", f"{layout.path}: {difference}", _REPORT)
        else:
            program = f"{layout.title} {layout.program or 'of unknown version'}"
            yield Finding("ok", f"{layout.path}: {program}, layout {layout.layout} is supported")


def placeholders_of(settings: Settings, store: Store, session: AnyOpen) -> SessionPlaceholders:
    record = find_record(store, session)
    examined = examine_open(settings, store, session, 0.0, record)
    planned = plan_of_everything(examined)
    is_expired = {
        value.id: value.blob_id is None
        for value in examined.records.extractions if value.replacement is None
    }  # fmt: skip
    here = set(planned.placeholders.here)
    unmarked = frozenset(
        (value.entry_id, value.path, value.digest) for value in examined.records.extractions
        if value.replacement is not None and value.blob_id is not None
        and value.id in here and not value.is_link
    )  # fmt: skip
    matched = tuple(ident for ident in planned.placeholders.here if ident in is_expired)
    left: dict[str, list[str]] = defaultdict(list)
    for one in planned.handled.unrestored:
        left[one.why].append(one.entry_id)
    orphans = tuple(entry for why in _ORPHANED for entry in left[why])
    expired_in = [
        value.entry_id for value in examined.records.extractions
        if value.id in here and value.blob_id is None and not value.is_link
        and (value.replacement is None or value.archive_id is not None)
    ]  # fmt: skip
    return SessionPlaceholders(
        matched, sum(is_expired[ident] for ident in matched), orphans,
        (*expired_in, *left[EXPIRED]), tuple(left[NO_RECORD]),
        planned.placeholders.typed, unmarked, examined.records.own,
    )  # fmt: skip


def placeholders_left(
    settings: Settings, store: Store, current: Store | None = None
) -> Iterator[PlaceholdersLeft]:
    """Yield the sessions with extracted values, and those that cannot be checked.

    Values that only the store `current` has count as orphans.
    """
    seen = walk(settings, store, with_former_roots=True)
    for problem in seen.problems:
        if problem.failed:
            yield _unsure(problem.path, problem.reason)
    for session in seen.sessions:
        if left := _left_in(settings, store, session, current):
            yield left


def _left_in(
    settings: Settings, store: Store, session: Session, current: Store | None
) -> PlaceholdersLeft | None:
    record = session.record
    if session.file is None:
        why_unseen = why_hidden(store, session)
        return _unsure(session.title, why_unseen) if why_unseen else None
    try:
        with open_session(session.file) as opened:
            seen = placeholders_of(settings, store, opened)
            known = placeholders_of(settings, current, opened).unmarked if current else frozenset()
    except FileNotFoundError:
        return None
    except RefusedError as why:
        placed = record and store.placements.of_session(record.id)
        return _unsure(session.title, str(why)) if placed else None
    except (BlockingIOError, BusyError):
        return _unsure(session.title, "it is being written now")
    except OSError as why:
        return _unsure(session.title, why.strerror or type(why).__name__)
    orphans = len(seen.orphans) + len(known - seen.unmarked)
    number = len(seen.matched) + len(seen.unmarked) + orphans
    left = PlaceholdersLeft(session.title, number, orphans, values_expired=seen.expired)
    return left if number else None


def placeholders_in_archives(settings: RootSettings) -> Iterator[PlaceholdersLeft]:
    """Yield the agents' own archives that contain placeholders or cannot be read."""
    for file in placeholders.sessions_and_archives(settings.root_directories()):
        if agents.is_session_name(file.name):
            continue
        try:
            entries: Iterable[str] = placeholders.entries_with_placeholders(file)
            if file.name.endswith(placeholders.UNFILLED):
                entries = placeholders.placeholders_in(file, interruption.check)
            yield from _in_archive(file.path, entries)
        except RefusedError:
            continue
        except OSError as why:
            yield _unsure(file.path, why.strerror or type(why).__name__)
    for agent_database in databases_below(settings.root_directories()):
        try:
            for session, entries in placeholders.archived(agent_database):
                yield from _in_archive(f"{agent_database.path}/{session}", entries)
        except OSError as why:
            text = why.strerror or type(why).__name__
            yield _unsure(agent_database.path, f"its archives cannot be read ({text})")


def _in_archive(archive: str, entries: Iterable[str]) -> Iterator[PlaceholdersLeft]:
    if ids := tuple(entries):
        yield PlaceholdersLeft(archive, len(ids), len(ids), ARCHIVED, left=ids)


def _unsure(session: str, why: str) -> PlaceholdersLeft:
    return PlaceholdersLeft(session, 0, 0, why, sure=False)
