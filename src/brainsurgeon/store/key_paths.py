"""How the store writes where in an entry a value stood."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.model.entries import KeyPath


def key_path_text(path: KeyPath) -> str:
    """Write where in an entry a value stood: as JSON, or the usual places in short."""
    match path:
        case ("message", "content", int() as at, "text"):
            return f"t{at}"
        case ("message", "content", int() as at, "content"):
            return f"c{at}"
    return json.dumps(path)


def key_path_read(text: str) -> KeyPath:
    """Read it back."""
    if text.startswith("["):
        return tuple(json.loads(text))
    return ("message", "content", int(text[1:]), "text" if text[0] == "t" else "content")
