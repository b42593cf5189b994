"""Plan the fields of ours on an entry: which are set, and which are taken out again."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING

from brainsurgeon.formats import fields
from brainsurgeon.model.entries import EXTRACTABLE, REDACTED, RESTORED
from brainsurgeon.model.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.edits import FieldEdit
    from brainsurgeon.model.entries import Entry, Line
    from brainsurgeon.model.records import Extraction, FieldRecord, Wish


class FieldWishes:
    """The fields that stand in one session, and the wishes that set or undo some."""

    def __init__(
        self, placed: Iterable[FieldRecord], wishes: Iterable[Wish], own: int | None
    ) -> None:
        self._own = own
        asked = list(wishes)
        self.sets = {
            wish.entry_id: wish for wish in asked if wish.action == "set" and wish.entry_id
        }
        self._restores = [wish for wish in asked if wish.action == "restore"]
        self._placed: dict[str, list[FieldRecord]] = defaultdict(list)
        for record in placed:
            self._placed[record.entry_id].append(record)
        self._met: set[int] = set()
        self._missed: list[tuple[str, str]] = []

    def speak_of(self, entry_id: str) -> bool:
        """Tell whether a field of this entry is set, or is wished for."""
        return entry_id in self.sets or entry_id in self._placed

    def cleans(self, ident: str, entry: Entry) -> bool:
        """Check whether an entry is to be as its agent wrote it, and marks of ours stand in it."""
        ours = RESTORED in entry or REDACTED in entry
        return ours and _newest(self._restores, ident, None) is not None

    def edits(
        self, line: Line, raw: bytes, ident: str | None, back: list[Extraction],
        left: list[Extraction], now: float,
    ) -> list[FieldEdit]:  # fmt: skip
        """Give the fields to set on an entry, and those of ours to take out again.

        `back` are the values that are put back into it, `left` those whose place is taken still.
        Each field is edited once: where undoing and setting meet, the newer wish holds. What was
        shortened and stays so goes on saying that it was.
        """
        pristine = _newest(self._restores, ident or "", None)
        chosen = self.sets.get(ident or "")
        if chosen and pristine is not None and pristine > _newness(chosen):
            chosen = None
        marked = back and pristine is None and any(self._marks(record) for record in back)
        stays = {EXTRACTABLE} if chosen else set()
        stays |= {RESTORED} if marked else set()
        stays |= {REDACTED} if any(one.redacts for one in left) else set()
        edits: list[FieldEdit] = []
        for record in self._placed.get(ident or "", ()):
            self._met.add(record.id)
            once = any(edit.name == record.name for edit in edits)  # forks have records of several
            if once or record.name in stays or not self._undoes(record):
                continue
            edit = fields.take_out(
                raw,
                line.offset,
                record.entry_id,
                record.name,
                record.before,
                record.after,
                record.id,
            )
            if edit is None and record.session_id == self._own:
                self._missed.append(
                    (record.entry_id, f"{record.name} no longer stands as it was set")
                )
            elif edit is not None:
                edits.append(edit)
        if pristine is not None:
            undone = {edit.name for edit in edits} | stays
            for name in {RESTORED, REDACTED} - undone:
                edits += fields.take_out_marked(raw, line.offset, ident or "", name)
        if chosen:
            token = json.dumps(chosen.value).encode()
            edits += fields.put(raw, line.offset, ident or "", EXTRACTABLE, token)
        if marked:
            token = json.dumps(iso(now)).encode()
            edits += fields.put(raw, line.offset, ident or back[0].entry_id, RESTORED, token)
        return edits

    def undoes_some(self, ident: str) -> bool:
        """Tell whether all fields of an entry are to be undone, or one that stands there."""
        whole = _newest(self._restores, ident, None) is not None
        return whole or any(self._undoes(record) for record in self._placed.get(ident, ()))

    def _undoes(self, record: FieldRecord) -> bool:
        """Tell whether a wish undoes this field: all of its entry, or those of its pass."""
        return _newest(self._restores, record.entry_id, record.pass_id) is not None

    def missed(self) -> list[tuple[str, str]]:
        """Say, once the whole file was walked, which fields were to be undone and were not."""
        return self._missed + [
            (record.entry_id, f"{record.name} was set there; the entry stands nowhere any more")
            for records in self._placed.values()
            for record in records
            if record.id not in self._met and record.session_id == self._own
            and self._undoes(record)
        ]  # fmt: skip

    def _marks(self, record: Extraction) -> bool:
        """Tell whether a wish for this value wants `_restored` set (all but pristine ones)."""
        return any(not wish.pristine and wish.speaks_of(record.entry_id) for wish in self._restores)


def _newest(wishes: Iterable[Wish], ident: str, pass_id: int | None) -> float | None:
    """Give how new the newest wish is that undoes the fields of an entry, or None.

    Those that roll back a pass count for the fields of that pass alone.
    """
    return max(
        (
            _newness(wish)
            for wish in wishes
            if wish.pristine and wish.paths is None and wish.speaks_of(ident)
            and wish.rolls_back in (None, pass_id)
        ),
        default=None,
    )  # fmt: skip


def _newness(wish: Wish) -> float:
    """Order wishes by how new they are; none is newer than one that is carried out at once."""
    return math.inf if wish.id is None else wish.id
