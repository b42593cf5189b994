"""What of ours is in a line: placeholders, archives, emptied thinking and fields."""

import json
import re
from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import Any

from brainsurgeon.model.entries import (
    FIELDS,
    ID,
    PLACEHOLDER,
    PLACEHOLDER_PREFIX,
    PREFIX,
    REDACTED,
    SUFFIX,
    JsonObject,
    KeyPath,
    parse,
    value_at,
)
from brainsurgeon.model.transcript import Entry, Marks
from brainsurgeon.model.turns import MARK

ARCHIVE = re.compile(re.escape(MARK.encode()) + rb"\\narchive: (" + ID.encode() + rb")")
TEXTS = re.compile(b"|".join(map(re.escape, (PLACEHOLDER_PREFIX, MARK.encode()))))
_DEPTH = 32
# A value that is a placeholder or begins with an archive's mark, and the id that it names.
_NAMED = re.compile(
    rf"{re.escape(PREFIX)}({ID}){re.escape(SUFFIX)}\Z|{re.escape(MARK)}\narchive: ({ID})"
)


def marks_in(
    raw: bytes | None, entry: JsonObject | None, emptied: Collection[bytes], *, has_emptied: bool
) -> Marks | None:  # fmt: skip
    """Return what of ours is in a line, or None.

    `emptied` is what stands for removed thinking. `has_emptied`: such a block is where thinking is.
    """
    entry = entry or {}
    fields = {name: entry[name] for name in FIELDS if name in entry}
    if not raw or not (fields or has_emptied or TEXTS.search(raw)):
        return None
    texts = PLACEHOLDER.findall(raw)
    names = [text[len(PREFIX) : -len(SUFFIX)].decode() for text in texts]
    archives = [name.decode() for name in ARCHIVE.findall(raw)]
    forms = [parse(b'{"x":%s}' % form) or {} for form in emptied]
    wanted = [form.get("x") for form in forms]
    stands = {
        path: token_digest(value)
        for path, value in _values(entry, (), _DEPTH)
        if REDACTED in fields or value in wanted or _is_ours(value)
    }
    if not (names or archives or fields or stands):
        return None
    named = {
        path: (match[1] or match[2], match[2] is not None)
        for path in stands
        if isinstance(text := value_at(entry, path), str) and (match := _NAMED.match(text))
    }
    once = [tuple(dict.fromkeys(listed)) for listed in (names, archives)]
    return Marks(once[0], once[1], stands, named, fields)


def _is_ours(value: Any) -> bool:
    if isinstance(value, dict) and {"text"} <= value.keys() <= {"type", "text"}:
        value = value["text"]
    return isinstance(value, str) and value.startswith((PREFIX, f"{MARK}\narchive: "))


def _values(value: Any, path: KeyPath, depth: int) -> Iterator[tuple[KeyPath, Any]]:
    """Yield an entry, and what in it may stand for values: strings, blocks and lists."""
    if isinstance(value, str | dict | list):
        yield path, value
    if depth and isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _values(item, (*path, key), depth - 1)


def placeholder_at(entry: Entry, path: KeyPath) -> str | None:
    """Return the id in the placeholder that is the whole value or block at a path, or None."""
    if (marks := entry.marks) is None or path not in marks.stands:
        return None
    name, archived = marks.named.get(path) or marks.named.get((*path, "text"), ("", True))
    return None if archived else name


def token_digest(value: Any) -> bytes:
    """Return a digest of a JSON value; equal values have equal digests."""
    if isinstance(value, dict) and (value.get("type") == "input_text" or value.keys() == {"text"}):
        value = value | {"type": "text"}  # as records name blocks with a placeholder
    text = json.dumps(value, sort_keys=True).encode()
    return blake2b(text, digest_size=16).digest()
