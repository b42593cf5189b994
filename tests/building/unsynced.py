"""Files and databases that are never synced.

Only a power cut loses what the kernel has, and `proofs/test_power_loss.py` simulates those. Syncs
take most of the time of a test that makes many small rewrites.
"""

import os
import sqlite3
from functools import cache

SYNCED = {(os, "fsync"): os.fsync, (sqlite3, "connect"): sqlite3.connect}


class Unsynced(sqlite3.Connection):
    """A connection that ignores requests to sync."""

    def execute(self, sql, *arguments):
        if sql.startswith("PRAGMA synchronous ="):
            sql = "PRAGMA synchronous = OFF"
        return super().execute(sql, *arguments)


@cache
def _unsynced(factory):
    return type(factory.__name__, (Unsynced, factory), {})


def _connect(*arguments, factory=sqlite3.Connection, **keywords):
    connect = SYNCED[sqlite3, "connect"]
    return connect(*arguments, factory=_unsynced(factory), **keywords)


def install():
    """Stop this process from syncing; fsync still needs an open descriptor."""
    os.fsync = lambda descriptor: os.fstat(descriptor) and None
    sqlite3.connect = _connect
