"""Show stored values, raw; nothing is touched."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.model import dotted
from brainsurgeon.operations.entries import choose, entry_named, expired
from brainsurgeon.store import blobs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import Extraction


@dataclass(frozen=True, slots=True)
class Shown:
    """The values of one entry by path, as the agent would read them; `missed` have expired."""

    entry_id: str
    session: str
    content: dict[str, Any]
    missed: tuple[str, ...] = ()


def show(
    settings: Settings, store: Store | None, entry: str,
    session: str | None = None, keys: Iterable[str] = (),
) -> Shown:  # fmt: skip
    """Give the values of an entry; raise NotFound, Ambiguous or Expired where there are none."""
    named = entry_named(settings, store, entry, session)
    wanted = list(keys)
    values = contents(store, choose(named, wanted)) if store else {}
    missed = tuple(f"{dotted(value.path)}: expired" for value in expired(named, wanted))
    return Shown(named.entry_id, named.row.title, values, missed)


def contents(store: Store, values: Iterable[Extraction]) -> dict[str, Any]:
    """Read values by path: strings, and whole blocks as the objects they were."""
    return {
        dotted(value.path): decode(blobs.get(store.connection, value.blob_id, value.digest))
        for value in values
        if value.blob_id is not None
    }


def decode(token: bytes) -> Any:
    """Read the token of a value as it stood in its line."""
    return json.loads(token.decode("utf-8", "surrogatepass"))
