"""Which agents' homes on this machine the configuration leaves out, and how to add them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from brainsurgeon.hosts import openclaw
from brainsurgeon.hosts.homes import uncovered
from brainsurgeon.model.reports import UnusedHome

if TYPE_CHECKING:
    from brainsurgeon.config import Settings


def unused_homes(settings: Settings) -> list[UnusedHome]:
    """Name the homes that no root covers; nothing is read there without being asked for.

    The first root that is configured replaces OpenClaw's directory, which is walked by default,
    so that the lines name that again, too.
    """
    usual = [] if settings.roots else [openclaw.agents_directory()]
    kept = [path for path in usual if openclaw.has_agents()]
    roots = [root.path for root in settings.root_directories()]
    return [
        UnusedHome(one.agent, one.path, one.note, "\n".join(map(_lines, (*kept, one.path))))
        for one in uncovered(roots)
    ]


def _lines(path: str) -> str:
    return f"[[roots]]\npath = {json.dumps(path)}"
