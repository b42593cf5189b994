"""A session, read once: its entries in order, and the chain of those that are still sent."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from copy import copy

from brainsurgeon.formats.base import Format
from brainsurgeon.formats.chain import Around
from brainsurgeon.model.entries import Line, Part
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
    behind it has entries, too, but is read again by `grow`.
    """

    def __init__(
        self, form: Format, entries: Iterable[Entry] = (), starts: Iterable[int] = (),
        end: int = 0,
    ) -> None:  # fmt: skip
        self.form, self.entries, self.starts = form, list(entries), array("q", starts)
        self.end = self.stop = end
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
        dropped = complete < len(self.starts)
        if dropped:
            del self.starts[complete:]
            while self.entries and self.entries[-1].line >= complete:
                self.entries.pop()
        for line in lines:
            self.starts.append(line.offset)
            self.entries += self.form.entries(line, len(self.starts) - 1)
            self.stop = line.offset + len(line.raw or b"")
            whole = line.terminated and line.raw is not None
            self.end = line.offset + len(line.raw or b"") + 1 if whole else line.offset
        if dropped or not self.chain.extended(self.entries):
            self.chain = self.form.chain(self.entries)

    def offset(self, index: int) -> int:
        return self.starts[self.entries[index].line]

    def index_at(self, offset: int) -> int:
        """Return the index of the first entry of the line that begins at an offset."""
        return bisect_left(self.entries, bisect_left(self.starts, offset), key=lambda one: one.line)

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

    def values(self, index: int) -> Iterator[Part]:
        return self.form.resolved(self.entries[index].values, self.around(index))

    def sent(self, index: int) -> Sent:
        """Return the size of an entry in a request, less the results that the agent replaces."""
        entry, replaced = self.entries[index], self.chain.replaced
        sent = entry.sent
        if replaced and entry.results:
            for value in entry.values:
                if value.call in replaced:
                    sent -= Sent(*value.size)
        return sent

    def position(self, index: int) -> int:
        return self.chain.position(index, self.entries[index])

    def with_entries(self, entries: Sequence[Entry]) -> "Transcript":
        """Return the same chain with other content, such as the originals of extracted values."""
        changed = copy(self)
        changed.entries = list(entries)
        return changed
