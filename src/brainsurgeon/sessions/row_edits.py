"""From edits at byte offsets to rows with new columns: pure, and all of it before any lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.hosts.openclaw_events import Payload, plain
from brainsurgeon.model.edits import Cut, Putback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from brainsurgeon.model.edits import Edit
    from brainsurgeon.sessions.row_lines import RowIndex, RowPlace

MOST_ROWS = 64
MOST_BYTES = 4 << 20
"""The most that one transaction changes: the agent waits for no more than milliseconds."""


@dataclass(frozen=True, slots=True)
class RowEdit:
    """One row, the columns that it must still hold, and those that it shall hold."""

    seq: int
    before: Payload
    after: Payload


@dataclass(frozen=True, slots=True)
class RowPlan:
    """The edits that fall on one row, in order and still by offset among the lines."""

    place: RowPlace
    edits: tuple[Edit, ...]

    @property
    def weight(self) -> int:
        """How many bytes the row says before and afterwards, together."""
        return 2 * self.place.size - sum(edit.gain for edit in self.edits)

    def text_after(self, text: bytes, value_of: Callable[[int], bytes]) -> bytes:
        """Return the row's text with its edits done; `value_of` gives the values put back."""
        pieces, done = [], 0
        for edit in self.edits:
            begin, stop = edit.start - self.place.offset, edit.end - self.place.offset
            new = edit.bytes_after(value_of)
            if not done <= begin <= stop <= len(text) or b"\n" in new:
                raise ValueError("edits out of order, or beyond their line")
            pieces += [text[done:begin], new]
            done = stop
        return b"".join((*pieces, text[done:]))


def by_row(index: RowIndex, edits: Iterable[Edit]) -> list[RowPlan]:
    """Sort edits by the row that they fall on; each lies within one line."""
    found: dict[int, list[Edit]] = {}
    for edit in edits:
        number = index.at(edit.start)
        if edit.end > index[number].end:
            raise ValueError("an edit crosses the end of its line")
        found.setdefault(number, []).append(edit)
    return [
        RowPlan(index[number], tuple(sorted(found[number], key=lambda one: (one.start, one.end))))
        for number in sorted(found)
    ]


def rewritten(
    before: Payload, row: RowPlan, value_of: Callable[[int], bytes],
    original: Callable[[bytes], Payload | None], *, compressing: bool,
) -> RowEdit:  # fmt: skip
    """Return the edit of one row: its new text in the columns that held it once, or as it is.

    `original` gives the columns in which the agent itself kept a text, where they are known;
    `compressing` says that events may be stored compressed.
    """
    text = row.text_after(before.event(), value_of)
    known = original(text)
    after = known if known and known.event() == text else plain(text, compressing=compressing)
    return RowEdit(row.place.seq, before, after)


def chunks(rows: Sequence[RowPlan]) -> Iterator[list[RowPlan]]:
    """Yield the rows in the order of their commits, as many at a time as one transaction takes.

    What leaves goes first, from the newest row to the oldest; then what comes back, from the
    oldest to the newest. So each commit leaves a history that its provider accepts, also where
    thinking is sealed together with everything before it: a seal leaves before anything in front
    of it changes, and comes back after everything in front of it did.
    """
    chunk: list[RowPlan] = []
    weight = 0
    for row in sorted(rows, key=_turn):
        if chunk and (len(chunk) >= MOST_ROWS or weight + row.weight > MOST_BYTES):
            yield chunk
            chunk, weight = [], 0
        chunk.append(row)
        weight += row.weight
    if chunk:
        yield chunk


def _turn(row: RowPlan) -> tuple[bool, int]:
    """Return what the rows of a plan are sorted by."""
    kinds = {type(edit) for edit in row.edits}
    comes_back = Putback in kinds and Cut not in kinds
    return comes_back, row.place.seq if comes_back else -row.place.seq
