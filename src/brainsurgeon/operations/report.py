"""What a pass saw and did, added up session by session."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.model import Outcome, Plan, Unreadable
    from brainsurgeon.operations.recover import Recovered


@dataclass(slots=True)
class Report:
    """What a pass saw and did; in a dry run, what it would do."""

    dry_run: bool
    files_seen: int = 0
    files_unchanged: int = 0
    files_scanned: int = 0
    files_deferred: int = 0
    files_failed: int = 0
    sessions_changed: int = 0
    entries_extracted: int = 0
    values_extracted: int = 0
    values_restored: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_stored: int = 0
    duration_seconds: float = 0.0
    sessions: list[Outcome] = field(default_factory=list)
    problems: list[Unreadable] = field(default_factory=list)
    recovered: list[Recovered] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    stopped: bool = False

    @property
    def failed(self) -> bool:
        """Tell whether some session or root failed."""
        return self.files_failed > 0 or any(problem.failed for problem in self.problems)

    def count(self, outcome: Outcome) -> None:
        """Add one session's outcome to the figures."""
        self.files_scanned += outcome.seen
        self.files_deferred += outcome.outcome == "deferred"
        self.files_failed += outcome.outcome == "failed"
        if outcome.outcome == "changed":
            self.sessions_changed += 1
            self.entries_extracted += outcome.entries_extracted
            self.values_extracted += outcome.values_extracted
            self.values_restored += outcome.values_restored
            self.bytes_before += outcome.bytes_before
            self.bytes_after += outcome.bytes_after
            self.bytes_stored += outcome.bytes_stored
        if outcome.outcome != "unchanged":
            self.sessions.append(outcome)


def describe(planned: Plan) -> str:
    """Say in a few words what a plan does."""
    done = [
        (len(planned.extracted), "extracted"),
        (len(planned.putbacks), "put back"),
        (len(planned.cuts) - len(planned.extracted), "of the agent's own calls shortened"),
        (len(planned.fields), "fields set or undone"),
    ]
    return ", ".join(f"{count} {what}" for count, what in done if count)
