"""The homes of this user's agents."""

import os
from collections.abc import Collection, Iterable

from msgspec.structs import replace

from brainsurgeon.hosts import claude_code, home_paths
from brainsurgeon.model.reports import Home


def homes(even_missing: Collection[str] = ()) -> list[Home]:
    codex = os.path.join(home_paths.codex(), "sessions")
    candidates = (
        Home("OpenClaw", home_paths.openclaw_agents()),
        Home("Claude Code", os.path.join(home_paths.claude_code(), claude_code.PROJECTS)),
        Home("pi", os.path.join(home_paths.pi(), "sessions")),
        Home("Codex", codex, "its sessions are shown, never changed"),
    )
    existing = {home.agent for home in candidates if os.path.isdir(home.path)}
    return [
        home if home.agent in existing else replace(home, note="no sessions yet")
        for home in candidates if home.agent in existing or home.agent in even_missing
    ]  # fmt: skip


def uncovered(roots: Iterable[str]) -> list[Home]:
    known = [os.path.realpath(root) for root in roots]
    paths = ((home, os.path.realpath(home.path)) for home in homes())
    return [
        home for home, path in paths
        if not any(os.path.commonpath([path, root]) in (path, root) for root in known)
    ]  # fmt: skip
