"""Archived turns, what became of those that were to be, and what a search found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from brainsurgeon.model.texts import readable as safe
from brainsurgeon.model.times import iso
from brainsurgeon.render import count, printable, table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.model.turns import Verdict
    from brainsurgeon.operations.archive import ArchiveAnswer, StandingArchive
    from brainsurgeon.operations.search import Hit
    from brainsurgeon.operations.turns import ArchivedTurn


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


def archive_json(one: StandingArchive, now: float) -> dict[str, Any]:
    """Give one archive as other programs read it."""
    record = one.archive
    return {
        "session": one.session, "entry_id": record.entry_id, "prompt_id": record.prompt_id,
        "entries": record.entries, "tokens_before": record.tokens_before,
        "tokens_after": record.tokens_after, "depth": record.depth, "style": record.style,
        "archived_at": iso(record.made_at), "age_seconds": max(0, round(now - record.made_at)),
    }  # fmt: skip


def archives_json(listed: Iterable[StandingArchive], now: float) -> dict[str, Any]:
    """Give the archives that stand as other programs read them."""
    told = {"archives": [archive_json(one, now) for one in listed]}
    return printable(told)  # type: ignore[no-any-return]


def archives(listed: list[StandingArchive], now: float) -> str:
    """Give them as a table."""
    rows = [
        (
            one.archive.entry_id, one.session, str(one.archive.entries),
            f"{one.archive.tokens_before:,} -> {one.archive.tokens_after:,}",
            str(one.archive.depth), f"{max(0, round((now - one.archive.made_at) / 3600)):,} h",
        )
        for one in listed
    ]  # fmt: skip
    if not rows:
        return "nothing is archived"
    return table(("id", "session", "entries", "tokens", "depth", "age"), rows)


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
