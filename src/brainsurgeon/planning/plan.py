"""Plan one session: which bytes are replaced, and why all other values stay.

The planner only reads. It parses every edited line again and compares it with the original.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from brainsurgeon.formats import splice
from brainsurgeon.model.entries import EXTRACTABLE, KeyPath
from brainsurgeon.model.plans import Edit, Handled, Plan, Removal, Restoration, Sightings
from brainsurgeon.model.records import Extraction, Request
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.transcript import Entry
from brainsurgeon.planning.archive import (
    NO_ARCHIVING,
    Archival,
    Archivals,
    ArchiveRefusedError,
    Archiving,
    archive_turns,
)
from brainsurgeon.planning.drafts import FieldRequests, Going, Judge, repeated
from brainsurgeon.planning.matching import Matcher, OwnCalls, Restores
from brainsurgeon.planning.signatures import (
    Gatherer,
    Leaving,
    Place,
    SignatureVerdict,
    judge,
    removal_of,
)
from brainsurgeon.planning.snapshot import Snapshot

_TWICE = "its id occurs twice in the file"
_UNSURE = "it is uncertain whether it is the recorded entry"


def plan(
    session: Snapshot, rules: Rules, *, extract: bool = True, explain: bool = False,
    archiving: Archiving = NO_ARCHIVING,
) -> Plan:  # fmt: skip
    """Plan the pending requests of one session and, with `extract`, its extractions.

    With `explain`, `Plan.decisions` has the decision on each value, however short.
    """
    own = OwnCalls(session)
    while True:
        try:
            archivals = archive_turns(session, rules, archiving if extract else NO_ARCHIVING)
            planner = _Planner(session, rules, own, archivals, extract=extract, explain=explain)
            return planner.run()
        except ArchiveRefusedError as refusal:
            archiving = replace(archiving, refused=archiving.refused | {str(refusal)})


class _Planner:
    def __init__(
        self, session: Snapshot, rules: Rules, own: OwnCalls, archivals: Archivals, *,
        extract: bool, explain: bool,
    ) -> None:  # fmt: skip
        self._session, self._transcript, self._records = (
            session,
            session.transcript,
            session.records,
        )
        self._rules, self._own, self._extract = rules, own, extract
        self._archivals = archivals
        self._edits: list[Edit] = []
        # Ids of entries in the file, by start of an edit, if they differ from its `entry_id`.
        self._ids_in_file: dict[int, str] = {}
        # Ids of the extractions whose placeholders were found. `_supposed`: not in the recorded
        # entry, so perhaps pasted.
        self._sighted: list[int] = []
        self._supposed: list[int] = []
        self._saved = 0
        self._unexplained: list[tuple[str, str]] = []  # empty unless everything is to be restored
        self._restored: list[str] = []
        self._missed: list[tuple[str, str]] = []
        # The entry ids (or None) in a last line without a newline: their requests wait.
        self._waits: set[str | None] = set()
        self._ids = {entry.ident for entry in self._transcript.entries}
        self._twice = repeated(self._transcript.entries)
        self._restores = Restores(session, self._missed)
        self._fields = FieldRequests(session)
        self._matcher = Matcher(self._transcript, self._records, session.parsed)
        self._judge = Judge(session, rules, explain=explain)
        self._signatures = Gatherer(session, rules, archivals.leaving)
        # Short lines are planned, too, if they have one of these ids or texts.
        self._concerned = {*own.answers, *self._matcher.replaced, *self._fields.entries}
        for verdict in archivals.verdicts:
            self._judge.protect(verdict.closing_id, verdict.until)

    def run(self) -> Plan:
        for index, entry in enumerate(self._transcript.entries):
            if entry.ident is not None:
                self._restores.note_id(entry.ident)
            signatures = self._signatures.note_signatures(index)
            if entry.marks or entry.values or signatures or self._is_concerned(index, entry):
                self._entry(index, entry, signatures)
            self._signatures.note_extracted(index)
        return self._plan()

    def _is_concerned(self, index: int, entry: Entry) -> bool:
        offset = self._transcript.offset(index)
        return (
            entry.ident in self._concerned
            or offset in self._archivals.made
            or offset in self._archivals.emptied
            or self._own.concern(entry)
        )

    def _plan(self) -> Plan:
        judged = self._judge
        sure = [edit for edit in self._edits if self._is_sure(edit)]
        verdict, leave = self._judge_signatures(sure)
        edits: tuple[Edit, ...] = ()
        if not verdict.blocked:
            edits = tuple(sorted([*sure, *leave], key=lambda edit: (edit.start, edit.end)))
        # A placeholder in another entry counts only if the recorded entry is not in the file.
        # Otherwise it is a copy.
        moved = self._matcher.moved
        sighted = self._sighted + [
            number for number in self._supposed if moved[number] not in self._ids
        ]
        lost = self._records.last_sighted.difference(sighted)
        # If ids are not random (`rest` is set), an equal id does not prove that the recorded entry
        # was read: a new log may have replaced a rotated one.
        read = dict.fromkeys(lost, False) | {
            value.id: value.rest is None and value.entry_id in self._ids
            for value in self._records.extractions if value.id in lost
        }  # fmt: skip
        doubtful = [(entry, _TWICE) for entry in self._fields.sets if entry in self._twice]
        made = {} if verdict.blocked else self._archivals.made
        archives = tuple(made[offset].archive_after(edits) for offset in sorted(made))
        prompts = {prompt for archive in archives for prompt in archive.prompts}
        fulfilled = (
            request.id for request in self._records.requests
            if request.id is not None and not verdict.blocked and self._fulfils(request, prompts)
        )  # fmt: skip
        seen = Sightings(
            tuple(sighted), tuple(number for number, was_read in read.items() if was_read),
            tuple(number for number, was_read in read.items() if not was_read),
            tuple(sorted(self._matcher.foreign)), self._saved, self._matcher.typed,
            tuple(map(self._transcript.offset, self._matcher.lost)),
        )  # fmt: skip
        handled = Handled(
            tuple(fulfilled), self._records.asked_until, tuple(self._unanswered()),
            restored=() if verdict.blocked else tuple(dict.fromkeys(self._restored)),
            missed=(*self._missed, *doubtful, *self._fields.missed()), unfit=verdict.unfit,
            left=(*self._left(edits), *self._unexplained),
            fields_gone=() if verdict.blocked else tuple(
                record for record, ident in self._fields.dropped.items() if ident not in self._twice
            ),
        )  # fmt: skip
        return Plan(
            edits, judged.kept, judged.decisions, judged.unsent.listed(), judged.due_at,
            judged.protected, seen, handled, tuple(judged.warnings), verdict.blocked, archives,
            self._archivals.verdicts,
        )  # fmt: skip

    def _is_sure(self, edit: Edit) -> bool:
        ident = self._ids_in_file.get(edit.start, edit.entry_id)
        if isinstance(edit, Restoration):
            owner = self._matcher.moved.get(edit.extraction_id)
            return owner is None or owner not in self._ids or ident == owner
        if ident not in self._twice:
            return True
        if isinstance(edit, Removal):
            self._judge.keep_edited(edit, f"not extractable: {_TWICE}")
        return False

    def _left(self, edits: tuple[Edit, ...]) -> list[tuple[str, str]]:
        if not self._restores.everything:
            return []
        back = {edit.extraction_id for edit in edits if isinstance(edit, Restoration)}
        reasons = dict.fromkeys(self._waits, "its line has no newline yet") | dict(self._missed)
        left = {*self._sighted, *self._supposed} - back
        return [
            (value.entry_id, reasons.get(value.entry_id, _UNSURE))
            for value in self._records.extractions
            if value.id in left and value.replacement is None
        ]

    def _judge_signatures(self, edits: list[Edit]) -> tuple[SignatureVerdict, list[Removal]]:
        gathered, judged = self._signatures, self._judge
        signatures = gathered.signatures
        signatures.standing = [
            replace(one, stays=_TWICE) if one.entry_id in self._twice else one
            for one in signatures.standing
        ]
        starts = [edit.start for edit in edits]
        changes = [gathered.changes[start] for start in starts if start in gathered.changes]
        taken = {gathered.places[start] for start in starts if start in gathered.places}
        while True:
            verdict = judge(
                signatures, changes, taken,
                self._rules if self._extract else replace(self._rules, drop_signatures=""),
                remembers=self._session.habits.remembers and self._extract and self._rules.enabled,
                pristine=self._restores.pristine,
            )  # fmt: skip
            drafted, refused = self._removals_of(verdict.leave)
            if not refused:
                break
            signatures.standing = [
                replace(one, stays=refused.get(one.place, one.stays)) for one in signatures.standing
            ]
        for leaving, removal in zip(verdict.leave, drafted, strict=True):
            judged.take(leaving.signature.place, removal)
        if verdict.blocked:
            for edit in edits:
                if isinstance(edit, Removal) and edit.extracts:
                    judged.keep_edited(edit, "deferred: signatures")
        return verdict, drafted

    def _removals_of(self, leave: Sequence[Leaving]) -> tuple[list[Removal], dict[Place, str]]:
        """Draft the removals of signatures. Also return why some cannot be removed."""
        drafted, refused = list[Removal](), dict[Place, str]()
        for leaving in leave:
            offset = leaving.signature.place[0]
            index = self._transcript.index_at(offset)
            entry, parsed = self._transcript.entries[index], self._session.parsed(index)
            instead = entry.thoughts.instead if entry.thoughts else b""
            try:
                removal = removal_of(parsed, leaving, instead)
                drafted += self._signatures.weighed(parsed, index, [removal])
            except (splice.UntouchableError, RecursionError) as why:
                refused[leaving.signature.place] = str(why)
        return drafted, refused

    def _fulfils(self, request: Request, archived: set[str]) -> bool:
        if request.action == "redact":
            return request.id in self._own.requests
        if request.action == "relieve":
            return self._extract
        if request.action == "archive":
            return request.entry_id in archived
        return request.entry_id not in self._waits if request.entry_id else not self._waits

    def _unanswered(self) -> Iterator[int]:
        """Yield the requests to redact that waited in vain. Note when the others will have."""
        session, found = self._session, self._own.requests
        for request in self._records.requested("redact"):
            if request.id is not None and request.id not in found:
                until = request.asked_at + session.patience
                if request.asked_at < session.changed_at or until <= session.now:
                    yield request.id
                else:
                    self._judge.due(until)

    def _entry(self, index: int, entry: Entry, signatures: frozenset[KeyPath]) -> None:
        ident, offset = entry.ident, self._transcript.offset(index)
        standing = self._standing(index, entry)
        wanted = [value for value in standing if self._restores.wants(value)]
        unfit = self._signatures.unfit(index, wanted, standing)
        back = self._restores.without_unfit(wanted, unfit)
        ours = self._own.concern(entry)
        archival = self._archivals.made.get(offset)
        if archival and (back or ours):
            raise ArchiveRefusedError(ident or "")
        going: Going = []
        if self._extract and not back and not ours:
            taken = {value.path for value in standing if value.archive_id is not None}
            taken |= {archival.text_path} if archival else set()
            going = self._judge.judge(
                index, standing, signatures, taken, emptied=offset in self._archivals.emptied,
                farthest=self._archivals.farthest(offset),
            )  # fmt: skip
        named = ident is not None and ident in self._fields.entries
        edited = bool(back or going or named or ours or archival)
        if not (standing or edited):
            return
        if not edited:
            self._signatures.note_edits(index, (), standing)
            return
        if not entry.terminated:
            self._waits.update({ident, *(value.entry_id for value in back)})
            return
        restored = {value.id for value in back}
        left = [value for value in standing if value.id not in restored]
        try:
            edits = self._line_edits(index, back, going, archival, left, ours=ours)
        except (splice.UntouchableError, RecursionError) as error:
            if archival:
                raise ArchiveRefusedError(ident or "") from error
            self._leave(index, back, going, str(error))
            edits, left = [], standing
        name = ident or ""
        self._ids_in_file.update((edit.start, name) for edit in edits if edit.entry_id != name)
        self._edits += edits
        self._signatures.note_edits(index, edits, left)

    def _leave(self, index: int, back: list[Extraction], going: Going, why: str) -> None:
        offset, ident = self._transcript.offset(index), self._transcript.entries[index].ident
        for part, _ in going:
            self._judge.keep(offset, part, f"not extractable: {why}")
        self._missed += [(value.entry_id, why) for value in back]
        if ident is not None and ident in self._fields.sets:
            self._missed.append((ident, why))

    def _standing(self, index: int, entry: Entry) -> list[Extraction]:
        standing = self._matcher.standing(index)
        for value in standing:
            if index not in self._transcript.chain.dead:
                self._saved += value.tokens
            supposed = value.id in self._matcher.moved and value.entry_id != entry.ident
            (self._supposed if supposed else self._sighted).append(value.id)
        if self._restores.everything or self._matcher.names_others:
            unexplained = list(self._matcher.unexplained(index, standing))
            self._unexplained += unexplained if self._restores.everything else []
        return standing

    def _line_edits(
        self, index: int, back: list[Extraction], going: Going,
        archival: Archival | None, left: list[Extraction], *, ours: bool,
    ) -> list[Edit]:  # fmt: skip
        parsed, form, now = self._session.parsed(index), self._session.form, self._session.now
        entry, ident = parsed.entry, parsed.ident
        places = splice.offsets_of(parsed, [value.path for value in back]) if back else {}
        edits: list[Edit] = [
            Restoration(
                *places[value.path], value.id, value.entry_id, value.path, value.size, value.tokens
            )
            for value in back
        ]
        if going:
            edits += self._judge.removals(parsed, going)
        if archival:
            edits += archival.removals(parsed, form, left, self._records.rate)
        edits += self._fields.edits(parsed, back, left, now)
        if ours and not back and not self._fields.undoes_some(ident or ""):
            edits += self._own.edits(parsed)
        edits = list(self._signatures.weighed(parsed, index, _taking_over(edits, left)))
        splice.verify(parsed.raw, parsed.offset, entry, edits)
        if back:
            self._restored += [name for value in back for name in (ident, value.entry_id) if name]
            request = self._fields.sets.get(ident or "")
            override = request.value if request else entry.get(EXTRACTABLE)
            # The value may be extracted again: at once if forced, else after its protection.
            self._judge.due(now + (0.0 if override is True else self._rules.keep_after_restore))
        return edits


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
    return replace(removal, takes_over=value.id, chars=chars, anchor=value.anchor)
