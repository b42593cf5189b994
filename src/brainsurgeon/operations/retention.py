"""The retention run: replace expired values with tombstones, with pauses for other processes."""

import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Self

from msgspec import Struct
from msgspec.structs import asdict, replace

from brainsurgeon import interruption
from brainsurgeon.config import Settings
from brainsurgeon.errors import StoppedError
from brainsurgeon.files import processes
from brainsurgeon.lookup.byte_search import ByteSearch
from brainsurgeon.lookup.sessions import REPLACED, root_identity
from brainsurgeon.model.records import Held, SessionRecord
from brainsurgeon.model.reports import Expiring, RetentionReport
from brainsurgeon.model.rules import Terms
from brainsurgeon.model.session_files import Root, SessionFile
from brainsurgeon.planning import retention as decide
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.inspect import why_blocked
from brainsurgeon.sessions.discovery import any_format, discover_at
from brainsurgeon.sessions.row_listing import list_rows, out_of_sight, why_unlisted
from brainsurgeon.store import Store
from brainsurgeon.store.database import path_text
from brainsurgeon.store.expiry import Candidates, Sight
from brainsurgeon.store.salvage import NOWHERE

PAUSE = 0.026  # seconds: SQLite's first retries for a lock are at most 25 ms apart
_MANY_ROWS = 100  # a pause follows a transaction of so many rows
_BYTES_LIKE_ROW = 10_000  # deleted bytes that count as one row
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
        with store.expiry.candidates(dry_run=dry_run) as candidates:
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
    state = _State.read(store, now)
    terms = replace(settings.terms, retention=None)
    groups: dict[str, list[float]] = defaultdict(list)
    with store.expiry.candidates(dry_run=True, searching=False) as candidates:
        # Those in roots that are held back now are announced, too: the next run may delete them.
        records = {record.id: record for record in store.sessions.all()}
        candidates.add_sessions(
            (record.id, path_text(record.root), record.missed_at is None, record.missed_at)
            for record in records.values()
        )
        if state.gather(candidates, terms, within):
            paths = {ident: one.path for ident, one in records.items() if one.missed_at is None}
            _spare_blocked(settings, store, candidates, paths, now)
        for held, missed in candidates:
            # The runs until then will see what is missing.
            counted = replace(state.counted(held, missed), days_missed=decide.DAYS_MISSED)
            end = decide.expires_at(counted, terms)
            if end and end[0] <= state.interval.now + within:
                groups[end[1]].append(now + max(0.0, end[0] - state.interval.now))
    lengths = {decide.MISSING: terms.missing, decide.SILENT: terms.standing}
    return [
        Expiring(why, len(ends), min(ends), is_short=(lengths[why] or 0) < decide.NOTICE)
        for why, ends in sorted(groups.items())
    ]  # fmt: skip


def moment(store: Store, mark: float, now: float) -> float:
    """Return the time of the wall clock for a mark, as if that had always run evenly."""
    interval = _State.read(store, now).interval
    return now - (interval.now - interval.counted(mark))


def _is_behind_link(record: SessionRecord) -> bool:
    return not record.displaced and os.path.realpath(record.path) != record.path


class _State(Struct):
    """What the last run recorded, and the time until `clock`."""

    interval: decide.Interval
    roots: dict[str, list[int]]  # the last trusted identity, and the newest session found then
    days: dict[str, decide.DaysSeen]  # by root

    @classmethod
    def read(cls, store: Store, now: float) -> Self:
        facts = store.facts.get("retention") or {}
        clock = decide.Clock(now, processes.boot_clock(), processes.boot_id())
        before = decide.Clock(**facts["clock"]) if facts.get("clock") else None
        start = facts.get("counted", (before or clock).wall)  # an earlier version did not count
        interval = decide.Interval(before, start, clock)
        roots, days = facts.get("roots") or {}, facts.get("days")
        if days is None and before:  # an earlier version did not record the days of its runs
            days = {root: [(int(before.wall // decide.DAY), start)] for root in roots}
        return cls(interval, roots, days or {})

    def facts(self, held_back: dict[str, str]) -> dict[str, Any]:
        return {
            "clock": asdict(self.interval.clock), "counted": self.interval.now,
            "roots": self.roots, "held_back": held_back, "days": self.days,
        }  # fmt: skip

    def gather(self, candidates: Candidates, terms: Terms, ahead: float = 0.0) -> bool:
        until = self.interval.now + ahead
        listed = (terms.retention, terms.missing, terms.standing)
        return candidates.gather(*(None if term is None else until - term for term in listed))

    def counted(self, held: Held, missed: list[tuple[str, float]]) -> Held:
        at = self.interval.counted
        missed = [(root, at(mark)) for root, mark in missed]
        return replace(
            held, unplaced_at=None if held.unplaced_at is None else at(held.unplaced_at),
            missed_at=max((since for _, since in missed), default=None),
            days_missed=decide.days_missed(missed, self.days),
        )  # fmt: skip


class _Run:
    def __init__(
        self, settings: Settings, store: Store, candidates: Candidates, now: float,
        report: RetentionReport, check_stop: Callable[[], None],
    ) -> None:  # fmt: skip
        self._settings, self._store, self.now = settings, store, now
        self._candidates, self._report, self._check = candidates, report, check_stop
        self._roots = _roots(settings)
        self._state, self._terms = _State.read(store, now), settings.terms
        self._not_trusted: dict[str, str] = {}  # reasons by root
        self._records: dict[int, SessionRecord] = {}  # of the sessions that are there
        self._sessions: set[int] = set()

    def run(self) -> None:
        store, report, state = self._store, self._report, self._state
        report.values_held = store.expiry.count_held()
        moved, search = state.interval.moved, self._search()
        sights, new_missed_at = self._sights()
        self._candidates.add_sessions(sights)
        if moved:  # what is missing is recorded by the next run
            new_missed_at = [(ident, at) for ident, at in new_missed_at if at is None]
        else:
            self._note_day()
        if not report.dry_run:
            self._record_missed(new_missed_at)
        report.held_back = self._held_back(search, moved)
        if not (moved or search.unread):
            self._delete(search)
        if not report.dry_run:
            self._clean_up()

    def _search(self) -> ByteSearch:
        state, dry_run = self._state, self._report.dry_run
        search = ByteSearch(
            self._store, self._roots, state.interval, check_stop=self._check, dry_run=dry_run
        )
        search.look()
        self._find(search)
        search.read()
        self._trust(search)
        roots = {os.path.realpath(root.path) for root in self._roots}
        # Below these, files may be that were not seen.
        kept = {root for root in roots if path_text(root) in self._not_trusted}
        search.forget(kept, sorted({*roots, *(one.root for one in self._store.sessions.all())}))
        return search

    def _clean_up(self) -> None:
        state = self._state
        checked = self._store.blobs.check(self._check)
        with self._store.transaction():
            self._store.blobs.note_check(*checked)
        self._report.values_damaged = self._store.blobs.count_damaged()
        with self._store.transaction():
            self._store.facts.put("last_retention_run_at", self.now)
            self._store.facts.put("retention", state.facts(self._report.held_back))
            self._store.searches.count_marks(state.interval.counted, state.interval.now)
            self._store.searches.forget_expired()
            self._store.rows.release()
            self._store.journal.close_ended(state.interval.now - decide.ENDED)
        for listed in (self._store.events, self._store.runs):
            while old := listed.old(self.now):
                with self._transaction(len(old)):
                    listed.drop(old)
        while self._store.expiry.shrink():
            self._check()
            give_way()

    def _find(self, search: ByteSearch) -> None:
        for record in self._store.sessions.all():
            self._check()
            is_there = record.id in search.found
            if not (is_there or record.displaced or _is_behind_link(record)):
                # Of several hard links, discovery yields only one path.
                is_there = os.path.lexists(record.path) or bool(why_unlisted(record.path))
            if is_there and not record.displaced:
                self._records[record.id] = record

    def _trust(self, search: ByteSearch) -> None:
        """Trust a readable root if a known session was found there or it is the same as before.

        In any other root, nothing expires: it may be the mount point of a disk.
        """
        roots = {os.path.realpath(root.path) for root in self._roots}
        seen: dict[str, list[int]] = {root: [] for root in roots}
        known_roots = {record.root for record in self._store.sessions.all()}
        for root in known_roots:
            seen.setdefault(root, [])
        for record in self._records.values():
            seen[record.root].append(record.id)
        known = self._state.roots
        for root, ids in seen.items():
            text = path_text(root)
            before = known.get(text, [])
            why = search.problems.get(root)
            if why and (before or root in known_roots or root not in search.absent):
                self._not_trusted[text] = why
            elif identity := root_identity(root, before, ids):
                known[text] = [*identity, max(0, *before[2:], *ids)]
            elif before or root not in {*roots, os.fsdecode(NOWHERE)}:
                self._not_trusted[text] = REPLACED if os.path.exists(root) else "it cannot be read"
                if root not in roots:  # if it is configured again, it counts as a new root
                    known.pop(text, None)
        # Sessions below former roots are missing.
        self._records = {ident: one for ident, one in self._records.items() if one.root in roots}

    def _note_day(self) -> None:
        for root in self._state.roots:
            if root not in self._not_trusted:
                self._state.days[root] = decide.days_seen(
                    self._state.days.get(root, ()), self._state.interval
                )

    def _held_back(self, search: ByteSearch, moved: str | None) -> dict[str, str]:
        if moved:
            return dict.fromkeys(self._candidates.roots(), moved)
        if why := next(iter(search.unread.values()), None):
            # It may contain any placeholder.
            return dict.fromkeys(self._candidates.roots(), why) | self._not_trusted
        return self._not_trusted

    def _sights(self) -> tuple[list[Sight], list[tuple[int, float | None]]]:
        """Return where sessions are, and since when those are missing for which this changed."""
        hidden, sights = out_of_sight(self._roots), list[Sight]()
        new_missed_at: list[tuple[int, float | None]] = []
        for record in self._store.sessions.all():
            root, is_there, missed = path_text(record.root), record.id in self._records, None
            is_trusted = root in self._state.roots and root not in self._not_trusted
            is_linked = _is_behind_link(record)
            if not is_there and is_trusted and not is_linked:
                missed = record.missed_at or self._state.interval.now
            if hidden(record.agent_directory):
                is_there, missed = False, None
                self._not_trusted[path_text(record.agent_directory)] = HIDDEN
            if missed != record.missed_at and (missed or is_there or is_linked):
                new_missed_at.append((record.id, missed))
            sights.append((record.id, root, is_there and root not in self._not_trusted, missed))
        return sights, new_missed_at

    def _record_missed(self, changed: list[tuple[int, float | None]]) -> None:
        for at in range(0, len(changed), _MANY_ROWS):
            with self._transaction(_MANY_ROWS):
                self._store.sessions.record_missing(changed[at : at + _MANY_ROWS])

    def _end_requests(self) -> None:
        """End requests of missing sessions: restores, when the values expire, others at once."""
        expired = [
            record.id for record in self._store.sessions.all()
            if record.missed_at is not None and self._has_expired(record, record.missed_at)
        ]  # fmt: skip
        with self._transaction(len(expired)):
            run = self._store.runs.current
            self._store.requests.lapse_missed(expired, self.now, run)

    def _has_expired(self, record: SessionRecord, missed_at: float) -> bool:
        missed = [(path_text(record.root), missed_at)]
        held = self._state.counted(Held(0, record.id, 0), missed)
        end = decide.expires_at(held, self._terms)
        return end is not None and end[0] <= self._state.interval.now

    def _delete(self, search: ByteSearch) -> None:
        if not self._report.dry_run:
            self._end_requests()
        if not self._state.gather(self._candidates, self._terms):
            return
        if not any(map(self._why_expired, self._candidates)):
            return
        self._candidates.remove(search.last_seen_late, unless_hit=True)
        paths = {ident: record.path for ident, record in self._records.items()}
        _spare_blocked(self._settings, self._store, self._candidates, paths, self.now, self._check)
        store, report, last = self._store, self._report, 0
        while True:
            self._check()
            with nullcontext() if report.dry_run else store.transaction():
                page = self._candidates.page(last)  # without values that are now to be restored
                expired = [(item[0], why) for item in page if (why := self._why_expired(item))]
                if not report.dry_run:
                    ids = ((held.id, why) for held, why in expired)
                    blobs_deleted = store.expiry.delete(ids, self.now)
                    self._record_expiries(expired)
            if not page:
                return
            last = page[-1][0].id
            size = sum(held.size for held, _ in expired)
            report.values_deleted += len(expired)
            report.bytes_deleted += size
            for _, why in expired:
                report.reasons[why] = report.reasons.get(why, 0) + 1
            if not report.dry_run:
                report.blobs_deleted += blobs_deleted
                if len(page) + size // _BYTES_LIKE_ROW >= _MANY_ROWS:
                    give_way()

    def _why_expired(self, item: tuple[Held, list[tuple[str, float]]]) -> str | None:
        end = decide.expires_at(self._state.counted(*item), self._terms)
        return end[1] if end and end[0] <= self._state.interval.now else None

    def _record_expiries(self, expired: list[tuple[Held, str]]) -> None:
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

    @contextmanager
    def _transaction(self, rows: int) -> Iterator[None]:
        with self._store.transaction():
            yield
        if rows >= _MANY_ROWS:
            give_way()


def _spare_blocked(
    settings: Settings, store: Store, candidates: Candidates, there: Mapping[int, str],
    now: float, check_stop: Callable[[], None] = interruption.check,
) -> None:  # fmt: skip
    """Keep the values of sessions that are blocked: somebody may still want to restore them.

    `there` are the paths of the sessions that are there.
    """
    roots = _roots(settings)
    rows: dict[str, SessionFile] | None = None
    paths = {there[ident]: ident for ident in candidates.sessions()}
    hits = [] if settings.terms.standing is None else candidates.hit_paths()
    for path in sorted({*paths, *hits}):
        check_stop()
        file = discover_at(roots, path, any_format)
        if file is None:
            if rows is None:
                listed = list_rows(roots, store.rows.own_times())
                rows = {row.path: row for row in listed if isinstance(row, SessionFile)}
            file = rows.get(path)
        if isinstance(file, SessionFile) and not why_blocked(settings, store, file, now):
            continue
        if path in paths:
            candidates.mark_unseen(paths[path])
        if path in paths or isinstance(file, SessionFile):
            candidates.remove(candidates.names_at(path))


def _roots(settings: Settings) -> list[Root]:
    """Return the roots. Databases count in retention even if scans skip them."""
    return [replace(root, databases=True) for root in settings.root_directories(every=True)]


def give_way() -> None:
    time.sleep(PAUSE)
