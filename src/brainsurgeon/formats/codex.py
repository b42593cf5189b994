"""Codex: its files are known, and left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.model.entries import Entry


def recognises(entries: Sequence[Entry]) -> bool:
    """Know a file by its first entry, the session's metadata."""
    payload = entries[0].get("payload")
    return (
        entries[0].get("type") == "session_meta" and isinstance(payload, dict) and "id" in payload
    )
