"""Replace or remove the store's database while no other process can write to it.

The old database is kept beside it under another name. A process that still has it open notices at
its next transaction (`Store.transaction`), before it writes.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
from contextlib import contextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.store.opening import connect, database_path, explain, sync_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

JOURNAL = "-journal"
OWN = ("locks", "daemon.lock", "last_pass", "report.html")
"""Files of ours in a state directory besides the database and its predecessors."""


@contextmanager
def staging(directory: str) -> Iterator[str]:
    """Create a temporary state directory inside that of the store; it is deleted afterwards."""
    place = os.path.join(directory, f"new-{secrets.token_hex(8)}")
    os.mkdir(place, 0o700)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def put_in_place(directory: str, fresh: str, word: str) -> str | None:
    """Replace the store's database by a whole, synced one; return where the old one is kept.

    At every moment one of the two has the name. The caller has exclusive access to the store.
    """
    path = database_path(directory)
    kept = _free_name(f"{path}.{word}") if os.path.lexists(path) else None
    with _nobody_writing(directory):
        if kept:
            os.link(path, kept)
            if os.path.lexists(path + JOURNAL):  # of a database that cannot even be rolled back
                os.rename(path + JOURNAL, kept + JOURNAL)
        os.rename(fresh, path)
        sync_directory(directory)
    return kept


def _free_name(name: str) -> str:
    """Return the name, or the first of name-2, name-3, ... that no file has."""
    given = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(one for one in given if not os.path.lexists(one))


def remove(directory: str) -> list[str]:
    """Remove the store, its predecessors, and the directory if nothing else is in it.

    Return the names of other files. The caller has exclusive access to the store.
    """
    path = database_path(directory)
    name = os.path.basename(path)
    with _nobody_writing(directory):
        for one in sorted(os.listdir(directory)):
            if one == name or one.startswith((name + ".", name + "-")) or one in OWN:
                os.unlink(os.path.join(directory, one))
    left = sorted(os.listdir(directory))
    if not left:
        with suppress(OSError):
            os.rmdir(directory)
    return left


@contextmanager
def _nobody_writing(directory: str) -> Iterator[None]:
    """Keep other processes from writing to the database; to a damaged one they cannot write."""
    path = database_path(directory)
    held: sqlite3.Connection | None = None
    try:
        if os.path.exists(path):
            held = connect(path, "rw")
            held.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        raise explain(error, directory) from error
    except sqlite3.DatabaseError:
        if held:
            held.close()
        held = None
    try:
        yield
    except OSError as error:
        raise StoreUnusableError(
            f"{directory} cannot be changed: {error.strerror}; the store is as it was"
        ) from error
    finally:
        if held:
            held.close()
