"""Put another database in the place of the store's, or remove it, while nobody can write to it.

The old one stays beside under another name. Processes that still have it open notice at their
next transaction (`Store.transaction`), before they write.
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
"""What lies in a state directory beside the database and its older ones."""


@contextmanager
def staging(directory: str) -> Iterator[str]:
    """Give a new state directory inside the one of the store, which is gone afterwards."""
    place = os.path.join(directory, f"new-{secrets.token_hex(8)}")
    os.mkdir(place, 0o700)
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def put_in_place(directory: str, fresh: str, word: str) -> str | None:
    """Let a whole, synced database take the place of the store's; give where the old one stays.

    At every moment one of the two stands there. The caller has the store to itself.
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
    """Give a name that no file has yet."""
    given = (name if number == 1 else f"{name}-{number}" for number in count(1))
    return next(one for one in given if not os.path.lexists(one))


def remove(directory: str) -> list[str]:
    """Remove the store, its older ones, and the directory if nothing else is in it.

    Return what else there was. The caller has the store to itself.
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
    """Keep every other process out of the database; one that is damaged nobody can write to."""
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
