"""What the rows of a session say, as digests: by them an interrupted change is known."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import databases, openclaw_events, openclaw_schema, openclaw_state
from brainsurgeon.sessions.row_lines import digest, readable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

Digests = dict[int, str]
"""The number of an event to the digest (as hexadecimal text) of its text."""


def digests(database: sqlite3.Connection, session: str, seqs: Iterable[int]) -> Digests:
    """Return what these rows say now; those that are gone are left out."""
    schema = openclaw_schema.examine(database)
    said: Digests = {}
    for seq in seqs:
        for _, payload in openclaw_events.payloads(database, schema, session, seq, seq):
            try:
                said[seq] = digest(payload.event()).hex()
            except openclaw_events.UnreadableEventError:
                said[seq] = ""
    return said


def digests_at(root: str, path: str, session: str, seqs: Iterable[int]) -> Digests:
    """Return what these rows of the database at `path` say now; raise OSError where it hides.

    `root` is the directory of agents that it lies below.
    """
    presence = openclaw_state.presence(os.path.dirname(root), path)
    try:
        with readable(), databases.reading(path, owned=not presence.nobody) as database:
            return digests(database, session, seqs)
    except BusyError as error:
        raise OSError(errno.EBUSY, "its agent is using it") from error
