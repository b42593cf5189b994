"""Match the placeholders in a session's file with the extractions that they stand for.

A placeholder names its value, so that only this file is looked at. It is ours where a record has
its text and its place in the entry, the value there has the recorded kind, and the entry is the
recorded one: it has the recorded id, or it belongs to the recorded tool call. Agents write their
histories anew under new ids: a part of no tool call may stand in another entry of a session with
the recorded session id. Where the record is of another session, or says no tool call, the recorded
id may stand nowhere in the file. What somebody typed, or a tool printed, fails this and is left
alone.

Where entry ids are not random, another store may have given out the same text. There the rest of
the line has to be as recorded as well.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse
from brainsurgeon.model.entries import (
    ID,
    PLACEHOLDER,
    PLACEHOLDER_PREFIX,
    is_own_placeholder,
    placeholder_id,
    placeholder_in,
    stands,
    unnumbered,
    value_at,
)
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.model.turns import MARK
from brainsurgeon.planning.signatures import UNFIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, KeyPath, Part
    from brainsurgeon.model.records import Extraction, Records
    from brainsurgeon.model.sessions import Survey

    _Parts = frozenset[tuple[KeyPath, str, str | None]]

    from brainsurgeon.formats.base import Answer
    from brainsurgeon.model.entries import KeyPath, Kind, Lines
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Request
    from brainsurgeon.planning.drafts import Findings


MARKED = MARK.encode()
# The beginning of an archive's text as it stands in a line, and the id that it names.
ARCHIVE = re.compile(re.escape(MARKED) + rb"\\narchive: (" + ID.encode() + rb")")
_ARCHIVED = re.compile(re.escape(MARK) + rf"\narchive: ({ID})")
# The beginning of every text of ours that names a value: a placeholder, or an archive.
TEXTS = re.compile(b"|".join(map(re.escape, (PLACEHOLDER_PREFIX, MARKED))))
NOBODYS = "no record of this store says what stood there"
ANOTHERS = "the entry is not the recorded one"
SEVERAL = "several extractions may have stood there"
# Said before the reason why the text of an archive stays.
ARCHIVED = "an archived turn"
_Places = dict["KeyPath", list["Extraction"]]


class Matcher:
    """Tells, entry by entry, which extractions stand there.

    `foreign` collects the placeholders that are a whole value where no record has them; one in the
    midst of a text, such as a command that restores it, stands for nothing. `moved` collects, by
    extraction, the recorded ids of entries that stand under another id: whether the recorded id
    stands in the file, too, is known at its end only.
    """

    def __init__(self, form: Format, survey: Survey, records: Records) -> None:
        self.foreign: set[str] = set()
        self.moved: dict[int, str] = {}
        self._moved_to: dict[int, str | None] = {}
        self._form, self._survey, self._records = form, survey, records
        self._by_placeholder: dict[str, list[Extraction]] = defaultdict(list)
        self._replaced: dict[str, list[Extraction]] = defaultdict(list)
        self._archives: dict[str, list[Extraction]] = defaultdict(list)
        for one in records.extractions:
            if one.replacement is None:
                self._by_placeholder[one.placeholder].append(one)
            else:
                self._replaced[one.entry_id].append(one)
                if one.archive_id is not None:
                    self._archives[one.name].append(one)

    @property
    def redacted(self) -> Iterable[str]:
        """The ids of the entries of which something was replaced by no placeholder."""
        return self._replaced.keys()

    def standing(self, raw: bytes, entry: Entry, ident: str | None) -> list[Extraction]:
        """Return the extraction that stands at each place of an entry where one does."""
        replaced = self._replaced.get(ident or "", ())
        if not replaced and TEXTS.search(raw) is None:
            return []
        texts = {placeholder.decode() for placeholder in PLACEHOLDER.findall(raw)}
        places: _Places = defaultdict(list)
        for one in replaced:
            if _stands_replaced(entry, one) and self._rest_agrees(one, entry):
                places[one.path].append(one)
        parts = cache(lambda: frozenset(self._parts(entry)))  # once an entry, and only if asked
        for text in texts:
            for one in self._by_placeholder.get(text, ()):
                if self._belongs(one, entry, ident, parts):
                    places[one.path].append(one)
        for one in self._archives_in(raw, entry, ident):
            places[one.path].append(one)
        archives = {one.archive_id for listed in places.values() for one in listed if not one.links}
        picked = (self._chosen(_linked(listed, archives)) for listed in places.values())
        chosen = [one for one in picked if one is not None and self._met_first(one, ident)]
        others = texts - {one.placeholder for one in chosen}
        if others:
            values = (value_at(entry, path) for path, _, _ in parts())
            self.foreign |= others & {placeholder_in(value) for value in values}
        return chosen

    def unexplained(
        self, entry: Entry, ident: str | None, standing: Iterable[Extraction]
    ) -> Iterator[tuple[str, str]]:
        """Yield the entry's id and a reason for each part of ours that no record can restore.

        Ours is a placeholder or an archive that names its own entry, and one that stands where a
        record says that a value of that kind stood; what was typed or pasted elsewhere is not.
        """
        explained = {one.path for one in standing}
        for part in self._form.parts(entry, self._survey, None):
            value = value_at(entry, part.path)
            text, named = placeholder_in(value), _archive_in(value)
            if (not text and named is None) or {part.path, part.path[:-1]} & explained:
                continue
            recorded = self._by_placeholder.get(text or "", ()) or self._archives.get(
                named or "", ()
            )
            kind = f"{ARCHIVED}: " if named else ""
            if any(_stood_at(part, one) for one in recorded):
                yield ident or "", kind + ANOTHERS
            elif ident is not None and (
                is_own_placeholder(text, ident)
                or (named is not None and unnumbered(named) == placeholder_id(ident))
            ):
                yield ident, kind + NOBODYS
        for one in self._undecided(entry, ident):
            yield one.entry_id, SEVERAL

    def _undecided(self, entry: Entry, ident: str | None) -> Iterator[Extraction]:
        """Yield one extraction of each place where several values may have been replaced."""
        places: _Places = defaultdict(list)
        for one in self._replaced.get(ident or "", ()):
            if one.archive_id is None and _stands_replaced(entry, one):
                places[one.path].append(one)
        yield from (listed[0] for listed in places.values() if self._chosen(listed) is None)

    def _archives_in(self, raw: bytes, entry: Entry, ident: str | None) -> Iterator[Extraction]:
        """Yield the archives whose text stands in an entry that has a new id now.

        The text names the id that it was written under. Its link led by ids that are gone.
        """
        for named in ARCHIVE.findall(raw) if MARKED in raw else ():
            for one in self._archives.get(named.decode(), ()):
                known_session = one.session_id in self._records.alike
                if one.entry_id == ident or one.links or not known_session:
                    continue
                if _stands_replaced(entry, one) and self._rest_agrees(one, entry):
                    self.moved[one.id] = one.entry_id
                    yield one

    def _met_first(self, one: Extraction, ident: str | None) -> bool:
        """Check that no earlier entry is the one that has a new id now.

        Who types or pastes a placeholder does so after it was put there: a text that stood in the
        file before was never given out (`Plan.foreign`).
        """
        if ident == one.entry_id or one.id not in self.moved:
            return True
        return self._moved_to.setdefault(one.id, ident) == ident

    def _chosen(self, listed: list[Extraction]) -> Extraction | None:
        """Return the record that speaks for a place: the session's own newest, else the newest.

        All records of one placeholder name the same value. Without a placeholder several values
        may have stood there; then only a record of this session decides. Where the value of that
        record expired, another may still hold the same.
        """
        own = [one for one in listed if one.session_id == self._records.own]
        placed = [one for one in listed if one.id in self._records.placed]
        named = listed[-1].replacement is None or listed[-1].archive_id is not None
        if not (own or placed or named) and len({one.digest for one in listed}) > 1:
            return None
        newest = (own or placed or listed)[-1]
        alike = (one for one in (newest, *reversed(listed)) if one.digest == newest.digest)
        return next((one for one in alike if one.blob_id is not None), newest)

    def _parts(self, entry: Entry) -> Iterator[tuple[KeyPath, str, str | None]]:
        for part in self._form.parts(entry, self._survey, None):
            yield part.path, part.kind, part.tool

    def _belongs(
        self, one: Extraction, entry: Entry, ident: str | None, parts: Callable[[], _Parts]
    ) -> bool:
        """Check whether exactly this extraction's placeholder stands at its place in this entry."""
        if not stands(value_at(entry, one.path), one.placeholder, block=one.block):
            return False
        if not self._rest_agrees(one, entry):
            return False
        if ident == one.entry_id:
            return True
        if self._form.anchor(entry, one.path) != one.anchor:
            return False
        if not one.block and (one.path, one.kind, one.tool) not in parts():
            return False
        if one.anchor is None and one.session_id not in self._records.alike:
            return False
        held_here = one.session_id == self._records.own or one.id in self._records.placed
        if one.anchor is not None and held_here:  # its agent branched, or wrote it anew
            return True
        if not self._survey.appends_anew:  # else the recorded entry may stand there as well
            self.moved[one.id] = one.entry_id
        return True

    def _rest_agrees(self, one: Extraction, entry: Entry) -> bool:
        return one.rest is None or self._form.rest(entry) == one.rest


def _stands_replaced(entry: Entry, one: Extraction) -> bool:
    """Check whether an entry has exactly what was put in the place of a value without a name."""
    return bool(value_at(entry, one.path) == json.loads(one.replacement or "null"))


def _linked(listed: list[Extraction], archives: set[int | None]) -> list[Extraction]:
    """Return the records of a place; of an archive's link only the one whose text stands there."""
    named = [one for one in listed if not one.links or one.archive_id in archives]
    return named or listed


def _stood_at(part: Part, one: Extraction) -> bool:
    """Check whether a value of this kind was extracted from this place."""
    return one.path in (part.path, part.path[:-1]) and (one.kind == part.kind or one.block)


def _archive_in(value: object) -> str | None:
    """Return the id that the text of an archive names, None where a value is no archive."""
    match = _ARCHIVED.match(value) if isinstance(value, str) else None
    return match and match[1]


_NO_TURN = "only its text went back: the turn itself does not stand in this session"


class Restores:
    """The requests of one session to put values back; hand it every id that is met on the walk.

    `everything` says that one of them means the whole session, `pristine` that all of it is to be
    as the agent wrote it, seals included. Taking a run back is neither.
    """

    def __init__(self, records: Records, found: Findings) -> None:
        self.requests = [request for request in records.requests if request.action == "restore"]
        whole = [one for one in self.requests if one.entry_id is None and not one.rolls_back]
        self.everything = bool(whole)
        self.pristine = any(request.pristine and request.paths is None for request in whole)
        self.named = {request.entry_id for request in self.requests}
        self._found = found
        self._continued = {one.anchor for one in records.extractions if one.links}
        self._met: set[str] = set()
        self._archives = {
            (one.entry_id, one.path) for one in records.extractions if one.archive_id is not None
        }

    def meet(self, ident: str) -> None:
        """Remember that an entry stands that the closing entry of an archive once continued."""
        if ident in self._continued:
            self._met.add(ident)

    def back(
        self, standing: list[Extraction], unfit_of: Callable[[list[Extraction]], list[Extraction]]
    ) -> list[Extraction]:
        """Return the values of an entry that are to go back, without seals that fit no more.

        `unfit_of` tells which of values that go back are such seals.
        """
        if not standing:
            return []
        back = [one for one in standing if self.wants(one)]
        unfit = unfit_of(back)
        if self.pristine:
            return back
        self._found.missed += [(one.entry_id, UNFIT) for one in unfit if one.entry_id in self.named]
        return [one for one in back if one not in unfit]

    def wants(self, one: Extraction) -> bool:
        """Check whether a value is to go back, and can.

        The link of an archive can only where the entry that was continued stands: a fork has no
        more than the active branch.
        """
        asked = any(self._means(request, one) for request in self.requests)
        if asked and one.links and one.anchor not in self._met:
            if one.entry_id in self.named:
                self._found.missed.append((one.entry_id, _NO_TURN))
            return False
        lost = "expired" if one.blob_id is None else "damaged in the store" if one.damaged else ""
        if asked and lost:
            self._found.missed.append((one.entry_id, lost))
        return asked and not lost

    def _means(self, request: Request, one: Extraction) -> bool:
        """Check whether a request means a value; the two of an archive only go back together."""
        if one.archive_id is None or request.paths is None:
            return request.wants(one)
        return request.speaks_of(one.entry_id) and any(
            (one.entry_id, path) in self._archives for path in request.paths
        )


# A call is recognised by its answer alone: the request recorded the random id that the answer
# carries, so that it is found inside a longer output, too. What the host called the tool does not
# matter, and a tool that merely happens to be called restore is never touched.


# What a call of our own tool says that it wants; a call with another action is somebody else's.
ACTIONS = frozenset({"restore", "restore_remote"})


@dataclass(frozen=True, slots=True)
class Redaction:
    """One value that gives way: its path, the token that stands in for it, and its length."""

    path: KeyPath
    token: bytes
    chars: int
    kind: Kind


@dataclass(frozen=True, slots=True)
class OwnCalls:
    """What was recognised in a session: answers by the id of their entry, calls by their id.

    `requests` are the requests whose answer was found.
    """

    answers: dict[str, list[tuple[Answer, str]]] = field(default_factory=dict)
    calls: dict[str, str] = field(default_factory=dict)
    requests: set[int | None] = field(default_factory=set)


def _answered(
    asked: dict[str, Request], answer: Answer, entry: Entry, form: Format
) -> tuple[Request, Answer] | None:
    """Take out the request that a text answers; give it, and the text with every copy of it."""
    ident = next((one for one in asked if one in answer.text), None)
    if ident is None:
        return None
    copies = tuple(
        part.path
        for part in form.parts(entry, NO_SURVEY, None)
        if part.path != answer.path and ident in str(value_at(entry, part.path))
    )
    return asked.pop(ident), replace(answer, copies=copies)


def find_own_calls(lines: Lines, form: Format, requests: Iterable[Request]) -> OwnCalls:
    """Look through a session for the answers that requests name, and for the calls they answer.

    A result that does not name its call answers the call that stands before it.
    """
    asked = {
        request.answer.decode(): request
        for request in requests
        if request.action == "redact" and request.answer
    }
    own = OwnCalls()
    if not asked:
        return own
    last_call = None
    for line in lines:
        entry = parse(line.raw) if line.raw else None
        if entry is None or line.raw is None:
            continue
        ident = form.identity(entry, line.raw, line.number)
        for call in form.calls(entry):
            last_call = call.call_id or ident
        if ident is None:
            continue
        for one in form.answers(entry):
            known = _answered(asked, one, entry, form)
            if known is None:
                continue
            request, answer = known
            wanted = request.entry_id or ""
            own.requests.add(request.id)
            own.answers.setdefault(ident, []).append((answer, wanted))
            call_id = answer.call_id or last_call
            if call_id:
                own.calls[call_id] = wanted
    return own


def redactions(
    entry: Entry, ident: str, form: Format, own: OwnCalls
) -> tuple[list[Redaction], bool]:
    """Return what gives way in one entry, and whether the entry is one of our own calls at all.

    The result becomes one short line. The call keeps its id and name and, where its arguments
    are those of our tool, only action and entry; a shell command stays as it is, and what its
    provider signed.
    """
    if not (own.answers or own.calls):
        return [], False
    listed = []
    for answer, wanted in own.answers.get(ident, ()):
        token = json.dumps(f"Restored {wanted}.").encode()
        listed += [
            Redaction(path, token, len(answer.text), "tool_result")
            for path in (answer.path, *answer.copies)
        ]
    ours = bool(listed)
    for call in form.calls(entry):
        asked_for = own.calls.get(call.call_id or ident)
        if asked_for is None:
            continue
        ours = True
        short = {"action": "restore", "entry": asked_for}
        ours_to_cut = call.arguments.get("action") in ACTIONS and not call.signed
        if ours_to_cut and call.arguments != short:
            said = json.dumps(short, separators=(",", ":"))
            token = (json.dumps(said) if call.as_text else said).encode()
            listed.append(Redaction(call.path, token, len(str(call.arguments)), "tool_call"))
    return listed, ours


def ended(
    planned: Plan, unanswered: list[Request], changed_at: float, now: float, patience: float
) -> Plan:
    """Add which redactions end without an answer, and when to look for the others again."""
    over = [
        request for request in unanswered
        if request.asked_at < changed_at or request.asked_at + patience <= now
    ]  # fmt: skip
    due = [request.asked_at + patience for request in unanswered if request not in over]
    if planned.due_at is not None:
        due.append(planned.due_at)
    ids = tuple(request.id for request in over if request.id is not None)
    return replace(planned, unanswered=ids, due_at=min(due, default=None))
