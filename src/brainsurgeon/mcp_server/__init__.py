"""The MCP server: one tool, purge_control, on stdin and stdout."""

from __future__ import annotations

import gc
import os
import threading
import time
from typing import TYPE_CHECKING, Any

from brainsurgeon import __version__, interruption
from brainsurgeon.mcp_server.call import ALSO_CALLED, schema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.lowlevel import Server

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.scope import Scope


_answering = threading.Lock()
TOOL = "purge_control"
TITLE = "Values that were extracted from agent sessions"
INSTRUCTIONS = f"""\
brainsurgeon keeps the session files of agents small. A placeholder [[extracted-<id>]] replaces \
a large old value, which is stored. The tool {TOOL} returns the value. Show before you restore. \
Pin (set_extractable false) what you need for long. Never write a placeholder yourself."""

DESCRIPTION = """\
Read and control values that were extracted from agent sessions. A placeholder [[extracted-<id>]] \
replaces a large old value, which is stored.
- show: get the value now. Prefer it: nothing changes.
- restore: get the value now. Once your turn is over, it is also restored in its session, and kept \
there for a while.
- set_extractable: false pins an entry. true has the next scan extract it. A number N pins it \
while it is among the newest N messages.
- get_context: list what is extracted in a session, and what will be extracted next.
- done: finish the task of this turn with a note. Once you are idle, the note replaces the turn. \
The text of an archived turn begins with [archived turn] and an id. To get the turn, show this id.
- search: find a text in the session and in extracted values.
- evidence: the calls of your session, or of a sub-agent's, and their results within a budget, \
failed ones first.
Name an entry by its id or by the whole placeholder. Never write a placeholder yourself."""


def serve(settings: Settings, scope: Scope | None) -> None:
    """Serve calls one by one until stdin ends. Without a scope, callers may see all sessions."""
    gc.disable()  # the server starts a sixth faster: the SDK creates many objects, but no garbage
    import anyio  # noqa: PLC0415
    from mcp.server.stdio import stdio_server  # noqa: PLC0415

    server = server_of(settings, scope)
    gc.enable()
    gc.freeze()

    async def talk() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    try:
        anyio.run(talk)
    except (KeyboardInterrupt, SystemExit):
        with _answering:  # a running call stops soon, since it checks for signals
            os._exit(interruption.exit_code())  # else Python waits for the thread that reads stdin


def server_of(settings: Settings, scope: Scope | None) -> Server[Any]:
    from anyio import CapacityLimiter, to_thread  # noqa: PLC0415
    from mcp import types  # noqa: PLC0415
    from mcp.server.lowlevel import Server  # noqa: PLC0415

    tool = types.Tool(
        name=TOOL, title=TITLE, description=DESCRIPTION, input_schema=schema(),
        annotations=types.ToolAnnotations(
            title=TITLE, read_only_hint=False, destructive_hint=False, idempotent_hint=True,
            open_world_hint=False,
        ),
        _meta={"anthropic/alwaysLoad": True},  # by default, Claude Code loads tools only on demand
    )  # fmt: skip
    one_at_a_time = CapacityLimiter(1)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        text, failed = await to_thread.run_sync(
            _answer, settings, scope, params.arguments or {}, params.name, params.meta or {},
            limiter=one_at_a_time,
        )  # fmt: skip
        return types.CallToolResult(
            content=[types.TextContent(type="text", text=text)], is_error=failed
        )

    return Server(
        "brainsurgeon", version=__version__, title=TITLE, instructions=INSTRUCTIONS,
        on_list_tools=list_tools, on_call_tool=call_tool,
    )  # fmt: skip


def _answer(
    settings: Settings, scope: Scope | None, arguments: dict[str, Any], tool: str,
    meta: Mapping[str, Any],
) -> tuple[str, bool]:  # fmt: skip
    """Return the answer to a call, and whether it failed. Late imports make the start faster.

    `meta` is what the agent says about the call.
    """
    from brainsurgeon.lookup.scope import Scope  # noqa: PLC0415
    from brainsurgeon.mcp_server.answering import answer  # noqa: PLC0415

    if tool in ALSO_CALLED:
        arguments = {**arguments, "action": "restore"}
    elif tool != TOOL:
        return f"there is no tool of that name; there is {TOOL}", True
    with _answering:
        return answer(settings, scope or Scope(), arguments, time.time, meta)
