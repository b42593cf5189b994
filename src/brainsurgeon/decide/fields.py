"""Plan the fields of ours on an entry: which are set, and which are taken out again."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from typing import TYPE_CHECKING

from brainsurgeon.formats import fields
from brainsurgeon.model.entries import EXTRACTABLE, RESTORED
from brainsurgeon.model.times import iso

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.edits import FieldEdit
    from brainsurgeon.model.entries import Line
    from brainsurgeon.model.records import Extraction, FieldRecord, Wish


class FieldWishes:
    """The fields that stand in one session, and the wishes that set or undo some."""

    def __init__(self, placed: Iterable[FieldRecord], wishes: Iterable[Wish]) -> None:
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

    def edits(
        self, line: Line, raw: bytes, ident: str | None, back: list[Extraction], now: float
    ) -> list[FieldEdit]:
        """Give the fields to set on an entry, and those of ours to take out again.

        `back` are the values that are put back into it. Each field is edited once: where undoing
        and setting meet, the newer wish holds.
        """
        pristine = self.pristine(ident or "")
        chosen = self.sets.get(ident or "")
        if chosen and pristine is not None and pristine > _newness(chosen):
            chosen = None
        edits: list[FieldEdit] = []
        for record in self._placed.get(ident or "", ()):
            self._met.add(record.id)
            if pristine is None or (chosen and record.name == EXTRACTABLE):
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
            if edit is None:
                self._missed.append(
                    (record.entry_id, f"{record.name} no longer stands as it was set")
                )
            else:
                edits.append(edit)
        if chosen:
            token = json.dumps(chosen.value).encode()
            edits += fields.put(raw, line.offset, ident or "", EXTRACTABLE, token)
        if back and pristine is None and any(self._marks(record) for record in back):
            token = json.dumps(iso(now)).encode()
            edits += fields.put(raw, line.offset, ident or back[0].entry_id, RESTORED, token)
        return edits

    def pristine(self, ident: str) -> float | None:
        """Give how new the newest wish is that undoes all fields of an entry; None without one."""
        return max(
            (
                _newness(wish)
                for wish in self._restores
                if wish.pristine and wish.paths is None and wish.speaks_of(ident)
            ),
            default=None,
        )

    def missed(self) -> list[tuple[str, str]]:
        """Say, once the whole file was walked, which fields were to be undone and were not."""
        return self._missed + [
            (record.entry_id, f"{record.name} was set there; the entry stands nowhere any more")
            for records in self._placed.values()
            for record in records
            if record.id not in self._met and self.pristine(record.entry_id) is not None
        ]

    def _marks(self, record: Extraction) -> bool:
        """Tell whether a wish for this value wants `_restored` set (all but pristine ones)."""
        return any(not wish.pristine and wish.speaks_of(record.entry_id) for wish in self._restores)


def _newness(wish: Wish) -> float:
    """Order wishes by how new they are; none is newer than one that is carried out at once."""
    return math.inf if wish.id is None else wish.id
