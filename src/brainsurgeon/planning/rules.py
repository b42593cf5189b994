"""The decision about one value of an entry, and how long a session has been unchanged."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from brainsurgeon.model.entries import (
    EXTRACTABLE,
    OLD,
    REDACTED,
    RESTORED,
    Value,
    placeholder_id,
    unnumbered,
)
from brainsurgeon.model.records import Extraction
from brainsurgeon.model.rules import Rule, ValueRules
from brainsurgeon.model.session_files import OFF_BRANCH, Fingerprint
from brainsurgeon.model.text import counted, iso, minute, parse_time
from brainsurgeon.planning.snapshot import Snapshot, is_override

LAST = 2  # upper limit of `keep_recent` for superseded values
_ODD = "_extractable is ignored: it must be true, false or a whole number of at least 0"
FITS = "the session fits without this change"


class EntryState(Struct, frozen=True):
    """The facts about an entry that decide about its values."""

    entry_id: str | None
    position: int
    extractable: bool | int | None = None  # an integer N: kept in the newest N messages
    restored_at: float | None = None  # the latest time in the entry or the store
    redacted: bool = False
    names: frozenset[str] = frozenset()  # in its placeholders that have a record
    dead: str | None = None  # why requests no longer contain the entry
    emptied: bool = False  # in an archived turn: thinking and results of any length are extracted
    superseded: str = ""  # the id of the entry that supersedes the value
    changes_at: float | None = None  # when it dies by time alone
    warnings: tuple[str, ...] = ()


def state_of(
    session: Snapshot, rules: ValueRules, index: int, standing: Iterable[Extraction] = ()
) -> EntryState:
    """Return the state of an entry, in which some extracted values are `standing`."""
    entry, now = session.transcript.entries[index], session.now
    ident, fields = entry.ident, entry.marks.fields if entry.marks else {}
    stamp, unusable = read_restored(fields, rules, now)
    odd = None if is_override(fields.get(EXTRACTABLE, True)) else _ODD
    dead, changes_at = session.transcript.chain.dead.get(index), None
    if dead == OFF_BRANCH and now < session.branches_die_at:  # the user may resume the branch
        dead, changes_at = None, session.branches_die_at
    remembered = session.records.restores.get(ident) if ident else None
    latest = now + rules.keep_after_restore
    stamps = [when for when in (stamp, remembered) if when is not None and when <= latest]
    return EntryState(
        ident, session.transcript.position(index), session.override(entry),
        max(stamps, default=None), bool(fields.get(REDACTED)),
        frozenset(value.name for value in standing if value.placeholder), dead,
        changes_at=changes_at,
        warnings=tuple(f"entry {ident}: {why}" for why in (odd, unusable) if why),
    )  # fmt: skip


class Extract(Struct, frozen=True):
    reason: str
    forced: bool = False


class Keep(Struct, frozen=True):
    """The value stays. At `until`, this may change although the session does not."""

    reason: str
    until: float | None = None


def decision_on(
    value: Value, name: str | None, entry: EntryState, rules: ValueRules, now: float
) -> Extract | Keep:
    """Decide about a value by rules and its entry. `name` is the id in a placeholder for it."""
    if not rules.enabled:
        return Keep("disabled")
    if rules.excludes(value):
        return Keep("excluded tool")
    if entry.entry_id is None:
        return Keep("not extractable: the entry has no usable id")
    if entry.redacted:
        return Keep("not extractable: redacted")
    if value.locked:
        return Keep(f"not extractable: {value.locked}")
    if name and (name in entry.names or unnumbered(name) == placeholder_id(entry.entry_id)):
        return Keep("already extracted")
    return _by_override(value, entry, rules, now)


def _by_override(value: Value, entry: EntryState, rules: ValueRules, now: float) -> Extract | Keep:
    override = entry.extractable
    if override is False:
        return Keep("pinned")
    if override is True:
        return Extract(f"{_describe(value, entry)}, forced by _extractable", forced=True)
    restored_at = entry.restored_at
    if restored_at is not None and now < (until := restored_at + rules.keep_after_restore):
        return Keep(f"restored, and kept until {minute(until)}", until)
    if entry.emptied and value.kind in ("thinking", "tool_result"):
        return Extract(f"{value.kind} of {value.chars:,} characters, of an archived turn")
    return _by_rule(value, entry, rules, override)


def _by_rule(
    value: Value, entry: EntryState, rules: ValueRules, newest: int | None
) -> Extract | Keep:
    rule = rules.match(value)
    if entry.dead is None:
        if newest is not None and entry.position < newest:
            return Keep("recent by its _extractable")
        if (entry.entry_id, value.path) in rules.heavy and not value.dead:
            return Extract(_describe(value, entry))
        if (rules.giant or rules.max_messages) and _too_much(value, entry, rules, rule):
            return Extract(_describe(value, entry))
        recent = rule.keep_recent if rule else rules.keep_recent
        if entry.superseded:
            recent = min(recent, LAST)
        if newest is None and entry.position < recent:
            return Keep("recent")
    # Models see no dead values and need no superseded ones, so any kind may be extracted.
    if rule is None and not value.dead and not entry.superseded:
        return Keep("no rule for this kind or tool")
    if value.chars <= (rule.min_value_length if rule else rules.min_value_length):
        return Keep("short")
    return Extract(_describe(value, entry))


def otherwise(value: Value, entry: EntryState, rules: ValueRules, decision: Extract | Keep) -> str:
    """Return what would change a decision, or nothing if the user cannot."""
    rule = rules.match(value)
    recent = rule.keep_recent if rule else rules.keep_recent
    recent = min(recent, LAST) if entry.superseded else recent
    match decision.reason:
        case "disabled":
            return "the key enabled"
        case "excluded tool":
            return f"the key exclude, which names {value.tool}"
        case "already extracted":
            return "brainsurgeon restore"
        case "pinned" | "recent by its _extractable":
            return "brainsurgeon pin --undo, or extract"
        case "recent":
            more = counted(recent - entry.position, "newer message")
            return f"{more} (keep_recent = {recent})"
        case "short":
            least = rule.min_value_length if rule else rules.min_value_length
            return f"more than {least:,} characters (min_value_length)"
        case "no rule for this kind or tool":
            return f"a rule for {value.kind} (the key rules), or brainsurgeon extract"
    if isinstance(decision, Extract):
        return "brainsurgeon pin"
    return f"time: {iso(decision.until)}" if decision.until is not None else ""


def _too_much(value: Value, entry: EntryState, rules: ValueRules, rule: Rule | None) -> bool:
    if value.dead:
        return False
    # Arguments of calls need a matching rule: models copy placeholders into their next calls.
    giant = 0 < rules.giant < value.chars and value.kind == "tool_result" and not value.block
    beyond = 0 < rules.max_messages <= entry.position
    return giant or (beyond and (rule is not None or value.kind != "tool_call"))


def _describe(value: Value, entry: EntryState) -> str:
    where = "old" if entry.position == OLD else f"{entry.position} messages back"
    where = f"superseded by {entry.superseded}" if entry.superseded else where
    where = "never sent" if value.dead else entry.dead or where
    return f"{value.kind} of {value.chars:,} characters, {where}"


def read_restored(
    entry: Mapping[str, Any], rules: ValueRules, now: float
) -> tuple[float | None, str | None]:
    if RESTORED not in entry:
        return None, None
    restored = parse_time(entry[RESTORED])
    if restored is None:
        return None, "_restored is not an ISO 8601 time: ignored"
    if restored > now + rules.keep_after_restore:
        return None, "_restored lies in the future: ignored"
    return restored, None


def silence(fingerprint: Fingerprint, first_seen: float, now: float) -> float:
    """Return the seconds since the last change; if it is in the future, since `first_seen`."""
    modified = fingerprint.mtime_ns / 1e9
    return max(0.0, now - (modified if modified <= now else min(first_seen, now)))


def changed_recently(silent: float, quiet: float) -> str | None:
    if silent >= quiet:
        return None
    return f"changed {silent:.0f} s ago; it must be unchanged for {quiet:.0f} s"
