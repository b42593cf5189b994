"""Temporary files of ours: how they are called, and one to try a lease on."""

from __future__ import annotations

import os
import re
import secrets

from brainsurgeon.sessions import leases

TEMPORARY = re.compile(r"\.brainsurgeon-[0-9a-f]{16}\.tmp")
"""The names of our own temporary files: no agent takes them for a session."""


def new_temporary_name() -> str:
    """Make up the name of a temporary file."""
    return f".brainsurgeon-{secrets.token_hex(8)}.tmp"


def leases_work(directory: str) -> bool:
    """Tell whether leases are granted in a directory, by one on a temporary file."""
    path = os.path.join(directory, new_temporary_name())
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        return leases.take(descriptor)
    except leases.LeaseUnsupportedError:
        return False
    finally:
        os.close(descriptor)
        os.unlink(path)
