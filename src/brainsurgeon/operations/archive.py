"""Archive turns of a session regardless of the thresholds, and list existing archives."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import FailedError, UsageError
from brainsurgeon.lookup.catalogue import note
from brainsurgeon.lookup.sessions import all_sessions, file_of, session_named
from brainsurgeon.operations.scan import scan
from brainsurgeon.planning.turns import without_thresholds
from brainsurgeon.rewrite.budget import folding_of
from brainsurgeon.rewrite.inspect import examine_to_show, excluded, records_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.records import Records
    from brainsurgeon.model.reports import ScanReport
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.model.turns import ArchiveRecord, Verdict
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.store import Store


NOTHING_FOLDED = "none of them could be folded now"
ALREADY = "archived already"


@dataclass(frozen=True, slots=True)
class ArchiveAnswer:
    """The turns that were archived, and the turns that were not, each with the reason.

    With `pending` the session is not idle: the request is recorded. `reason` is why it waits.
    """

    session: str
    archived: tuple[Verdict, ...]
    kept: tuple[Verdict, ...]
    dry_run: bool
    pending: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StandingArchive:
    session: str
    archive: ArchiveRecord


def archive(
    settings: Settings, store: Store | None, session: str | Session, *,
    clock: Callable[[], float], turns: tuple[int, int] | None = None,
    note_said: str | None = None, dry_run: bool = False,
) -> ArchiveAnswer:  # fmt: skip
    """Archive the turns of a session, or those between two numbers, whatever their size.

    `note_said` is the outcome to record for the last of them. If the session is not idle, the
    request is recorded and a later scan carries it out. Without a store nothing is written and
    only the file is read. Raises NotFoundError or AmbiguousError for the session, FailedError if
    its turns cannot be archived, UsageError for turn numbers that do not exist.
    """
    chosen = session_named(settings, store, session)
    file, now = file_of(chosen), clock()
    _check_may_fold(settings, chosen.title, file)
    state = store.files.at(file.path) if store else None
    with examine_to_show(settings, file, state, now) as examined:
        records = records_of(settings, store, examined.session, chosen.record, now)
        listed = _turns(examined, records)
        numbers = {verdict.turn.number for verdict in listed}
        first, last = turns or (1, max(numbers, default=0))
        if turns and first > last:
            raise UsageError(f"--turns: {first}..{last}: wants the earlier turn first")
        if turns and not (first in numbers and last in numbers):
            raise UsageError(f"--turns: the turns of this session are 1..{max(numbers, default=0)}")
        meant = [verdict for verdict in listed if first <= verdict.turn.number <= last]
        asked: dict[str, str | None] = {
            verdict.turn.prompt_id: None for verdict in meant if verdict.folds
        }
        if asked and note_said is not None:
            asked[next(reversed(asked))] = note_said
        kept = tuple(verdict for verdict in meant if not verdict.folds)
        folds = tuple(verdict for verdict in meant if verdict.folds)
        if store is None or dry_run or not asked:
            return ArchiveAnswer(chosen.title, folds, kept, dry_run)
        noted = note(store, examined.session)
        with store.transaction():
            for prompt_id, text in asked.items():
                store.archives.ask(noted.id, prompt_id, text, now)
    report = scan(settings, store, clock=clock, only=[file.path], named=True, command="archive")
    return _answer(chosen.title, report, asked, meant)


def _check_may_fold(settings: Settings, title: str, file: SessionFile) -> None:
    """Raise FailedError if no turn of the session can be archived."""
    if not settings.enabled:
        raise FailedError(f"{title}: nothing folds while enabled = false")
    if file.in_database:
        raise FailedError(f"{title}: sessions in a database have no form for archives")
    if why := excluded(file, settings, asked=True):
        raise FailedError(f"{title}: {why}; its file was left as it is")


def _turns(examined: Examination, records: Records) -> list[Verdict]:
    """Return a verdict for each live turn, as if all of them had been requested."""
    asking = without_thresholds(examined.settings.archive_rules())
    folding = replace(folding_of(examined, records, asking), beyond=0)
    planned = examined.plan(records, folding=folding)
    return [_said(verdict) for verdict in planned.turns if verdict.turn.dead is None]


def _said(verdict: Verdict) -> Verdict:
    """Replace the reason of a verdict by the one that concerns a request."""
    if verdict.folds:
        return replace(verdict, reason="asked for")
    empty = verdict.turn.depth and not verdict.turn.middle
    return replace(verdict, reason=ALREADY) if empty else verdict


def _answer(
    title: str, report: ScanReport, asked: Collection[str], meant: list[Verdict]
) -> ArchiveAnswer:
    """Return the answer after a run over the session: which of the turns were archived."""
    kept = tuple(verdict for verdict in meant if verdict.turn.prompt_id not in asked)
    for outcome in report.sessions:
        if outcome.outcome in ("skipped", "failed"):
            raise FailedError(f"{title}: {outcome.reason}; its file was left as it is")
        if outcome.outcome == "deferred" or outcome.plan is None:
            reason = outcome.reason
            return ArchiveAnswer(title, (), kept, dry_run=False, pending=True, reason=reason)
        # The verdicts of the run on turns that were not requested depend on the thresholds.
        of_run = {
            verdict.turn.prompt_id: verdict
            for verdict in outcome.plan.turns if verdict.turn.prompt_id in asked
        }  # fmt: skip
        done = [of_run.get(verdict.turn.prompt_id, verdict) for verdict in meant]
        changed = outcome.outcome == "changed"
        return ArchiveAnswer(
            title, tuple(verdict for verdict in done if verdict.folds and changed),
            tuple(verdict for verdict in done if not (verdict.folds and changed)), dry_run=False,
        )  # fmt: skip
    return ArchiveAnswer(
        title, (), tuple(meant), dry_run=False, pending=True, reason=NOTHING_FOLDED
    )


def done(
    settings: Settings, store: Store, session: Session, text: str, clock: Callable[[], float]
) -> str:
    """Record that the task of a session's last turn is done; return the id of the turn's prompt.

    The turn is archived as soon as possible, with the text as its outcome.
    """
    file, now = file_of(session), clock()
    _check_may_fold(settings, session.title, file)
    with examine_to_show(settings, file, store.files.at(file.path), now) as examined:
        records = records_of(settings, store, examined.session, session.record, now)
        listed = _turns(examined, records)
        if not listed or not listed[-1].turn.prompt_id:
            raise UsageError("this session has no turn that could be closed")
        prompt_id = listed[-1].turn.prompt_id
        noted = note(store, examined.session)
        with store.transaction():
            store.archives.ask(noted.id, prompt_id, text, now)
    return prompt_id


def archives(
    settings: Settings, store: Store | None, session: str | Session | None = None,
    among: Collection[Session] | None = None,
) -> list[StandingArchive]:  # fmt: skip
    """List the archives in a session, or in all (`among` limits these), oldest first."""
    if store is None:
        return []
    if session:
        listed = [session_named(settings, store, session)]
    else:
        listed = list(among) if among is not None else all_sessions(settings, store)
    return [
        StandingArchive(item.title, record)
        for item in listed if item.record
        for record in store.archives.standing(item.record.id)
    ]  # fmt: skip
