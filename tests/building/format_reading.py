"""What a format reads from bytes: entries, chains and values."""

import contextlib
import tempfile

from msgspec import Struct

from brainsurgeon.files.reading import FileLines
from brainsurgeon.formats.chain import Around
from brainsurgeon.formats.splice import parsed_entry
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import OLD, Line, parse
from brainsurgeon.model.records import Records
from brainsurgeon.planning.plan import SnapshotPlanner
from brainsurgeon.planning.snapshot import Snapshot

WINDOW = 3


@contextlib.contextmanager
def open_lines(data):
    with tempfile.TemporaryFile() as handle:
        handle.write(data)
        handle.flush()
        yield FileLines(handle.fileno(), len(data))


class Reading:
    """A transcript of bytes, and the lines of its entries again."""

    def __init__(self, form, data):
        with open_lines(data) as lines:
            self.transcript = Transcript.read(form, lines)
        self._data = data

    def parsed(self, index):
        start, end = self.transcript.span(index)
        entry, raw = self.transcript.entries[index], self._data[start:end]
        return parsed_entry(entry, start, raw)


def record(form, entry, number=1):
    """Return what a format says about an entry in a line, without what of ours is in it."""
    return form.first_entry(entry, Line(number, 0, b""), 0)


def sizes_in(form, data):
    """Return the characters that the next request contains of each entry, by its id."""
    transcript = Reading(form, data).transcript
    return {
        entry.ident: transcript.sent(index).chars for index, entry in enumerate(transcript.entries)
    }


class Look(Struct):
    """What a transcript says about entries, by their offsets."""

    positions: dict[int, int]  # of at most `window` messages
    open_turn: str | None
    last_user: int | None
    dead_entries: dict[int, str]
    quiet: float
    around: dict[int, Around]

    def position(self, offset):
        return self.positions.get(offset, OLD)

    def dead(self, offset):
        return self.dead_entries.get(offset)


def survey(form, data, window=WINDOW):
    transcript = Reading(form, data).transcript
    chain, places = transcript.chain, [*map(transcript.offset, range(len(transcript.entries)))]
    positions = {at: transcript.position(index) for index, at in enumerate(places)}
    return Look(
        {at: position for at, position in positions.items() if position <= window},
        chain.open_turn, None if chain.last_user is None else places[chain.last_user],
        {places[index]: why for index, why in chain.dead.items()}, chain.quiet,
        {at: transcript.around(index) for index, at in enumerate(places)},
    )  # fmt: skip


def parts_in(form, entry, look, offset):
    """Return the values of an entry at an offset of a session."""
    return list(form.resolved(form.read(entry).values, look.around[offset]))


def snapshot(form, data, records=None, now=0.0, **keys):
    """Return a session of these bytes as the planner sees it."""
    reading = Reading(form, data)
    return Snapshot(reading.transcript, reading.parsed, records or Records(), now, **keys)


def plan(session, rules, **how):
    return SnapshotPlanner(session).plan(rules, **how)


def entries(data):
    """Return offset, bytes, line number and parsed value of each entry."""
    with open_lines(data) as lines:
        return [
            (line.offset, line.raw, line.number, entry)
            for line in lines
            if line.raw and (entry := parse(line.raw)) is not None
        ]


def parts(form, entry, before_last_user=True):
    """Return the parts of an entry before, or after, the last user message."""
    return list(form.resolved(form.read(entry).values, Around(in_last_turn=not before_last_user)))


def unlocked_paths(form, entry):
    return {".".join(map(str, part.path)) for part in parts(form, entry) if not part.locked}


HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z",
          "cwd": "/w"}  # fmt: skip
