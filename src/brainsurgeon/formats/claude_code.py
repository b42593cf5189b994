"""Claude Code: one JSON object a line, chained by `uuid` and `parentUuid`.

The shapes were seen in files that versions 2.0.64 to 2.1.330 wrote, and read in
@anthropic-ai/claude-code 2.0.76 and 2.1.112 (`cli.js`). Where the file stands, and who is at
work, is not known here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import (
    Answer,
    Call,
    files_in,
    first_line,
    image,
    leaves,
    number_in,
    references,
    texts_in,
    usable_id,
)
from brainsurgeon.formats.claude_chain import (
    CLOSING_STOPS,
    NOTHING_SEEN,
    ClaudeSurvey,
    blocks_of,
    counts,
    entry_id,
    is_prompt,
    look_over,
    message_of,
)
from brainsurgeon.model.entries import Part, value_at
from brainsurgeon.model.turns import GAVE_UP, Answered, Asked, Said

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from brainsurgeon.formats.base import Thoughts
    from brainsurgeon.model.entries import Entry, KeyPath, Kind, Lines
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.model.turns import ArchiveForm


# How the result of a command begins that failed: the code stands nowhere else.
_EXIT = re.compile(r"Exit code ([0-9]{1,9})$")
_CUT_SHORT = ("max_tokens", "refusal", "model_context_window_exceeded")


def said(entry: Entry) -> Said | None:
    """Return what a line is in its turn.

    None where it is no part of the chain, or a sub-agent's.
    """
    if entry_id(entry) is None or entry.get("isSidechain") is True:
        return None
    parent, names = entry.get("parentUuid"), references(entry)
    linked = (parent if isinstance(parent, str) else None, names)
    kind = entry["type"]
    if kind == "assistant":
        return _reply(entry, *linked)
    if kind != "user":
        return Said("note" if kind in ("system", "progress") else "aside", *linked)
    kept = entry.get("toolUseResult")
    answered = tuple(_answered(block, kept) for _, block in blocks_of(entry) if _is_result(block))
    if answered:
        return Said("result", *linked, answered=answered)
    return Said("prompt" if is_prompt(entry) else "aside", *linked)


def _reply(entry: Entry, parent: str | None, names: tuple[str, ...]) -> Said:
    message = message_of(entry)
    called = [block for _, block in blocks_of(entry) if block.get("type") == "tool_use"]
    asked = tuple(
        Asked(_text(b.get("id")), _text(b.get("name")) or "tool", files_in(b.get("input")))
        for b in called
    )
    texts = texts_in(message.get("content"))
    index, text = texts[-1] if texts else (None, "")
    path: KeyPath = ("message", "content") if index is None else (
        "message", "content", index, "text",
    )  # fmt: skip
    stop, error = message.get("stop_reason"), entry.get("isApiErrorMessage") is True
    return Said(
        "reply", parent, names, text, path if texts else None,
        closes=bool(texts) and not called and (error or stop is None or stop in CLOSING_STOPS),
        cut_short=error or stop in _CUT_SHORT or GAVE_UP in text, asked=asked,
        model=_text(message.get("model")) or "",
    )  # fmt: skip


def _is_result(block: Entry) -> bool:
    return block.get("type") == "tool_result"


def _answered(block: Entry, kept: object) -> Answered:
    failed = block.get("is_error") is True
    finding = first_line(text for _, text in texts_in(block.get("content"))) if failed else ""
    code, took = _EXIT.match(finding), number_in(kept, "durationMs", "totalDurationMs")
    return Answered(
        _text(block.get("tool_use_id")), failed, finding, int(code[1]) if code else None, took
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# What a resume tolerates was tried with versions 2.0.76 to 2.1.330: string values may change
# wherever they stand, and images may become text blocks, but the shape of `toolUseResult` stays,
# since the interactive screen takes it apart when a session is resumed. Never cut: what identifies
# or links (ids, names, roles), `structuredPatch`, paths (the agent opens them), signatures, prompt
# snapshots and request records, and results that Claude Code has made small itself.


# Keys whose value is never a part: the agent reads it to know what it has before it.
NEVER = re.compile(
    r".*(?:[Pp]ath|_id|I[dD]|[Uu]uid|UUID)"
    r"|id|type|status|mode|role|name|model|signature|media_type|output_mode|subagent_type"
    r"|outputFile|stop_reason|timestamp|version|cwd|gitBranch"
)
# Keys below which nothing is a part: the agent checks what stands there against a schema.
_WHOLE = frozenset({"structuredPatch", "todos", "usage"})
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
        yield from leaves(_text_of(entry.get("content")), ("content",), "system", None)
    elif kind == "progress":
        tool = survey.tools.get(str(entry.get("parentToolUseID")))
        yield from _dead(entry.get("data"), ("data",), tool)
    elif kind == "attachment":
        yield from _file(entry)


def call_of(entry: Entry, path: KeyPath) -> str | None:
    """Name the call that the value at `path` belongs to: its block's, or the entry's only one."""
    if entry.get("type") == "progress":
        return _text_of(entry.get("parentToolUseID"))
    at = path[2] if path[:2] == ("message", "content") and len(path) > 2 else None  # noqa: PLR2004
    for index, block in blocks_of(entry):
        if at in (None, index):
            key = {"tool_use": "id", "tool_result": "tool_use_id"}.get(str(block.get("type")))
            if key is not None:
                return _text_of(block.get(key))
    return None


def saved_to_a_file(text: str) -> bool:
    """Check whether a text is the note that stands for an output that its agent put into a file."""
    return text.startswith(_PERSISTED)


def _assistant(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    path: KeyPath = ("message", "content")
    yield from leaves(_text_of(message_of(entry).get("content")), path, "assistant", None)
    for index, block in blocks_of(entry):
        here: KeyPath = (*path, index)
        declared = block.get("type")
        if declared == "text":
            yield from leaves(_text_of(block.get("text")), (*here, "text"), "assistant", None)
        elif declared == "thinking":
            yield from _thinking(block.get("thinking"), here)
        elif declared == "redacted_thinking":
            yield from _thinking(block.get("data"), here)
        elif declared == "tool_use" and isinstance(block.get("input"), dict):
            reason = _CACHED if _text_of(block.get("id")) in survey.cached else None
            given = _within(
                block["input"], (*here, "input"), "tool_call", _text_of(block.get("name"))
            )
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
    yield from leaves(_text_of(message_of(entry).get("content")), path, kind, None)
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
    call = _text_of(block.get("tool_use_id")) or ""
    tool = survey.tools.get(call)
    locked = _REPLACED if call in survey.replaced else _CACHED if call in survey.cached else None
    found = list(leaves(_text_of(content), path, "tool_result", tool))
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
        yield from leaves(_text_of(block.get("text")), (*path, "text"), kind, tool)
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


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) else None


_TYPES = ("summary", "file-history-snapshot", "queue-operation", "progress")


class ClaudeCode:
    """The dialect of Claude Code."""

    name = "claude-code"
    version = 1
    archives: ArchiveForm | None = "flat"

    def recognises(self, entries: Sequence[Entry]) -> bool:
        """Know a file by an entry that names its session, is chained, or is of a known type."""
        return any(
            "sessionId" in entry
            or ("uuid" in entry and "parentUuid" in entry)
            or entry.get("type") in _TYPES
            for entry in entries
        )

    def refuses(self, header: Entry) -> str | None:  # noqa: ARG002
        """Take every file: there is no header, and unknown entries are carried along."""
        return None

    def session(self, head: Sequence[Entry]) -> str | None:
        """Return the id of the agent whose side conversation it is, or of its lines' session."""
        chained = (entry for entry in head if entry_id(entry) is not None)
        first = next(chained, {})
        side = usable_id(first.get("agentId")) if first.get("isSidechain") is True else None
        named = (usable_id(entry.get("sessionId")) for entry in head)
        return side or next(filter(None, named), None)

    def rest(self, entry: Entry) -> bytes | None:  # noqa: ARG002
        """Return None: ids are random."""
        return None

    def survey(self, lines: Lines, window: int) -> Survey:
        """Look over the whole file: the chain may lead anywhere in it."""
        return look_over(lines, window)

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:  # noqa: ARG002
        """Name the entry by its uuid."""
        return entry_id(entry)

    def counts(self, entry: Entry) -> bool:
        """Count prompts, results and replies; the lines of one reply are one message."""
        return entry_id(entry) is not None and counts(entry)

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:  # noqa: ARG002
        """Yield the values of an entry that could be cut."""
        return parts_of(entry, survey if isinstance(survey, ClaudeSurvey) else NOTHING_SEEN)

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        """Name the call that the value at `path` asks for, or answers."""
        return call_of(entry, path)

    def thoughts(self, entry: Entry) -> Thoughts | None:  # noqa: ARG002
        """Know of none that would have to leave: the agent has its provider drop what fits no more.

        It asks for that itself, and sends again without thinking where it was refused (2.1.330).
        """
        return None

    def said(self, entry: Entry) -> Said | None:
        """Return what a line is in its turn."""
        return said(entry)

    def calls(self, entry: Entry) -> Iterator[Call]:
        """Yield the tool_use blocks of an assistant line."""
        if entry.get("type") != "assistant":
            return
        for index, block in blocks_of(entry):
            given = block.get("input")
            if block.get("type") == "tool_use" and isinstance(given, dict):
                path: KeyPath = ("message", "content", index, "input")
                yield Call(path, call_of(entry, path), given)

    def answers(self, entry: Entry) -> Iterator[Answer]:
        """Yield the texts of the tool_result blocks, with the copies that the screen shows.

        Where Claude Code put a long output into a file and left a note, the output itself is
        what the screen shows.
        """
        if entry.get("type") != "user":
            return
        shown = [
            part.path for part in parts_of(entry, NOTHING_SEEN) if part.path[0] == "toolUseResult"
        ]
        for path in _texts(entry):
            text = value_at(entry, path)
            same = (one for one in shown if value_at(entry, one).strip() == text.strip())
            yield Answer(path, text, call_of(entry, path), tuple(same))
            for one in shown if saved_to_a_file(text) else ():
                yield Answer(one, value_at(entry, one), call_of(entry, path))


def _texts(entry: Entry) -> Iterator[KeyPath]:
    for index, block in blocks_of(entry):
        if block.get("type") != "tool_result":
            continue
        path: KeyPath = ("message", "content", index, "content")
        content = block.get("content")
        if isinstance(content, str) and content:
            yield path
        for inner, one in enumerate(content if isinstance(content, list) else []):
            if isinstance(one, dict) and one.get("type") == "text":
                text = one.get("text")
                if isinstance(text, str) and text:
                    yield (*path, inner, "text")
