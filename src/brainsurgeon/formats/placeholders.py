"""Find our placeholders, archives and fields in the lines of a session."""

import re
from collections.abc import Iterable

from msgspec import Struct

from brainsurgeon.formats.base import Format
from brainsurgeon.model.entries import (
    FIELDS,
    ID,
    PLACEHOLDER,
    PLACEHOLDER_PREFIX,
    Line,
    placeholder_id,
)
from brainsurgeon.model.parsing import parse
from brainsurgeon.model.turns import MARK

_ARCHIVE = re.compile(re.escape(MARK.encode()) + rb"\\narchive: (" + ID.encode() + rb")")
# Separate patterns, since each has a literal beginning: one for all took twice as long.
_TEXTS = re.compile(b"|".join(map(re.escape, (PLACEHOLDER_PREFIX, MARK.encode()))))
_FIELDS = re.compile(b"|".join(re.escape(f'{name}"'.encode()) for name in FIELDS))
_EMPTIED = b'"thinking":""'
_PREFIX, _SUFFIX = len(PLACEHOLDER_PREFIX), len("]]")


class Marks(Struct, frozen=True):
    """Candidates for our placeholders, archives and fields in a session.

    `names` are the ids in placeholders and archives, and the ids that placeholders of their entries
    would have. `entries` are the ids of the entries with one of our fields.
    """

    names: frozenset[str] = frozenset()
    entries: frozenset[str] = frozenset()


def marks_in(lines: Iterable[Line], form: Format) -> Marks:
    """Return the candidates in the lines of a session; the store has to confirm them."""
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
