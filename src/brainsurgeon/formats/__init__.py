"""Which format a file is: decided per file from its first lines, never from the directory alone.

Each adapter recognises its own files; they are asked in a fixed order. A file that no adapter
takes is left alone, with a reason.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from brainsurgeon.formats import codex
from brainsurgeon.formats.base import BOM, Format, parse
from brainsurgeon.formats.claude_code import ClaudeCode
from brainsurgeon.formats.generic import Generic
from brainsurgeon.formats.openclaw import OpenClaw

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from brainsurgeon.model.entries import Entry

FORMATS: dict[str, Format] = {
    "openclaw": OpenClaw(), "claude-code": ClaudeCode(), "generic": Generic(),
}  # fmt: skip
# How many first lines decide (Claude Code may begin with several lines of other types).
HEAD_LINES = 20
UNKNOWN = "unknown"


class Beginning(NamedTuple):
    """What the first lines of a file say.

    Without a `form` there is a `reason` why the file is left alone. `name` is that of its format,
    also of one that is only read.
    """

    form: Format | None
    reason: str = ""
    name: str | None = None
    identity: str | None = None


def recognise(
    head: Iterable[bytes], hint: str = "auto", known: Mapping[str, Format] = FORMATS
) -> Beginning:
    """Recognise a file by its first lines; `known` are the formats that are supported.

    A BOM before the first line is tolerated, as pi tolerates it.
    """
    lines = [line for line in head if line.strip()]
    if not lines:
        return Beginning(None, "empty: no lines yet")
    if lines[0].strip() in (b"{", b"["):
        return Beginning(None, "pretty-printed JSON, not JSON lines")
    entries = _entries(lines)
    if not entries:
        return Beginning(None, "no JSON objects in the first lines")
    name = _name(entries)
    only_read = name if name == codex.NAME else None
    if hint not in ("auto", name):
        if hint != "generic":
            return Beginning(None, f"configured as {hint}, but the file is not", only_read)
        name = hint
    adapter = known.get(name)
    if adapter is None:
        return Beginning(None, _why_not(name), only_read)
    refusal = adapter.refuses(entries[0])
    if refusal:
        return Beginning(None, refusal)
    return Beginning(adapter, "", adapter.name, adapter.session(entries))


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
