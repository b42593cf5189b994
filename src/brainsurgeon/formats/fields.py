"""Set a field of ours on an entry, or take a recorded one out again; the rest of the line stays.

Fields go at the top level of the entry, never inside a message or a block: providers answer 400
to an unknown key in a block. A field that stands twice makes the line untouchable.
"""

from __future__ import annotations

import json
import re

from brainsurgeon.formats import spans
from brainsurgeon.model.edits import UNRECORDED, FieldEdit
from brainsurgeon.model.entries import REDACTED, RESTORED

_TOKENS = {
    REDACTED: re.compile(rb"true"),
    RESTORED: re.compile(rb'"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z"'),
}
"""What we write as the value of a field."""


def put(raw: bytes, offset: int, entry_id: str, name: str, token: bytes) -> list[FieldEdit]:
    """Set a field: replace its value, or insert it after the last member; nothing if it is set."""
    place = _member(raw, name)
    if place is None:
        end = spans.members(raw)[-1][3]
        new = b"," + json.dumps(name).encode() + b":" + token
        return [FieldEdit(end + offset, end + offset, new, entry_id, name, None)]
    _, start, end = place
    if raw[start:end] == token:
        return []
    return [FieldEdit(start + offset, end + offset, token, entry_id, name, raw[start:end])]


def take_out(
    raw: bytes,
    offset: int,
    entry_id: str,
    name: str,
    before: bytes | None,
    after: bytes,
    record: int,
) -> FieldEdit | None:
    """Undo a recorded insertion; None when its bytes (`after`) no longer stand there."""
    place = _member(raw, name)
    if place is None:
        return None
    start = place[0] if before is None else place[1]
    end = place[2]
    if raw[start:end] != after:
        return None
    return FieldEdit(start + offset, end + offset, before or b"", entry_id, name, after, record)


def take_out_marked(raw: bytes, offset: int, entry_id: str, name: str) -> list[FieldEdit]:
    """Take out `_restored` or `_redacted` where it stands in exactly the bytes that we insert.

    Forks and copies carry these fields into files of which no record tells. One that stands twice
    was not set by us: it stays, and is no reason to leave the rest of the line alone.
    """
    try:
        place = _member(raw, name)
    except spans.UntouchableError:
        return []
    if place is None:
        return []
    before, start, end = place
    token = raw[start:end]
    if not _TOKENS[name].fullmatch(token):
        return []
    after = b"," + json.dumps(name).encode() + b":" + token
    if raw[before:end] != after:
        return []
    return [FieldEdit(before + offset, end + offset, b"", entry_id, name, after, UNRECORDED)]


def _member(raw: bytes, name: str) -> tuple[int, int, int] | None:
    """Give (end of the member before, start and end of the value) of a field; None if absent."""
    listed = spans.members(raw)
    places = [index for index, member in enumerate(listed) if member[0] == name]
    if len(places) > 1:
        raise spans.UntouchableError(f"{name} stands twice")
    if not places:
        return None
    index = places[0]
    before = listed[index - 1][3] if index else listed[index][1]
    return before, listed[index][2], listed[index][3]
