"""Register our tool, skill and plugin in Claude Code. Tried with versions 2.1.112 to 2.1.330."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress

from brainsurgeon.agents.agent import NAME, SKILL, Install
from brainsurgeon.agents.claude_code.home import home_directory
from brainsurgeon.files import configurations
from brainsurgeon.model.reports import CommandStep, State

_PLUGIN = f"{NAME}@{NAME}"  # as `<plugin>@<marketplace>`


class ClaudeInstall(Install):
    title = "Claude Code"
    command = "claude"
    keys = ("mcpServers", NAME)
    adds, removes = ("add", "--scope", "user"), ("remove", "--scope", "user")
    parsed, directory = staticmethod(json.loads), staticmethod(home_directory)
    skill = f"deploy/claude-code/{SKILL}"
    plugin = "deploy/claude-code"
    resume = "claude --continue"

    def configuration(self) -> str:
        home = os.environ.get("CLAUDE_CONFIG_DIR", "").strip() or "~"
        return os.path.join(os.path.abspath(os.path.expanduser(home)), ".claude.json")

    def options(self) -> tuple[str, ...]:
        return ("--agent", ".")  # the project directory in which Claude Code starts the server

    def plugin_steps(self, directory: str) -> Iterator[CommandStep]:
        enabled = False
        settings = os.path.join(home_directory(), "settings.json")
        with suppress(OSError, ValueError, AttributeError):
            table = json.loads(configurations.read(settings))
            enabled = table.get("enabledPlugins", {}).get(_PLUGIN) is True
        state: State = "there" if enabled else "new"
        words = (self.command, "plugin")
        market = (*words, "marketplace")
        added: State = "there" if enabled or not _is_gone(NAME) else "new"
        yield CommandStep("marketplace of Claude Code", (*market, "add", directory),
                          (*market, "remove", NAME), added)  # fmt: skip
        yield CommandStep("plugin of Claude Code", (*words, "install", _PLUGIN),
                          (*words, "uninstall", _PLUGIN), state)  # fmt: skip

    def is_removed(self, undo: list[str]) -> bool:
        return undo[:2] == [self.command, "plugin"] and _is_gone(undo[-1])


def _is_gone(name: str) -> bool:
    """Check that Claude Code does not list `name`: _PLUGIN, or NAME for our marketplace."""
    file = "installed_plugins.json" if name == _PLUGIN else "known_marketplaces.json"
    try:
        listed = configurations.read(os.path.join(home_directory(), "plugins", file))
        return json.dumps(name).encode() not in listed
    except FileNotFoundError:
        return True
    except OSError:
        return False
