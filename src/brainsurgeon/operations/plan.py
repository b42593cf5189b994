"""Plan one session: which bytes give way to which, and why everything else stays.

The planner reads and writes nothing but the lines it is handed; acting on the plan is
`operate`'s. Every line that is edited is parsed again and compared before it may count.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from brainsurgeon.decide.extract import (
    Extract,
    Keep,
    Standing,
    extract,
    no_gain,
    read_extractable,
    read_restored,
)
from brainsurgeon.formats import base, fields, spans
from brainsurgeon.formats.verify import verify
from brainsurgeon.model import STUB, Cut, Edit, KeptPart, Plan, Putback
from brainsurgeon.operations.field_edits import EVERY_ENTRY, EXTRACTABLE, FieldEdits
from brainsurgeon.operations.redact import find_own_calls, redactions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.decide.rules import Rules
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model import Entry, KeyPath, Line, Lines, Part, Survey
    from brainsurgeon.operations.redact import OwnCalls, Redaction
    from brainsurgeon.store.extractions import Extraction, FieldRow
    from brainsurgeon.store.wishes import Wish

_OURS = re.compile(rb"\[\[extracted-|_extractable|_restored|_redacted")
_MOST_WARNINGS = 100
_TWICE = "its id stands twice in the file"


@dataclass(frozen=True, slots=True)
class Known:
    """What the store says of one session (and of those it was forked from)."""

    extractions: tuple[Extraction, ...] = ()
    fields: tuple[FieldRow, ...] = ()
    restores: dict[str, float] = field(default_factory=dict)
    wishes: tuple[Wish, ...] = ()
    asked_until: int = 0

    @property
    def pins(self) -> dict[str, bool | int]:
        """What `_extractable` was set to by us, also where an agent's rewrite lost the field."""
        return {
            row.entry_id: json.loads(row.value) for row in self.fields if row.name == EXTRACTABLE
        }


class _WindowTooSmall(Exception):  # noqa: N818  a turn of the plan, not an error
    """An entry asks for a larger window than the survey has looked at."""

    def __init__(self, window: int) -> None:
        self.window = window


def plan(
    lines: Lines, form: Format, rules: Rules, known: Known, now: float, survey: Survey,
    *, cut: bool = True, explain: bool = False,
) -> Plan:  # fmt: skip
    """Plan everything due in one session: cuts (unless `cut` is False) and the open wishes.

    Lines too short to hold a value that could go are taken apart only with `explain`, so that
    `kept` is complete only then.
    """
    own = find_own_calls(lines, form, known.wishes)
    while True:
        try:
            planner = _Planner(form, survey, rules, known, now, cut, own)
            return planner.run(lines, 0 if explain else rules.shortest)
        except _WindowTooSmall as larger:
            survey = form.survey(lines, max(larger.window, 2 * survey.window))


class _Planner:
    """One forward pass over the lines."""

    def __init__(
        self, form: Format, survey: Survey, rules: Rules, known: Known, now: float,
        cut: bool, own: OwnCalls,
    ) -> None:  # fmt: skip
        self._form, self._survey, self._rules = form, survey, rules
        self._known, self._now, self._cut, self._own = known, now, cut, own
        self._by_stub: dict[str, list[Extraction]] = defaultdict(list)
        self._redacted: dict[str, list[Extraction]] = defaultdict(list)
        for row in known.extractions:
            if row.replacement is None:
                self._by_stub[row.stub].append(row)
            else:
                self._redacted[row.entry_id].append(row)
        self._restores = [wish for wish in known.wishes if wish.action == "restore"]
        self._fields = FieldEdits(known.fields, known.wishes)
        self._asked = {*own.answers, *self._redacted}
        self._calls = [call.encode() for call in own.calls]
        self._pins = known.pins
        self._edits: list[tuple[str, Edit]] = []
        self._kept: dict[tuple[str, str | None, str], list[int]] = defaultdict(lambda: [0, 0])
        self._ids: set[int] = set()
        self._twice: set[str] = set()
        self._sighted: list[int] = []
        self._foreign: set[str] = set()
        self._moved: set[int] = set()
        self._restored: list[str] = []
        self._missed: list[tuple[str, str]] = []
        self._warnings: list[str] = []
        self._due: list[float] = []
        self._waits: set[str] = set()

    def run(self, lines: Lines, shortest: int) -> Plan:
        """Walk the lines and put the plan together."""
        for line in lines:
            if not line.raw:
                continue
            entry = base.parse(line.raw)
            if entry is None:
                continue
            ident = self._form.identity(entry, line.raw, line.number)
            if ident is not None:
                self._meet(ident)
            if len(line.raw) > shortest or self._speaks_of_us(line.raw, ident):
                self._entry(line, line.raw, entry, ident)
        edits = tuple(sorted(self._finished(), key=lambda edit: (edit.start, edit.end)))
        self._missed += [(entry, _TWICE) for entry in self._fields.sets.keys() & self._twice]
        self._missed += self._fields.missed()
        return Plan(
            edits=edits,
            kept=tuple(KeptPart(*key, *counts) for key, counts in sorted(
                self._kept.items(), key=lambda item: -item[1][1])),
            gain=sum(_gain(edit) for edit in edits),
            due_at=min(self._due, default=None),
            sighted=tuple(self._sighted),
            wishes=tuple(wish.id for wish in self._known.wishes if self._ends(wish)),
            asked_until=self._known.asked_until,
            restored=tuple(dict.fromkeys(self._restored)),
            missed=tuple(self._missed),
            warnings=tuple(self._warnings),
        )  # fmt: skip

    def _finished(self) -> Iterator[Edit]:
        """Give the edits that still hold once the whole file is known."""
        gone = {row.id: row.entry_id for row in self._known.extractions if row.id in self._moved}
        for ident, edit in self._edits:
            if isinstance(edit, Putback):
                owner = gone.get(edit.extraction_id)
                if owner is None or hash(owner) not in self._ids or ident == owner:
                    yield edit
            elif ident in self._twice:
                if isinstance(edit, Cut):
                    counts = self._kept[edit.kind, edit.tool, f"not extractable: {_TWICE}"]
                    counts[0] += 1
                    counts[1] += edit.chars
            elif isinstance(edit, Cut) and edit.stub in self._foreign:
                yield replace(edit, exact=True)
            else:
                yield edit

    def _ends(self, wish: Wish) -> bool:
        """Tell whether this plan settles a wish; what cannot be done now waits."""
        if wish.action == "redact":
            return wish.id in self._own.wishes
        blocked = wish.entry_id in self._waits or (wish.entry_id == EVERY_ENTRY and self._waits)
        return bool(wish.id) and not blocked

    def _speaks_of_us(self, raw: bytes, ident: str | None) -> bool:
        """Tell whether a short line may hold a stub or field of ours, or is one asked for."""
        return (
            ident in self._asked
            or (ident is not None and self._fields.speak_of(ident))
            or _OURS.search(raw) is not None
            or any(call in raw for call in self._calls)
        )

    def _meet(self, ident: str) -> None:
        """Remember an id; where it stands twice, readers differ in which entry they mean."""
        mark = hash(ident)
        if mark in self._ids:
            self._twice.add(ident)
        self._ids.add(mark)

    def _entry(self, line: Line, raw: bytes, entry: Entry, ident: str | None) -> None:
        standing = self._standing_here(raw, entry, ident)
        self._sighted += [row.id for row in standing]
        back = [row for row in standing if self._wanted(row)]
        gone, ours = redactions(entry, ident, self._form, self._own) if ident else ([], False)
        sought: list[tuple[Part, Extract]] = []
        if self._cut and not back and not ours:
            sought = self._cuts(line, entry, ident, standing)
        named = ident is not None and self._fields.speak_of(ident)
        if not (back or sought or named or ours):
            return
        if not line.terminated:
            self._waits.update({ident or "", *(row.entry_id for row in back)})
            return
        try:
            edits = self._edits_of(line, raw, entry, ident, back, sought)
            if ours and ident and not back and self._fields.pristine(ident) is None:
                edits += self._redact(line, raw, entry, ident, gone)
        except (spans.Untouchable, RecursionError) as why:
            self._keep_all(sought, f"not extractable: {why}")
            self._missed += [(row.entry_id, str(why)) for row in back]
            self._missed += [(ident, str(why))] if ident in self._fields.sets else []
            return
        self._edits += [(ident or "", edit) for edit in edits]

    def _standing_here(self, raw: bytes, entry: Entry, ident: str | None) -> list[Extraction]:
        """Give the newest extraction for each place of this entry where its stub stands."""
        found: dict[KeyPath, Extraction] = {}
        for row in self._redacted.get(ident or "", ()):
            if base.value_at(entry, row.path) == json.loads(row.replacement or "null"):
                found[row.path] = row
        for stub in set(STUB.findall(raw)):
            text = stub.decode()
            here = [row for row in self._by_stub[text] if self._belongs(row, entry, ident)]
            found.update({row.path: row for row in here})
            if not here:
                self._foreign.add(text)
        return list(found.values())

    def _belongs(self, row: Extraction, entry: Entry, ident: str | None) -> bool:
        """Tell whether exactly this row's stub stands at its place in this entry.

        The place is the recorded entry and path. An agent that wrote its history anew gave the
        entry another id: then the same tool call must be named there, or, where none was, the
        recorded entry must be gone from the file (see `_moved`).
        """
        if not base.stands(base.value_at(entry, row.path), row.stub, block=row.block):
            return False
        if ident == row.entry_id:
            return True
        if row.exact or self._form.anchor(entry, row.path) != row.anchor:
            return False
        if not row.block and not any(
            part.path == row.path and (part.kind, part.tool) == (row.kind, row.tool)
            for part in self._form.parts(entry, self._survey, -1)
        ):
            return False
        if row.anchor is None:
            self._moved.add(row.id)
        return True

    def _wanted(self, row: Extraction) -> bool:
        asked = any(
            wish.entry_id in (EVERY_ENTRY, row.entry_id)
            and (wish.paths is None or row.path in wish.paths)
            for wish in self._restores
        )
        lost = "expired" if row.blob_id is None else "damaged in the store" if row.damaged else ""
        if asked and lost:
            self._missed.append((row.entry_id, lost))
        return asked and not lost

    def _cuts(
        self, line: Line, entry: Entry, ident: str | None, standing: list[Extraction]
    ) -> list[tuple[Part, Extract]]:
        """Decide about every part of an entry; note the reasons of those that stay."""
        parts = list(self._form.parts(entry, self._survey, line.offset))
        if not parts:
            return []
        here = self._says(line, entry, ident, standing)
        sought = []
        for part in parts:
            decision = extract(part, base.value_at(entry, part.path), here, self._rules, self._now)
            if isinstance(decision, Extract) and line.terminated:
                sought.append((part, decision))
            elif isinstance(decision, Extract):
                self._keep(part, Keep("the last line has no newline yet"))
            else:
                self._keep(part, decision)
        return sought

    def _says(
        self, line: Line, entry: Entry, ident: str | None, standing: list[Extraction]
    ) -> Standing:
        override, odd = read_extractable(entry)
        stamp, unusable = read_restored(entry, self._rules, self._now)
        for warning in (odd, unusable):
            if warning and len(self._warnings) < _MOST_WARNINGS:
                self._warnings.append(f"entry {ident}: {warning}")
        if ident in self._fields.sets:
            override = self._fields.sets[ident].value
        elif override is None and EXTRACTABLE not in entry and ident is not None:
            override = self._pins.get(ident)
        if type(override) is int and override > self._survey.window:
            raise _WindowTooSmall(override)
        remembered = self._known.restores.get(ident) if ident else None
        latest = self._now + self._rules.keep_after_restore
        stamps = [when for when in (stamp, remembered) if when is not None and when <= latest]
        own = {base.stub_text(ident)} if ident else set()
        return Standing(
            ident, self._survey.position(line.offset), override, max(stamps, default=None),
            bool(entry.get("_redacted")), frozenset(own | {row.stub for row in standing}),
        )  # fmt: skip

    def _keep(self, part: Part, why: Keep) -> None:
        counts = self._kept[part.kind, part.tool, why.reason]
        counts[0] += 1
        counts[1] += part.chars
        if why.until is not None:
            self._due.append(why.until)

    def _keep_all(self, sought: list[tuple[Part, Extract]], reason: str) -> None:
        for part, _ in sought:
            self._keep(part, Keep(reason))

    def _edits_of(
        self, line: Line, raw: bytes, entry: Entry, ident: str | None,
        back: list[Extraction], sought: list[tuple[Part, Extract]],
    ) -> list[Edit]:  # fmt: skip
        """Give the edits of one line in order; raise Untouchable when one cannot be certain."""
        places = spans.locate(raw, [*(row.path for row in back), *(p.path for p, _ in sought)])
        edits: list[Edit] = [
            Putback(places[row.path][0] + line.offset, places[row.path][1] + line.offset,
                    row.id, row.entry_id, row.path, row.size)
            for row in back
        ]  # fmt: skip
        for part, decision in sought:
            start, end = places[part.path]
            stub = base.stub_text(ident or "")
            token = base.stub_token(stub, block=part.block)
            if no_gain(decision, stub=len(token), value=end - start):
                self._keep(part, Keep("no gain"))
                continue
            edits.append(Cut(
                start + line.offset, end + line.offset, token, ident or "", stub, part.path,
                part.kind, part.tool, part.chars, part.block, decision.forced, decision.reason,
                anchor=self._form.anchor(entry, part.path),
            ))  # fmt: skip
        edits += self._fields.edits(line, raw, ident, back, self._now)
        verify(raw, line.offset, entry, edits)
        if back:
            self._restored += [name for row in back for name in (ident, row.entry_id) if name]
            wish = self._fields.sets.get(ident or "")
            said = wish.value if wish else entry.get(EXTRACTABLE)
            protection = 0.0 if said is True else self._rules.keep_after_restore
            self._due.append(self._now + protection)
        return sorted(edits, key=lambda edit: (edit.start, edit.end))

    def _redact(
        self, line: Line, raw: bytes, entry: Entry, ident: str, gone: list[Redaction]
    ) -> list[Edit]:
        """Give the edits that shorten one of the agent's own calls, and the mark on the entry."""
        places = spans.locate(raw, [one.path for one in gone])
        edits: list[Edit] = [
            Cut(places[one.path][0] + line.offset, places[one.path][1] + line.offset, one.token,
                ident, "", one.path, one.kind, None, one.chars, block=False, forced=True,
                reason="the agent's own restore call", redacts=True)
            for one in gone
        ]  # fmt: skip
        edits += fields.put(raw, line.offset, ident, "_redacted", b"true")
        verify(raw, line.offset, entry, edits)
        return edits


def _gain(edit: Edit) -> int:
    if isinstance(edit, Putback):
        return edit.end - edit.start - edit.size
    return edit.end - edit.start - len(edit.new)
