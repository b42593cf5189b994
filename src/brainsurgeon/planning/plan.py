"""Plan one session: which bytes are replaced, and why all other values stay.

`decide` gives each value its decision, `draft` gives the edits. What drafting finds impossible is
locked, and all is decided again. Nothing here changes a session.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.model.plans import Edit, Handled, Plan, Removal, Restoration, Sightings
from brainsurgeon.model.records import Request
from brainsurgeon.model.rules import Rules
from brainsurgeon.planning.archive import (
    NO_ARCHIVING,
    Archivals,
    ArchiveRefusedError,
    Archiving,
    archive_turns,
)
from brainsurgeon.planning.decisions import Decided, Deciding, Locks
from brainsurgeon.planning.drafts import Draft, Drafts
from brainsurgeon.planning.own_calls import OwnCalls
from brainsurgeon.planning.requests import FieldRequests
from brainsurgeon.planning.signatures import TWICE
from brainsurgeon.planning.snapshot import Snapshot

_UNSURE = "it is uncertain whether it is the recorded entry"


class SessionPlanner(Struct, frozen=True, dict=True):
    """Plans a session, perhaps several times by other rules. Then it reads no line again."""

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
        session = self.session
        deciding = Deciding(session, rules, self._own, self._fields, extract, explain)
        locks, archiving = Locks(), archiving if extract else NO_ARCHIVING
        while True:
            try:
                archivals = archive_turns(session, rules, archiving)
                decided = deciding.decide(archivals, locks)
                lines, removals, refused = self._drafts.draft(decided)
            except ArchiveRefusedError as refusal:
                archiving = replace(archiving, refused=archiving.refused | {str(refusal)})
                continue
            if not refused:
                return self._plan(deciding, decided, archivals, lines, removals)
            locks = Locks(locks.values | refused.values, locks.lines | refused.lines)

    def _plan(
        self, deciding: Deciding, decided: Decided, archivals: Archivals,
        lines: Sequence[Draft], removals: Sequence[Removal],
    ) -> Plan:  # fmt: skip
        session, blocked = self.session, decided.verdict.blocked
        edits: tuple[Edit, ...] = ()
        if not blocked:
            drafted = [*(edit for line in lines for edit in line.edits), *removals]
            edits = tuple(sorted(drafted, key=lambda edit: (edit.start, edit.end)))
        made = {} if blocked else archivals.made
        archives = tuple(made[offset].archive_after(edits) for offset in sorted(made))
        prompts = {prompt for archive in archives for prompt in archive.prompts}
        unanswered, waits_until = self._unanswered()
        decided.due(waits_until)
        fulfilled = (
            request.id for request in session.records.requests
            if request.id is not None and not blocked
            and self._fulfils(request, prompts, decided, extract=deciding.extract)
        )  # fmt: skip
        handled = Handled(
            tuple(fulfilled), session.records.asked_until, unanswered,
            restored=() if blocked else tuple(dict.fromkeys(decided.restored)),
            missed=(
                *decided.missed,
                *((ident, TWICE) for ident in self._fields.sets if ident in session.repeated),
                *(missed for line in lines for missed in line.fields.missed),
                *self._fields.missed(session.ids),
            ),
            unfit=decided.verdict.unfit, left=tuple(self._left(decided, edits)),
            fields_gone=() if blocked else tuple(
                gone for line in lines for gone in line.fields.gone
            ),
        )  # fmt: skip
        return Plan(
            edits, decided.kept, decided.listed(session) if deciding.explain else (),
            decided.unsent.listed(), decided.due_at, decided.protected, self._sightings(), handled,
            tuple(decided.warnings), blocked, archives, archivals.verdicts,
        )  # fmt: skip

    def _sightings(self) -> Sightings:
        session, found = self.session, self.session.found
        here = tuple(value.id for value in found.in_place())
        lost = session.records.last_sighted.difference(here)
        # If ids are not random (`rest` is set), an equal id does not prove that the recorded entry
        # was read: a new log may have replaced a rotated one.
        read = dict.fromkeys(lost, False) | {
            value.id: value.rest is None and value.entry_id in session.ids
            for value in session.records.extractions if value.id in lost
        }  # fmt: skip
        return Sightings(
            here, tuple(number for number, was_read in read.items() if was_read),
            tuple(number for number, was_read in read.items() if not was_read),
            tuple(sorted(found.foreign)), found.saved, found.typed,
            tuple(map(session.transcript.offset, found.lost)),
        )  # fmt: skip

    def _left(self, decided: Decided, edits: Sequence[Edit]) -> Iterator[tuple[str, str]]:
        """Yield the entries that keep a placeholder although all are to be restored, and why."""
        records, found = self.session.records, self.session.found
        if not any(request.restores_all for request in records.requests):
            return
        back = {edit.extraction_id for edit in edits if isinstance(edit, Restoration)}
        reasons = dict.fromkeys(decided.waits, "its line has no newline yet")
        reasons |= dict(decided.missed)
        left = {value.id for values in found.standing.values() for value in values} - back
        for value in records.extractions:
            if value.id in left and value.replacement is None:
                yield value.entry_id, reasons.get(value.entry_id, _UNSURE)
        yield from found.unexplained

    def _fulfils(
        self, request: Request, archived: set[str], decided: Decided, *, extract: bool
    ) -> bool:
        if request.action == "redact":
            return request.id in self._own.requests
        if request.action == "relieve":
            return extract
        if request.action == "archive":
            return request.entry_id in archived
        waits = decided.waits
        return request.entry_id not in waits if request.entry_id else not waits

    def _unanswered(self) -> tuple[tuple[int, ...], float | None]:
        """Return the requests to redact that waited in vain, and when the next one will have."""
        session, answered = self.session, self._own.requests
        waited, until = list[int](), list[float]()
        for request in session.records.requested("redact"):
            if request.id is None or request.id in answered:
                continue
            lapses_at = request.asked_at + session.patience
            if request.asked_at < session.changed_at or lapses_at <= session.now:
                waited.append(request.id)
            else:
                until.append(lapses_at)
        return tuple(waited), min(until, default=None)
