"""The results of commands, to be printed as text or JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

from msgspec import Struct, field

from brainsurgeon.model.plans import Amount, Amounts, Decision, Outcome, Plan
from brainsurgeon.model.records import Extraction, Request
from brainsurgeon.model.session_files import SessionFile, Unreadable
from brainsurgeon.model.turns import (
    ArchiveRecord,
    Compaction,
    Fullness,
    LoadChange,
    ModelCall,
    Verdict,
)

DISABLED = "nothing is extracted: enabled = false in the configuration"


class DatabaseStatus(Struct, frozen=True):
    agent: str
    title: str  # of the program to which the agent belongs
    path: str
    program: str | None  # the version of the program that wrote it
    layout: int | None
    left_alone: str | None  # why nothing is extracted from this database
    note: str  # about all databases of the program, for the user
    differences: tuple[str, ...] = ()  # from the known layouts: a name and its definition each


class ScannedFiles(Struct):
    dry_run: bool  # if true, the numbers are predictions
    enabled: bool = True
    files_seen: int = 0
    files_unchanged: int = 0
    files_scanned: int = 0
    files_deferred: int = 0
    files_failed: int = 0


class ScanTotals(ScannedFiles):
    sessions_changed: int = 0
    entries_extracted: int = 0
    values_extracted: int = 0
    values_restored: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    bytes_stored: int = 0
    duration_seconds: float = 0.0

    def count(self, outcome: Outcome) -> None:
        self.files_scanned += outcome.plan is not None
        self.files_deferred += outcome.outcome == "deferred"
        self.files_failed += outcome.outcome == "failed"
        if outcome.outcome == "changed":
            self.sessions_changed += 1
            self.entries_extracted += outcome.executed.entries
            self.values_extracted += len(outcome.executed.values)
            self.values_restored += outcome.executed.values_restored
            self.bytes_before += outcome.bytes_before
            self.bytes_after += outcome.bytes_after
            self.bytes_stored += outcome.bytes_stored


class ScanReport(ScanTotals):
    sessions: list[Outcome] = field(default_factory=list)
    files_skipped_before: int = 0  # changed now, but left alone by the run before
    unreadable: list[Unreadable] = field(default_factory=list)
    recovered: list[Recovery] = field(default_factory=list)  # interrupted rewrites of earlier runs
    interrupted: list[str] = field(default_factory=list)  # rewrites still open after this run
    databases: list[DatabaseStatus] = field(default_factory=list)  # only in a dry run
    stopped: bool = False
    pauses: tuple[Pause, ...] = ()
    # Until the end of the first run:
    homes: list[UnusedHome] = field(default_factory=list)  # that are not scanned
    used_homes: list[FoundHome] = field(default_factory=list)  # that no configuration names

    @property
    def failed(self) -> bool:
        return self.files_failed > 0 or any(problem.failed for problem in self.unreadable)


class Pause(Struct, frozen=True):
    """A time in which scans extract nothing, of all sessions or of one."""

    session: str  # its title; "" for all
    paused_at: float
    ends_at: float | None = None  # None: when it is ended


class FoundHome(Struct, frozen=True):
    agent: str
    path: str
    note: str = ""


class UnusedHome(FoundHome, frozen=True):
    """A directory with sessions that is not below a root."""

    config: str = ""  # lines for the configuration that make the directory a root


class RetentionReport(Struct):
    dry_run: bool  # if true, the numbers are predictions
    values_held: int = 0
    values_deleted: int = 0
    bytes_deleted: int = 0  # of the original values
    blobs_deleted: int = 0
    values_damaged: int = 0
    reasons: dict[str, int] = field(default_factory=dict)  # numbers of expired values, by reason
    held_back: dict[str, str] = field(default_factory=dict)  # why nothing was deleted, by root
    stopped: bool = False


class StoreCopy(Struct, frozen=True):
    """A copy of the store, read again and checked."""

    path: str
    size_bytes: int
    values_held: int


class Recovery(Struct, frozen=True):
    path: str
    what: str


class ShownValues(Struct, frozen=True, omit_defaults=True):
    entry_id: str
    session: str
    # Maps the path of each omitted value to the path of an equal value in `content`.
    same_as: dict[str, str] = field(default_factory=dict)
    missed: tuple[str, ...] = ()  # values that could not be returned, and the reasons
    content: dict[str, Any] = field(default_factory=dict)  # the last field, since it may be long


class RestoreAnswer(ShownValues, frozen=True, kw_only=True):
    pending: bool
    sizes: dict[str, int]
    at: float
    previous: float | None  # the time of an earlier restore
    answer_id: str  # random; the result of the agent's tool call contains it
    redaction: Request | None  # the request to shorten this call later
    insertions_removed: tuple[str, ...] = ()
    why_pending: str = ""
    restored_by: Literal["daemon", "scan --once"] = "scan --once"
    already: bool = False  # the values were restored at `at`, before this call
    others: int = 0  # restored values of other entries
    kept_until: float | None = None  # before this, no scan extracts the values again
    to_agent: bool = False  # the caller runs in a session, which its agent does not read again now
    dry_run: bool = False  # nothing was done

    @property
    def shows_values(self) -> bool:
        return not self.dry_run and self._is_only_copy

    @property
    def _is_only_copy(self) -> bool:
        return self.pending or bool(self.why_pending) or self.to_agent


# The `state` of a session in its agent's archive, which is only read.
IN_ARCHIVE = "archived by its agent"


class Watch(Struct, frozen=True):
    """The functions that a command calls while it works.

    A scan calls `ended` with the outcome of each session, except `unchanged` ones. Without `ended`,
    the report contains these outcomes. A scan of all sessions calls `alive` at most once a minute,
    with the number of sessions that it has looked at and the number of all. A restore of all values
    waits up to `patience` seconds for sessions that are not idle, and calls `waiting` whenever
    their results change.
    """

    progress: Callable[[SessionFile], None] = lambda _: None
    check_stop: Callable[[], None] | None = None  # may raise StoppedError
    ended: Callable[[Outcome], None] | None = None
    alive: Callable[[int, int], None] = lambda _done, _all: None
    waiting: Callable[[list[SessionRestore]], None] = lambda _: None
    patience: float = 0.0


class SessionRestore(Struct, frozen=True):
    """The result of a restore of one session."""

    session: str
    # restored, rolled back, pending, nothing restored, nothing to undo, gone, failed or IN_ARCHIVE
    state: str
    values_restored: int = 0
    insertions_removed: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()  # changes that could not be undone
    reason: str = ""
    note: str = ""  # about signatures in the session
    left: tuple[str, ...] = ()  # entries that still have a placeholder
    signed_left: int = 0  # entries whose signed thinking stays extracted

    @property
    def unfinished(self) -> bool:
        return self.state in ("failed", "pending") or bool(self.left)


class OverfullSession(Struct, frozen=True):
    """A session that is above its threshold after a restore."""

    session: str
    load_tokens: int
    window_tokens: int


class SessionRollback(SessionRestore, frozen=True):
    """The result of a rollback in one session."""

    turns_unarchived: int = 0
    reasons: dict[str, int] = field(default_factory=dict)  # numbers of values, by reason

    @property
    def unfinished(self) -> bool:
        return self.state == "failed" or bool(self.missed)


class RollbackReport(Struct, frozen=True):
    undone: Run
    run_id: int | None  # of the rollback
    sessions: tuple[SessionRollback, ...]


class Relief(LoadChange, frozen=True, kw_only=True):
    session: str
    pending: bool = False
    reason: str = ""  # why the relief is pending or, in a dry run, would be
    went: tuple[Amount, ...] = ()  # extracted values that requests contained before
    stays: tuple[Amount, ...] = ()  # values that requests still contain
    values: int = 0  # all extracted values
    signatures: int = 0  # thinking values extracted because of their signatures
    bytes_before: int = 0
    bytes_after: int = 0
    # Entries with invalid signed thinking: the provider will refuse the next prompt.
    refused: tuple[str, ...] = ()


class Bill(Struct, frozen=True):
    """The cost of the prompts of some calls; `tokens_paid` is the cost in uncached input tokens."""

    tokens_sent: int = 0
    tokens_cached: int = 0
    tokens_paid: int = 0
    cost_dollars: float | None = 0.0  # None if a price is unknown
    # Tokens of reasoning that the provider dropped behind extractions, once each.
    reasoning_lost: int = 0

    def plus(self, other: Bill) -> Bill:
        known = self.cost_dollars is not None and other.cost_dollars is not None
        return Bill(
            self.tokens_sent + other.tokens_sent, self.tokens_cached + other.tokens_cached,
            self.tokens_paid + other.tokens_paid,
            (self.cost_dollars or 0.0) + (other.cost_dollars or 0.0) if known else None,
            self.reasoning_lost + other.reasoning_lost,
        )  # fmt: skip


class ModelCost(Struct, frozen=True):
    model: str | None
    turns_answered: int | None = None  # None if not counted
    calls: int = 0
    tokens_sent: int = 0
    tokens_cached: int = 0
    tokens_answered: int = 0
    cost_dollars: float | None = None  # of the calls with a known price; None if no price is known
    calls_unpriced: int = 0

    def plus(self, calls: int, usage: ModelCall, dollars: float | None) -> ModelCost:
        return ModelCost(
            self.model, self.turns_answered, self.calls + calls, self.tokens_sent + usage.tokens,
            self.tokens_cached + usage.cached, self.tokens_answered + usage.output,
            self.cost_dollars if dollars is None else (self.cost_dollars or 0.0) + dollars,
            self.calls_unpriced + (calls if dollars is None else 0),
        )  # fmt: skip


class SessionCosts(Struct, frozen=True):
    """What the calls of one session cost, and what else its calls say."""

    models: tuple[ModelCost, ...]
    compactions: tuple[Compaction, ...] = ()
    warm_until: float | None = None  # when the provider's cache expires; None without a cache
    subagents: int = 0
    stated: float | None = None  # the cost in dollars that the agent itself recorded
    # Items of reasoning that the provider left out of the last call, as something before changed.
    reasoning_dropped: int = 0


class SessionEstimate(Struct, frozen=True):
    """What one session would have cost by each policy."""

    session: str
    path: str
    calls: int
    policies: dict[str, Bill]


POLICIES = ("raw", "configured", "lean", "cold", "always")


class Estimate(Struct, frozen=True):
    sessions: tuple[SessionEstimate, ...]
    calls: int
    policies: dict[str, Bill]
    sessions_left_out: int = 0  # sessions without an estimate


class FieldAnswer(Struct, frozen=True, omit_defaults=True):
    entry_id: str
    session: str
    extractable: bool | int | None  # None: the field is removed
    pending: bool
    reason: str = ""
    still_extracted: int = 0  # values of the entry that stay extracted


EventKind = Literal[
    "extraction", "restoration", "redaction", "archive", "unarchive", "relief", "rollback",
    "expiry", "lapse", "summary_failed", "signal", "failure",
]  # fmt: skip
# `lapse`: a request was cancelled, since it could not be carried out.
KINDS: tuple[EventKind, ...] = get_args(EventKind)


class Event(Struct, frozen=True):
    id: int
    at: float
    run_id: int | None
    session_id: int | None
    session: str | None
    kind: EventKind
    facts: dict[str, Any]  # without content of the session


class Run(Struct, frozen=True):
    """One run of a command that changed something.

    `facts` are counts: `sessions`; values `extracted`, `redacted`, `restored` and `expired`;
    `fields`; archives `archived` and `unarchived`, with turns `archived_turns` and
    `unarchived_turns`; extracted `chars`; `tokens` that the next requests save. A rollback also has
    `rolls_back`, the id of the run that it undid.
    """

    id: int
    at: float
    command: str
    facts: dict[str, Any] = field(default_factory=dict)


class Tally(Struct, frozen=True):
    kind: str
    tool: str | None
    values_extracted: int
    chars: int
    values_restored: int
    chars_restored: int


class ArchiveAnswer(Struct, frozen=True):
    session: str
    archived: tuple[Verdict, ...]
    kept: tuple[Verdict, ...]
    dry_run: bool = False
    pending: bool = False
    reason: str = ""
    warnings: tuple[str, ...] = ()


class ArchivedTurn(Struct, frozen=True):
    archive: ArchiveRecord
    session: str
    lines: tuple[bytes, ...]
    index: tuple[str, ...]
    entry_ids: tuple[str, ...]  # of the lines


BUDGET = 32_000  # default bytes of results in a report of evidence
# Defaults of the MCP tool: bytes of values in an answer, number of values in a list.
LIMIT, LISTED = 65_536, 50


class EvidenceReport(Struct, frozen=True):
    session: str
    budget_bytes: int
    index: tuple[str, ...]
    evidence: str
    mark: str  # at the beginning of each line in `evidence` that belongs to no result


class ListedArchive(Struct, frozen=True):
    session: str
    archive: ArchiveRecord


class Hit(Struct, frozen=True):
    session: str
    entry_id: str
    path: str
    offset: int  # of the match, in bytes
    preview: str
    held: bool  # the match is in an extracted value, not in the session


class NotSearched(Struct, frozen=True):
    session: str
    reason: str


class Found(Struct, frozen=True):
    hits: list[Hit]
    more: bool  # there are further matches
    not_searched: list[NotSearched]


class SessionSummary(Struct, frozen=True):
    """A session as `sessions` lists it: a line of the table."""

    session: str
    path: str
    format: str | None
    size_bytes: int
    values_extracted: int
    bytes_saved: int
    state: str
    reason: str
    started_by: str | None = None
    agent: str = ""
    changed_at: float | None = None
    bytes_padded: int = 0


OTHER = "other"  # the kind of all that no rule can extract


class Filling(Amount, frozen=True):
    """Values of one kind and tool. Of OTHER, `tool` is the key of the texts, None for the rest."""

    live_chars: int  # characters that requests contain


class Context(Struct, frozen=True):
    session: str
    path: str
    format: str
    size: int
    state: str  # "idle", or why a scan extracts nothing now
    extracted: tuple[Extraction, ...] = ()
    plan: Plan = Plan()
    pays: bool = False  # the plan saves enough for a rewrite
    changed_at: float | None = None  # None if the session's file is gone
    full: Fullness | None = None
    archives: tuple[ArchiveRecord, ...] = ()
    missed_at: float | None = None
    unreached: tuple[Filling, ...] = ()  # long texts that are in no value

    @property
    def waits(self) -> str | None:
        """Why the next scan extracts nothing."""
        if self.state != "idle" or self.plan.deferred:
            return self.plan.deferred or self.state
        return "too little to gain" if self.plan.edits and not self.pays else None

    @property
    def filling(self) -> list[Filling]:
        """Account for every byte of the session, one taken for one character."""
        sums = Amounts()
        for part in self.plan.kept:
            sums.add(part.kind, part.tool, values=part.values, chars=part.chars)
        for removal in self.plan.extracted:
            sums.add(removal.kind, removal.tool, chars=removal.chars)
        unsent = {(amount.kind, amount.tool): amount.chars for amount in self.plan.unsent}
        filled = [
            Filling(kind, tool, values, chars, max(0, chars - unsent.get((kind, tool), 0)))
            for (kind, tool), (values, chars) in sums.items()
        ]
        filled += self.unreached
        rest = self.size - sum(one.chars for one in filled)
        if filled and rest > 0:
            filled.append(Filling(OTHER, None, 0, rest, 0))
        return sorted(filled, key=lambda filling: (-filling.live_chars, -filling.chars))


class Explained(Struct, frozen=True):
    """What a scan does with the values of an entry, and why."""

    session: str
    entry_id: str
    deferred: str | None  # why the next scan extracts nothing of the session
    decisions: list[Decision]


class Replacement(StoreCopy, frozen=True):
    """The replacement of the store by a backup, done or planned."""

    newer: tuple[PlaceholdersLeft, ...]  # extracted values without a record in the backup
    kept_store: str | None = None  # the path of the old store


class Purge(Struct, frozen=True):
    store_path: str
    in_the_way: tuple[PlaceholdersLeft, ...]  # without the store, they could not be restored
    removed: bool = False
    left: tuple[str, ...] = ()  # files that stay in the directory


class Sum(Struct, frozen=True):
    name: str
    number: int
    size: int
    saved: int = 0


class SessionPage(Struct, frozen=True):
    """A session in the HTML report: its summary, and what its page shows."""

    about: SessionSummary
    program: str = ""  # whose session it is: the title of an agent
    models: tuple[ModelCost, ...] = ()
    values: tuple[tuple[Extraction, str | None], ...] = ()  # the largest, with previews
    more: int = 0  # omitted values
    filling: tuple[Sum, ...] = ()
    next_values: int = 0
    next_bytes: int | None = None  # None if the session was not read
    deferred: str = ""  # why nothing is extracted for now, or why the session was not read


class Report(Struct, frozen=True):
    made_at: float
    status: Status
    days: tuple[tuple[int, int, int], ...]  # day (counted from 1970), number and size of values
    agents: tuple[Sum, ...]
    kinds: tuple[Sum, ...]
    tools: tuple[Sum, ...]
    sessions: tuple[SessionPage, ...]  # the largest
    waiting: tuple[SessionSummary, ...]
    unreached: tuple[Sum, ...]  # places where agents keep copies of values outside of sessions
    previews: bool
    estimate: Estimate  # of the largest of these sessions


Level = Literal["ok", "note", "warning", "error"]


class Finding(Struct, frozen=True):
    level: Level
    what: str
    advice: str = ""


class PlaceholdersLeft(Struct, frozen=True):
    session: str
    placeholders: int  # and values extracted without one
    orphans: int  # how many of these have no record
    reason: str = ""
    sure: bool = True  # False if the session could not be read; `note` is then the reason
    values_expired: int = 0  # how many have a record, but no value any more
    left: tuple[str, ...] = ()  # with placeholders, if the session is in its agent's archive


class RootStatus(Struct, frozen=True):
    path: str
    sessions_seen: int
    protocol: str
    problem: str | None


class Expiring(Struct, frozen=True):
    """Values that expire soon although a session may still need them, by the reason for it."""

    reason: str  # MISSING or SILENT of `planning.retention`
    values: int
    expires_at: float  # of the first value
    is_short: bool  # the user set a term below `planning.retention.NOTICE`


TroubleKind = Literal[
    "disabled", "pauses", "programs", "failed_sessions", "blocked_sessions", "roots",
    "interrupted_rewrites", "kept_files", "held_back", "damaged_values", "lost_values",
    "expiring_values", "disks",
]  # fmt: skip


class Trouble(Struct, frozen=True):
    kind: TroubleKind
    what: str
    advice: str = ""
    number: int = 1  # of sessions, values or other things in trouble
    # No alarm: the user's settings want it, or the next run ends it.
    harmless: bool = False


class LostValues(Struct, frozen=True):
    """Placeholders that cannot be restored: their values expired, or are in no or another store."""

    values: int
    sessions: int = 0  # only known without a store


class DaemonStatus(Struct, frozen=True):
    daemon_pid: int | None
    last_run_at: float | None
    next_run_at: float | None
    last_retention_run_at: float | None
    next_retention_run_at: float | None


class StoreStatus(Struct, frozen=True):
    values_extracted: int
    bytes_saved: int
    bytes_padded: int
    store_path: str
    store_size_bytes: int
    expiring: tuple[Expiring, ...]
    values_damaged: int
    values_lost: int  # placeholders without a stored value


class UnfinishedWork(Struct, frozen=True):
    requests_open: int
    interrupted: tuple[str, ...]
    kept_beside: dict[str, str]


class PlacesStatus(Struct, frozen=True):
    roots: tuple[RootStatus, ...]
    held_back: dict[str, str]
    databases: tuple[DatabaseStatus, ...]
    homes: tuple[UnusedHome, ...]


class Loads(Struct, frozen=True):
    sessions_weighed: int = 0
    load_tokens: int = 0
    window_tokens: int = 0
    sessions_too_full: int = 0


class TokensStatus(Struct, frozen=True):
    loads: Loads
    tokens_saved: int  # in the next request of each session
    saved_so_far: Bill  # an estimate for past calls
    models: tuple[ModelCost, ...]  # of the calls that scans read
    turns_archived: int


class Status(Struct, frozen=True):
    enabled: bool
    pauses: tuple[Pause, ...]
    daemon: DaemonStatus
    sessions_by_state: dict[str, int]
    reasons: dict[str, int]
    store: StoreStatus
    unfinished: UnfinishedWork
    places: PlacesStatus
    tokens: TokensStatus
    runs: tuple[Run, ...]
    # The newest three failures and lapsed relief requests, of the last day or since the oldest of
    # the `runs`.
    failures: tuple[Event, ...]
    blocked: dict[str, str]  # why sessions have waited for over a day, by path
    troubles: tuple[Trouble, ...]


class Setting(Struct, frozen=True):
    key: str
    value: str | None  # as TOML, None if it is not set
    source: str


class FoundValues(Struct, frozen=True):
    """Some values of a log."""

    where: str  # their kind, or the path that leads to them
    values: int
    chars: int
    reason: str = ""  # why no rule may extract them, or that no request contains them
    first_line: int = 0  # the number of the first line with one


class LogCheck(Struct, frozen=True):
    """What a format sees in a log."""

    path: str
    format: str
    session_id: str | None
    roles: dict[str, int]  # numbers of entries
    open_turn: str | None
    left_alone: str | None  # why a scan would not change it now
    tool_calls: int
    answered: int  # number of these calls
    found: tuple[FoundValues, ...]
    unreached: tuple[FoundValues, ...]  # long texts to which nothing leads
    unused_keys: tuple[str, ...]  # of the description: they lead to nothing
    faults: tuple[str, ...]


class Metric(Struct, frozen=True):
    name: str
    help_text: str
    value: float | dict[str, int]
    kind: Literal["counter", "gauge"] = "gauge"
    label: str = "outcome"  # of the values in a dictionary


# The target of a step is missing (new), was written by an earlier `init` (ours), needs no change
# (there), or was not written by `init` (other).
State = Literal["new", "ours", "there", "other"]
Command = tuple[str, ...]


class FileStep(Struct, frozen=True):
    what: str
    path: str
    content: str
    state: State
    after: tuple[Command, ...] = ()


class CommandStep(Struct, frozen=True):
    what: str
    command: Command
    undo: Command
    state: State
    agent: str = ""
    server: Command = ()  # the command line in the configuration of `agent`
    path: str = ""  # of a file that the command needs
    shown: str = ""  # what the command does, if it is too long to be read


Step = FileStep | CommandStep


class Offer(Struct, frozen=True):
    """Steps that the user accepts or rejects together."""

    title: str
    steps: tuple[Step, ...]
    asked: bool  # an option requested these steps
    note: str = ""

    @property
    def waiting(self) -> list[Step]:
        return [step for step in self.steps if step.state in ("new", "ours")]


class Done(Struct, frozen=True):
    what: str
    result: str
    left: bool = False  # the target was not changed as intended
