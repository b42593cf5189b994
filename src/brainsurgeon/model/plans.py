"""The edits of one session: bytes that give way to other bytes.

Every edit knows its place (`start` and `end`, in bytes from the start of the file), what stands
there afterwards, how many bytes that gains, and how to see in the parsed line that it was made.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from brainsurgeon.model.entries import placeholder_named, placeholder_token, value_at
from brainsurgeon.model.turns import LINK, NOTHING, Sent, folded_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.model.entries import Entry, KeyPath, Kind
    from brainsurgeon.model.turns import Archive, Fullness, Verdict


@dataclass(frozen=True, slots=True)
class Cut:
    """A value that leaves its line, and the placeholder that takes its place.

    `name` is the id in the placeholder; the store may choose a numbered one (`named`). `new` is the
    placeholder as JSON, or, where the cut `redacts`, a short text, where it `empties`, a block
    without a word, which is never sent, and where it `folds` (it is part of an archive) the
    archive's text or link. With `block`, a whole object gives way to a text block. A `forced` one
    is made whatever it gains, since somebody asked for it. `anchor` is the id of the tool call that
    the value belongs to: an agent that writes its history anew gives entries new ids and keeps
    that one. `rest` is a digest of what else the line says, None where entry ids are random. Where
    it `takes_over` from another extraction, by its id, it stores the value of that one.
    """

    start: int
    end: int
    new: bytes
    entry_id: str
    name: str
    path: KeyPath
    kind: Kind
    tool: str | None
    chars: int
    block: bool
    forced: bool
    reason: str
    redacts: bool = False
    anchor: str | None = None
    rest: bytes | None = None
    empties: bool = False
    folds: bool = False
    takes_over: int | None = None

    @property
    def placeholder(self) -> str:
        """The placeholder's text, empty where something else stands there afterwards."""
        return "" if self.replacement is not None else placeholder_named(self.name)

    @property
    def is_named(self) -> bool:
        """Whether what stands there afterwards names the value: a placeholder or an archive."""
        return self.replacement is None or (self.folds and self.path != LINK)

    def named(self, name: str) -> Cut:
        """Return the same cut with another name in its placeholder, or in its archive's text."""
        if self.folds:
            old, new = (json.dumps(f"archive: {one}\n")[1:-1] for one in (self.name, name))
            return replace(self, name=name, new=self.new.replace(old.encode(), new.encode(), 1))
        token = placeholder_token(placeholder_named(name), block=self.block)
        return replace(self, name=name, new=token)

    @property
    def replacement(self) -> bytes | None:
        """What stands there afterwards where that is no placeholder."""
        return self.new if self.redacts or self.empties or self.folds else None

    @property
    def extracts(self) -> bool:
        """Whether a value leaves, rather than gives way to another text."""
        return not (self.redacts or self.folds)

    @property
    def gain(self) -> int:
        """Bytes by which the file shrinks."""
        return self.end - self.start - len(self.new)

    def bytes_after(self, _value_of: Callable[[int], bytes]) -> bytes:
        """Return what stands in the place afterwards."""
        return self.new

    def shows_in(self, entry: Entry) -> bool:
        """Check whether the parsed entry says what this edit was to make of it."""
        return bool(value_at(entry, self.path) == json.loads(self.new))

    def blank(self, entry: Entry) -> None:
        """Take what this edit touches out of a parsed entry, so that the rest can be compared."""
        value_at(entry, self.path[:-1])[self.path[-1]] = None


@dataclass(frozen=True, slots=True)
class Putback:
    """A placeholder that gives way to the bytes it stood for, `size` of them.

    They are read from the store, and compared with their digest, only when they are written.
    """

    start: int
    end: int
    extraction_id: int
    entry_id: str
    path: KeyPath
    size: int

    @property
    def new(self) -> None:
        """Only the store knows what stands there afterwards."""
        return

    @property
    def gain(self) -> int:
        """Bytes by which the file shrinks; below 0 where it grows."""
        return self.end - self.start - self.size

    def bytes_after(self, value_of: Callable[[int], bytes]) -> bytes:
        """Return what stands in the place afterwards: the stored value."""
        return value_of(self.extraction_id)

    def shows_in(self, _entry: Entry) -> bool:
        """Answer yes: the value is compared with its digest when it is read."""
        return True

    def blank(self, entry: Entry) -> None:
        """Take nothing out: the placeholder still stands in both when they are compared."""


# The id of the field record that a `FieldEdit` takes back which no record tells of.
UNRECORDED = 0


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """A top-level field of ours that is set, or one set earlier that is taken out again.

    `before` is its value as JSON as it stands now (None: the field is absent). `undoes` is the id
    of the field record that this edit takes back (UNRECORDED without one), None where it sets.
    `rest` is as in `Cut`.
    """

    start: int
    end: int
    new: bytes
    entry_id: str
    name: str
    before: bytes | None
    undoes: int | None = None
    rest: bytes | None = None

    @property
    def gain(self) -> int:
        """Bytes by which the file shrinks; below 0 where it grows."""
        return self.end - self.start - len(self.new)

    def bytes_after(self, _value_of: Callable[[int], bytes]) -> bytes:
        """Return what stands in the place afterwards."""
        return self.new

    def shows_in(self, _entry: Entry) -> bool:
        """Answer yes: a line in which the field stands twice is never edited."""
        return True

    def blank(self, entry: Entry) -> None:
        """Take the field out of a parsed entry, so that the rest can be compared."""
        entry.pop(self.name, None)


Edit = Cut | Putback | FieldEdit


@dataclass(frozen=True, slots=True)
class KeptPart:
    """How many values of one kind and tool stay for one reason, and how long they are together."""

    kind: str
    tool: str | None
    reason: str
    values: int
    chars: int


@dataclass(frozen=True, slots=True)
class Amount:
    """How many values of one kind and tool, and how many characters they are together."""

    kind: str
    tool: str | None
    values: int
    chars: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that would happen to one session; nothing does until it is carried out.

    `edits` are in the order of the file. `gain` is how many bytes the file would lose. `due_at` is
    when a decision next changes by time alone. `sighted` are the extractions that stand in the
    file. Of those that stood in it when it was last read, `gone` do not any more although their
    entries stand, and of `missing` the entries do not stand either. `foreign` are placeholders in
    the file that are a whole value and that no record explains. `missed` says, entry by entry, what
    was asked for and could not be done. `restored` names the entries that the store is to remember
    as restored, `requests` the requests that are fulfilled by it; `unanswered` are requests to
    redact that are over although nothing was found to redact. `asked_until` is the newest request
    that it took into account. `deferred` is why nothing may be changed although something was due.
    `unfit` names the entries whose signed thinking was asked for and does not fit any more.
    `unsent` counts what no request carries. `left` says, entry by entry, where a placeholder of
    ours stays although everything was to be put back. `lighter` is what the next request carries
    less, where that was asked for. `archives` are the turns that fold, `turns` says of each turn
    that was decided about why it does or not.
    """

    edits: tuple[Edit, ...] = ()
    kept: tuple[KeptPart, ...] = ()
    gain: int = 0
    due_at: float | None = None
    sighted: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    foreign: tuple[str, ...] = ()
    requests: tuple[int, ...] = ()
    unanswered: tuple[int, ...] = ()
    asked_until: int = 0
    restored: tuple[str, ...] = ()
    missed: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    deferred: str | None = None
    unfit: tuple[str, ...] = ()
    unsent: tuple[Amount, ...] = ()
    left: tuple[tuple[str, str], ...] = ()
    lighter: Sent = NOTHING
    archives: tuple[Archive, ...] = ()
    turns: tuple[Verdict, ...] = ()

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The edits that take a value out, redactions included."""
        return tuple(edit for edit in self.edits if isinstance(edit, Cut))

    @property
    def extracted(self) -> tuple[Cut, ...]:
        """The cuts that leave a placeholder, or thinking emptied of every word."""
        return tuple(edit for edit in self.edits if isinstance(edit, Cut) and edit.extracts)

    @property
    def entries(self) -> int:
        """How many entries these are extracted from; those of one entry stand side by side."""
        return sum(1 for _ in groupby(self.extracted, key=lambda cut: cut.entry_id))

    @property
    def putbacks(self) -> tuple[Putback, ...]:
        """The edits that put a value back."""
        return tuple(edit for edit in self.edits if isinstance(edit, Putback))

    @property
    def fields(self) -> tuple[FieldEdit, ...]:
        """The edits that set or take out a field of ours."""
        return tuple(edit for edit in self.edits if isinstance(edit, FieldEdit))

    @property
    def forced(self) -> bool:
        """Whether somebody asked for some of it: then it is carried out whatever it gains."""
        return any(
            not (isinstance(edit, Cut) and edit.extracts) or edit.forced for edit in self.edits
        )

    @property
    def summary(self) -> str:
        """What it does, in a few words."""
        shortened = sum(not (cut.extracts or cut.folds) for cut in self.cuts)
        done = [
            (len(self.extracted), "extracted"),
            (len(self.putbacks), "put back"),
            (shortened, "of the agent's own calls shortened"),
            (
                len(self.fields),
                "field set or undone" if len(self.fields) == 1 else "fields set or undone",
            ),
        ]
        parts = [f"{count} {what}" for count, what in done if count]
        if self.archives:
            turns = sum(one.turns for one in self.archives)
            parts.append(f"{folded_text(len(self.archives), turns)} folded")
        return ", ".join(parts)


Result = Literal["changed", "unchanged", "deferred", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run did, or would do, with one session, and why; `seen` says that it was read.

    `full` is how full that leaves it, where it has a budget.
    """

    session: str
    path: str
    format: str | None
    outcome: Result
    reason: str
    bytes_before: int
    bytes_after: int
    entries_extracted: int = 0
    values_extracted: int = 0
    values_restored: int = 0
    bytes_stored: int = 0
    seen: bool = False
    plan: Plan | None = field(default=None, compare=False, repr=False)
    full: Fullness | None = None
