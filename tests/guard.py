"""An audit hook that keeps tests out of the real home directory."""

import os
import pwd

_REAL_HOME = pwd.getpwuid(os.getuid()).pw_dir
FORBIDDEN = tuple(
    os.path.join(_REAL_HOME, place)
    for place in (
        ".openclaw", ".clawdbot", ".pi", ".claude", ".codex",
        ".local/state/brainsurgeon", ".config/brainsurgeon",
    )
)  # fmt: skip


class TouchedTheRealHomeError(AssertionError):
    """A test accessed the real home directory instead of its own."""


def guard(event, arguments):
    """Refuse to open or list files of agents or of the program in the real home."""
    if event in ("open", "os.mkdir", "os.listdir", "os.scandir") and arguments:
        path = arguments[0]
        if isinstance(path, bytes):
            path = os.fsdecode(path)
        if isinstance(path, str) and path.startswith(FORBIDDEN):
            raise TouchedTheRealHomeError(path)
