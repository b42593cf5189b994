"""Status: last and next runs, sessions by state, savings, the store, why sessions are skipped."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Literal

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import openclaw, openclaw_database
from brainsurgeon.hosts.openclaw_database import databases, misplaced, unwritable
from brainsurgeon.lookup.sessions import walk
from brainsurgeon.model.reports import DatabaseStatus
from brainsurgeon.model.sessions import Unreadable
from brainsurgeon.model.text import counted
from brainsurgeon.model.turns import NO_LOADS, Loads
from brainsurgeon.operations.init import unused_homes
from brainsurgeon.operations.sessions import summaries
from brainsurgeon.planning.retention import NOTICE
from brainsurgeon.rewrite import recover
from brainsurgeon.schedule import cron_trigger, scan_trigger
from brainsurgeon.sessions import leases
from brainsurgeon.sessions.reading import RefusedError, open_session
from brainsurgeon.sessions.row_listing import layout_of
from brainsurgeon.store import database
from brainsurgeon.store.database import daemon_holder
from brainsurgeon.store.files import AGAIN, DATABASE, WAITS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.hosts.openclaw_database import Database
    from brainsurgeon.lookup.sessions import Walk
    from brainsurgeon.model.reports import Event, Run, ScanReport, UnusedHome
    from brainsurgeon.model.sessions import Root, SessionFile
    from brainsurgeon.store import Store


def describe_machine(settings: Settings, store: Store | None, report: ScanReport) -> None:
    """Add databases and open rewrites to a dry run's report, and unused homes before any scan."""
    report.databases = describe_databases(settings)
    report.interrupted = recover.waiting(store) if store else []
    if not (store and store.facts.get("last_run_at")):
        report.homes = unused_homes(settings)


def describe_databases(settings: Settings) -> list[DatabaseStatus]:
    """Return the status of every database below the roots. Leaves no files behind."""
    listed = []
    for root in settings.root_directories():
        for item in databases(root.path):
            if isinstance(item, Unreadable):
                agent = os.path.basename(os.path.dirname(os.path.dirname(item.path)))
                listed.append(DatabaseStatus(agent, item.path, None, None, item.why))
            else:
                listed.append(_describe(item, settings))
    return listed


def databases_below(roots: Iterable[Root]) -> Iterator[Database]:
    """Yield the databases below the roots that can be read."""
    for root in roots:
        for item in databases(root.path):
            if not isinstance(item, Unreadable):
                yield item


def out_of_sight(roots: Iterable[Root]) -> Callable[[str], bool]:
    """Return a function that checks whether an agent's database is below none of the roots.

    Its argument is the directory of the agent.
    """
    seen = {database.agent_directory for database in databases_below(roots)}

    @cache
    def hidden(agent_directory: str) -> bool:
        return agent_directory not in seen and openclaw.migrated(agent_directory)

    return hidden


def _describe(item: Database, settings: Settings) -> DatabaseStatus:
    try:
        schema = layout_of(item)
    except (OSError, BusyError) as error:
        return DatabaseStatus(item.agent, item.path, None, None, str(error))
    reasons = (
        'databases = "off"' if settings.databases == "off" else None,
        schema.unknown, misplaced(item), unwritable(item.path), *_of_engine(item, settings),
    )  # fmt: skip
    reason = next((why for why in reasons if why), None)
    return DatabaseStatus(item.agent, item.path, schema.program, schema.version, reason)


def _of_engine(item: Database, settings: Settings) -> Iterator[str | None]:
    if settings.databases == "auto":
        chosen = openclaw_database.selected(item.state_directory)
        yield chosen.unreadable
        yield chosen.engine and f"the context engine {chosen.engine} is selected"


MINUTE, HOUR, DAY = 60, 3600, 86_400
_NEWEST = 3  # runs and failures shown


@dataclass(frozen=True, slots=True)
class RootStatus:
    """One root; `sessions` is a count, `protocol` the way in which files are replaced."""

    path: str
    sessions: int
    protocol: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class Leaving:
    """The number of values that expire within a week because their sessions are missing.

    `expires_at` is the time of the first, in seconds since 1970.
    """

    values: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class Status:
    """The content of `status`. Times are in seconds since 1970, None if unknown.

    `tokens_saved` is an estimate. `runs` are the newest runs. `failures` are the failed sessions
    and lapsed reliefs since the oldest of these runs or of the last day, whichever is longer. Both
    lists have the newest last.
    """

    enabled: bool
    daemon_pid: int | None
    last_run_at: float | None
    next_run_at: float | None
    last_retention_run_at: float | None
    next_retention_run_at: float | None
    sessions_by_state: dict[str, int]
    reasons: dict[str, int]
    values_extracted: int
    bytes_saved: int
    store_path: str
    store_bytes: int
    leaving: Leaving | None
    requests_open: int
    interrupted: tuple[str, ...]
    kept_beside: dict[str, str]
    roots: tuple[RootStatus, ...]
    held_back: dict[str, str]
    databases: tuple[DatabaseStatus, ...]
    homes: tuple[UnusedHome, ...]
    loads: Loads = NO_LOADS
    tokens_saved: int = 0
    turns_archived: int = 0
    runs: tuple[Run, ...] = ()
    failures: tuple[Event, ...] = ()


def status(settings: Settings, store: Store | None, now: float) -> Status:
    """Return the status. Writes nothing."""
    seen = walk(settings, store)
    listed = summaries(settings, store, seen.sessions, now)
    last = store.facts.last_run_at() if store else None
    kept = (store.facts.get("retention") if store else None) or {}
    pid = daemon_holder(settings.state_dir)
    rewrites = store.journal.open_rewrites() if store else []
    runs = store.runs.newest(_NEWEST) if store else []
    return Status(
        enabled=settings.enabled,
        daemon_pid=pid,
        last_run_at=last,
        next_run_at=_next(scan_trigger(settings), last, now) if pid else None,
        last_retention_run_at=store.facts.get("last_retention_run_at") if store else None,
        next_retention_run_at=_next(cron_trigger(settings.retention_cron), None, now)
        if pid and settings.retention_cron
        else None,
        sessions_by_state=dict(Counter(item.state for item in listed)),
        reasons=dict(Counter(item.reason for item in listed if item.state != "idle")),
        values_extracted=sum(item.extracted for item in listed),
        bytes_saved=sum(item.saved for item in listed),
        store_path=settings.state_dir,
        store_bytes=store.size if store else 0,
        leaving=_leaving(settings, store, now, kept.get("held_back", {})) if store else None,
        requests_open=store.requests.count_open() if store else 0,
        interrupted=tuple(rewrite.path for rewrite in rewrites if not rewrite.stays),
        kept_beside={rewrite.beside: rewrite.stays for rewrite in rewrites if rewrite.stays},
        roots=tuple(_roots(settings, seen)),
        held_back=dict(kept.get("held_back", {})),
        databases=tuple(describe_databases(settings)),
        homes=tuple(unused_homes(settings)),
        loads=store.calibrations.loads() if store else NO_LOADS,
        tokens_saved=store.sums.tokens() if store else 0,
        turns_archived=store.sums.archived() if store else 0,
        runs=tuple(runs),
        failures=tuple(_failures(store, runs, now) if store else ()),
    )


def _failures(store: Store, runs: list[Run], now: float) -> list[Event]:
    since = min([now - DAY, *(run.at for run in runs)])
    listed = store.events.after(store.events.before(since), kinds=("failure", "lapse"))
    return [
        event for event in listed
        if event.kind == "failure" or event.facts.get("action") == "relieve"
    ][-_NEWEST:]  # fmt: skip


def _next(trigger: object, last: float | None, now: float) -> float | None:
    previous = None if last is None else datetime.fromtimestamp(last, UTC)
    fire = trigger.get_next_fire_time(previous, datetime.fromtimestamp(now, UTC))  # type: ignore[attr-defined]
    return None if fire is None else float(fire.timestamp())


def _leaving(
    settings: Settings, store: Store, now: float, held_back: Iterable[str]
) -> Leaving | None:
    kept = settings.retention_standing
    if kept is None:
        return None
    missing = store.expiry.out_of_sight(now + NOTICE - kept, held_back)
    return None if missing is None else Leaving(missing[0], missing[1] + kept)


def _roots(settings: Settings, seen: Walk) -> list[RootStatus]:
    problems = {
        problem.root:
            problem.why if problem.path == problem.root else f"{problem.path}: {problem.why}"
        for problem in seen.problems
    }  # fmt: skip
    listed = []
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        files = [item.file for item in seen.sessions if item.file and item.file.root == path]
        protocol = _protocol(root, [file for file in files if not file.in_database])
        listed.append(RootStatus(path, len(files), protocol, problems.get(path)))
    return listed


def _protocol(root: Root, files: list[SessionFile]) -> str:
    """Return how files are replaced below a root, from its file system and a short test lease."""
    with suppress(OSError):
        unproven = leases.unproven_at(root.path)
        if unproven and not root.exclusive:
            return f"nothing: leases prove nothing on {unproven}"
    for file in files[:10]:
        try:
            with open_session(file) as session:
                if leases.supported(session.descriptor):
                    return "leases"
                return "comparing" if root.exclusive else "nothing: no lease can be had"
        except (OSError, RefusedError):
            continue
    return "unknown: no sessions in files yet"


@dataclass(frozen=True, slots=True)
class Check:
    """The problems of a status; `age` is the age of the last run in seconds."""

    troubles: tuple[str, ...]
    age: float | None


def check(now: Status, moment: float, *, max_age: float) -> Check:
    """Return the problems of a status; the last run must not be older than `max_age` seconds."""
    age = None if now.last_run_at is None else max(0.0, moment - now.last_run_at)
    troubles = [] if now.enabled else ["nothing is extracted: enabled = false"]
    if age is None:
        troubles.append("no run was ever made")
    elif age > max_age:
        troubles.append(f"the last run was {lasting(age)} ago")
    troubles += [
        f"{counted(number, 'session')} {state}"
        for state in ("failed", "unreadable")
        if (number := now.sessions_by_state.get(state, 0))
    ]
    troubles += [f"{root.path}: {root.problem}" for root in now.roots if root.problem]
    troubles += [
        counted(len(listed), singular, plural)
        for listed, singular, plural in (
            (now.interrupted, "interrupted rewrite", "interrupted rewrites"),
            (now.kept_beside, "original file beside its session", "original files beside sessions"),
            (now.held_back, "root where nothing expires", "roots where nothing expires"),
        )
        if listed
    ]
    if now.leaving:
        troubles.append(leaving(now.leaving))
    left = database.free(now.store_path)
    if left is not None and left < database.SCARCE:
        troubles.append(f"{left:,} bytes of disk are left for the store")
    return Check(tuple(troubles), age)


def leaving(soon: Leaving) -> str:
    """Return the message about values of missing sessions that expire soon."""
    day = datetime.fromtimestamp(soon.expires_at, UTC).date()
    values = counted(soon.values, "value")
    return f"{values} of sessions that are out of sight expire from {day} (UTC) on"


def lasting(seconds: float) -> str:
    """Format a duration in its largest unit, as a whole number: 12 s, 3 min, 5 h, 2 d."""
    for size, unit in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


_SHOWN = {AGAIN: "deferred", WAITS: "deferred"}


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name without prefix, its help text `says`, and its samples with labels."""

    name: str
    kind: Literal["counter", "gauge"]
    says: str
    samples: tuple[tuple[dict[str, str], float], ...]


def metrics(
    settings: Settings, store: Store | None, report: ScanReport | None = None
) -> list[Metric]:  # fmt: skip
    """Return the metrics of the store, and of the run in `report`, if there was one."""
    listed = [_one("enabled", "Whether anything may be extracted.", settings.enabled)]
    if store:
        listed += _of_store(store)
    return listed + (_of_run(report) if report else [])


def _of_store(store: Store) -> list[Metric]:
    values, size = store.sums.standing()
    files: Counter[str] = Counter()
    for outcome, number in store.sums.outcomes():
        if outcome != DATABASE:
            files[_SHOWN.get(outcome, outcome)] += number
    listed = [
        Metric("extractions_total", "counter", "Values that were ever extracted.",
               (({}, store.sums.ever()),)),
        _one("extracted_values", "Values that stand extracted.", values),
        _one("extracted_bytes", "Size of the values that stand extracted.", size),
        _one("archived_turns", "Archives of turns that stand.", store.sums.archived()),
        _one("store_bytes", "Size of the store's database.", store.size),
        _one("requests", "Restores and settings that wait for an idle session.",
             store.requests.count_open()),
        _one("interrupted_rewrites", "Rewrites that the next run finishes or undoes.",
             sum(not rewrite.stays for rewrite in store.journal.open_rewrites())),
        Metric("sessions", "gauge", "Sessions by what the last look at them came to.",
               tuple(({"outcome": name}, number) for name, number in sorted(files.items()))),
    ]  # fmt: skip
    moments = (
        ("last_run", "whole run", store.facts.last_run_at()),
        ("last_retention", "retention run", store.facts.get("last_retention_run_at")),
    )
    for name, what, at in moments:
        if at is not None:
            says = f"When the last {what} was made, in seconds since 1970."
            listed.append(_one(f"{name}_timestamp_seconds", says, at))
    return listed


def _of_run(report: ScanReport) -> list[Metric]:
    return [
        _one("last_run_duration_seconds", "How long the last run took.", report.duration_seconds),
        _one("last_run_sessions_seen", "Sessions that the last run saw.", report.files_seen),
        _one("last_run_sessions_changed", "Sessions that it changed.", report.sessions_changed),
        _one("last_run_sessions_deferred", "Sessions that it deferred.", report.files_deferred),
        _one("last_run_sessions_failed", "Sessions with which something went wrong in it.",
             report.files_failed),
        _one("last_run_unreadable_places", "Places that it could not look into.",
             sum(problem.failed for problem in report.problems)),
    ]  # fmt: skip


def _one(name: str, says: str, value: float) -> Metric:
    return Metric(name, "gauge", says, (({}, float(value)),))
