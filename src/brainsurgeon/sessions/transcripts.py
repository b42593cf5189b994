"""Keep the transcripts of sessions, so that only new lines of a session are read.

A kept transcript is a hint: lines far from both ends may have been changed in place. So it may show
that there is nothing to do, but before a change the bytes of all lines are compared.
"""

from collections import OrderedDict
from collections.abc import Iterable

from msgspec import Struct

from brainsurgeon.files.reading import Opened
from brainsurgeon.formats.base import Format
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.plans import Edit
from brainsurgeon.model.session_files import Fingerprint
from brainsurgeon.model.transcript import Entry

MOST_BYTES = 64 << 20  # of memory, for all transcripts
MOST_ENTRIES = 50_000  # of a transcript that is kept
# Bytes of memory of an entry, and of a value, call or result in it: measured on 20,000 lines of
# Claude Code and of pi, with CPython 3.11.
_ENTRY, _ITEM = 850, 400


class KeptTranscript(Struct):
    """What was read of a session.

    `mark` is a digest that stays the same while lines are added. It is None until all is read, and
    if the session changed meanwhile: some lines may have been read before a change, others after.
    """

    transcript: Transcript
    version: tuple[str, int, str]  # name and version of the format, `format` of the root
    fingerprint: Fingerprint
    mark: object
    weight: int  # bytes of memory, estimated


class Transcripts:
    """Transcripts by path of the session. The least recently used are dropped first."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_entries: int = MOST_ENTRIES) -> None:
        self._most_bytes, self._most_entries = most_bytes, most_entries
        self._kept: OrderedDict[str, KeptTranscript] = OrderedDict()
        self.weight = 0  # bytes of memory, estimated

    def __contains__(self, path: str) -> bool:
        return path in self._kept

    def transcript(self, opened: Opened) -> Transcript:
        return self.read(opened).transcript

    def read(self, opened: Opened) -> KeptTranscript:
        """Return the transcript of a session, of which only new lines are read if possible.

        A transcript that was returned before for this session grows, too. Raises RefusedError.
        """
        path = opened.file.path
        kept = self._kept.get(path)
        self.forget(path)  # reading may raise an error: a transcript that grew in part is invalid
        if kept is None or not _grew(kept, opened):
            kept = KeptTranscript(
                Transcript(opened.form), _version(opened.form, opened.hint),
                opened.fingerprint, None, 0,
            )  # fmt: skip
        _grow(kept, opened)
        self.keep(path, kept)
        return kept

    def follow(self, opened: Opened, edits: Iterable[Edit]) -> None:
        """Make what is kept of a session describe it after our own edits."""
        path = opened.file.path
        if kept := self._kept.get(path):
            self.forget(path)
            kept.transcript.follow(edits, opened.read)
            kept.weight, kept.mark = weight(kept.transcript.entries), None
            _grow(kept, opened)
            self.keep(path, kept)

    def keep(self, path: str, kept: KeptTranscript) -> None:
        self.forget(path)
        if len(kept.transcript.entries) > self._most_entries or kept.weight > self._most_bytes:
            return
        self._kept[path] = kept
        self.weight += kept.weight
        while self.weight > self._most_bytes:
            self.forget(next(iter(self._kept)))

    def forget(self, path: str) -> None:
        kept = self._kept.pop(path, None)
        self.weight -= kept.weight if kept else 0


def _version(form: Format, hint: str) -> tuple[str, int, str]:
    return form.name, form.version, hint


def _grew(kept: KeptTranscript, opened: Opened) -> bool:
    """Check that the session is unchanged, or that lines were added to it."""
    form = kept.transcript.form
    if kept.mark is None or kept.version != _version(form, opened.hint):
        return False
    if kept.fingerprint == opened.fingerprint:
        return True
    same = kept.fingerprint.file_id == opened.fingerprint.file_id
    if not same or opened.fingerprint.size < kept.fingerprint.size:
        return False
    end = kept.transcript.end
    # More lines at the beginning may show another format.
    return kept.mark == opened.mark(end, kept.transcript.complete) and opened.form is form


def _grow(kept: KeptTranscript, opened: Opened) -> None:
    if kept.mark is not None and kept.fingerprint == opened.fingerprint:
        return
    transcript = kept.transcript
    known = len(transcript.entries)
    lines = opened.lines_from(transcript.end, transcript.complete + 1)
    transcript.grow(lines)
    kept.weight += weight(transcript.entries[known:])
    kept.fingerprint = opened.fingerprint
    kept.mark = opened.mark(transcript.end, transcript.complete)


def weight(entries: Iterable[Entry]) -> int:
    """Return the bytes of memory that entries take, estimated."""
    return sum(
        _ENTRY + _ITEM * (len(entry.values) + len(entry.calls) + len(entry.results))
        for entry in entries
    )
