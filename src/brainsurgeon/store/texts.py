"""Names that are not always text, made fit for a column of text."""

from __future__ import annotations

import os


def path_text(name: str) -> str:
    """Write the name of a file or directory as text, whatever bytes it is made of."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def storable(text: str) -> str:
    """Write a text that an agent chose, with a question mark for half a character."""
    return text.encode("utf-8", "replace").decode()
