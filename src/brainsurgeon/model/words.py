"""Numbers of things, as people say them."""

from __future__ import annotations


def counted(number: int, one: str, many: str | None = None) -> str:
    """Write a number of things: 1 session, 2,000 sessions; `many` where an s is not enough."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
