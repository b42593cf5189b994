"""Archived turns, what became of those that were to be, and what a search found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.texts import readable as safe
from brainsurgeon.model.times import iso
from brainsurgeon.operations.check import lasting
from brainsurgeon.render import columns, count, in_local_time, printable, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from brainsurgeon.model.turns import ArchiveRecord, Verdict
    from brainsurgeon.operations.archive import ArchiveAnswer, StandingArchive
    from brainsurgeon.operations.search import Hit
    from brainsurgeon.operations.turns import ArchivedTurn


_MOST_ROWS = 8


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Give what was decided about one turn as other programs read it."""
    turn = verdict.turn
    return {
        "turn": turn.number, "prompt_id": turn.prompt_id, "entry_id": turn.closing_id,
        "folds": verdict.folds, "reason": verdict.reason, "tokens": turn.tokens,
        "calls": turn.calls,
    }  # fmt: skip


def verdict_text(verdict: Verdict) -> str:
    """Say what was decided about one turn."""
    turn = verdict.turn
    where = f"turn {turn.number} ({safe(turn.closing_id or turn.prompt_id)})"
    size = f"{turn.tokens:,} tokens, {count(turn.calls, 'call')}"
    return f"{where}, {size}: {'archived' if verdict.folds else 'stays'}, {safe(verdict.reason)}"


def archived_json(answer: ArchiveAnswer) -> dict[str, Any]:
    """Give what became of turns that were to fold as other programs read it."""
    turns = [verdict_json(one) for one in (*answer.archived, *answer.kept)]
    told = {
        "session": answer.session, "pending": answer.pending, "reason": answer.reason or None,
        "dry_run": answer.dry_run, "turns": turns,
    }  # fmt: skip
    return printable(told)  # type: ignore[no-any-return]


def archived(answer: ArchiveAnswer) -> str:
    """Give it as text."""
    lines = [verdict_text(one) for one in (*answer.archived, *answer.kept)]
    if answer.pending:
        lines.append(f"noted for the next scan: {safe(answer.reason)}")
    verb = "would be archived" if answer.dry_run else "archived"
    lines.append(f"{safe(answer.session)}: {count(len(answer.archived), 'turn')} {verb}")
    return "\n".join(lines)


def turns(verdicts: Sequence[Verdict]) -> list[str]:
    """Say which turns would fold, and of the others how many stay for which reason."""
    folding = [one for one in verdicts if one.folds]
    lines = [f"  - {verdict_text(one)}" for one in folding[:_MOST_ROWS]]
    if len(folding) > _MOST_ROWS:
        lines.append(f"  - … and {len(folding) - _MOST_ROWS} more turns")
    unfolded = Counter(one.reason.partition(":")[0] for one in verdicts if not one.folds)
    return lines + [
        f"  = {count(number, 'turn')} not archived: {safe(why)}"
        for why, number in unfolded.most_common()
    ]


def standing(listed: Sequence[ArchiveRecord]) -> str:
    """Say in a line what the archives of a session come to."""
    before = sum(one.tokens_before for one in listed)
    after = sum(one.tokens_after for one in listed)
    last = in_local_time(iso(max(one.made_at for one in listed)))
    return f"archived: {count(len(listed), 'archive')}, {before:,} -> {after:,} tokens, last {last}"


def archive_json(one: StandingArchive, now: float) -> dict[str, Any]:
    """Give one archive as other programs read it."""
    age = max(0, round(now - one.archive.made_at))
    return {"session": one.session, **record_json(one.archive), "age_seconds": age}


def record_json(record: ArchiveRecord) -> dict[str, Any]:
    """Give what is recorded of an archive as other programs read it."""
    return {
        "entry_id": record.entry_id, "prompt_id": record.prompt_id,
        "entries": record.entries, "tokens_before": record.tokens_before,
        "tokens_after": record.tokens_after, "depth": record.depth, "style": record.style,
        "turns_folded": record.turns, "calls": record.calls, "calls_failed": record.failed,
        "archived_at": iso(record.made_at),
    }  # fmt: skip


def archives_json(listed: Iterable[StandingArchive], now: float) -> dict[str, Any]:
    """Give the archives that stand as other programs read them."""
    told = {"archives": [archive_json(one, now) for one in listed]}
    return printable(told)  # type: ignore[no-any-return]


def archives(listed: list[StandingArchive], now: float) -> str:
    """Give them as a table.

    On a narrow terminal names of sessions are cut, and the columns that matter least are left out;
    the ids stay whole, since `show` and `restore` want them.
    """
    if not listed:
        return "nothing is archived"
    wide = max(len(one.archive.entry_id) for one in listed) + _NAME
    wanted = [one for one in _COLUMNS if wide + one[1] <= columns()]
    rows = [
        (one.archive.entry_id, one.session, *(cell(one, now) for _, _, cell in wanted))
        for one in listed
    ]
    return table(("id", "session", *(name for name, _, _ in wanted)), rows, left=2, uncut=1)


def _age(one: StandingArchive, now: float) -> str:
    return lasting(max(0.0, now - one.archive.made_at))


def _known(number: int | None) -> str:
    """Write a number that is not known of what an earlier version folded."""
    return "-" if number is None else f"{number:,}"


_NAME = 11
"""Characters that the name of a session has at least, with the space around it."""
_COLUMNS: tuple[tuple[str, int, Callable[[StandingArchive, float], str]], ...] = (
    ("turns", 33, lambda one, _: _known(one.archive.turns)),
    ("tokens", 0, lambda one, _: f"{one.archive.tokens_before:,} -> {one.archive.tokens_after:,}"),
    ("tools", 40, lambda one, _: _known(one.archive.calls)),
    ("failed", 48, lambda one, _: _known(one.archive.failed)),
    ("depth", 55, lambda one, _: str(one.archive.depth)),
    ("age", 26, _age),
)
"""Each column, from how much room beside the names on it is shown, and what stands in it."""


def turn_json(turn: ArchivedTurn) -> dict[str, Any]:
    """Give an archived turn as other programs read it."""
    told = {
        "entry_id": turn.archive.entry_id, "session": turn.session,
        "lines": [line.decode("utf-8", "surrogateescape") for line in turn.lines],
        "index": list(turn.index),
    }  # fmt: skip
    return printable(told)  # type: ignore[no-any-return]


def hits_json(found: Iterable[Hit]) -> dict[str, Any]:
    """Give what a search found as other programs read it."""
    told = {
        "hits": [
            {"session": one.session, "entry_id": one.entry_id, "path": one.path,
             "offset": one.offset, "preview": one.text, "held": one.held}
            for one in found
        ]
    }  # fmt: skip
    return printable(told)  # type: ignore[no-any-return]


def hits(found: list[Hit]) -> str:
    """Give it as text, one line a hit."""
    lines = []
    for one in found:
        where = f"{safe(one.session)} {safe(one.entry_id)} {safe(one.path)} @{one.offset}"
        text = " ".join(safe(one.text).split())
        lines.append(f"{where}{' (held)' if one.held else ''}: {text}")
    return "\n".join(lines) or "nothing was found"
