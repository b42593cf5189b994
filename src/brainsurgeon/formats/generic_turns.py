"""What generic entries are in their turn; none of them continues another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.turning import files_in, first_line, texts_in
from brainsurgeon.model.entries import value_at
from brainsurgeon.model.turns import GAVE_UP, Answered, Asked, Said

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.formats.base import Answer, Call
    from brainsurgeon.model.entries import Entry, KeyPath, Kind

_STOPS = ("stopReason", "stop_reason", "finish_reason")
_CUT_SHORT = ("length", "error", "aborted", "max_tokens")
_DONE = ("stop", "end_turn", "stop_sequence", *_CUT_SHORT)
_TEXT_KEYS = ("content", "text", "output", "result", "message")


def said(
    entry: Entry, kind: Kind | None, tool: str | None, calls: Iterable[Call],
    answers: Iterable[Answer],
) -> Said | None:  # fmt: skip
    """Say what an entry of a kind is in its turn; None where it is of no kind."""
    asked = tuple(
        Asked(call.call_id, tool or _name(entry, call.path), files_in(call.arguments))
        for call in calls
    )
    answered = tuple(_answered(entry, one) for one in answers)
    if kind is None:
        return None
    if kind == "tool_result" or answered:
        return Said("result", answered=answered or (Answered(None),))
    if kind == "user":
        return Said("prompt")
    if kind == "tool_call" or asked:
        return Said("reply", asked=asked or (Asked(None, tool or "tool"),))
    return _reply(entry) if kind == "assistant" else Said("aside")


def _reply(entry: Entry) -> Said:
    path, text = _last_text(entry)
    stops = [holder[key] for holder in _holders(entry) for key in _STOPS if key in holder]
    return Said(
        "reply", text=text, text_path=path,
        closes=path is not None and all(stop in _DONE for stop in stops),
        cut_short=any(stop in _CUT_SHORT for stop in stops) or GAVE_UP in text,
    )  # fmt: skip


def _last_text(entry: Entry) -> tuple[KeyPath | None, str]:
    """Give the last text of an entry, or of its message, and where it stands."""
    for holder, path in ((entry, ()), (entry.get("message"), ("message",))):
        for key in _TEXT_KEYS if isinstance(holder, dict) else ():
            texts = texts_in(holder.get(key)) if isinstance(holder, dict) else []
            if texts:
                index, text = texts[-1]
                place: KeyPath = (*path, key) if index is None else (*path, key, index, "text")
                return place, text
    return None, ""


def _holders(entry: Entry) -> list[dict[str, Any]]:
    message = entry.get("message")
    return [entry, message] if isinstance(message, dict) else [entry]


def _name(entry: Entry, path: KeyPath) -> str:
    block = value_at(entry, path[:-1])
    name = block.get("name") if isinstance(block, dict) else None
    return name if isinstance(name, str) else "tool"


def _answered(entry: Entry, one: Answer) -> Answered:
    failed = any(entry.get(key) is True for key in ("isError", "is_error", "error"))
    return Answered(one.call_id, failed, first_line([one.text]) if failed else "")
