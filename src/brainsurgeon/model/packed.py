"""The edits of a plan, in the order of the file, in little room.

A session of a gigabyte loses tens of thousands of values, and each edit takes most of a kilobyte
as an object. Where there are many, they are packed, some hundreds together, and made again
whenever somebody goes over them.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Sequence
from dataclasses import fields
from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, TypeVar, overload

from brainsurgeon.model.edits import Cut, Edit, FieldEdit, Putback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

TOGETHER = 256
"""Edits that are packed as one."""
_KINDS = (Cut, Putback, FieldEdit)
_NAMES = [tuple(one.name for one in fields(kind)) for kind in _KINDS]
T = TypeVar("T")


class _Remade(Sequence[T]):
    """A sequence whose items are made anew by every walk over it; equal to a tuple of the same."""

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            begin, stop, step = index.indices(len(self))
            return tuple(islice(self, begin, stop, step)) if step > 0 else tuple(self)[index]
        return next(islice(self, range(len(self))[index], None))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Remade | tuple) or len(self) != len(other):
            return False
        return all(one == another for one, another in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Edits(_Remade[Edit]):
    """Edits in the order in which they were added, with what they come to.

    `gain` is how many bytes the file loses, `cuts` counts those that take a value out, `extracted`
    those among them that are no redaction and no part of an archive, `forced` those of these that
    somebody asked for, and `entries` those of which they are; `folds`, `putbacks` and `fields`
    count the others.
    """

    def __init__(self, edits: Iterable[Edit] = ()) -> None:
        self.gain = self.cuts = self.extracted = self.forced = self.putbacks = self.fields = 0
        self.folds = 0
        self.entries, self._newest = 0, ""
        self._packs: list[bytes] = []
        self._loose: list[Edit] = []
        for edit in edits:
            self.add(edit)

    def add(self, edit: Edit) -> None:
        """Take one more edit, behind the others."""
        if len(self._loose) == TOGETHER:
            self._packs.append(_packed(self._loose))
            self._loose = []
        self._loose.append(edit)
        self.gain += edit.gain
        if isinstance(edit, Cut):
            self.cuts += 1
            self.folds += edit.folds
            if edit.extracts:
                self.extracted += 1
                self.forced += edit.forced
                self.entries += not self.entries or edit.entry_id != self._newest
                self._newest = edit.entry_id
        elif isinstance(edit, Putback):
            self.putbacks += 1
        else:
            self.fields += 1

    def joined(self, others: Iterable[Edit]) -> Edits:
        """Give these, which are in the order of the file, and others among them."""
        ranked = sorted(others, key=_place)
        return Edits(merge(self, ranked, key=_place)) if ranked else self

    def __len__(self) -> int:
        return len(self._packs) * TOGETHER + len(self._loose)

    def __iter__(self) -> Iterator[Edit]:
        for pack in self._packs:
            yield from _unpacked(pack)
        yield from self._loose


class Some(_Remade[T]):
    """Those edits of one kind that pass a test, `count` of them."""

    def __init__(
        self, edits: Edits, kind: type[T], count: int, wanted: Callable[[T], bool] | None = None
    ) -> None:
        self._edits, self._kind, self._count, self._wanted = edits, kind, count, wanted

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        if not self._count:
            return
        for edit in self._edits:
            if isinstance(edit, self._kind) and (self._wanted is None or self._wanted(edit)):
                yield edit


def _place(edit: Edit) -> tuple[int, int]:
    return edit.start, edit.end


def _packed(edits: list[Edit]) -> bytes:
    told = []
    for edit in edits:
        kind = _KINDS.index(type(edit))
        told.append((kind, *(getattr(edit, name) for name in _NAMES[kind])))
    return zlib.compress(marshal.dumps(told), 1)


def _unpacked(pack: bytes) -> list[Edit]:
    told = marshal.loads(zlib.decompress(pack))  # noqa: S302  this very process packed it
    return [_KINDS[kind](*values) for kind, *values in told]
