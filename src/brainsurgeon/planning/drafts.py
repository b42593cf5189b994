"""Draft the edits of a line, and prove them: the edited line is parsed and compared."""

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.formats import splice
from brainsurgeon.formats.base import ParsedLine
from brainsurgeon.formats.weight import tokens_off
from brainsurgeon.model.entries import (
    KeyPath,
    Value,
    decode,
    parse,
    placeholder_id,
    placeholder_named,
    placeholder_token,
)
from brainsurgeon.model.plans import Edit, FieldEdit, Removal, Restoration, gain
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.turns import Sent
from brainsurgeon.planning.archiving import ArchiveRefusedError
from brainsurgeon.planning.decisions import Decisions, EntryChanges
from brainsurgeon.planning.own_calls import OwnCalls
from brainsurgeon.planning.requests import FieldChanges, FieldRequests
from brainsurgeon.planning.signatures import DroppedSignature
from brainsurgeon.planning.snapshot import Locks, Snapshot

NO_ROOM = "the agent stores offsets into the file, and the length of the line would change"
_LONGEST_NUMBER = len("~999999999")  # that the store may add to a placeholder


class Draft(Struct, frozen=True):
    """The edits of one line. What is among the `locks` has none."""

    edits: tuple[Edit, ...]
    fields: FieldChanges
    locks: Locks


class Drafts:
    """Drafts the edits of a session. A line is not read again for equal changes."""

    def __init__(self, session: Snapshot, own: OwnCalls, fields: FieldRequests) -> None:
        self._session, self._transcript, self._own = session, session.transcript, own
        self._fields = fields
        self._lines: dict[int, tuple[EntryChanges, Draft]] = {}  # by index of the entry
        self._removals: dict[DroppedSignature, Removal] = {}
        self._once: dict[Any, Any] = {}  # equal paths, tools and reasons share their memory

    def draft(self, decisions: Decisions) -> tuple[list[Draft], list[Removal], Locks]:
        """Return drafts of lines, removals of signatures, and what cannot be edited.

        Raises ArchiveRefusedError.
        """
        lines, removals, locks = list[Draft](), list[Removal](), Locks()
        for changes in decisions.entries:
            try:
                line = self._line(changes)
            except (splice.UntouchableError, RecursionError) as error:
                if changes.archive:
                    ident = self._transcript.entries[changes.index].ident
                    raise ArchiveRefusedError(ident or "") from error
                locks[changes.index, ()] = str(error)
                continue
            lines.append(line)
            locks |= line.locks
        for dropped in decisions.verdict.dropped:
            try:
                removals.append(self._removal(dropped))
            except (splice.UntouchableError, RecursionError) as why:
                locks[dropped.signature.place] = str(why)
        return lines, removals, locks

    def _line(self, changes: EntryChanges) -> Draft:
        index = changes.index
        known = self._lines.get(index)
        if known and known[0] == changes:
            return known[1]
        draft = self._drafted(changes)
        to_extract = tuple(
            one for one in changes.to_extract if (index, one[0].path) not in draft.locks
        )
        to_restore = tuple(
            one for one in changes.to_restore if (index, one.path) not in draft.locks
        )
        possible = replace(changes, to_extract=to_extract, to_restore=to_restore)
        self._lines[index] = possible, replace(draft, locks={})
        return draft

    def _drafted(self, changes: EntryChanges) -> Draft:
        index, session = changes.index, self._session
        parsed, ident = session.parsed(index), self._transcript.entries[index].ident
        staying, to_restore, locks = changes.staying, changes.to_restore, Locks()
        edits: list[Edit] = [*self._restorations(parsed, changes, locks)]
        edits += self._extractions(parsed, changes, locks)
        others = list[Removal]()
        if changes.archive:
            rate = session.records.rate
            others += changes.archive.removals(parsed, session.form, staying, rate)
        fields = self._fields.changes(parsed, to_restore, staying, session.now)
        if ident in session.repeated:  # it is unknown whose field it is
            fields = FieldChanges(missed=fields.missed)
        edits += fields.edits
        redactions = self._own.edits(index) if changes.redacts else []
        others += (edit for edit in redactions if isinstance(edit, Removal))
        edits += (self._weighed(parsed, changes, edit) for edit in others)
        edits += (edit for edit in redactions if isinstance(edit, FieldEdit))
        edits = list(_taking_over(edits, staying))
        if gain(edits) and self._session.is_fixed:
            raise splice.UntouchableError(NO_ROOM)
        splice.verify(parsed.raw, parsed.offset, parsed.entry, edits)
        return Draft(tuple(edits), fields, locks)

    def _restorations(
        self, parsed: ParsedLine, changes: EntryChanges, locks: Locks
    ) -> Iterator[Restoration]:
        to_restore, raw = changes.to_restore, parsed.raw
        places = splice.locate(raw, [value.path for value in to_restore]) if to_restore else {}
        for value in to_restore:
            start, end = places[value.path]
            if self._transcript.chain.keeps_length:
                spaces = raw[end : start + value.size]
                if spaces and not spaces.strip(b" "):
                    end = start + value.size
                elif self._session.is_fixed and value.size != end - start:
                    locks[changes.index, value.path] = NO_ROOM
                    continue
            yield Restoration(
                start + parsed.offset, end + parsed.offset, value.id, value.entry_id, value.path,
                value.size, value.tokens,
            )  # fmt: skip

    def _extractions(
        self, parsed: ParsedLine, changes: EntryChanges, locks: Locks
    ) -> Iterator[Removal]:
        if not changes.to_extract:
            return
        ident = parsed.ident or ""
        name = placeholder_id(ident)
        places = splice.locate(parsed.raw, [value.path for value, _ in changes.to_extract])
        around = self._transcript.around(changes.index)
        once, block_type = self._once.setdefault, self._session.form.block_type
        for value, why in changes.to_extract:
            start, end = places[value.path]
            token = value.instead or placeholder_token(
                placeholder_named(name), block=value.block, block_type=block_type
            )
            if self._session.pads:
                if len(token) + _LONGEST_NUMBER > end - start:
                    locks[changes.index, value.path] = NO_ROOM
                    continue
                token = token.ljust(end - start)
            elif not why.forced and len(token) >= end - start:
                locks[changes.index, value.path] = "no gain"
                continue
            path, tool = once(value.path, value.path), once(value.tool, value.tool)
            sent = changes.live and not around.omits(value.kind, value.call)
            yield Removal(
                ident, name, path, value.kind, tool, value.chars, value.block,
                value.call, None, parsed.rest, tokens=self._saved(value, token) if sent else 0,
                start=start + parsed.offset, end=end + parsed.offset, new=token,
                forced=why.forced, reason=once(why.reason, why.reason),
                how="extract" if value.instead is None else "empty", hashed=value.hashed,
            )  # fmt: skip

    def _saved(self, value: Value, token: bytes) -> int:
        """Return the tokens that a request saves if a value is replaced by the JSON `token`."""
        instead = 0 if value.dead or (value.sent == 0 and not value.signed) else len(_text(token))
        return (Sent(*value.size) - Sent(instead)).tokens(self._session.records.rate)

    def _weighed(self, parsed: ParsedLine, changes: EntryChanges, edit: Removal) -> Removal:
        around = self._transcript.around(changes.index)
        if not changes.live or around.omits(edit.kind, edit.call):
            return edit
        form, rate = self._session.form, self._session.records.rate
        less = tokens_off(form, parsed.entry, edit.path, edit.new, rate)
        return replace(edit, tokens=edit.tokens + less)

    def _removal(self, dropped: DroppedSignature) -> Removal:
        """Draft the removal of a signature. Raises UntouchableError."""
        if dropped in self._removals:
            return self._removals[dropped]
        index, path = dropped.signature.place
        entry, parsed = self._transcript.entries[index], self._session.parsed(index)
        spans = splice.offsets_of(parsed, [path])
        if path not in spans:
            raise splice.UntouchableError("the thinking is not found")
        start, end = spans[path]
        ident, instead = entry.ident or "", entry.thoughts.instead if entry.thoughts else b""
        around = self._transcript.around(index)
        sent = dropped.signature.live and not around.omits("thinking", None)
        values = (one for one in self._transcript.values(index) if one.path == path)
        value = next(values, None) if sent else None
        removal = Removal(
            ident, placeholder_id(ident), path, "thinking", None, dropped.signature.chars,
            block=True, call=None, parent=None, rest=parsed.rest,
            tokens=self._saved(value, instead) if value else 0, start=start, end=end, new=instead,
            forced=dropped.forced, reason=dropped.reason, how="empty",
        )  # fmt: skip
        splice.verify(parsed.raw, parsed.offset, parse(parsed.raw) or {}, [removal])
        self._removals[dropped] = removal
        return removal


def _text(token: bytes) -> str:
    """Return what a request contains of the JSON that replaces a value."""
    new = decode(token)
    if isinstance(new, dict):
        new = new.get("text") or new.get("thinking")
    return new if isinstance(new, str) else ""


def _taking_over(edits: Iterable[Edit], standing: Iterable[Extraction]) -> Iterator[Edit]:
    """Make removals store what the agent wrote, not what stands there for an extracted value.

    Raises UntouchableError if that value has expired, or is only a part of what is removed.
    """
    at = {value.path: value for value in standing}
    around = {path[:length] for path in at for length in range(len(path))}
    for edit in edits:
        yield _took_over(edit, at, around) if isinstance(edit, Removal) else edit


def _took_over(
    removal: Removal, at: Mapping[KeyPath, Extraction], around: Container[KeyPath]
) -> Removal:
    path = removal.path
    value = at.get(path)
    if path in around or any(path[:length] in at for length in range(len(path))):
        raise splice.UntouchableError("a value there is already extracted")
    if value is None:
        return removal
    if value.blob_id is None:
        raise splice.UntouchableError("a value there is already extracted")
    chars = removal.chars + value.chars
    return replace(removal, takes_over=value.id, chars=chars, call=value.call, parent=value.parent)
