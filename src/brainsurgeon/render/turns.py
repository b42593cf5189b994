"""Archived turns, what became of those that were to be, and what a search found."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.text import iso
from brainsurgeon.model.text import readable as safe
from brainsurgeon.operations.status import lasting
from brainsurgeon.render import bytes_, columns, count, in_local_time, printable, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from brainsurgeon.model.plans import Amount
    from brainsurgeon.model.reports import Relief
    from brainsurgeon.model.turns import ArchiveRecord, Fullness, Loads, Verdict
    from brainsurgeon.operations.archive import ArchiveAnswer, StandingArchive
    from brainsurgeon.operations.search import Hit
    from brainsurgeon.rewrite.turns import ArchivedTurn


_MOST_ROWS = 8


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return what was decided about one turn as other programs read it."""
    turn = verdict.turn
    return {
        "turn": turn.number, "prompt_id": turn.prompt_id, "entry_id": turn.closing_id,
        "folds": verdict.folds, "reason": verdict.reason, "tokens": turn.tokens,
        "calls": turn.calls,
    }  # fmt: skip


def verdict_text(verdict: Verdict) -> str:
    """Return what was decided about one turn."""
    turn = verdict.turn
    where = f"turn {turn.number} ({safe(turn.closing_id or turn.prompt_id)})"
    size = f"{turn.tokens:,} tokens, {count(turn.calls, 'call')}"
    return f"{where}, {size}: {'archived' if verdict.folds else 'stays'}, {safe(verdict.reason)}"


def archived_json(answer: ArchiveAnswer) -> dict[str, Any]:
    """Return what became of turns that were to fold as other programs read it."""
    turns = [verdict_json(one) for one in (*answer.archived, *answer.kept)]
    told = {
        "session": answer.session, "pending": answer.pending, "reason": answer.reason or None,
        "dry_run": answer.dry_run, "turns": turns,
    }  # fmt: skip
    return printable(told)  # type: ignore[no-any-return]


def archived(answer: ArchiveAnswer) -> str:
    lines = [verdict_text(one) for one in (*answer.archived, *answer.kept)]
    if answer.pending:
        lines.append(f"noted for the next scan: {safe(answer.reason)}")
    verb = "would be archived" if answer.dry_run else "archived"
    lines.append(f"{safe(answer.session)}: {count(len(answer.archived), 'turn')} {verb}")
    return "\n".join(lines)


def turns(verdicts: Sequence[Verdict]) -> list[str]:
    """Return which turns would fold, and of the others how many stay for which reason."""
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
    """Return one archive as other programs read it."""
    age = max(0, round(now - one.archive.made_at))
    return {"session": one.session, **record_json(one.archive), "age_seconds": age}


def record_json(record: ArchiveRecord) -> dict[str, Any]:
    """Return what is recorded of an archive as other programs read it."""
    return {
        "entry_id": record.entry_id, "prompt_id": record.prompt_id,
        "entries": record.entries, "tokens_before": record.tokens_before,
        "tokens_after": record.tokens_after, "depth": record.depth, "style": record.style,
        "turns_folded": record.turns, "calls": record.calls, "calls_failed": record.failed,
        "archived_at": iso(record.made_at),
    }  # fmt: skip


def archives_json(listed: Iterable[StandingArchive], now: float) -> dict[str, Any]:
    """Return the archives that stand as other programs read them."""
    told = {"archives": [archive_json(one, now) for one in listed]}
    return printable(told)  # type: ignore[no-any-return]


def archives(listed: list[StandingArchive], now: float) -> str:
    """Return them as a table.

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


# Characters that the name of a session has at least, with the space around it.
_NAME = 11
# Each column, from how much room beside the names on it is shown, and what stands in it.
_COLUMNS: tuple[tuple[str, int, Callable[[StandingArchive, float], str]], ...] = (
    ("turns", 33, lambda one, _: f"{one.archive.turns:,}"),
    ("tokens", 0, lambda one, _: f"{one.archive.tokens_before:,} -> {one.archive.tokens_after:,}"),
    ("tools", 40, lambda one, _: f"{one.archive.calls:,}"),
    ("failed", 48, lambda one, _: f"{one.archive.failed:,}"),
    ("depth", 55, lambda one, _: str(one.archive.depth)),
    ("age", 26, _age),
)


def turn_json(turn: ArchivedTurn) -> dict[str, Any]:
    """Return an archived turn as other programs read it."""
    told = {
        "entry_id": turn.archive.entry_id, "session": turn.session,
        "lines": [line.decode("utf-8", "surrogateescape") for line in turn.lines],
        "index": list(turn.index),
    }  # fmt: skip
    return printable(told)  # type: ignore[no-any-return]


def hits_json(found: Iterable[Hit]) -> dict[str, Any]:
    """Return what a search found as other programs read it."""
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


_METHODS = {
    "session": "by {calls} of its own calls",
    "agent": "by its agent's other sessions",
    "default": "by a common guess",
}
_MOST_LOADS = 8


def fullness_json(full: Fullness | None) -> dict[str, Any] | None:
    """Return how full a session is as other programs read it; tokens, and shares of the window."""
    if full is None:
        return None
    line = full.calibration
    return {
        "load_tokens": full.load, "window_tokens": full.window, "window_noted": full.recorded,
        "pressure": round(full.pressure, 4), "threshold": full.threshold, "step": full.step,
        "model": full.model, "tier": full.tier, "method": line.method, "calls": line.calls,
        "estimate_error": None if line.error is None else round(line.error, 4),
    }  # fmt: skip


def fullness(full: Fullness) -> str:
    """Return how full a session is in a line or two."""
    line = full.calibration
    error = "" if line.error is None else f", {100 * line.error:.1f} % off for its own calls"
    method = _METHODS[line.method].format(calls=line.calls)
    whose = "noted by its agent" if full.recorded else "as configured or usual"
    model = f"{safe(full.model)}, {full.tier or 'of no known tier'}" if full.model else "no model"
    load = f"{full.load:,} of {full.window:,} tokens ({_percent(full.pressure)})"
    return "\n".join([
        f"load       {load}, too full from {_percent(full.threshold)} on",
        f"estimated  {method}{error}",
        f"window     {whose}; {model}",
    ])  # fmt: skip


def loads_json(loads: Loads) -> dict[str, Any]:
    """Return what is remembered of the loads of all sessions as other programs read it."""
    return {
        "sessions_weighed": loads.sessions, "load_tokens": loads.load,
        "window_tokens": loads.window, "sessions_too_full": loads.too_full,
    }  # fmt: skip


def loads(told: Loads) -> list[str]:
    """Return what is remembered of the loads of all sessions in a line, or nothing."""
    if not told.sessions:
        return []
    share = _percent(told.load / told.window) if told.window else "-"
    full = f", {told.too_full} too full" if told.too_full else ""
    return [f"load       {told.load:,} tokens in {count(told.sessions, 'session')} ({share}){full}"]


def relief_json(done: Relief, *, dry_run: bool) -> dict[str, Any]:
    """Return what a relief did as other programs read it."""
    told: dict[str, Any] = {
        "session": done.session, "pending": done.pending, "reason": done.reason,
        "dry_run": dry_run,
    }  # fmt: skip
    if done.pending:
        return told
    return told | {
        "fits": done.fits, "room_tokens": done.room, "rounds": done.rounds,
        "before": fullness_json(done.before), "after": fullness_json(done.after),
        "values_extracted": done.values, "seals": done.seals,
        "bytes_before": done.bytes_before, "bytes_after": done.bytes_after,
        "went": [asdict(one) for one in done.went], "stays": [asdict(one) for one in done.stays],
    }  # fmt: skip


def relief(done: Relief, *, dry_run: bool) -> str:
    name = safe(done.session)
    if done.pending or done.before is None or done.after is None:
        return f"{name}: noted; the next scan that finds it idle does it ({safe(done.reason)})"
    before, after = done.before, done.after
    would = "would be " if dry_run else ""
    fits = "it fits" if done.fits else "it still does not fit"
    shares = f"{_percent(before.pressure)} -> {_percent(after.pressure)}"
    load = f"{before.load:,} -> {after.load:,} of {after.window:,} tokens ({shares})"
    sizes = f"{bytes_(done.bytes_before)} -> {bytes_(done.bytes_after)}"
    seals = f", {count(done.seals, 'seal')} among them" if done.seals else ""
    lines = [
        f"{name}: {would}{load}, step {after.step}: {fits}",
        f"  {count(done.values, 'value')} out, {sizes}{seals}",
    ]
    lines += [_amount("went", one) for one in done.went[:_MOST_LOADS]]
    lines += [_amount("stays", one) for one in done.stays[:_MOST_LOADS]]
    if done.reason:
        lines.append(f"  not now: {safe(done.reason)}")
    return "\n".join(lines)


def _amount(word: str, one: Amount) -> str:
    tool = f" of {safe(one.tool)}" if one.tool else ""
    return f"  {word:5}  {one.values} {one.kind}{tool}, {count(one.chars, 'character')}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
