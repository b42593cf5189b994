"""Parse a line to an entry, in bounded memory."""

import json
import re
from typing import Any

import orjson

from brainsurgeon.model.entries import Entry

# A line of 11 MB of `[],` takes 700 MB when parsed. The peak bytes for each structural character
# were measured with orjson 3 and CPython 3.11 to 3.13, in the worst case: 100 for an empty list,
# 240 for an object, 90 for an item after a comma, 130 for a key. Each character of a string takes
# as many bytes as the widest in it.

# Bytes of memory; a line that would take more is copied without being parsed.
HEAVIEST = 96 << 20
_COSTS = {b"[": 100, b"{": 240, b",": 90, b":": 130}
_FOUR_BYTES = re.compile(rb"[\xf0-\xff]|\\u[dD][89a-fA-F]")
_TWO_BYTES = re.compile(rb"[\xc4-\xef]|\\u")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{,:]', re.DOTALL)
BOM = b"\xef\xbb\xbf"
_LONGEST_INT = 300
# Bytes; longer lines go to the standard parser. orjson 3.13 reserves twelve bytes for each byte of
# a line, and crashes the process if memory runs out while it creates a string.
_LONGEST_QUICK = 4 << 20


def too_dense(raw: bytes) -> bool:
    if len(raw) <= HEAVIEST // 128:  # too short, however dense
        return False
    text = len(raw) * (1 + _width(raw))
    if text + sum(raw.count(mark) * cost for mark, cost in _COSTS.items()) <= HEAVIEST:
        return False
    for token in _TOKEN.finditer(raw):  # characters inside strings cost nothing: count exactly
        text += _COSTS.get(token[0][:1], 0)
        if text > HEAVIEST:
            return True
    return text > HEAVIEST


def _width(raw: bytes) -> int:
    """Return the bytes that a character of the widest text in a line takes (PEP 393)."""
    if raw.isascii() and b"\\u" not in raw:
        return 1
    return 4 if _FOUR_BYTES.search(raw) else 2 if _TWO_BYTES.search(raw) else 1


def parse(raw: bytes) -> Entry | None:
    """Return the entry in one line, or None if it is not one JSON object or takes too much memory.

    The standard parser accepts text that some agents write and orjson refuses, such as lone
    surrogates. Both refuse invalid UTF-8.
    """
    if too_dense(raw):
        return None
    try:
        value = orjson.loads(raw) if len(raw) <= _LONGEST_QUICK else _parse_leniently(raw)
    except orjson.JSONDecodeError:
        value = _parse_leniently(raw)
    return value if isinstance(value, dict) else None


def _parse_leniently(raw: bytes) -> Any:
    try:
        return json.loads(raw.decode(), parse_int=_number, parse_constant=_refuse)
    except (ValueError, RecursionError, MemoryError):
        return None


def _number(digits: str) -> int | float:
    return int(digits) if len(digits) < _LONGEST_INT else float(digits)


def _refuse(constant: str) -> None:
    """Refuse NaN and Infinity: they are not JSON, and JavaScript does not parse them."""
    raise ValueError(constant)
