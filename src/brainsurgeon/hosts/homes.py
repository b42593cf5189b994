"""The homes of agents that this user has on this machine, whether or not they are asked for."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import orjson

from brainsurgeon.hosts import claude_code, openclaw

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Home:
    """Where an agent keeps the sessions of this user, and what there is to know about them."""

    agent: str
    path: str
    note: str = ""


def homes() -> list[Home]:
    """List the homes that exist, as the agents' own settings place them."""
    pi = _placed("PI_CODING_AGENT_DIR", "~/.pi/agent")
    places = (
        Home("OpenClaw", openclaw.agents_directory()),
        Home("Claude Code", os.path.join(claude_code.home(), claude_code.PROJECTS)),
        Home("pi", os.path.join(pi, "sessions")),
        Home(
            "Codex", os.path.join(codex_home(), "sessions"), "its sessions are shown, never changed"
        ),
    )
    return [one for one in places if os.path.isdir(one.path)]


def uncovered(roots: Iterable[str]) -> list[Home]:
    """List the homes that no root covers, be it whole or in part."""
    known = [os.path.realpath(root) for root in roots]
    return [one for one in homes() if not any(_meet(os.path.realpath(one.path), root)
                                              for root in known)]  # fmt: skip


def codex_home() -> str:
    """Return the home of Codex of this user, existing or not."""
    return _placed("CODEX_HOME", "~/.codex")


def _placed(variable: str, usual: str) -> str:
    named = os.environ.get(variable, "").strip() or usual
    return os.path.abspath(os.path.expanduser(named))


def _meet(one: str, other: str) -> bool:
    return os.path.commonpath([one, other]) in (one, other)


# Seen with versions 0.73.1 to 1.5.2. A running pi keeps its session in memory and never reads the
# file again: its requests, and a fork that it makes, carry the values that were cut meanwhile.


PACKAGES = ("@earendil-works/pi-coding-agent", "@mariozechner/pi-coding-agent")
# The first version seen to ask for `drop_block` (@earendil-works/pi-ai, anthropic-messages.js).
ASKS_SINCE = (0, 85, 1)


def drops_blocks() -> bool:
    """Check whether the pi that is found by its name asks for `drop_block` where it manages effort.

    What cannot be found or read does not count as asking.
    """
    found = shutil.which("pi")
    return found is not None and _version(os.path.realpath(found)) >= ASKS_SINCE


@lru_cache(maxsize=8)
def _version(program: str) -> tuple[int, ...]:
    """Return the version of the package that a program belongs to.

    Nothing where it is none of pi.
    """
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
