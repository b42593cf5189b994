"""Decide what happens to each value of a session, and why.

Decisions are made from the entries of a transcript, the rules and the records of the store. What
only the bytes of a line show is found when the edits are drafted: then the value is locked, and all
is decided again.
"""

from collections.abc import Collection, Container, Iterable, Mapping
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.formats.marks import placeholder_at
from brainsurgeon.model.entries import EXTRACTABLE, KeyPath, Value
from brainsurgeon.model.plans import Amounts, Decision, KeptValues
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import LINK
from brainsurgeon.planning.archive import Archival, Archivals, ArchiveRefusedError
from brainsurgeon.planning.own_calls import OwnCalls
from brainsurgeon.planning.requests import FieldRequests, Restores
from brainsurgeon.planning.rules import (
    FITS,
    EntryState,
    Extract,
    Keep,
    decision_on,
    otherwise,
    state_of,
)
from brainsurgeon.planning.signatures import (
    TWICE,
    Gatherer,
    Place,
    SignatureVerdict,
    judge,
)
from brainsurgeon.planning.snapshot import Snapshot
from brainsurgeon.planning.superseded import Values, superseded

_MOST_WARNINGS = 100
Going = tuple[tuple[Value, Extract], ...]  # the values of an entry that are to be extracted


class EntryDecision(Struct, frozen=True):
    """What happens to an entry in which something is edited or extracted."""

    index: int
    standing: tuple[Extraction, ...] = ()  # extracted values in it
    back: tuple[Extraction, ...] = ()  # of these, the values to restore
    going: Going = ()
    archival: Archival | None = None  # it becomes an archive
    ours: bool = False  # it contains a call of our tool, or our answer
    named: bool = False  # a field of it is to be set, or was set
    live: bool = True  # it will be in the next request

    @property
    def is_edited(self) -> bool:
        return bool(self.back or self.going or self.archival or self.ours or self.named)

    @property
    def left(self) -> list[Extraction]:
        back = {value.id for value in self.back}
        return [value for value in self.standing if value.id not in back]


class Locks(Struct):
    """What cannot be edited, and why, as drafting has shown."""

    values: dict[Place, str] = field(default_factory=dict)
    lines: dict[int, str] = field(default_factory=dict)  # by index of the entry

    def __bool__(self) -> bool:
        return bool(self.values or self.lines)


class Decided:
    """The decisions on the values of a session."""

    def __init__(self) -> None:
        self.entries: list[EntryDecision] = []
        self.verdict = SignatureVerdict()
        self.values: dict[Place, tuple[Value, Extract | Keep, str]] = {}
        self.due_at: float | None = None  # when a decision first changes by time alone
        self.protected: dict[str, float] = {}
        self.warnings: list[str] = []
        self.unsent = Amounts()
        self.missed: list[tuple[str, str]] = []  # entries of impossible requests, and why
        # The entry ids (or None) in a last line without a newline: their requests wait.
        self.waits: set[str | None] = set()
        self.restored: list[str] = []  # entry ids

    def keep(self, place: Place, value: Value, why: str) -> None:
        """Decide that a value stays, whatever was decided before."""
        self.values[place] = (value, Keep(why), "")

    def protect(self, ident: str | None, until: float | None) -> None:
        if until is not None:
            self.protected[ident or ""] = until
            self.due(until)

    def due(self, moment: float | None) -> None:
        if moment is not None and (self.due_at is None or moment < self.due_at):
            self.due_at = moment

    @property
    def kept(self) -> tuple[KeptValues, ...]:
        kept = Amounts()
        for value, decision, _ in self.values.values():
            if isinstance(decision, Keep):
                kept.add(value.kind, value.tool, decision.reason, chars=value.chars)
        return tuple(
            KeptValues(kind, tool, values, chars, why)
            for (kind, tool, why), (values, chars) in kept.ranked()
        )

    def listed(self, session: Snapshot) -> tuple[Decision, ...]:
        entries, index_at = session.transcript.entries, session.transcript.index_at
        in_order = sorted(self.values.items(), key=lambda item: item[0][0])
        return tuple(
            Decision(
                entries[index_at(offset)].ident, path, value.kind, value.tool, value.chars,
                decision.reason, isinstance(decision, Extract), change,
            )
            for (offset, path), (value, decision, change) in in_order
        )  # fmt: skip


class Deciding(Struct, frozen=True):
    """What to decide about a session."""

    session: Snapshot
    rules: Rules
    own: OwnCalls
    fields: FieldRequests
    extract: bool = True
    explain: bool = False  # also decide about values of any length

    def decide(self, archivals: Archivals, locks: Locks) -> Decided:
        """Decide about all entries. Raises ArchiveRefusedError."""
        session, found, decided = self.session, self.session.found, Decided()
        signatures = Gatherer(session, self.rules, archivals.leaving, locks.values)
        restores = Restores(session)
        values = _Values(self, decided, archivals, locks)
        for verdict in archivals.verdicts:
            decided.protect(verdict.closing_id, verdict.until)
        for index, entry in enumerate(session.transcript.entries):
            if entry.ident is not None:
                restores.note_id(entry.ident)
            if not values.concern(index, entry):
                signatures.note_extracted(index)
                continue
            signed = signatures.note_signatures(index)
            standing = tuple(found.standing.get(index, ()))
            wanted = [value for value in standing if restores.wants(value)]
            unfit = signatures.unfit(index, wanted, standing)
            back = tuple(
                value for value in restores.without_unfit(wanted, unfit)
                if (index, value.id) not in found.copies
            )  # fmt: skip
            decision = values.entry(index, standing, back, signed)
            if decision.is_edited or standing:
                decision = self._possible(decision, decided, locks)
                decided.entries.append(decision)
                signatures.note_changes(
                    index, self._removed(decision), [one.path for one in decision.back],
                    decision.left,
                )  # fmt: skip
            signatures.note_extracted(index)
        decided.missed += restores.missed
        self._judge(decided, signatures, pristine=restores.pristine)
        return decided

    def _possible(self, decision: EntryDecision, decided: Decided, locks: Locks) -> EntryDecision:
        """Return what can be done now. Note what cannot, and why."""
        index, session = decision.index, self.session
        entry, why = session.transcript.entries[index], locks.lines.get(index)
        if not decision.is_edited or (entry.terminated and why is None):
            self._note_restored(decision, decided)
            return decision
        if why is None:
            decided.waits |= {entry.ident, *(value.entry_id for value in decision.back)}
        else:
            offset = session.transcript.offset(index)
            for value, _ in decision.going:
                decided.keep((offset, value.path), value, f"not extractable: {why}")
            decided.missed += [(value.entry_id, why) for value in decision.back]
            if entry.ident is not None and entry.ident in session.sets:
                decided.missed.append((entry.ident, why))
        return EntryDecision(index, decision.standing, live=decision.live)

    def _note_restored(self, decision: EntryDecision, decided: Decided) -> None:
        if not decision.back:
            return
        session = self.session
        entry = session.transcript.entries[decision.index]
        ident = entry.ident
        decided.restored += [
            name for value in decision.back for name in (ident, value.entry_id) if name
        ]
        # The value may be extracted again: at once if forced, else after its protection.
        forced = session.override(entry) is True
        decided.due(session.now + (0.0 if forced else self.rules.keep_after_restore))

    def _removed(self, decision: EntryDecision) -> list[KeyPath]:
        paths = [value.path for value, _ in decision.going]
        if decision.archival:
            linked = self.session.form.archives == "linked"
            paths += [decision.archival.text_path, *([LINK] if linked else [])]
        return [*paths, *(self.own.paths(decision.index) if decision.ours else ())]

    def _judge(self, decided: Decided, signatures: Gatherer, *, pristine: bool) -> None:
        """Decide which signatures leave, and whether the session may be changed at all."""
        session, rules = self.session, self.rules
        verdict = decided.verdict = judge(
            signatures.signatures, signatures.changes, signatures.taken,
            rules if self.extract else replace(rules, drop_signatures=""),
            remembers=session.habits.remembers and self.extract and rules.enabled,
            pristine=pristine,
        )  # fmt: skip
        for leaving in verdict.leave:
            place, chars = leaving.signature.place, leaving.signature.chars
            value = Value(place[1], "thinking", chars)
            decided.values[place] = value, Extract(leaving.reason), ""
        if verdict.blocked:
            for decision in decided.entries:
                offset = session.transcript.offset(decision.index)
                for value, _ in decision.going:
                    decided.keep((offset, value.path), value, "deferred: signatures")


class _Values:
    """Decides by the rules which values of an entry are extracted."""

    def __init__(
        self, deciding: Deciding, decided: Decided, archivals: Archivals, locks: Locks
    ) -> None:
        self._deciding, self._decided = deciding, decided
        self._session, self._rules = deciding.session, deciding.rules
        self._transcript = deciding.session.transcript
        self._archivals, self._locks = archivals, locks
        self._concerned = deciding.fields.entries | deciding.session.pins.keys()
        # Values of at most so many characters are skipped, except in archived turns and in entries
        # with placeholders, our fields or a request.
        self._shortest = 0 if deciding.explain else deciding.rules.shortest

    def concern(self, index: int, entry: Entry) -> bool:
        """Check whether an entry has anything to decide about."""
        if entry.marks or entry.thoughts or entry.ident in self._concerned:
            return True
        if index in self._session.found.standing:
            return True
        if any(value.chars > self._shortest for value in entry.values):
            return True
        offset, archivals = self._transcript.offset(index), self._archivals
        if offset in archivals.made or offset in archivals.emptied:
            return True
        return self._deciding.own.concern(entry)

    def entry(
        self, index: int, standing: tuple[Extraction, ...], back: tuple[Extraction, ...],
        signed: Collection[KeyPath],
    ) -> EntryDecision:  # fmt: skip
        """Decide about an entry with these extracted values, of which some go `back`."""
        entry, offset = self._transcript.entries[index], self._transcript.offset(index)
        ident, archivals = entry.ident, self._archivals
        ours = self._deciding.own.concern(entry)
        archival = archivals.made.get(offset)
        if archival and (back or ours):
            raise ArchiveRefusedError(ident or "")
        going: Going = ()
        if self._deciding.extract and not back and not ours:
            taken = {value.path for value in standing if value.archive_id is not None}
            taken |= {archival.text_path} if archival else set()
            going = self._going(index, standing, signed, taken)
        return EntryDecision(
            index, standing, back, going, archival,
            ours=ours and not back and self._may_redact(ident or ""),
            named=ident is not None and ident in self._deciding.fields.entries,
            live=offset not in archivals.leaving and index not in self._transcript.chain.dead,
        )  # fmt: skip

    def _may_redact(self, ident: str) -> bool:
        undone = self._deciding.fields.undoes_some(ident)
        return not undone and ident not in self._session.repeated

    def _going(
        self, index: int, standing: Iterable[Extraction], signed: Collection[KeyPath],
        taken: Container[KeyPath],
    ) -> Going:  # fmt: skip
        """Return the values that are to be extracted. Archives replace those at paths `taken`."""
        entry, offset = self._transcript.entries[index], self._transcript.offset(index)
        emptied = offset in self._archivals.emptied
        chosen = self._session.override(entry)
        has_fields = entry.marks is not None and bool(entry.marks.fields)
        special = has_fields or emptied or standing or chosen is not None
        shortest = 0 if special else self._shortest
        if shortest and not signed and all(value.chars <= shortest for value in entry.values):
            return ()
        listed = self._transcript.values(index)
        parts = [part for part in listed if not shortest or part.chars > shortest]
        if not parts and chosen is True:
            parts = self._forced(index)
        if not (parts or signed):
            return ()
        here = self._state(index, standing, emptied=emptied)
        going = list[tuple[Value, Extract]]()
        for part in parts:
            if part.dead or here.dead or part.sent == 0:
                self._decided.unsent.add(part.kind, part.tool, chars=part.chars)
            if part.path in taken:
                self._decided.keep((offset, part.path), part, "archived turn")
                continue
            state = self._superseding(entry, part, here)
            decision = self._decide((offset, part.path), part, entry, state)
            explain = self._deciding.explain
            change = otherwise(part, state, self._rules, decision) if explain else ""
            self._decided.values[offset, part.path] = (part, decision, change)
            if isinstance(decision, Extract):
                going.append((part, decision))
        return tuple(going)

    def _state(
        self, index: int, standing: Iterable[Extraction], *, emptied: bool
    ) -> EntryState:  # fmt: skip
        state = state_of(self._session, self._rules, index, standing)
        self._decided.due(state.changes_at)
        room = _MOST_WARNINGS - len(self._decided.warnings)
        self._decided.warnings += state.warnings[:room]
        farthest = self._archivals.farthest(self._transcript.offset(index))
        most = self._rules.max_messages
        if most and index == self._transcript.chain.last_user:
            farthest = min(farthest, most - 1)  # the newest prompt stays
        return replace(state, emptied=emptied, position=min(state.position, farthest))

    def _forced(self, index: int) -> list[Value]:
        """Return the values of an entry that has values only if somebody asks for them."""
        parsed, form = self._session.parsed(index), self._session.form
        values = form.read({**parsed.entry, EXTRACTABLE: True}).values
        around = self._transcript.chain.around(index, self._transcript.entries[index])
        return list(form.resolved(values, around))

    def _superseding(self, entry: Entry, part: Value, here: EntryState) -> EntryState:
        if not self._rules.superseded or part.dead:
            return here
        values = (entry.ident, part.kind, part.call)
        return replace(here, superseded=self._superseded.get(values, ""))

    @cached_property
    def _superseded(self) -> Mapping[Values, str]:
        return superseded(self._transcript)

    def _decide(self, place: Place, part: Value, entry: Entry, here: EntryState) -> Extract | Keep:
        name = placeholder_at(entry, part.path)
        decision = decision_on(part, name, here, self._rules, self._session.now)
        if isinstance(decision, Keep):
            self._decided.protect(here.entry_id, decision.until)
            return decision
        if (here.entry_id, part.path) in self._rules.spared and not here.emptied:
            return Keep(FITS)
        if self._rules.waits and not (decision.forced or part.dead or here.dead or here.emptied):
            return Keep(f"deferred: {self._rules.waits}")
        if not entry.terminated:
            return Keep("the last line has no newline yet")
        if entry.ident in self._session.repeated:
            return Keep(f"not extractable: {TWICE}")
        if why := self._locks.values.get(place):
            return Keep(why)
        return decision
