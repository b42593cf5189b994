"""Extracted values of an entry, as raw JSON tokens and as decoded content."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from brainsurgeon.model.entries import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.records import Extraction
    from brainsurgeon.store import Store

# Path steps below which an agent keeps its own copy of what its model reads elsewhere in the entry.
ASIDE = frozenset({"details", "toolUseResult"})
# Path steps below which Claude Code keeps results for its screen, each in another form.
SCREEN = frozenset({"toolUseResult", "attachment"})


class Contents(NamedTuple):
    """The distinct values of an entry by path.

    `same_as` maps the path of each copy to the path of its value.
    """

    values: dict[str, Any]
    same_as: dict[str, str]


def newest(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    """Return one extraction for each path: the last."""
    return tuple({value.path: value for value in values}.values())


def chosen(values: Iterable[Extraction], keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Return the values named by `keys` (a whole path or one step of it), or all without keys."""
    wanted = list(keys)
    return tuple(
        value for value in values
        if not wanted or any(_matches(value.path, key) for key in wanted)
    )  # fmt: skip


def _matches(path: KeyPath, key: str) -> bool:
    return key == dotted(path) or any(step == key for step in path if isinstance(step, str))


def as_sent(values: tuple[Extraction, ...], keys: Iterable[str]) -> tuple[Extraction, ...]:
    """Drop values that only the agent's screen shows, unless named or the only ones.

    Entries often hold a result twice: in the form for the model and in the form for the user.
    """
    sent = tuple(value for value in values if SCREEN.isdisjoint(value.path))
    return values if list(keys) else sent or values


def as_the_model_had_them(values: Iterable[Extraction]) -> tuple[Extraction, ...]:
    """Sort the copies kept by the agent after the values that the model had."""
    return tuple(sorted(values, key=lambda value: not ASIDE.isdisjoint(value.path)))


def tokens_of(store: Store, values: Iterable[Extraction]) -> dict[int, bytes]:
    """Return the JSON tokens of the values that have not expired, by extraction id."""
    return {
        value.id: store.blobs.get(value.blob_id, value.digest)
        for value in values
        if value.blob_id is not None
    }


def contents(values: Iterable[Extraction], tokens: dict[int, bytes]) -> Contents:
    """Return each distinct value once, by path, at the place where the model had it if possible.

    Values are strings; whole blocks are objects.
    """
    by_path: dict[str, Any] = {}
    same_as: dict[str, str] = {}
    first: dict[str, str] = {}
    for value in as_the_model_had_them(values):
        if value.id not in tokens:
            continue
        path, content = dotted(value.path), decode(tokens[value.id])
        first_path = first.setdefault(json.dumps(content), path)
        if first_path == path:
            by_path[path] = content
        else:
            same_as[path] = first_path
    return Contents(by_path, same_as)


def decode(token: bytes) -> Any:
    return json.loads(token.decode("utf-8", "surrogatepass"))
