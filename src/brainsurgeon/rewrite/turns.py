"""Give a folded turn as its agent wrote it: placeholders filled, links undone.

Nothing is touched.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, TYPE_CHECKING

from brainsurgeon.formats.base import parse
from brainsurgeon.lookup import catalogue
from brainsurgeon.lookup.entries import archive_in, owned
from brainsurgeon.lookup.sessions import file_of
from brainsurgeon.model.entries import value_at
from brainsurgeon.model.records import Request
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.rewrite.inspect import examine_open, records_of
from brainsurgeon.sessions.opening import failing, open_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from brainsurgeon.config import Settings
    from brainsurgeon.formats.base import Format
    from brainsurgeon.lookup.entries import EntryValues
    from brainsurgeon.model.entries import Entry
    from brainsurgeon.model.plans import Plan, Putback
    from brainsurgeon.model.records import Extraction, SessionRecord
    from brainsurgeon.model.turns import Answered, ArchiveRecord, Asked
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.sessions.opening import AnyOpen
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class ArchivedTurn:
    """A folded turn: its archive, whose session it is of, and its lines as the agent wrote them."""

    archive: ArchiveRecord
    session: str
    lines: tuple[bytes, ...]
    form: Format

    @property
    def index(self) -> tuple[str, ...]:
        """Its tool calls in order: the tool, and what is known of its result.

        That is its exit code and its time, where they were recorded, its size, and a failure.
        """
        asked: list[Asked] = []
        answered: dict[str | None, tuple[Answered, int | None]] = {}
        for line in self.lines:
            entry = parse(line)
            said = self.form.said(entry) if entry is not None else None
            if said is None:
                continue
            asked += said.asked
            size = self._size(entry) if entry and len(said.answered) == 1 else None
            answered.update({one.call_id: (one, size) for one in said.answered})
        return tuple(
            f"{number}. {call.tool} {_result(*answered.get(call.call_id, (None, None)))}"
            for number, call in enumerate(asked, 1)
        )

    def _size(self, entry: Entry) -> int:
        """Return the bytes of the texts of a result."""
        texts = (
            value_at(entry, part.path) for part in self.form.parts(entry, NO_SURVEY, None)
            if part.kind == "tool_result" and not part.dead
        )  # fmt: skip
        return sum(len(t.encode("utf-8", "surrogatepass")) for t in texts if isinstance(t, str))


def _result(result: Answered | None, size: int | None) -> str:
    if result is None:
        return "[no result]"
    known = (
        None if result.exit_code is None else f"exit={result.exit_code}",
        None if result.took_ms is None else f"{result.took_ms:,} ms",
        None if size is None else f"{size:,} B",
    )
    told = ", ".join(one for one in known if one)
    return f"[{told}]{' FAILED' if result.failed else ''}"


def archived_turn(
    settings: Settings, store: Store, named: EntryValues, now: float, *, undone: bool = False
) -> ArchivedTurn | None:  # fmt: skip
    """Return the turn that is folded into an entry; None where none is, or it stands nowhere.

    With `undone` also one that was brought back. Values that whoever asks may not see stay out.
    Raise GoneError where its session went away.
    """
    part = archive_in(named, undone=undone)
    known = store.archives.by_id(part.archive_id) if part and part.archive_id else None
    if known is None:
        return None
    file = file_of(named.session)
    with failing(file), open_session(file) as session:
        lines = tuple(
            lines_of(
                settings,
                store,
                session,
                named.session.record,
                known.prompt_id,
                known.entry_id,
                now,
                partial(owned, store, named.session),
            )
        )
        if not lines:  # the agent wrote its history anew: there is the text of the answer alone
            return None
        return ArchivedTurn(known, named.session.title, lines, session.format)


def lines_of(
    settings: Settings, store: Store, session: AnyOpen, record: SessionRecord | None,
    prompt_id: str, entry_id: str, now: float,
    seen: Callable[[Iterable[Extraction]], Iterable[Extraction]] = tuple,
) -> Iterator[bytes]:  # fmt: skip
    """Yield the lines of a turn as its agent wrote them, in the order of the file.

    `seen` chooses the values that are filled in.
    """
    request = Request(
        None, record.id if record else 0, None, "restore", None, None, True, now, None
    )
    known = records_of(settings, store, session, record, now)
    records = replace(known, requests=(request,), extractions=tuple(seen(known.extractions)))
    links = {one.entry_id: one.anchor for one in records.extractions if one.links}
    offsets = _offsets(session, prompt_id, entry_id, links)
    if offsets:
        look = examine_open(settings, session, None, now, window=0)
        yield from _filled(store, session, look.plan(records, cut=False).putbacks, offsets)


def _offsets(
    session: AnyOpen, prompt_id: str, entry_id: str, links: dict[str, str | None]
) -> dict[int, int]:
    """Return where the lines of a turn stand, with their lengths, in the order of the file.

    In the linked form they are found by climbing from the closing entry to the prompt, over the
    links as the agent wrote them; in the flat form they stand between the two.
    """
    places: dict[str, tuple[int, int, str | None]] = {}
    for line in session.lines:
        entry = parse(line.raw) if line.raw else None
        said = session.format.said(entry) if entry is not None else None
        if entry is None or line.raw is None or said is None:
            continue
        ident = session.format.identity(entry, line.raw, line.number)
        if ident is not None:
            parent = links.get(ident, said.parent)
            places[ident] = (line.offset, len(line.raw), parent)
    first, last = places.get(prompt_id), places.get(entry_id)
    if first is None or last is None:
        return {}
    if session.format.archives == "flat":
        between = (one for one in places.values() if first[0] <= one[0] <= last[0])
        return dict(sorted((offset, size) for offset, size, _ in between))
    found, at = {}, entry_id
    while at != prompt_id and at in places and places[at][0] not in found:
        offset, size, parent = places[at]
        found[offset] = size
        at = parent or ""
    if at != prompt_id:  # a fork has the branch alone
        found = {last[0]: last[1]}
    return dict(sorted({**found, first[0]: first[1]}.items()))


def _filled(
    store: Store, session: AnyOpen, putbacks: Iterable[Putback], offsets: dict[int, int]
) -> Iterator[bytes]:
    edits = iter(putbacks)
    edit = next(edits, None)
    for offset, size in offsets.items():
        while edit is not None and edit.start < offset:
            edit = next(edits, None)
        here: list[Putback] = []
        while edit is not None and edit.start < offset + size:
            here.append(edit)
            edit = next(edits, None)
        done, line = offset, b""
        for one in here:
            line += session.read(done, one.start) + one.bytes_after(store.extractions.value)
            done = one.end
        yield line + session.read(done, offset + size)


# Characters of a summary; one that is longer, or says nothing, is none.
LONGEST = 8000
_MOST_BYTES = 4 * LONGEST
# Seconds between two looks at whether the run is to end.
_GLANCE = 0.2
STYLE = "BRAINSURGEON_STYLE"


class SummaryFailedError(Exception):
    """A command gave no summary: why, without a word of what it read or said."""


@dataclass(frozen=True, slots=True)
class Told:
    """Whose turns are summarised: an examined session, and what the store says of it."""

    one: Examination
    record: SessionRecord | None
    check_stop: Callable[[], None]


def summaries(
    told: Told, store: Store, planned: Plan
) -> tuple[Mapping[bytes, str], tuple[str, ...]]:
    """Return what the command says of the turns that a plan folds, and a warning for each failure.

    What it said is kept by the turn's digest: a rewrite that is refused does not run it again.
    """
    one = told.one
    settings = one.settings
    said: dict[bytes, str] = {}
    warnings = []
    for archive in planned.archives:
        if archive.depth > 1:
            continue
        known = store.archives.summary(archive.digest)
        if known is None:
            noted = catalogue.note(store, one.session)
            ends = archive.prompt_id, archive.entry_id
            lines = lines_of(settings, store, one.session, noted, *ends, one.now)
            turn = b"".join(line + b"\n" for line in lines)
            try:
                known = summarise(settings, turn, told.check_stop)
            except SummaryFailedError as why:
                warnings.append(f"turn of {archive.entry_id}: the summary is our own, {why}")
                _tell(store, noted, archive.entry_id, str(why), one.now)
                continue
            with store.transaction():
                store.archives.keep_summary(archive.digest, known, one.now)
        said[archive.digest] = known
    return said, tuple(warnings)


def _tell(store: Store, noted: SessionRecord, entry_id: str, why: str, now: float) -> None:
    """Note that a summary failed: a fact of its own, whatever becomes of the rewrite."""
    facts = {"entry_id": entry_id, "reason": why}
    with store.transaction():
        store.events.add(now, "summary_failed", noted.id, facts, store.runs.number())


def summarise(settings: Settings, turn: bytes, check_stop: Callable[[], None]) -> str:
    """Run the command on one turn; raise SummaryFailedError where it gives no summary."""
    table = settings.archive
    limit = float("inf") if table.command_timeout is None else float(table.command_timeout)
    try:
        process = subprocess.Popen(  # noqa: S603  it is the operator's own
            table.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, STYLE: table.style},
        )  # fmt: skip
    except OSError as error:
        raise SummaryFailedError(f"its command cannot be run: {error.strerror}") from None
    assert process.stdin is not None  # noqa: S101  both were asked for
    assert process.stdout is not None  # noqa: S101
    feeding = threading.Thread(target=_feed, args=(process.stdin, turn), daemon=True)
    feeding.start()
    try:
        said = _read(process, process.stdout, time.monotonic() + limit, check_stop)
    finally:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        feeding.join()
        process.stdout.close()
    return _understood(said, process.returncode)


def _feed(stdin: IO[bytes], turn: bytes) -> None:
    with suppress(OSError):  # it need not read everything
        stdin.write(turn)
    with suppress(OSError):
        stdin.close()


def _read(
    process: subprocess.Popen[bytes], stdout: IO[bytes], deadline: float,
    check_stop: Callable[[], None],
) -> bytes:  # fmt: skip
    """Read what a command says, until it ends; raise where that is too much or takes too long."""
    said = b""
    while True:
        check_stop()
        if time.monotonic() > deadline:
            raise SummaryFailedError("its command took too long")
        ready, _, _ = select.select([stdout], [], [], _GLANCE)
        if ready:
            chunk = os.read(stdout.fileno(), 65_536)
            said += chunk
            if not chunk:
                break
        if len(said) > _MOST_BYTES:
            raise SummaryFailedError("its command said too much")
    with suppress(subprocess.TimeoutExpired):
        process.wait(min(max(0.0, deadline - time.monotonic()), 5.0))
    return said


def _understood(said: bytes, code: int) -> str:
    if code != 0:
        raise SummaryFailedError(f"its command ended with {code}")
    try:
        text = said.decode().strip()
    except UnicodeDecodeError:
        raise SummaryFailedError("its command said something that is no text") from None
    if not 1 <= len(text) <= LONGEST:
        raise SummaryFailedError(f"its command said {len(text):,} characters")
    return text
