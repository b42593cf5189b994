"""Commands and paths to install our MCP server, plugin and skill in the agents.

Seen with openclaw 2026.9.6, Claude Code 2.1.330 and Codex 0.169.0. The agents'
configurations are only read here: their own commands change them.
"""

import json
import os
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from brainsurgeon.agents import home_paths
from brainsurgeon.agents.openclaw import database as openclaw_database
from brainsurgeon.files import configurations
from brainsurgeon.model.reports import CommandStep, State

TITLES = {"openclaw": "OpenClaw", "claude": "Claude Code", "codex": "Codex"}  # by command
NAME = "brainsurgeon"
PLUGIN = f"{NAME}@{NAME}"  # for Claude Code, as `<plugin>@<marketplace>`
_SKILL = "skills/brainsurgeon/SKILL.md"
_KEYS = {  # the path of our server in an agent's configuration
    "openclaw": ("mcp", "servers", NAME),
    "claude": ("mcpServers", NAME),
    "codex": ("mcp_servers", NAME),
}


def server_options(agent: str) -> tuple[str, ...]:
    """Return options that limit `brainsurgeon mcp` to sessions of an agent, if possible."""
    if agent == "claude":
        return ("--agent", ".")  # the project directory in which Claude Code starts it
    if agent == "openclaw" and (names := openclaw_names()):
        return ("--agent", names[0])
    return ()


def openclaw_names() -> list[str]:
    try:
        names = [item.name for item in os.scandir(home_paths.openclaw_agents()) if item.is_dir()]
    except OSError:
        return []
    return sorted(names, key=lambda name: (name != "main", name))


def add_command(agent: str, server: Sequence[str]) -> tuple[str, ...]:
    if agent == "openclaw":
        entry = json.dumps({"command": server[0], "args": list(server[1:])})
        return (agent, "mcp", "set", NAME, entry)
    scope = ("--scope", "user") if agent == "claude" else ()
    return (agent, "mcp", "add", *scope, NAME, "--", *server)


def remove_command(agent: str) -> tuple[str, ...]:
    action = {"openclaw": ("unset",), "claude": ("remove", "--scope", "user")}
    return (agent, "mcp", *action.get(agent, ("remove",)), NAME)


def configured(agent: str) -> list[str] | None:
    """Return our server's configured command line; None if not configured, [] if unreadable."""
    try:
        text = configurations.read(_configuration(agent)).decode()
        table: Any = tomllib.loads(text) if agent == "codex" else openclaw_database.loads(text)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError):
        return []
    for key in _KEYS[agent]:
        table = table.get(key) if isinstance(table, dict) else None
    if table is None:
        return None
    try:
        return [str(table["command"]), *map(str, table.get("args") or ())]
    except (TypeError, KeyError, AttributeError):
        return []


def plugin_steps(directory: str) -> Iterator[CommandStep]:
    """Yield steps that install our plugin. `directory` is a marketplace with only this plugin."""
    # Tried with Claude Code 2.1.112 to 2.1.330.
    enabled = False
    settings = os.path.join(home_paths.claude_code(), "settings.json")
    with suppress(OSError, ValueError, AttributeError):
        table = json.loads(configurations.read(settings))
        enabled = table.get("enabledPlugins", {}).get(PLUGIN) is True
    state: State = "there" if enabled else "new"
    words = ("claude", "plugin")
    market = (*words, "marketplace")
    added: State = "there" if enabled or not plugin_is_gone(NAME) else "new"
    yield CommandStep("marketplace of Claude Code", (*market, "add", directory),
                      (*market, "remove", NAME), added)  # fmt: skip
    yield CommandStep("plugin of Claude Code", (*words, "install", PLUGIN),
                      (*words, "uninstall", PLUGIN), state)  # fmt: skip


def plugin_is_gone(name: str) -> bool:
    """Check that Claude Code does not list `name`: PLUGIN, or NAME for our marketplace."""
    file = "installed_plugins.json" if name == PLUGIN else "known_marketplaces.json"
    try:
        listed = configurations.read(os.path.join(home_paths.claude_code(), "plugins", file))
        return json.dumps(name).encode() not in listed
    except FileNotFoundError:
        return True
    except OSError:
        return False


def skill(agent: str) -> tuple[str, str]:
    """Return the path of an agent's skill in a clone, and the path at which the agent reads it."""
    if agent == "openclaw":
        home = os.path.dirname(home_paths.openclaw_agents())
        return f"deploy/openclaw/{_SKILL}", os.path.join(home, _SKILL)
    # Codex and Claude Code share a skill: in both, our tool has the name that the skill mentions.
    home = home_paths.codex() if agent == "codex" else home_paths.claude_code()
    return f"deploy/claude-code/{_SKILL}", os.path.join(home, _SKILL)


def _configuration(agent: str) -> str:
    if agent == "openclaw":
        return openclaw_database.config_path(os.path.dirname(home_paths.openclaw_agents()))
    if agent == "codex":
        return os.path.join(home_paths.codex(), "config.toml")
    home = os.environ.get("CLAUDE_CONFIG_DIR", "").strip() or "~"
    return os.path.join(os.path.abspath(os.path.expanduser(home)), ".claude.json")
