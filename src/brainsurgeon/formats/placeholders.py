"""Find the lines of a session in which something of ours may stand."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse
from brainsurgeon.model.entries import FIELDS, ID, PLACEHOLDER, PLACEHOLDER_PREFIX, placeholder_id
from brainsurgeon.model.turns import MARK

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Line


_ARCHIVE = re.compile(re.escape(MARK.encode()) + rb"\\narchive: (" + ID.encode() + rb")")
# Searched for one by one, each is found by its literal beginning: together they took twice as long.
_TEXTS = re.compile(b"|".join(map(re.escape, (PLACEHOLDER_PREFIX, MARK.encode()))))
_FIELDS = re.compile(b"|".join(re.escape(f'{name}"'.encode()) for name in FIELDS))
_EMPTIED = b'"thinking":""'
_PREFIX, _SUFFIX = len(PLACEHOLDER_PREFIX), len("]]")


@dataclass(frozen=True, slots=True)
class Marks:
    """What in a session may be ours.

    `names` are the ids in placeholders and archives, and of the entries beside them; `entries` are
    the ids of the entries in which a field of ours stands.
    """

    names: frozenset[str] = frozenset()
    entries: frozenset[str] = frozenset()


def marks_in(lines: Iterable[Line], form: Format) -> Marks:
    """Return what may be ours in the lines of a session: candidates, for the store to confirm."""
    names, entries = set[str](), set[str]()
    for line in lines:
        if line.raw is None or not _may_be_ours(line.raw):
            continue
        entry = parse(line.raw)
        if entry is None:
            continue
        names.update(text[_PREFIX:-_SUFFIX].decode() for text in PLACEHOLDER.findall(line.raw))
        names.update(text.decode() for text in _ARCHIVE.findall(line.raw))
        ident = form.identity(entry, line.raw, line.number)
        if ident is not None:
            names.add(placeholder_id(ident))
            if any(name in entry for name in FIELDS):
                entries.add(ident)
    return Marks(frozenset(names), frozenset(entries))


def _may_be_ours(raw: bytes) -> bool:
    return bool(_TEXTS.search(raw) or _FIELDS.search(raw)) or _EMPTIED in raw
