"""Logs of agents that are not known: their format is described, their habits are unknown."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

from brainsurgeon.agents.agent import Agent
from brainsurgeon.agents.described.format import Described
from brainsurgeon.agents.described.shipped import SHIPPED
from brainsurgeon.agents.openclaw.presence import LockFiles
from brainsurgeon.formats.description import description

GENERIC = "generic"
_VERSION = 4  # increase it whenever a description means something else for the same bytes
SHIPPED_FORMATS = [
    Described(name, description(table), 10 if name == GENERIC else _VERSION, final=name == GENERIC)
    for name, table in SHIPPED.items()
]
# Its entries show that they are meant for this program, whatever root they are below.
_GENERIC = SHIPPED_FORMATS[-1]
_GENERIC.by_wish = False
DESCRIBED_AGENT = Agent(_GENERIC, "an agent", presence=LockFiles())


def described_format(name: str, table: Mapping[str, Any]) -> Described:
    """Return the format that a configuration describes. Raises ContradictionError."""
    return Described(name, description(table), crc32(repr((_VERSION, table)).encode()))
