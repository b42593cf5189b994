"""Plan one session: which bytes give way to which, and why everything else stays.

The planner reads and writes nothing but the lines it is handed; carrying the plan out is
`rewrite.apply`'s. Every line that is edited is parsed again and compared before it may count.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.formats import base, splice
from brainsurgeon.formats.splice import verify
from brainsurgeon.model.entries import EXTRACTABLE
from brainsurgeon.model.plans import Cut, Edit, Outcome, Plan, Putback
from brainsurgeon.model.text import counted
from brainsurgeon.model.turns import NOTHING
from brainsurgeon.planning import archive as turns
from brainsurgeon.planning import drafts
from brainsurgeon.planning.drafts import (
    Draft,
    FieldRequests,
    Findings,
    Ids,
    Judge,
    Mentions,
    WindowTooSmallError,
)
from brainsurgeon.planning.matching import Matcher, Restores, ended, find_own_calls, redactions
from brainsurgeon.planning.rules import Keep
from brainsurgeon.planning.signatures import UNKNOWN_HABITS, Gatherer, judge, lighter
from brainsurgeon.planning.tail import Frontier

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, KeyPath, Line, Lines
    from brainsurgeon.model.plans import Result
    from brainsurgeon.model.records import Extraction, Records, Request
    from brainsurgeon.model.sessions import SessionFile, Survey
    from brainsurgeon.planning.archive import Fold, Folding, Folds
    from brainsurgeon.planning.drafts import Twice
    from brainsurgeon.planning.matching import OwnCalls
    from brainsurgeon.planning.rules import Rules
    from brainsurgeon.planning.signatures import Habits, Verdict


_TWICE = "its id stands twice in the file"


def plan(
    lines: Lines, form: Format, rules: Rules, records: Records, now: float, survey: Survey,
    *, cut: bool = True, explain: bool = False, changed_at: float = 0.0, patience: float = 0.0,
    branches_die_at: float = 0.0, habits: Habits = UNKNOWN_HABITS,
    frontier: Frontier | None = None, weigh: bool = False,
    folding: Folding = turns.NOTHING_ASKED,
) -> Plan:  # fmt: skip
    """Plan everything due in one session: cuts (unless `cut` is False) and the open requests.

    Redactions whose answer does not stand in a session that changed after they were asked for, or
    `patience` seconds later, end unanswered. Lines too short to hold a value that could go are
    taken apart only with `explain`, so that `kept` is complete only then. From `branches_die_at`
    on entries off the active branch are dead. `habits` are what the agent does of itself,
    `folding` is what is asked of its turns. With `weigh` the plan says by how much the next request
    gets lighter.
    """
    own, frontier = find_own_calls(lines, form, records.requests), frontier or Frontier()
    while True:
        try:
            asked = folding if cut else turns.NOTHING_ASKED
            folds = turns.fold_turns(lines, form, survey, rules, records, now, asked)
            planner = _Planner(
                form, survey, rules, records, now, own, habits, cut=cut,
                branches_die_at=branches_die_at, frontier=frontier, folds=folds,
            )  # fmt: skip
            planned = planner.run(frontier.follow(lines, survey), 0 if explain else rules.shortest)
            planned = planner.weighed(planned) if weigh else planned
        except WindowTooSmallError as larger:
            survey = form.survey(lines, max(larger.window, 2 * survey.window))
        except turns.FoldRefusedError as refusal:
            folding = replace(folding, refused=folding.refused | {refusal.entry_id})
        else:
            redacts = (request for request in records.requests if request.action == "redact")
            unanswered = [request for request in redacts if request.id not in own.requests]
            return ended(planned, unanswered, changed_at, now, patience)


class _Planner:
    """One forward run over the lines."""

    def __init__(
        self, form: Format, survey: Survey, rules: Rules, records: Records, now: float,
        own: OwnCalls, habits: Habits, *, cut: bool, branches_die_at: float, frontier: Frontier,
        folds: Folds,
    ) -> None:  # fmt: skip
        self._form, self._rules, self._records = form, rules, records
        self._now, self._own, self._cut, self._frontier = now, own, cut, frontier
        self._draft, self._found, self._ids, self._folds = Draft(), Findings(), Ids(), folds
        self._restores = Restores(records, self._found)
        self._fields = FieldRequests(records.fields, records.requests, records.own)
        self._matcher = Matcher(form, survey, records)
        sets = self._fields.sets
        self._judge = Judge(form, survey, rules, records, sets, now, branches_die_at, frontier)
        self._habits = habits
        self._thoughts = Gatherer(
            form, survey, rules, records, sets, habits, branches_live=now < branches_die_at,
            leaving=folds.left,
        )  # fmt: skip
        self._thoughts.seals.left = [0] * frontier.doubts
        for moment in folds.due:
            self._judge.tally.due(moment)

    def run(self, lines: Iterable[Line], shortest: int) -> Plan:
        """Walk the lines and put the plan together."""
        speaks_of_us = self._speaks_of_us()
        for line in lines:
            entry = base.parse(line.raw) if line.raw else None
            if entry is None or line.raw is None:
                continue
            ident = self._form.identity(entry, line.raw, line.number)
            if ident is not None:
                self._ids.meet(ident)
                self._restores.meet(ident)
            seals = self._thoughts.look(line, line.raw, entry, ident)
            if seals:
                self._frontier.sealed(
                    line, placeholders=bool(self._found.sighted or self._found.supposed)
                )
            long = len(line.raw) > shortest or self._folds.concern(line.offset)
            if long or speaks_of_us(line.raw, ident):
                self._entry(line, line.raw, entry, ident, seals)
            self._thoughts.passed(line, ident)
        return self._plan()

    def weighed(self, planned: Plan) -> Plan:
        """Say of a plan what the next request will not carry any more once it is done."""
        folded = self._folds.lighter if planned.archives else NOTHING
        return replace(planned, lighter=lighter(planned.edits, self._thoughts.seals.sent, folded))

    def _plan(self) -> Plan:
        twice = self._ids.twice()
        found, vetoed = self._draft.sure(self._ids, twice, self._matcher)
        for cut in vetoed:
            self._judge.tally.count(cut.kind, cut.tool, f"not extractable: {_TWICE}", cut.chars)
        verdict = self._seals(found, twice)
        edits = () if verdict.blocked else tuple(sorted([*found, *verdict.leave], key=_place))
        back = {edit.extraction_id for edit in edits if isinstance(edit, Putback)}
        lost = self._lost()
        doubtful = [(entry, _TWICE) for entry in self._fields.sets if entry in twice]
        return Plan(
            edits=edits,
            kept=self._judge.tally.kept,
            gain=sum(edit.gain for edit in edits),
            due_at=self._judge.tally.due_at,
            sighted=tuple(self._sighted()),
            gone=tuple(one.id for one in lost if self._was_read(one)),
            missing=tuple(one.id for one in lost if not self._was_read(one)),
            foreign=tuple(sorted(self._matcher.foreign)),
            requests=tuple(
                request.id for request in self._records.requests
                if request.id is not None and not verdict.blocked and self._ends(request)
            ),
            asked_until=self._records.asked_until,
            restored=() if verdict.blocked else tuple(dict.fromkeys(self._found.restored)),
            missed=(*self._found.missed, *doubtful, *self._fields.missed()),
            warnings=tuple(self._judge.warnings),
            deferred=verdict.blocked,
            unfit=verdict.unfit,
            unsent=self._judge.tally.unsent,
            left=(*self._found.left(back), *self._found.unexplained),
            archives=() if verdict.blocked else self._folds.archives,
            turns=self._folds.verdicts,
        )  # fmt: skip

    def _sighted(self) -> list[int]:
        """Return the extractions that stand in the session.

        What stands under a new id does, unless the recorded entry is there, too: then it was typed.
        """
        moved = self._matcher.moved
        return self._found.sighted + [
            ident for ident in self._found.supposed if moved[ident] not in self._ids
        ]

    def _lost(self) -> list[Extraction]:
        """Return the extractions that the session held when it was last read, and does not now."""
        met, placed = set(self._sighted()), self._records.placed
        return [one for one in self._records.extractions if one.id in placed - met]

    def _was_read(self, one: Extraction) -> bool:
        """Check whether the entry of an extraction stands in the file.

        An id that may be used again says nothing of that: a new log may have begun in the place of
        one that was rotated.
        """
        return one.rest is None and one.entry_id in self._ids

    def _seals(self, edits: list[Edit], twice: Twice) -> Verdict:
        """Judge the seals behind what is to be done, and count those that stay."""
        seals = self._thoughts.seals
        seals.standing = [
            replace(one, stays=_TWICE) if one.cut.entry_id in twice else one
            for one in seals.standing
        ]
        verdict = judge(
            seals, edits, defer=self._rules.sealed == "defer", pristine=self._restores.pristine,
            remembers=self._habits.remembers and self._cut and self._rules.enabled,
            unseal=self._rules.unseal if self._cut else "",
        )  # fmt: skip
        leaving = {(cut.entry_id, cut.path) for cut in verdict.leave}
        for part, decision, ident in self._judge.withheld.values():
            if (ident, part.path) not in leaving:
                self._judge.tally.keep(part, decision)
        if verdict.blocked:
            for cut in (edit for edit in edits if isinstance(edit, Cut) and edit.extracts):
                self._judge.tally.count(cut.kind, cut.tool, "deferred: sealed", cut.chars)
        return verdict

    def _ends(self, request: Request) -> bool:
        """Check whether a request is fulfilled by this plan; what cannot be done now waits."""
        if request.action == "redact":
            return request.id in self._own.requests
        if request.action == "relieve":
            return self._cut
        if request.entry_id is None:
            return not self._found.waits
        return request.entry_id not in self._found.waits

    def _speaks_of_us(self) -> Mentions:
        asked = frozenset((*self._own.answers, *self._matcher.redacted))
        return Mentions(asked, self._fields, tuple(call.encode() for call in self._own.calls))

    def _entry(
        self, line: Line, raw: bytes, entry: Entry, ident: str | None, seals: frozenset[KeyPath]
    ) -> None:
        standing = self._matcher.standing(raw, entry, ident)
        for one in standing:
            supposed = one.id in self._matcher.moved and one.entry_id != ident
            (self._found.supposed if supposed else self._found.sighted).append(one.id)
        if self._restores.everything:
            placeholders = (one for one in standing if one.replacement is None)
            self._found.asked.update({one.id: one.entry_id for one in placeholders})
            self._found.unexplained += self._matcher.unexplained(entry, ident, standing)
        back = self._restores.back(
            standing, lambda back: self._thoughts.unfit(line, entry, back, standing)
        )
        gone, ours = redactions(entry, ident, self._form, self._own) if ident else ([], False)
        fold = self._folds.at(line, ident, hindered=bool(back or ours))
        going: drafts.Going = []
        if self._cut and not back and not ours:
            taken, emptied = turns.taken_places(standing, fold), line.offset in self._folds.emptied
            going = self._judge.judge(line, entry, ident, standing, seals, taken, emptied=emptied)
        named = ident is not None and (
            self._fields.speak_of(ident) or self._fields.cleans(ident, entry)
        )
        if not (standing or going or named or ours or fold):
            return
        unsent = self._thoughts.unsent(line, entry)
        if not (back or going or named or ours or fold):
            self._thoughts.change(line, unsent, (), standing)
            return
        if not line.terminated:
            self._found.waits.update({ident, *(one.entry_id for one in back)})
            return
        try:
            edits = self._edits(line, raw, entry, ident, back, going, fold, standing)
            if ours and ident and not back and not self._fields.undoes_some(ident):
                shortened = list(drafts.redaction(line, raw, entry, ident, gone, self._form))
                verify(raw, line.offset, entry, shortened)
                edits += shortened
        except (splice.UntouchableError, RecursionError) as why:
            self._folds.at(line, ident, hindered=True)
            self._leave(ident, back, going, str(why))
            self._thoughts.change(line, unsent, (), standing)
        else:
            self._draft.add(ident, edits)
            left = [one for one in standing if one not in back]
            self._thoughts.change(line, unsent, edits, left)

    def _leave(
        self, ident: str | None, back: list[Extraction], going: drafts.Going, why: str
    ) -> None:
        """Leave a line alone that cannot be edited with certainty, and say so."""
        for part, _ in going:
            self._judge.tally.keep(part, Keep(f"not extractable: {why}"))
        self._found.missed += [(one.entry_id, why) for one in back]
        if ident is not None and ident in self._fields.sets:
            self._found.missed.append((ident, why))

    def _edits(
        self, line: Line, raw: bytes, entry: Entry, ident: str | None,
        back: list[Extraction], going: drafts.Going, fold: Fold | None,
        standing: list[Extraction],
    ) -> list[Edit]:  # fmt: skip
        """Return the edits of one line; raise UntouchableError when one cannot be certain."""
        edits: list[Edit] = list(drafts.putbacks(line, raw, back))
        if going and ident is not None:
            tally = self._judge.tally
            edits += drafts.cuts(line, raw, entry, ident, going, self._form, tally)
        if fold and ident is not None:
            before = {one.path: one for one in standing if one.archive_id is not None}
            edits += drafts.folded(line, raw, entry, ident, fold, self._form, before)
        left = [one for one in standing if one not in back]
        edits += self._fields.edits(line, raw, ident, self._form.rest(entry), back, left, self._now)
        verify(raw, line.offset, entry, edits)
        if back:
            self._found.restored += [name for one in back for name in (ident, one.entry_id) if name]
            self._judge.tally.due(self._now + self._protection(entry, ident))
        return edits

    def _protection(self, entry: Entry, ident: str | None) -> float:
        """Return the seconds for which what goes back now will stay.

        None where it is forced out.
        """
        request = self._fields.sets.get(ident or "")
        said = request.value if request else entry.get(EXTRACTABLE)
        return 0.0 if said is True else self._rules.keep_after_restore


def _place(edit: Edit) -> tuple[int, int]:
    return edit.start, edit.end


def outcome_of(file: SessionFile, form: str, rules: Rules, plan: Plan) -> Outcome:
    """Return what carrying a plan out makes of its session, whose format is called `form`."""
    size = file.fingerprint.size
    result, reason = _result(rules, plan, size)
    done = result == "changed"
    cuts = plan.extracted if done else ()
    return Outcome(
        file.title, file.path, form, result, reason, size,
        size - plan.gain if done else size,
        plan.entries if done else 0, len(cuts),
        len(plan.putbacks) if done else 0, seen=True, plan=plan,
    )  # fmt: skip


def _result(rules: Rules, plan: Plan, size: int) -> tuple[Result, str]:
    if plan.deferred:
        return "deferred", plan.deferred
    if not plan.edits:
        return "unchanged", "nothing to extract"
    if not plan.forced and not rules.pays(plan.gain, size):
        return "deferred", f"too little to gain ({counted(plan.gain, 'byte')})"
    return "changed", plan.summary
