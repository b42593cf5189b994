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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import splice
from brainsurgeon.formats.base import Format, ParsedLine, dict_or_empty
from brainsurgeon.formats.marks import TEXTS, token_digest
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.model.entries import (
    REDACTED,
    KeyPath,
    Kind,
    Line,
    Value,
    placeholder_id,
    placeholder_named,
    unnumbered,
    value_at,
)
from brainsurgeon.model.plans import Edit, Removal
from brainsurgeon.model.records import Extraction, PrintedAnswer, Records, Request
from brainsurgeon.model.transcript import Entry, Marks
from brainsurgeon.planning.signatures import UNFIT
from brainsurgeon.planning.snapshot import Snapshot

NO_RECORD = "the store has no record of this value"
OTHER_AGENT = (
    "the value belongs to another agent, whose entries are numbered like these; "
    "if this session was moved, move it back"
)
OTHER_ENTRY = "the entry is not the recorded entry"
EXPIRED = "the value expired"
SEVERAL = "several values may have been there"
TURN = "an archived turn: "  # before the reason
_NO_TURN = "only its text was restored: the turn itself is not in this session"
_ByPath = dict[KeyPath, list[Extraction]]
_Parts = Callable[[], dict[KeyPath, Value]]


class Matcher:
    """Finds the recorded extractions in each entry.

    `foreign` collects placeholders that match no record in their entry. `moved` maps ids of
    extractions found in another entry to the recorded entry id: they count only if that entry is
    gone. `typed` counts placeholders that somebody typed or pasted. `lost` has the index of an
    entry for each placeholder or archive in it whose value the store does not have.
    """

    def __init__(
        self, transcript: Transcript, records: Records, parsed: Callable[[int], ParsedLine]
    ) -> None:
        self.foreign: set[str] = set()
        self.moved: dict[int, str] = {}
        self.typed = 0
        self.lost: list[int] = []
        # True if the entry of the last call of `standing` names values that it did not return.
        self.names_others = False
        self._moved_to: dict[int, str | None] = {}
        self._transcript, self._records, self._parsed = transcript, records, parsed
        # All values by name; those with a `replacement` also by entry id.
        self._named: dict[str, list[Extraction]] = defaultdict(list)
        self.replaced: dict[str, list[Extraction]] = defaultdict(list)
        self._digests: dict[int, bytes] = {}
        for value in records.extractions:
            self._named[value.name].append(value)
            if value.replacement is not None:
                self.replaced[value.entry_id].append(value)

    def standing(self, index: int) -> list[Extraction]:
        entry = self._transcript.entries[index]
        ident, marks = entry.ident, entry.marks or _UNMARKED
        replaced = self.replaced.get(ident or "", ())
        self.names_others = False
        if not (replaced or marks.names or marks.archives):
            return []
        candidates: _ByPath = defaultdict(list)
        for value in replaced:
            if self._matches(value, index):
                candidates[value.path].append(value)
        # At most once for each entry.
        parts = cache(lambda: {part.path: part for part in self._transcript.values(index)})
        for name in marks.names:
            for recorded in self._named.get(name, ()):
                value = self._located(recorded, index, parts)
                if value.replacement is None and self._belongs(value, index, parts):
                    candidates[value.path].append(value)
        for value in self._archives_in(index):
            candidates[value.path].append(value)
        archives = {
            value.archive_id for at in candidates.values() for value in at if not value.is_link
        }
        # Prefer the link of the archive whose text is in the entry.
        picked = (
            self._chosen([one for one in at if not one.is_link or one.archive_id in archives] or at)
            for at in candidates.values()
        )
        chosen = [value for value in picked if value is not None and self._is_first(value, ident)]
        others = set(marks.names) - {value.name for value in chosen if value.placeholder}
        self.names_others = bool(others or {*marks.archives} - {value.name for value in chosen})
        if others:
            whole = (marks.named.get(path, ("", True)) for path in parts())
            self.foreign |= {
                placeholder_named(name) for name, archived in whole
                if name in others and not archived
            }  # fmt: skip
        return chosen

    def unexplained(self, index: int, standing: Iterable[Extraction]) -> Iterator[tuple[str, str]]:
        """Yield entry id and reason for each place whose extracted value cannot be restored.

        A placeholder or archive counts only if it names the entry that contains it, or if the store
        has a record with the same name, path and kind: others were typed or pasted. It is noted in
        `lost` if the store has no value for it.
        """
        entry = self._transcript.entries[index]
        ident, marks = entry.ident, entry.marks or _UNMARKED
        explained = {value.path for value in standing}
        for part in self._transcript.values(index) if marks.named else ():
            places = {part.path, part.path[:-1]}
            if part.path not in marks.named or places & explained:
                continue
            name, archived = marks.named[part.path]
            recorded = [
                record for record in self._named.get(name, ())
                if record.path in places and (record.kind == part.kind or record.block)
            ]  # fmt: skip
            if recorded or (ident is not None and unnumbered(name) == placeholder_id(ident)):
                why = OTHER_AGENT if name in self._records.others.names else NO_RECORD
                if recorded:
                    stored = any(record.blob_id is not None for record in recorded)
                    why = OTHER_ENTRY if stored else EXPIRED
                if why in (NO_RECORD, EXPIRED):
                    self.lost.append(index)
                yield ident or "", TURN + why if archived else why
            else:
                self.typed += not archived
        replaced: _ByPath = defaultdict(list)
        for record in self.replaced.get(ident or "", ()):
            if record.archive_id is None and self._is_in(record, index):
                replaced[record.path].append(record)
        for records in replaced.values():
            if self._chosen(records) is None:
                yield records[0].entry_id, SEVERAL

    def _archives_in(self, index: int) -> Iterator[Extraction]:
        """Yield the archives whose text is in an entry with a new id."""
        entry = self._transcript.entries[index]
        for name in entry.marks.archives if entry.marks else ():
            for value in self._named.get(name, ()):
                seen_here = value.id in self._records.last_sighted
                known = seen_here or value.session_id in self._records.same_identity
                if value.entry_id == entry.ident or value.is_link or not known:
                    continue
                if value.archive_id is not None and self._matches(value, index):
                    self.moved[value.id] = value.entry_id
                    yield value

    def _is_first(self, value: Extraction, ident: str | None) -> bool:
        """Check that no earlier entry with a new id contains the same `moved` extraction."""
        # The first is ours. A copy that somebody typed is further down, because the store never
        # assigns a placeholder that is already in the file (`Sightings.foreign`).
        if ident == value.entry_id or value.id not in self.moved:
            return True
        return self._moved_to.setdefault(value.id, ident) == ident

    def _chosen(self, listed: list[Extraction]) -> Extraction | None:
        """Return the record of the value at a path, or None if it is ambiguous.

        Prefer the newest record of this session, then of those last seen in it. Otherwise,
        different values are ambiguous unless the text names one. Instead of an expired value,
        return an equal stored one.
        """
        own = [value for value in listed if value.session_id == self._records.own]
        sighted = [value for value in listed if value.id in self._records.last_sighted]
        named = listed[-1].replacement is None or listed[-1].archive_id is not None
        if not (own or sighted or named) and len({value.digest for value in listed}) > 1:
            return None
        newest = (own or sighted or listed)[-1]
        equal = (value for value in (newest, *reversed(listed)) if value.digest == newest.digest)
        return next((value for value in equal if value.blob_id is not None), newest)

    def _belongs(self, value: Extraction, index: int, parts: _Parts) -> bool:
        if not self._matches(value, index):
            return False
        if self._transcript.entries[index].ident == value.entry_id:
            return True
        part = parts().get((*value.path, "text") if value.block else value.path)
        if (part.call if part else None) != value.anchor:
            return False
        same = part is not None and (part.kind, part.tool) == (value.kind, value.tool)
        if not (value.block or same):
            return False
        if value.anchor is None and value.session_id not in self._records.same_identity:
            return False
        held_here = value.session_id == self._records.own or value.id in self._records.last_sighted
        if value.anchor is not None and held_here:  # the agent made a branch or rewrote the entry
            return True
        if not self._transcript.form.appends_anew:
            self.moved[value.id] = value.entry_id  # counts only if the recorded entry is gone
        return True

    def _located(self, value: Extraction, index: int, parts: _Parts) -> Extraction:
        # When Claude Code forks a session, it may join several results in one message.
        if value.anchor is None or value.block or self._is_in(value, index):
            return value
        names = [isinstance(step, int) or step for step in value.path]
        for path, part in parts().items():
            moved = replace(value, path=path)
            same = [isinstance(step, int) or step for step in path] == names
            if same and self._is_in(moved, index) and part.call == value.anchor:
                return moved
        return value

    def _matches(self, value: Extraction, index: int) -> bool:
        entry = self._transcript.entries[index]
        if entry.ident != value.entry_id and value.session_id in self._records.others.sessions:
            return False
        return self._is_in(value, index) and value.rest in (None, entry.rest)

    def _is_in(self, value: Extraction, index: int) -> bool:
        """Check whether what replaced a value is at its path."""
        entry = self._transcript.entries[index]
        if value.is_link:
            return bool(entry.parent == json.loads(value.replacement or ""))
        marks = entry.marks or _UNMARKED
        if value.is_redacted and REDACTED not in marks.fields:  # the agent dropped the field
            return value.is_in(self._parsed(index).entry)
        if value.path not in marks.stands:
            return False
        if value.id not in self._digests:
            self._digests[value.id] = token_digest(value.token)
        return marks.stands[value.path] == self._digests[value.id]


_UNMARKED = Marks()


class Matches(Struct, frozen=True):
    """What of ours is in a session, by the records. Rules do not matter for it."""

    standing: Mapping[int, Sequence[Extraction]]  # extracted values by the index of their entry
    sighted: tuple[int, ...]  # the ids of these extractions
    # Those of values that are not in the recorded entry, so perhaps pasted.
    supposed: tuple[int, ...]
    saved: int  # tokens
    # Entries with places whose value cannot be restored, and why. Empty unless all are requested.
    unexplained: tuple[tuple[str, str], ...]
    matcher: Matcher


def find(session: Snapshot) -> Matches:
    """Look for the recorded extractions in all entries."""
    transcript, everything = session.transcript, asks_for_everything(session.records)
    matcher = Matcher(transcript, session.records, session.parsed)
    standing = dict[int, Sequence[Extraction]]()
    sighted, supposed, saved = list[int](), list[int](), 0
    unexplained = list[tuple[str, str]]()
    for index, entry in enumerate(transcript.entries):
        if entry.marks is None and entry.ident not in matcher.replaced:
            continue
        if here := matcher.standing(index):
            standing[index] = here
        if index not in transcript.chain.dead:
            saved += sum(value.tokens for value in here)
        for value in here:
            moved = value.id in matcher.moved and value.entry_id != entry.ident
            (supposed if moved else sighted).append(value.id)
        if everything or matcher.names_others:
            why = list(matcher.unexplained(index, here))
            unexplained += why if everything else []
    return Matches(standing, tuple(sighted), tuple(supposed), saved, tuple(unexplained), matcher)


def asks_for_everything(records: Records) -> bool:
    return any(
        request.entry_id is None and not request.rolls_back
        for request in records.requested("restore")
    )


def count_lost(lines: Iterable[Line], form: Format) -> int:
    """Count the placeholders and archives in lines whose values only a lost store can have."""
    ours = Transcript.read(form, (line for line in lines if line.raw and TEXTS.search(line.raw)))
    matcher = Matcher(ours, Records(), _nothing)
    return sum(1 for index in range(len(ours.entries)) for _ in matcher.unexplained(index, ()))


def _nothing(_: int) -> ParsedLine:
    raise LookupError


class Restores:
    """The requests to restore values of one session.

    `missed` gets the requested values that are lost, and others that cannot be restored if a
    request names their entry. `pristine` is true if a request asks for that.
    """

    def __init__(self, session: Snapshot) -> None:
        records = session.records
        self._requests = records.requested("restore")
        self.pristine = any(
            request.pristine for request in self._requests
            if request.entry_id is None and not request.rolls_back
        )  # fmt: skip
        self._named = {request.entry_id for request in self._requests}
        self.missed: list[tuple[str, str]] = []
        self._damaged = records.damaged
        self._continued = {value.anchor for value in records.extractions if value.is_link}
        self._seen: set[str] = set()
        self._archives = {
            (value.entry_id, value.path)
            for value in records.extractions if value.archive_id is not None
        }  # fmt: skip

    def note_id(self, ident: str) -> None:
        if ident in self._continued:
            self._seen.add(ident)

    def without_unfit(self, wanted: list[Extraction], unfit: list[Extraction]) -> list[Extraction]:
        if self.pristine:
            return wanted
        self.missed += [(value.entry_id, UNFIT) for value in unfit if value.entry_id in self._named]
        left = {value.id for value in unfit}
        return [value for value in wanted if value.id not in left]

    def wants(self, value: Extraction) -> bool:
        asked = any(self._means(request, value) for request in self._requests)
        # A fork has only the active branch. The original parent of an archive's last answer may be
        # missing there: then the link stays.
        if asked and value.is_link and value.anchor not in self._seen:
            if value.entry_id in self._named:
                self.missed.append((value.entry_id, _NO_TURN))
            return False
        if asked and (value.blob_id is None or value.id in self._damaged):
            lost = "damaged in the store" if value.blob_id is not None else "expired"
            self.missed.append((value.entry_id, lost))
            return False
        return asked

    def _means(self, request: Request, value: Extraction) -> bool:
        """Check whether a request is for a value. Text and link of an archive are one value."""
        if value.archive_id is None or request.paths is None:
            return request.includes(value)
        return request.concerns(value.entry_id) and any(
            (value.entry_id, path) in self._archives for path in request.paths
        )


# A call of our tool is recognised by its answer, since hosts name the tool differently. The request
# records the answer's random id and digest, by which it is found even inside a longer output.

_ACTIONS = ("restore", "restore_remote")  # a tuple also allows `in` for unhashable values


class OwnCalls:
    """Our answers in a session, and the calls that they answer."""

    def __init__(self, session: Snapshot) -> None:
        # By entry id and path: a shorter text (JSON), and the number of characters left out.
        self.answers: dict[str, dict[KeyPath, tuple[bytes, int]]] = {}
        self.calls: dict[str, str] = {}  # requested entries by ids of calls
        self.requests: set[int | None] = set()  # ids of the requests whose answer was found
        self._form = form = session.form
        redactions = session.records.requested("redact")
        asked = {request.answer: request for request in redactions if request.answer}
        self._parsed, self._drafted = session.parsed, dict[int, list[Edit]]()
        last_call = None
        for index, entry in enumerate(session.transcript.entries if asked else ()):
            for made in entry.calls:
                last_call = made.call_id or entry.ident
            if entry.ident is None or not entry.results:
                continue
            parsed = session.parsed(index)
            here = [printed for printed in asked if printed.ident.encode() in parsed.raw]
            answers = [*form.read(parsed.entry).result_texts] if here else []
            if not answers:
                continue
            paths = {answer.path for answer in answers}
            paths |= {part.path for part in session.transcript.values(index)}
            listed, whole = _shortened(
                parsed, paths, {printed: asked[printed].entry_id or "" for printed in here}
            )
            if listed:
                self.answers[entry.ident] = listed
            for printed in whole:
                request = asked.pop(printed)
                self.requests.add(request.id)
                for answer in answers:
                    # An answer without a call id belongs to the last call before it.
                    call_id = answer.call_id or last_call
                    if call_id and printed.ident in answer.text:
                        self.calls[call_id] = request.entry_id or ""

    def concern(self, entry: Entry) -> bool:
        if not (self.answers or self.calls) or entry.ident is None:
            return False
        calls = (call.call_id or entry.ident for call in entry.calls)
        return entry.ident in self.answers or any(call in self.calls for call in calls)

    def edits(self, index: int) -> list[Edit]:
        """Return the edits that shorten what the entry has of ours. Raises UntouchableError."""
        if index not in self._drafted:
            self._drafted[index] = list(self._draft(self._parsed(index)))
        return self._drafted[index]

    def paths(self, index: int) -> list[KeyPath]:
        """Return where these edits replace values; nothing if the line cannot be edited."""
        try:
            edits = self.edits(index)
        except (splice.UntouchableError, RecursionError):
            return []
        return [edit.path for edit in edits if isinstance(edit, Removal)]

    def _draft(self, parsed: ParsedLine) -> Iterator[Edit]:
        ident = parsed.ident or ""
        shorter: dict[KeyPath, tuple[Kind, bytes, int]] = {
            path: ("tool_result", *text) for path, text in self.answers.get(ident, {}).items()
        }
        for call in self._form.read(parsed.entry).calls:
            short = {"action": "restore", "entry": self.calls.get(call.call_id or ident)}
            redactable = dict_or_empty(call.arguments).get("action") in _ACTIONS and not call.signed
            if short["entry"] is not None and redactable and call.arguments != short:
                text = json.dumps(short, separators=(",", ":"))
                token = (json.dumps(text) if call.as_text else text).encode()
                shorter[call.path] = ("tool_call", token, len(str(call.arguments)))
        # `offsets_of` leaves out what this line lacks: another entry may have the same id.
        for path, (start, end) in splice.offsets_of(parsed, shorter).items():
            kind, token, chars = shorter[path]
            yield Removal(
                ident, placeholder_id(ident), path, kind, None, chars,
                block=False, anchor=None, rest=parsed.rest, tokens=0, start=start, end=end,
                new=token, forced=True, reason="the agent's own restore call", how="redact",
            )  # fmt: skip
        yield from splice.set_field(parsed, REDACTED, b"true")


def _shortened(
    parsed: ParsedLine, paths: Iterable[KeyPath], wanted: dict[PrintedAnswer, str]
) -> tuple[dict[KeyPath, tuple[bytes, int]], set[PrintedAnswer]]:
    """Return the texts of an entry without the complete answers in them, and these answers."""
    cuts: dict[KeyPath, list[tuple[int, int, str]]] = defaultdict(list)
    whole = set[PrintedAnswer]()
    for path in paths:
        text = value_at(parsed.entry, path)
        for printed, entry_id in wanted.items() if isinstance(text, str) else ():
            for span in printed.spans(text):
                cuts[path].append((*span, f"Restored {entry_id}."))
                whole.add(printed)
    try:
        tokens = splice.locate(parsed.raw, cuts)
    except splice.UntouchableError:
        return {}, set()
    return {
        path: (
            splice.splice_string(parsed.raw[start:end], cuts[path]),
            sum(end - start for start, end, _ in cuts[path]),
        )
        for path, (start, end) in tokens.items()
    }, whole


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
