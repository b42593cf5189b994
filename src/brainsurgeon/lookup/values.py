"""Read stored values, each once: as bytes to put back, as what an agent would read to show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import dotted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.records import Extraction
    from brainsurgeon.store import Store


def tokens_of(store: Store, values: Iterable[Extraction]) -> dict[int, bytes]:
    """Read the values that are still held, as they stood in their lines, by their extraction."""
    return {
        value.id: store.blobs.get(value.blob_id, value.digest)
        for value in values
        if value.blob_id is not None
    }


def contents(values: Iterable[Extraction], tokens: dict[int, bytes]) -> dict[str, Any]:
    """Give values by path: strings, and whole blocks as the objects they were."""
    return {dotted(value.path): decode(tokens[value.id]) for value in values if value.id in tokens}


def decode(token: bytes) -> Any:
    """Read the token of a value as it stood in its line."""
    return json.loads(token.decode("utf-8", "surrogatepass"))
