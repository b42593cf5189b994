"""Where agents keep what is theirs, by this user's environment; the directories need not exist."""

from __future__ import annotations

import os


def openclaw_agents() -> str:
    """Return where OpenClaw keeps the agents of this user."""
    home = os.environ.get("OPENCLAW_STATE_DIR", "").strip() or "~/.openclaw"
    return os.path.join(os.path.abspath(os.path.expanduser(home)), "agents")


def claude_code() -> str:
    """Return the home of Claude Code of this user."""
    named = os.environ.get("CLAUDE_CONFIG_DIR", "").strip() or "~/.claude"
    return os.path.abspath(os.path.expanduser(named))
