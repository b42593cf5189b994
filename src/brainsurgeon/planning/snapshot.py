"""A session at the time of planning."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TypeGuard

from msgspec import Struct

from brainsurgeon.formats.base import Format, ParsedLine
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import EXTRACTABLE, KeyPath
from brainsurgeon.model.records import Records, Request
from brainsurgeon.model.session_files import Moving
from brainsurgeon.model.transcript import Entry
from brainsurgeon.planning.matching import Matches, find

TWICE = "its id occurs twice in the file"
# Where a value is: the index of its entry, and its path. Places compare as in the file.
Place = tuple[int, KeyPath]
Locks = dict[Place, str]  # why a value, or a line (without a path), cannot be edited


class Habits(Struct, frozen=True):
    # The agent can ask its provider to drop blocks with invalid signatures (`asked_to_drop`).
    drops_blocks: bool = False
    # The agent keeps a session in memory: new thinking may be signed together with values that were
    # extracted from the file long ago.
    remembers: bool = False
    moving: Moving = "no edits"  # counts only if the agent stores offsets into the file


class Snapshot(Struct, frozen=True, dict=True):
    transcript: Transcript
    parsed: Callable[[int], ParsedLine]  # reads the line of an entry again
    records: Records
    now: float
    changed_at: float = 0.0
    # Seconds that a request to redact waits for the answer. A change of the session ends the wait.
    answer_wait: float = 0.0
    branches_die_at: float = 0.0  # from then on, entries off the active branch are dead
    habits: Habits = Habits()

    @property
    def form(self) -> Format:
        return self.transcript.form

    @property
    def pads(self) -> bool:
        """Whether spaces take the place of extracted values, so that no line moves."""
        return self.transcript.chain.keeps_length and self.habits.moving != "all edits"

    @property
    def is_fixed(self) -> bool:
        return self.transcript.chain.keeps_length and self.habits.moving == "no edits"

    @cached_property
    def found(self) -> Matches:
        return find(self.transcript, self.records, self.parsed)

    @cached_property
    def sets(self) -> dict[str, Request]:
        return {one.entry_id: one for one in self.records.requested("set") if one.entry_id}

    @cached_property
    def pins(self) -> dict[str, bool | int]:
        """Our values of `_extractable` by entry; they apply even if the agent dropped the field."""
        return {
            one.entry_id: json.loads(one.value)
            for one in self.records.fields
            if one.name == EXTRACTABLE and one.session_id == self.records.own
        }

    def override(self, entry: Entry) -> bool | int | None:
        """Return the `_extractable` of an entry: as requested, as in its field, or as recorded.

        An integer N means: kept in the newest N messages.
        """
        ident, fields = entry.ident or "", entry.marks.fields if entry.marks else {}
        if ident in self.sets:
            override = self.sets[ident].value
        elif EXTRACTABLE in fields:
            override = fields[EXTRACTABLE]
        else:
            override = self.pins.get(ident)
        return override if is_override(override) else None

    @cached_property
    def ids(self) -> frozenset[str]:
        return frozenset(
            entry.ident for entry in self.transcript.entries if entry.ident is not None
        )

    @cached_property
    def repeated(self) -> frozenset[str]:
        return frozenset() if self.form.repeats else repeated(self.transcript.entries)


def is_override(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and value >= 0


def repeated(entries: Iterable[Entry]) -> frozenset[str]:
    """Return the ids that occur more than once."""
    counts = Counter(entry.ident for entry in entries if entry.ident is not None)
    return frozenset(ident for ident, count in counts.items() if count > 1)


# Increase this whenever the planner decides differently about the same bytes.
VERSION = 8
