"""Texts of others, made fit to be shown."""

from __future__ import annotations

import re

_HALF = re.compile("[\ud800-\udfff]")
"""Half a character: a byte of a file name that is no UTF-8, or what truncation left of a pair."""


def whole(text: str) -> str:
    """Escape half characters."""
    return _HALF.sub(_escaped, text)


def readable(text: str) -> str:
    """Escape what a name could do to a terminal: control characters and broken bytes."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in whole(text)
    )


def readable_lines(text: str) -> str:
    """Escape the same in a text that is meant to have several lines."""
    return "\n".join(map(readable, text.split("\n")))


def _escaped(half: re.Match[str]) -> str:
    code = ord(half[0])
    byte = code - 0xDC00  # as os.fsdecode hides it
    return f"\\x{byte:02x}" if byte in range(0x80, 0x100) else f"\\u{code:04x}"
