"""Read stored values, each once: as the bytes to put back, and as what an agent would read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import ASIDE
from brainsurgeon.model.entries import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.records import Extraction
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Contents:
    """The distinct values of an entry by path, and the paths of copies by those of their values."""

    values: dict[str, Any]
    same_as: dict[str, str]


def as_the_model_had_them(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    """Put what the model had before what its agent keeps beside it."""
    return tuple(sorted(values, key=lambda value: not ASIDE.isdisjoint(value.path)))


def tokens_of(store: Store, values: Iterable[Extraction]) -> dict[int, bytes]:
    """Read the values that are still held, as they stood in their lines, by extraction id."""
    return {
        value.id: store.blobs.get(value.blob_id, value.digest)
        for value in values
        if value.blob_id is not None
    }


def contents(values: Iterable[Extraction], tokens: dict[int, bytes]) -> Contents:
    """Give each distinct value once, by path, first where the model had it.

    Values are strings, and whole blocks the objects that they were.
    """
    given: dict[str, Any] = {}
    same_as: dict[str, str] = {}
    first: dict[str, str] = {}
    for value in as_the_model_had_them(values):
        if value.id not in tokens:
            continue
        path, content = dotted(value.path), decode(tokens[value.id])
        met = first.setdefault(json.dumps(content), path)
        if met == path:
            given[path] = content
        else:
            same_as[path] = met
    return Contents(given, same_as)


def decode(token: bytes) -> Any:
    """Read the token of a value as it stood in its line."""
    return json.loads(token.decode("utf-8", "surrogatepass"))
