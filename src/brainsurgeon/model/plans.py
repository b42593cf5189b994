"""The plan of one session. Each edit replaces the bytes from `start` to `end`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon.model.entries import KeyPath, RemovedValue, placeholder_named
from brainsurgeon.model.turns import LINK, Fullness, PlannedArchive, Savings, Verdict, archived_text

How = Literal["extract", "redact", "empty", "archive"]


class Removal(RemovedValue, frozen=True, kw_only=True):
    """A value that a plan removes from its line, and its replacement `new` (JSON).

    Depending on `how`, `new` is a placeholder with the id `name` (`extract`), a shorter value
    (`redact`), what the format uses for "no thinking" (`empty`), or the text or the parent id of an
    archive (`archive`).
    """

    start: int
    end: int
    new: bytes
    forced: bool  # requested or required: carried out even if it gains nothing
    reason: str
    how: How = "extract"
    # The id of the extraction that stands there: its stored value is what the agent wrote.
    takes_over: int | None = None
    hashed: int | None = None  # as of the value

    @property
    def contains_name(self) -> bool:
        return self.replacement is None or (self.how == "archive" and self.path != LINK)

    def with_name(self, name: str) -> Removal:
        if self.how == "archive":
            old, new = (json.dumps(f"archive: {each}\n")[1:-1] for each in (self.name, name))
            return replace(self, name=name, new=self.new.replace(old.encode(), new.encode(), 1))
        before, after = (placeholder_named(each).encode() for each in (self.name, name))
        token = self.new.replace(before, after, 1).rstrip(b" ")
        return replace(self, name=name, new=token.ljust(len(self.new)))

    @property
    def shorter(self) -> int:
        """The bytes by which the value becomes shorter, although spaces may keep their place."""
        return self.end - self.start - len(self.new.rstrip(b" "))

    @property
    def replacement(self) -> bytes | None:
        return None if self.how == "extract" else self.new

    @property
    def extracts(self) -> bool:
        return self.how in ("extract", "empty")


class Restoration(Struct, frozen=True):
    start: int
    end: int
    extraction_id: int
    entry_id: str
    path: KeyPath
    size: int
    tokens: int = 0


class FieldEdit(Struct, frozen=True):
    start: int
    end: int
    new: bytes
    entry_id: str
    name: str
    before: bytes | None  # the old JSON; None if the field was absent
    undoes: int | None = None  # the id of the record to undo; None: set the field
    rest: bytes | None = None  # as in `RemovedValue`
    as_ours: bool = False  # the field that is replaced is written as we insert it


Edit = Removal | Restoration | FieldEdit


def gain(edits: Iterable[Edit]) -> int:
    return sum(
        edit.end - edit.start - (edit.size if isinstance(edit, Restoration) else len(edit.new))
        for edit in edits
    )


def freed(edits: Iterable[Edit]) -> int:
    """Return by how many bytes values become shorter. A file may keep its size all the same."""
    return sum(edit.shorter if isinstance(edit, Removal) else gain((edit,)) for edit in edits)


def bytes_after(edit: Edit, value_of: Callable[[int], bytes]) -> bytes:
    return value_of(edit.extraction_id) if isinstance(edit, Restoration) else edit.new


class Amount(Struct, frozen=True):
    kind: str
    tool: str | None
    values: int
    chars: int


class KeptValues(Amount, frozen=True):
    reason: str


class Decision(Struct, frozen=True):
    """What a scan does with a value, and why."""

    entry_id: str | None
    path: KeyPath
    kind: str
    tool: str | None
    chars: int
    reason: str
    extracts: bool = False
    otherwise: str = ""  # what would change the decision


class Amounts(defaultdict[tuple[Any, ...], list[int]]):
    """Number and total length of values, by kind, tool and perhaps reason."""

    def __init__(self) -> None:
        super().__init__(lambda: [0, 0])

    def add(self, *key: str | None, chars: int, values: int = 1) -> None:
        self[key][0] += values
        self[key][1] += chars

    def listed(self) -> tuple[Amount, ...]:
        return tuple(Amount(*key, *sums) for key, sums in self.ranked())

    def ranked(self) -> list[tuple[tuple[Any, ...], list[int]]]:
        return sorted(self.items(), key=lambda item: -item[1][1])


class FoundPlaceholders(Struct, frozen=True):
    """Which placeholders of ours are in a session, and which recorded ones are not."""

    here: tuple[int, ...] = ()  # extractions (ids) whose placeholders are in the file
    gone: tuple[int, ...] = ()  # extractions whose placeholders disappeared; their entries exist
    missing: tuple[int, ...] = ()  # extractions whose entries may be gone
    foreign: tuple[str, ...] = ()  # placeholders without a record
    tokens: int = 0  # saved in each request by the extractions `here`
    typed: int = 0  # texts that only look like placeholders
    lost: tuple[int, ...] = ()  # offsets of lines, one for each placeholder without a stored value


class Unrestored(NamedTuple):
    """A place of ours that cannot be undone."""

    entry_id: str
    why: str
    is_archive: bool = False

    def __str__(self) -> str:
        return f"{self.entry_id}: {'an archived turn: ' if self.is_archive else ''}{self.why}"


class Handled(Struct, frozen=True):
    requests: tuple[int, ...] = ()  # fulfilled ones
    asked_until: int = 0  # the id of the newest request considered
    unanswered: tuple[int, ...] = ()  # requests to redact an answer that was not found in time
    restored: tuple[str, ...] = ()  # entries to record as restored
    missed: tuple[tuple[str, str], ...] = ()  # entries of impossible requests, and why
    unfit: tuple[str, ...] = ()  # entries whose signed thinking could not be made valid
    # Entries that keep a placeholder although all values were to be restored, and why.
    unrestored: tuple[Unrestored, ...] = ()
    fields_gone: tuple[int, ...] = ()  # ids of records


class Plan(Struct, frozen=True):
    edits: tuple[Edit, ...] = ()  # in the order of the file
    kept: tuple[KeptValues, ...] = ()
    decisions: tuple[Decision, ...] = ()  # on each value, if they are asked for
    unsent: tuple[Amount, ...] = ()  # values that no request contains
    due_at: float | None = None  # when the passage of time next changes a decision
    # Ids of restored entries, and the times until which they keep their values.
    protected: Mapping[str, float] = field(default_factory=dict)
    placeholders: FoundPlaceholders = FoundPlaceholders()
    handled: Handled = Handled()
    warnings: tuple[str, ...] = ()
    deferred: str | None = None  # why the session may not be changed now
    archives: tuple[PlannedArchive, ...] = ()
    turns: tuple[Verdict, ...] = ()
    load: int = 0  # tokens of the session's last prompt and its answer, 0 if unknown
    line: int = 0  # prompts of more tokens are dearer; 0: there is no such line
    reasoning_lost: int = 0  # tokens of reasoning that the provider drops behind the edits

    @property
    def gain(self) -> int:
        return gain(self.edits)

    @property
    def freed(self) -> int:
        return freed(self.edits)

    @property
    def is_below_line(self) -> bool:
        """Check whether the plan brings a prompt below the line above which prompts are dearer."""
        return self.load - self.tokens <= self.line < self.load and self.line > 0

    @property
    def removals(self) -> tuple[Removal, ...]:
        return tuple(edit for edit in self.edits if isinstance(edit, Removal))

    @property
    def optional(self) -> tuple[Removal, ...]:
        return tuple(one for one in self.removals if one.tokens > 0 and not self.is_requested(one))

    def is_requested(self, edit: Edit) -> bool:
        """Check whether an edit changes the next request, and was requested or required."""
        if isinstance(edit, FieldEdit) or edit.tokens <= 0:
            return False
        if isinstance(edit, Removal) and edit.how == "archive":
            return any(turn.requested and turn.closing_id == edit.entry_id for turn in self.turns)
        return not isinstance(edit, Removal) or edit.how == "redact" or edit.forced

    @property
    def extracted(self) -> tuple[Removal, ...]:
        return tuple(removal for removal in self.removals if removal.extracts)

    @property
    def values(self) -> tuple[Removal, ...]:
        """What is extracted, once for each value: copies of it may be in several places.

        Other values of entries whose ids come again are no copies. Not every copy has a hash.
        """
        by_value = {
            ((one.entry_id, one.name, one.path, one.end - one.start), one.hashed): one
            for one in self.extracted
        }
        hashed = {place for place, number in by_value if number is not None}
        return tuple([
            one for (place, number), one in by_value.items()
            if number is not None or place not in hashed
        ])  # fmt: skip

    @property
    def values_restored(self) -> int:
        return len({edit.extraction_id for edit in self.restorations})

    @property
    def entries(self) -> int:
        return len({removal.entry_id for removal in self.extracted})

    @property
    def tokens(self) -> int:
        removed = sum(removal.tokens for removal in self.removals)
        return removed - sum(edit.tokens for edit in self.restorations)

    @property
    def request_bytes(self) -> int:
        """Return at least how many bytes the next request will be shorter."""
        return sum(
            # The `chars` of a turn's first archive include the entries that leave with it.
            one.chars - len(one.new) if one.how == "archive" and one.takes_over is None
            else one.shorter
            for one in self.removals if one.tokens > 0
        )  # fmt: skip

    def savings_after(self, savings: Savings, now: float) -> Savings:
        broken = any(not isinstance(edit, FieldEdit) and edit.tokens for edit in self.edits)
        return replace(
            savings, off=max(0, savings.off + self.tokens),
            broken_at=now if broken else savings.broken_at,
        )  # fmt: skip

    @property
    def restorations(self) -> tuple[Restoration, ...]:
        return tuple(edit for edit in self.edits if isinstance(edit, Restoration))

    @property
    def only_restores(self) -> bool:
        return not self.removals

    @property
    def fields(self) -> tuple[FieldEdit, ...]:
        return tuple(edit for edit in self.edits if isinstance(edit, FieldEdit))

    @property
    def insertions_removed(self) -> tuple[str, ...]:
        return tuple(
            f"{edit.name} of {edit.entry_id}" for edit in self.fields if edit.undoes is not None
        )

    @property
    def not_done(self) -> tuple[str, ...]:
        return tuple(f"{entry}: {why}" for entry, why in self.handled.missed)

    @property
    def forced(self) -> bool:
        return any(
            not (isinstance(edit, Removal) and edit.extracts) or edit.forced for edit in self.edits
        )

    @property
    def summary(self) -> str:
        shortened = sum(removal.how == "redact" for removal in self.removals)
        noun = "field" if len(self.fields) == 1 else "fields"
        counts = {
            "extracted": len(self.values),
            "restored": self.values_restored,
            "of the agent's own calls shortened": shortened,
            f"{noun} set or undone": len(self.fields),
        }
        parts = [f"{count:,} {text}" for text, count in counts.items() if count]
        if self.archives:
            turns = sum(archive.turns for archive in self.archives)
            parts.append(f"{archived_text(len(self.archives), turns)} archived")
        return ", ".join(parts)


Result = Literal["changed", "unchanged", "deferred", "skipped", "failed"]


class Outcome(Struct, frozen=True):
    session: str
    path: str
    format: str | None
    outcome: Result
    reason: str
    bytes_before: int
    bytes_after: int
    bytes_stored: int = 0
    plan: Plan | None = None
    full: Fullness | None = None  # of the session after the run

    @property
    def executed(self) -> Plan:
        return self.plan if self.plan and self.outcome == "changed" else Plan()
