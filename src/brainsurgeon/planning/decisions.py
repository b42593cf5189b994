"""Decide what happens to each value of a session, and why.

Decisions are made from the entries of a transcript, the rules and the records of the store. What
only the bytes of a line show is found when the edits are drafted: then the value is locked, and all
is decided again.
"""

from collections.abc import Container, Iterable, Mapping
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.marks import placeholder_at
from brainsurgeon.model.entries import EXTRACTABLE, KeyPath, Value
from brainsurgeon.model.plans import Amounts, Decision, KeptValues
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import LINK
from brainsurgeon.planning.archiving import ArchiveDecisions, ArchiveDraft, ArchiveRefusedError
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
from brainsurgeon.planning.signatures import SignatureGatherer, Signatures, SignatureVerdict, judge
from brainsurgeon.planning.snapshot import TWICE, Locks, Place, Snapshot
from brainsurgeon.planning.superseded import CallValues, superseded

_MOST_WARNINGS = 100
NOT_SENT = "no request contains it, and the file would not become smaller"
ToExtract = tuple[tuple[Value, Extract], ...]  # the values of an entry that are to be extracted


class EntryChanges(Struct, frozen=True):
    """What is to be changed in an entry."""

    index: int
    standing: tuple[Extraction, ...] = ()  # extracted values in it
    to_restore: tuple[Extraction, ...] = ()  # of these, the values to restore
    to_extract: ToExtract = ()
    archive: ArchiveDraft | None = None  # it becomes an archive
    redacts: bool = False  # its call of our tool, or our answer in it, becomes shorter
    concerns_field: bool = False  # a field of it is to be set, or was set
    live: bool = True  # it will be in the next request

    @property
    def needs_draft(self) -> bool:
        return bool(
            self.to_restore
            or self.to_extract
            or self.archive
            or self.redacts
            or self.concerns_field
        )

    @property
    def staying(self) -> list[Extraction]:
        restored = {value.id for value in self.to_restore}
        return [value for value in self.standing if value.id not in restored]


class Decisions:
    """The decisions on the values of a session."""

    def __init__(self) -> None:
        self.entries: list[EntryChanges] = []  # to be drafted
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
        in_order = sorted(self.values.items(), key=lambda item: item[0][0])
        return tuple(
            Decision(
                session.transcript.entries[index].ident, path, value.kind, value.tool, value.chars,
                decision.reason, isinstance(decision, Extract), change,
            )
            for (index, path), (value, decision, change) in in_order
        )  # fmt: skip


class Decider(Struct, frozen=True):
    """Decides about one session by given rules."""

    session: Snapshot
    rules: Rules
    own: OwnCalls
    fields: FieldRequests
    extract: bool = True
    explain: bool = False  # also decide about values of any length

    def decide(self, turns: ArchiveDecisions, locks: Locks) -> Decisions:
        """Decide about all entries. Raises ArchiveRefusedError."""
        session, found, decisions = self.session, self.session.found, Decisions()
        gatherer = SignatureGatherer(session, self.rules, turns.leaving, locks)
        restores = Restores(session)
        decider = _EntryDecider(self, decisions, turns, locks)
        lost = list[tuple[Extraction, str]]()
        for verdict in turns.verdicts:
            decisions.protect(verdict.closing_id, verdict.until)
        for index, entry in enumerate(session.transcript.entries):
            if entry.ident is not None:
                restores.note_id(entry.ident)
            if not decider.concerns(index, entry):
                gatherer.note_extracted(index)
                continue
            bound = gatherer.note_signatures(index)
            standing = tuple(found.standing.get(index, ()))
            wanted = [value for value in standing if restores.wants(value)]
            unfit = gatherer.note_unfit(index, wanted, standing)
            to_restore = tuple(
                value for value in restores.without_unfit(wanted, unfit)
                if (index, value.id) not in found.copies and (index, value.path) not in locks
            )  # fmt: skip
            lost += [
                (value, locks[index, value.path])
                for value in wanted if (index, value.path) in locks
            ]  # fmt: skip
            changes = decider.decide(index, standing, to_restore, bound=bound)
            if changes.needs_draft:
                changes = self._possible(changes, decisions, locks)
            if changes.needs_draft:
                decisions.entries.append(changes)
            if changes.needs_draft or standing:
                gatherer.note_changes(
                    index,
                    self._removed(changes),
                    [one.path for one in changes.to_restore],
                    changes.staying,
                )
            gatherer.note_extracted(index)
        # Of copies that an agent made of a placeholder, it is enough that one comes back.
        restored = {value.id for changes in decisions.entries for value in changes.to_restore}
        decisions.missed += [
            (value.entry_id, why) for value, why in lost if value.id not in restored
        ]
        decisions.missed += restores.missed
        self._judge(decisions, gatherer.signatures, pristine=restores.pristine)
        return decisions

    def _possible(self, changes: EntryChanges, decisions: Decisions, locks: Locks) -> EntryChanges:
        """Return what can be done now. Note what cannot, and why."""
        index, session = changes.index, self.session
        entry, why = session.transcript.entries[index], locks.get((index, ()))
        if entry.terminated and why is None:
            self._note_restored(changes, decisions)
            return changes
        if why is None:
            decisions.waits |= {entry.ident, *(value.entry_id for value in changes.to_restore)}
        else:
            for value, _ in changes.to_extract:
                decisions.keep((index, value.path), value, f"not extractable: {why}")
            decisions.missed += [(value.entry_id, why) for value in changes.to_restore]
            if entry.ident is not None and entry.ident in session.sets:
                decisions.missed.append((entry.ident, why))
        return EntryChanges(index, changes.standing, live=changes.live)

    def _note_restored(self, changes: EntryChanges, decisions: Decisions) -> None:
        if not changes.to_restore:
            return
        entry, now = self.session.transcript.entries[changes.index], self.session.now
        decisions.restored += [
            name for value in changes.to_restore for name in (entry.ident, value.entry_id) if name
        ]
        # The value may be extracted again: at once if forced, else after its protection.
        forced = self.session.override(entry) is True
        decisions.due(now + (0.0 if forced else self.rules.keep_after_restore))

    def _removed(self, changes: EntryChanges) -> list[KeyPath]:
        paths = [value.path for value, _ in changes.to_extract]
        if changes.archive:
            linked = self.session.form.archives == "linked"
            paths += [changes.archive.text_path, *([LINK] if linked else [])]
        return [*paths, *(self.own.paths(changes.index) if changes.redacts else ())]

    def _judge(self, decisions: Decisions, signatures: Signatures, *, pristine: bool) -> None:
        """Decide which signatures are dropped, and whether the session may be changed at all."""
        session, rules = self.session, self.rules
        verdict = decisions.verdict = judge(
            signatures, rules if self.extract else replace(rules, drop_signatures=""),
            remembers=session.habits.remembers and self.extract and rules.enabled,
            pristine=pristine,
        )  # fmt: skip
        for dropped in verdict.dropped:
            place, chars = dropped.signature.place, dropped.signature.chars
            value = Value(place[1], "thinking", chars)
            decisions.values[place] = value, Extract(dropped.reason), ""
        if verdict.blocked:
            for changes in decisions.entries:
                for value, _ in changes.to_extract:
                    decisions.keep((changes.index, value.path), value, "deferred: signatures")


class _EntryDecider:
    """Decides by the rules which values of an entry are extracted."""

    def __init__(
        self, decider: Decider, decisions: Decisions, turns: ArchiveDecisions, locks: Locks
    ) -> None:
        self._decider, self._decisions = decider, decisions
        self._session, self._rules = decider.session, decider.rules
        self._transcript = decider.session.transcript
        self._turns, self._locks = turns, locks
        self._named = decider.fields.entries | decider.session.pins.keys()
        # Values of at most so many characters are skipped, except in archived turns and in entries
        # with placeholders, our fields or a request.
        self._shortest = 0 if decider.explain else decider.rules.shortest

    def concerns(self, index: int, entry: Entry) -> bool:
        """Check whether an entry has anything to decide about."""
        if entry.marks or entry.thoughts or entry.ident in self._named:
            return True
        if index in self._session.found.standing:
            return True
        if any(value.chars > self._shortest for value in entry.values):
            return True
        if index in self._turns.drafts or index in self._turns.emptied:
            return True
        return self._decider.own.concerns(entry)

    def decide(
        self, index: int, standing: tuple[Extraction, ...], to_restore: tuple[Extraction, ...], *,
        bound: bool,
    ) -> EntryChanges:  # fmt: skip
        """Decide about an entry with these extracted values, of which some are `to_restore`.

        `bound`: it contains a signature that covers the request before it.
        """
        entry, turns = self._transcript.entries[index], self._turns
        ident, own_call = entry.ident or "", self._decider.own.concerns(entry)
        archive = turns.drafts.get(index)
        if archive and (to_restore or own_call):
            raise ArchiveRefusedError(ident)
        to_extract: ToExtract = ()
        if self._decider.extract and not to_restore and not own_call:
            taken = {value.path for value in standing if value.archive_id is not None}
            taken |= {archive.text_path} if archive else set()
            to_extract = self._to_extract(index, standing, taken, bound=bound)
        return EntryChanges(
            index, standing, to_restore, to_extract, archive,
            redacts=own_call and not to_restore and self._may_redact(ident),
            concerns_field=entry.ident is not None and ident in self._decider.fields.entries,
            live=index not in turns.leaving and index not in self._transcript.chain.dead,
        )  # fmt: skip

    def _may_redact(self, ident: str) -> bool:
        undone = self._decider.fields.undoes_some(ident)
        return not undone and ident not in self._session.repeated

    def _to_extract(
        self, index: int, standing: Iterable[Extraction], taken: Container[KeyPath], *, bound: bool
    ) -> ToExtract:
        """Return the values that are to be extracted. Archives replace those at paths `taken`."""
        entry, emptied = self._transcript.entries[index], index in self._turns.emptied
        chosen = self._session.override(entry)
        has_fields = entry.marks is not None and bool(entry.marks.fields)
        special = has_fields or emptied or standing or chosen is not None
        shortest = 0 if special else self._shortest
        long = (value for value in entry.values if not shortest or value.chars > shortest)
        around = self._transcript.around(index)
        values = list(self._session.form.resolved(long, around))
        if not values and chosen is True:
            values = self._forced(index)
        if not (values or bound):
            return ()
        here = self._state(index, standing, emptied=emptied)
        to_extract = list[tuple[Value, Extract]]()
        for value in values:
            if value.dead or here.dead or value.sent == 0:
                self._decisions.unsent.add(value.kind, value.tool, chars=value.chars)
            place = index, value.path
            if value.path in taken:
                self._decisions.keep(place, value, "archived turn")
                continue
            state = self._superseding(entry, value, here)
            decision = self._decision(place, value, entry, state)
            explain = self._decider.explain
            change = otherwise(value, state, self._rules, decision) if explain else ""
            self._decisions.values[place] = (value, decision, change)
            if isinstance(decision, Extract):
                to_extract.append((value, decision))
        return tuple(to_extract)

    def _state(
        self, index: int, standing: Iterable[Extraction], *, emptied: bool
    ) -> EntryState:  # fmt: skip
        state = state_of(self._session, self._rules, index, standing)
        self._decisions.due(state.changes_at)
        room = _MOST_WARNINGS - len(self._decisions.warnings)
        self._decisions.warnings += state.warnings[:room]
        farthest, most = self._turns.farthest(index), self._rules.max_messages
        if most and index == self._transcript.chain.last_user:
            farthest = min(farthest, most - 1)  # the newest prompt stays
        return replace(state, emptied=emptied, position=min(state.position, farthest))

    def _forced(self, index: int) -> list[Value]:
        """Return the values of an entry that has values only if somebody asks for them."""
        parsed, form = self._session.parsed(index), self._session.form
        values = form.read({**parsed.entry, EXTRACTABLE: True}).values
        return list(form.resolved(values, self._transcript.around(index)))

    def _superseding(self, entry: Entry, value: Value, here: EntryState) -> EntryState:
        if not self._rules.superseded or value.dead:
            return here
        by = self._superseded.get((entry.ident, value.kind, value.call), "")
        return replace(here, superseded=by)

    @cached_property
    def _superseded(self) -> Mapping[CallValues, str]:
        return superseded(self._transcript)

    def _decision(
        self, place: Place, value: Value, entry: Entry, here: EntryState
    ) -> Extract | Keep:  # fmt: skip
        name = placeholder_at(entry, value.path)
        decision = decision_on(value, name, here, self._rules, self._session.now)
        if isinstance(decision, Keep):
            self._decisions.protect(here.entry_id, decision.until)
            return decision
        if self._session.pads and not decision.forced and (
            value.dead or here.dead or value.sent == 0
        ):  # fmt: skip
            return Keep(NOT_SENT)
        if (here.entry_id, value.path) in self._rules.spared and not here.emptied:
            return Keep(FITS)
        if self._rules.waits and not (decision.forced or value.dead or here.dead or here.emptied):
            return Keep(f"deferred: {self._rules.waits}")
        if not entry.terminated:
            return Keep("the last line has no newline yet")
        if entry.ident in self._session.repeated:
            return Keep(f"not extractable: {TWICE}")
        if why := self._locks.get(place):
            return Keep(why)
        return decision
