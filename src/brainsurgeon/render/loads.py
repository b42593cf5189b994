"""How full sessions are, and what a relief did."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.texts import readable as safe
from brainsurgeon.render import bytes_, count

if TYPE_CHECKING:
    from brainsurgeon.model.loads import Fullness, Loads
    from brainsurgeon.model.plans import Amount
    from brainsurgeon.model.reports import Relief

_METHODS = {
    "session": "by {calls} of its own calls",
    "agent": "by its agent's other sessions",
    "default": "by a common guess",
}
_MOST_ROWS = 8


def fullness_json(full: Fullness | None) -> dict[str, Any] | None:
    """Give how full a session is as other programs read it; tokens, and shares of the window."""
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
    """Give how full a session is in a line or two."""
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
    """Give what is remembered of the loads of all sessions as other programs read it."""
    return {
        "sessions_weighed": loads.sessions, "load_tokens": loads.load,
        "window_tokens": loads.window, "sessions_too_full": loads.too_full,
    }  # fmt: skip


def loads(told: Loads) -> list[str]:
    """Give what is remembered of the loads of all sessions in a line, or nothing."""
    if not told.sessions:
        return []
    share = _percent(told.load / told.window) if told.window else "-"
    full = f", {told.too_full} too full" if told.too_full else ""
    return [f"load       {told.load:,} tokens in {count(told.sessions, 'session')} ({share}){full}"]


def relief_json(done: Relief, *, dry_run: bool) -> dict[str, Any]:
    """Give what a relief did as other programs read it."""
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
    """Give what a relief did as text."""
    name = safe(done.session)
    if done.pending or done.before is None or done.after is None:
        return f"{name}: noted; the next scan that finds it settled does it ({safe(done.reason)})"
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
    lines += [_amount("went", one) for one in done.went[:_MOST_ROWS]]
    lines += [_amount("stays", one) for one in done.stays[:_MOST_ROWS]]
    if done.reason:
        lines.append(f"  not now: {safe(done.reason)}")
    return "\n".join(lines)


def _amount(word: str, one: Amount) -> str:
    tool = f" of {safe(one.tool)}" if one.tool else ""
    return f"  {word:5}  {one.values} {one.kind}{tool}, {count(one.chars, 'character')}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
