"""Logs of agents that are not known: their format is described, their habits are unknown."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.described.format import Described
from brainsurgeon.agents.described.shipped import SHIPPED
from brainsurgeon.agents.openclaw.presence import LockFiles
from brainsurgeon.formats.description import description

GENERIC = "generic"
DESCRIPTIONS = [
    Described(name, description(table), final=name == GENERIC) for name, table in SHIPPED.items()
]
# Its entries show that they are meant for this program, whatever root they are below.
_GENERIC = DESCRIPTIONS[-1]
_GENERIC.by_wish = False
DESCRIBED = Agent(_GENERIC, "an agent", presence=LockFiles())


def described(name: str, table: Mapping[str, Any]) -> Described:
    """Return the format that a configuration describes. Raises ContradictionError."""
    read = description(table)
    version = read.version if "version" in table else crc32(repr(table).encode())
    return Described(name, replace(read, version=version))
