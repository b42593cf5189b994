"""Go on where the last look at a session ended, if it was only appended to since.

A resumed look opens the file, compares a mark of three times 4 KB, and reads the tail alone: it
costs what was appended and the tail, whatever stands in front. Where something is to go, what
stands in front is searched for the ids of those entries, and otherwise copied as it is by the
kernel: it is never taken apart again, so that the mark decides about no byte of it.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.decide.resume import VERSION, Frontier
from brainsurgeon.formats import FORMATS, HEAD_LINES
from brainsurgeon.formats.marks import marks_in
from brainsurgeon.model.records import Records
from brainsurgeon.model.resume import Resume
from brainsurgeon.rewrite.examine import Examination, open_quiet, silence
from brainsurgeon.rewrite.session_settings import settings_for
from brainsurgeon.rewrite.untouchable import check_touchable
from brainsurgeon.sessions.reading import OpenSession, stands_before
from brainsurgeon.sessions.tails import mark_as_seen, mark_at, mark_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import FileState, SessionRecord
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.rewrite.finishing import Rewrite
    from brainsurgeon.store import Store

SMALLEST = 1 << 18
"""Bytes of the smallest file of which anything is remembered: a shorter one is read as quickly."""


_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,128}")
"""Ids that everybody writes alike as JSON, and that stand in their stubs: a search finds them."""
_FEW = 8
"""Ids for which what stands in front is searched; with more, all of it is read as quickly."""


def frontier_of(one: Examination, records: Records, *, cut: bool) -> Frontier:
    """Give what finds where the next look at a session may begin.

    It cannot be told while something is asked for in it, its turn was given up as abandoned, or
    how full it is as a whole, or what its older turns are, decides about it.
    """
    asked = records.wishes or records.to_archive
    told = cut and not (asked or one.survey.open_turn or one.settings.judged_whole)
    return Frontier(one.survey.since if told else None, remembers=one.habits.remembers)


def begins_at(
    one: Examination, frontier: Frontier, planned: Plan, record: SessionRecord | None, rules: str
) -> Resume | None:  # fmt: skip
    """Say where the next look at a session may begin that was looked at and left as it is.

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
        frontier.stubs or bool(planned.sighted),
    )  # fmt: skip


def pays(offset: int, size: int) -> bool:
    """Tell whether the tail from an offset is much less work than all of a file of that size."""
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
        asked_until=store.wishes.newest(record.id),
        fields=tuple(store.fields.of_entries(record.id, marks.entries)),
        restores=store.extractions.restores(record.id),
        own=record.id,
    )  # fmt: skip


def is_whole_plan(one: Examination, before: Resume, planned: Plan) -> bool:
    """Tell whether a plan for the tail is what a look at everything would have planned.

    What stands in front decides in two ways only. Where the id of an entry stands twice, nothing
    goes from it, and where its placeholder's text stood before, another one is given out: both
    hold the id. And where the agent remembers what was cut, thinking in front may have to leave,
    too.
    """
    if not isinstance(one.session, OpenSession) or (before.stubs and one.habits.remembers):
        return False
    ids = {edit.entry_id for edit in planned.edits}
    if not 0 < len(ids) <= _FEW or not all(map(_PLAIN.fullmatch, ids)):
        return False
    return not stands_before(one.session, before.offset, [ident.encode() for ident in ids])


def begins_after(begin: Resume, rewrite: Rewrite, session_id: int | None) -> Resume | None:
    """Say where the next look at a session may begin that was changed behind `begin` alone."""
    seen = rewrite.fingerprint
    mark = mark_at(rewrite.directory, rewrite.name, seen, begin.offset)
    if mark is None:
        return None
    return replace(begin, fingerprint=seen, mark=mark, session_id=session_id, stubs=True)


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
