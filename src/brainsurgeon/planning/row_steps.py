"""Divide the edits of a session in a database into steps of a few rows."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from msgspec import Struct

from brainsurgeon.model.plans import Edit, Removal, Restoration, bytes_after, gain

# Limits of one transaction, so that the agent waits for milliseconds only.
MOST_ROWS = 64
MOST_BYTES = 4 << 20
_Item = TypeVar("_Item")
RowKey = int | str  # of a row in its session: the same as long as the row exists


class RowSpan(NamedTuple):
    key: RowKey
    offset: int
    size: int


class RowIndex(list[RowSpan]):
    def __init__(self, sizes: Iterable[tuple[RowKey, int]]) -> None:
        super().__init__()
        self.size = 0  # bytes of all lines, newlines included
        for key, size in sizes:
            self.append(RowSpan(key, self.size, size))
            self.size += size + 1

    def at(self, offset: int) -> int:
        if not 0 <= offset < self.size:
            raise ValueError("no line has this offset")
        return bisect_right(self, offset, key=lambda span: span.offset) - 1


class RowPlan(Struct, frozen=True):
    span: RowSpan
    edits: tuple[Edit, ...]

    @property
    def weight(self) -> int:
        return 2 * self.span.size - gain(self.edits)

    def text_after(self, text: bytes, value_of: Callable[[int], bytes]) -> bytes:
        pieces, done = [], 0
        for edit in self.edits:
            begin, stop = edit.start - self.span.offset, edit.end - self.span.offset
            new = bytes_after(edit, value_of)
            if not done <= begin <= stop <= len(text) or b"\n" in new:
                raise ValueError("edits out of order, or not within one line")
            pieces += [text[done:begin], new]
            done = stop
        return b"".join((*pieces, text[done:]))


def by_row(index: RowIndex, edits: Iterable[Edit]) -> list[RowPlan]:
    rows: dict[RowSpan, list[Edit]] = {}
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        span = index[index.at(edit.start)]
        if edit.end > span.offset + span.size:
            raise ValueError("an edit crosses the end of its line")
        rows.setdefault(span, []).append(edit)
    return [RowPlan(span, tuple(of_row)) for span, of_row in rows.items()]


def chunks(rows: Sequence[RowPlan]) -> Iterator[list[RowPlan]]:
    # Each commit must leave a history that the provider accepts. A signature of thinking may cover
    # everything before it, so it must be removed first and restored last. So extractions go from
    # the newest row to the oldest, then restorations from the oldest to the newest.
    def order(row: RowPlan) -> tuple[bool, int]:
        kinds = {type(edit) for edit in row.edits}
        restores = Restoration in kinds and Removal not in kinds
        return restores, row.span.offset if restores else -row.span.offset

    return split(sorted(rows, key=order), lambda row: row.weight, MOST_ROWS, MOST_BYTES)


def split(
    items: Iterable[_Item], weight_of: Callable[[_Item], int], most: int, heaviest: int
) -> Iterator[list[_Item]]:
    """Split into lists of limited length and weight. An item that is too heavy is alone."""
    part: list[_Item] = []
    weight = 0
    for item in items:
        if part and (len(part) >= most or weight + weight_of(item) > heaviest):
            yield part
            part, weight = [], 0
        part.append(item)
        weight += weight_of(item)
    if part:
        yield part
