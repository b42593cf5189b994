"""Match the stubs that stand in a session with what was recorded when they were put there."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from brainsurgeon.formats import digests
from brainsurgeon.model.entries import STUB, STUB_PREFIX, stands, stub_in, stub_text, value_at
from brainsurgeon.model.turns import MARK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, KeyPath, Part
    from brainsurgeon.model.records import Extraction, Records
    from brainsurgeon.model.sessions import Survey

    _Parts = frozenset[tuple[KeyPath, str, str | None]]
MARKED = MARK.encode()
ARCHIVE = re.compile(re.escape(MARKED) + rb"\\narchive: ([A-Za-z0-9._-]{1,128})")
"""The beginning of an archive's text as it stands in a line, and the id that it names."""
_ARCHIVED = re.compile(re.escape(MARK) + r"\narchive: ([A-Za-z0-9._-]{1,128})")
TEXTS = re.compile(b"|".join(map(re.escape, (STUB_PREFIX, MARKED))))
"""The beginning of every text of ours that may stand for a value: a stub, or an archive."""
NOBODYS = "no record of this store says what stood there"
ANOTHERS = "the rest of the entry is not as recorded"
ELSEWHERE = "cut out of a session that says the same of itself, which this is not shown to be"
ARCHIVED = "an archived turn"
"""What is said in front of why the text of an archive stays."""
_Places = dict["KeyPath", list["Extraction"]]


class Matcher:
    """Tells, entry by entry, which recorded stubs stand there.

    `foreign` collects the texts of stubs that stand where no extraction was recorded. `moved`
    collects extractions whose stub stands under another entry id, and nothing but the absence of
    the recorded id shows that it is the same entry: that is known at the end of the file only.
    """

    def __init__(self, form: Format, survey: Survey, records: Records) -> None:
        self.foreign: set[str] = set()
        self.moved: dict[int, str] = {}
        self._moved_to: dict[int, str | None] = {}
        self._form, self._survey, self._own = form, survey, records.own
        self._by_stub: dict[str, list[Extraction]] = defaultdict(list)
        self._redacted: dict[str, list[Extraction]] = defaultdict(list)
        for one in records.extractions:
            if one.replacement is None:
                self._by_stub[one.stub].append(one)
            else:
                self._redacted[one.entry_id].append(one)
        self._archived = _by_text(one for one in records.extractions if one.archive_id is not None)
        self._elsewhere = _by_text(records.elsewhere)

    @property
    def redacted(self) -> Iterable[str]:
        """The ids of the entries of which something was replaced by another text than a stub."""
        return self._redacted.keys()

    def standing(self, raw: bytes, entry: Entry, ident: str | None) -> list[Extraction]:
        """Give the extraction that speaks for each place of this entry where its stub stands."""
        shortened = self._redacted.get(ident or "", ())
        if not shortened and TEXTS.search(raw) is None:
            return []
        texts = {stub.decode() for stub in STUB.findall(raw)}
        places: _Places = defaultdict(list)
        for one in shortened:
            if value_at(entry, one.path) == json.loads(one.replacement or "null"):
                places[one.path].append(one)
        parts = cache(lambda: frozenset(self._parts(entry)))  # once an entry, and only if asked
        for text in texts:
            for one in self._by_stub.get(text, ()):
                if self._belongs(one, entry, ident, parts):
                    places[one.path].append(one)
        for one in self._archives_in(raw, entry, ident):
            places[one.path].append(one)
        chosen = self._as_recorded(entry, ident, places) if places else {}
        chosen = {path: one for path, one in chosen.items() if self._met_first(one, ident)}
        self.foreign |= texts - {one.stub for one in chosen.values()}
        return list(chosen.values())

    def _archives_in(self, raw: bytes, entry: Entry, ident: str | None) -> Iterator[Extraction]:
        """Give the archives whose text stands in an entry that has a new id now.

        The text names the id that it was written under. What its link led to is gone with that.
        """
        for named in ARCHIVE.findall(raw) if MARKED in raw else ():
            for one in self._redacted.get(named.decode(), ()) if named.decode() != ident else ():
                stands_there = value_at(entry, one.path) == json.loads(one.replacement or "null")
                if one.archive_id is not None and not one.links and one.whole and stands_there:
                    self.moved[one.id] = one.entry_id
                    yield one

    def _met_first(self, one: Extraction, ident: str | None) -> bool:
        """Tell whether no earlier entry is the one that has a new id now.

        Who types or pastes a stub does so after it was put there, and what stood there before is
        known (`Extraction.exact`): so the first entry that fits is the recorded one.
        """
        if ident == one.entry_id or one.id not in self.moved:
            return True
        return self._moved_to.setdefault(one.id, ident) == ident

    def unexplained(
        self, entry: Entry, ident: str | None, standing: Iterable[Extraction]
    ) -> Iterator[tuple[str, str]]:
        """Say where in this entry something of ours stands that no record puts back, and why.

        Ours is one that names its own entry, and one that stands where a record says that a value
        of that kind stood; what was typed or pasted elsewhere is not.
        """
        explained = {one.path for one in standing}
        own = stub_text(ident) if ident else None
        for part in self._form.parts(entry, self._survey, None):
            value = value_at(entry, part.path)
            text, named = stub_in(value), _archive_in(value)
            ours = text or (value if named else None)
            if ours is None or {part.path, part.path[:-1]} & explained:
                continue
            recorded = (*self._by_stub.get(ours, ()), *self._archived.get(ours, ()))
            kind = f"{ARCHIVED}: " if named else ""
            if any(_stood_at(part, one) for one in recorded):
                yield ident or "", kind + ANOTHERS
            elif any(_stood_at(part, one) for one in self._elsewhere.get(ours, ())):
                yield ident or "", kind + ELSEWHERE
            elif ours == own or named == ident is not None:
                yield ident or "", kind + NOBODYS

    def _as_recorded(
        self, entry: Entry, ident: str | None, places: _Places
    ) -> dict[KeyPath, Extraction]:
        """Choose, for each place, the record that fits what else stands in the entry.

        A record says what the whole entry was when nothing of ours stood in it; with what stands
        there undone it must be that still. Records without that digest follow the older rule.
        """
        chosen: dict[KeyPath, Extraction] = {}
        payload = self._form.payload(entry)
        ranked = [one for listed in places.values() for one in reversed(listed)]
        ranked.sort(key=lambda one: one.session_id != self._own)
        for whole in dict.fromkeys(one.whole for one in ranked if one.whole):
            fitting = {
                path: best
                for path, listed in places.items()
                if (best := self._best([one for one in listed if one.whole == whole]))
            }
            others = {path: listed[-1] for path, listed in places.items()}
            shortened = self._shortened(entry, ident, fitting.values())
            undone = digests.undone_by((shortened | others | chosen | fitting).values())
            if undone is not None and digests.digest_of(payload, undone) == whole:
                chosen = fitting | chosen
        older = {path: listed[-1] for path, listed in places.items() if listed[-1].whole is None}
        return older | chosen

    def _shortened(
        self, entry: Entry, ident: str | None, fitting: Iterable[Extraction]
    ) -> dict[KeyPath, Extraction]:
        """Give what was replaced by another text than a stub in an entry that has a new id now."""
        return {
            other.path: other
            for recorded in {one.entry_id for one in fitting} - {ident}
            for other in self._redacted.get(recorded, ())
            if value_at(entry, other.path) == json.loads(other.replacement or "null")
        }

    def _best(self, listed: list[Extraction]) -> Extraction | None:
        """Give the one that speaks: the session's own newest, else what the others agree on."""
        if not listed or listed[-1].session_id == self._own:
            return listed[-1] if listed else None
        return listed[-1] if len({one.said for one in listed}) == 1 else None

    def _parts(self, entry: Entry) -> Iterator[tuple[KeyPath, str, str | None]]:
        for part in self._form.parts(entry, self._survey, None):
            yield part.path, part.kind, part.tool

    def _belongs(
        self, one: Extraction, entry: Entry, ident: str | None, parts: Callable[[], _Parts]
    ) -> bool:
        """Tell whether exactly this extraction's stub stands at its place in this entry.

        The place is the recorded entry and path. An agent that wrote its history anew gave the
        entry another id: then the same tool call must be named there, or, where none was, the
        recorded entry must be gone from the file (see `moved`), unless its agent appends entries
        anew and the record says what the whole of it was.
        """
        if not stands(value_at(entry, one.path), one.stub, block=one.block):
            return False
        if ident == one.entry_id:
            return True
        if one.exact or self._form.anchor(entry, one.path) != one.anchor:
            return False
        if not one.block and (one.path, one.kind, one.tool) not in parts():
            return False
        if one.anchor is None and not (self._survey.appends_anew and one.whole):
            self.moved[one.id] = one.entry_id
        return True


def _stood_at(part: Part, one: Extraction) -> bool:
    """Tell whether a value of this kind was cut out at this place."""
    return one.path in (part.path, part.path[:-1]) and (one.kind == part.kind or one.block)


def _archive_in(value: object) -> str | None:
    """Give the id that the text of an archive names, where a value is one."""
    match = _ARCHIVED.match(value) if isinstance(value, str) else None
    return match and match[1]


def _by_text(extractions: Iterable[Extraction]) -> dict[str, list[Extraction]]:
    """Give extractions by what stands for them: a stub, or what an archive says."""
    found: dict[str, list[Extraction]] = defaultdict(list)
    for one in extractions:
        archived = one.archive_id is not None and one.replacement
        found[json.loads(archived) if archived else one.stub].append(one)
    return found
