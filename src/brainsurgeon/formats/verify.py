"""Parse an edited line again: but for what the edits name, it must say what it said."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.formats import base, spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.model.edits import Edit
    from brainsurgeon.model.entries import Entry


def verify(raw: bytes, offset: int, entry: Entry, edits: Sequence[Edit]) -> None:
    """Raise UntouchableError where the edits would do anything but what they say; changes `entry`.

    Values put back are left out: their bytes are checked by their digest when they are read.
    """
    splices = [(e.start - offset, e.end - offset, e.new) for e in edits if e.new is not None]
    fresh = base.parse(spans.splice(raw, splices))
    if fresh is None:
        raise spans.UntouchableError("the edited line would not parse")
    for edit in edits:
        if not edit.shows_in(fresh):
            raise spans.UntouchableError("the edited line would not say what was planned")
        edit.blank(fresh)
        edit.blank(entry)
    if fresh != entry:
        raise spans.UntouchableError("the edited line would differ elsewhere")
