"""Judge every part of an entry by the rules, and keep count of what stays and why."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from brainsurgeon.formats import splice
from brainsurgeon.model.entries import (
    EXTRACTABLE,
    FIELDS,
    PLACEHOLDER_PREFIX,
    REDACTED,
    RESTORED,
    placeholder_id,
    placeholder_named,
    placeholder_token,
    value_at,
)
from brainsurgeon.model.plans import Amount, Cut, KeptPart, Putback
from brainsurgeon.model.sessions import OFF_BRANCH
from brainsurgeon.model.text import iso
from brainsurgeon.model.turns import LINK, MARK
from brainsurgeon.planning.rules import (
    EntryState,
    Extract,
    Keep,
    extract,
    no_gain,
    read_extractable,
    read_restored,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from brainsurgeon.formats.base import Format
    from brainsurgeon.formats.splice import Span
    from brainsurgeon.model.entries import Entry, KeyPath, Kind, Line, Part
    from brainsurgeon.model.plans import Edit, FieldEdit
    from brainsurgeon.model.records import Extraction, FieldRecord, Records, Request
    from brainsurgeon.model.sessions import Survey
    from brainsurgeon.planning.archive import Fold
    from brainsurgeon.planning.matching import Matcher, Redaction
    from brainsurgeon.planning.rules import Rules
    from brainsurgeon.planning.tail import Frontier


_MOST_WARNINGS = 100


class WindowTooSmallError(Exception):
    """An entry asks for a larger window (in messages) than the survey has looked at."""

    def __init__(self, window: int) -> None:
        self.window = window


class Tally:
    """Counts what stays, by kind, tool and reason, and when time alone may change that."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str | None, str], list[int]] = defaultdict(lambda: [0, 0])
        self._due: list[float] = []
        self._unsent: dict[tuple[str, str | None], list[int]] = defaultdict(lambda: [0, 0])

    def keep(self, part: Part, why: Keep) -> None:
        """Count a part that stays."""
        self.count(part.kind, part.tool, why.reason, part.chars)
        if why.until is not None:
            self.due(why.until)

    def count(self, kind: Kind, tool: str | None, reason: str, chars: int) -> None:
        """Count one value that stays."""
        counts = self._counts[kind, tool, reason]
        counts[0] += 1
        counts[1] += chars

    def never_sent(self, part: Part) -> None:
        """Count one value that no request carries, whether it stays or goes."""
        counts = self._unsent[part.kind, part.tool]
        counts[0] += 1
        counts[1] += part.chars

    def due(self, moment: float) -> None:
        """Note that a decision changes by time alone at a moment."""
        self._due.append(moment)

    @property
    def kept(self) -> tuple[KeptPart, ...]:
        """What stays, the most characters first."""
        ranked = sorted(self._counts.items(), key=lambda item: -item[1][1])
        return tuple(KeptPart(*key, *counts) for key, counts in ranked)

    @property
    def unsent(self) -> tuple[Amount, ...]:
        """What no request carries, by kind and tool."""
        return tuple(Amount(*key, *counts) for key, counts in self._unsent.items())

    @property
    def due_at(self) -> float | None:
        """The first of the moments at which a decision changes."""
        return min(self._due, default=None)


class Judge:
    """Decides about the parts of one entry after the other.

    `branches_die_at` is when an entry off the active branch counts as dead.
    """

    def __init__(
        self, form: Format, survey: Survey, rules: Rules, records: Records,
        sets: Mapping[str, Request], now: float, branches_die_at: float, frontier: Frontier,
    ) -> None:  # fmt: skip
        self.tally, self._frontier = Tally(), frontier
        self.withheld: dict[tuple[int, KeyPath], tuple[Part, Keep, str]] = {}
        self.warnings: list[str] = []
        self._form, self._survey, self._rules = form, survey, rules
        self._sets, self._pins, self._restores = sets, records.pins, records.restores
        self._now, self._branches_die_at = now, branches_die_at

    def judge(
        self, line: Line, entry: Entry, ident: str | None, standing: Iterable[Extraction],
        doubtful: Container[KeyPath] = (), taken: Container[KeyPath] = (), *, emptied: bool = False,
    ) -> list[tuple[Part, Extract]]:  # fmt: skip
        """Return the parts of an entry that are to go; the others are counted with their reasons.

        The `doubtful` among those that stay are `withheld`: only the end will tell. At the places
        that are `taken` stands another text of ours, or is to. An `emptied` entry is one of a turn
        that folds where it stands.
        """
        parts = list(self._form.parts(entry, self._survey, line.offset))
        if not parts and ident is not None and self._forced(ident):
            forced = {**entry, EXTRACTABLE: True}
            parts = list(self._form.parts(forced, self._survey, line.offset))
        if not parts:
            return []
        here = self.state(line, entry, ident, standing)
        here = replace(here, emptied=True) if emptied else here
        going: list[tuple[Part, Extract]] = []
        told = []
        for part in parts:
            if part.dead or here.dead:
                self.tally.never_sent(part)
            if part.path in taken:
                self.tally.keep(part, Keep("archived turn"))
                continue
            decision = extract(part, value_at(entry, part.path), here, self._rules, self._now)
            told.append((part, isinstance(decision, Extract)))
            if isinstance(decision, Keep) and part.path in doubtful:
                self.withheld[line.offset, part.path] = (part, decision, ident or "")
            elif isinstance(decision, Keep):
                self.tally.keep(part, decision)
            elif line.terminated:
                going.append((part, decision))
            else:
                self.tally.keep(part, Keep("the last line has no newline yet"))
        self._frontier.judged(self._form, line, entry, here, told, self._rules, self._now)
        return going

    def _forced(self, ident: str) -> bool:
        """Check whether an entry was forced by a command that its line does not show yet."""
        request = self._sets.get(ident)
        return (request.value if request else self._pins.get(ident)) is True

    def state(
        self, line: Line, entry: Entry, ident: str | None, standing: Iterable[Extraction] = ()
    ) -> EntryState:
        """Gather what an entry, its position and the store say about cutting it."""
        override, odd = read_extractable(entry)
        stamp, unusable = read_restored(entry, self._rules, self._now)
        for warning in (odd, unusable):
            if warning and len(self.warnings) < _MOST_WARNINGS:
                self.warnings.append(f"entry {ident}: {warning}")
        if ident is not None and ident in self._sets:
            override = self._sets[ident].value
        elif override is None and EXTRACTABLE not in entry and ident is not None:
            override = self._pins.get(ident)
        if type(override) is int and override > self._survey.window:
            raise WindowTooSmallError(override)
        remembered = self._restores.get(ident) if ident else None
        latest = self._now + self._rules.keep_after_restore
        stamps = [when for when in (stamp, remembered) if when is not None and when <= latest]
        return EntryState(
            ident, self._survey.position(line.offset), override, max(stamps, default=None),
            bool(entry.get(REDACTED)),
            frozenset(one.placeholder for one in standing if one.placeholder),
            self._dead(line.offset),
        )  # fmt: skip

    def _dead(self, offset: int) -> str | None:
        """Return why an entry is dead; a branch left just now may be taken up again any moment."""
        why = self._survey.dead(offset)
        if why == OFF_BRANCH and self._now < self._branches_die_at:
            self.tally.due(self._branches_die_at)
            return None
        return why


# The parts of an entry that are to go, each with its reason.
Going = list[tuple["Part", "Extract"]]


def putbacks(line: Line, raw: bytes, back: list[Extraction]) -> Iterator[Putback]:
    """Draft the edits that put values back whose placeholders stand in a line."""
    places = splice.locate(raw, [one.path for one in back]) if back else {}
    for one in back:
        start, end = _in_file(line, places[one.path])
        yield Putback(start, end, one.id, one.entry_id, one.path, one.size)


def cuts(
    line: Line, raw: bytes, entry: Entry, ident: str, going: Going, form: Format, tally: Tally
) -> Iterator[Cut]:  # fmt: skip
    """Draft the cuts of a line; what would gain nothing stays and is counted."""
    name, rest = placeholder_id(ident), form.rest(entry)
    placeholder = placeholder_named(name)
    places = splice.places(raw, entry, [part.path for part, _ in going])
    for part, decision in going:
        start, end = _in_file(line, places[part.path])
        token = part.instead or placeholder_token(placeholder, block=part.block)
        if no_gain(decision, placeholder=len(token), value=end - start):
            tally.keep(part, Keep("no gain"))
            continue
        yield Cut(
            start, end, token, ident, name, part.path, part.kind, part.tool,
            part.chars, part.block, decision.forced, decision.reason,
            anchor=form.anchor(entry, part.path), rest=rest, empties=part.instead is not None,
        )  # fmt: skip


def folded(
    line: Line, raw: bytes, entry: Entry, ident: str, fold: Fold, form: Format,
    before: Mapping[KeyPath, Extraction],
) -> Iterator[Cut]:  # fmt: skip
    """Draft what folds a turn: its last text, and in the linked form the entry that it continues.

    `before` are the records of what stands at these places.
    """
    told: list[tuple[KeyPath, str, str | None, int]] = [
        (fold.text_path, fold.text, None, len(str(value_at(entry, fold.text_path))))
    ]
    if fold.link is not None:
        told.append((LINK, fold.link, fold.parent, 0))
    places = splice.locate(raw, [path for path, *_ in told])
    rest = form.rest(entry)
    for path, new, anchor, chars in told:
        start, end = _in_file(line, places[path])
        taken = before.get(path)
        yield Cut(
            start, end, json.dumps(new).encode(), ident, placeholder_id(ident), path, "assistant",
            None, chars, block=False, forced=True, reason="archived turn",
            anchor=taken.anchor if taken else anchor, rest=rest, folds=True,
            takes_over=taken.id if taken else None,
        )  # fmt: skip


def redaction(
    line: Line, raw: bytes, entry: Entry, ident: str, gone: Iterable[Redaction], form: Format
) -> Iterator[Edit]:  # fmt: skip
    """Draft what shortens one of the agent's own calls, and the field that says so."""
    listed, rest = list(gone), form.rest(entry)
    places = splice.locate(raw, [one.path for one in listed])
    for one in listed:
        start, end = _in_file(line, places[one.path])
        yield Cut(
            start, end, one.token, ident, placeholder_id(ident), one.path, one.kind, None,
            one.chars, block=False, forced=True, reason="the agent's own restore call",
            redacts=True,
            rest=rest,
        )  # fmt: skip
    yield from splice.put(raw, line.offset, ident, REDACTED, b"true")


def _in_file(line: Line, span: Span) -> tuple[int, int]:
    return span[0] + line.offset, span[1] + line.offset


class FieldRequests:
    """The fields that stand in one session, and the requests that set or undo some."""

    def __init__(
        self, placed: Iterable[FieldRecord], requests: Iterable[Request], own: int | None
    ) -> None:
        self._own = own
        asked = list(requests)
        self.sets = {
            request.entry_id: request
            for request in asked
            if request.action == "set" and request.entry_id
        }
        self._restores = [request for request in asked if request.action == "restore"]
        self._placed: dict[str, list[FieldRecord]] = defaultdict(list)
        for record in placed:
            self._placed[record.entry_id].append(record)
        self._met: set[int] = set()
        self._missed: list[tuple[str, str]] = []

    def speak_of(self, entry_id: str) -> bool:
        """Check whether a field of this entry is set, or is asked for."""
        return entry_id in self.sets or entry_id in self._placed

    def cleans(self, ident: str, entry: Entry) -> bool:
        """Check whether an entry is to be as its agent wrote it, and marks of ours stand in it."""
        ours = RESTORED in entry or REDACTED in entry
        return ours and _newest(self._restores, ident, None) is not None

    def edits(
        self, line: Line, raw: bytes, ident: str | None, rest: bytes | None,
        back: list[Extraction], left: list[Extraction], now: float,
    ) -> list[FieldEdit]:  # fmt: skip
        """Return the fields to set on an entry, and those of ours to take out again.

        `rest` is a digest of what else its line says, None where ids are random. `back` are the
        values that are put back into it, `left` those whose place is taken still. Each field is
        edited once: where undoing and setting meet, the newer request holds. What was shortened and
        stays so goes on saying that it was.
        """
        pristine = _newest(self._restores, ident or "", None)
        chosen = self.sets.get(ident or "")
        if chosen and pristine is not None and pristine > _newness(chosen):
            chosen = None
        marked = back and pristine is None and any(self._marks(record) for record in back)
        stays = {EXTRACTABLE} if chosen else set()
        stays |= {RESTORED} if marked else set()
        stays |= {REDACTED} if any(one.redacts for one in left) else set()
        edits: list[FieldEdit] = []
        for record in self._placed.get(ident or "", ()):
            self._met.add(record.id)
            once = any(edit.name == record.name for edit in edits)  # forks have records of several
            others = record.session_id != self._own and record.rest != rest
            if others or once or record.name in stays or not self._undoes(record):
                continue
            edit = splice.take_out(
                raw,
                line.offset,
                record.entry_id,
                record.name,
                record.before,
                record.after,
                record.id,
            )
            if edit is None and record.session_id == self._own:
                self._missed.append(
                    (record.entry_id, f"{record.name} no longer stands as it was set")
                )
            elif edit is not None:
                edits.append(edit)
        if pristine is not None:
            undone = {edit.name for edit in edits} | stays
            for name in {RESTORED, REDACTED} - undone:
                edits += splice.take_out_marked(raw, line.offset, ident or "", name)
        if chosen:
            token = json.dumps(chosen.value).encode()
            edits += splice.put(raw, line.offset, ident or "", EXTRACTABLE, token)
        if marked:
            token = json.dumps(iso(now)).encode()
            edits += splice.put(raw, line.offset, ident or back[0].entry_id, RESTORED, token)
        return [edit if edit.undoes is not None else replace(edit, rest=rest) for edit in edits]

    def undoes_some(self, ident: str) -> bool:
        """Check whether all fields of an entry are to be undone, or one that stands there."""
        whole = _newest(self._restores, ident, None) is not None
        return whole or any(self._undoes(record) for record in self._placed.get(ident, ()))

    def _undoes(self, record: FieldRecord) -> bool:
        """Check whether a request undoes this field: all of its entry, or those of its run."""
        return _newest(self._restores, record.entry_id, record.run_id) is not None

    def missed(self) -> list[tuple[str, str]]:
        """Say, once the whole file was walked, which fields were to be undone and were not."""
        return self._missed + [
            (record.entry_id, f"{record.name} was set there; the entry stands nowhere any more")
            for records in self._placed.values()
            for record in records
            if record.id not in self._met and record.session_id == self._own
            and self._undoes(record)
        ]  # fmt: skip

    def _marks(self, record: Extraction) -> bool:
        """Check whether a request for this value wants `_restored` set (all but pristine ones)."""
        return any(
            not request.pristine and request.speaks_of(record.entry_id)
            for request in self._restores
        )


def _newest(requests: Iterable[Request], ident: str, run_id: int | None) -> float | None:
    """Return how new the newest request is that undoes the fields of an entry, or None.

    Those that roll back a run count for the fields of that run alone.
    """
    return max(
        (
            _newness(request)
            for request in requests
            if request.pristine and request.paths is None and request.speaks_of(ident)
            and request.rolls_back in (None, run_id)
        ),
        default=None,
    )  # fmt: skip


def _newness(request: Request) -> float:
    """Order requests by how new they are; none is newer than one that is carried out at once."""
    return math.inf if request.id is None else request.id


_UNSURE = "nobody can tell whether it is the entry that was recorded"
_OURS = re.compile(
    b"|".join(
        map(re.escape, (PLACEHOLDER_PREFIX, MARK.encode(), *(name.encode() for name in FIELDS)))
    )
)


class Ids:
    """The ids that stand in a file; where one stands twice, readers differ in which is meant.

    What stands there is asked only once all of them were met.
    """

    def __init__(self) -> None:
        self._met = array("q")
        self._known: set[int] = set()

    def meet(self, ident: str) -> None:
        """Remember an id."""
        self._met.append(hash(ident))  # of a whole file, ids would take much room

    def __contains__(self, ident: str) -> bool:
        if not self._known:  # few sessions ever ask
            self._known.update(self._met)
        return hash(ident) in self._known

    def twice(self) -> Twice:
        """Tell, once all were met, which stand there more than once."""
        ranked = array("q", sorted(self._met))
        return Twice(frozenset(one for one, other in pairwise(ranked) if one == other))


@dataclass(frozen=True, slots=True)
class Twice:
    """The ids that stand more than once in a file, by their hashes."""

    hashes: frozenset[int]

    def __contains__(self, ident: str) -> bool:
        return bool(self.hashes) and hash(ident) in self.hashes


@dataclass(slots=True)
class Draft:
    """The edits so far, in the order of the file.

    `named` are the ids of entries in whose lines something goes back that is recorded of another
    id, by the places of those edits.
    """

    edits: list[Edit] = field(default_factory=list)
    named: dict[int, str] = field(default_factory=dict)

    def add(self, ident: str | None, edits: list[Edit]) -> None:
        """Take the edits of one line."""
        for edit in sorted(edits, key=lambda one: (one.start, one.end)):
            if edit.entry_id != (ident or ""):
                self.named[edit.start] = ident or ""
            self.edits.append(edit)

    def sure(self, ids: Ids, twice: Twice, matcher: Matcher) -> tuple[list[Edit], list[Cut]]:
        """Return what still holds once the whole file is known, and the cuts that do not."""
        if not (twice.hashes or matcher.moved):
            return self.edits, []
        sure: list[Edit] = []
        vetoed: list[Cut] = []
        for edit in self.edits:
            ident = self.named.get(edit.start, edit.entry_id)
            if isinstance(edit, Putback):
                owner = matcher.moved.get(edit.extraction_id)
                if owner is None or owner not in ids or ident == owner:
                    sure.append(edit)
            elif ident not in twice:
                sure.append(edit)
            elif isinstance(edit, Cut):
                vetoed.append(edit)
        return sure, vetoed


@dataclass(slots=True)
class Findings:
    """What the walk over the lines finds out, beside the edits.

    `sighted` are the extractions that stand there; of those that are `supposed` to, the entry has
    another id than the recorded one. `waits` are the ids of entries (None: one without an id) in a
    last line that has no newline yet: what is asked for there waits. `asked` are the extractions
    whose placeholders stand and are to go, each with its entry's id; `unexplained` are placeholders
    of ours that no record puts back.
    """

    sighted: list[int] = field(default_factory=list)
    supposed: list[int] = field(default_factory=list)
    asked: dict[int, str] = field(default_factory=dict)
    unexplained: list[tuple[str, str]] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    missed: list[tuple[str, str]] = field(default_factory=list)
    waits: set[str | None] = field(default_factory=set)

    def left(self, back: set[int]) -> Iterator[tuple[str, str]]:
        """Say of each placeholder that was to go and does not, with those put `back`.

        Why it stays.
        """
        reasons = dict(self.missed)
        for ident, entry_id in self.asked.items():
            if ident not in back:
                waits = "its line has no newline yet" if entry_id in self.waits else _UNSURE
                yield entry_id, reasons.get(entry_id, waits)


@dataclass(frozen=True, slots=True)
class Mentions:
    """Tells whether a short line may hold a placeholder or field of ours, or is one asked for."""

    asked: frozenset[str]
    fields: FieldRequests
    calls: tuple[bytes, ...]

    def __call__(self, raw: bytes, ident: str | None) -> bool:
        """Tell it of a line with these bytes and the id of its entry."""
        return (
            (ident is not None and (ident in self.asked or self.fields.speak_of(ident)))
            or _OURS.search(raw) is not None
            or any(call in raw for call in self.calls)
        )
