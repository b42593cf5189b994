"""Read configuration files, ours and those of agents."""

import errno
import os
import stat
from contextlib import suppress

MEGABYTE = 1_000_000  # bytes
LARGEST = 16 * MEGABYTE  # bytes of an agent's file; Claude Code's grows with every project


def forbidding(path: str) -> str:
    """Return what this user may not read: the file, or a directory above it."""
    above = path
    while (above := os.path.dirname(above)) != "/":
        with suppress(OSError):
            os.stat(above)  # this needs no permission of `above` itself
            name = path if os.access(above, os.X_OK, effective_ids=True) else above
            return f"this user may not {'read' if name == path else 'enter'} {name}"
    return f"this user may not read {path}"


def read(path: str, largest: int = LARGEST) -> bytes:
    """Return a file's content. Raises OSError if it is too large, a device or a pipe.

    `/dev/null` is an empty configuration.
    """
    kind = os.stat(path).st_mode  # before it is opened: opening some devices does something
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind) or os.path.samefile(path, os.devnull)):
        raise OSError(errno.EINVAL, "not a regular file")
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise OSError(errno.EFBIG, f"larger than {largest // MEGABYTE} MB")
    return content
