"""Care for the store as a whole: back it up, take a backup back, make it small, remove it."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
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
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Replacement:
    """A backup about to take the place of the store, or that has taken it.

    `newer` are the sessions with stubs that it does not lead on from: they were cut after it was
    made. `kept` is where the store that was there before stays.
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
    """What removing the store did or would do: the stubs in its way, and what was not ours."""

    directory: str
    stubs: tuple[StubsLeft, ...]
    removed: bool = False
    left: tuple[str, ...] = ()


def back_up(settings: Settings, target: str, *, force: bool = False) -> StoreCopy:
    """Copy the store to a file, and read it back whole."""
    return copies.write_copy(settings.state_dir, os.path.abspath(target), force=force)


@contextmanager
def replacing_store(settings: Settings, source: str) -> Iterator[PendingReplacement]:
    """Have a backup read and compared with the sessions; it takes the store's place on request."""
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
    """A backup that was read and found sound."""

    directory: str
    path: str
    found: Replacement

    def carry_out(self, now: float) -> Replacement:
        """Put it in the place of the store."""
        kept = replacing.put_in_place(self.directory, self.path, f"replaced-{stamp(now)}")
        return replace(self.found, kept=kept)


def _newer(settings: Settings, place: str) -> Iterator[StubsLeft]:
    """Yield the sessions with stubs of which the store in this place knows nothing."""
    with open_to_read(place) or ExitStack() as store:
        known = None if isinstance(store, ExitStack) else store
        for one in stubs_left(settings, known):
            if one.orphans or not one.sure:
                yield one


def compact(settings: Settings) -> Compaction:
    """Write the database anew, without what was freed in it; raise StoreFullError without room."""
    with _there_to_write(settings) as store, hold_sessions(settings.state_dir):
        before = store.size
        copies.refuse_without_room(settings.state_dir, 2 * before)
        store.compact()
        return Compaction(before, store.size)


@contextmanager
def _there_to_write(settings: Settings) -> Iterator[Store]:
    _refuse_none(settings)
    with open_store(settings.state_dir) as store:
        yield store


def _refuse_none(settings: Settings) -> None:
    if not os.path.lexists(database_path(settings.state_dir)):
        raise UsageError(f"{settings.state_dir}: there is no store")


def purge(settings: Settings, *, even_so: bool = False) -> Purge:
    """Remove the store; where stubs of it stand somewhere only if `even_so` is given."""
    _refuse_none(settings)
    directory = settings.state_dir
    with hold_store(directory):
        stubs = () if even_so else tuple(_in_the_way(settings))
        if stubs:
            return Purge(directory, stubs)
        return Purge(directory, (), removed=True, left=tuple(replacing.remove(directory)))


def _in_the_way(settings: Settings) -> Iterator[StubsLeft]:
    """Yield what the store is still needed for; of one that cannot be used, every stub of ours."""
    with ExitStack() as held:
        store: Store | None = None
        try:
            if opened := open_to_read(settings.state_dir):
                store = held.enter_context(opened)
        except StoreUnusableError:
            store = None
        yield from stubs_left(settings, store)
        yield from stubs_put_away(settings)


def stamp(now: float) -> str:
    """Write a moment as part of a file name."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
