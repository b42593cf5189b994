"""Recognise the format of a file by its first lines."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from brainsurgeon.formats import codex
from brainsurgeon.formats.base import Format, dict_or_empty
from brainsurgeon.formats.claude_code import ClaudeCode
from brainsurgeon.formats.generic import Generic
from brainsurgeon.formats.openclaw import OpenClaw
from brainsurgeon.model.entries import BOM, JsonObject, parse

FORMATS: dict[str, Format] = {
    "openclaw": OpenClaw(), "claude-code": ClaudeCode(), "generic": Generic(),
}  # fmt: skip
HEAD_LINES = 20  # first lines to check: some lines of Claude Code do not show their format
UNKNOWN = "unknown"


class Beginning(NamedTuple):
    form: Format | None  # None: the file is not changed
    reason: str = ""  # why it is not changed
    name: str | None = None  # of the format
    identity: str | None = None  # the id of the conversation


def recognise(
    head: Iterable[bytes], hint: str = "auto", adapters: Mapping[str, Format] = FORMATS
) -> Beginning:
    lines = [line for line in head if line.strip()]
    if not lines:
        return Beginning(None, "empty: no lines yet")
    if lines[0].strip() in (b"{", b"["):
        return Beginning(None, "pretty-printed JSON, not JSON lines")
    entries = [entry for line in lines if (entry := parse(line.removeprefix(BOM))) is not None]
    if not entries:
        return Beginning(None, "no JSON objects in the first lines")
    name = _name(entries)
    only_read = name if name == codex.NAME else None
    if hint not in ("auto", name):
        if hint != "generic" or only_read:
            return Beginning(None, f"configured as {hint}, but has another format", only_read)
        name = hint
    adapter = adapters.get(name)
    if adapter is None:
        reason = codex.ONLY_READ if only_read else "not a known session format"
        return Beginning(None, reason, only_read)
    if refusal := adapter.refuses(entries[0]):
        return Beginning(None, refusal, adapter.name)
    return Beginning(adapter, "", adapter.name, adapter.session(entries))


def _name(entries: Sequence[JsonObject]) -> str:
    header = entries[0]
    if header.get("type") == "session_meta" and "id" in dict_or_empty(header.get("payload")):
        return codex.NAME
    return next((name for name, form in FORMATS.items() if form.recognises(entries)), UNKNOWN)
