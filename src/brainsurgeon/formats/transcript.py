"""A session, read once: its entries in order, and the chain of those that are still sent."""

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from itertools import accumulate, groupby, starmap, zip_longest
from operator import add, eq
from zlib import crc32

from msgspec.structs import replace

from brainsurgeon.formats.base import Format
from brainsurgeon.formats.chain import Around
from brainsurgeon.model.entries import Line, Value
from brainsurgeon.model.plans import Edit, gain
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import Sent


def entries_of(form: Format, lines: Iterable[Line]) -> Iterator[tuple[Line, Entry]]:
    """Yield the entries of some lines, which may be in any order."""
    for line in lines:
        for entry in form.entries(line, 0):
            yield line, entry


class Transcript:
    """The entries of a session, and where its lines begin.

    `end` is the offset behind the last line that is complete, and not too long to be read. A line
    behind it has entries, too, but is read again by `grow`. `sums` has a checksum of each line.
    """

    def __init__(self, form: Format) -> None:
        self.form, self.entries = form, list[Entry]()
        self.starts, self.sums = array("q"), array("L")
        self.end = self.stop = 0
        self.chain = form.chain(self.entries)

    @classmethod
    def read(cls, form: Format, lines: Iterable[Line]) -> "Transcript":
        transcript = cls(form)
        transcript.grow(lines)
        return transcript

    @property
    def complete(self) -> int:
        """The number of lines before `end`."""
        return len(self.starts) - (bool(self.starts) and self.starts[-1] == self.end)

    def grow(self, lines: Iterable[Line]) -> None:
        """Add the lines that begin at `end`, in place of what was behind it.

        If this raises an error, the transcript is no longer valid.
        """
        complete = self.complete
        del self.starts[complete:], self.sums[complete:]
        while self.entries and self.entries[-1].line >= complete:
            self.entries.pop()
        known = len(self.entries)
        for line in lines:
            self.starts.append(line.offset)
            self.sums.append(crc32(line.raw or b""))
            self.entries += self.form.entries(line, len(self.starts) - 1)
            self.stop = line.offset + len(line.raw or b"")
            whole = line.terminated and line.raw is not None
            self.end = line.offset + len(line.raw or b"") + 1 if whole else line.offset
        if self.form.names_model_before:
            self._name_models(known)
        self.chain = self.form.chain(self.entries)

    def _name_models(self, start: int) -> None:
        """Fill in the models of calls from an index on, which only entries before them name."""
        model = next((one.model for one in reversed(self.entries[:start]) if one.model), None)
        for index in range(start, len(self.entries)):
            entry = self.entries[index]
            model, call, thought = entry.model or model, entry.call, entry.reasoning
            if model and (call or thought):
                self.entries[index] = replace(
                    entry, call=call and replace(call, model=call.model or model),
                    reasoning=thought and replace(thought, model=thought.model or model),
                )  # fmt: skip

    def describes(self, lines: Iterable[Line]) -> bool:
        """Check that these are, byte for byte, the lines that were read."""
        read = ((line.offset, crc32(line.raw or b"")) for line in lines)
        return all(starmap(eq, zip_longest(read, zip(self.starts, self.sums, strict=True))))

    def follow(self, edits: Iterable[Edit], read: Callable[[int, int], bytes]) -> None:
        """Read the lines again in which edits were made. `read` reads the edited session.

        The chain is made anew by `grow`, which must follow.
        """
        longer = Counter[int]()
        for edit in edits:
            longer[self.line_at(edit.start)] -= gain((edit,))
        shifts = [0, *accumulate(longer[line] for line in range(len(self.starts)))]
        self.starts = array("q", map(add, self.starts, shifts))
        self.end, self.stop = self.end + shifts[-1], self.stop + shifts[-1]
        entries = list[Entry]()
        for line, group in groupby(enumerate(self.entries), key=lambda item: item[1].line):
            indexes, known = zip(*group, strict=True)
            if line not in longer:
                entries += known
                continue
            raw = read(*self.span(indexes[0]))
            self.sums[line] = crc32(raw)
            entries += self.form.entries(Line(line + 1, self.starts[line], raw), line)
        self.entries = entries

    def line_at(self, offset: int) -> int:
        """Return the index of the line that contains an offset."""
        return bisect_right(self.starts, offset) - 1

    def offset(self, index: int) -> int:
        return self.starts[self.entries[index].line]

    def span(self, index: int) -> tuple[int, int]:
        """Return where the line of an entry begins and ends, without its newline."""
        entry = self.entries[index]
        after = entry.line + 1
        if after < len(self.starts):
            return self.starts[entry.line], self.starts[after] - 1
        return self.starts[entry.line], self.stop

    def live(self) -> Iterator[tuple[int, Entry]]:
        """Yield the entries that the next request contains, with their indexes."""
        dead = self.chain.dead
        return (item for item in enumerate(self.entries) if item[0] not in dead)

    def live_backward(self) -> Iterator[tuple[int, Entry]]:
        entries, dead = self.entries, self.chain.dead
        return ((at, entries[at]) for at in range(len(entries) - 1, -1, -1) if at not in dead)

    def around(self, index: int) -> Around:
        return self.chain.around(index, self.entries[index])

    def values(self, index: int) -> Iterator[Value]:
        return self.form.resolved(self.entries[index].values, self.around(index))

    def sent(self, index: int) -> Sent:
        """Return the size of an entry in the next request."""
        entry, around = self.entries[index], self.around(index)
        sent = entry.sent
        if self.chain.replaced or not around.thinks:
            for value in entry.values:
                if around.omits(value.kind, value.call):
                    sent -= Sent(*value.size)
        return sent

    def position(self, index: int) -> int:
        return self.chain.position(index, self.entries[index])

    def with_entries(self, entries: Sequence[Entry]) -> "Transcript":
        """Return the same chain with other content, such as the originals of extracted values."""
        changed = copy(self)
        changed.entries = list(entries)
        return changed
