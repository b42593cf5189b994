"""Codex sessions are recognised and read, but never changed.

A running Codex keeps its session file open. After a replacement, it would still write to the old
file. Since 0.146, Codex stores offsets into the file in a database. If they are wrong, Codex no
longer lists the conversation (openai/codex, issues 43744, 35746 and 38341).
"""

import json
from collections.abc import Sequence

from msgspec import Struct

from brainsurgeon.formats import weight
from brainsurgeon.formats.base import (
    NO_STEP,
    Content,
    Format,
    blocks_in,
    dict_or_empty,
    str_or_empty,
    usable_id,
)
from brainsurgeon.formats.chain import Chain
from brainsurgeon.model.entries import JsonObject, Line
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import ModelCall, Sent


class Stated(Struct, frozen=True):
    """What an entry says about the whole session."""

    load: int | None  # tokens
    window: int | None
    model: str  # of the calls that follow; "" if the entry names none


class Codex(Format):
    name = "codex"
    version = 1
    archives = None
    only_read = (
        "Codex sessions are only read: a running Codex keeps its file open, and newer versions"
        " store offsets into it"
    )

    def recognises(self, entries: Sequence[JsonObject]) -> bool:
        header = entries[0]
        is_header = header.get("type") == "session_meta"
        return is_header and "id" in dict_or_empty(header.get("payload"))

    def session(self, head: Sequence[JsonObject]) -> str | None:
        return usable_id(dict_or_empty(head[0].get("payload")).get("id"))

    def record(self, entry: JsonObject, line: Line, index: int) -> Entry:
        """Return what a line says. Its role is known only if the model wrote it."""
        kind, payload = entry.get("type"), dict_or_empty(entry.get("payload"))
        info, stated = _counted(payload), payload | dict_or_empty(payload.get("info"))
        usage = dict_or_empty(info.get("last_token_usage"))
        return Entry(
            index, line.terminated, role="reply" if _is_written_by_model(kind, payload) else None,
            sent=_sent(kind, payload),
            call=_call(payload, info, parse_time(entry.get("timestamp"))),
            compacts=kind == "compacted",
            own=Stated(  # Codex counts its load after each call and compaction
                weight.counts(usage, "total_tokens") or weight.counts(usage, *_BOTH) or None,
                weight.counts(stated, "model_context_window") or None,
                str_or_empty(payload.get("model")) if kind == "turn_context" else "",
            ),
        )  # fmt: skip

    def read(self, entry: JsonObject) -> Content:
        sent = _sent(entry.get("type"), dict_or_empty(entry.get("payload")))
        return Content(NO_STEP, (), (), (), sent)

    def chain(self, entries: Sequence[Entry]) -> Chain:
        """Return a chain without dead entries or an open turn: they are not known."""
        chain = Chain()
        for index, entry in enumerate(entries):
            chain.count(index, entry, live=True)
        return chain


def _sent(kind: object, payload: JsonObject) -> Sent:
    if kind == "compacted":
        history = payload.get("replacement_history")
        if isinstance(history, list):
            return sum((_codex_item(item) for _, item in blocks_in(history)), Sent())
        return Sent(len(str_or_empty(payload.get("message"))))
    return _codex_item(payload) if kind == "response_item" else Sent()


def _call(payload: JsonObject, info: JsonObject, time: float | None) -> ModelCall | None:
    # A turn ends with the error that stopped it. Older releases also write an event of its own with
    # `persist_extended_history`.
    ended = payload.get("type") == "task_complete"
    error = payload.get("error") if ended else payload
    if isinstance(error, dict) and (ended or payload.get("type") == "error"):
        return weight.unanswered(time, str_or_empty(error.get("message")), None)
    if not info:
        return None
    usage, ident = dict_or_empty(info.get("last_token_usage")), info.get("total_token_usage")
    return weight.recorded(time, usage, None, json.dumps(ident))


def _is_written_by_model(kind: object, item: JsonObject) -> bool:
    if kind != "response_item" or item.get("type") == "message":
        return item.get("role") == "assistant"
    return not str_or_empty(item.get("type")).endswith("_output")


_BOTH = ("input_tokens", "output_tokens")


def _counted(payload: JsonObject) -> JsonObject:
    """Return the counts of an event; {} if it has none, or those that Codex fills up.

    After a refusal, Codex sets the sum of all calls to the window, without its parts.
    """
    info = dict_or_empty(payload.get("info")) if payload.get("type") == "token_count" else {}
    whole = dict_or_empty(info.get("total_token_usage"))
    return {} if whole and not weight.counts(whole, *_BOTH) else info


def _codex_item(item: JsonObject) -> Sent:
    kind = item.get("type")
    if kind == "message":
        return weight.content(item.get("content"))
    if kind in ("function_call", "custom_tool_call"):
        given = item.get("arguments", item.get("input"))
        return Sent(len(str_or_empty(item.get("name"))) + len(str_or_empty(given)))
    if kind in ("function_call_output", "custom_tool_call_output"):
        output = item.get("output")
        return weight.content(output.get("content") if isinstance(output, dict) else output)
    return Sent()
