"""Find our placeholders, archives and fields in the lines of a session."""

import re
from collections.abc import Iterable

from msgspec import Struct

from brainsurgeon.formats.base import Format, parsed_lines
from brainsurgeon.model.entries import (
    FIELDS,
    ID,
    PLACEHOLDER,
    PLACEHOLDER_PREFIX,
    Line,
    placeholder_id,
)
from brainsurgeon.model.turns import MARK

# The beginning of an archive's text in a line, and the id that it names.
ARCHIVE = re.compile(re.escape(MARK.encode()) + rb"\\narchive: (" + ID.encode() + rb")")
# The beginning of each text that names a value: a placeholder or an archive. The patterns are
# separate, since each has a literal beginning: one for all took twice as long.
TEXTS = re.compile(b"|".join(map(re.escape, (PLACEHOLDER_PREFIX, MARK.encode()))))
_FIELDS = re.compile(b"|".join(re.escape(f'{name}"'.encode()) for name in FIELDS))
# Emptied signed thinking, in the formats of OpenClaw and Claude Code.
_EMPTIED = re.compile(rb'"thinkingSignature":""|"text":" "|"content":\[\]')
_PREFIX, _SUFFIX = len(PLACEHOLDER_PREFIX), len("]]")


class Marks(Struct, frozen=True):
    """Candidates for our placeholders, archives and fields in a session.

    `names` are the ids in placeholders and archives, and the placeholder ids of all entries with a
    candidate. `entries` are the ids of the entries with one of our fields.
    """

    names: frozenset[str] = frozenset()
    entries: frozenset[str] = frozenset()


def marks_in(lines: Iterable[Line], form: Format) -> Marks:
    """Return the candidates in the lines of a session; the store has to confirm them."""
    names, entries = set[str](), set[str]()
    ours = (line for line in lines if line.raw and _may_be_ours(line.raw))
    for _, raw, entry, ident, _ in parsed_lines(ours, form):
        names.update(text[_PREFIX:-_SUFFIX].decode() for text in PLACEHOLDER.findall(raw))
        names.update(text.decode() for text in ARCHIVE.findall(raw))
        if ident is not None:
            names.add(placeholder_id(ident))
            if any(name in entry for name in FIELDS):
                entries.add(ident)
    return Marks(frozenset(names), frozenset(entries))


def _may_be_ours(raw: bytes) -> bool:
    return any(pattern.search(raw) for pattern in (TEXTS, _FIELDS, _EMPTIED))
