"""Judge the parts of an entry by the rules, and draft the edits of its line."""

import json
import math
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from brainsurgeon.formats import splice
from brainsurgeon.formats.base import ParsedLine
from brainsurgeon.model.entries import (
    EXTRACTABLE,
    REDACTED,
    RESTORED,
    KeyPath,
    Value,
    placeholder_id,
    placeholder_named,
    placeholder_token,
)
from brainsurgeon.model.plans import Amounts, Decision, FieldEdit, KeptValues, Removal
from brainsurgeon.model.records import Extraction, FieldRecord, Request
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.sessions import OFF_BRANCH
from brainsurgeon.model.text import iso
from brainsurgeon.model.transcript import Entry
from brainsurgeon.planning.rules import (
    FITS,
    EntryState,
    Extract,
    Keep,
    extract,
    otherwise,
    override_of,
    read_restored,
)
from brainsurgeon.planning.snapshot import Snapshot
from brainsurgeon.planning.superseded import Values, superseded

_MOST_WARNINGS = 100
Place = tuple[int, KeyPath]  # the offset of a line, and the path of a value in it
Going = list[tuple[Value, Extract]]  # the parts of an entry that are to be extracted


class Judge:
    def __init__(self, session: Snapshot, rules: Rules, *, explain: bool = False) -> None:
        # Values of at most so many characters are skipped, except in archived turns and in entries
        # with placeholders, our fields or a request.
        self._shortest = 0 if explain else rules.shortest
        self.due_at: float | None = None  # when a decision first changes by time alone
        self.protected: dict[str, float] = {}
        self.warnings: list[str] = []
        self._explains = explain
        self._decided: dict[Place, tuple[Value | Removal, Extract | Keep, str]] = {}
        self._once: dict[Any, Any] = {}  # equal paths, tools and reasons share their memory
        self.unsent = Amounts()
        self._session, self._transcript, self._rules = session, session.transcript, rules
        self._sets, self._pins = session.sets, session.records.pins

    def keep(self, offset: int, part: Value | Removal, why: str) -> None:
        """Decide that a value of the line at an offset stays, whatever was decided before."""
        self._decided[offset, part.path] = (part, Keep(why), "")

    def keep_edited(self, edit: Removal, why: str) -> None:
        transcript = self._transcript
        self.keep(transcript.starts[transcript.line_at(edit.start)], edit, why)

    def take(self, place: Place, removal: Removal) -> None:
        """Decide that a signature leaves, which would stay by the rules."""
        self._decided[place] = (removal, Extract(removal.reason), "")

    def protect(self, ident: str | None, until: float | None) -> None:
        if until is not None:
            self.protected[ident or ""] = until
            self.due(until)

    def due(self, moment: float) -> None:
        self.due_at = moment if self.due_at is None else min(moment, self.due_at)

    @property
    def kept(self) -> tuple[KeptValues, ...]:
        kept = Amounts()
        for part, decision, _ in self._decided.values():
            if isinstance(decision, Keep):
                kept.add(part.kind, part.tool, decision.reason, chars=part.chars)
        return tuple(
            KeptValues(kind, tool, values, chars, why)
            for (kind, tool, why), (values, chars) in kept.ranked()
        )

    @property
    def decisions(self) -> tuple[Decision, ...]:
        if not self._explains:
            return ()
        entries, index_at = self._transcript.entries, self._transcript.index_at
        in_order = sorted(self._decided.items(), key=lambda item: item[0][0])
        return tuple(
            Decision(
                entries[index_at(offset)].ident, path, part.kind, part.tool, part.chars,
                decision.reason, isinstance(decision, Extract), change,
            )
            for (offset, path), (part, decision, change) in in_order
        )  # fmt: skip

    def judge(
        self, index: int, standing: Iterable[Extraction], signatures: Collection[KeyPath],
        taken: Container[KeyPath], *, emptied: bool, farthest: int,
    ) -> Going:  # fmt: skip
        """Return the parts of an entry that are to be extracted, and count the others.

        Archives replace the values at the paths `taken`. After the planned archives, at most
        `farthest` messages follow the entry.
        """
        entry, chain = self._transcript.entries[index], self._transcript.chain
        chosen = override_of({}, entry.ident, self._sets, self._pins)[0]
        has_fields = entry.marks is not None and bool(entry.marks.fields)
        special = has_fields or emptied or standing or chosen is not None
        shortest = 0 if special else self._shortest
        listed = self._transcript.values(index)
        parts = [part for part in listed if not shortest or part.chars > shortest]
        if not parts and chosen is True:
            parts = self._forced(index)
        if not (parts or signatures):
            return []
        here = self.state(index, standing)
        if self._rules.max_messages and index == chain.last_user:
            farthest = min(farthest, self._rules.max_messages - 1)  # the newest prompt stays
        here = replace(here, emptied=emptied, position=min(here.position, farthest))
        offset = self._transcript.offset(index)
        going: Going = []
        for part in parts:
            if part.dead or here.dead or (part.sent == 0 and not part.signed):
                self.unsent.add(part.kind, part.tool, chars=part.chars)
            if part.path in taken:
                self.keep(offset, part, "archived turn")
                continue
            state = self._superseding(entry, part, here)
            decision = self._decide(part, entry, state)
            if isinstance(decision, Extract) and not entry.terminated:
                decision = Keep("the last line has no newline yet")
            change = otherwise(part, state, self._rules, decision) if self._explains else ""
            self._decided[offset, part.path] = (part, decision, change)
            if isinstance(decision, Extract):
                going.append((part, decision))
        return going

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

    def _decide(self, part: Value, entry: Entry, here: EntryState) -> Extract | Keep:
        decision = extract(part, _stands(part, entry), here, self._rules, self._session.now)
        if isinstance(decision, Keep):
            self.protect(here.entry_id, decision.until)
        elif (here.entry_id, part.path) in self._rules.spared and not here.emptied:
            return Keep(FITS)
        elif self._rules.waits and not (decision.forced or part.dead or here.dead or here.emptied):
            return Keep(f"deferred: {self._rules.waits}")
        return decision

    def state(self, index: int, standing: Iterable[Extraction] = ()) -> EntryState:
        entry, now = self._transcript.entries[index], self._session.now
        ident, fields = entry.ident, entry.marks.fields if entry.marks else {}
        override, odd = override_of(fields, ident, self._sets, self._pins)
        stamp, unusable = read_restored(fields, self._rules, now)
        for warning in (odd, unusable):
            if warning and len(self.warnings) < _MOST_WARNINGS:
                self.warnings.append(f"entry {ident}: {warning}")
        dead, dies_at = self._transcript.chain.dead.get(index), self._session.branches_die_at
        if dead == OFF_BRANCH and now < dies_at:  # the user may resume the branch
            self.due(dies_at)
            dead = None
        remembered = self._session.records.restores.get(ident) if ident else None
        latest = now + self._rules.keep_after_restore
        stamps = [when for when in (stamp, remembered) if when is not None and when <= latest]
        return EntryState(
            ident, self._transcript.position(index), override,
            max(stamps, default=None), bool(fields.get(REDACTED)),
            frozenset(value.placeholder for value in standing if value.placeholder),
            dead,
        )  # fmt: skip

    def removals(self, parsed: ParsedLine, going: Going) -> Iterator[Removal]:
        ident = parsed.ident or ""
        name = placeholder_id(ident)
        places = splice.locate(parsed.raw, [part.path for part, _ in going])
        once = self._once.setdefault
        for part, decision in going:
            start, end = places[part.path]
            token = part.instead or placeholder_token(placeholder_named(name), block=part.block)
            if not decision.forced and len(token) >= end - start:
                self.keep(parsed.offset, part, "no gain")
                continue
            path, tool = once(part.path, part.path), once(part.tool, part.tool)
            reason = once(decision.reason, decision.reason)
            yield Removal(
                ident, name, path, part.kind, tool, part.chars, part.block,
                part.call, parsed.rest, tokens=0,
                start=start + parsed.offset, end=end + parsed.offset, new=token,
                forced=decision.forced, reason=reason,
                how="extract" if part.instead is None else "empty",
            )  # fmt: skip


class FieldRequests:
    def __init__(self, session: Snapshot) -> None:
        records, self.sets = session.records, session.sets
        self._own, self._restores = records.own, records.requested("restore")
        self._records: dict[str, list[FieldRecord]] = defaultdict(list)
        for record in records.fields:
            self._records[record.entry_id].append(record)
        self.entries = self.sets.keys() | self._records.keys()
        self._seen: set[int] = set()
        self._missed: list[tuple[str, str]] = []
        self.dropped: dict[int, str] = {}  # entry ids of fields that are already gone, by record id

    def edits(
        self, parsed: ParsedLine, back: list[Extraction], left: list[Extraction], now: float
    ) -> list[FieldEdit]:
        """`back` are the values restored into the entry, `left` its others."""
        ident = parsed.ident or ""
        pristine = self._newest_undo(ident, None)
        chosen = self.sets.get(ident)
        if chosen and pristine is not None and pristine > _newness(chosen):
            chosen = None
        marked = pristine is None and any(
            not request.pristine and request.concerns(value.entry_id)
            for request in self._restores
            for value in back
        )
        put = chosen is not None and chosen.value is not None
        stays = {EXTRACTABLE} if put else set()
        stays |= {RESTORED} if marked else set()
        stays |= {REDACTED} if any(value.is_redacted for value in left) else set()
        edits = self._undone(parsed, stays)
        if chosen and put:
            edits += splice.set_field(parsed, EXTRACTABLE, json.dumps(chosen.value).encode())
        if marked:
            line = replace(parsed, ident=parsed.ident or back[0].entry_id)
            edits += splice.set_field(line, RESTORED, json.dumps(iso(now)).encode())
        return [
            edit if edit.undoes is not None else replace(edit, rest=parsed.rest) for edit in edits
        ]

    def _undone(self, parsed: ParsedLine, stays: Container[str]) -> list[FieldEdit]:
        edits: list[FieldEdit] = []
        for record in self._records.get(parsed.ident or "", ()):
            self._seen.add(record.id)
            # A fork has records of several sessions for the same field.
            once = any(edit.name == record.name for edit in edits)
            others = record.session_id != self._own and record.rest != parsed.rest
            if others or once or record.name in stays or not self._undoes(record):
                continue
            undone = splice.undo_field(parsed, record)
            edits += undone
            if record.session_id != self._own or undone:
                continue
            if record.name not in parsed.entry:
                self.dropped[record.id] = record.entry_id
            if record.name in parsed.entry or record.before is not None:
                why = f"{record.name} no longer has the value that was set"
                self._missed.append((record.entry_id, why))
        return edits

    def undoes_some(self, ident: str) -> bool:
        runs = (None, *(record.run_id for record in self._records.get(ident, ())))
        return any(self._newest_undo(ident, run_id) is not None for run_id in runs)

    def _undoes(self, record: FieldRecord) -> bool:
        asked = self.sets.get(record.entry_id) if record.name == EXTRACTABLE else None
        cleared = asked is not None and asked.value is None
        return cleared or self._newest_undo(record.entry_id, record.run_id) is not None

    def missed(self) -> list[tuple[str, str]]:
        return self._missed + [
            (record.entry_id, f"{record.name} was set there; the entry no longer exists")
            for records in self._records.values()
            for record in records
            if record.id not in self._seen and record.session_id == self._own
            and self._undoes(record)
        ]  # fmt: skip

    def _newest_undo(self, ident: str, run_id: int | None) -> float | None:
        undo = (
            _newness(request) for request in self._restores
            if request.pristine and request.paths is None and request.concerns(ident)
            and request.rolls_back in (None, run_id)
        )  # fmt: skip
        return max(undo, default=None)


def _newness(request: Request) -> float:
    return math.inf if request.id is None else request.id


def _stands(part: Value, entry: Entry) -> str | None:
    """Return the placeholder that stands for a value."""
    named = entry.marks.named if entry.marks else {}
    name, archived = named.get(part.path) or named.get((*part.path, "text"), ("", True))
    return None if archived else placeholder_named(name)


def repeated(entries: Iterable[Entry]) -> frozenset[str]:
    """Return the ids that occur more than once."""
    seen, twice = set[str](), set[str]()
    for entry in entries:
        if entry.ident in seen:
            twice.add(entry.ident)
        elif entry.ident is not None:
            seen.add(entry.ident)
    return frozenset(twice)
