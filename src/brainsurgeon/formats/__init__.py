"""Which format a file is: decided per file from its first lines, never from the directory alone.

The registry is one literal dict. A file that no adapter takes is left alone with a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.formats.base import BOM, Format, parse
from brainsurgeon.formats.generic import Generic
from brainsurgeon.formats.openclaw import OpenClaw
from brainsurgeon.model import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model import Entry

FORMATS: dict[str, Format] = {"openclaw": OpenClaw(), "generic": Generic()}
HEAD_LINES = 20
"""How many first lines decide (Claude Code may begin with several lines of other types)."""

_CLAUDE_TYPES = ("summary", "file-history-snapshot", "queue-operation", "progress")


def recognise(head: Iterable[bytes], hint: str = "auto") -> tuple[Format | None, str]:
    """Name the format of a file from its first lines.

    Return the adapter and an empty reason, or None and why the file is left alone. A BOM before
    the first line is tolerated, as pi tolerates it.
    """
    lines = [line for line in head if line.strip()]
    if not lines:
        return None, "empty: no lines yet"
    if lines[0].strip() in (b"{", b"["):
        return None, "pretty-printed JSON, not JSON lines"
    entries = [entry for line in lines if (entry := parse(line.removeprefix(BOM))) is not None]
    if not entries:
        return None, "no JSON objects in the first lines"
    name, reason = _name(entries)
    if hint not in ("auto", name):
        if hint != "generic":
            return None, f"configured as {hint}, but the file is not"
        name = hint
    adapter = FORMATS.get(name)
    if adapter is None:
        return None, reason or f"format {name} is not supported yet"
    refusal = adapter.refuses(entries[0])
    return (None, refusal) if refusal else (adapter, "")


def _name(entries: list[Entry]) -> tuple[str, str]:
    first = entries[0]
    if first.get("type") == "session" and isinstance(first.get("id"), str):
        return "openclaw", ""
    payload = first.get("payload")
    if first.get("type") == "session_meta" and isinstance(payload, dict) and "id" in payload:
        return "codex", ""
    if any(_is_claude(entry) for entry in entries):
        return "claude-code", ""
    if any("__id" in entry and _is_generic(entry) for entry in entries):
        return "generic", ""
    return "unknown", "not a session format that is known"


def _is_claude(entry: Entry) -> bool:
    return (
        "sessionId" in entry
        or ("uuid" in entry and "parentUuid" in entry)
        or entry.get("type") in _CLAUDE_TYPES
    )


def _is_generic(entry: Entry) -> bool:
    return entry.get("type") == "message" or entry.get("type") in KINDS
