"""What the entries of an OpenClaw or pi session are in their turn.

Read in @mariozechner/pi-coding-agent 0.73.1 (`dist/core/session-manager.js`, buildSessionContext):
the model is that of the last assistant message of the branch, while levels of thinking, tools and
the state of extensions are taken from entries of their own, which therefore have to stay on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.turning import files_in, first_line, number_in, references, texts_in
from brainsurgeon.model.turns import GAVE_UP, Answered, Asked, Said

if TYPE_CHECKING:
    from brainsurgeon.model.entries import Entry, KeyPath
    from brainsurgeon.model.turns import Role

SETTLED_STOPS = ("stop", "length", "error", "aborted")
_CUT_SHORT = ("length", "error", "aborted")
_ROLES: dict[str, Role] = {
    "user": "prompt", "assistant": "reply", "toolResult": "result", "bashExecution": "aside",
    "custom": "aside",
}  # fmt: skip
_NOTES = ("label", "session_info", "usage", "model_change")
"""Types that nothing on the branch depends on: a reply names its model itself."""


def said(entry: Entry) -> Said | None:
    """Say what an entry is in its turn; None where it is no entry of the conversation."""
    kind = entry.get("type")
    if kind == "session":
        return None
    parent = entry.get("parentId")
    linked = (parent if isinstance(parent, str) else None, references(entry))
    message = entry.get("message")
    if kind == "message" and isinstance(message, dict):
        return _message(message, *linked)
    role: Role = "aside" if kind == "custom_message" else "note" if kind in _NOTES else "fixed"
    return Said(role, *linked)


def _message(message: dict[str, Any], parent: str | None, names: tuple[str, ...]) -> Said:
    spoken = message.get("role")
    role = _ROLES.get(spoken, "fixed") if isinstance(spoken, str) else "fixed"
    if role == "reply":
        return _reply(message, parent, names)
    if role == "result":
        return Said(role, parent, names, answered=(_answered(message),))
    return Said(role, parent, names)


def _reply(message: dict[str, Any], parent: str | None, names: tuple[str, ...]) -> Said:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    called = [b for b in blocks if isinstance(b, dict) and b.get("type") == "toolCall"]
    asked = tuple(
        Asked(_text(b.get("id")), _text(b.get("name")) or "tool", files_in(b.get("arguments")))
        for b in called
    )
    texts = texts_in(content)
    index, text = texts[-1] if texts else (None, "")
    path: KeyPath = ("message", "content") if index is None else (
        "message", "content", index, "text",
    )  # fmt: skip
    stop = message.get("stopReason")
    return Said(
        "reply", parent, names, text, path if texts else None,
        closes=bool(texts) and not called and stop in SETTLED_STOPS,
        cut_short=stop in _CUT_SHORT or GAVE_UP in text, asked=asked,
        model=_text(message.get("model")) or "",
    )  # fmt: skip


def _answered(message: dict[str, Any]) -> Answered:
    details = message.get("details")
    code = number_in(details, "exitCode")
    failed = message.get("isError") is True or bool(code)
    finding = first_line(text for _, text in texts_in(message.get("content"))) if failed else ""
    took = number_in(details, "durationMs", "tookMs")
    return Answered(_text(message.get("toolCallId")), failed, finding, code, took)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
