"""Decide, turn by turn, what folds into its last answer. The first condition that holds wins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from brainsurgeon.model.turns import Verdict

if TYPE_CHECKING:
    from brainsurgeon.model.turns import Turn

RATE = 0.33
"""Tokens of a character, where a session's own usage tells nothing better."""
_WORTH = 0.5
"""The share of what leaves by which the text may grow."""


@dataclass(frozen=True, slots=True)
class ArchiveRules:
    """What decides about turns.

    `keep_recent` is in messages, `keep_turns` in live turns. More than `token_threshold` tokens in
    its middle, or at least `tool_call_threshold` calls, fold a turn. `summary_chars` bounds what a
    summary quotes, `rate` is the tokens of a character.
    """

    enabled: bool = False
    token_threshold: int = 8000
    tool_call_threshold: int = 5
    on_failed: bool = True
    keep_turns: int = 2
    depth_cap: int = 3
    fold_after: int = 20
    style: str = "structured"
    summary_chars: int = 2000
    keep_recent: int = 3
    rate: float = RATE


def without_thresholds(rules: ArchiveRules) -> ArchiveRules:
    """Give rules by which every turn folds that may, whatever its size."""
    return replace(rules, enabled=True, token_threshold=-1)


def tokens_of(chars: int, rate: float = RATE) -> int:
    """Give the tokens that so many characters come to."""
    return round(chars * rate)


def chars_of(tokens: int, rate: float = RATE) -> int:
    """Give the characters of which so many tokens were counted."""
    return round(tokens / rate)


def decide(turn: Turn, rules: ArchiveRules) -> Verdict:
    """Decide about one turn: why it stays, or why it folds."""
    kept = _kept(turn, rules)
    if kept is not None:
        return Verdict(turn, folds=False, reason=kept, until=turn.until if turn.held else None)
    why = _folds(turn, rules)
    return Verdict(turn, folds=why is not None, reason=why or "small")


def _kept(turn: Turn, rules: ArchiveRules) -> str | None:
    """Say why a turn stays whatever its size, or None."""
    if not rules.enabled and not turn.asked:
        return "off"
    if turn.unformed:
        return f"format: {turn.unformed}"
    if turn.after < rules.keep_turns or turn.position < rules.keep_recent:
        return "recent"
    if turn.open or turn.closing_id is None:
        return f"open turn: {turn.open or 'it has no last answer'}"
    if turn.dead:
        return f"never sent: {turn.dead}"
    if turn.held:
        return turn.held
    if turn.referred:
        return f"referred to by {turn.referred}"
    if not turn.middle or turn.grows > turn.leaves * _WORTH:
        return "no gain"
    if turn.depth >= rules.depth_cap:
        return f"depth {turn.depth}"
    return None


def _folds(turn: Turn, rules: ArchiveRules) -> str | None:
    """Say why a turn folds that may, or None."""
    if turn.asked:
        return "asked for"
    return worth_folding(rules, turn.tokens, turn.calls, cut_short=turn.cut_short)


def worth_folding(rules: ArchiveRules, tokens: int, calls: int, *, cut_short: bool) -> str | None:
    """Say why a turn is worth folding, asked for or not, or None."""
    if rules.on_failed and cut_short:
        return "it was cut short"
    if tokens > rules.token_threshold:
        return f"{tokens:,} tokens"
    if calls >= rules.tool_call_threshold:
        return f"{calls:,} calls"
    return None
