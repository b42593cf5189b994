"""What the lines of a Claude Code session are in their turn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from brainsurgeon.formats.claude_lines import blocks_of, entry_id, message_of
from brainsurgeon.formats.claude_turn import CLOSING_STOPS, is_prompt
from brainsurgeon.formats.turning import files_in, first_line, number_in, references, texts_in
from brainsurgeon.model.turns import GAVE_UP, Answered, Asked, Said

if TYPE_CHECKING:
    from brainsurgeon.model.entries import Entry, KeyPath

_EXIT = re.compile(r"Exit code ([0-9]{1,9})$")
"""How the result of a command begins that failed: the code stands nowhere else."""
_CUT_SHORT = ("max_tokens", "refusal", "model_context_window_exceeded")


def said(entry: Entry) -> Said | None:
    """Say what a line is in its turn; None where it is no part of the chain, or a sub-agent's."""
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
