"""The requests to restore values, and to set or undo our fields in entries."""

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
from brainsurgeon.planning.signatures import UNFIT
from brainsurgeon.planning.snapshot import Snapshot

_NO_TURN = "only its text was restored: the turn itself is not in this session"


class Restores:
    """The requests to restore values of one session.

    `missed` gets the requested values that are lost, and others that cannot be restored if a
    request names their entry. `pristine` is true if a request asks for that.
    """

    def __init__(self, session: Snapshot) -> None:
        records = session.records
        self._requests = records.requested("restore")
        self.pristine = any(one.pristine for one in self._requests if one.restores_all)
        self._named = {request.entry_id for request in self._requests}
        self.missed: list[tuple[str, str]] = []
        self._damaged = records.damaged
        self._continued = {value.parent for value in records.extractions if value.is_link}
        self._seen: set[str] = set()
        self._archives = {
            (value.entry_id, value.path)
            for value in records.extractions if value.archive_id is not None
        }  # fmt: skip

    def note_id(self, ident: str) -> None:
        if ident in self._continued:
            self._seen.add(ident)

    def without_unfit(self, wanted: list[Extraction], unfit: list[Extraction]) -> list[Extraction]:
        if self.pristine:
            return wanted
        self.missed += [(value.entry_id, UNFIT) for value in unfit if value.entry_id in self._named]
        left = {value.id for value in unfit}
        return [value for value in wanted if value.id not in left]

    def wants(self, value: Extraction) -> bool:
        asked = any(self._means(request, value) for request in self._requests)
        # A fork has only the active branch. The original parent of an archive's last answer may be
        # missing there: then the link stays.
        if asked and value.is_link and value.parent not in self._seen:
            if value.entry_id in self._named:
                self.missed.append((value.entry_id, _NO_TURN))
            return False
        if asked and (value.blob_id is None or value.id in self._damaged):
            lost = "damaged in the store" if value.blob_id is not None else "expired"
            self.missed.append((value.entry_id, lost))
            return False
        return asked

    def _means(self, request: Request, value: Extraction) -> bool:
        """Check whether a request is for a value. Text and link of an archive are one value."""
        if value.archive_id is None or request.paths is None:
            return request.includes(value)
        return request.concerns(value.entry_id) and any(
            (value.entry_id, path) in self._archives for path in request.paths
        )


class FieldChanges(Struct, frozen=True):
    """The edits of our fields in a line."""

    edits: tuple[FieldEdit, ...] = ()
    gone: tuple[int, ...] = ()  # ids of records whose field is gone already
    missed: tuple[tuple[str, str], ...] = ()  # fields that cannot be undone, by entry id


class FieldRequests:
    def __init__(self, session: Snapshot) -> None:
        records, self.sets = session.records, session.sets
        self._possible = session.form.has_fields
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
        chosen = self.sets.get(ident)
        if not self._possible:
            records = self._records.get(ident, ())
            return FieldChanges(gone=tuple(
                one.id for one in records if one.session_id == self._own and self._undoes(one)
            ))  # fmt: skip
        pristine = self._newest_undo(ident, None)
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
            # Its own record may be undone already: then the user may have written the same value.
            elsewhere = record.session_id != self._own
            others = elsewhere and record.rest != parsed.rest
            if others or once or record.name in stays or not self._undoes(record):
                continue
            undone = splice.undo_field(parsed, record, verbatim=elsewhere)
            edits += undone
            if elsewhere or undone:
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
