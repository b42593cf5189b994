"""Names that are not always text, made fit for a column of text."""

from __future__ import annotations

import json
import os

from brainsurgeon.model.sessions import Identity


def path_text(name: str) -> str:
    """Write the name of a file or directory as text, whatever bytes it is made of."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def storable(text: str) -> str:
    """Write a text that an agent chose, with a question mark for half a character."""
    return text.encode("utf-8", "replace").decode()


def identity_text(identity: Identity | None) -> str | None:
    """Write which conversation a session is."""
    if identity is None:
        return None
    return json.dumps([storable(identity.name), storable(identity.since)])


def identity_read(text: str | None) -> Identity | None:
    """Read it back."""
    return None if text is None else Identity(*json.loads(text))
