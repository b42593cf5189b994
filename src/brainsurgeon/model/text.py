"""Texts of others, made fit to be shown."""

from __future__ import annotations

import re
from datetime import UTC, datetime

# Half a character: a byte of a file name that is no UTF-8, or what truncation left of a pair.
_HALF = re.compile("[\ud800-\udfff]")


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


def counted(number: int, one: str, many: str | None = None) -> str:
    """Write a number of things: 1 session, 2,000 sessions; `many` where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def iso(moment: float) -> str:
    """Write a moment as ISO 8601 in UTC with a Z."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def moment_said(text: object) -> float | None:
    """Read an ISO 8601 time (UTC without a zone); None where it is not one."""
    if not isinstance(text, str):
        return None
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
