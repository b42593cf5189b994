"""The ladder: what changes, step by step, where a session is too full; the steps add up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.decide.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.decide.rules import Rules

SHORTEST = 200
"""Characters that a value must have at most to be worth a stub, from the first step on."""
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
    half = max(1, (room.messages + 1) // 2)
    return replace(rules, max_messages=min(rules.max_messages or half, half))


def _each(rules: Rules, change: Callable[[Rule], Rule]) -> Rules:
    return replace(rules, rules=tuple(change(rule) for rule in rules.rules))


LADDER: dict[int, Callable[[Rules, Room], Rules]] = {
    1: _shorter, 2: _no_giants, 4: _fewer_recent, 5: _calls_too, 6: _newer_half,
}  # fmt: skip
"""What each step changes in the rules."""
IN_ROWS = (1, 2, 4, 5)
"""The steps that there are in a database, where an index holds what was said."""


def steps_to(highest: int, *, in_rows: bool = False) -> tuple[int, ...]:
    """Give the steps that there are, up to one, from the lowest."""
    return tuple(
        step for step in sorted(LADDER) if step <= highest and (step in IN_ROWS or not in_rows)
    )


def rules_at(taken: Iterable[int], rules: Rules, room: Room) -> Rules:
    """Give the rules that hold once these steps are taken."""
    for step in taken:
        rules = LADDER[step](rules, room)
    return rules
