"""The homes of agents that this user has on this machine, whether or not they are asked for."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    """Give the home of Codex of this user, existing or not."""
    return _placed("CODEX_HOME", "~/.codex")


def _placed(variable: str, usual: str) -> str:
    named = os.environ.get(variable, "").strip() or usual
    return os.path.abspath(os.path.expanduser(named))


def _meet(one: str, other: str) -> bool:
    return os.path.commonpath([one, other]) in (one, other)
