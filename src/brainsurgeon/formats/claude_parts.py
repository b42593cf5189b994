"""The values of a Claude Code entry that may be cut, and those that never are.

What a resume tolerates was tried with versions 2.0.76 to 2.1.330: string values may change
wherever they stand, and images may become text blocks, but the shape of `toolUseResult` stays,
since the interactive screen takes it apart when a session is resumed. Never cut: what identifies
or links (ids, names, roles), `structuredPatch`, paths (the agent opens them), signatures, prompt
snapshots and request records, and results that Claude Code has made small itself.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import image, leaves
from brainsurgeon.formats.claude_lines import blocks_of, entry_id, message_of
from brainsurgeon.model.entries import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from brainsurgeon.formats.claude_survey import ClaudeSurvey
    from brainsurgeon.model.entries import Entry, KeyPath, Kind

NEVER = re.compile(
    r".*(?:[Pp]ath|_id|I[dD]|[Uu]uid|UUID)"
    r"|id|type|status|mode|role|name|model|signature|media_type|output_mode|subagent_type"
    r"|outputFile|stop_reason|timestamp|version|cwd|gitBranch"
)
"""Keys whose value is never a part: the agent reads it to know what it has before it."""
_WHOLE = frozenset({"structuredPatch", "todos", "usage"})
"""Keys below which nothing is a part: the agent checks what stands there against a schema."""
_PERSISTED = "<persisted-output>"
_CLEARED = "[Old tool result content cleared]"
_PICTURES = ("image", "document")
_CACHED = "its agent refills its read cache from it"
_REPLACED = "its agent sends a short text in its place"


def parts_of(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    """Yield the parts of an entry; entries without a uuid have none."""
    if entry_id(entry) is None:
        return
    kind = entry["type"]
    if kind == "assistant":
        yield from _assistant(entry, survey)
    elif kind == "user":
        yield from _user(entry, survey)
    elif kind == "system":
        yield from leaves(_text(entry.get("content")), ("content",), "system", None)
    elif kind == "progress":
        tool = survey.tools.get(str(entry.get("parentToolUseID")))
        yield from _dead(entry.get("data"), ("data",), tool)
    elif kind == "attachment":
        yield from _file(entry)


def call_of(entry: Entry, path: KeyPath) -> str | None:
    """Name the call that the value at `path` belongs to: its block's, or the entry's only one."""
    if entry.get("type") == "progress":
        return _text(entry.get("parentToolUseID"))
    at = path[2] if path[:2] == ("message", "content") and len(path) > 2 else None  # noqa: PLR2004
    for index, block in blocks_of(entry):
        if at in (None, index):
            key = {"tool_use": "id", "tool_result": "tool_use_id"}.get(str(block.get("type")))
            if key is not None:
                return _text(block.get(key))
    return None


def saved_to_a_file(text: str) -> bool:
    """Tell whether a text is the note that stands for an output that its agent put into a file."""
    return text.startswith(_PERSISTED)


def _assistant(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    path: KeyPath = ("message", "content")
    yield from leaves(_text(message_of(entry).get("content")), path, "assistant", None)
    for index, block in blocks_of(entry):
        here: KeyPath = (*path, index)
        declared = block.get("type")
        if declared == "text":
            yield from leaves(_text(block.get("text")), (*here, "text"), "assistant", None)
        elif declared == "thinking":
            yield from _thinking(block.get("thinking"), here)
        elif declared == "redacted_thinking":
            yield from _thinking(block.get("data"), here)
        elif declared == "tool_use" and isinstance(block.get("input"), dict):
            reason = _CACHED if _text(block.get("id")) in survey.cached else None
            given = _within(block["input"], (*here, "input"), "tool_call", _text(block.get("name")))
            yield from (replace(part, locked=reason) for part in given)


def _thinking(value: Any, path: KeyPath) -> Iterator[Part]:
    """Yield thinking as locked: Claude Code has its provider drop what no longer fits."""
    if isinstance(value, str) and value:
        yield Part(path, "thinking", len(value), locked="thinking signed by its provider")


def _user(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    if entry.get("isCompactSummary") is not True:
        yield from _said(entry, survey)
    tool = survey.tools.get(call_of(entry, ()) or "")
    yield from _dead(entry.get("toolUseResult"), ("toolUseResult",), tool)


def _said(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    """Yield what a user line sends; not the summary of a compaction, which is the context."""
    path: KeyPath = ("message", "content")
    kind = _speaker(entry)
    yield from leaves(_text(message_of(entry).get("content")), path, kind, None)
    for index, block in blocks_of(entry):
        here: KeyPath = (*path, index)
        if block.get("type") == "tool_result":
            yield from _result(block, (*here, "content"), survey)
        else:
            yield from _block(block, here, kind, None)


def _speaker(entry: Entry) -> Kind:
    origin = entry.get("origin")
    if isinstance(origin, dict) and origin.get("kind") == "task-notification":
        return "tool_result"
    return "system" if entry.get("isMeta") is True else "user"


def _result(block: Entry, path: KeyPath, survey: ClaudeSurvey) -> Iterator[Part]:
    content = block.get("content")
    call = _text(block.get("tool_use_id")) or ""
    tool = survey.tools.get(call)
    locked = _REPLACED if call in survey.replaced else _CACHED if call in survey.cached else None
    found = list(leaves(_text(content), path, "tool_result", tool))
    for index, inner in enumerate(content if isinstance(content, list) else []):
        if isinstance(inner, dict):
            found += _block(inner, (*path, index), "tool_result", tool)
    yield from (replace(part, locked=locked or _small(content)) for part in found)


def _small(content: Any) -> str | None:
    if isinstance(content, str) and saved_to_a_file(content):
        return "its agent keeps the output in a file"
    if isinstance(content, str) and content == _CLEARED:
        return "its agent cleared it"
    return None


def _block(block: Mapping[str, Any], path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Part]:
    if block.get("type") == "text":
        yield from leaves(_text(block.get("text")), (*path, "text"), kind, tool)
    elif block.get("type") in _PICTURES:
        yield from image(dict(block), path, kind, tool)


def _file(entry: Entry) -> Iterator[Part]:
    """Yield the text of an attached file: what is sent is `rendered`, where there is such."""
    attachment = entry.get("attachment")
    if not isinstance(attachment, dict) or attachment.get("type") != "file":
        return
    yield from leaves(entry.get("rendered"), ("rendered",), "tool_result", "Read")
    path: KeyPath = ("attachment", "content")
    for part in _within(attachment.get("content"), path, "tool_result", "Read"):
        yield replace(part, dead="rendered" in entry)


def _dead(value: Any, path: KeyPath, tool: str | None) -> Iterator[Part]:
    """Yield what only the agent's screen shows."""
    for part in _within(value, path, "tool_result", tool):
        yield replace(part, dead=True)


def _within(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, depth: int = 32
) -> Iterator[Part]:
    """Yield the strings inside a value, but for those under keys that are never touched."""
    if isinstance(value, dict):
        for key, item in value.items() if depth else ():
            if key not in _WHOLE and not (isinstance(item, str) and NEVER.fullmatch(key)):
                yield from _within(item, (*path, key), kind, tool, depth - 1)
    elif isinstance(value, list):
        for index, item in enumerate(value) if depth else ():
            yield from _within(item, (*path, index), kind, tool, depth - 1)
    else:
        yield from leaves(value, path, kind, tool)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
