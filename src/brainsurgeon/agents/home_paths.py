"""The directories of this user's agents. A directory need not exist."""

import os


def openclaw_agents() -> str:
    return os.path.join(_home("OPENCLAW_STATE_DIR", "~/.openclaw"), "agents")


def claude_code() -> str:
    return _home("CLAUDE_CONFIG_DIR", "~/.claude")


def codex() -> str:
    return _home("CODEX_HOME", "~/.codex")


def pi() -> str:
    return _home("PI_CODING_AGENT_DIR", "~/.pi/agent")


def _home(variable: str, default: str) -> str:
    path = os.environ.get(variable, "").strip() or default
    return os.path.abspath(os.path.expanduser(path))
