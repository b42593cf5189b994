"""What an expression of cron means."""

from __future__ import annotations

import re

_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_CRON = ((0, 59, ()), (0, 23, ()), (1, 31, ()), (1, 12, _MONTHS), (0, 7, _DAYS))
"""The five fields of cron: lowest number, highest, and the names from the lowest up."""
_CRON_ITEM = re.compile(r"(\*|[0-9]+(?:-[0-9]+)?)(?:/([0-9]+))?")


def cron_numbers(expression: str) -> list[list[int]]:
    """Give the numbers that each of the five fields of cron means.

    Weekdays are 0 (Sunday, also called 7) to 6. Raise ValueError where cron would refuse it.
    """
    words = expression.lower().split()
    if len(words) != len(_CRON):
        raise ValueError('wants the five fields of cron ("*/2 * * * *")')
    fields = [_cron_field(word, *bounds) for word, bounds in zip(words, _CRON, strict=True)]
    return [*fields[:4], sorted({number % 7 for number in fields[4]})]


def _cron_field(word: str, low: int, high: int, names: tuple[str, ...]) -> list[int]:
    numbers = {name: str(number) for number, name in enumerate(names, low)}
    plain = re.sub(r"\b[a-z]+\b", lambda name: numbers.get(name[0], name[0]), word)
    found: set[int] = set()
    for item in plain.split(","):
        match = _CRON_ITEM.fullmatch(item)
        span, step = (match[1], int(match[2] or 1)) if match else ("", 0)
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        start = int(first or -1)
        end = int(last or (high if match and match[2] else start))
        if names is _DAYS and end == 0 < start:
            end = 7  # cron's other Sunday, as in sat-sun
        if step < 1 or not low <= start <= end <= high:
            raise ValueError(f"cron does not know {word!r}")
        found.update(range(start, end + 1, step))
    return sorted(found)
