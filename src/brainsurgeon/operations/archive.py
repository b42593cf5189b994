"""Fold turns of a session now, thresholds aside; list the archives that stand."""

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
    """What became of the turns that were to fold: those that did, and why others did not.

    `pending` says that the session is not settled, so that what was asked for is noted, with the
    `reason`.
    """

    session: str
    archived: tuple[Verdict, ...]
    kept: tuple[Verdict, ...]
    dry_run: bool
    pending: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StandingArchive:
    """An archive that stands in a session."""

    session: str
    archive: ArchiveRecord


def archive(
    settings: Settings, store: Store | None, session: str | Session, *,
    clock: Callable[[], float], turns: tuple[int, int] | None = None,
    note_said: str | None = None, dry_run: bool = False,
) -> ArchiveAnswer:  # fmt: skip
    """Fold the turns of a session, or those between two numbers, whatever their size.

    `note_said` is what is told of the last of them. In a session that is not settled it is noted,
    and a later scan carries it out. Without a store, which a look can do without, nothing is known
    of the session. Raise NotFoundError or AmbiguousError for the session, FailedError where its
    turns never fold, UsageError for numbers that no turn has.
    """
    chosen = session_named(settings, store, session) if isinstance(session, str) else session
    file, now = file_of(chosen), clock()
    _check_may_fold(settings, chosen.title, file)
    state = store.files.at(file.path) if store else None
    with examine_to_show(settings, file, state, now) as one:
        records = records_of(settings, store, one.session, chosen.record, now)
        listed = _turns(one, records)
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
        noted = note(store, one.session)
        with store.transaction():
            for prompt_id, said in asked.items():
                store.archives.ask(noted.id, prompt_id, said, now)
    report = scan(settings, store, clock=clock, only=[file.path], named=True, command="archive")
    return _answer(chosen.title, report, asked, meant)


def _check_may_fold(settings: Settings, title: str, file: SessionFile) -> None:
    """Raise FailedError where nothing folds, whatever is asked for."""
    if not settings.enabled:
        raise FailedError(f"{title}: nothing folds while enabled = false")
    if file.in_database:
        raise FailedError(f"{title}: sessions in a database have no form for archives")
    if why := excluded(file, settings, asked=True):
        raise FailedError(f"{title}: {why}; its file was left as it is")


def _turns(one: Examination, records: Records) -> list[Verdict]:
    """Decide about the turns of a session as if each had been asked for; dead ones are left out."""
    asking = without_thresholds(one.settings.archive_rules())
    folding = replace(folding_of(one, records, asking), beyond=0)
    planned = one.plan(records, folding=folding)
    return [_said(verdict) for verdict in planned.turns if verdict.turn.dead is None]


def _said(verdict: Verdict) -> Verdict:
    """Give the reason that matters to whoever asked for a turn to fold."""
    if verdict.folds:
        return replace(verdict, reason="asked for")
    empty = verdict.turn.depth and not verdict.turn.middle
    return replace(verdict, reason=ALREADY) if empty else verdict


def _answer(
    title: str, report: ScanReport, asked: Collection[str], meant: list[Verdict]
) -> ArchiveAnswer:
    """Say what came of a pass over the one session: which of the turns folded indeed."""
    kept = tuple(verdict for verdict in meant if verdict.turn.prompt_id not in asked)
    for outcome in report.sessions:
        if outcome.outcome in ("skipped", "failed"):
            raise FailedError(f"{title}: {outcome.reason}; its file was left as it is")
        if outcome.outcome == "deferred" or outcome.plan is None:
            reason = outcome.reason
            return ArchiveAnswer(title, (), kept, dry_run=False, pending=True, reason=reason)
        came = {
            one.turn.prompt_id: one for one in outcome.plan.turns if one.turn.prompt_id in asked
        }  # of a turn that was not asked for the pass says what its own thresholds do
        done = [came.get(one.turn.prompt_id, one) for one in meant]
        folded = outcome.outcome == "changed"
        return ArchiveAnswer(
            title, tuple(one for one in done if one.folds and folded),
            tuple(one for one in done if not (one.folds and folded)), dry_run=False,
        )  # fmt: skip
    return ArchiveAnswer(
        title, (), tuple(meant), dry_run=False, pending=True, reason=NOTHING_FOLDED
    )


def done(
    settings: Settings, store: Store, session: Session, text: str, clock: Callable[[], float]
) -> str:
    """Note that the agent of a session closes the task of its last turn; give the turn's prompt.

    The turn folds as soon as it may, with the text as its outcome.
    """
    file, now = file_of(session), clock()
    _check_may_fold(settings, session.title, file)
    with examine_to_show(settings, file, store.files.at(file.path), now) as one:
        records = records_of(settings, store, one.session, session.record, now)
        listed = _turns(one, records)
        if not listed or not listed[-1].turn.prompt_id:
            raise UsageError("this session has no turn that could be closed")
        prompt_id = listed[-1].turn.prompt_id
        noted = note(store, one.session)
        with store.transaction():
            store.archives.ask(noted.id, prompt_id, text, now)
    return prompt_id


def archives(
    settings: Settings, store: Store | None, session: str | Session | None = None,
    among: Collection[Session] | None = None,
) -> list[StandingArchive]:  # fmt: skip
    """List the archives that stand in a session, or in all, oldest first."""
    if store is None:
        return []
    if session:
        named = session_named(settings, store, session) if isinstance(session, str) else session
        listed = [named]
    else:
        listed = list(among) if among is not None else all_sessions(settings, store)
    found = []
    for one in listed:
        found += [
            StandingArchive(one.title, archive)
            for archive in (store.archives.standing(one.record.id) if one.record else ())
        ]
    return found
