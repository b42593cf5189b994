"""Unsigned 64-bit numbers (inodes on btrfs and others use the top bit) in SQLite's integers."""

from __future__ import annotations

_WRAP = 1 << 64


def signed(number: int) -> int:
    """Write an unsigned number as a signed one, as a column holds it."""
    return number - _WRAP if number >= _WRAP // 2 else number


def unsigned(number: int) -> int:
    """Read an unsigned number from a column."""
    return number % _WRAP
