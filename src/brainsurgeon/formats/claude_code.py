"""Claude Code: one JSON object a line, chained by `uuid` and `parentUuid`.

The shapes were seen in files that versions 2.0.64 to 2.1.330 wrote, and read in
@anthropic-ai/claude-code 2.0.76 and 2.1.112 (`cli.js`). The place of the file and the processes
that use it are not known here.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from brainsurgeon.formats.base import (
    Answer,
    CallArguments,
    Thoughts,
    blocks_in,
    dict_or_empty,
    first_line,
    image,
    leaves,
    number_in,
    references,
    reply_step,
    str_or_none,
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
from brainsurgeon.model.entries import Entry, KeyPath, Kind, Lines, Part
from brainsurgeon.model.sessions import Survey
from brainsurgeon.model.turns import ArchiveForm, ToolResult, TurnStep

# First line of a failed command's result, the only place of the exit code.
_EXIT = re.compile(r"Exit code ([0-9]{1,9})$")
_CUT_SHORT = ("max_tokens", "refusal", "model_context_window_exceeded")
_CONTENT: KeyPath = ("message", "content")


def _tool_result(block: Entry, took: int | None) -> ToolResult:
    failed = block.get("is_error") is True
    finding = first_line(text for _, text in texts_in(block.get("content"))) if failed else ""
    code = _EXIT.match(finding)
    return ToolResult(
        str_or_none(block.get("tool_use_id")), failed, finding, int(code[1]) if code else None, took
    )


# What a resume accepts was tried with versions 2.0.76 to 2.1.330. String values may change
# anywhere, and images may become text blocks. The shape of `toolUseResult` has to stay, since the
# interactive screen reads its fields. Never extracted: identifiers and links (ids, names, roles),
# `structuredPatch`, paths (the agent opens them), signatures, prompt snapshots and request records,
# and results that Claude Code has shortened itself.


# Keys whose value is never a part: the agent reads it to interpret the object.
NEVER = re.compile(
    r".*(?:[Pp]ath|_id|I[dD]|[Uu]uid|UUID)"
    r"|id|type|status|mode|role|name|model|signature|media_type|output_mode|subagent_type"
    r"|outputFile|stop_reason|timestamp|version|cwd|gitBranch"
)
# Keys below which nothing is a part: the agent validates their values against a schema.
_WHOLE = frozenset({"structuredPatch", "todos", "usage"})
_PERSISTED = "<persisted-output>"
_CACHED = "its agent refills its read cache from it"


def parts_of(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    """Yield the parts of an entry; entries without a uuid have none."""
    if entry_id(entry) is None:
        return
    kind = entry["type"]
    if kind == "assistant":
        yield from _assistant(entry, survey)
    elif kind == "user":
        # The summary of a compaction is never extracted: it is the context.
        if entry.get("isCompactSummary") is not True:
            yield from _user(entry, survey)
        tool = survey.tools.get(call_of(entry, ()) or "")
        yield from _shown(entry.get("toolUseResult"), ("toolUseResult",), tool)
    elif kind == "system":
        yield from leaves(str_or_none(entry.get("content")), ("content",), "system", None)
    elif kind == "progress":
        tool = survey.tools.get(str(entry.get("parentToolUseID")))
        yield from _shown(entry.get("data"), ("data",), tool)
    elif kind == "attachment":
        attachment = dict_or_empty(entry.get("attachment"))
        if attachment.get("type") == "file":  # `rendered` is sent if it exists
            yield from leaves(entry.get("rendered"), ("rendered",), "tool_result", "Read")
            path: KeyPath = ("attachment", "content")
            for part in _within(attachment.get("content"), path, "tool_result", "Read"):
                yield replace(part, dead="rendered" in entry)


def call_of(entry: Entry, path: KeyPath) -> str | None:
    """Return the id of the call that the value at `path` belongs to, else the first id."""
    if entry.get("type") == "progress":
        return str_or_none(entry.get("parentToolUseID"))
    at = path[2] if path[:2] == _CONTENT and len(path) > 2 else None  # noqa: PLR2004
    for index, block in blocks_of(entry, "tool_use", "tool_result"):
        if at in (None, index):
            return str_or_none(block.get("id" if block["type"] == "tool_use" else "tool_use_id"))
    return None


def _assistant(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    yield from leaves(str_or_none(message_of(entry).get("content")), _CONTENT, "assistant", None)
    for index, block in blocks_of(entry):
        here: KeyPath = (*_CONTENT, index)
        declared = block.get("type")
        if declared == "text":
            yield from leaves(str_or_none(block.get("text")), (*here, "text"), "assistant", None)
        elif declared in ("thinking", "redacted_thinking"):
            # Claude Code asks its provider to drop blocks that are no longer valid.
            thought = block.get("thinking" if declared == "thinking" else "data")
            if isinstance(thought, str) and thought:
                locked = "thinking signed by its provider"
                yield Part(here, "thinking", len(thought), locked=locked)
        elif declared == "tool_use" and isinstance(block.get("input"), dict):
            reason = _CACHED if str_or_none(block.get("id")) in survey.cached else None
            tool = str_or_none(block.get("name"))
            for part in _within(block["input"], (*here, "input"), "tool_call", tool):
                yield replace(part, locked=reason)


def _user(entry: Entry, survey: ClaudeSurvey) -> Iterator[Part]:
    """Yield the parts of a user line that are sent."""
    kind: Kind = "system" if entry.get("isMeta") is True else "user"
    if dict_or_empty(entry.get("origin")).get("kind") == "task-notification":
        kind = "tool_result"
    yield from leaves(str_or_none(message_of(entry).get("content")), _CONTENT, kind, None)
    for index, block in blocks_of(entry):
        if block.get("type") == "tool_result":
            yield from _result(block, (*_CONTENT, index, "content"), survey)
        else:
            yield from _block(block, (*_CONTENT, index), kind, None)


def _result(block: Entry, path: KeyPath, survey: ClaudeSurvey) -> Iterator[Part]:
    content = block.get("content")
    call = str_or_none(block.get("tool_use_id")) or ""
    tool = survey.tools.get(call)
    locked = None
    if call in survey.replaced:
        locked = "its agent sends a short text in its place"
    elif call in survey.cached:
        locked = _CACHED
    elif isinstance(content, str) and content.startswith(_PERSISTED):
        locked = "its agent keeps the output in a file"
    elif content == "[Old tool result content cleared]":
        locked = "its agent cleared it"
    parts = list(leaves(str_or_none(content), path, "tool_result", tool))
    for index, inner in blocks_in(content):
        parts += _block(inner, (*path, index), "tool_result", tool)
    yield from (replace(part, locked=locked) for part in parts)


def _block(block: Entry, path: KeyPath, kind: Kind, tool: str | None) -> Iterator[Part]:
    if block.get("type") == "text":
        yield from leaves(str_or_none(block.get("text")), (*path, "text"), kind, tool)
    elif block.get("type") in ("image", "document"):
        yield from image(block, path, kind, tool)


def _shown(value: Any, path: KeyPath, tool: str | None) -> Iterator[Part]:
    """Yield the parts that only the agent's screen shows."""
    for part in _within(value, path, "tool_result", tool):
        yield replace(part, dead=True)


def _within(
    value: Any, path: KeyPath, kind: Kind, tool: str | None, depth: int = 32
) -> Iterator[Part]:
    """Yield the strings inside a value, except those at keys that are never edited."""
    if isinstance(value, dict) and depth:
        for key, item in value.items():
            if key not in _WHOLE and not (isinstance(item, str) and NEVER.fullmatch(key)):
                yield from _within(item, (*path, key), kind, tool, depth - 1)
    elif isinstance(value, list) and depth:
        for index, item in enumerate(value):
            yield from _within(item, (*path, index), kind, tool, depth - 1)
    elif isinstance(value, str):
        yield from leaves(value, path, kind, tool)


_TYPES = ("summary", "file-history-snapshot", "queue-operation", "progress")


class ClaudeCode:
    """The dialect of Claude Code."""

    name = "claude-code"
    version = 1
    archives: ArchiveForm | None = "flat"

    def recognises(self, entries: Sequence[Entry]) -> bool:
        """Check whether an entry names its session, is chained, or is of a known type."""
        return any(
            "sessionId" in entry
            or ("uuid" in entry and "parentUuid" in entry)
            or entry.get("type") in _TYPES
            for entry in entries
        )

    def refuses(self, header: Entry) -> str | None:  # noqa: ARG002
        """Return None: there is no header, and unknown entries are kept unchanged."""
        return None

    def session(self, head: Sequence[Entry]) -> str | None:
        """Return the agent's id if the file is a sub-agent's, else the session id of its lines."""
        first = next((entry for entry in head if entry_id(entry) is not None), {})
        side = usable_id(first.get("agentId")) if first.get("isSidechain") is True else None
        named = (usable_id(entry.get("sessionId")) for entry in head)
        return side or next(filter(None, named), None)

    def rest(self, entry: Entry) -> bytes | None:  # noqa: ARG002
        """Return None: ids are random."""
        return None

    def survey(self, lines: Lines, window: int) -> Survey:
        """Read the whole file: the chain may lead anywhere in it."""
        return look_over(lines, window)

    def identity(self, entry: Entry, raw: bytes, number: int) -> str | None:  # noqa: ARG002
        return entry_id(entry)

    def counts(self, entry: Entry) -> bool:
        """Check whether the line is a prompt, result or reply; a reply's lines are one message."""
        return entry_id(entry) is not None and counts(entry)

    def parts(self, entry: Entry, survey: Survey, offset: int | None) -> Iterator[Part]:  # noqa: ARG002
        return parts_of(entry, survey if isinstance(survey, ClaudeSurvey) else NOTHING_SEEN)

    def anchor(self, entry: Entry, path: KeyPath) -> str | None:
        return call_of(entry, path)

    def thoughts(self, entry: Entry) -> Thoughts | None:  # noqa: ARG002
        """Return None: no signature has to leave, since the provider drops invalid blocks.

        The agent asks for that itself, and repeats a refused request without thinking (2.1.330).
        """
        return None

    def turn_step(self, entry: Entry) -> TurnStep | None:
        """Return a line as a step of its turn; None if it is off the chain, or a sub-agent's."""
        if entry_id(entry) is None or entry.get("isSidechain") is True:
            return None
        linked = (str_or_none(entry.get("parentUuid")), references(entry))
        kind = entry["type"]
        if kind == "assistant":
            message, failed = message_of(entry), entry.get("isApiErrorMessage") is True
            stop = message.get("stop_reason")
            return reply_step(
                message, linked, "tool_use", "input",
                stopped=failed or stop is None or str_or_none(stop) in CLOSING_STOPS,
                cut_short=failed or stop in _CUT_SHORT,
            )  # fmt: skip
        if kind != "user":
            return TurnStep("note" if kind in ("system", "progress") else "aside", *linked)
        took = number_in(entry.get("toolUseResult"), "durationMs", "totalDurationMs")
        results = tuple(_tool_result(block, took) for _, block in blocks_of(entry, "tool_result"))
        if results:
            return TurnStep("result", *linked, results=results)
        return TurnStep("prompt" if is_prompt(entry) else "aside", *linked)

    def calls(self, entry: Entry) -> Iterator[CallArguments]:
        if entry.get("type") != "assistant":
            return
        for index, block in blocks_of(entry, "tool_use"):
            if isinstance(block.get("input"), dict):
                path = (*_CONTENT, index, "input")
                yield CallArguments(path, str_or_none(block.get("id")), block["input"])

    def answers(self, entry: Entry) -> Iterator[Answer]:
        """Yield the texts of the tool_result blocks."""
        if entry.get("type") != "user":
            return
        for index, block in blocks_of(entry, "tool_result"):
            here, content = (*_CONTENT, index, "content"), block.get("content")
            texts = [(here, content)] + [
                ((*here, inner, "text"), one.get("text"))
                for inner, one in blocks_in(content, "text")
            ]
            call = str_or_none(block.get("tool_use_id"))
            for path, text in texts:
                if isinstance(text, str) and text:
                    yield Answer(path, text, call)
