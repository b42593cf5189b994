"""Extracted values of an entry, as raw JSON tokens and as decoded content."""

import json
from collections.abc import Iterable
from typing import Any

from brainsurgeon.model.entries import dotted
from brainsurgeon.model.records import Extraction
from brainsurgeon.store import Store

# Path steps below which an agent keeps its own copy of a text that its model gets from elsewhere
# in the entry.
ASIDE = frozenset({"details", "toolUseResult"})
# Path steps below which Claude Code keeps results for its screen, in another form.
SCREEN = frozenset({"toolUseResult", "attachment"})


def newest(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    """Return the last extraction for each path."""
    return tuple({value.path: value for value in values}.values())


def chosen(values: Iterable[Extraction], keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Return the values named by `keys` (a whole path or one step of it), or all without keys.

    A key may be several with commas between them.
    """
    wanted = {name for key in keys for name in (key, *map(str.strip, key.split(",")))}
    return tuple(
        value for value in values
        if not wanted or not wanted.isdisjoint([dotted(value.path), *value.path])
    )  # fmt: skip


def as_sent(values: tuple[Extraction, ...], keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Drop values for the agent's screen, unless `keys` are given or there are no others.

    Entries often contain a result twice: once for the model and once for the user.
    """
    sent = tuple(value for value in values if SCREEN.isdisjoint(value.path))
    return values if list(keys) else sent or values


def as_the_model_had_them(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    """Sort the agent's own copies after the values that the model got."""
    return tuple(sorted(values, key=lambda value: not ASIDE.isdisjoint(value.path)))


def tokens_of(store: Store, values: Iterable[Extraction]) -> dict[int, bytes]:
    """Return the JSON tokens of the values that have not expired, by extraction id."""
    return {
        value.id: store.blobs.get(value.blob_id, value.digest)
        for value in values
        if value.blob_id is not None
    }


def contents(
    values: Iterable[Extraction], tokens: dict[int, bytes]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the distinct values by path, and for the path of each copy the path of its original.

    The original is the value that the model got, if possible. Values are strings, or objects for
    whole blocks.
    """
    by_path: dict[str, Any] = {}
    same_as: dict[str, str] = {}
    first: dict[str, str] = {}
    for value in as_the_model_had_them(values):
        if value.id not in tokens:
            continue
        path, content = dotted(value.path), decode(tokens[value.id])
        original = first.setdefault(json.dumps(content), path)
        if original == path:
            by_path[path] = content
        else:
            same_as[path] = original
    return by_path, same_as


def decode(token: bytes) -> Any:
    return json.loads(token.decode("utf-8", "surrogatepass"))
