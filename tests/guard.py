"""An audit hook that keeps tests out of the real home directory."""

import os
import sys
import tempfile

from building import machine
from building.world import TOP

FORBIDDEN = tuple(
    os.path.join(home, place)
    for home in machine.real_homes()
    for place in (
        ".openclaw", ".clawdbot", ".pi", ".claude", ".codex", ".copilot", ".gemini",
        ".local/share/opencode", ".local/share/kilo",
        ".local/state/brainsurgeon", ".config/brainsurgeon",
    )
)  # fmt: skip
# An agent may keep checkouts and temporary files in its own home.
ALLOWED = tuple(
    f"{place}/" for place in (str(TOP), sys.prefix, sys.base_prefix, tempfile.gettempdir())
    if place.startswith(FORBIDDEN)
)  # fmt: skip


class TouchedTheRealHomeError(AssertionError):
    """A test accessed the real home directory instead of its own."""


def guard(event, arguments):
    """Refuse to open or list files of agents or of the program in the real home."""
    if event in ("open", "os.mkdir", "os.listdir", "os.scandir") and arguments:
        path = arguments[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and path.startswith(FORBIDDEN) and not path.startswith(ALLOWED):
            raise TouchedTheRealHomeError(path)
