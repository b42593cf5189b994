"""Status and metrics."""

import os
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, get_args

from brainsurgeon.agents import (
    FORMATS,
    agent_at,
    databases_of,
    is_database,
)
from brainsurgeon.agents.rows import Database
from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError
from brainsurgeon.files import leases
from brainsurgeon.files.reading import RefusedError, open_session
from brainsurgeon.lookup.sessions import Walk, walk
from brainsurgeon.model import reports
from brainsurgeon.model.reports import DatabaseStatus, Metric, RootStatus, TroubleKind
from brainsurgeon.model.session_files import Root, SessionFile, Unreadable
from brainsurgeon.model.text import lasting
from brainsurgeon.operations.init import unused_homes
from brainsurgeon.operations.pause import pauses
from brainsurgeon.operations.retention import expiring
from brainsurgeon.operations.sessions import summaries
from brainsurgeon.operations.troubles import (
    BLOCKED,
    doubtful_roots,
    held_back,
    lost_values,
    problems_below,
    root_problems,
    troubles,
)
from brainsurgeon.planning.calls import costs_of
from brainsurgeon.schedule import cron_trigger, scan_trigger
from brainsurgeon.sessions.row_listing import items_below, layout_of
from brainsurgeon.store import Store
from brainsurgeon.store.catalogue import AGAIN, DATABASE, IN_MEMORY, WAITS
from brainsurgeon.store.database import daemon_holder

_DAY = 86_400  # seconds
_NEWEST = 3  # runs and failures in a status


def describe_databases(settings: Settings) -> list[DatabaseStatus]:
    items = items_below(settings.root_directories())
    return [status for item in items if (status := _describe(item, settings))]


def _describe(item: Database | Unreadable, settings: Settings) -> DatabaseStatus | None:
    inside, databases = f"{item.path}/", databases_of(item.path)
    agent = agent_at(inside)
    title = agent.title
    if isinstance(item, Unreadable):
        owner = agent.home.owner(inside)
        name = owner.name if owner else os.path.basename(item.path)
        return DatabaseStatus(name, title, item.path, None, None, item.reason, databases.note)
    try:
        schema = layout_of(item)
        if schema.empty:
            return None
        reasons = [
            'databases = "off"' if settings.databases == "off" else None,
            schema.read_only_reason, databases.obstacle(item.path),
        ]  # fmt: skip
    except (OSError, BusyError) as error:
        why = str(getattr(error, "strerror", None) or error)
        return DatabaseStatus(item.agent, title, item.path, None, None, why, databases.note)
    if settings.databases == "auto":
        reasons += (databases.engine(item.path) or ())[:1]
    return DatabaseStatus(
        item.agent, title, item.path, schema.program, schema.version,
        next(filter(None, reasons), None), databases.note, schema.differences,
    )  # fmt: skip


def status(settings: Settings, store: Store, now: float) -> reports.Status:
    """Return the status. Writes nothing."""
    seen = walk(settings, store)
    listed = summaries(settings, store, seen.sessions, now)
    waiting = [item.reason for item in listed if item.state != "idle"]
    last = store.facts.last_run_at()
    pid = daemon_holder(settings.state_dir)
    rewrites, runs = store.interrupted_rewrites(), store.runs.newest(_NEWEST)
    since = min([now - _DAY, *(run.at for run in runs)])
    _, _, archives = store.sums.current()
    logged = store.events.after(store.events.before(since), kinds=("failure", "lapse"))
    failures = [
        event for event in logged
        if event.kind == "failure" or event.facts.get("action") == "relieve"
    ]  # fmt: skip
    lost, soon = lost_values(settings, store), expiring(settings, store, now)
    retention = cron_trigger(settings.retention_cron) if pid and settings.retention_cron else None
    return reports.Status(
        settings.enabled, pauses(store, now).listed(),
        reports.DaemonStatus(
            pid, last, _next(scan_trigger(settings), last, now) if pid else None,
            store.facts.get("last_retention_run_at"),
            _next(retention, None, now) if retention else None,
        ),
        sessions_by_state=dict(Counter(item.state for item in listed)),
        reasons=dict(Counter(waiting)),
        store=reports.StoreStatus(
            values_extracted=sum(item.values_extracted for item in listed),
            bytes_saved=sum(item.bytes_saved for item in listed),
            bytes_padded=sum(item.bytes_padded for item in listed),
            store_path=settings.state_dir, store_size_bytes=store.size, expiring=tuple(soon),
            values_damaged=store.blobs.count_damaged(), values_lost=lost.values,
        ),
        unfinished=reports.UnfinishedWork(
            store.requests.count_open(),
            tuple(rewrite.path for rewrite in rewrites if not rewrite.stays),
            {rewrite.temporary_path: rewrite.stays for rewrite in rewrites if rewrite.stays},
        ),
        places=reports.PlacesStatus(
            tuple(_roots(settings, store, seen)), held_back(store),
            tuple(describe_databases(settings)), tuple(unused_homes(settings)),
        ),
        tokens=reports.TokensStatus(
            store.calibrations.loads(), _tokens_saved(store, seen), store.savings.total(),
            costs_of(store.spending.total(), settings.price_rules()), archives,
        ),
        runs=tuple(runs), failures=tuple(failures[-_NEWEST:]),
        blocked=store.files.blocked(now - BLOCKED),
        troubles=tuple(troubles(settings, store, now, seen.problems, lost, soon)),
    )  # fmt: skip


def _tokens_saved(store: Store, seen: Walk) -> int:
    """Return by how much the next requests are shorter. A session that is gone makes none."""
    totals = store.extractions.totals()
    there = {one.record.id for one in seen.sessions if one.file and one.record}
    return sum(total.tokens for ident, total in totals.items() if ident in there)


def _next(trigger: Any, last: float | None, now: float) -> float | None:
    previous = None if last is None else datetime.fromtimestamp(last, UTC)
    fire = trigger.get_next_fire_time(previous, datetime.fromtimestamp(now, UTC))
    return None if fire is None else float(fire.timestamp())


def _roots(settings: Settings, store: Store, seen: Walk) -> list[RootStatus]:
    problems = root_problems(settings, store, seen.problems)
    listed = []
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        found = [one for one in seen.sessions if one.file and one.file.root == path]
        files = [one.file for one in found if one.file]
        number = sum(not one.goes_on for one in found)
        listed.append(RootStatus(path, number, _protocol(root, files), problems.get(path)))
    return listed


def _protocol(root: Root, files: list[SessionFile]) -> str:
    with suppress(OSError):
        unproven = leases.unproven_at(root.path)
        if unproven and not root.exclusive:
            return f"nothing: leases prove nothing on {unproven}"
    if files and all(file.in_database for file in files):
        return "transactions"
    user = os.geteuid()
    for file in files:  # sessions in a database raise an error
        with suppress(OSError, RefusedError), open_session(file, FORMATS) as session:
            if user not in (0, os.fstat(session.descriptor).st_uid):
                continue  # nobody else can have a lease on it, wherever it is
            if leases.supported(session.descriptor):
                return "leases"
            return "comparing" if root.exclusive else "nothing: no lease can be had"
    return "unknown: no session file that this user owns and can read"


def check(state: reports.Status, now: float, *, max_age: float | None = None) -> list[str]:
    """Return the problems in a status. A last run over `max_age` seconds ago is a problem."""
    old = None if max_age is None else _too_old(state.daemon.last_run_at, now, max_age)
    return [*([old] if old else []), *(one.what for one in state.troubles if not one.harmless)]


def _too_old(last: float | None, now: float, max_age: float) -> str | None:
    if last is None:
        return "no full scan is recorded"
    if now - last > max_age:
        return f"the last run was {lasting(now - last)} ago, more than --max-age {lasting(max_age)}"
    if last - now > max_age:
        ahead = lasting(last - now)
        return f"the last run is recorded {ahead} in the future: the clock was set back since then"
    return None


def metrics(settings: Settings, store: Store) -> list[Metric]:
    now = time.time()
    problems, lost = problems_below(settings, store), lost_values(settings, store)
    soon = expiring(settings, store, now)
    numbers = dict.fromkeys(get_args(TroubleKind), 0)
    for trouble in troubles(settings, store, now, problems, lost, soon):
        numbers[trouble.kind] += 0 if trouble.harmless else trouble.number
    databases = [place for place in problems if is_database(place.path)]
    return [
        Metric("enabled", "Whether anything may be extracted.", settings.enabled),
        Metric("troubles", "The troubles that `status --check` names.", numbers, label="trouble"),
        Metric("lost_values", "Placeholders in sessions whose value is not in the store.",
               lost.values),
        Metric("expiring_values", "Values that expire within a week although they may be wanted.",
               numbers["expiring_values"]),
        Metric("doubtful_roots", "Roots that are empty, unreadable, missing or a symbolic link.",
               len(doubtful_roots(settings))),
        Metric("unreadable_databases", "Databases of agents that cannot be read.", len(databases)),
        *(_of_store(store, now) if store.exists else ()),
    ]  # fmt: skip


def _of_store(store: Store, now: float) -> list[Metric]:
    values, size, archives = store.sums.current()
    interrupted = sum(not rewrite.stays for rewrite in store.interrupted_rewrites())
    files: Counter[str] = Counter()
    for outcome, number in store.sums.outcomes():
        if outcome != DATABASE:
            waits = outcome in (AGAIN, WAITS, IN_MEMORY)
            files["deferred" if waits else outcome] += number
    return [
        Metric("extractions_total", "Values that were ever extracted.", store.sums.ever(),
               "counter"),
        Metric("extracted_values", "Values that are currently extracted.", values),
        Metric("extracted_bytes", "Size of the currently extracted values.", size),
        Metric("damaged_values", "Stored values that were found to be damaged.",
               store.blobs.count_damaged()),
        Metric("archived_turns", "Archives of turns in sessions.", archives),
        Metric("store_bytes", "Size of the store's database.", store.size),
        Metric("requests", "Requests that wait until their sessions are idle.",
               store.requests.count_open()),
        Metric("blocked_sessions", "Sessions that have waited unchanged for more than a day.",
               len(store.files.blocked(now - BLOCKED))),
        Metric("interrupted_rewrites", "Rewrites to be finished or undone by the next run.",
               interrupted),
        Metric("sessions", "Sessions by the result of their last scan.",
               dict(sorted(files.items()))),
        *(
            Metric(f"{name}_timestamp_seconds",
                   f"Time of the last {run}, in seconds since 1970.", at)
            for name, run, at in (
                ("last_run", "run over all sessions", store.facts.last_run_at()),
                ("last_retention", "retention run", store.facts.get("last_retention_run_at")),
            ) if at is not None
        ),
    ]  # fmt: skip
