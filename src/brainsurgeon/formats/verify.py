"""Parse an edited line again: it says what it said, but for what the edits name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from brainsurgeon.formats import base, spans
from brainsurgeon.model import Cut, Putback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.model import Edit, Entry, KeyPath


def verify(raw: bytes, offset: int, entry: Entry, edits: Sequence[Edit]) -> None:
    """Raise Untouchable where the edits would do anything but what they say; changes `entry`.

    Values put back are left out: their bytes are checked by their digest when they are read.
    """
    done = [edit for edit in edits if not isinstance(edit, Putback)]
    fresh = base.parse(
        spans.splice(raw, [(edit.start - offset, edit.end - offset, edit.new) for edit in done])
    )
    if fresh is None:
        raise spans.Untouchable("the edited line would not parse")
    for edit in done:
        if isinstance(edit, Cut):
            if base.value_at(fresh, edit.path) != json.loads(edit.new):
                raise spans.Untouchable("the edited line would not say what was planned")
            _blank(fresh, edit.path)
            _blank(entry, edit.path)
        else:
            fresh.pop(edit.name, None)
            entry.pop(edit.name, None)
    if fresh != entry:
        raise spans.Untouchable("the edited line would differ elsewhere")


def _blank(entry: Entry, path: KeyPath) -> None:
    base.value_at(entry, path[:-1])[path[-1]] = None
