"""How each agent is told of our server and taught to use it, by commands and places of its own.

Seen with openclaw 2026.9.6, Claude Code 2.1.330 and Codex 0.169.0. What an agent noted is only
read, to tell what is there already; the change is its own command's.
"""

from __future__ import annotations

import json
import os
import tomllib
from typing import TYPE_CHECKING, Any

from brainsurgeon.hosts import openclaw_database
from brainsurgeon.hosts.home_paths import claude_code, openclaw_agents
from brainsurgeon.hosts.homes import codex_home

if TYPE_CHECKING:
    from collections.abc import Sequence

# The agents that can be given the tool; each is the name of its command.
AGENTS = ("openclaw", "claude", "codex")
TITLES = {"openclaw": "OpenClaw", "claude": "Claude Code", "codex": "Codex"}
NAME = "brainsurgeon"
_SKILL = "skills/brainsurgeon/SKILL.md"
_FOR_CLAUDE = "deploy/claude-code/" + _SKILL
# Where the skills lie in a clone; Codex gives the tool the name that Claude Code gives it.
_SKILLS = {
    "openclaw": "deploy/openclaw/" + _SKILL, "claude": _FOR_CLAUDE, "codex": _FOR_CLAUDE,
}  # fmt: skip


def words(agent: str) -> tuple[str, ...]:
    """Return the words after `mcp` that bind a server to what this agent may see."""
    if agent == "claude":
        return ("--agent", ".")  # the project of the directory that it is started in
    if agent == "openclaw" and (first := next(iter(openclaw_names()), None)):
        return ("--agent", first)
    return ()


def openclaw_names() -> list[str]:
    """Name OpenClaw's agents, the one that it has from the start first."""
    try:
        names = [item.name for item in os.scandir(openclaw_agents()) if item.is_dir()]
    except OSError:
        return []
    return sorted(names, key=lambda name: (name != "main", name))


def adding(agent: str, server: Sequence[str]) -> tuple[str, ...]:
    """Return the agent's own command that adds our server, for all that its user does."""
    if agent == "openclaw":
        described = json.dumps({"command": server[0], "args": list(server[1:])})
        return (agent, "mcp", "set", NAME, described)
    scope = ("--scope", "user") if agent == "claude" else ()
    return (agent, "mcp", "add", *scope, NAME, "--", *server)


def removing(agent: str) -> tuple[str, ...]:
    """Return the agent's own command that takes our server away again."""
    if agent == "openclaw":
        return (agent, "mcp", "unset", NAME)
    scope = ("--scope", "user") if agent == "claude" else ()
    return (agent, "mcp", "remove", *scope, NAME)


def noted(agent: str) -> list[str] | None:
    """Return how an agent would start the server of our name now; None where it knows none.

    What cannot be read is an empty list: something is there, and it is not what we would write.
    """
    path = _configuration(agent)
    try:
        with open(path, encoding="utf-8") as handle:
            text = handle.read()
        table: Any = tomllib.loads(text) if agent == "codex" else openclaw_database.loads(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return []
    for step in _STEPS[agent]:
        table = table.get(step) if isinstance(table, dict) else None
    if table is None:
        return None
    try:
        return [str(table["command"]), *map(str, table.get("args") or ())]
    except (TypeError, KeyError, AttributeError):
        return []


def skill(agent: str) -> tuple[str, str] | None:
    """Return where the text of an agent's skill lies in a clone.

    Where the agent looks for it.
    """
    if agent not in _SKILLS:
        return None
    if agent == "codex":
        home = codex_home()
    else:
        home = os.path.dirname(openclaw_agents()) if agent == "openclaw" else claude_code()
    return _SKILLS[agent], os.path.join(home, _SKILL)


# Where in its configuration an agent notes a server.
_STEPS = {
    "openclaw": ("mcp", "servers", NAME),
    "claude": ("mcpServers", NAME),
    "codex": ("mcp_servers", NAME),
}


def _configuration(agent: str) -> str:
    if agent == "openclaw":
        return openclaw_database.path(os.path.dirname(openclaw_agents()))
    if agent == "codex":
        return os.path.join(codex_home(), "config.toml")
    home = os.environ.get("CLAUDE_CONFIG_DIR", "").strip() or "~"
    return os.path.join(os.path.abspath(os.path.expanduser(home)), ".claude.json")
