"""Sizes of entries in requests, and usage of model calls, for all formats.

Sources: the sessions under `tests/samples`, @earendil-works/pi-coding-agent 1.5.2
(`dist/core/messages.js` decides what is sent), and the sources named in the other modules.
"""

import json
import math
from typing import Any

from brainsurgeon.formats.base import Format, blocks_in, dict_or_empty, str_or_empty
from brainsurgeon.formats.refusals import refusal
from brainsurgeon.model.entries import JsonObject, KeyPath, decode
from brainsurgeon.model.turns import NOTHING, ModelCall, Sent

_MOST = 1 << 40  # no call has so many tokens, or costs so many dollars


def unanswered(at: float | None, text: str, model: str | None, provider: str = "") -> ModelCall:
    """Return a call that failed with the error message `text`."""
    why = refusal(text, provider)
    return ModelCall(None, model, 0, at, why, "refused" if why else "failed")


def counts(usage: JsonObject, *keys: str) -> int:
    total = 0
    for key in keys:
        value = usage.get(key)
        if type(value) is int and 0 < value < _MOST:
            total += value
    return total


def dollars(value: object) -> float | None:
    if isinstance(value, int | float) and value is not True and 0 < value < _MOST:
        return float(value)
    return None


def recorded(
    at: float | None, usage: JsonObject, model: object, ident: str | None = None
) -> ModelCall:  # fmt: skip
    """Return the call that the model answered at a time. `usage` may be any provider's.

    OpenAI's prompt tokens include cached ones. Others count them separately.
    """
    given = {
        key: value for key, value in usage.items() if type(value) is int and 0 < value < _MOST
    }.get  # fmt: skip
    other = "input_tokens" if "input_tokens" in usage else "input"
    prompt = "prompt_tokens" if "prompt_tokens" in usage else other
    read = given("cacheRead", 0) + given("cache_read_input_tokens", 0)
    written = given("cacheWrite", 0) + given("cache_creation_input_tokens", 0)
    cached = read + given("cached_input_tokens", 0)
    if not cached:
        details = map(usage.get, ("prompt_tokens_details", "input_tokens_details"))
        cached = max([counts(one, "cached_tokens") if isinstance(one, dict) else 0
                      for one in details])  # fmt: skip
    hour, creation = given("cacheWrite1h"), usage.get("cache_creation")
    if not hour and isinstance(creation, dict):
        hour = counts(creation, "ephemeral_1h_input_tokens")
    costs, cost = dict_or_empty(usage.get("cost")), 0.0
    if costs:
        parts = [dollars(costs.get(key)) for key in ("input", "cacheRead", "cacheWrite")]
        cost = math.fsum(filter(None, parts))
    return ModelCall(
        ident, str_or_empty(model) or None, given(prompt, 0) + read + written, at,
        cached=cached, hour=bool(hour), written=written,
        output=given("output", 0) + given("output_tokens", 0) + given("completion_tokens", 0),
        cost=cost or None,
        dollars=dollars(costs.get("total")),  # agents record 0 if they know no price
    )  # fmt: skip


_written = json.JSONEncoder(ensure_ascii=False).encode


def _given(value: Any) -> int:
    try:
        return 0 if value is None else len(_written(value))
    except (ValueError, RecursionError):
        return 0


def content(value: Any, depth: int = 4) -> Sent:
    if isinstance(value, str):
        return Sent(len(value))
    blocks = blocks_in(value) if depth else ()
    return sum([_block(block, depth - 1) for _, block in blocks], NOTHING)


def _block(block: JsonObject, depth: int) -> Sent:
    kind = block.get("type")
    if kind == "text":
        return Sent(len(str_or_empty(block.get("text"))))
    if kind in ("image", "document", "input_image", "image_url"):
        source = dict_or_empty(block.get("source"))
        if source.get("type") == "text":
            return Sent(len(str_or_empty(source.get("data"))))
        url = block.get("image_url")
        data = (block.get("data"), source.get("data"), url, dict_or_empty(url).get("url"))
        return Sent(0, 1, sum(map(len, map(str_or_empty, data))))
    if kind in ("tool_use", "toolCall"):
        given = block.get("input", block.get("arguments"))
        return Sent(len(str_or_empty(block.get("name"))) + _given(given))
    if kind == "tool_result":
        return content(block.get("content"), depth)
    return Sent(len(str_or_empty(block.get("thinking" if kind == "thinking" else "text"))))


def tokens_off(form: Format, entry: JsonObject, path: KeyPath, new: bytes, rate: float) -> int:
    """Return how many tokens a request saves if the JSON `new` replaces the value at `path`."""
    before, after = map(form.read, _replaced(entry, path, decode(new)))
    return (before.sent - after.sent).tokens(rate)


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
