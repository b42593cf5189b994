"""What the verbs answer: what a run saw and did, what became of what was asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from brainsurgeon.model.plans import Amount, Outcome
    from brainsurgeon.model.sessions import Unreadable
    from brainsurgeon.model.turns import Fullness


@dataclass(frozen=True, slots=True)
class DatabaseStatus:
    """A database of an agent: what wrote it, and why it is not written by us (None: it is)."""

    agent: str
    path: str
    program: str | None
    layout: int | None
    left_alone: str | None


@dataclass(slots=True)
class ScanReport:
    """What a run over the sessions saw and did; in a dry run, what it would do.

    `problems` are places that could not be looked into, `recovered` what had been interrupted
    earlier and was dealt with first, `interrupted` what is still unfinished. `fresh` says that the
    run before found extraction enabled, so that a disabled one is news.
    `homes` are named before the first run.
    """

    dry_run: bool
    enabled: bool = True
    fresh: bool = True
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
    recovered: list[Recovery] = field(default_factory=list)
    interrupted: list[str] = field(default_factory=list)
    # The databases that a dry run speaks of.
    databases: list[DatabaseStatus] = field(default_factory=list)
    stopped: bool = False
    homes: list[UnusedHome] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Check whether some session or root failed."""
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


@dataclass(frozen=True, slots=True)
class UnusedHome:
    """Where an agent keeps sessions that no root covers, and the lines that would add them."""

    agent: str
    path: str
    note: str
    config: str


@dataclass(slots=True)
class RetentionReport:
    """What a retention run did; in a dry run, what it would do. Sizes are of the originals.

    `reasons` counts the values that expired under each rule; `held_back` says of roots why nothing
    was deleted that was extracted below them.
    """

    dry_run: bool
    values_held: int = 0
    values_deleted: int = 0
    bytes_deleted: int = 0
    blobs_deleted: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    held_back: dict[str, str] = field(default_factory=dict)
    stopped: bool = False


@dataclass(frozen=True, slots=True)
class StoreCopy:
    """A copy of a store that was read back whole: its size in bytes and how many values it has."""

    path: str
    size: int
    values: int


@dataclass(frozen=True, slots=True)
class Recovery:
    """One interrupted rewrite: which session's, and what became of it."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class RestoreAnswer:
    """The answer to a restore of one entry.

    `pending` says that the file waits to be written, for the reason `why_pending`. `at` is when it
    was restored, `previous` when the entry had been restored before. `already` says that the
    values stood there before, since `at`, so that nothing was done. `content` are the values by
    path. `redacts` says that the call which asked is to be shortened in its session later;
    `answer_id` is random: by it the answer is recognised where it stands in a session. `already`
    says that the values stood there before, since `at`, so that nothing was done; `why_pending`
    why the session is not idle, so that whoever asked may be at work in it. `others` counts
    the values of other entries that went back with it.
    """

    entry_id: str
    session: str
    session_id: int
    pending: bool
    keys: tuple[str, ...]
    sizes: dict[str, int]
    at: float
    previous: float | None
    content: dict[str, Any]
    answer_id: str
    asked_at: float
    same_as: dict[str, str] = field(default_factory=dict)
    insertions_removed: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    why_pending: str = ""
    put_back_by: Literal["daemon", "scan --once"] = "scan --once"
    redacts: bool = False
    already: bool = False
    others: int = 0

    @property
    def delivers(self) -> bool:
        """Check whether the values belong into the answer: who is at work waits for them."""
        return self.pending or bool(self.why_pending)


@dataclass(frozen=True, slots=True)
class SessionRestore:
    """What `--all` did with one session; `note` is what there is to know of its seals.

    `left` names the entries in which a placeholder of ours stays.
    """

    session: str
    state: str
    values: int
    insertions_removed: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    reason: str = ""
    note: str = ""
    left: tuple[str, ...] = ()

    @property
    def unfinished(self) -> bool:
        """Check whether something of ours stays there, or may."""
        return self.state == "failed" or bool(self.left)


@dataclass(frozen=True, slots=True)
class SessionRollback:
    """What a rollback did with one session, or would do.

    `turns` counts the archived turns that came back. `since` counts, by reason, the values that
    were no longer there to be put back; `missed` names what stands there and could not be undone.
    """

    session: str
    state: Literal["rolled back", "pending", "nothing to undo", "gone", "failed"]
    values: int = 0
    turns: int = 0
    insertions_removed: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    since: dict[str, int] = field(default_factory=dict)
    reason: str = ""

    @property
    def unfinished(self) -> bool:
        """Check whether something of the run stays there that was to be undone."""
        return self.state == "failed" or bool(self.missed)


@dataclass(frozen=True, slots=True)
class RollbackReport:
    """What became of a run that was to be undone; `made` is the run that did it, if one did."""

    undone: Run
    made: int | None
    dry_run: bool
    sessions: tuple[SessionRollback, ...]


@dataclass(frozen=True, slots=True)
class Relief:
    """What a relief did to a session, or would do, or that it is `pending` for a `reason`.

    It `fits` where its load afterwards is at most `room` (tokens). `went` and `stays` are the
    values that are sent to a model, `values` counts all that were cut, and `seals` the blocks of
    signed thinking among them that did not fit what stands before them, or no more would.
    """

    session: str
    pending: bool = False
    reason: str = ""
    fits: bool = False
    rounds: int = 0
    room: int = 0
    before: Fullness | None = None
    after: Fullness | None = None
    went: tuple[Amount, ...] = ()
    stays: tuple[Amount, ...] = ()
    values: int = 0
    seals: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


@dataclass(frozen=True, slots=True)
class FieldAnswer:
    """What became of the request to set `_extractable`.

    Carried out, or `pending` for a `reason`.
    """

    entry_id: str
    session: str
    value: bool | int
    pending: bool
    reason: str = ""


EventKind = Literal[
    "extraction", "restoration", "redaction", "archive", "unarchive", "relief", "rollback",
    "expiry", "lapse", "summary_failed", "signal", "failure",
]  # fmt: skip
# Every kind of event there is; a `lapse` is a request that nobody could carry out.
KINDS: tuple[EventKind, ...] = get_args(EventKind)
# What a character is taken for where nothing better is known: an estimate.
TOKENS_PER_CHAR = 0.33


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a session, `session` by its title; `facts` hold no content."""

    id: int
    at: float
    run_id: int | None
    session_id: int | None
    session: str | None
    kind: EventKind
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command that changed something.

    `facts` are the counts of what it did: `sessions`, `extracted`, `redacted`, `restored` and
    `expired` values, `fields`, turns `archived` and `unarchived`, and the `chars` and (estimated)
    `tokens` of what was cut. That of a rollback `rolls_back` another.
    """

    id: int
    at: float
    command: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many values of one kind and tool went and came back, and how long those are."""

    kind: str
    tool: str | None
    extracted: int
    extracted_chars: int
    restored: int
    restored_chars: int
