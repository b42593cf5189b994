"""Write a file for others to read: whole or not at all, and never through a link."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress

from brainsurgeon.errors import UsageError

PRIVATE = 0o600
READABLE = 0o644
"""For figures: whoever gathers them runs as another user, and there are no names in them."""


def write_whole(path: str, text: str, mode: int) -> None:
    """Put a text into a file of this mode, in the place of one that is there.

    Raise UsageError where that cannot be done. Nothing is synced: it can be written again.
    """
    fresh = f"{path}.{secrets.token_hex(6)}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(fresh, flags, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, mode)  # whatever the umask says
                file.write(text)
            os.rename(fresh, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(fresh)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; name another file") from None
