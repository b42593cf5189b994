"""Match the stubs that stand in a session with what was recorded when they were put there."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import cache
from typing import TYPE_CHECKING

from brainsurgeon.model.entries import STUB, stands, value_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.entries import Entry, KeyPath
    from brainsurgeon.model.records import Extraction
    from brainsurgeon.model.sessions import Survey

    _Parts = frozenset[tuple[KeyPath, str, str | None]]


class Matcher:
    """Tells, entry by entry, which recorded stubs stand there.

    `foreign` collects the texts of stubs that stand where no extraction was recorded. `moved`
    collects extractions whose stub stands under another entry id, and nothing but the absence of
    the recorded id shows that it is the same entry: that is known at the end of the file only.
    """

    def __init__(self, form: Format, survey: Survey, extractions: Iterable[Extraction]) -> None:
        self.foreign: set[str] = set()
        self.moved: dict[int, str] = {}
        self._form, self._survey = form, survey
        self._by_stub: dict[str, list[Extraction]] = defaultdict(list)
        self._redacted: dict[str, list[Extraction]] = defaultdict(list)
        for one in extractions:
            if one.replacement is None:
                self._by_stub[one.stub].append(one)
            else:
                self._redacted[one.entry_id].append(one)

    @property
    def redacted(self) -> Iterable[str]:
        """The ids of the entries of which something was replaced by another text than a stub."""
        return self._redacted.keys()

    def standing(self, raw: bytes, entry: Entry, ident: str | None) -> list[Extraction]:
        """Give the newest extraction for each place of this entry where its stub stands."""
        found: dict[KeyPath, Extraction] = {}
        for one in self._redacted.get(ident or "", ()):
            if value_at(entry, one.path) == json.loads(one.replacement or "null"):
                found[one.path] = one
        parts = cache(lambda: frozenset(self._parts(entry)))  # once an entry, and only if asked
        for stub in set(STUB.findall(raw)):
            text = stub.decode()
            here = [one for one in self._by_stub[text] if self._belongs(one, entry, ident, parts)]
            found.update({one.path: one for one in here})
            if not here:
                self.foreign.add(text)
        return list(found.values())

    def _parts(self, entry: Entry) -> Iterator[tuple[KeyPath, str, str | None]]:
        for part in self._form.parts(entry, self._survey, None):
            yield part.path, part.kind, part.tool

    def _belongs(
        self, one: Extraction, entry: Entry, ident: str | None, parts: Callable[[], _Parts]
    ) -> bool:
        """Tell whether exactly this extraction's stub stands at its place in this entry.

        The place is the recorded entry and path. An agent that wrote its history anew gave the
        entry another id: then the same tool call must be named there, or, where none was, the
        recorded entry must be gone from the file (see `moved`).
        """
        if not stands(value_at(entry, one.path), one.stub, block=one.block):
            return False
        if ident == one.entry_id:
            return True
        if one.exact or self._form.anchor(entry, one.path) != one.anchor:
            return False
        if not one.block and (one.path, one.kind, one.tool) not in parts():
            return False
        if one.anchor is None:
            self.moved[one.id] = one.entry_id
        return True
