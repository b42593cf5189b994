"""The homes of this user's agents on this machine, and the installed version of pi."""

import os
import shutil
from collections.abc import Collection, Iterable
from functools import lru_cache
from pathlib import PurePath

import orjson

from brainsurgeon.hosts import claude_code, home_paths
from brainsurgeon.model.reports import Home


def homes(named: Collection[str] = ()) -> list[Home]:
    """Return the homes that exist or whose agents are named, as the agents' settings place them."""
    codex = os.path.join(home_paths.codex(), "sessions")
    places = (
        Home("OpenClaw", home_paths.openclaw_agents()),
        Home("Claude Code", os.path.join(home_paths.claude_code(), claude_code.PROJECTS)),
        Home("pi", os.path.join(home_paths.pi(), "sessions")),
        Home("Codex", codex, "its sessions are shown, never changed"),
    )
    return [home for home in places if home.agent in named or os.path.isdir(home.path)]


def uncovered(roots: Iterable[str]) -> list[Home]:
    known = [os.path.realpath(root) for root in roots]
    places = ((home, os.path.realpath(home.path)) for home in homes())
    return [
        home for home, path in places
        if not any(os.path.commonpath([path, root]) in (path, root) for root in known)
    ]  # fmt: skip


# Seen with pi 0.73.1 to 1.5.2: a running pi keeps its session in memory and never reads the file
# again. Its requests, and a fork that it makes, contain the values that were extracted meanwhile.
PACKAGES = ("@earendil-works/pi-coding-agent", "@mariozechner/pi-coding-agent")
# The first version seen to ask for `drop_block` (@earendil-works/pi-ai, anthropic-messages.js).
ASKS_SINCE = (0, 85, 1)


def drops_blocks() -> bool:
    """Check whether the pi in PATH asks for `drop_block` when it sets an effort.

    Returns False if pi or its version cannot be found.
    """
    program = shutil.which("pi")
    return program is not None and _version(os.path.realpath(program)) >= ASKS_SINCE


@lru_cache(maxsize=8)
def _version(program: str) -> tuple[int, ...]:
    """Return the version of pi from the package of a program, or () if there is none."""
    for directory in PurePath(program).parents[:-1]:
        try:
            with open(directory / "package.json", "rb") as handle:
                package = orjson.loads(handle.read())
        except (OSError, orjson.JSONDecodeError):
            continue
        if not isinstance(package, dict) or package.get("name") not in PACKAGES:
            return ()
        version = package.get("version")
        parts = version.split("-")[0].split(".") if isinstance(version, str) else []
        return tuple(int(part) for part in parts) if all(map(str.isdecimal, parts)) else ()
    return ()
