"""How things stand: last and next runs, sessions by state, savings, the store, what blocks."""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from brainsurgeon.decide.retention import NOTICE
from brainsurgeon.lookup.homes import unused_homes
from brainsurgeon.lookup.sessions import walk
from brainsurgeon.model.loads import NO_LOADS, Loads
from brainsurgeon.operations.databases import describe_databases
from brainsurgeon.operations.sessions import summaries
from brainsurgeon.schedule import cron_trigger, scan_trigger
from brainsurgeon.sessions import filesystems, leases
from brainsurgeon.sessions.reading import RefusedError, open_session
from brainsurgeon.store.daemon_lock import daemon_holder

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Walk
    from brainsurgeon.model.events import Event, Pass
    from brainsurgeon.model.reports import DatabaseStatus, UnusedHome
    from brainsurgeon.model.sessions import Root, SessionFile
    from brainsurgeon.store import Store

_NEWEST = 3
"""Passes and failures that are shown."""
_DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class RootStatus:
    """One root: how many sessions, how files are replaced there, and what is wrong with it."""

    path: str
    sessions: int
    protocol: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class Leaving:
    """Values that expire within a week since their sessions are out of sight, and from when on."""

    values: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class Status:
    """Everything `status` shows; moments are seconds since 1970, None where unknown.

    `tokens_saved` is an estimate. `passes` are the newest, and `failures` those since the oldest
    of them, or of the last day where that is longer, with the reliefs that lapsed; the newest last.
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
    wishes_open: int
    interrupted: tuple[str, ...]
    kept_beside: dict[str, str]
    roots: tuple[RootStatus, ...]
    held_back: dict[str, str]
    databases: tuple[DatabaseStatus, ...]
    homes: tuple[UnusedHome, ...]
    loads: Loads = NO_LOADS
    tokens_saved: int = 0
    turns_archived: int = 0
    passes: tuple[Pass, ...] = ()
    failures: tuple[Event, ...] = ()


def status(settings: Settings, store: Store | None, now: float) -> Status:
    """Look at everything and touch nothing."""
    seen = walk(settings, store)
    listed = summaries(settings, store, seen.sessions, now)
    last = store.facts.last_run_at() if store else None
    kept = (store.facts.get("retention") if store else None) or {}
    pid = daemon_holder(settings.state_dir)
    rewrites = store.journal.open_rewrites() if store else []
    passes = store.passes.newest(_NEWEST) if store else []
    return Status(
        enabled=settings.enabled,
        daemon_pid=pid,
        last_run_at=last,
        next_run_at=_next(scan_trigger(settings), last, now) if pid else None,
        last_retention_run_at=store.facts.get("last_retention_run_at") if store else None,
        next_retention_run_at=_next(cron_trigger(settings.retention_cron), None, now)
        if pid and settings.retention_cron
        else None,
        sessions_by_state=dict(Counter(one.state for one in listed)),
        reasons=dict(Counter(one.reason for one in listed if one.state != "settled")),
        values_extracted=sum(one.extracted for one in listed),
        bytes_saved=sum(one.saved for one in listed),
        store_path=settings.state_dir,
        store_bytes=store.size if store else 0,
        leaving=_leaving(settings, store, now) if store else None,
        wishes_open=store.wishes.count_open() if store else 0,
        interrupted=tuple(one.path for one in rewrites if not one.stays),
        kept_beside={one.beside: one.stays for one in rewrites if one.stays},
        roots=tuple(_roots(settings, seen)),
        held_back=dict(kept.get("held_back", {})),
        databases=tuple(describe_databases(settings)),
        homes=tuple(unused_homes(settings)),
        loads=store.calibrations.loads() if store else NO_LOADS,
        tokens_saved=store.sums.tokens() if store else 0,
        turns_archived=store.sums.archived() if store else 0,
        passes=tuple(passes),
        failures=tuple(_failures(store, passes, now) if store else ()),
    )


def _failures(store: Store, passes: list[Pass], now: float) -> list[Event]:
    since = min([now - _DAY, *(one.at for one in passes)])
    found = store.events.after(store.events.before(since), kinds=("failure", "lapse"))
    told = (one for one in found if one.kind == "failure" or one.facts.get("action") == "relieve")
    return list(told)[-_NEWEST:]


def _next(trigger: object, last: float | None, now: float) -> float | None:
    previous = None if last is None else datetime.fromtimestamp(last, UTC)
    fire = trigger.get_next_fire_time(previous, datetime.fromtimestamp(now, UTC))  # type: ignore[attr-defined]
    return None if fire is None else float(fire.timestamp())


def _leaving(settings: Settings, store: Store, now: float) -> Leaving | None:
    kept = settings.retention_standing
    found = None if kept is None else store.expiry.out_of_sight(now + NOTICE - kept)
    return None if found is None or kept is None else Leaving(found[0], found[1] + kept)


def _roots(settings: Settings, seen: Walk) -> list[RootStatus]:
    problems = {
        one.root: one.why if one.path == one.root else f"{one.path}: {one.why}"
        for one in seen.problems
    }
    listed = []
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        here = [one.file for one in seen.sessions if one.file and one.file.root == path]
        protocol = _protocol(root, [file for file in here if not file.in_database])
        listed.append(RootStatus(
            path, len(here), protocol, problems.get(path),
        ))  # fmt: skip
    return listed


def _protocol(root: Root, files: list[SessionFile]) -> str:
    """Tell how files are replaced below a root: by its filesystem, and a lease for an instant."""
    with suppress(OSError):
        unproven = filesystems.unproven_at(root.path)
        if unproven and not root.exclusive:
            return f"nothing: leases prove nothing on {unproven}"
    for one in files[:10]:
        try:
            with open_session(one) as session:
                return "leases" if leases.supported(session.descriptor) else "a day of quiet"
        except (OSError, RefusedError):
            continue
    return "unknown: no sessions in files yet"
