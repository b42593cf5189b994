"""Measure what a monitor keeps: of the store and the last pass, without a look at sessions."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from brainsurgeon.store.table import AGAIN, DATABASE, WAITS

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import ScanReport
    from brainsurgeon.store import Store

_SHOWN = {AGAIN: "deferred", WAITS: "deferred"}


@dataclass(frozen=True, slots=True)
class Metric:
    """One measure: its name without the program's, what it counts, and its samples by a label."""

    name: str
    kind: Literal["counter", "gauge"]
    says: str
    samples: tuple[tuple[dict[str, str], float], ...]


def metrics(
    settings: Settings, store: Store | None, report: ScanReport | None = None
) -> list[Metric]:  # fmt: skip
    """Measure; `report` is the pass that was just made, if one was."""
    found = [_one("enabled", "Whether anything may be extracted.", settings.enabled)]
    if store:
        found += _of_store(store)
    return found + (_of_pass(report) if report else [])


def _of_store(store: Store) -> list[Metric]:
    values, size = store.sums.standing()
    files = Counter(
        _SHOWN.get(outcome, outcome)
        for outcome, number in store.sums.outcomes()
        for _ in range(number)
        if outcome != DATABASE
    )
    found = [
        Metric("extractions_total", "counter", "Values that were ever extracted.",
               (({}, store.sums.ever()),)),
        _one("extracted_values", "Values that stand extracted.", values),
        _one("extracted_bytes", "Size of the values that stand extracted.", size),
        _one("archived_turns", "Archives of turns that stand.", store.sums.archived()),
        _one("store_bytes", "Size of the store's database.", store.size),
        _one("wishes", "Restores and settings that wait for a settled session.",
             store.wishes.count_open()),
        _one("interrupted_rewrites", "Rewrites that the next pass finishes or undoes.",
             sum(not one.stays for one in store.journal.open_rewrites())),
        Metric("sessions", "gauge", "Sessions by what the last look at them came to.",
               tuple(({"outcome": name}, number) for name, number in sorted(files.items()))),
    ]  # fmt: skip
    moments = (
        ("last_pass", "whole pass", store.facts.last_run_at()),
        ("last_retention", "retention run", store.facts.get("last_retention_run_at")),
    )
    for name, what, at in moments:
        if at is not None:
            says = f"When the last {what} was made, in seconds since 1970."
            found.append(_one(f"{name}_timestamp_seconds", says, at))
    return found


def _of_pass(report: ScanReport) -> list[Metric]:
    return [
        _one("last_pass_duration_seconds", "How long the last pass took.", report.duration_seconds),
        _one("last_pass_sessions_seen", "Sessions that the last pass saw.", report.files_seen),
        _one("last_pass_sessions_changed", "Sessions that it changed.", report.sessions_changed),
        _one("last_pass_sessions_deferred", "Sessions that it deferred.", report.files_deferred),
        _one("last_pass_sessions_failed", "Sessions with which something went wrong in it.",
             report.files_failed),
        _one("last_pass_unreadable_places", "Places that it could not look into.",
             sum(problem.failed for problem in report.problems)),
    ]  # fmt: skip


def _one(name: str, says: str, value: float) -> Metric:
    return Metric(name, "gauge", says, (({}, float(value)),))
