"""Our fields in entries: those that requests set, and those that are to be undone."""

import json
import math
from collections import defaultdict
from collections.abc import Container, Sequence

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import splice
from brainsurgeon.formats.base import ParsedLine
from brainsurgeon.model.entries import EXTRACTABLE, REDACTED, RESTORED
from brainsurgeon.model.plans import FieldEdit
from brainsurgeon.model.records import Extraction, FieldRecord, Request
from brainsurgeon.model.text import iso
from brainsurgeon.planning.snapshot import Snapshot


class FieldChanges(Struct, frozen=True):
    """The edits of our fields in a line."""

    edits: tuple[FieldEdit, ...] = ()
    gone: tuple[int, ...] = ()  # ids of records whose field is gone already
    missed: tuple[tuple[str, str], ...] = ()  # fields that cannot be undone, by entry id


class FieldRequests:
    def __init__(self, session: Snapshot) -> None:
        records, self.sets = session.records, session.sets
        self._own, self._restores = records.own, records.requested("restore")
        self._records: dict[str, list[FieldRecord]] = defaultdict(list)
        for record in records.fields:
            self._records[record.entry_id].append(record)
        self.entries = self.sets.keys() | self._records.keys()

    def changes(
        self, parsed: ParsedLine, back: Sequence[Extraction], left: Sequence[Extraction], now: float
    ) -> FieldChanges:
        """Draft the edits of an entry, into which values go `back`; `left` are its others."""
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
        edits, gone, missed = self._undone(parsed, stays)
        if chosen and put:
            edits += splice.set_field(parsed, EXTRACTABLE, json.dumps(chosen.value).encode())
        if marked:
            line = replace(parsed, ident=parsed.ident or back[0].entry_id)
            edits += splice.set_field(line, RESTORED, json.dumps(iso(now)).encode())
        edits = [
            edit if edit.undoes is not None else replace(edit, rest=parsed.rest) for edit in edits
        ]
        return FieldChanges(tuple(edits), tuple(gone), tuple(missed))

    def _undone(
        self, parsed: ParsedLine, stays: Container[str]
    ) -> tuple[list[FieldEdit], list[int], list[tuple[str, str]]]:
        edits, gone, missed = list[FieldEdit](), list[int](), list[tuple[str, str]]()
        for record in self._records.get(parsed.ident or "", ()):
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
                gone.append(record.id)
            if record.name in parsed.entry or record.before is not None:
                why = f"{record.name} no longer has the value that was set"
                missed.append((record.entry_id, why))
        return edits, gone, missed

    def undoes_some(self, ident: str) -> bool:
        runs = (None, *(record.run_id for record in self._records.get(ident, ())))
        return any(self._newest_undo(ident, run_id) is not None for run_id in runs)

    def _undoes(self, record: FieldRecord) -> bool:
        asked = self.sets.get(record.entry_id) if record.name == EXTRACTABLE else None
        cleared = asked is not None and asked.value is None
        return cleared or self._newest_undo(record.entry_id, record.run_id) is not None

    def missed(self, ids: Container[str]) -> list[tuple[str, str]]:
        """Return the fields to undo in entries that are not among the `ids` of a session."""
        return [
            (record.entry_id, f"{record.name} was set there; the entry no longer exists")
            for records in self._records.values()
            for record in records
            if record.entry_id not in ids and record.session_id == self._own
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
