"""How much memory a line would take to be taken apart, told from its bytes before it is.

A line of 11 MB of `[],` takes 700 MB as values. What each mark of structure costs was measured
with orjson 3 and CPython 3.11 to 3.13, the dearest shape counting: an empty list takes 100 bytes
at its peak, an object 240, what a comma parts 90, a key 130; a text as many bytes a character as
its widest one.
"""

from __future__ import annotations

import re

HEAVIEST = 96 << 20
"""Bytes of memory; a line that would take more is carried along unseen."""
_SMALL = HEAVIEST // 128
"""Bytes up to which no line can be too heavy, however dense."""
_COSTS = {b"[": 100, b"{": 240, b",": 90, b":": 130}
_FOUR_BYTES = re.compile(rb"[\xf0-\xff]|\\u[dD][89a-fA-F]")
_TWO_BYTES = re.compile(rb"[\xc4-\xef]|\\u")
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[{,:]', re.DOTALL)


def too_dense(raw: bytes) -> bool:
    """Tell whether a line would take too much memory to be taken apart."""
    if len(raw) <= _SMALL:
        return False
    text = len(raw) * (1 + _width(raw))
    if text + sum(raw.count(mark) * cost for mark, cost in _COSTS.items()) <= HEAVIEST:
        return False
    for token in _TOKEN.finditer(raw):  # marks inside texts cost nothing: count it exactly
        text += _COSTS.get(token[0][:1], 0)
        if text > HEAVIEST:
            return True
    return text > HEAVIEST


def _width(raw: bytes) -> int:
    """Give the bytes that a character of the widest text in a line takes (PEP 393)."""
    if raw.isascii() and b"\\u" not in raw:
        return 1
    return 4 if _FOUR_BYTES.search(raw) else 2 if _TWO_BYTES.search(raw) else 1
