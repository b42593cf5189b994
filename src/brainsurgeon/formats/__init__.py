"""Which format a file is: decided per file from its first lines, never from the directory alone.

Each adapter recognises its own files; they are asked in a fixed order. A file that no adapter
takes is left alone, with a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.formats import codex
from brainsurgeon.formats.base import BOM, Format, parse
from brainsurgeon.formats.claude_code import ClaudeCode
from brainsurgeon.formats.generic import Generic
from brainsurgeon.formats.openclaw import OpenClaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from brainsurgeon.model.entries import Entry
    from brainsurgeon.model.sessions import Identity

FORMATS: dict[str, Format] = {
    "openclaw": OpenClaw(), "claude-code": ClaudeCode(), "generic": Generic(),
}  # fmt: skip
HEAD_LINES = 20
"""How many first lines decide (Claude Code may begin with several lines of other types)."""
UNKNOWN = "unknown"


def recognise(
    head: Iterable[bytes], hint: str = "auto", known: Mapping[str, Format] = FORMATS
) -> tuple[Format | None, str]:
    """Name the format of a file from its first lines; `known` are those that are supported.

    Return the adapter and an empty reason, or None and why the file is left alone. A BOM before
    the first line is tolerated, as pi tolerates it.
    """
    lines = [line for line in head if line.strip()]
    if not lines:
        return None, "empty: no lines yet"
    if lines[0].strip() in (b"{", b"["):
        return None, "pretty-printed JSON, not JSON lines"
    entries = _entries(lines)
    if not entries:
        return None, "no JSON objects in the first lines"
    name = _name(entries)
    if hint not in ("auto", name):
        if hint != "generic":
            return None, f"configured as {hint}, but the file is not"
        name = hint
    adapter = known.get(name)
    if adapter is None:
        return None, _why_not(name)
    refusal = adapter.refuses(entries[0])
    return (None, refusal) if refusal else (adapter, "")


def identify(head: Iterable[bytes], form: Format) -> Identity | None:
    """Say which conversation a file of this format holds, from its first lines."""
    entries = _entries(head)
    return form.session(entries) if entries else None


def name_of(head: Iterable[bytes]) -> str:
    """Name what a file is by its first lines, also a format that is only read."""
    entries = _entries(head)
    return _name(entries) if entries else UNKNOWN


def _entries(head: Iterable[bytes]) -> list[Entry]:
    return [entry for line in head if (entry := parse(line.removeprefix(BOM))) is not None]


def _name(entries: Sequence[Entry]) -> str:
    """Name the format of a file, also one that is left alone."""
    if FORMATS["openclaw"].recognises(entries):
        return "openclaw"
    if codex.recognises(entries):
        return codex.NAME
    claimed = (name for name in ("claude-code", "generic") if FORMATS[name].recognises(entries))
    return next(claimed, UNKNOWN)


def _why_not(name: str) -> str:
    if name == codex.NAME:
        return codex.ONLY_READ
    return "not a session format that is known"
