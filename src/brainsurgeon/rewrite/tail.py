"""Scan only the tail of a session that grew since the last scan.

The lines before the tail are the front. Only its first and last 4 KB are compared. A rewrite copies
the front, so changes elsewhere in it are not lost.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.formats import HEAD_LINES
from brainsurgeon.lookup.sessions import is_current, record_placeholders
from brainsurgeon.model.plans import Outcome, Plan
from brainsurgeon.model.records import Records
from brainsurgeon.model.sessions import Fingerprint, Resume, SessionFile
from brainsurgeon.planning.snapshot import VERSION, Frontier
from brainsurgeon.rewrite import inspect
from brainsurgeon.rewrite.apply import Planned
from brainsurgeon.rewrite.budget import fit_in
from brainsurgeon.rewrite.recover import FileRewrite, Rewrite
from brainsurgeon.rewrite.signals import count_calls, count_savings, notice
from brainsurgeon.sessions.discovery import has_agent_name
from brainsurgeon.sessions.reading import Opened, OpenSession, mark_if_unchanged, plain_file
from brainsurgeon.store import Store
from brainsurgeon.store.scan_memory import FileMemory

SMALLEST = 1 << 18  # bytes of the smallest file that gets a resume point
# Ids that JSON never escapes, so that a search finds them.
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,128}")
_FEW = 8  # largest number of ids to search for; for more ids, a scan of the whole file is as quick


class Scanned(Struct):
    """The scan of one session. If `planned` is set, the plan has not been carried out yet."""

    outcome: Outcome
    fingerprint: Fingerprint
    format: str | None = None
    due_at: float | None = None
    again: str | None = None  # why the next run must read the session even if it is unchanged
    planned: Planned | None = None


def frontier_of(
    examined: inspect.Examination, records: Records, *, extract: bool = True,
    placeholders: bool = False, lost: int = 0,
) -> Frontier:  # fmt: skip
    # Requests, an open turn and some rules need the whole session in the next scan.
    whole = records.requests or examined.survey.open_turn or examined.settings.needs_whole_session
    since = examined.survey.since if extract and not whole else None
    return Frontier(
        since, remembers=examined.habits.remembers, placeholders=placeholders, lost=lost
    )


def resume_of(planner: inspect.Planner, plan: Plan, rules: str) -> Resume | None:
    """Return the resume point for the next scan, or None if that scan must read all lines."""
    examined, frontier = planner.examined, planner.frontier or Frontier()
    begin, session, record = frontier.begin(plan), examined.session, examined.record
    if begin is None or plan.deferred or not isinstance(session, OpenSession):
        return None
    (offset, number), size = begin, session.fingerprint.size
    if number <= HEAD_LINES or not pays(offset, size):
        return None
    tail = session.lines_from(offset, number)
    cursor = session.format.survey(tail, examined.settings.decision_rules().kept_messages).cursor
    # This comes after the survey, to prove that the tail did not change meanwhile.
    mark = mark_if_unchanged(session.descriptor, offset, session.fingerprint)
    if cursor is None or mark is None:
        return None
    return Resume(
        session.fingerprint, mark, _rules(examined, rules), session.format.name, session.identity,
        record.id if record else None, offset, number, cursor,
        frontier.placeholders or bool(plan.sightings.here),
        frontier.lost + sum(at < offset for at in plan.sightings.lost),
    )  # fmt: skip


def pays(offset: int, size: int) -> bool:
    """Check whether reading a file from an offset is much quicker than reading all of it."""
    return size >= SMALLEST and 2 * offset >= size


def resume_after_edit(store: Store, planned: Planned, rewrite: Rewrite) -> Resume | None:
    """Return the planned resume point for the new file; None without one or if the file changed."""
    resume, record = planned.resume, store.sessions.at(planned.file.path)
    if resume is None or record is None or not isinstance(rewrite, FileRewrite):
        return None
    seen, ident = rewrite.fingerprint, record.id
    with suppress(OSError), plain_file(rewrite.name, rewrite.pair.directory) as file:
        if mark := mark_if_unchanged(file, resume.offset, seen):
            return replace(resume, fingerprint=seen, mark=mark, session_id=ident, placeholders=True)
    return None


def _rules(examined: inspect.Examination, rules: str) -> str:
    """Return a text that changes if decisions about an unchanged session may change."""
    habits, settings = examined.habits, examined.settings
    own = settings.rules_fingerprint() if settings.has_profiles else ""
    return f"{rules}{own} {VERSION} {habits.drops_blocks:d}{habits.remembers:d}"


def scan_tail(
    settings: Settings, store: Store, file: SessionFile, memory: FileMemory, now: float,
    check_stop: Callable[[], None],
) -> Scanned | None:  # fmt: skip
    """Scan the tail of a session. Return None if the whole file must be scanned.

    Raises NotIdleError or RefusedError if the session may not be changed.
    """
    before = store.resumes.at(file.path)
    if before is None or not before.may_apply_to(file.fingerprint):
        return None
    if file.hint not in ("auto", before.format):
        return None
    with ExitStack() as held:
        session = held.enter_context(inspect.open_quiet(settings, store, file, now, check_stop))
        inspect.check_touchable(session, settings)
        if inspect.settings_for(settings, file).needs_whole_session or not (
            isinstance(session, OpenSession) and session.continue_at(before)
        ):
            return None
        record = store.sessions.at(file.path)
        examined = inspect.examine_open(settings, store, session, now, record)
        if (
            # If the cursor differs, new lines concern entries before the tail.
            examined.survey.cursor != before.cursor
            or _rules(examined, memory.rules) != before.rules
            or not has_agent_name(file)
            or (record.id if record else None) != before.session_id
            or (record and not is_current(record, file, before.identity))
        ):
            return None
        examined.check_turn()
        notice(settings, store, session, now)
        records = examined.records_of_lines()
        if record and store.requests.of_session(record.id):
            return None  # a request was recorded since the run began
        frontier = frontier_of(
            examined, records, placeholders=before.placeholders, lost=before.lost
        )
        planner = inspect.Planner(examined, records, frontier=frontier, hurries=memory.named)
        fitting = fit_in(planner)
        plan = fitting.plan
        outcome = fitting.outcome(examined, plan)
        changes = outcome.outcome == "changed"
        if plan.deferred or (changes and not _may_carry_out(examined, before, plan)):
            return None
        count_calls(store, session)
        if savings := count_savings(examined, plan, of_tail=True):
            memory.savings[file.path] = savings
        return result_of(memory, store, planner, plan, outcome, held)


def result_of(
    memory: FileMemory, store: Store, planner: inspect.Planner, plan: Plan, outcome: Outcome,
    held: ExitStack,
) -> Scanned:  # fmt: skip
    """Record and return the result of a scan. If the session is to be changed, it stays open."""
    examined, session = planner.examined, planner.examined.session
    resume = resume_of(planner, plan, memory.rules)
    earlier = planner.frontier.lost if planner.frontier else 0
    memory.lost[session.file.path] = earlier + len(plan.sightings.lost)
    scanned = Scanned(outcome, session.fingerprint, examined.format.name, plan.due_at)
    if outcome.outcome == "changed":
        memory.resumes[session.file.path] = None
        scanned.planned = Planned(examined, plan, outcome, held.pop_all(), resume)
    else:
        memory.resumes[session.file.path] = resume
        record_placeholders(store, session, examined.record, plan, examined.now)
    return scanned


def _may_carry_out(examined: inspect.Examination, before: Resume, plan: Plan) -> bool:
    """Check whether the plan for the tail is also the plan for the whole file.

    An entry in the front with the id of an edited entry would change the plan. If the agent keeps
    extracted values in memory, signed thinking in the front may have to be removed, too.
    """
    session = examined.session
    inspect.check_mount(session)
    if examined.record is None or examined.kept_in_memory():
        return False
    if before.placeholders and examined.habits.remembers:
        return False
    ids = {edit.entry_id for edit in plan.edits}
    if not 0 < len(ids) <= _FEW or not all(map(_PLAIN.fullmatch, ids)):
        return False
    return not _contains_before(session, before.offset, [ident.encode() for ident in ids])


def _contains_before(session: Opened, end: int, texts: Sequence[bytes]) -> bool:
    longest, last = max(map(len, texts)), b""
    for piece in session.stream(0, end):
        edge = last + piece[:longest]
        if any(text in piece or text in edge for text in texts):
            return True
        last = piece[-longest:]
    return False
