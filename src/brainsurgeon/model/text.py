"""Escape text that may contain anything, and format numbers, times and durations."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, tzinfo

_UUID = re.compile("[0-9a-f]{8}-[0-9a-f]{4}-([0-9a-f])[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_FILE = re.compile(
    f"(?<=-[0-9a-f]{{12}})_{_UUID.pattern}$"
)  # of a session with several files, behind its id
# Characters up to the end of each group. An id of version 7 has the time in the first two groups.
_GROUPS = (8, 13, 18, 23, 36)


def parts_of_title(title: str) -> tuple[str, str]:
    """Return the project or agent in a session's title, and its id, or else its file's name."""
    whole = _FILE.sub("", title)
    ids = list(_UUID.finditer(whole))
    before = whole[: ids[-1].start()] if ids else whole
    owner, _, name = before.rpartition("/") if "/" in before else (before, "", "")
    words = [word for word in re.split("[-:/]", owner) if word]
    return (words or [owner])[-1], ids[-1][0] if ids else name


def short_titles(titles: Iterable[str], *, only_some: bool = False) -> dict[str, str]:
    """Return a name for people for each title, by which the session is found: `demo/5a5a5a5a`.

    It has as much of the id as no other id of the same owner begins with. If the titles are
    `only_some` of those known, it has some more of the id. Of equal ids the titles stay whole.
    """
    by_owner = defaultdict[str, dict[str, list[str]]](dict)
    for title in dict.fromkeys(titles):
        owner, ident = parts_of_title(title)
        by_owner[owner].setdefault(ident, []).append(title)
    shorts = {}
    for owner, named in by_owner.items():
        idents = ["", *sorted(named), ""]  # neighbours have the longest beginning in common
        for at, ident in enumerate(idents[1:-1]):
            others = (idents[at], idents[at + 2])
            begins = (ident[:end] for end in _ends(ident, only_some=only_some))
            own = (part for part in begins if not any(one.startswith(part) for one in others))
            short = next(own, None)
            several = sum(_FILE.search(title) is None for title in named[ident]) > 1
            for title in named[ident]:
                shorts[title] = title if several or short is None else f"{owner}/{short}"
    return shorts


def _ends(ident: str, *, only_some: bool) -> Sequence[int]:
    """Return the lengths to which an id may be shortened."""
    uuid = _UUID.fullmatch(ident)
    if not uuid:
        return (len(ident),)
    return _GROUPS[1:] if only_some or uuid[1] == "7" else _GROUPS


def escape_surrogates(text: str) -> str:
    """Escape lone surrogates: invalid bytes of file names, or halves of pairs that were cut."""
    return re.sub("[\ud800-\udfff]", _escaped, text)


def readable(text: str) -> str:
    """Escape characters that are not printable, since they could control a terminal."""
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
    """Format an estimate: rounded to two digits (340, 34,000), or as 1.0 million, 12.3 million."""
    rounded = round(number, min(0, 2 - len(str(abs(number)))))
    million = 1_000_000
    return f"{number / million:,.1f} million" if abs(rounded) >= million else f"{rounded:,}"


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def minute(moment: float) -> str:
    """Return the first full minute at or after a Unix time, in ISO 8601."""
    return f"{iso(math.ceil(moment / 60) * 60)[:-4]}Z"


def parse_time(text: object, zone: tzinfo | None = UTC) -> float | None:
    """Parse an ISO 8601 time. One without a zone is in `zone` (None: local)."""
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp()
    except (ValueError, OverflowError):
        return None


def ago(then: float, now: float) -> str:
    return f"{lasting(now - then)} ago"


def lasting(seconds: float) -> str:
    """Format a duration in its largest unit: 12 s, 3 min, 5 h, 2 d."""
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


# The package `humanize` could do this, but its import takes 7 ms.
def bytes_(count: int) -> str:
    if abs(count) < 10_000:  # noqa: PLR2004
        return f"{count:,} B"
    for unit, size in (("KB", 1000), ("MB", 1000**2)):
        if abs(count) < size * 1000:
            return f"{count / size:,.1f} {unit}"
    return f"{count / 1000**3:,.1f} GB"


_CONTINUES, _CONTINUATION = 0xC0, 0x80


def boundary(data: bytes, at: int, *, upwards: bool = False) -> int:
    """Return the nearest start of a UTF-8 character up to `at` (`upwards`: from `at` on)."""
    at = min(at, len(data))
    while 0 < at < len(data) and data[at] & _CONTINUES == _CONTINUATION:
        at += 1 if upwards else -1
    return at
