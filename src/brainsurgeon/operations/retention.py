"""The retention job: mark what expired, delete what was marked, and stop at what is suspicious."""

from __future__ import annotations

import os
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from brainsurgeon import clock as clocks
from brainsurgeon.decide import retention as decide
from brainsurgeon.errors import StoppedError
from brainsurgeon.model.reports import RetentionReport
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.operations.databases import databases_below, out_of_sight
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions.discover import any_format, discover
from brainsurgeon.sessions.opening import identity_of
from brainsurgeon.sessions.reading import carry_on
from brainsurgeon.sessions.row_listing import list_rows
from brainsurgeon.sessions.row_sighting import loose_stubs, stubs_in_rows
from brainsurgeon.sessions.sighting import sessions_and_archives, stubs_in
from brainsurgeon.store.texts import path_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.hosts.openclaw_database import Database
    from brainsurgeon.model.records import HeldValue
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.store import Store

HIDDEN = "its agent keeps its sessions in a database that lies below no root"


def retention(
    settings: Settings,
    store: Store,
    *,
    clock: Callable[[], float] = time.time,
    dry_run: bool = False,
    check_stop: Callable[[], None] = carry_on,
) -> RetentionReport:
    """Do one retention run. When `check_stop` raises StoppedError, nothing has been changed."""
    report = RetentionReport(dry_run)
    if not dry_run:
        recover.recover(store, settings.root_directories())
    now = clock()
    try:
        run = _Run(settings, store, now, check_stop)
        verdicts = run.judge()
    except StoppedError:
        report.stopped = True
        return report
    report.values_held = len(run.held)
    report.brakes = run.brakes
    _add_up(report, run, verdicts)
    if not dry_run:
        swept = _carry_out(store, run, verdicts, now)
        report.blobs_deleted = swept or 0
        if swept is None:
            report.values_deleted = report.bytes_deleted = 0
    return report


class _Run:
    """What one run finds before it decides anything."""

    def __init__(
        self, settings: Settings, store: Store, now: float, check_stop: Callable[[], None]
    ) -> None:
        self._settings, self._now, self._check = settings, now, check_stop
        self._store = store
        # What is not to be looked at by scans still counts here.
        self._roots = [replace(root, databases=True) for root in settings.root_directories()]
        self.held = {value.id: value for value in store.expiry.held()}
        self._seen = store.facts.roots_seen()
        self.states, self.live = self._look_at_roots()
        self.clock = decide.Clock(now, clocks.boot_clock(), clocks.boot_id())
        self.brakes = self._brakes(store.facts.get("retention") or {})
        self.sighted: set[int] = set()

    def _look_at_roots(self) -> tuple[dict[str, decide.RootState], dict[str, float]]:
        """Count the sessions of each root, and note when each live file last changed."""
        counts: Counter[str] = Counter()
        errors: dict[str, str] = {}
        live: dict[str, float] = {}
        for item in (*discover(self._roots, format_of=any_format), *list_rows(self._roots)):
            self._check()
            if isinstance(item, Unreadable):
                errors[item.root] = f"{item.path}: {item.why}"
            else:
                counts[item.root] += 1
                live[item.path] = item.fingerprint.mtime_ns / 1e9
        roots = {os.path.realpath(root.path) for root in self._roots}
        return {
            path_text(root): decide.RootState(counts[root], errors.get(root)) for root in roots
        }, live

    def _brakes(self, before: dict[str, object]) -> dict[str, str]:
        """Name the roots below which nothing may be deleted in this run, and why."""
        busy = {path_text(root) for root in recover.roots_waiting(self._store)}
        last = before.get("clock")
        jumped = decide.clock_jumped(
            decide.Clock(**last) if isinstance(last, dict) else None, self.clock
        )
        known = before.get("roots")
        earlier = {
            root: decide.RootState(**state)
            for root, state in (known.items() if isinstance(known, dict) else ())
        }
        self.remembered = {
            root: replace(earlier[root], error=state.error)
            if state.error and root in earlier
            else state
            for root, state in self.states.items()
        }
        brakes = {}
        for root in {path_text(value.root) for value in self.held.values()}:
            state = self.states.get(root, decide.RootState(0, "it is not configured any more"))
            under_way = "a rewrite is under way" if root in busy else None
            reason = under_way or jumped or decide.brake(earlier.get(root), state)
            if reason:
                brakes[root] = reason
        return brakes

    def judge(self) -> list[decide.Verdict]:
        """Decide about everything that is held."""
        keep, standing_for = self._settings.retention, self._settings.retention_standing
        due = [
            value
            for value in self.held.values()
            if value.marked_at is not None or self._may_expire(value)
        ]
        standing = self._standing() if due else _Standing()
        hidden = out_of_sight(self._roots)
        verdicts = []
        for value in due:
            if hidden(value.agent_directory):
                action: decide.Action = "keep" if value.marked_at is None else "unmark"
                verdicts.append(decide.Verdict(value.id, action, HIDDEN))
                continue
            activity = standing.activity(value)
            if activity > _NEVER:
                self.sighted.add(value.id)
            seen = None if path_text(value.root) in self.brakes else self._seen.get(
                path_text(value.root)
            )  # fmt: skip
            verdicts.append(decide.judge(
                _as_held(value, standing=activity > _NEVER, activity=activity),
                keep, standing_for, self._now, seen_since=seen,
            ))  # fmt: skip
        return verdicts

    def _may_expire(self, value: HeldValue) -> bool:
        """Tell whether a value can have expired, before any file is read for its stub."""
        ends = (
            decide.expires_at(
                _as_held(value, standing=standing, activity=self.live.get(value.path, 0.0)),
                self._settings.retention, self._settings.retention_standing,
            )
            for standing in (False, True)
        )  # fmt: skip
        return any(end is not None and end[0] <= self._now for end in ends)

    def _standing(self) -> _Standing:
        """Find what stands in all files and databases, and which session each of it may be."""
        standing = _Standing()
        texts = self._store.extractions.stubs()
        rows = (one for one in list_rows(self._roots) if not isinstance(one, Unreadable))
        for file in (*sessions_and_archives(self._roots), *rows):
            with self._braking(file):
                stubs = (stubs_in_rows if file.in_database else stubs_in)(file, self._check)
                standing.add(
                    file, stubs, {one: texts.get(one, set()) for one in self._sessions_in(file)}
                )
        for database in databases_below(self._roots):
            with self._braking(database):
                for stub, changed in loose_stubs(database, self._check):
                    standing.add_loose(stub, changed)
        return standing

    @contextmanager
    def _braking(self, place: SessionFile | Database) -> Iterator[None]:
        """Delete nothing below the root of what cannot be read."""
        try:
            yield
        except OSError as error:
            why = error.strerror or type(error).__name__
            self.brakes.setdefault(path_text(place.root), f"{place.path}: {why}")

    def _sessions_in(self, file: SessionFile) -> set[int]:
        """Name the sessions that a file may be, and those that they were forked from."""
        known = self._store.sessions
        identity = identity_of(file)
        here = known.at(file.path)
        alike = known.of_identity(identity) if identity else []
        return {one for record in (here, *alike) if record for one in known.family(record)}


class _Standing:
    """What stands in the files, with when those last changed; never is minus infinity."""

    def __init__(self) -> None:
        self._explained: dict[tuple[int, str], float] = {}
        self._unexplained: dict[str, float] = {}
        self._sessions: dict[int, float] = {}

    def add(self, file: SessionFile, stubs: set[str], sessions: dict[int, set[str]]) -> None:
        """Take the stubs of a file, which may be one of some sessions with theirs.

        A stub that none of them explains counts for every value of its text: a session that was
        moved, or one whose agent is called otherwise now, loses nothing.
        """
        changed = file.fingerprint.mtime_ns / 1e9
        for session, own in sessions.items():
            self._sessions[session] = max(changed, self._sessions.get(session, _NEVER))
            for stub in own & stubs:
                key = session, stub
                self._explained[key] = max(changed, self._explained.get(key, _NEVER))
        for stub in stubs.difference(*sessions.values()):
            self.add_loose(stub, changed)

    def add_loose(self, stub: str, changed: float) -> None:
        """Take a stub that stands where no session is known."""
        self._unexplained[stub] = max(changed, self._unexplained.get(stub, _NEVER))

    def activity(self, value: HeldValue) -> float:
        """Tell when a file in which a value's stub stands last changed.

        What was redacted left no stub: it stands as long as its session.
        """
        if value.redaction:
            return self._sessions.get(value.session_id, _NEVER)
        return max(
            self._explained.get((value.session_id, value.stub), _NEVER),
            self._unexplained.get(value.stub, _NEVER),
        )


_NEVER = float("-inf")


def _as_held(value: HeldValue, *, standing: bool, activity: float = 0.0) -> decide.Held:
    return decide.Held(
        value.id,
        value.extracted_at,
        value.sighted_at,
        value.restored_at,
        value.marked_at,
        standing,
        activity,
    )


def _add_up(report: RetentionReport, run: _Run, verdicts: list[decide.Verdict]) -> None:
    actions = Counter(verdict.action for verdict in verdicts)
    report.values_marked = actions["mark"]
    report.values_unmarked = actions["unmark"]
    report.values_deleted = actions["delete"]
    report.bytes_deleted = sum(run.held[v.id].size for v in verdicts if v.action == "delete")
    reasons = Counter(f"{v.action}: {v.why.partition(';')[0]}" for v in verdicts)
    report.reasons = dict(sorted(reasons.items()))


def _carry_out(store: Store, run: _Run, verdicts: list[decide.Verdict], now: float) -> int | None:
    """Write marks, tombstones and the deletion of values in one transaction.

    None means that nothing could be deleted in this run.
    """
    of = {
        action: [verdict for verdict in verdicts if verdict.action == action]
        for action in ("mark", "unmark", "delete")
    }
    with store.transaction():
        store.extractions.sight(run.sighted, now)
        store.expiry.mark((verdict.id for verdict in of["mark"]), now)
        store.expiry.mark((verdict.id for verdict in of["unmark"]), None)
        graves = ((verdict.id, verdict.why) for verdict in of["delete"])
        swept = store.expiry.delete(graves, now, orphans=not run.brakes)
        store.facts.put("last_retention_run_at", now)
        store.facts.put("retention", {
            "clock": asdict(run.clock),
            "roots": {root: asdict(state) for root, state in run.remembered.items()},
            "brakes": run.brakes,
        })  # fmt: skip
    if swept:
        store.expiry.shrink()
    return swept
