"""Make foreign text safe to show, and format numbers, times and durations."""

import re
from datetime import UTC, datetime


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates: bytes of a file name that is not UTF-8, or halves of a cut pair."""
    return re.sub("[\ud800-\udfff]", _escaped, text)


def readable(text: str) -> str:
    """Escape characters that could affect a terminal: control characters and broken bytes."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in escape_surrogates(text)
    )


def readable_lines(text: str) -> str:
    return "\n".join(map(readable, text.split("\n")))


def _escaped(half: re.Match[str]) -> str:
    code = ord(half[0])
    byte = code - 0xDC00  # as os.fsdecode encodes it
    return f"\\x{byte:02x}" if byte in range(0x80, 0x100) else f"\\u{code:04x}"


def counted(number: int, singular: str, many: str | None = None) -> str:
    """Return a count with its noun: 1 session, 2,000 sessions."""
    return f"{number:,} {singular if number == 1 else many or singular + 's'}"


def about(number: int) -> str:
    """Format an estimate, rounded to two digits: 340, 34,000, 1.0 million."""
    rounded = round(number, min(0, 2 - len(str(abs(number)))))
    million = 1_000_000
    return f"{number / million:,.1f} million" if abs(rounded) >= million else f"{rounded:,}"


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: object) -> float | None:
    """Return the time in an ISO 8601 text (UTC without a zone), or None if it is no such text."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def ago(then: float, now: float) -> str:
    return f"{lasting(now - then)} ago"


def lasting(seconds: float) -> str:
    """Format a duration in its largest unit, as a whole number: 12 s, 3 min, 5 h, 2 d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


# `humanize` would be one more package in place of these lines. Its import takes 7 ms.
def bytes_(count: int) -> str:
    if abs(count) < 10_000:  # noqa: PLR2004
        return f"{count:,} B"
    for unit, size in (("KB", 1000), ("MB", 1000**2)):
        if abs(count) < size * 1000:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1000**3:,.1f} GB"


_CONTINUES, _CONTINUATION = 0xC0, 0x80


def boundary(data: bytes, at: int, *, upwards: bool = False) -> int:
    """Return `at`, or the next offset below it (`upwards`: above it) that starts a character."""
    at = min(at, len(data))
    while 0 < at < len(data) and data[at] & _CONTINUES == _CONTINUATION:
        at += 1 if upwards else -1
    return at
