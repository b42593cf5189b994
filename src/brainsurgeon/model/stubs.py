"""The shape of a stub, and how people write paths and ids."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.model.entries import KeyPath

PREFIX, SUFFIX = "[[extracted-", "]]"
ID = "~?[A-Za-z0-9._-]{1,128}(?:~[0-9]{1,9})?"
"""The id in a placeholder; the number behind a tilde tells equal ids of different values apart."""
WHOLE_STUB = re.compile(rf"{re.escape(PREFIX)}({ID}){re.escape(SUFFIX)}")


def stub_named(ident: str) -> str:
    """Give the text of the stub in which this very id stands."""
    return f"{PREFIX}{ident}{SUFFIX}"


def unnumbered(name: str) -> str:
    """Return the entry's id in a placeholder's id: all but a number behind a tilde."""
    at = name.rfind("~")
    return name[:at] if at > 0 else name


def id_named(reference: str) -> str:
    """Give the entry id out of what was typed or pasted: an id, or a whole stub, also in quotes."""
    bare = reference.strip(" \t\r\n`")
    match = WHOLE_STUB.fullmatch(bare.strip("'\""))
    return match[1] if match else bare


def dotted(path: KeyPath) -> str:
    """Write a path as people do: `message.content.0.text`."""
    return ".".join(str(step) for step in path)
