"""The MCP server: one tool, purge_control, on stdin and stdout."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING, Any

from brainsurgeon import __version__
from brainsurgeon.mcp_server.call import (
    ALSO_CALLED,
    ARGUMENTS,
    DESCRIPTION,
    INSTRUCTIONS,
    TITLE,
    TOOL,
)

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from brainsurgeon.config import Settings
    from brainsurgeon.lookup.scope import Scope


def serve(settings: Settings, scope: Scope | None) -> None:
    """Answer calls until stdin ends, one after the other, since each may open the store.

    Without a scope every session is meant.
    """
    gc.disable()  # a sixth of the start: the SDK makes many objects and none of them is garbage
    import anyio  # noqa: PLC0415
    from mcp.server.stdio import stdio_server  # noqa: PLC0415

    server = server_of(settings, scope)
    gc.enable()
    gc.freeze()

    async def talk() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(talk)


def server_of(settings: Settings, scope: Scope | None) -> Server[Any]:
    """Return the server, without a transport."""
    from anyio import CapacityLimiter, to_thread  # noqa: PLC0415
    from mcp import types  # noqa: PLC0415
    from mcp.server.lowlevel import Server  # noqa: PLC0415

    tool = types.Tool(
        name=TOOL, title=TITLE, description=DESCRIPTION, input_schema=ARGUMENTS,
        annotations=types.ToolAnnotations(
            title=TITLE, read_only_hint=False, destructive_hint=False, idempotent_hint=True,
            open_world_hint=False,
        ),
        _meta={"anthropic/alwaysLoad": True},  # Claude Code defers the tools of servers otherwise
    )  # fmt: skip
    one_at_a_time = CapacityLimiter(1)

    async def list_tools(_context: Any, _params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[tool])

    async def call_tool(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        if params.name not in (TOOL, *ALSO_CALLED):
            text, failed = f"there is no tool of that name; there is {TOOL}", True
        else:
            text, failed = await to_thread.run_sync(
                _answer, settings, scope, params.arguments or {}, params.name,
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
    settings: Settings, scope: Scope | None, arguments: dict[str, Any], tool: str
) -> tuple[str, bool]:
    """Answer a call; the first one imports what that needs, so that the server starts sooner."""
    from brainsurgeon.lookup.scope import Scope as Every  # noqa: PLC0415
    from brainsurgeon.mcp_server.answering import answer  # noqa: PLC0415

    return answer(settings, scope or Every(), arguments, time.time, tool)
