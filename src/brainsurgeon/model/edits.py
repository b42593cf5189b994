"""The edits of one session: bytes that give way to other bytes.

Every edit knows where it stands (`start` and `end`, in bytes from the start of the file), what
stands there afterwards, what it gains, and how the parsed entry shows that it was carried out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.model.entries import value_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.model.entries import Entry, KeyPath, Kind


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that leave a line and the stub that stands in for them.

    A cut that `redacts` puts a short text in their place instead of a stub. `anchor` is the id of
    the tool call that the value belongs to: an agent that writes its history anew gives entries
    new ids and keeps that one. An `exact` cut is never looked for under another entry id, since
    its stub's text stood elsewhere in the file before we put it there.
    """

    start: int
    end: int
    new: bytes
    entry_id: str
    stub: str
    path: KeyPath
    kind: Kind
    tool: str | None
    chars: int
    block: bool
    forced: bool
    reason: str
    redacts: bool = False
    anchor: str | None = None
    exact: bool = False

    @property
    def gain(self) -> int:
        """Bytes by which the file shrinks."""
        return self.end - self.start - len(self.new)

    def bytes_after(self, _value_of: Callable[[int], bytes]) -> bytes:
        """Give what stands in the place afterwards."""
        return self.new

    def shows_in(self, entry: Entry) -> bool:
        """Tell whether the parsed entry says what this edit was to make of it."""
        return bool(value_at(entry, self.path) == json.loads(self.new))

    def blank(self, entry: Entry) -> None:
        """Take what this edit touches out of a parsed entry, so that the rest can be compared."""
        value_at(entry, self.path[:-1])[self.path[-1]] = None


@dataclass(frozen=True, slots=True)
class Putback:
    """A stub that gives way to the bytes it stood for.

    What stands there afterwards is checked by its digest when it is read from the store.
    """

    start: int
    end: int
    extraction_id: int
    entry_id: str
    path: KeyPath
    size: int

    @property
    def new(self) -> None:
        """What stands there afterwards is the store's to say."""
        return

    @property
    def gain(self) -> int:
        """Bytes by which the file shrinks; below 0 where it grows."""
        return self.end - self.start - self.size

    def bytes_after(self, value_of: Callable[[int], bytes]) -> bytes:
        """Give what stands in the place afterwards: the stored value."""
        return value_of(self.extraction_id)

    def shows_in(self, _entry: Entry) -> bool:
        """Trust the digest of the value."""
        return True

    def blank(self, entry: Entry) -> None:
        """Touch nothing that could be compared before the value is read."""


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """A top-level field of ours that is set, or one recorded earlier that is taken out again.

    `before` is the token that stands there now (None: the field is absent). `undoes` is the
    record of the insertion that this edit takes back.
    """

    start: int
    end: int
    new: bytes
    entry_id: str
    name: str
    before: bytes | None
    undoes: int | None = None

    @property
    def gain(self) -> int:
        """Bytes by which the file shrinks; below 0 where it grows."""
        return self.end - self.start - len(self.new)

    def bytes_after(self, _value_of: Callable[[int], bytes]) -> bytes:
        """Give what stands in the place afterwards."""
        return self.new

    def shows_in(self, _entry: Entry) -> bool:
        """Trust the parser: a field of ours stands alone at the top level."""
        return True

    def blank(self, entry: Entry) -> None:
        """Take the field out of a parsed entry, so that the rest can be compared."""
        entry.pop(self.name, None)


Edit = Cut | Putback | FieldEdit
