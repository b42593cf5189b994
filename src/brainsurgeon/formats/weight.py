"""How much of each entry a request contains, and how many tokens each model call used.

Sources: the sessions under `tests/samples`, @earendil-works/pi-coding-agent 1.5.2
(`dist/core/messages.js` decides what is sent), and the sources of the other modules in `formats`.
The constant part of every request (system prompt, tools) is not in the entries. It is estimated
from many calls.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats.base import blocks_in, dict_or_empty, leaves, str_or_empty
from brainsurgeon.formats.claude_code import BOUNDARY, blocks_of, entry_id, message_of
from brainsurgeon.formats.generic import Generic
from brainsurgeon.formats.openclaw import NOT_REPLAYED
from brainsurgeon.model.entries import Entry, KeyPath, decode
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import NOTHING, SIGNATURE, TOO_LONG, ModelCall, Sent

# How providers and agents say that a prompt is too long for its model.
_OVERFLOW = re.compile(
    r"context_length_exceeded|context[ _-]?(?:length|window) (?:is )?exceeded|context overflow"
    r"|exceeds? (?:the )?(?:model'?s? )?(?:maximum )?context|maximum context length"
    r"|prompt is too long|input is too long|prompt too (?:long|large)|too many tokens"
    r"|tokens > [0-9,]+ maximum",
    re.IGNORECASE,
)
_LIMITS = re.compile(
    r"maximum context length (?:is|of) ([0-9,]+)|> ([0-9,]+) maximum|context window of ([0-9,]+)",
    re.IGNORECASE,
)
_PROMPTS = re.compile(
    r"([0-9,]+) tokens > [0-9,]+ maximum|(?:resulted in|requested) ([0-9,]+) tokens", re.IGNORECASE
)
# How a provider says that a signature is invalid for its content.
_SIGNATURE = re.compile(
    r"bound to a different conversation|invalid `?signature`? in `?thinking"
    r"|thinking[^.]{0,80}cannot be modified|each thinking block must contain|thinking is required",
    re.IGNORECASE,
)

# No call has so many tokens, or costs so many dollars.
_MOST = 1 << 40


class Dialect(Struct, frozen=True):
    """How to read requests in one format.

    `renews` checks whether an entry starts a new context. `switches` checks whether the next call
    is to another model, which has its own cache. `stated` returns the costs of the session so far
    (dollars), as the agent recorded them.
    """

    sent: Callable[[Entry], Sent]
    call: Callable[[Entry], ModelCall | None]
    renews: Callable[[Entry], bool] = lambda _: False
    switches: Callable[[Entry], bool] = lambda _: False
    stated: Callable[[Entry], float | None] = lambda _: None


def complaint(text: str) -> str | None:
    return TOO_LONG if _OVERFLOW.search(text) else SIGNATURE if _SIGNATURE.search(text) else None


def stated_limit(text: str) -> int | None:
    return _number(_LIMITS, text)


def _number(stated: re.Pattern[str], text: str) -> int | None:
    found = stated.search(text)
    digits = next(filter(None, found.groups()), "").replace(",", "") if found else ""
    return int(digits) if digits and len(digits) < 12 else None  # noqa: PLR2004  no window is longer


def _refused(text: str, model: str | None, at: float | None) -> ModelCall:
    about = complaint(text)
    if about != TOO_LONG:
        return ModelCall(None, model, 0, at, about)
    return ModelCall(None, model, _number(_PROMPTS, text) or 0, at, about, stated_limit(text))


def _counts(usage: Entry, *keys: str) -> int:
    return sum(value for value in map(usage.get, keys) if type(value) is int and 0 < value < _MOST)


def _dollars(value: object) -> float | None:
    if isinstance(value, int | float) and value is not True and 0 < value < _MOST:
        return float(value)
    return None


def _call(
    ident: str | None, model: str | None, tokens: int, at: float | None, usage: Entry
) -> ModelCall:  # fmt: skip
    """Return a call with the figures in its `usage`. Each format has its own names for them."""
    cached = _counts(usage, "cacheRead", "cache_read_input_tokens", "cached_input_tokens") or max(
        _counts(dict_or_empty(usage.get(key)), "cached_tokens")
        for key in ("prompt_tokens_details", "input_tokens_details")
    )
    hour = _counts(usage, "cacheWrite1h") or _counts(
        dict_or_empty(usage.get("cache_creation")), "ephemeral_1h_input_tokens"
    )
    costs = dict_or_empty(usage.get("cost"))
    parts = [_dollars(costs.get(key)) for key in ("input", "cacheRead", "cacheWrite")]
    cost = math.fsum(filter(None, parts))
    return ModelCall(
        ident, model, tokens, at, cached=cached, hour=bool(hour),
        written=_counts(usage, "cacheWrite", "cache_creation_input_tokens"),
        output=_counts(usage, "output", "output_tokens", "completion_tokens"), cost=cost or None,
        # Agents record 0 where they know no price.
        dollars=_dollars(costs.get("total")),
    )  # fmt: skip


def _json(value: object) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False)) if value is not None else 0
    except (ValueError, RecursionError):
        return 0


def _content(value: Any, depth: int = 4) -> Sent:
    if isinstance(value, str):
        return Sent(len(value))
    sent = NOTHING
    for block in value if depth and isinstance(value, list) else ():
        if isinstance(block, dict):
            sent += _block(block, depth - 1)
    return sent


def _block(block: Entry, depth: int) -> Sent:
    kind = block.get("type")
    if kind in ("image", "document", "input_image", "image_url"):
        return Sent(0, 1)
    if kind in ("tool_use", "toolCall"):
        given = block.get("input", block.get("arguments"))
        return Sent(len(str_or_empty(block.get("name"))) + _json(given))
    if kind == "tool_result":
        return _content(block.get("content"), depth)
    return Sent(len(str_or_empty(block.get("thinking" if kind == "thinking" else "text"))))


def _claw_sent(entry: Entry) -> Sent:
    kind, message = entry.get("type"), entry.get("message")
    if kind == "custom_message":
        return _content(entry.get("content"))
    if kind in ("compaction", "branch_summary"):
        return Sent(len(str_or_empty(entry.get("summary"))))
    if kind != "message" or not isinstance(message, dict):
        return NOTHING
    role = message.get("role")
    if role == "bashExecution":
        if message.get("excludeFromContext") is True:
            return NOTHING
        return Sent(sum(len(str_or_empty(message.get(key))) for key in ("command", "output")))
    if role == "assistant" and message.get("stopReason") in NOT_REPLAYED:
        return NOTHING
    return _content(message.get("content"))


def _claw_call(entry: Entry) -> ModelCall | None:
    message = dict_or_empty(entry.get("message"))
    if message.get("role") != "assistant":
        return None
    model = str_or_empty(message.get("model")) or None
    at = parse_time(entry.get("timestamp"))
    usage = dict_or_empty(message.get("usage"))
    tokens = _counts(usage, "input", "cacheRead", "cacheWrite")
    # OpenClaw repeats messages with new entry ids when it changes its branch. These names stay.
    names = (message.get("responseId"), message.get("timestamp"))
    ident = repr(names if all(names) else (entry.get("id"), entry.get("timestamp")))
    call = _call(ident, model, tokens, at, usage)
    if message.get("stopReason") in NOT_REPLAYED:
        refused = _refused(str_or_empty(message.get("errorMessage")), model, at)
        return replace(refused, ident=ident, dollars=call.dollars)
    # After a failed run, openclaw 2026.7.35 repeats the answer with this `api`.
    repeated = message.get("api") == "cli" and not tokens
    return None if repeated else call


def _claude_sent(entry: Entry) -> Sent:
    if entry_id(entry) is None or entry.get("isVisibleInTranscriptOnly") is True:
        return NOTHING
    if entry["type"] == "attachment":
        text = entry.get("rendered", dict_or_empty(entry.get("attachment")).get("content"))
        return Sent(sum(part.chars for part in leaves(text, (), "custom", None)))
    if entry["type"] not in ("user", "assistant") or entry.get("isApiErrorMessage") is True:
        return NOTHING
    return _content(message_of(entry).get("content"))


def _claude_call(entry: Entry) -> ModelCall | None:
    if entry_id(entry) is None or entry["type"] != "assistant":
        return None
    message, at = message_of(entry), parse_time(entry.get("timestamp"))
    if entry.get("isApiErrorMessage") is True:
        texts = [str_or_empty(block.get("text")) for _, block in blocks_of(entry)]
        texts += [str_or_empty(message.get("content")), str_or_empty(entry.get("errorDetails"))]
        return _refused(" ".join(texts), None, at)
    model, ident = str_or_empty(message.get("model")) or None, str_or_empty(message.get("id"))
    if model == "<synthetic>":
        return None
    keys = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    usage, name = dict_or_empty(message.get("usage")), ident and f"{ident} {entry.get('requestId')}"
    return _call(name or None, model, _counts(usage, *keys), at, usage)


def _claude_stated(entry: Entry) -> float | None:
    return _dollars(entry.get("totalCostUSD")) if entry.get("type") == "cost-state" else None


def _claude_switches(entry: Entry) -> bool:
    """Check whether an entry is what Claude Code prints after `/model`."""
    content = entry.get("content", message_of(entry).get("content"))
    return str_or_empty(content).startswith("<local-command-stdout>Set model to ")


def _codex_sent(entry: Entry) -> Sent:
    payload = dict_or_empty(entry.get("payload"))
    if entry.get("type") == "compacted":
        history = payload.get("replacement_history")
        if isinstance(history, list):
            return sum((_codex_item(item) for _, item in blocks_in(history)), NOTHING)
        return Sent(len(str_or_empty(payload.get("message"))))
    return _codex_item(payload) if entry.get("type") == "response_item" else NOTHING


def _codex_item(item: Entry) -> Sent:
    kind = item.get("type")
    if kind == "message":
        return _content(item.get("content"))
    if kind in ("function_call", "custom_tool_call"):
        given = item.get("arguments", item.get("input"))
        return Sent(len(str_or_empty(item.get("name"))) + len(str_or_empty(given)))
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        return _content(output.get("content") if isinstance(output, dict) else output)
    return NOTHING


def _codex_call(entry: Entry) -> ModelCall | None:
    payload = dict_or_empty(entry.get("payload"))
    at = parse_time(entry.get("timestamp"))
    if entry.get("type") == "turn_context":
        return ModelCall(None, str_or_empty(payload.get("model")) or None, 0, at)
    info = payload.get("info")
    if payload.get("type") != "token_count" or not isinstance(info, dict):
        return None
    usage, ident = dict_or_empty(info.get("last_token_usage")), info.get("total_token_usage")
    return _call(json.dumps(ident), None, _counts(usage, "input_tokens"), at, usage)


def codex_window(entry: Entry) -> int | None:
    payload, key = dict_or_empty(entry.get("payload")), "model_context_window"
    return _counts(payload, key) or _counts(dict_or_empty(payload.get("info")), key) or None


def _generic_sent(entry: Entry) -> Sent:
    parts = list(Generic().parts(entry, NO_SURVEY, None))
    chars = sum(part.chars for part in parts if not part.block)
    return Sent(chars, sum(part.block for part in parts))


def _generic_call(entry: Entry) -> ModelCall | None:
    holders = (entry, dict_or_empty(entry.get("message")))
    usages = (holder.get("usage") for holder in holders)
    usage = next((usage for usage in usages if isinstance(usage, dict)), None)
    if usage is None:
        return None
    models = (holder.get("model") for holder in holders)
    model = next((model for model in models if isinstance(model, str)), None)
    prompt = next((key for key in ("prompt_tokens", "input_tokens", "input") if key in usage), "")
    cached = ("cacheRead", "cacheWrite", "cache_read_input_tokens", "cache_creation_input_tokens")
    tokens = _counts(usage, prompt, *cached)
    return _call(None, model, tokens, parse_time(entry.get("timestamp")), usage)


# How to read requests, by format.
DIALECTS = {
    "openclaw": Dialect(
        _claw_sent, _claw_call, lambda one: one.get("type") == "compaction",
        lambda one: one.get("type") == "model_change",
    ),
    "claude-code": Dialect(
        _claude_sent, _claude_call, lambda one: one.get("subtype") == BOUNDARY, _claude_switches,
        stated=_claude_stated,
    ),
    "codex": Dialect(_codex_sent, _codex_call, lambda one: one.get("type") == "compacted"),
    "generic": Dialect(_generic_sent, _generic_call),
}  # fmt: skip


def tokens_off(form: str, entry: Entry, path: KeyPath, token: bytes, rate: float) -> int:
    """Return how many tokens a request saves if the JSON `token` replaces the value at `path`.

    The entry is part of the request. `rate` is the number of tokens per character.
    """
    sent = DIALECTS[form].sent
    before, after = map(sent, _replaced(entry, path, decode(token)))
    return (before - after).tokens(rate)


def _replaced(value: Any, path: KeyPath, new: Any) -> tuple[Any, Any]:
    """Return a value before and after the change at `path`.

    Lists on the path are reduced to the element on the path. Otherwise a line with 40,000 changed
    blocks would be copied 40,000 times.
    """
    if not path:
        return value, new
    before, after = _replaced(value[path[0]], path[1:], new)
    if isinstance(value, list):
        return [before], [after]
    return {**value, path[0]: before}, {**value, path[0]: after}
