"""pi's world on a machine: which of its habits matter to whoever changes its sessions.

Seen with versions 0.73.1 to 1.5.2. A running pi keeps its session in memory and never reads the
file again: its requests, and a fork that it makes, carry the values that were cut meanwhile.
"""

from __future__ import annotations

import os
import shutil
from functools import lru_cache

import orjson

PACKAGES = ("@earendil-works/pi-coding-agent", "@mariozechner/pi-coding-agent")
ASKS_SINCE = (0, 85, 1)
"""The first version seen to ask for `drop_block` (@earendil-works/pi-ai, anthropic-messages.js)."""


def drops_blocks() -> bool:
    """Tell whether the pi that is found by its name asks for `drop_block` where it manages effort.

    What cannot be found or read does not count as asking.
    """
    found = shutil.which("pi")
    return found is not None and _version(os.path.realpath(found)) >= ASKS_SINCE


@lru_cache(maxsize=8)
def _version(program: str) -> tuple[int, ...]:
    """Give the version of the package that a program belongs to; nothing where it is none of pi."""
    directory = os.path.dirname(program)
    while directory != os.path.dirname(directory):
        try:
            with open(os.path.join(directory, "package.json"), "rb") as handle:
                said = orjson.loads(handle.read())
        except (OSError, orjson.JSONDecodeError):
            directory = os.path.dirname(directory)
            continue
        named = isinstance(said, dict) and said.get("name") in PACKAGES
        return _numbers(said.get("version")) if named else ()
    return ()


def _numbers(version: object) -> tuple[int, ...]:
    parts = version.split("-")[0].split(".") if isinstance(version, str) else []
    return tuple(int(part) for part in parts) if all(map(str.isdecimal, parts)) else ()
