"""Claude Code: its files are known, and left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.model.entries import Entry

_TYPES = ("summary", "file-history-snapshot", "queue-operation", "progress")


def recognises(entries: Sequence[Entry]) -> bool:
    """Know a file by an entry that names its session, stands in a chain, or is of a known type."""
    return any(
        "sessionId" in entry
        or ("uuid" in entry and "parentUuid" in entry)
        or entry.get("type") in _TYPES
        for entry in entries
    )
