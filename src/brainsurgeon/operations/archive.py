"""Archive turns of a session regardless of their size; list existing archives."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.errors import FailedError, UsageError
from brainsurgeon.lookup.sessions import Session, all_sessions, file_of, note_record, session_named
from brainsurgeon.model.records import Request
from brainsurgeon.model.reports import ArchiveAnswer, ListedArchive
from brainsurgeon.model.turns import ALREADY, Verdict
from brainsurgeon.operations.scan import Chosen, scan
from brainsurgeon.planning.archiving import without_thresholds
from brainsurgeon.rewrite.inspect import Examination, ExaminationPlanner, examine_to_show, excluded
from brainsurgeon.rewrite.relief import archiving_of
from brainsurgeon.sessions.discovery import failed
from brainsurgeon.store import Store

NONE_ARCHIVED = "no turn could be archived now"


def archive(
    settings: Settings, store: Store, session: str | Session, *, clock: Callable[[], float],
    turns: tuple[int, int] | None = None, note: str | None = None,
) -> ArchiveAnswer:  # fmt: skip
    """Archive turns of any size, or only `turns` (first and last number). The newest turns stay.

    `note` becomes the outcome in the summary of the last archived turn. If the session is not idle,
    a later scan archives the turns. Raises UsageError for wrong numbers, and FailedError if nothing
    may be archived in the session or its file cannot be changed.
    """
    chosen, now = session_named(settings, store, session), clock()
    title = chosen.title
    with _live_turns(settings, store, chosen, now, turns) as (examined, verdicts):
        to_archive = [verdict.prompt_id for verdict in verdicts if verdict.archived]
        if not to_archive:
            return _answer(title, verdicts)
        outcomes: dict[str, str | None] = dict.fromkeys(to_archive)
        outcomes[to_archive[-1]] = note
        _request(store, examined, outcomes, now)
    path = file_of(chosen).path
    report = scan(settings, store, clock=clock, only=Chosen([path], named=True, command="archive"))
    if not report.sessions:
        return ArchiveAnswer(title, (), tuple(verdicts), pending=True, reason=NONE_ARCHIVED)
    outcome = report.sessions[0]
    if outcome.outcome in ("skipped", "failed"):
        raise failed(title, outcome.reason)
    if outcome.outcome == "deferred" or outcome.plan is None:
        kept = tuple(verdict for verdict in verdicts if verdict.prompt_id not in outcomes)
        return ArchiveAnswer(title, (), kept, pending=True, reason=outcome.reason)
    # The run applied the limits in `[archive]` to all other turns.
    of_run = {turn.prompt_id: turn for turn in outcome.plan.turns if turn.prompt_id in outcomes}
    final = [of_run.get(verdict.prompt_id, verdict) for verdict in verdicts]
    answer = _answer(title, final, is_done=outcome.outcome == "changed")
    return replace(answer, warnings=outcome.plan.warnings)


def would_archive(
    settings: Settings, store: Store, session: str | Session, now: float,
    turns: tuple[int, int] | None = None,
) -> ArchiveAnswer:  # fmt: skip
    """Return what `archive` would answer for an idle session."""
    chosen = session_named(settings, store, session)
    with _live_turns(settings, store, chosen, now, turns) as (_, verdicts):
        return replace(_answer(chosen.title, verdicts), dry_run=True)


def _answer(title: str, verdicts: list[Verdict], *, is_done: bool = True) -> ArchiveAnswer:
    return ArchiveAnswer(
        title, tuple(verdict for verdict in verdicts if verdict.archived and is_done),
        tuple(verdict for verdict in verdicts if not (verdict.archived and is_done)),
    )  # fmt: skip


@contextmanager
def _live_turns(
    settings: Settings, store: Store, session: Session, now: float,
    numbers: tuple[int, int] | None = None,
) -> Iterator[tuple[Examination, list[Verdict]]]:  # fmt: skip
    title, file = session.title, file_of(session)
    if not settings.enabled:
        raise FailedError(f"{title}: nothing is archived while enabled = false; set it to true")
    if why := excluded(file, settings):
        raise failed(title, why)
    with examine_to_show(settings, store, file, session.record, now) as examined:
        if examined.form.archives is None:
            why = f"turns of the format {examined.form.name} cannot be archived"
            raise FailedError(f"{title}: {why}; nothing was changed")
        rules = without_thresholds(examined.settings.archive_rules())
        planner = ExaminationPlanner(examined, examined.records)
        turns = planner.plan(replace(archiving_of(planner, rules), most=0)).turns
        live = [_on_request(verdict) for verdict in turns if verdict.dead is None]
        newest = max((verdict.number for verdict in live), default=0)
        first, last = numbers or (1, newest)
        if numbers and first > last:
            raise UsageError(f"--turns: {first}..{last}: name the earlier turn first")
        if numbers and not {first, last} <= {verdict.number for verdict in live}:
            live_turns = f"the turns of this session are 1..{newest}"
            raise UsageError(f"--turns: {live_turns if live else 'this session has no turns'}")
        yield examined, [verdict for verdict in live if first <= verdict.number <= last]


def _on_request(verdict: Verdict) -> Verdict:
    if verdict.archived:
        return replace(verdict, reason="requested")
    return replace(verdict, reason=ALREADY) if verdict.is_archive else verdict


def _request(
    store: Store, examined: Examination, outcomes: dict[str, str | None], now: float
) -> None:
    record = note_record(store, examined.session)
    with store.transaction():
        for prompt_id, outcome in outcomes.items():
            store.requests.add(Request(record.id, "archive", now, prompt_id, value=outcome))


def done(
    settings: Settings, store: Store, session: Session, text: str, clock: Callable[[], float]
) -> str:
    """Request to archive the last turn with the outcome `text`."""
    now = clock()
    with _live_turns(settings, store, session, now) as (examined, verdicts):
        if not verdicts or not verdicts[-1].prompt_id:
            raise UsageError("this session has no turn that could be archived; nothing was changed")
        prompt_id = verdicts[-1].prompt_id
        _request(store, examined, {prompt_id: text}, now)
    return prompt_id


def archives(
    settings: Settings, store: Store, session: str | Session | None = None
) -> list[ListedArchive]:
    """List archives, the oldest of each session first."""
    listed = [session_named(settings, store, session)] if session else all_sessions(settings, store)
    return [
        ListedArchive(item.title, record)
        for item in listed if item.record
        for record in store.archives.contained_in(item.record.id)
    ]  # fmt: skip
