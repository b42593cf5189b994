"""The retention run: replace expired values with tombstones, with pauses for other processes."""

import math
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from itertools import chain, islice

from msgspec.structs import asdict, replace

from brainsurgeon import interruption
from brainsurgeon.config import Settings
from brainsurgeon.errors import StoppedError
from brainsurgeon.hosts import processes
from brainsurgeon.lookup.sessions import REPLACED, root_identity
from brainsurgeon.model.entries import id_named
from brainsurgeon.model.records import Held, SessionRecord
from brainsurgeon.model.reports import Expiring, RetentionReport
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.planning import retention as decide
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import placeholders
from brainsurgeon.sessions.discovery import any_format, discover
from brainsurgeon.sessions.row_listing import databases_below, list_rows, out_of_sight
from brainsurgeon.store import Store
from brainsurgeon.store.database import path_text
from brainsurgeon.store.expiry import Candidates, Sight
from brainsurgeon.store.salvage import NOWHERE

PAUSE = 0.026  # seconds: SQLite's first retries for a lock are at most 25 ms apart
_MANY_ROWS = 100  # a pause follows a transaction of so many rows
_BYTES_LIKE_ROW = 10_000  # deleted bytes that count as one row
_MANY_FILES = 1000  # files that are looked up together
HIDDEN = "the agent keeps its sessions in a database that is below no root"


def retention(
    settings: Settings, store: Store, *, clock: Callable[[], float] = time.time,
    dry_run: bool = False, check_stop: Callable[[], None] = interruption.check,
) -> RetentionReport:  # fmt: skip
    """Delete expired values. If `check_stop` raises StoppedError, the next run does the rest."""
    report = RetentionReport(dry_run)
    if not dry_run:
        recover.recover(store)
    try:
        with store.expiry.candidates() as candidates:
            run = _Run(settings, store, candidates, clock(), report, check_stop)
            with store.runs.run("retention", run.now):
                run.run()
    except StoppedError:
        report.stopped = True
    return report


def expiring(
    settings: Settings, store: Store, now: float, within: float = decide.NOTICE
) -> list[Expiring]:
    """Return the values that will expire within so many seconds, by reason. Writes nothing.

    Values without any placeholder, which expire because their originals are back, are not listed.
    """
    term = settings.retention_standing
    held_back = (store.facts.get("retention") or {}).get("held_back", {})
    missing = term is not None and store.expiry.missing(now + within - term, held_back)
    if term is None or not missing:
        return []
    values, first = missing
    return [Expiring(decide.MISSING, values, first + term, is_short=term < decide.NOTICE)]


def _is_behind_link(record: SessionRecord) -> bool:
    return not record.displaced and os.path.realpath(record.path) != record.path


class _Run:
    def __init__(
        self, settings: Settings, store: Store, candidates: Candidates, now: float,
        report: RetentionReport, check_stop: Callable[[], None],
    ) -> None:  # fmt: skip
        self._settings, self._store, self.now = settings, store, now
        self._candidates, self._report, self._check = candidates, report, check_stop
        # Databases count here even if scans skip them.
        self._roots = [replace(root, databases=True) for root in settings.root_directories()]
        self._before = store.facts.get("retention") or {}
        # By root: its last trusted identity, and the newest id of a session found then.
        self._identities: dict[str, list[int]] = dict(self._before.get("roots") or {})
        self._not_trusted: dict[str, str] = {}  # reasons by root
        self._sessions: set[int] = set()

    def run(self) -> None:
        dry_run, report = self._report.dry_run, self._report
        report.values_held = self._store.expiry.count_held()
        clock = decide.Clock(self.now, processes.boot_clock(), processes.boot_id())
        last = self._before.get("clock")
        before = decide.Clock(**last) if last else None
        moved = decide.clock_moved(before, clock)
        new_missed_at: list[tuple[int, float | None]] = []
        self._candidates.add_sessions(self._sights(self._changes(), new_missed_at))
        if not (dry_run or moved):
            self._record_missed(new_missed_at)
        first = decide.first_in_days(before, clock)
        if moved or (first and self._gather_candidates()):
            report.held_back = dict.fromkeys(self._candidates.roots(), moved or first or "")
        elif not first:
            report.held_back = self._not_trusted
            self._delete()
        if dry_run:
            return
        for entries in self._store.rows.unneeded() if report.blobs_deleted else ():
            if entries:
                with self._transaction(len(entries)):
                    self._store.rows.release(entries)
        checked = self._store.blobs.check(self._check)
        with self._store.transaction():
            self._store.blobs.note_check(*checked)
        report.values_damaged = self._store.blobs.count_damaged()
        facts = {"clock": asdict(clock), "roots": self._identities, "held_back": report.held_back}
        with self._store.transaction():
            self._store.facts.put("last_retention_run_at", self.now)
            self._store.facts.put("retention", facts)
            self._store.journal.close_ended(self.now - decide.ENDED)
        for listed in (self._store.events, self._store.runs):
            while old := listed.old(self.now):
                with self._transaction(len(old)):
                    listed.drop(old)
        while self._store.expiry.shrink():
            self._check()
            give_way()

    def _changes(self) -> dict[int, float]:
        """Return when each session found was last changed, by record id. Also calls `_trust`."""
        live: dict[int, float] = {}
        errors: dict[str, str] = {}
        items = chain(discover(self._roots, format_of=any_format), list_rows(self._roots))
        while listed := list(islice(items, _MANY_FILES)):
            changed: dict[str, float] = {}
            for item in listed:
                self._check()
                if isinstance(item, Unreadable):
                    errors.setdefault(item.root, f"{item.path}: {item.why}")
                else:
                    changed[item.path] = item.fingerprint.mtime_ns / 1e9
            ids = self._store.sessions.ids_at(changed)
            live |= {ident: changed[path] for path, ident in ids.items()}
        roots = {os.path.realpath(root.path) for root in self._roots}
        found: dict[str, list[int]] = {root: [] for root in roots}
        for record in self._store.sessions.all():
            self._check()
            seen = found.setdefault(record.root, [])
            if record.displaced:
                live.pop(record.id, None)
            elif record.id not in live and not _is_behind_link(record):
                with suppress(OSError):  # of several hard links, discovery yields only one path
                    live[record.id] = os.stat(record.path, follow_symlinks=False).st_mtime
            if record.id in live:
                seen.append(record.id)
            if record.root not in roots:
                live.pop(record.id, None)
        self._trust(roots, found, errors)
        return live

    def _trust(
        self, roots: set[str], found: dict[str, list[int]], errors: dict[str, str]
    ) -> None:  # fmt: skip
        """Trust a readable root if a known session was found there or it is the same as before.

        In any other root, nothing expires: it may be the mount point of a disk.
        """
        for root, seen in found.items():
            text = path_text(root)
            before = self._identities.get(text, [])
            if why := errors.get(root):
                self._not_trusted[text] = why
            elif identity := root_identity(root, before, seen):
                self._identities[text] = [*identity, max(0, *before[2:], *seen)]
            elif before or root not in {*roots, os.fsdecode(NOWHERE)}:
                self._not_trusted[text] = REPLACED if os.path.exists(root) else "it cannot be read"
                if root not in roots:  # if it is configured again, it counts as a new root
                    self._identities.pop(text, None)

    def _sights(
        self, changes: dict[int, float], new_missed_at: list[tuple[int, float | None]]
    ) -> Iterator[Sight]:
        hidden = out_of_sight(self._roots)
        for record in self._store.sessions.all():
            root, changed, missed = path_text(record.root), changes.get(record.id), None
            is_trusted = root in self._identities and root not in self._not_trusted
            if changed is None and is_trusted and not _is_behind_link(record):
                missed = record.missed_at or self.now
            if hidden(record.agent_directory):
                changed = missed = None
                self._not_trusted[path_text(record.agent_directory)] = HIDDEN
            if missed != record.missed_at and (missed or changed or _is_behind_link(record)):
                new_missed_at.append((record.id, missed))
            yield record.id, root, changed, missed

    def _record_missed(self, changed: list[tuple[int, float | None]]) -> None:
        for at in range(0, len(changed), _MANY_ROWS):
            with self._transaction(_MANY_ROWS):
                self._store.sessions.record_missing(changed[at : at + _MANY_ROWS])
        limit = self._settings.retention_standing
        until = -math.inf if limit is None else self.now - limit
        with self._transaction(1):
            self._store.requests.lapse_missed(until, self.now, self._store.runs.current)

    def _delete(self) -> None:
        if not self._gather_candidates():
            return
        self._spare_placed()
        store, report, last = self._store, self._report, 0
        while True:
            self._check()
            with nullcontext() if report.dry_run else store.transaction():
                page = self._candidates.page(last)  # without values that are now to be restored
                expired = [(held, why) for held in page if (why := self._why_expired(held))]
                if not report.dry_run:
                    ids = ((held.id, why) for held, why in expired)
                    blobs_deleted = store.expiry.delete(ids, self.now)
                    self._record(expired)
            if not page:
                return
            last = page[-1].id
            size = sum(held.size for held, _ in expired)
            report.values_deleted += len(expired)
            report.bytes_deleted += size
            for _, why in expired:
                report.reasons[why] = report.reasons.get(why, 0) + 1
            if not report.dry_run:
                report.blobs_deleted += blobs_deleted
                if len(page) + size // _BYTES_LIKE_ROW >= _MANY_ROWS:
                    give_way()

    def _gather_candidates(self) -> bool:  # whether any has expired
        for root in self._not_trusted:
            self._candidates.mark_unseen(root)
        settings = self._settings
        self._candidates.gather(self.now, settings.retention, settings.retention_standing)
        return any(map(self._why_expired, self._candidates))

    def _why_expired(self, held: Held) -> str | None:
        settings = self._settings
        end = decide.expires_at(held, settings.retention, settings.retention_standing)
        return end[1] if end and end[0] <= self.now else None

    def _record(self, expired: list[tuple[Held, str]]) -> None:
        sizes: dict[tuple[int, str], list[int]] = defaultdict(list)
        for held, why in expired:
            sizes[held.session_id, why].append(held.size)
        if not sizes:
            return
        store, run_id = self._store, self._store.runs.number()
        for (session, why), listed in sizes.items():
            facts = {"values": len(listed), "size_bytes": sum(listed), "reason": why}
            store.events.add(self.now, "expiry", session, facts, run_id)
        sessions = {session for session, _ in sizes}
        store.runs.add(run_id, expired=len(expired), sessions=len(sessions - self._sessions))
        self._sessions |= sessions

    def _spare_placed(self) -> None:
        """Keep values with placeholders in sessions or archives that changed recently."""
        limit = self._settings.retention_standing
        since = float("-inf") if limit is None else self.now - limit
        files = chain(placeholders.sessions_and_archives(self._roots), list_rows(self._roots))
        # List all files before reading any: a file that moves in between is noticed as unreadable.
        for file in [
            file for file in files
            if not isinstance(file, Unreadable) and file.fingerprint.mtime_ns / 1e9 > since
        ]:  # fmt: skip
            with self._held_back_if_unreadable(file.root, file.path):
                found = placeholders.placeholders_in(file, self._check)
                self._candidates.remove(map(id_named, found))
        for database in databases_below(self._roots):
            with self._held_back_if_unreadable(database.root, database.path):
                archived = placeholders.archived_placeholders(database, self._check)
                self._candidates.remove(id_named(text) for text, at in archived if at > since)

    @contextmanager
    def _held_back_if_unreadable(self, root: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self._candidates.mark_unseen(path_text(root))
            why = f"{path}: {error.strerror or type(error).__name__}"
            self._report.held_back.setdefault(path_text(root), why)

    @contextmanager
    def _transaction(self, rows: int) -> Iterator[None]:
        with self._store.transaction():
            yield
        if rows >= _MANY_ROWS:
            give_way()


def give_way() -> None:
    time.sleep(PAUSE)
