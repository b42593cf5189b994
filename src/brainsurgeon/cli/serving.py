"""The server for agents, as the command line starts it: with nothing imported that it can spare."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING

from brainsurgeon.cli import streams
from brainsurgeon.errors import UsageError

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.scope import Scope


def serve_agent(agent: str | None, session: str | None, config: str | None) -> None:
    """Serve the tool on stdin and stdout until stdin ends."""
    from importlib.util import find_spec

    from brainsurgeon.config import load

    settings, warnings = load(config)
    for warning in warnings:
        _say(warning)
    if find_spec("mcp") is None:
        raise UsageError("the MCP server needs its extra: pip install 'brainsurgeon[mcp]'")
    scope = _scope(settings, agent, session)
    from brainsurgeon.mcp_server import serve

    streams.plain()
    serve(settings, scope)


def _scope(settings: Settings, agent: str | None, session: str | None) -> Scope | None:
    """Bind names to what they mean now; None where every session is meant."""
    from brainsurgeon.store import open_to_read

    with open_to_read(settings.state_dir) or nullcontext() as store:
        if agent is None and session is None:
            return None
        from brainsurgeon.lookup.scope import Scope, bound

        scope, warning = bound(settings, store, Scope(agent, session))
    if warning:
        _say(f"{warning}; the server waits for it")
    return scope


def _say(warning: str) -> None:
    from brainsurgeon.model.texts import readable

    print(f"brainsurgeon: {readable(warning)}", file=sys.stderr)
