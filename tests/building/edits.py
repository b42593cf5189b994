"""A minimal edit, for tests of the code that writes edits to a file or a database."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ByteEdit:
    """An edit that replaces a range of bytes."""

    start: int
    end: int
    new: bytes


def no_record(_):
    """Return None: no value is on record for these bytes."""
