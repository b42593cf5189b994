"""Codex: its files are known, and only read.

A running Codex keeps its session open for as long as it lives, and goes on writing into a file
that was replaced; versions from 0.146 on remember offsets in the file, in a database of their own,
and lose the conversation from their lists when the offsets shift (openai/codex, issues 43744,
35746 and 38341).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.model.entries import Entry


NAME = "codex"
ONLY_READ = (
    "Codex sessions are only read: a running Codex keeps its file open, and newer ones remember"
    " offsets in it"
)


def recognises(entries: Sequence[Entry]) -> bool:
    """Know a file by its first entry, the session's metadata."""
    payload = entries[0].get("payload")
    return (
        entries[0].get("type") == "session_meta" and isinstance(payload, dict) and "id" in payload
    )
