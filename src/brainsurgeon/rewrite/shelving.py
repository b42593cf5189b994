"""What both media owe the store before anything changes: originals, records, the journal.

The order is the whole safety of the house. Blobs go in short transactions (orphans are harmless),
then records and the journal entry in one commit, then the session. A blob is durable before its
placeholder is visible.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

from brainsurgeon.errors import BusyError
from brainsurgeon.model.plans import Cut
from brainsurgeon.model.records import Confirmation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.model.plans import Edit, FieldEdit, Plan
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.store import Store

# Stored values that were read already, by the id of their extraction.
Values = Mapping[int, bytes]
# A cut with the id, the digest and the size in bytes of the value that it shelved.
Shelved = tuple[Cut, int, bytes, int]
# Compressed bytes after which a transaction of blobs is committed.
BATCH = 8 << 20


class Shelf:
    """The values of one plan on their way into the store: 48 bytes for each in memory.

    `read` gives the bytes of the session between two offsets. `stored` counts the bytes written.
    Iterating yields the cuts with what was stored of each. Where the store gave a placeholder
    another name than the plan did, `named` has it.
    """

    def __init__(self, store: Store, read: Callable[[int, int], bytes], plan: Plan) -> None:
        self._store, self._read = store, read
        self._cuts, self._told, self._digests = plan.cuts, array("q"), bytearray()
        self._foreign = frozenset(plan.foreign)
        self._names: dict[int, str] = {}
        self._coming = iter(plan.cuts)
        self._next = next(self._coming, None)
        self.stored = 0

    @property
    def left(self) -> bool:
        """Whether some values are not stored yet."""
        return self._next is not None

    def put(self, room: int) -> int:
        """Store values until so many bytes are written; return how many were.

        It is part of a transaction: after one that failed, a shelf is of no use any more.
        """
        written = 0
        while self._next is not None and written < room:
            blob, digest, length, size = self._put(self._next)
            self._name(self._next, digest)
            self._told.extend((blob, length))
            self._digests += digest
            written += size
            self._next = next(self._coming, None)
        self.stored += written
        return written

    def _put(self, cut: Cut) -> tuple[int, bytes, int, int]:
        """Store one value; return its id, its digest, its length, and the bytes written."""
        if cut.takes_over is not None:
            return *self._store.extractions.stored(cut.takes_over), 0
        value = self._read(cut.start, cut.end)
        blob, digest, size = self._store.blobs.put(value)
        return blob, digest, len(value), size

    def _name(self, cut: Cut, digest: bytes) -> None:
        """Let the placeholder name this value, and no other, for ever."""
        if cut.is_named:
            name = self._store.placeholders.name(
                cut.name, cut.path, digest, self._foreign, reused=cut.rest is not None
            )
            if name != cut.name:
                self._names[cut.start] = name

    def named(self, edits: Iterable[Edit]) -> Iterator[Edit]:
        """Yield edits of the plan with the names that the store gave their placeholders."""
        for edit in edits:
            name = self._names.get(edit.start) if self._names and isinstance(edit, Cut) else None
            yield edit.named(name) if name and isinstance(edit, Cut) else edit

    def blobs(self) -> Iterator[tuple[int, bytes]]:
        """Yield the id of each value with its digest."""
        length = 2 * len(self._digests) // max(1, len(self._told))
        for number, blob in enumerate(self._told[::2]):
            yield blob, bytes(self._digests[number * length : (number + 1) * length])

    def __iter__(self) -> Iterator[Shelved]:
        for cut, (blob, digest), size in zip(
            self.named(self._cuts), self.blobs(), self._told[1::2], strict=True
        ):
            yield cast("Cut", cut), blob, digest, size


def shelve(store: Store, read: Callable[[int, int], bytes], plan: Plan) -> Shelf:
    """Store what will be cut, in short transactions.

    `read` gives the bytes of the session between two offsets.
    """
    shelf = Shelf(store, read, plan)
    while shelf.left:
        with store.transaction():
            shelf.put(BATCH)
    return shelf


def check_still_so(store: Store, record: SessionRecord, plan: Plan, shelved: Shelf) -> None:
    """Raise BusyError when another process changed what this plan was built on."""
    for blob, digest in shelved.blobs():
        if not store.blobs.holds(blob, digest):
            raise BusyError("a value expired while it was being stored; try again")
    if store.requests.newest(record.id) != plan.asked_until:
        raise BusyError("something was asked for meanwhile; try again")


def note_fields(
    store: Store, session_id: int, journal_id: int, edits: Iterable[FieldEdit],
    run_id: int | None = None,
) -> None:  # fmt: skip
    """Record each field with what undoing it puts back: what stood there before any of ours."""
    known = {(one.entry_id, one.name): one for one in store.fields.of_session(session_id)}
    for edit in edits:
        if edit.undoes is not None:
            continue
        before, after = edit.before, edit.new
        placed = known.get((edit.entry_id, edit.name))
        if placed and edit.before is not None and placed.after.endswith(edit.before):
            before = placed.before
            after = placed.after[: -len(edit.before)] + edit.new
        value = edit.new if edit.before is not None else edit.new.split(b":", 1)[1]
        store.fields.add(
            session_id, journal_id, edit.entry_id, edit.name, before, after, value.decode(),
            run_id, edit.rest,
        )  # fmt: skip


def value_of(store: Store, values: Values) -> Callable[[int], bytes]:
    """Return what gives the value of an extraction: from `values`, or from the store."""

    def value(extraction_id: int) -> bytes:
        known = values.get(extraction_id)
        return store.extractions.value(extraction_id) if known is None else known

    return value


def confirmation_of(plan: Plan, now: float) -> Confirmation:
    """Return what becomes true when a plan is carried out."""
    return Confirmation(
        put_back=[edit.extraction_id for edit in plan.putbacks],
        fields_gone=[edit.undoes for edit in plan.fields if edit.undoes is not None],
        requests=list(plan.requests),
        restored=list(plan.restored),
        at=now,
        folded=[prompt for one in plan.archives for prompt in one.prompts[1:]],
    )
