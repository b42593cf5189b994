"""Go on where the last look at a session ended, if it was only appended to since.

A resumed look opens the file, compares a mark of three times 4 KB, and reads the tail alone: it
costs what was appended and the tail, whatever stands in front. Where something is to go, what
stands in front is searched for the ids of those entries, and otherwise copied as it is by the
kernel: it is never taken apart again, so that the mark decides about no byte of it.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.formats import FORMATS, HEAD_LINES
from brainsurgeon.formats.placeholders import marks_in
from brainsurgeon.lookup import catalogue
from brainsurgeon.model.records import Records
from brainsurgeon.model.sessions import Resume
from brainsurgeon.planning.plan import outcome_of
from brainsurgeon.planning.tail import VERSION, Frontier
from brainsurgeon.rewrite.batch import Planned
from brainsurgeon.rewrite.finish import Rewrite
from brainsurgeon.rewrite.inspect import (
    Examination,
    check_alone,
    check_touchable,
    open_quiet,
    settings_for,
    silence,
)
from brainsurgeon.sessions.discovery import is_named
from brainsurgeon.sessions.late_lines import mark_as_seen, mark_at, mark_of
from brainsurgeon.sessions.reading import OpenSession, stands_before

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Outcome, Plan
    from brainsurgeon.model.records import FileState, SessionRecord
    from brainsurgeon.model.sessions import Fingerprint, SessionFile
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.store import Store
    from brainsurgeon.store.scan_memory import FileMemory


# Bytes of the smallest file of which anything is remembered: a shorter one is read as quickly.
SMALLEST = 1 << 18


# Ids that everybody writes alike as JSON, and that stand in their placeholders: a search finds
# them.
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,128}")
# Ids for which what stands in front is searched; with more, all of it is read as quickly.
_FEW = 8


def frontier_of(one: Examination, records: Records, *, cut: bool) -> Frontier:
    """Return what finds where the next look at a session may begin.

    It cannot be told while something is asked for in it, its turn was given up as abandoned, or
    how full it is as a whole, or what its older turns are, decides about it.
    """
    asked = records.requests or records.to_archive
    told = cut and not (asked or one.survey.open_turn or one.settings.judged_whole)
    return Frontier(one.survey.since if told else None, remembers=one.habits.remembers)


def begins_at(
    one: Examination, frontier: Frontier, planned: Plan, record: SessionRecord | None, rules: str
) -> Resume | None:  # fmt: skip
    """Return where the next look at a session may begin that was looked at and left as it is.

    Where the plan is carried out, `begins_after` says it of what became of it.
    """
    begin, session = frontier.begin(planned), one.session
    if begin is None or planned.deferred or not isinstance(session, OpenSession):
        return None
    (offset, number), size = begin, session.fingerprint.size
    if number <= HEAD_LINES or not pays(offset, size):
        return None
    tail = session.lines_from(offset, number)
    cursor = session.format.survey(tail, one.settings.decision_rules().window).cursor
    if cursor is None:
        return None
    mark = mark_as_seen(session.descriptor, offset, session.fingerprint)
    if mark is None:
        return None
    return Resume(
        session.fingerprint, mark, _under(one, rules), session.format.name, session.identity,
        record.id if record else None, offset, number, cursor,
        frontier.placeholders or bool(planned.sighted),
    )  # fmt: skip


def pays(offset: int, size: int) -> bool:
    """Check whether the tail from an offset is much less work than all of a file of that size."""
    return size >= SMALLEST and 2 * offset >= size


@contextmanager
def examine_grown(
    settings: Settings, file: SessionFile, state: FileState | None, before: Resume, rules: str,
    now: float, check_stop: Callable[[], None],
) -> Iterator[Examination | None]:  # fmt: skip
    """Examine the tail of a session that grew since it was looked at; None where it did not.

    It counts as changed in front of the tail, too, where what was appended says something of
    older entries: then the cursor is another. Raise what `examine_quiet` raises.
    """
    with open_quiet(settings, file, state, now, check_stop) as session:
        check_touchable(session, settings)
        settings = settings_for(settings, file)
        form = FORMATS.get(before.format)
        if (
            form is None
            or settings.judged_whole
            or not (isinstance(session, OpenSession) and _grew(session, before))
        ):
            yield None
            return
        session.go_on(before.offset, before.number, form, before.identity)
        survey = form.survey(session.lines, settings.decision_rules().window)
        one = Examination(settings, session, survey, silence(file, state, now), now)
        same = survey.cursor == before.cursor and _under(one, rules) == before.rules
        yield one if same else None


def records_of_tail(store: Store, record: SessionRecord | None, one: Examination) -> Records:
    """Return what the store says of the entries in the tail of a session."""
    marks = marks_in(one.session.lines, one.format)
    extractions = tuple(store.extractions.named(marks.names))
    alike = store.sessions.alike(one.session.identity)
    if record is None:
        return Records(extractions, alike=alike)
    return Records(
        extractions, alike=alike,
        asked_until=store.requests.newest(record.id),
        fields=tuple(store.fields.of_entries(record.id, marks.entries)),
        restores=store.extractions.restores(record.id),
        own=record.id,
    )  # fmt: skip


def is_whole_plan(one: Examination, before: Resume, planned: Plan) -> bool:
    """Check whether a plan for the tail is what a look at everything would have planned.

    What stands in front decides in two ways only. Where the id of an entry stands twice, nothing
    goes from it, and where its placeholder's text stood before, another one is given out: both
    hold the id. And where the agent remembers what was cut, thinking in front may have to leave,
    too.
    """
    if not isinstance(one.session, OpenSession) or (before.placeholders and one.habits.remembers):
        return False
    ids = {edit.entry_id for edit in planned.edits}
    if not 0 < len(ids) <= _FEW or not all(map(_PLAIN.fullmatch, ids)):
        return False
    return not stands_before(one.session, before.offset, [ident.encode() for ident in ids])


def begins_after(begin: Resume, rewrite: Rewrite, session_id: int | None) -> Resume | None:
    """Return where the next look at a session may begin that was changed behind `begin` alone."""
    seen = rewrite.fingerprint
    mark = mark_at(rewrite.directory, rewrite.name, seen, begin.offset)
    if mark is None:
        return None
    return replace(begin, fingerprint=seen, mark=mark, session_id=session_id, placeholders=True)


def _grew(session: OpenSession, before: Resume) -> bool:
    then = before.fingerprint
    if not before.may_go_on(session.fingerprint):
        return False
    return mark_of(session.descriptor, before.offset, then.size) == before.mark


def _under(one: Examination, rules: str) -> str:
    """Name all but the file itself that decides about it: rules, profile, planner, habits."""
    habits = one.habits
    settings = one.settings
    own = settings.rules_fingerprint() if settings.use else ""
    return f"{rules}{own} {VERSION} {habits.drops_blocks:d}{habits.remembers:d}"


@dataclass(slots=True)
class Look:
    """What came of one session: the outcome, and what to remember of its file."""

    outcome: Outcome
    fingerprint: Fingerprint
    format: str | None = None
    due_at: float | None = None
    # How it is remembered where the next run looks again although nothing changed.
    again: str | None = None


def look_at_growth(
    settings: Settings, store: Store, file: SessionFile, state: FileState | None,
    memory: FileMemory, now: float, check_stop: Callable[[], None],
) -> Look | Planned | None:  # fmt: skip
    """Look at the tail of a session in which nothing is asked for; None where that is not enough.

    It is not where the file did more than grow, where older entries are spoken of, and where
    what stands in front may matter to what is to go: then everything has to be looked at. Raise
    NotIdleError or RefusedError where it may not be touched.
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
            return None  # since the run began
        since = None if one.survey.open_turn else one.survey.since
        remembers = one.habits.remembers
        frontier = Frontier(since, remembers=remembers, placeholders=before.placeholders)
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
    """Check whether something is asked for in a session: of its values, or of its turns."""
    return bool(store.requests.open_of(session_id)) or store.archives.asked(session_id)


def _may_go(one: Examination, before: Resume, record: SessionRecord | None, planned: Plan) -> bool:
    """Check whether what is to go may be cut on the word of the tail alone.

    Raise RefusedError where its file may not be replaced.
    """
    check_alone(one.session)
    return record is not None and not one.kept_in_memory() and is_whole_plan(one, before, planned)


def begin_anew(store: Store, planned: Planned, rewrite: AnyRewrite) -> Resume | None:
    """Return where the next look at a session may begin that was just changed."""
    record = store.sessions.at(planned.file.path)
    if planned.begin is None or record is None or not isinstance(rewrite, Rewrite):
        return None
    return begins_after(planned.begin, rewrite, record.id)
