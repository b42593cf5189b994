"""What a request carries of each entry, and what the calls of a model took, in every dialect.

Seen in the sessions under `tests/samples`, and read in @earendil-works/pi-coding-agent 1.5.2
(`dist/core/messages.js`: which messages are sent, and as what) and the packages that the other
modules of this room name. What every request carries whatever the session says (system prompt,
tools) is not in the entries; that part of a request is found by looking at many calls.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import leaves
from brainsurgeon.formats.claude_chain import BOUNDARY, blocks_of, entry_id, message_of
from brainsurgeon.formats.generic import Generic
from brainsurgeon.formats.openclaw_tree import NOT_REPLAYED
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.model.text import moment_said
from brainsurgeon.model.turns import NOTHING, SEAL, TOO_LONG, ModelCall, Sent

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.model.entries import Entry


_PICTURES = ("image", "document", "input_image", "image_url")
# How providers and agents say that a prompt is longer than its model takes.
_OVERFLOW = re.compile(
    r"context_length_exceeded|context[ _-]?(?:length|window) (?:is )?exceeded|context overflow"
    r"|exceeds? (?:the )?(?:model'?s? )?(?:maximum )?context|maximum context length"
    r"|prompt is too long|input is too long|prompt too (?:long|large)|too many tokens",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"maximum context length (?:is|of) ([0-9,]+)|> ([0-9,]+) maximum|context window of ([0-9,]+)",
    re.IGNORECASE,
)
# The `api` of the answer that openclaw 2026.7.35 repeats behind a run that failed.
_NOT_A_MODEL = "cli"
# How a provider says that a signature does not fit what it signs.
_SEAL = re.compile(
    r"bound to a different conversation|invalid `?signature`? in `?thinking"
    r"|thinking[^.]{0,80}cannot be modified|each thinking block must contain|thinking is required",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What one format says of requests; `renews` tells that an entry starts the context anew."""

    sent: Callable[[Entry], Sent]
    call: Callable[[Entry], ModelCall | None]
    renews: Callable[[Entry], bool] = lambda _: False


def complaint(text: str) -> str | None:
    """Return what an error is about, as far as we can help: `too long` or `seal`."""
    return TOO_LONG if _OVERFLOW.search(text) else SEAL if _SEAL.search(text) else None


def limit_said(text: str) -> int | None:
    """Return the most tokens that a provider takes, where its error says so."""
    found = _LIMITS.search(text)
    digits = next(filter(None, found.groups()), "").replace(",", "") if found else ""
    return int(digits) if digits and len(digits) < 12 else None  # noqa: PLR2004  no window is longer


def _refused(text: str, model: str | None, at: float | None) -> ModelCall:
    about = complaint(text)
    return ModelCall(None, model, 0, at, about, limit_said(text) if about == TOO_LONG else None)


def _sum(*parts: Sent) -> Sent:
    return Sent(sum(one.chars for one in parts), sum(one.pictures for one in parts))


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _json(value: object) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False)) if value is not None else 0
    except (ValueError, RecursionError):
        return 0


def _content(value: Any, depth: int = 4) -> Sent:
    """Add up a content: a string, or a list of blocks."""
    if isinstance(value, str):
        return Sent(len(value))
    blocks = value if isinstance(value, list) and depth else []
    return _sum(*(_block(one, depth - 1) for one in blocks if isinstance(one, dict)))


def _block(block: Entry, depth: int) -> Sent:
    """Add up one block of a content, in any of the dialects."""
    kind = block.get("type")
    if kind in _PICTURES:
        return Sent(0, 1)
    if kind in ("tool_use", "toolCall"):
        given = block.get("input", block.get("arguments"))
        return Sent(len(_text(block.get("name"))) + _json(given))
    if kind == "tool_result":
        return _content(block.get("content"), depth)
    if kind == "thinking":
        return Sent(len(_text(block.get("thinking"))))
    return Sent(len(_text(block.get("text"))))


def _claw_sent(entry: Entry) -> Sent:
    kind, message = entry.get("type"), entry.get("message")
    if kind == "custom_message":
        return _content(entry.get("content"))
    if kind in ("compaction", "branch_summary"):
        return Sent(len(_text(entry.get("summary"))))
    if kind != "message" or not isinstance(message, dict):
        return NOTHING
    role = message.get("role")
    if role == "bashExecution":
        kept_out = message.get("excludeFromContext") is True
        return NOTHING if kept_out else Sent(
            len(_text(message.get("command"))) + len(_text(message.get("output")))
        )  # fmt: skip
    if role == "assistant" and message.get("stopReason") in NOT_REPLAYED:
        return NOTHING
    return _content(message.get("content"))


def _claw_call(entry: Entry) -> ModelCall | None:
    message = entry.get("message")
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return None
    model = _text(message.get("model")) or None
    at = moment_said(entry.get("timestamp"))
    if message.get("stopReason") in NOT_REPLAYED:
        return _refused(_text(message.get("errorMessage")), model, at)
    usage = message.get("usage")
    told = usage if isinstance(usage, dict) else {}
    tokens = sum(_count(told.get(key)) for key in ("input", "cacheRead", "cacheWrite"))
    repeated = message.get("api") == _NOT_A_MODEL and not tokens
    return None if repeated else ModelCall(None, model, tokens, at)


def _claude_sent(entry: Entry) -> Sent:
    if entry_id(entry) is None or entry.get("isVisibleInTranscriptOnly") is True:
        return NOTHING
    if entry["type"] == "attachment":
        attachment = entry.get("attachment")
        said = attachment.get("content") if isinstance(attachment, dict) else None
        return _leaves(entry.get("rendered", said))
    if entry["type"] not in ("user", "assistant") or entry.get("isApiErrorMessage") is True:
        return NOTHING
    return _content(message_of(entry).get("content"))


def _claude_call(entry: Entry) -> ModelCall | None:
    if entry_id(entry) is None or entry["type"] != "assistant":
        return None
    message, at = message_of(entry), moment_said(entry.get("timestamp"))
    if entry.get("isApiErrorMessage") is True:
        said = [_text(block.get("text")) for _, block in blocks_of(entry)]
        return _refused(" ".join([*said, _text(message.get("content"))]), None, at)
    usage = message.get("usage")
    told = usage if isinstance(usage, dict) else {}
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    ident, model = _text(message.get("id")), _text(message.get("model"))
    if model == "<synthetic>":
        return None
    return ModelCall(ident or None, model or None, sum(_count(told.get(key)) for key in keys), at)


def _codex_sent(entry: Entry) -> Sent:
    payload = entry.get("payload")
    if not isinstance(payload, dict):
        return NOTHING
    if entry.get("type") == "compacted":
        history = payload.get("replacement_history")
        if isinstance(history, list):
            return _sum(*(_codex_item(one) for one in history if isinstance(one, dict)))
        return Sent(len(_text(payload.get("message"))))
    return _codex_item(payload) if entry.get("type") == "response_item" else NOTHING


def _codex_item(item: Entry) -> Sent:
    kind = item.get("type")
    if kind == "message":
        return _content(item.get("content"))
    if kind in ("function_call", "custom_tool_call"):
        given = item.get("arguments", item.get("input"))
        return Sent(len(_text(item.get("name"))) + len(_text(given)))
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        return _content(output.get("content") if isinstance(output, dict) else output)
    return NOTHING


def _codex_call(entry: Entry) -> ModelCall | None:
    payload = entry.get("payload")
    told = payload if isinstance(payload, dict) else {}
    at = moment_said(entry.get("timestamp"))
    if entry.get("type") == "turn_context":
        return ModelCall(None, _text(told.get("model")) or None, 0, at, begins=False)
    info = told.get("info")
    if told.get("type") != "token_count" or not isinstance(info, dict):
        return None
    total, last = info.get("total_token_usage"), info.get("last_token_usage")
    tokens = _count(last.get("input_tokens")) if isinstance(last, dict) else 0
    return ModelCall(json.dumps(total), None, tokens, at, begins=False)


def codex_window(entry: Entry) -> int | None:
    """Return what a Codex session says that its model takes, where this entry says it."""
    payload = entry.get("payload")
    told = payload if isinstance(payload, dict) else {}
    info = told.get("info")
    said = told.get("model_context_window", info.get("model_context_window")
                    if isinstance(info, dict) else None)  # fmt: skip
    return _count(said) or None


def codex_answers(entry: Entry) -> bool:
    """Check whether an entry of a Codex session is what a model said, not what it was sent."""
    payload = entry.get("payload")
    item = payload if isinstance(payload, dict) else {}
    said = item.get("type") in ("reasoning", "function_call", "custom_tool_call", "web_search_call")
    return entry.get("type") == "response_item" and (said or item.get("role") == "assistant")


def _generic_sent(entry: Entry) -> Sent:
    parts = list(Generic().parts(entry, NO_SURVEY, None))
    chars = sum(part.chars for part in parts if not part.block)
    return Sent(chars, sum(part.block for part in parts))


def _generic_call(entry: Entry) -> ModelCall | None:
    message = entry.get("message")
    holders = [one for one in (entry, message) if isinstance(one, dict)]
    usage = next((one["usage"] for one in holders if isinstance(one.get("usage"), dict)), None)
    if usage is None:
        return None
    model = next((one["model"] for one in holders if isinstance(one.get("model"), str)), None)
    given = next((_count(usage[key]) for key in ("prompt_tokens", "input_tokens", "input")
                  if key in usage), 0)  # fmt: skip
    cached = ("cacheRead", "cacheWrite", "cache_read_input_tokens", "cache_creation_input_tokens")
    tokens = given + sum(_count(usage.get(key)) for key in cached)
    return ModelCall(None, model, tokens, moment_said(entry.get("timestamp")))


def _leaves(value: Any) -> Sent:
    return Sent(sum(part.chars for part in leaves(value, (), "custom", None)))


# What each format says of requests.
DIALECTS = {
    "openclaw": Dialect(_claw_sent, _claw_call, lambda one: one.get("type") == "compaction"),
    "claude-code": Dialect(
        _claude_sent, _claude_call, lambda one: one.get("subtype") == BOUNDARY
    ),
    "codex": Dialect(_codex_sent, _codex_call, lambda one: one.get("type") == "compacted"),
    "generic": Dialect(_generic_sent, _generic_call),
}  # fmt: skip
