"""The ladder: what changes, step by step, where a session is too full; the steps add up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.decide.rules import Rule
from brainsurgeon.decide.turns import without_thresholds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.decide.folding import Folding
    from brainsurgeon.decide.rules import Rules

SHORTEST = 200
"""Characters that a value must have at most to be worth a stub, from the first step on."""
KEPT_TURNS = 2
"""Live turns that stay as they are where the others fold."""
GIANT = 0.1
"""The share of the window from which on a result is too large wherever it stands."""


@dataclass(frozen=True, slots=True)
class Room:
    """What the steps need to know: the window, tokens for a character, and live messages."""

    window: int
    rate: float
    messages: int


def _shorter(rules: Rules, _room: Room) -> Rules:
    return replace(
        _each(rules, lambda rule: replace(
            rule, min_value_length=min(rule.min_value_length, SHORTEST)
        )),
        min_value_length=min(rules.min_value_length, SHORTEST),
    )  # fmt: skip


def _no_giants(rules: Rules, room: Room) -> Rules:
    return replace(rules, giant=max(1, int(GIANT * room.window / room.rate)))


def _fewer_recent(rules: Rules, _room: Room) -> Rules:
    return replace(
        _each(rules, lambda rule: replace(rule, keep_recent=min(rule.keep_recent, 1))),
        keep_recent=min(rules.keep_recent, 1),
    )  # fmt: skip


def _calls_too(rules: Rules, _room: Room) -> Rules:
    if any(rule.kind == "tool_call" and not rule.tools for rule in rules.rules):
        return rules
    calls = Rule("tool_call", (), rules.min_value_length, rules.keep_recent)
    return replace(rules, rules=(*rules.rules, calls))


def _newer_half(rules: Rules, room: Room) -> Rules:
    half = _half(room)
    return replace(rules, max_messages=min(rules.max_messages or half, half))


def _half(room: Room) -> int:
    return max(1, (room.messages + 1) // 2)


def _fold_turns(folding: Folding, _room: Room) -> Folding:
    rules = without_thresholds(folding.rules)
    return replace(folding, rules=replace(rules, keep_turns=min(rules.keep_turns, KEPT_TURNS)))


def _fold_older_half(folding: Folding, room: Room) -> Folding:
    half = _half(room)
    return replace(folding, beyond=min(folding.beyond or half, half))


def _each(rules: Rules, change: Callable[[Rule], Rule]) -> Rules:
    return replace(rules, rules=tuple(change(rule) for rule in rules.rules))


LADDER: dict[int, Callable[[Rules, Room], Rules]] = {
    1: _shorter, 2: _no_giants, 4: _fewer_recent, 5: _calls_too, 6: _newer_half,
}  # fmt: skip
"""What each step changes in the rules."""
FOLDS: dict[int, Callable[[Folding, Room], Folding]] = {3: _fold_turns, 6: _fold_older_half}
"""What a step asks of the turns, where they can fold in the linked form."""
IN_ROWS = (1, 2, 4, 5)
"""The steps that there are in a database, where an index holds what was said."""


def steps_to(highest: int, *, in_rows: bool = False, linked: bool = False) -> tuple[int, ...]:
    """Give the steps that there are, up to one, from the lowest; `linked` is a form of archives."""
    there = IN_ROWS if in_rows else {*LADDER, *FOLDS} if linked else LADDER
    return tuple(step for step in sorted(there) if step <= highest)


def rules_at(taken: Iterable[int], rules: Rules, room: Room) -> Rules:
    """Give the rules that hold once these steps are taken."""
    for step in taken:
        if step in LADDER:
            rules = LADDER[step](rules, room)
    return rules


def folding_at(taken: Iterable[int], folding: Folding, room: Room) -> Folding:
    """Give what is asked of the turns once these steps are taken in the linked form."""
    for step in taken:
        if step in FOLDS:
            folding = FOLDS[step](folding, room)
    return folding
