"""Plan one session: which bytes are replaced, and why all other values stay.

`decide` gives each value its decision, `draft` gives the edits. What drafting finds impossible is
locked, and all is decided again. Nothing here changes a session.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.model.plans import (
    Edit,
    FoundPlaceholders,
    Handled,
    Plan,
    Removal,
    Restoration,
    Unrestored,
)
from brainsurgeon.model.records import Request
from brainsurgeon.model.rules import Rules
from brainsurgeon.planning.archiving import (
    NO_ARCHIVING,
    ArchiveDecisions,
    ArchiveRefusedError,
    Archiving,
    archive_turns,
)
from brainsurgeon.planning.decisions import Decider, Decisions
from brainsurgeon.planning.drafts import Draft, Drafts
from brainsurgeon.planning.own_calls import OwnCalls
from brainsurgeon.planning.requests import FieldRequests
from brainsurgeon.planning.snapshot import TWICE, Locks, Snapshot

_UNSURE = "it is uncertain whether it is the recorded entry"


class SnapshotPlanner(Struct, frozen=True, dict=True):
    """Plans a snapshot, perhaps several times by other rules. Then it reads no line again."""

    session: Snapshot

    @cached_property
    def _own(self) -> OwnCalls:
        return OwnCalls(self.session)

    @cached_property
    def _fields(self) -> FieldRequests:
        return FieldRequests(self.session)

    @cached_property
    def _drafts(self) -> Drafts:
        return Drafts(self.session, self._own, self._fields)

    def plan(
        self, rules: Rules, *, extract: bool = True, explain: bool = False,
        archiving: Archiving = NO_ARCHIVING,
    ) -> Plan:  # fmt: skip
        """Plan the pending requests of the session and, with `extract`, its extractions.

        With `explain`, `Plan.decisions` has the decision on each value, however short.
        """
        decider = Decider(self.session, rules, self._own, self._fields, extract, explain)
        locks, archiving = Locks(), archiving if extract else NO_ARCHIVING
        while True:
            try:
                turns = archive_turns(self.session, rules, archiving)
                decisions = decider.decide(turns, locks)
                lines, signature_removals, new_locks = self._drafts.draft(decisions)
            except ArchiveRefusedError as refusal:
                archiving = replace(archiving, refused=archiving.refused | {str(refusal)})
                continue
            if not new_locks:
                return self._plan(decider, decisions, turns, lines, signature_removals)
            locks |= new_locks

    def _plan(
        self, decider: Decider, decisions: Decisions, turns: ArchiveDecisions,
        lines: Sequence[Draft], signature_removals: Sequence[Removal],
    ) -> Plan:  # fmt: skip
        session, blocked = self.session, decisions.verdict.blocked
        edits: tuple[Edit, ...] = ()
        if not blocked:
            drafted = [*(edit for line in lines for edit in line.edits), *signature_removals]
            edits = tuple(sorted(drafted, key=lambda edit: (edit.start, edit.end)))
        drafts = {} if blocked else turns.drafts
        archives = tuple(
            drafts[index].archive_after(edits, session.transcript) for index in sorted(drafts)
        )
        prompts = {prompt for archive in archives for prompt in archive.prompts}
        unanswered, waits_until = self._unanswered()
        decisions.due(waits_until)
        handled = Handled(
            requests=tuple(
                request.id for request in session.records.requests
                if request.id is not None and not blocked
                and self._fulfils(request, prompts, decisions.waits, extract=decider.extract)
            ),
            asked_until=session.records.asked_until,
            unanswered=unanswered,
            restored=() if blocked else tuple(dict.fromkeys(decisions.restored)),
            missed=(
                *decisions.missed,
                *((ident, TWICE) for ident in self._fields.sets if ident in session.repeated),
                *(missed for line in lines for missed in line.fields.missed),
                *self._fields.missed(session.ids),
            ),
            unfit=decisions.verdict.unfit,
            unrestored=tuple(self._unrestored(decisions, edits)),
            fields_gone=() if blocked else tuple(
                gone for line in lines for gone in line.fields.gone
            ),
        )  # fmt: skip
        return Plan(
            edits=edits,
            kept=decisions.kept,
            decisions=decisions.listed(session) if decider.explain else (),
            unsent=decisions.unsent.listed(),
            due_at=decisions.due_at,
            protected=decisions.protected,
            placeholders=self._placeholders(),
            handled=handled,
            warnings=tuple(decisions.warnings),
            deferred=blocked,
            archives=archives,
            turns=turns.verdicts,
        )

    def _placeholders(self) -> FoundPlaceholders:
        session, found = self.session, self.session.found
        here = tuple(value.id for value in found.in_place())
        lost = session.records.last_placed.difference(here)
        # If ids are not random (`rest` is set), an equal id does not prove that the recorded entry
        # was read: a new log may have replaced a rotated one.
        read = dict.fromkeys(lost, False) | {
            value.id: value.rest is None and value.entry_id in session.ids
            for value in session.records.extractions if value.id in lost
        }  # fmt: skip
        return FoundPlaceholders(
            here=here,
            gone=tuple(number for number, was_read in read.items() if was_read),
            missing=tuple(number for number, was_read in read.items() if not was_read),
            foreign=tuple(sorted(found.foreign)),
            tokens=found.saved,
            typed=found.typed,
            lost=tuple(map(session.transcript.offset, found.lost)),
        )

    def _unrestored(self, decisions: Decisions, edits: Sequence[Edit]) -> Iterator[Unrestored]:
        """Yield the entries that keep a placeholder although all are to be restored, and why."""
        records, found = self.session.records, self.session.found
        if not any(request.restores_all for request in records.requests):
            return
        restored = {edit.extraction_id for edit in edits if isinstance(edit, Restoration)}
        reasons = dict.fromkeys(decisions.waits, "its line has no newline yet")
        reasons |= dict(decisions.missed)
        staying = {value.id for values in found.standing.values() for value in values} - restored
        for value in records.extractions:
            if value.id in staying and value.replacement is None:
                yield Unrestored(value.entry_id, reasons.get(value.entry_id, _UNSURE))
        yield from found.unexplained

    def _fulfils(
        self, request: Request, archived: set[str], waits: set[str | None], *, extract: bool
    ) -> bool:
        if request.action == "redact":
            return request.id in self._own.requests
        if request.action == "relieve":
            return extract
        if request.action == "archive":
            return request.entry_id in archived
        return request.entry_id not in waits if request.entry_id else not waits

    def _unanswered(self) -> tuple[tuple[int, ...], float | None]:
        """Return the requests to redact that waited in vain, and when the next one will have."""
        session, answered = self.session, self._own.requests
        waited, until = list[int](), list[float]()
        for request in session.records.requested("redact"):
            if request.id is None or request.id in answered:
                continue
            gives_up_at = request.asked_at + session.answer_wait
            if request.asked_at < session.changed_at or gives_up_at <= session.now:
                waited.append(request.id)
            else:
                until.append(gives_up_at)
        return tuple(waited), min(until, default=None)
