"""Match the placeholders in a session's file with the recorded extractions.

A placeholder contains the name of its value, so no other file is read. It is ours if a record has
its text and path, and the entry has the recorded id. If entry ids are not random, the rest of the
line has to match the record, too. A placeholder that a user typed or a tool printed is left alone.

Agents rewrite their histories with new entry ids. In an entry with another id, a placeholder is
ours if tool call and kind match the record. For blocks, the kind does not matter. Without a call,
the session id must match. The recorded entry must be gone, except in databases, and except for
values of a call that were extracted or last seen in this session.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.formats.base import Format, ParsedLine, is_generated
from brainsurgeon.formats.marks import TEXTS, token_digest
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import (
    REDACTED,
    KeyPath,
    Line,
    Value,
    placeholder_id,
    placeholder_named,
    unnumbered,
)
from brainsurgeon.model.plans import Unrestored
from brainsurgeon.model.records import Extraction, Records
from brainsurgeon.model.transcript import Marks

NO_RECORD = "the store has no record of this value"
OTHER_AGENT = (
    "the value belongs to another agent, whose entries are numbered like these; "
    "if this session was moved, move it back"
)
OTHER_ENTRY = "the entry is not the recorded entry"
EXPIRED = "the value expired"
SEVERAL = "several values may have been there"
_ByPath = dict[KeyPath, list[Extraction]]


class Matches(Struct):
    """What of ours is in a session, by the records. Rules do not matter for it."""

    # Extracted values by the index of their entry.
    standing: dict[int, list[Extraction]] = field(default_factory=dict)
    # Those in a copy of their entry (index, id of the value): the recorded entry is there, too.
    copies: set[tuple[int, int]] = field(default_factory=set)
    saved: int = 0  # tokens
    foreign: set[str] = field(default_factory=set)  # placeholders that match no record
    typed: int = 0  # texts that only look like placeholders
    # Indexes of entries, one for each placeholder or archive whose value the store does not have.
    lost: list[int] = field(default_factory=list)
    # Entries with places whose value cannot be restored, and why.
    unexplained: list[Unrestored] = field(default_factory=list)

    def in_place(self) -> Iterator[Extraction]:
        """Yield the extracted values without those in copies."""
        return (
            value for index, standing in self.standing.items()
            for value in standing if (index, value.id) not in self.copies
        )  # fmt: skip


def find(transcript: Transcript, records: Records, parsed: Callable[[int], ParsedLine]) -> Matches:
    """Look for the recorded extractions in all entries. `parsed` reads the line of one again."""
    matcher = _Matcher(transcript, records, parsed)
    for index, entry in enumerate(transcript.entries):
        if entry.marks or entry.ident in matcher.replaced:
            matcher.look(index)
    return matcher.found


def count_lost(lines: Iterable[Line], form: Format) -> int:
    """Count the placeholders and archives in lines whose values only a lost store can have."""
    ours = Transcript.read(form, (line for line in lines if line.raw and TEXTS.search(line.raw)))
    return len(find(ours, Records(), _nothing).lost)


def _nothing(_: int) -> ParsedLine:
    raise LookupError


class _Matcher:
    """Finds the recorded extractions, entry by entry."""

    def __init__(
        self, transcript: Transcript, records: Records, parsed: Callable[[int], ParsedLine]
    ) -> None:
        self.found = Matches()
        # Values found in another entry, by id, and the first such entry.
        self._moved: dict[int, str | None] = {}
        self._transcript, self._records, self._parsed = transcript, records, parsed
        # All values by name; those with a `replacement` also by entry id.
        self._named: dict[str, list[Extraction]] = defaultdict(list)
        self.replaced: dict[str | None, list[Extraction]] = defaultdict(list)
        self._digests: dict[int, bytes] = {}
        for record in records.extractions:
            self._named[record.name].append(record)
            if record.replacement is not None:
                self.replaced[record.entry_id].append(record)
        # Reads the values of an entry at most once.
        self._values = lru_cache(1)(
            lambda index: {value.path: value for value in transcript.values(index)}
        )

    @cached_property
    def _indexes(self) -> dict[str | None, int]:
        return {entry.ident: index for index, entry in enumerate(self._transcript.entries)}

    def _is_there(self, record: Extraction) -> bool:
        """Check whether the recorded entry is there. A generated id only says where it was."""
        index = self._indexes.get(record.entry_id)
        return index is not None and (
            not is_generated(record.entry_id) or self._is_in(record, index)
        )

    def look(self, index: int) -> None:
        """Note what of ours is in an entry."""
        ident, found = self._transcript.entries[index].ident, self.found
        if standing := list(self._standing(index)):
            found.standing[index] = standing
        for record in standing:
            if index not in self._transcript.chain.dead:
                found.saved += record.tokens
            moved = record.id in self._moved and record.entry_id != ident
            if moved and self._is_there(record):
                found.copies.add((index, record.id))
        self._explain(index, standing)

    def _standing(self, index: int) -> Iterator[Extraction]:
        """Yield the extracted values of an entry."""
        entry = self._transcript.entries[index]
        candidates: _ByPath = defaultdict(list)
        for record in self.replaced.get(entry.ident, ()):
            if self._matches(record, index):
                candidates[record.path].append(record)
        for name in entry.marks.names if entry.marks else ():
            for recorded in self._named.get(name, ()):
                record = self._located(recorded, index)
                if record.replacement is None and self._belongs(record, index):
                    candidates[record.path].append(record)
        for record in self._archives_in(index):
            candidates[record.path].append(record)
        archives = {
            record.archive_id for at in candidates.values() for record in at if not record.is_link
        }
        for at in candidates.values():
            # Prefer the link of the archive whose text is in the entry.
            fitting = [one for one in at if not one.is_link or one.archive_id in archives] or at
            chosen = self._chosen(fitting)
            if chosen is None:
                self.found.unexplained.append(Unrestored(at[0].entry_id, SEVERAL))
            elif self._is_first(chosen, entry.ident):
                yield chosen

    def _explain(self, index: int, standing: list[Extraction]) -> None:
        """Note the placeholders and archives of an entry that are not `standing`, and why.

        One counts only if it names the entry that contains it, or if the store has a record with
        the same name, path and kind: others were typed or pasted.
        """
        entry, found = self._transcript.entries[index], self.found
        explained = {one.path for one in standing}
        named = {
            (one.name, one.is_archive) for one in standing if one.placeholder or one.is_archive
        }
        for path, (name, archived) in entry.marks.named.items() if entry.marks else ():
            places = {path, path[:-1]}
            if places & explained:
                continue
            value = self._values(index).get(path)
            recorded = [
                record for record in self._named.get(name, ())
                if record.path in places and self._may_be(record, value)
            ]  # fmt: skip
            if value is None and not recorded:
                continue
            other = (name, archived) not in named
            if other and not archived:
                found.foreign.add(placeholder_named(name))
            own = entry.ident is not None and unnumbered(name) == placeholder_id(entry.ident)
            if not (recorded or own):
                found.typed += other and not archived
                continue
            why = OTHER_AGENT if name in self._records.others.names else NO_RECORD
            if recorded:
                stored = any(record.blob_id is not None for record in recorded)
                why = OTHER_ENTRY if stored else EXPIRED
            if other and why in (NO_RECORD, EXPIRED):
                found.lost.append(index)
            found.unexplained.append(Unrestored(entry.ident or "", why, is_archive=archived))

    def _may_be(self, record: Extraction, value: Value | None) -> bool:
        """Check whether the value at a record's path may be the recorded one."""
        if value and (record.kind == value.kind or record.block):
            return True
        # A log may be described otherwise since.
        return record.session_id == self._records.own and not self._is_there(record)

    def _archives_in(self, index: int) -> Iterator[Extraction]:
        """Yield the archives whose text is in an entry with a new id."""
        entry = self._transcript.entries[index]
        for name in entry.marks.archives if entry.marks else ():
            for record in self._named.get(name, ()):
                seen_here = record.id in self._records.last_placed
                known = seen_here or record.session_id in self._records.same_identity
                if record.entry_id == entry.ident or not (record.is_archive and known):
                    continue
                if self._matches(record, index):
                    self._moved.setdefault(record.id, entry.ident)
                    yield record

    def _is_first(self, record: Extraction, ident: str | None) -> bool:
        """Check that no earlier entry with a new id contains the same extraction."""
        # The first is ours. A copy that somebody typed is further down, because the store never
        # assigns a placeholder that is already in the file (`FoundPlaceholders.foreign`).
        return ident == record.entry_id or self._moved.get(record.id, ident) == ident

    def _chosen(self, listed: list[Extraction]) -> Extraction | None:
        """Return the record of the value at a path, or None if it is ambiguous.

        Prefer the newest record of this session, then of those last seen in it. Otherwise,
        different values are ambiguous unless the text names one. Instead of an expired value,
        return an equal stored one.
        """
        own = [record for record in listed if record.session_id == self._records.own]
        placed = [record for record in listed if record.id in self._records.last_placed]
        named = listed[-1].replacement is None or listed[-1].archive_id is not None
        if not (own or placed or named) and len({record.digest for record in listed}) > 1:
            return None
        newest = (own or placed or listed)[-1]
        equal = (one for one in (newest, *reversed(listed)) if one.digest == newest.digest)
        return next((record for record in equal if record.blob_id is not None), newest)

    def _belongs(self, record: Extraction, index: int) -> bool:
        if not self._matches(record, index):
            return False
        if (ident := self._transcript.entries[index].ident) == record.entry_id:
            return True
        value = self._values(index).get((*record.path, "text") if record.block else record.path)
        if (value.call if value else None) != record.call:
            return False
        same = value is not None and (value.kind, value.tool) == (record.kind, record.tool)
        if not (record.block or same):
            return False
        own = record.session_id == self._records.own or record.id in self._records.last_placed
        same = record.session_id in self._records.same_identity or (
            own and is_generated(record.entry_id)  # a log without ids may have no session id, too
        )
        if record.call is None and not same:
            return False
        if record.call is not None and own:  # the agent made a branch or rewrote the entry
            return True
        if not self._transcript.form.appends_anew:
            self._moved.setdefault(record.id, ident)  # counts only if the recorded entry is gone
        return True

    def _located(self, record: Extraction, index: int) -> Extraction:
        # When Claude Code forks a session, it may join several results in one message. When Codex
        # migrates one, it writes other events for it.
        if record.call is None or record.block or self._is_in(record, index):
            return record
        unnamed = self._transcript.form.wrappers

        def names(path: KeyPath) -> list[str | bool]:
            return [isinstance(step, int) or step for step in path if step not in unnamed]

        wanted = names(record.path)
        for path, value in self._values(index).items():
            moved = replace(record, path=path)
            if names(path) == wanted and self._is_in(moved, index) and value.call == record.call:
                return moved
        return record

    def _matches(self, record: Extraction, index: int) -> bool:
        entry = self._transcript.entries[index]
        if entry.ident != record.entry_id and record.session_id in self._records.others.sessions:
            return False
        return self._is_in(record, index) and record.rest in (None, entry.rest)

    def _is_in(self, record: Extraction, index: int) -> bool:
        """Check whether what replaced a value is at its path."""
        entry = self._transcript.entries[index]
        if record.is_link:
            return bool(entry.parent == json.loads(record.replacement or ""))
        marks = entry.marks or _UNMARKED
        if record.is_redacted and REDACTED not in marks.fields:  # the agent dropped the field
            return record.is_in(self._parsed(index).entry)
        if record.path not in marks.stands:
            return False
        if record.id not in self._digests:
            self._digests[record.id] = token_digest(record.token)
        return marks.stands[record.path] == self._digests[record.id]


_UNMARKED = Marks()


def marked(transcript: Transcript) -> tuple[set[str], set[str]]:
    """Return the names and the entry ids by which to look up the records of a session."""
    names, entries = set[str](), set[str]()
    for entry in transcript.entries:
        if (marks := entry.marks) is None:
            continue
        names.update(marks.names, marks.archives)
        if entry.ident is not None:
            names.add(placeholder_id(entry.ident))  # of values with a `replacement`
            if marks.fields:
                entries.add(entry.ident)
    return names, entries
