"""Sizes of entries in requests, and usage of model calls, for all formats.

Sources: the sessions under `tests/samples`, @earendil-works/pi-coding-agent 1.5.2
(`dist/core/messages.js` decides what is sent), and the sources named in the other modules.
"""

import json
import math
from typing import Any

from brainsurgeon.formats.base import Format, dict_or_empty, str_or_empty
from brainsurgeon.formats.refusals import refusal
from brainsurgeon.model.entries import Entry, KeyPath, decode
from brainsurgeon.model.sessions import Survey
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import ModelCall, Sent

_MOST = 1 << 40  # no call has so many tokens, or costs so many dollars


def unanswered(entry: Entry, text: str, model: str | None, provider: str = "") -> ModelCall:
    """Return a call that failed with the error message `text`."""
    why = refusal(text, provider)
    at = parse_time(entry.get("timestamp"))
    return ModelCall(None, model, 0, at, why, "refused" if why else "failed")


def counts(usage: Entry, *keys: str) -> int:
    return sum(value for value in map(usage.get, keys) if type(value) is int and 0 < value < _MOST)


def dollars(value: object) -> float | None:
    if isinstance(value, int | float) and value is not True and 0 < value < _MOST:
        return float(value)
    return None


def recorded(entry: Entry, usage: Entry, model: object, ident: str | None = None) -> ModelCall:
    """Return the call that the model answered with an entry. `usage` may be any provider's.

    OpenAI's prompt tokens include cached ones. Others count them separately.
    """
    other = "input_tokens" if "input_tokens" in usage else "input"
    prompt = "prompt_tokens" if "prompt_tokens" in usage else other
    separate = ("cacheRead", "cacheWrite", "cache_read_input_tokens", "cache_creation_input_tokens")
    cached = counts(usage, "cacheRead", "cache_read_input_tokens", "cached_input_tokens") or max(
        counts(dict_or_empty(usage.get(key)), "cached_tokens")
        for key in ("prompt_tokens_details", "input_tokens_details")
    )
    hour = counts(usage, "cacheWrite1h") or counts(
        dict_or_empty(usage.get("cache_creation")), "ephemeral_1h_input_tokens"
    )
    costs = dict_or_empty(usage.get("cost"))
    parts = [dollars(costs.get(key)) for key in ("input", "cacheRead", "cacheWrite")]
    cost = math.fsum(filter(None, parts))
    return ModelCall(
        ident, str_or_empty(model) or None, counts(usage, prompt, *separate),
        parse_time(entry.get("timestamp")), cached=cached, hour=bool(hour),
        written=counts(usage, "cacheWrite", "cache_creation_input_tokens"),
        output=counts(usage, "output", "output_tokens", "completion_tokens"), cost=cost or None,
        dollars=dollars(costs.get("total")),  # agents record 0 if they know no price
    )  # fmt: skip


def _json(value: object) -> int:
    try:
        return len(json.dumps(value, ensure_ascii=False)) if value is not None else 0
    except (ValueError, RecursionError):
        return 0


def content(value: Any, depth: int = 4) -> Sent:
    if isinstance(value, str):
        return Sent(len(value))
    sent = Sent()
    for block in value if depth and isinstance(value, list) else ():
        if isinstance(block, dict):
            sent += _block(block, depth - 1)
    return sent


def _block(block: Entry, depth: int) -> Sent:
    kind = block.get("type")
    if kind in ("image", "document", "input_image", "image_url"):
        source = dict_or_empty(block.get("source"))
        if source.get("type") == "text":
            return Sent(len(str_or_empty(source.get("data"))))
        url = block.get("image_url")
        data = (block.get("data"), source.get("data"), url, dict_or_empty(url).get("url"))
        return Sent(0, 1, sum(map(len, map(str_or_empty, data))))
    if kind in ("tool_use", "toolCall"):
        given = block.get("input", block.get("arguments"))
        return Sent(len(str_or_empty(block.get("name"))) + _json(given))
    if kind == "tool_result":
        return content(block.get("content"), depth)
    return Sent(len(str_or_empty(block.get("thinking" if kind == "thinking" else "text"))))


def tokens_off(
    form: Format, entry: Entry, survey: Survey, path: KeyPath, new: bytes, rate: float
) -> int:
    """Return how many tokens a request saves if the JSON `new` replaces the value at `path`."""
    before, after = (form.sent(one, survey) for one in _replaced(entry, path, decode(new)))
    return (before - after).tokens(rate)


def _replaced(value: Any, path: KeyPath, new: Any) -> tuple[Any, Any]:
    """Return a value before and after the change at `path`.

    Lists on the path are reduced to one element, since a line may have 40,000 changed blocks.
    """
    if not path:
        return value, new
    before, after = _replaced(value[path[0]], path[1:], new)
    if isinstance(value, list):
        return [before], [after]
    return {**value, path[0]: before}, {**value, path[0]: after}
