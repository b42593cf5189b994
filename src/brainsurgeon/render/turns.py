"""Render archived turns, evidence, search hits, contexts and reliefs as text and JSON."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from brainsurgeon.model import reports
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.plans import Amount, Decision, Plan, Removal
from brainsurgeon.model.text import about, bytes_, counted, iso, lasting, minute
from brainsurgeon.model.text import readable as safe
from brainsurgeon.model.turns import ALREADY, ONE_ROUND, ArchiveRecord, Fullness, Verdict
from brainsurgeon.render.formatting import (
    WIDTH,
    Column,
    bar,
    columned,
    columns,
    first,
    in_local_time,
    table,
)

MOST_ROWS = 8
_NAME = 11  # room for the session column: 9 characters and two spaces
_METHODS = {
    "session": "from {calls} recorded calls of the session",
    "agent": "from the agent's other sessions",
    "default": "from default values",
}


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "turn": verdict.number, "prompt_id": verdict.prompt_id, "entry_id": verdict.closing_id,
        "archivable": verdict.archived, "reason": str(verdict.reason), "tokens": verdict.tokens,
        "calls": verdict.calls,
    }  # fmt: skip


def verdict_text(verdict: Verdict) -> str:
    where = f"turn {verdict.number} ({safe(verdict.closing_id or verdict.prompt_id)})"
    size = f"{verdict.tokens:,} tokens, {counted(verdict.calls, 'call')}"
    return f"{where}, {size}: {'archived' if verdict.archived else 'stays'}, {safe(verdict.reason)}"


def archived_json(answer: reports.ArchiveAnswer) -> dict[str, Any]:
    return {
        "session": answer.session, "pending": answer.pending, "reason": answer.reason or None,
        "dry_run": answer.dry_run,
        "turns": [verdict_json(verdict) for verdict in (*answer.archived, *answer.kept)],
        "warnings": list(answer.warnings),
    }  # fmt: skip


def archived(answer: reports.ArchiveAnswer) -> str:
    lines = [verdict_text(verdict) for verdict in (*answer.archived, *answer.kept)]
    if answer.pending:
        lines.append(f"recorded for the next scan: {safe(answer.reason)}")
    lines += [f"warning: {safe(warning)}" for warning in answer.warnings[:3]]
    verb = "would be archived" if answer.dry_run else "archived"
    lines.append(f"{safe(answer.session)}: {counted(len(answer.archived), 'turn')} {verb}")
    return "\n".join(lines)


def turns(verdicts: Sequence[Verdict]) -> list[str]:
    archiving = [f"  - {verdict_text(verdict)}" for verdict in verdicts if verdict.archived]
    lines = first(archiving, MOST_ROWS, "  - … and {} more turns")
    kept = Counter(
        ALREADY if one.is_archive else one.reason.kind
        for one in verdicts if not one.archived
    )  # fmt: skip
    return lines + [
        f"  = {counted(number, 'turn')} kept: {safe(why)}" for why, number in kept.most_common()
    ]


def _archived_so_far(listed: Sequence[ArchiveRecord]) -> str:
    before = sum(archive.tokens_before for archive in listed)
    after = sum(archive.tokens_after for archive in listed)
    last = in_local_time(iso(max(archive.made_at for archive in listed)))
    return (
        f"archived: {counted(len(listed), 'archive')}, about {about(before)} -> {about(after)}"
        f" tokens, last {last}"
    )


def record_json(record: ArchiveRecord) -> dict[str, Any]:
    return {
        "entry_id": record.entry_id, "prompt_id": record.prompt_id,
        "entries": record.entries, "tokens_before": record.tokens_before,
        "tokens_after": record.tokens_after, "depth": record.depth,
        "turns_held": record.turns, "calls": record.calls, "calls_failed": record.failed,
        "archived_at": record.made_at,
    }  # fmt: skip


def archives_json(listed: Iterable[reports.ListedArchive], now: float) -> dict[str, Any]:
    rows = [
        {"session": one.session, **record_json(one.archive),
         "age_seconds": max(0, round(now - one.archive.made_at))}
        for one in listed
    ]  # fmt: skip
    return {"archives": rows}


def archives(listed: Sequence[reports.ListedArchive], now: float) -> str:
    """Return a table. Ids are not shortened, since `show` and `restore` need them."""
    if not listed:
        return "nothing is archived"
    room = columns() - max(len(one.archive.entry_id) for one in listed) - _NAME
    return table(*columned(_COLUMNS, listed, now, room=room), left=2, fixed=1)


# The number: a column is shown if so many characters are left beside id and session.
_COLUMNS: tuple[Column, ...] = (
    ("id", -math.inf, lambda one, _: one.archive.entry_id),
    ("session", -math.inf, lambda one, _: one.session),
    ("turns", 33, lambda one, _: f"{one.archive.turns:,}"),
    (
        "tokens",
        0,
        lambda one, _: f"{about(one.archive.tokens_before)} -> {about(one.archive.tokens_after)}",
    ),
    ("tools", 40, lambda one, _: f"{one.archive.calls:,}"),
    ("failed", 48, lambda one, _: f"{one.archive.failed:,}"),
    ("depth", 55, lambda one, _: str(one.archive.depth)),
    ("age", 26, lambda one, now: lasting(now - one.archive.made_at)),
)


def turn_json(turn: reports.ArchivedTurn) -> dict[str, Any]:
    return {
        "entry_id": turn.archive.entry_id, "session": turn.session,
        "lines": [line.decode("utf-8", "surrogateescape") for line in turn.lines],
        "index": turn.index,
    }  # fmt: skip


def evidence(report: reports.EvidenceReport) -> str:
    mark = report.mark
    index = "".join(f"{mark} {line}\n" for line in (*report.index, "--- evidence ---"))
    return f"{index}{report.evidence}{mark} --- end ---\n"


def found(answer: reports.Found) -> str:
    lines = []
    for hit in answer.hits:
        where = f"{safe(hit.session)} {safe(hit.entry_id)} {safe(hit.path)} @{hit.offset}"
        text = " ".join(safe(hit.preview).split())
        lines.append(f"{where}{' (extracted)' if hit.held else ''}: {text}")
    lines = lines or ["nothing was found"]
    if answer.more:
        lines.append(f"There are more: these are the first {len(answer.hits)} matches.")
    lines += [
        f"{safe(item.session)} could not be read: {safe(item.reason)}"
        for item in answer.not_searched
    ]
    return "\n".join(lines)


def fullness_json(full: Fullness | None) -> dict[str, Any] | None:
    if full is None:
        return None
    estimate = full.calibration
    return {
        "load_tokens": full.load, "window_tokens": full.window, "window_noted": full.recorded,
        "pressure": round(full.pressure, 4), "threshold": full.threshold, "step": full.step,
        "prompt_refused": bool(full.refusal), "request_bytes": full.bytes,
        "limit_bytes": full.most_bytes,
        "model": full.model, "tier": full.tier, "method": estimate.method, "calls": estimate.calls,
        "estimate_error": None if estimate.error is None else round(estimate.error, 4),
    }  # fmt: skip


def fullness(full: Fullness) -> str:
    estimate = full.calibration
    error = "" if estimate.error is None else f", mean error {100 * estimate.error:.1f} %"
    method = _METHODS[estimate.method].format(calls=estimate.calls)
    source = "recorded by the agent" if full.recorded else "as configured or by default"
    model = f"{safe(full.model)}, {full.tier or 'tier unknown'}" if full.model else "model unknown"
    load = f"{full.load:,} of {full.window:,} tokens ({_percent(full.pressure)})"
    is_full = full.pressure > full.threshold
    advice = "; `brainsurgeon relieve` shrinks the session" if is_full else ""
    return "\n".join([
        f"load       {load}, too full above {_percent(full.threshold)}{advice}",
        f"estimated  {method}{error}",
        f"window     {source}; {model}",
        *([f"request    {_request(full)}"] if full.most_bytes else []),
        *([f"refused    the newest answer is a refusal: {full.refusal}"] if full.refusal else []),
    ])  # fmt: skip


def _request(full: Fullness) -> str:
    return f"{bytes_(full.bytes)} of {bytes_(full.most_bytes or 0)}"


def loads(totals: reports.Loads) -> list[str]:
    if not totals.sessions_weighed:
        return []
    share = _percent(totals.load_tokens / totals.window_tokens) if totals.window_tokens else "-"
    full = f", {totals.sessions_too_full} too full" if totals.sessions_too_full else ""
    sessions = counted(totals.sessions_weighed, "session")
    return [f"load       {totals.load_tokens:,} tokens in {sessions} ({share}){full}"]


def relief_json(done: reports.Relief, *, dry_run: bool) -> dict[str, Any]:
    protected, until = done.protected or (0, None)
    document: dict[str, Any] = {
        "session": done.session, "pending": done.pending, "reason": done.reason,
        "room_tokens": done.room, "before": fullness_json(done.before),
        "after": fullness_json(done.after), "went": done.went, "stays": done.stays,
        "values_extracted": done.values, "signatures": done.signatures,
        "bytes_before": done.bytes_before, "bytes_after": done.bytes_after,
        "protected_bytes": protected, "protected_until": until, "least_tokens": done.least,
        "refused": done.refused, "dry_run": dry_run, "fits": done.fits,
        "rounds": max(1, done.after.step - ONE_ROUND + 1) if done.after else 1,
    }  # fmt: skip
    wanted = ("session", "pending", "reason", "dry_run") if done.pending else document
    return {key: document[key] for key in wanted}


def relief(done: reports.Relief, *, dry_run: bool) -> str:
    name = safe(done.session)
    if done.pending or done.before is None or done.after is None:
        return f"{name}: recorded for the next scan that finds it idle ({safe(done.reason)})"
    before, after = done.before, done.after
    would = "would be " if dry_run else ""
    fits = "it fits" if done.fits else "it still does not fit"
    shares = f"{_percent(before.pressure)} -> {_percent(after.pressure)}"
    load = f"{before.load:,} -> {after.load:,} of {after.window:,} tokens ({shares})"
    is_changed = done.values or done.bytes_after != done.bytes_before  # turns may be archived
    if done.fits and not (is_changed or done.reason or done.refused):
        now = f"{after.load:,} of {after.window:,} tokens ({_percent(after.pressure)})"
        than = "it is smaller than the refused prompt" if after.refusal else "it fits"
        return f"{name}: {now}: {than} already, so nothing was done"
    sizes = f"{bytes_(done.bytes_before)} -> {bytes_(done.bytes_after)}"
    signatures = f", {counted(done.signatures, 'signature')} among them" if done.signatures else ""
    lines = [
        f"{name}: {would}{load}, step {after.step}: {fits}",
        *(
            [f"  the request: {bytes_(before.bytes)} -> {_request(after)}"]
            if before.is_too_large
            else []
        ),
        f"  {counted(done.values, 'value')} extracted, {sizes}{signatures}",
        *(_amount("extracted", amount) for amount in done.went[:MOST_ROWS]),
        *(_amount("kept", amount) for amount in done.stays[:MOST_ROWS]),
    ]
    if done.protected:
        protected, until = done.protected
        end = in_local_time(minute(until))
        lines.append(f"  {bytes_(protected)} protected until {end}; --now extracts them")
    if done.least is not None:
        least = f"{done.least:,} tokens would remain, but {done.room:,} fit"
        lines.append(f"  nothing was extracted: at least {least}")
    if done.refused:
        entries = ", ".join(map(safe, done.refused))
        lines.append(f"  the next prompt is refused: signatures cannot be removed in {entries}")
    if done.reason:
        lines.append(f"  not now: {safe(done.reason)}")
    return "\n".join(lines)


def _amount(word: str, amount: Amount) -> str:
    tool = f" of {safe(amount.tool)}" if amount.tool else ""
    values = f"{amount.values:,} {amount.kind}"
    return f"  {word:9}  {values}{tool}, {counted(amount.chars, 'character')}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


# Lengths of a bar. Without a terminal, it is the usual one.
_SHORTEST, _USUAL, _LONGEST = 8, 20, 60


def removals(listed: Iterable[Removal]) -> list[str]:
    return [
        f"  - {safe(removal.entry_id)} {safe(dotted(removal.path))}: {safe(removal.reason)}"
        for removal in listed
    ]


def removals_json(listed: Iterable[Removal]) -> list[dict[str, Any]]:
    return [
        {"entry_id": removal.entry_id, "path": dotted(removal.path), "kind": removal.kind,
         "tool": removal.tool, "chars": removal.chars, "reason": removal.reason}
        for removal in listed
    ]  # fmt: skip


def _unsent(plan: Plan) -> dict[str, int]:
    values = sum(amount.values for amount in plan.unsent)
    return {"values": values, "chars": sum(amount.chars for amount in plan.unsent)}


def _reasoning(plan: Plan) -> list[str]:
    if not plan.reasoning_lost:
        return []
    tokens = f"{plan.reasoning_lost:,} tokens"
    return [f"reasoning  {tokens} behind the first value to extract: the provider drops them"]


def decisions_json(listed: Iterable[Decision]) -> list[dict[str, Any]]:
    return [
        {"entry_id": one.entry_id, "path": dotted(one.path), "kind": one.kind, "tool": one.tool,
         "chars": one.chars, "extracts": one.extracts, "reason": one.reason,
         "otherwise": one.otherwise or None}
        for one in listed
    ]  # fmt: skip


def decisions(context: reports.Context) -> str:
    """Return a table of the values of a session, in its order."""
    listed = context.plan.decisions
    waits = [f"not now: {safe(context.waits)}"] if context.waits else []
    if not listed:
        return "\n".join(["no value that could be extracted", *waits])
    rows = [
        ("-" if one.extracts else "=", one.entry_id or "", one.tool or one.kind, one.reason,
         f"{one.chars:,}")
        for one in listed
    ]  # fmt: skip
    listing = table(("", "entry", "value", "why", "characters"), rows, left=4, fixed=2)
    taken = counted(sum(one.extracts for one in listed), "value")
    sums = f"the next scan would extract {taken} (-) and keep the others (=)"
    return "\n".join([listing, sums, *waits])


def why_json(answer: reports.Explained) -> dict[str, Any]:
    return {
        "session": answer.session, "entry_id": answer.entry_id, "deferred": answer.deferred,
        "decisions": decisions_json(answer.decisions),
    }  # fmt: skip


def why(answer: reports.Explained) -> str:
    lines = [f"{safe(answer.session)}  {safe(answer.entry_id)}"]
    goes = "would be extracted" if answer.deferred else "the next scan extracts it"
    for one in answer.decisions:
        tool = f" of {safe(one.tool)}" if one.tool else ""
        lines += [
            f"{safe(dotted(one.path))}: {one.kind}{tool}, {counted(one.chars, 'character')}",
            f"  {goes if one.extracts else 'stays'}: {safe(in_local_time(one.reason))}",
            *([f"  changed by: {safe(in_local_time(one.otherwise))}"] if one.otherwise else []),
        ]
    if not answer.decisions:
        lines.append("no value that could be extracted")
    if answer.deferred:
        lines.append(f"not now: {safe(in_local_time(answer.deferred))}")
    return "\n".join(lines)


def context_json(context: reports.Context, extracted: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "session": context.session, "path": context.path, "format": context.format,
        "size_bytes": context.size, "state": context.state,
        "filling": context.filling,
        "extracted": extracted,
        "would_extract": removals_json(context.plan.values),
        "gain_bytes": context.plan.gain, "pays": context.pays, "deferred": context.plan.deferred,
        "never_sent": _unsent(context.plan),
        "reasoning_lost": context.plan.reasoning_lost,
        "fullness": fullness_json(context.full),
        "would_keep": context.plan.kept,
        "turns": [verdict_json(turn) for turn in context.plan.turns],
        "archives": [record_json(archive) for archive in context.archives],
        "warnings": list(context.plan.warnings),
    }  # fmt: skip


def _extracted(value: dict[str, Any]) -> str:
    expires = f", expires {in_local_time(value['expires_at'])[:10]}" if value["expires_at"] else ""
    gone = ", expired" if value["expired"] else ""
    place = f"{value['tool'] or value['kind']}, {bytes_(value['size_bytes'])}"
    preview = f"\n      {safe(value['preview'])[: WIDTH - 6]}" if value.get("preview") else ""
    name = f"{safe(value['entry_id'])} {safe(value['path'])}"
    return f"  # {name}: {safe(place)}{expires}{gone}{preview}"


def _filling(listed: Sequence[reports.Filling]) -> list[str]:
    whole = max(1, sum(one.live_chars for one in listed))
    wide = columns()
    room = _USUAL if wide == math.inf else max(_SHORTEST, min(_LONGEST, int(wide) // 4))
    largest = max((one.live_chars for one in listed), default=0) or 1
    lines = table(*columned(_FILLING_COLUMNS, listed, whole), left=2, spare=room + 2).splitlines()
    bars = [bar(one.live_chars / largest, room) for one in listed]
    return [f"{line}  {shown}".rstrip() for line, shown in zip(lines, ["", *bars], strict=True)]


_FILLING_COLUMNS: tuple[Column, ...] = (
    ("kind", 0, lambda one, _: one.kind),
    ("tool", 0, lambda one, _: one.tool or "-"),
    ("values", 70, lambda one, _: f"{one.values:,}"),
    ("characters", 50, lambda one, _: f"{one.chars:,}"),
    ("sent", 0, lambda one, whole: f"{100 * one.live_chars / whole:.0f} %"),
)


def context(
    context: reports.Context, extracted: list[dict[str, Any]], costs: Sequence[str] = ()
) -> str:
    size = bytes_(sum(value.size for value in context.extracted))
    lines = [
        f"{safe(context.session)}  {context.format}, {bytes_(context.size)}, {context.state}",
        *([fullness(context.full)] if context.full else []),
        *costs,
        *_reasoning(context.plan),
        "",
        *_filling(context.filling),
        "",
        f"extracted: {counted(len(context.extracted), 'value')}, {size}",
    ]
    largest = sorted(extracted, key=lambda value: -value["size_bytes"])
    lines += first([*map(_extracted, largest)], MOST_ROWS, "  … and {} more, with --json")
    if context.archives:
        lines.append(_archived_so_far(context.archives))
    unsent = _unsent(context.plan)
    if unsent["values"]:
        values, chars = counted(unsent["values"], "value"), unsent["chars"]
        lines.append(f"never sent to a model: {values}, {chars:,} characters")
    if pending := context.plan.handled.requests:
        lines.append(f"the next scan would carry out {counted(len(pending), 'request')}")
    if context.plan.deferred:
        lines.append(f"deferred: {safe(in_local_time(context.plan.deferred))}")
    taken = context.plan.values
    pays = "" if context.pays or not taken else ", too little to be worth a rewrite"
    values = counted(len(taken), "value")
    lines.append(f"the next scan would extract {values}, {bytes_(context.plan.freed)}{pays}")
    lines += first(removals(taken), MOST_ROWS, "  - … and {} more")
    lines += turns(context.plan.turns)
    lines.append("and would keep")
    lines += [
        f"  = {kept.values:,} {kept.kind}{' of ' + safe(kept.tool) if kept.tool else ''} "
        f"({kept.chars:,} characters): {in_local_time(kept.reason)}"
        for kept in context.plan.kept
    ]
    lines += [f"warning: {safe(warning)}" for warning in context.plan.warnings]
    return "\n".join(lines)
