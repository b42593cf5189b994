"""What a format reads from bytes: surveys, entries and parts."""

import contextlib
import tempfile

from brainsurgeon.formats.base import ParsedLine
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import Line, parse
from brainsurgeon.model.records import Records
from brainsurgeon.model.sessions import Survey
from brainsurgeon.planning.snapshot import Snapshot
from brainsurgeon.sessions.reading import FileLines

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
        return ParsedLine(start, raw, parse(raw), entry.ident, entry.terminated)


def record(form, entry):
    """Return what a format says about an entry, without what of ours is in it."""
    return form.record(entry, Line(1, 0, b""), 0)


def survey(form, data, window=WINDOW):
    return Reading(form, data).transcript.survey(window)


def snapshot(form, data, records=None, now=0.0, **keys):
    """Return a session of these bytes as the planner sees it."""
    reading = Reading(form, data)
    return Snapshot(reading.transcript, reading.parsed, records or Records(), now, **keys)


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
    surveyed = Survey(WINDOW, {}, None, last_user=1 if before_last_user else -1)
    return list(form.parts(entry, surveyed, 0))


def unlocked_paths(form, entry):
    return {".".join(map(str, part.path)) for part in parts(form, entry) if not part.locked}


HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z",
          "cwd": "/w"}  # fmt: skip
