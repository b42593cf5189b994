"""Plans and outcomes: what would happen to one session, what did, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from brainsurgeon.model.calls import NOTHING, Sent
from brainsurgeon.model.edits import Cut, FieldEdit, Putback
from brainsurgeon.model.packed import Edits, Some
from brainsurgeon.model.turns import folded_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.model.edits import Edit
    from brainsurgeon.model.loads import Fullness
    from brainsurgeon.model.turns import Archive, Verdict


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

    `edits` are in the order of the file. `gain` is how many bytes the file would lose. `due_at`
    is when a decision next changes by time alone. `sighted` are the extractions that stand in the
    file. Of those that stood in it when it was last read, `gone` do not any more although their
    entries stand, and of `missing` the entries do not stand either. `foreign` are placeholders in
    the file that are a whole value and that no record explains.
    `missed` says, entry by entry, what was asked for and could not be done.
    `restored` names the entries that the store is to remember as restored, `wishes` the wishes
    that are fulfilled by it; `unanswered` are wishes to redact that are over although nothing was
    found to redact. `asked_until` is the newest wish that it took into account. `deferred` is why
    nothing may be changed although something was due. `unfit` names the entries whose signed
    thinking was asked for and does not fit any more. `unsent` counts what no request carries.
    `left` says, entry by entry, where a stub of ours stays although everything was to be put back.
    `lighter` is what the next request carries less, where that was asked for. `archives` are the
    turns that fold, `turns` says of each turn that was decided about why it does or not.
    """

    edits: Sequence[Edit] = ()
    kept: tuple[KeptPart, ...] = ()
    gain: int = 0
    due_at: float | None = None
    sighted: tuple[int, ...] = ()
    gone: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    foreign: tuple[str, ...] = ()
    wishes: tuple[int, ...] = ()
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

    def __post_init__(self) -> None:
        """Keep the edits packed, whatever they come as."""
        if not isinstance(self.edits, Edits):
            object.__setattr__(self, "edits", Edits(self.edits))

    @property
    def _packed(self) -> Edits:
        return self.edits if isinstance(self.edits, Edits) else Edits(self.edits)

    @property
    def cuts(self) -> Sequence[Cut]:
        """The edits that take a value out, redactions included."""
        return Some(self._packed, Cut, self._packed.cuts)

    @property
    def extracted(self) -> Sequence[Cut]:
        """The cuts that leave a stub, or thinking emptied of every word."""
        return Some(self._packed, Cut, self._packed.extracted, lambda cut: cut.extracts)

    @property
    def entries(self) -> int:
        """How many entries these are cut out of; those of one entry stand side by side."""
        return self._packed.entries

    @property
    def putbacks(self) -> Sequence[Putback]:
        """The edits that put a value back."""
        return Some(self._packed, Putback, self._packed.putbacks)

    @property
    def fields(self) -> Sequence[FieldEdit]:
        """The edits that set or take out a field of ours."""
        return Some(self._packed, FieldEdit, self._packed.fields)

    @property
    def forced(self) -> bool:
        """Whether somebody asked for some of it: then it is carried out whatever it gains."""
        edits = self._packed
        return edits.extracted != len(edits) or edits.forced > 0

    @property
    def summary(self) -> str:
        """What it does, in a few words."""
        done = [
            (len(self.extracted), "extracted"),
            (len(self.putbacks), "put back"),
            (
                len(self.cuts) - len(self.extracted) - self._packed.folds,
                "of the agent's own calls shortened",
            ),
            (
                len(self.fields),
                "field set or undone" if len(self.fields) == 1 else "fields set or undone",
            ),
        ]
        parts = [f"{count} {what}" for count, what in done if count]
        if self.archives:
            turns = sum(one.turns or 1 for one in self.archives)
            parts.append(f"{folded_text(len(self.archives), turns)} folded")
        return ", ".join(parts)


Result = Literal["changed", "unchanged", "deferred", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass did, or would do, with one session, and why; `seen` says that it was read.

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
