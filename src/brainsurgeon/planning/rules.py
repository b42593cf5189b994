"""What a rule may say, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Literal

from brainsurgeon.model.entries import EXTRACTABLE, OLD, RESTORED, is_own_placeholder
from brainsurgeon.model.text import moment_said

if TYPE_CHECKING:
    from brainsurgeon.model.entries import Entry, Part
    from brainsurgeon.model.sessions import Fingerprint, Survey


Unseal = Literal["", "broken", "all"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: which parts it speaks of, and from which length and position they may go.

    `tools` are globs over the tool's name; empty means any part. `keep_recent` is in messages,
    `min_value_length` in characters.
    """

    kind: str
    tools: tuple[str, ...]
    min_value_length: int
    keep_recent: int

    def matches(self, part: Part) -> bool:
        if part.kind != self.kind:
            return False
        return not self.tools or any(fnmatchcase(part.tool or "", glob) for glob in self.tools)


@dataclass(frozen=True, slots=True)
class Rules:
    """All rules of a configuration, in order; the first that matches a part decides.

    `keep_recent` and `min_value_length` hold where no rule matches. `keep_after_restore` is in
    seconds. A plan that gains less than `min_reclaim_share` of the file plus `min_reclaim_bytes`
    is not carried out. `dead_kinds` are the kinds that may go from entries that no request
    carries any more; empty, they are the kinds that some rule speaks of. `sealed` says what becomes
    of thinking that is valid only behind what stands before it, `sealed_models` (globs) which
    models seal theirs.

    A result of more than `giant` characters goes wherever it stands, and whatever stands more than
    `max_messages` messages back goes whatever its length; 0 switches either off. `unseal` takes
    signed thinking out in any turn: what is `broken` or hollow, or `all` of it.
    """

    rules: tuple[Rule, ...]
    keep_recent: int = 3
    min_value_length: int = 500
    dead_kinds: tuple[str, ...] = ()
    sealed: str = "take"
    sealed_models: tuple[str, ...] = ()
    enabled: bool = True
    keep_after_restore: float = 600.0
    exclude_tools: tuple[str, ...] = ()
    min_reclaim_share: float = 0.01
    min_reclaim_bytes: int = 0
    giant: int = 0
    max_messages: int = 0
    unseal: Unseal = ""

    def match(self, part: Part) -> Rule | None:
        """Return the first rule that speaks of the part."""
        return next((rule for rule in self.rules if rule.matches(part)), None)

    def excludes(self, part: Part) -> bool:
        """Check whether the part's tool is to be left alone."""
        tool = part.tool
        return tool is not None and any(fnmatchcase(tool, glob) for glob in self.exclude_tools)

    def pays(self, gain: int, size: int) -> bool:
        """Check whether a net gain of `gain` bytes is worth rewriting a file of `size` bytes."""
        return gain > 0 and (gain - self.min_reclaim_bytes) / size >= self.min_reclaim_share

    @property
    def shortest(self) -> int:
        """The length (characters) up to which no rule lets a value go."""
        if self.max_messages:
            return 0
        lengths = (rule.min_value_length for rule in self.rules)
        return min(lengths, default=0) if not self.rules else min(self.min_value_length, *lengths)

    @property
    def window(self) -> int:
        """The largest number of recent messages that any rule keeps."""
        return max(
            [self.keep_recent, self.max_messages, *(rule.keep_recent for rule in self.rules)]
        )


@dataclass(frozen=True, slots=True)
class EntryState:
    """What an entry says about itself, and where it stands.

    `extractable` is True, False, a window in messages, or None. `restored_at` is the later of what
    the entry and the store say. `placeholders` are the placeholders that stand in it and are known.
    `dead` says why no request carries the entry any more, None where one may. An `emptied` one
    stands in the middle of a turn that folds: its thinking and results go whatever their length.
    """

    entry_id: str | None
    position: int
    extractable: bool | int | None = None
    restored_at: float | None = None
    redacted: bool = False
    placeholders: frozenset[str] = frozenset()
    dead: str | None = None
    emptied: bool = False


@dataclass(frozen=True, slots=True)
class Extract:
    """Take the value out."""

    reason: str
    forced: bool = False


@dataclass(frozen=True, slots=True)
class Keep:
    """Leave the value; `until` is when time alone may change that."""

    reason: str
    until: float | None = None


def extract(
    part: Part, value: object, entry: EntryState, rules: Rules, now: float
) -> Extract | Keep:
    """Decide about one part of one entry."""
    if not rules.enabled:
        return Keep("disabled")
    if rules.excludes(part):
        return Keep("excluded tool")
    if entry.entry_id is None:
        return Keep("not extractable: the entry has no usable id")
    if entry.redacted:
        return Keep("not extractable: redacted")
    if part.locked:
        return Keep(f"not extractable: {part.locked}")
    if _is_extracted(value, entry):
        return Keep("already extracted")
    return _by_override(part, entry, rules, now)


def _by_override(part: Part, entry: EntryState, rules: Rules, now: float) -> Extract | Keep:
    override = entry.extractable
    if override is False:
        return Keep("pinned")
    if override is True:
        return Extract(f"{_describe(part, entry)}, forced by _extractable", forced=True)
    protected = _protection(entry, rules, now)
    if protected:
        return protected
    if entry.emptied and part.kind in ("thinking", "tool_result"):
        return Extract(f"{part.kind} of {part.chars:,} characters, of an archived turn")
    return _by_rule(part, entry, rules, override)


def _by_rule(part: Part, entry: EntryState, rules: Rules, window: int | None) -> Extract | Keep:
    rule = rules.match(part)
    if entry.dead is None:
        if window is not None and entry.position < window:
            return Keep("inside its own window")
        if (rules.giant or rules.max_messages) and _too_much(part, entry, rules, rule):
            return Extract(_describe(part, entry))
        if window is None and entry.position < (rule.keep_recent if rule else rules.keep_recent):
            return Keep("recent")
    if rule is None and not _goes_unsent(part, entry, rules):
        return Keep("kind not among the triggers")
    if entry.dead and not part.dead and rules.dead_kinds and part.kind not in rules.dead_kinds:
        return Keep("kind not among the dead kinds")
    if part.chars <= (rule.min_value_length if rule else rules.min_value_length):
        return Keep("short")
    return Extract(_describe(part, entry))


def _too_much(part: Part, entry: EntryState, rules: Rules, rule: Rule | None) -> bool:
    """Check whether a part goes whatever its length or position: a giant, or beyond the last one.

    Arguments of calls go only where a rule speaks of them: models copy what they see.
    """
    if part.dead:
        return False
    giant = 0 < rules.giant < part.chars and part.kind == "tool_result" and not part.block
    beyond = 0 < rules.max_messages <= entry.position
    return giant or (beyond and (rule is not None or part.kind != "tool_call"))


def _goes_unsent(part: Part, entry: EntryState, rules: Rules) -> bool:
    """Check whether a part may go whatever its kind, since no model sees it."""
    return part.dead or (entry.dead is not None and part.kind in rules.dead_kinds)


def _is_extracted(value: object, entry: EntryState) -> bool:
    """Check whether a value already is a placeholder of this entry, as a string or a text block."""
    if isinstance(value, dict):
        value = value.get("text") if value.keys() == {"type", "text"} else None
    if not isinstance(value, str) or entry.entry_id is None:
        return False
    # Compared one by one: a set would have to hash a long value.
    return is_own_placeholder(value, entry.entry_id) or any(
        value == placeholder for placeholder in entry.placeholders
    )


def no_gain(decision: Extract, *, placeholder: int, value: int) -> bool:
    """Check whether the placeholder's token (bytes) would not be shorter than the value's."""
    return not decision.forced and placeholder >= value


def _protection(entry: EntryState, rules: Rules, now: float) -> Keep | None:
    """Keep what was restored less than the protection ago; at the boundary itself it is over."""
    if entry.restored_at is None or now >= entry.restored_at + rules.keep_after_restore:
        return None
    ago = max(0, round(now - entry.restored_at))
    return Keep(f"restored {ago} s ago", until=entry.restored_at + rules.keep_after_restore)


def _describe(part: Part, entry: EntryState) -> str:
    where = "old" if entry.position == OLD else f"{entry.position} messages back"
    where = "never sent" if part.dead else entry.dead or where
    return f"{part.kind} of {part.chars:,} characters, {where}"


def read_extractable(entry: Entry) -> tuple[bool | int | None, str | None]:
    """Read `_extractable`: True, False or a window, and a warning where it is anything else.

    True and False are booleans only; bool is tested first, since Python's True is an int.
    """
    if EXTRACTABLE not in entry:
        return None, None
    value = entry[EXTRACTABLE]
    if isinstance(value, bool) or (isinstance(value, int) and value >= 0):
        return value, None
    return None, "_extractable is neither true, false nor a whole number from 0: ignored"


def read_restored(entry: Entry, rules: Rules, now: float) -> tuple[float | None, str | None]:
    """Read `_restored` (ISO 8601; UTC without a zone), and a warning where it is not usable."""
    if RESTORED not in entry:
        return None, None
    restored = moment_said(entry[RESTORED])
    if restored is None:
        return None, "_restored is not an ISO 8601 time: ignored"
    if restored > now + rules.keep_after_restore:
        return None, "_restored lies in the future: ignored"
    return restored, None


def silence(fingerprint: Fingerprint, first_seen: float, now: float) -> float:
    """Tell for how many seconds the file has been quiet.

    A modification time in the future counts from when this state of the file was first seen.
    """
    modified = fingerprint.mtime_ns / 1e9
    return max(0.0, now - (modified if modified <= now else min(first_seen, now)))


def restless(silent: float, quiet: float) -> str | None:
    """Say that the file changed too recently, or None."""
    return None if silent >= quiet else f"changed {silent:.0f} s ago, quiet is {quiet:.0f} s"


def open_turn(survey: Survey, silent: float, abandoned: float) -> str | None:
    """Say that a turn is open, or None; one silent for `abandoned` seconds counts as closed."""
    return survey.open_turn if survey.open_turn and silent < abandoned else None
