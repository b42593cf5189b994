"""Read stored values, each once: as the bytes to put back, and as what an agent would read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from brainsurgeon.model.entries import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.records import Extraction
    from brainsurgeon.store import Store

ASIDE = frozenset({"details", "toolUseResult"})
"""Steps of a path below which an agent keeps, for itself, what its model reads elsewhere in the
entry."""
SCREEN = frozenset({"toolUseResult", "attachment"})
"""Steps of a path below which Claude Code keeps results for its screen, each in another form."""


class Contents(NamedTuple):
    """The distinct values of an entry by path, and the paths of copies by those of their values."""

    values: dict[str, Any]
    same_as: dict[str, str]


def newest(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    """Give one extraction a place: the last of those that come with it."""
    return tuple({value.path: value for value in values}.values())


def chosen(values: Iterable[Extraction], keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Give the values that `keys` name, a whole path or any named step of one; without any, all."""
    wanted = list(keys)
    return tuple(
        value for value in values
        if not wanted or any(_matches(value.path, key) for key in wanted)
    )  # fmt: skip


def _matches(path: KeyPath, key: str) -> bool:
    return key == dotted(path) or any(step == key for step in path if isinstance(step, str))


def as_sent(values: tuple[Extraction, ...], keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Leave out what only the agent's screen shows, unless it was named or there is nothing else.

    A result often stands in its entry twice, as the model got it and as its user sees it.
    """
    sent = tuple(value for value in values if SCREEN.isdisjoint(value.path))
    return values if list(keys) else sent or values


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
