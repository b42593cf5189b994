"""Back up the store, replace it by a backup, compact it, remove it."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from brainsurgeon.errors import StoreUnusableError, UsageError
from brainsurgeon.operations.stubs_left import StubsLeft, stubs_left, stubs_put_away
from brainsurgeon.store import copies, open_store, open_to_read, replacing
from brainsurgeon.store.alone import hold_sessions, hold_store
from brainsurgeon.store.opening import database_path, make_directory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import StoreCopy


@dataclass(frozen=True, slots=True)
class Replacement:
    """A backup that replaces the store, or is about to.

    `newer` are the sessions with placeholders that it has no record of: they are newer than the
    backup. `kept` is where the previous store is kept.
    """

    source: str
    size: int
    values: int
    newer: tuple[StubsLeft, ...]
    kept: str | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    """The size of the store's database before and after, in bytes."""

    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Purge:
    """The outcome of removing the store.

    `stubs` are the placeholders that prevented it, `left` the files of others in its directory.
    """

    directory: str
    stubs: tuple[StubsLeft, ...]
    removed: bool = False
    left: tuple[str, ...] = ()


def back_up(settings: Settings, target: str, *, force: bool = False) -> StoreCopy:
    """Copy the store to a file and check the copy."""
    return copies.write_copy(settings.state_dir, os.path.abspath(target), force=force)


@contextmanager
def replacing_store(settings: Settings, source: str) -> Iterator[PendingReplacement]:
    """Check a backup and compare it with the sessions; the caller decides whether to use it."""
    directory = settings.state_dir
    make_directory(directory)
    with ExitStack() as held:
        held.enter_context(hold_store(directory))
        place = held.enter_context(replacing.staging(directory))
        path = database_path(place)
        values = copies.take_copy(os.path.abspath(source), path)
        newer = tuple(_newer(settings, place))
        yield PendingReplacement(
            directory, path, Replacement(source, os.stat(path).st_size, values, newer)
        )


@dataclass(frozen=True, slots=True)
class PendingReplacement:
    """A backup that was checked and found intact."""

    directory: str
    path: str
    found: Replacement

    def carry_out(self, now: float) -> Replacement:
        """Replace the store by the backup."""
        kept = replacing.put_in_place(self.directory, self.path, f"replaced-{stamp(now)}")
        return replace(self.found, kept=kept)


def _newer(settings: Settings, place: str) -> Iterator[StubsLeft]:
    """Yield the sessions with placeholders that the store in a directory has no record of."""
    with ExitStack() as held:
        opened = open_to_read(place)
        store = held.enter_context(opened) if opened else None
        for one in stubs_left(settings, store):
            if one.orphans or not one.sure:
                yield one


def compact(settings: Settings) -> Compaction:
    """Rewrite the database without its free pages; raise StoreFullError if the disk is too full."""
    _refuse_none(settings)
    with open_store(settings.state_dir) as store, hold_sessions(settings.state_dir):
        before = store.size
        copies.refuse_without_room(settings.state_dir, 2 * before)
        store.compact()
        return Compaction(before, store.size)


def _refuse_none(settings: Settings) -> None:
    if not os.path.lexists(database_path(settings.state_dir)):
        raise UsageError(f"{settings.state_dir}: there is no store")


def purge(settings: Settings, *, even_so: bool = False) -> Purge:
    """Remove the store; while placeholders of it stand anywhere only with `even_so`."""
    _refuse_none(settings)
    directory = settings.state_dir
    with hold_store(directory):
        stubs = () if even_so else tuple(_in_the_way(settings))
        if stubs:
            return Purge(directory, stubs)
        return Purge(directory, (), removed=True, left=tuple(replacing.remove(directory)))


def _in_the_way(settings: Settings) -> Iterator[StubsLeft]:
    """Yield the sessions that need the store; all with placeholders if it cannot be opened."""
    with ExitStack() as held:
        store = None
        with suppress(StoreUnusableError):
            if opened := open_to_read(settings.state_dir):
                store = held.enter_context(opened)
        yield from stubs_left(settings, store)
        yield from stubs_put_away(settings)


def stamp(now: float) -> str:
    """Format a time (UTC) for a file name."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
