"""Whether there is a place for a store: rights and room, told without writing anything."""

from __future__ import annotations

import os

SCARCE = 64 << 20
"""Bytes of free disk below which a rewrite may soon find no room."""
NONE_LEFT = 1 << 20
"""Bytes of free disk below which nothing can be stored."""


def why_not_writable(directory: str) -> str | None:
    """Say why a state directory can neither be made nor written by this user, or None."""
    above = directory
    while not os.path.lexists(above) and above != os.path.dirname(above):
        above = os.path.dirname(above)
    if _may(above, os.W_OK | os.X_OK):
        return None
    if above == directory:
        return f"{directory} cannot be written by this user"
    return f"{directory} cannot be made: {above} cannot be written by this user"


def why_not_opened(database: str) -> str | None:
    """Say that this user has no right to open a database that is there, or None."""
    if os.path.lexists(database) and not _may(database, os.R_OK | os.W_OK):
        return "this user may not open it (Permission denied)"
    return None


def free(place: str) -> int | None:
    """Give the free bytes of the disk that a place lies on or would lie on; None where unknown."""
    while not os.path.lexists(place) and place != os.path.dirname(place):
        place = os.path.dirname(place)
    try:
        seen = os.statvfs(place)
    except OSError:
        return None
    return 0 if seen.f_files and not seen.f_favail else seen.f_bavail * seen.f_frsize


def _may(path: str, how: int) -> bool:
    effective = os.access in os.supports_effective_ids
    return os.access(path, how, effective_ids=effective)
