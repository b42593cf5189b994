"""Look at what was appended to a session, where nothing else can have become due."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.decide.outcome import outcome_of
from brainsurgeon.decide.resume import Frontier
from brainsurgeon.lookup import catalogue
from brainsurgeon.operations.batching import Planned
from brainsurgeon.rewrite.finishing import Rewrite
from brainsurgeon.rewrite.resume import (
    begins_after,
    begins_at,
    examine_grown,
    is_whole_plan,
    records_of_tail,
)
from brainsurgeon.rewrite.untouchable import check_alone
from brainsurgeon.sessions.discover import is_named

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Outcome, Plan
    from brainsurgeon.model.records import FileState, SessionRecord
    from brainsurgeon.model.resume import Resume
    from brainsurgeon.model.sessions import Fingerprint, SessionFile
    from brainsurgeon.rewrite.carry_out import AnyRewrite
    from brainsurgeon.rewrite.examine import Examination
    from brainsurgeon.store import Store
    from brainsurgeon.store.memory import FileMemory


@dataclass(slots=True)
class Look:
    """What came of one session: the outcome, and what to remember of its file."""

    outcome: Outcome
    fingerprint: Fingerprint
    format: str | None = None
    due_at: float | None = None
    again: str | None = None
    """How it is remembered where the next pass looks again although nothing changed."""


def look_at_growth(
    settings: Settings, store: Store, file: SessionFile, state: FileState | None,
    memory: FileMemory, now: float, check_stop: Callable[[], None],
) -> Look | Planned | None:  # fmt: skip
    """Look at the tail of a session in which nothing is asked for; None where that is not enough.

    It is not where the file did more than grow, where older entries are spoken of, and where
    what stands in front may matter to what is to go: then everything has to be looked at. Raise
    UnsettledError or RefusedError where it may not be touched.
    """
    before = store.resumes.at(file.path)
    if before is None or not before.may_go_on(file.fingerprint):
        return None
    if file.hint not in ("auto", before.format):
        return None
    with ExitStack() as held:
        one = held.enter_context(
            examine_grown(settings, file, state, before, memory.rules, now, check_stop)
        )
        if one is None or not is_named(file):
            return None
        record = store.sessions.at(file.path)
        if (record.id if record else None) != before.session_id or (
            record and not catalogue.lies_there(record, file, before.identity)
        ):
            return None
        one.check_turn()
        records = records_of_tail(store, record, one)
        if record and _asked_for(store, record.id):
            return None  # since the pass began
        since = None if one.survey.open_turn else one.survey.since
        remembers = one.habits.remembers
        frontier = Frontier(since, remembers=remembers, stubs=before.stubs)
        planned = one.plan(records, frontier=frontier)
        rules = settings.decision_rules()
        outcome = outcome_of(one.session.file, one.format.name, rules, planned)
        changes = outcome.outcome == "changed"
        if planned.deferred or (changes and not _may_go(one, before, record, planned)):
            return None
        begin = begins_at(one, frontier, planned, record, memory.rules)
        if changes:
            memory.begin_at(file.path, None)
            return Planned(file, one, record, planned, outcome, held.pop_all(), begin)
        catalogue.record_look(store, one.session, record, planned, now)
        memory.begin_at(file.path, begin)
        seen = one.session
        return Look(outcome, seen.fingerprint, one.format.name, planned.due_at)


def _asked_for(store: Store, session_id: int) -> bool:
    """Tell whether something is asked for in a session: of its values, or of its turns."""
    return bool(store.wishes.open_of(session_id)) or store.archives.asked(session_id)


def _may_go(one: Examination, before: Resume, record: SessionRecord | None, planned: Plan) -> bool:
    """Tell whether what is to go may be cut on the word of the tail alone.

    Raise RefusedError where its file may not be replaced.
    """
    check_alone(one.session)
    return record is not None and not one.kept_in_memory() and is_whole_plan(one, before, planned)


def begin_anew(store: Store, planned: Planned, rewrite: AnyRewrite) -> Resume | None:
    """Say where the next look at a session may begin that was just changed."""
    record = store.sessions.at(planned.file.path)
    if planned.begin is None or record is None or not isinstance(rewrite, Rewrite):
        return None
    return begins_after(planned.begin, rewrite, record.id)
