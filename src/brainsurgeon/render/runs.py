"""What a run or a retention run did, and how things stand."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import dotted
from brainsurgeon.model.text import iso
from brainsurgeon.model.text import readable as safe
from brainsurgeon.model.turns import folded_text
from brainsurgeon.render import DISABLED, SCHEMA, bytes_, count, local, printable, table
from brainsurgeon.render.turns import fullness_json, turns, verdict_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from brainsurgeon.model.plans import Outcome, Plan
    from brainsurgeon.model.reports import (
        DatabaseStatus,
        Event,
        RetentionReport,
        RollbackReport,
        Run,
        ScanReport,
        SessionRollback,
        Tally,
        UnusedHome,
    )
    from brainsurgeon.operations.doctor import Finding


_MOST_ROWS = 8
WHAT_STAYS = (
    "pruning a database saves context, not disk, and hides nothing: OpenClaw keeps whole copies of"
    " recent values beside it (its trajectory, up to 10 MiB), and the file shrinks only when"
    " OpenClaw compacts it"
)
_OUTCOME_KEYS = (
    "session", "path", "format", "outcome", "reason", "entries_extracted", "values_extracted",
    "bytes_before", "bytes_after",
)  # fmt: skip
_REPORT_KEYS = (
    "files_seen", "files_unchanged", "files_scanned", "files_deferred", "files_failed",
    "sessions_changed", "entries_extracted", "values_extracted", "values_restored",
    "bytes_before", "bytes_after", "bytes_stored", "duration_seconds", "dry_run", "enabled",
)  # fmt: skip


def report_json(report: ScanReport) -> dict[str, Any]:
    """Return a run as other programs read it."""
    answer: dict[str, Any] = {key: getattr(report, key) for key in _REPORT_KEYS}
    answer["sessions"] = [_outcome_json(outcome, report.dry_run) for outcome in report.sessions]
    answer["unreadable"] = [
        {"root": one.root, "path": one.path, "reason": one.why, "failed": one.failed}
        for one in report.problems
    ]
    answer["recovered"] = [asdict(one) for one in report.recovered]
    answer["interrupted"] = report.interrupted
    answer["databases"] = [asdict(one) for one in report.databases]
    answer["homes"] = [asdict(home) for home in report.homes]
    return printable(answer)  # type: ignore[no-any-return]


def _outcome_json(outcome: Outcome, dry_run: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {key: getattr(outcome, key) for key in _OUTCOME_KEYS}
    answer["values_restored"] = outcome.values_restored
    if outcome.full:
        answer["fullness"] = fullness_json(outcome.full)
    if outcome.plan:
        answer["warnings"] = list(outcome.plan.warnings)
        if dry_run:
            answer["would_extract"] = [
                {"entry_id": cut.entry_id, "path": dotted(cut.path), "kind": cut.kind,
                 "tool": cut.tool, "chars": cut.chars, "reason": cut.reason}
                for cut in outcome.plan.extracted
            ]  # fmt: skip
            answer["would_keep"] = [asdict(kept) for kept in outcome.plan.kept]
            if outcome.plan.turns:
                answer["turns"] = [verdict_json(one) for one in outcome.plan.turns]
        if outcome.plan.archives:
            answer["archived"] = [one.entry_id for one in outcome.plan.archives]
    return answer


def report(done: ScanReport, *, verbose: bool = False) -> str:
    """Return a run as text: sessions that changed or failed, then the figures.

    Of a dry run the first values of each session, or with `verbose` all.
    """
    lines = [f"recovered {safe(one.path)}: {safe(one.what)}" for one in done.recovered]
    lines += [f"interrupted, the next scan finishes it: {safe(path)}" for path in done.interrupted]
    for problem in done.problems:
        lines.append(f"{safe(problem.path)}: {safe(problem.why)}; nothing there was touched")
    lines += databases(done.databases)
    for outcome in done.sessions:
        lines += _outcome(outcome, done.dry_run, verbose=verbose)
    if not done.enabled:
        lines.append(DISABLED)
    lines.append(summary(done))
    return "\n".join(lines + homes(done.homes))


def homes(unused: Iterable[UnusedHome]) -> list[str]:
    """Name the homes of agents that no root covers, with the lines that would add them all."""
    listed = list(unused)
    lines = []
    for home in listed:
        note = f" ({home.note})" if home.note else ""
        lines.append(
            f"{home.agent} keeps sessions in {safe(home.path)}, which no root covers{note}."
        )
    if not lines:
        return []
    tables = dict.fromkeys(
        f"[[roots]]{table}".rstrip()
        for home in listed for table in home.config.split("[[roots]]")[1:]
    )  # fmt: skip
    roots = [f"  {safe(line)}" for table in tables for line in table.splitlines()]
    return ["", *lines, "To add them, put this into the configuration:", *roots]


def databases(listed: Iterable[DatabaseStatus]) -> list[str]:
    """Name the databases of agents: what wrote them, why one is left alone, and what stays."""
    lines = []
    for one in listed:
        made = f"OpenClaw {one.program or 'of an unknown version'}, layout {one.layout}"
        state = f"left alone, {one.left_alone}" if one.left_alone else "its sessions are pruned"
        what = f" ({made})" if one.layout is not None else ""
        lines.append(f"database of {safe(one.agent)} {safe(one.path)}{what}: {safe(state)}")
    return [*lines, WHAT_STAYS] if lines else []


def _outcome(outcome: Outcome, dry_run: bool, *, verbose: bool) -> list[str]:
    name = safe(outcome.session)
    if outcome.outcome != "changed":
        return [f"{name}: {outcome.outcome}, {safe(outcome.reason)}"]
    sizes = f"{bytes_(outcome.bytes_before)} -> {bytes_(outcome.bytes_after)}"
    step = f", step {outcome.full.step}" if outcome.full and outcome.full.step else ""
    lines = [f"{name}: {'would be ' if dry_run else ''}{outcome.reason}, {sizes}{step}"]
    if outcome.plan:
        if dry_run:
            lines += _explain(outcome.plan, len(outcome.plan.extracted) if verbose else _MOST_ROWS)
        lines += [f"  warning: {safe(warning)}" for warning in outcome.plan.warnings[:3]]
        lines += [f"  {safe(entry)}: {safe(why)}" for entry, why in outcome.plan.missed[:3]]
    return lines


def _explain(plan: Plan, most: int) -> list[str]:
    """Return what would go, of the values the first `most`.

    What would stay, with the reasons.
    """
    lines = [
        f"  - {safe(cut.entry_id)} {safe(dotted(cut.path))}: {safe(cut.reason)}"
        for cut in plan.extracted[:most]
    ]
    if len(plan.extracted) > most:
        lines.append(f"  - … and {len(plan.extracted) - most:,} more (--verbose names each)")
    lines += turns(plan.turns)
    reasons: dict[str, list[int]] = {}
    for kept in plan.kept:
        counts = reasons.setdefault(kept.reason, [0, 0])
        counts[0] += kept.values
        counts[1] += kept.chars
    for reason, (values, chars) in sorted(reasons.items(), key=lambda item: -item[1][1]):
        stay = "stays" if values == 1 else "stay"
        size = count(chars, "character")
        lines.append(f"  = {count(values, 'value')} ({size}) {stay}: {safe(reason)}")
    return lines


def summary(done: ScanReport) -> str:
    """Return the figures of a run in one line."""
    verb = "would change" if done.dry_run else "changed"
    parts = [f"{count(done.files_seen, 'session')}: {done.sessions_changed:,} {verb}"]
    if done.sessions_changed:
        share = 100 * (1 - done.bytes_after / done.bytes_before) if done.bytes_before else 0
        change = f"{abs(share):.0f} % {'more' if share < 0 else 'less'}"
        parts.append(f"{bytes_(done.bytes_before)} -> {bytes_(done.bytes_after)} ({change})")
    if done.bytes_stored:
        parts.append(f"{bytes_(done.bytes_stored)} stored")
    for number, word in (
        (done.files_unchanged, "unchanged"), (done.files_deferred, "deferred"),
        (done.files_failed, "failed"),
    ):  # fmt: skip
        if number:
            parts.append(f"{number:,} {word}")
    end = "; nothing was written" if done.dry_run else ""
    return f"{', '.join(parts)}, {done.duration_seconds:.1f} s{end}"


def retention_json(done: RetentionReport) -> dict[str, Any]:
    """Return a retention run as other programs read it."""
    return asdict(done)


def retention(done: RetentionReport) -> str:
    """Return a retention run as text, with the reasons."""
    lines = [
        f"{safe(root)}: nothing was deleted, {safe(why)}" for root, why in done.held_back.items()
    ]
    lines += [f"  {number} {reason}" for reason, number in done.reasons.items()]
    verb = "would be " if done.dry_run else ""
    lines.append(
        f"{count(done.values_held, 'value')} held: {done.values_deleted} {verb}deleted "
        f"({bytes_(done.bytes_deleted)})"
    )
    return "\n".join(lines)


def findings_json(listed: list[Finding]) -> dict[str, Any]:
    """Return what the doctor found as other programs read it."""
    return {"findings": printable([asdict(one) for one in listed])}


def findings(listed: list[Finding]) -> str:
    """Return what the doctor found, each with what to do."""
    lines = []
    for one in listed:
        lines.append(f"{one.level:8} {safe(one.what)}")
        if one.advice:
            lines.append(f"{'':8} {safe(one.advice)}")
    return "\n".join(lines)


ESTIMATE = "tokens are estimated from the characters that were cut"
_MINUTES = len("2026-11-01 10:00")
# How the counts of a run are called in the store, and in JSON.
_COUNTS = {
    "sessions": "sessions_changed", "extracted": "values_extracted", "restored": "values_restored",
    "redacted": "values_redacted", "expired": "values_deleted", "fields": "fields_changed",
    "archived": "turns_archived", "unarchived": "turns_unarchived", "chars": "chars",
    "tokens": "tokens",
}  # fmt: skip
_SAID = {
    "extracted": "extracted", "restored": "put back", "redacted": "shortened",
    "expired": "expired",
}  # fmt: skip
# How archives are counted in the store, how the turns in them, and what is said of both.
_FOLDED = (("archived", "folded", "folded"), ("unarchived", "unfolded", "unfolded"))


def runs_json(listed: Iterable[Run]) -> dict[str, Any]:
    """Return the runs as other programs read them."""
    return {"runs": [_run_json(one) for one in listed]}


def _run_json(one: Run) -> dict[str, Any]:
    return {
        "run_id": one.id, "at": iso(one.at), "command": one.command,
        **{said: one.facts.get(name, 0) for name, said in _COUNTS.items()},
        "rolls_back": one.facts.get("rolls_back"),
    }  # fmt: skip


def runs(listed: Sequence[Run]) -> str:
    """Return the runs as a table, the newest last."""
    if not listed:
        return "no run has changed anything yet"
    rows = [
        (str(one.id), local(one.at)[:_MINUTES], command(one), did(one),
         f"{one.facts.get('sessions', 0):,}", f"{one.facts.get('tokens', 0):,}")
        for one in listed
    ]  # fmt: skip
    head = ("run", "when", "command", "values", "sessions", "tokens")
    return "\n".join([table(head, rows, left=4), ESTIMATE])


def command(one: Run) -> str:
    """Return by which command a run was made, and which other it took back."""
    undone = one.facts.get("rolls_back")
    return one.command if undone is None else f"{one.command} {undone}"


def did(one: Run) -> str:
    """Return what a run did in a few words."""
    done = [f"{one.facts[name]:,} {said}" for name, said in _SAID.items() if one.facts.get(name)]
    done += [
        f"{folded_text(one.facts[archives], one.facts.get(turns, 0))} {said}"
        for archives, turns, said in _FOLDED if one.facts.get(archives)
    ]  # fmt: skip
    fields = one.facts.get("fields")
    return ", ".join([*done, *([count(fields, "field")] if fields else [])]) or "-"


def rollback_json(done: RollbackReport) -> dict[str, Any]:
    """Return what became of a rollback as other programs read it."""
    return printable({  # type: ignore[no-any-return]
        "rolls_back": done.undone.id, "run_id": done.made, "dry_run": done.dry_run,
        "sessions": [
            {"session": one.session, "state": one.state, "reason": one.reason,
             "values_restored": one.values, "turns_unarchived": one.turns,
             "insertions_removed": list(one.insertions_removed), "missed": list(one.missed),
             "reasons": one.since}
            for one in done.sessions
        ],
    })  # fmt: skip


def rollback(done: RollbackReport) -> str:
    """Return what became of a rollback, session by session."""
    lines = [line for one in done.sessions for line in _session(one, dry_run=done.dry_run)]
    pending = sum(one.state == "pending" for one in done.sessions)
    changed = sum(one.state == "rolled back" for one in done.sessions)
    verb = "would be " if done.dry_run else ""
    parts = [f"{count(len(done.sessions), 'session')} of run {done.undone.id}"]
    parts[0] += f" ({done.undone.command}, {local(done.undone.at)})"
    parts.append(f"{changed} {verb}rolled back")
    if pending:
        parts.append(f"{pending} waiting for an idle moment")
    return "\n".join([*lines, ", ".join(parts)])


def _session(one: SessionRollback, *, dry_run: bool) -> list[str]:
    state = f"would be {one.state}" if dry_run and one.state == "rolled back" else one.state
    counts = ((one.values, "value"), (one.turns, "archive"))
    back = " and ".join(count(number, what) for number, what in counts if number)
    values = f", {back} put back" if back else ""
    reason = f" ({safe(one.reason)})" if one.reason else ""
    return [
        f"{safe(one.session)}: {state}{values}{reason}",
        *(f"  undone: {safe(item)}" for item in one.insertions_removed),
        *(f"  not done: {safe(item)}" for item in one.missed),
        *(f"  {count(number, 'value')}: {safe(why)}" for why, number in one.since.items()),
    ]


def events_json(listed: Iterable[Event]) -> dict[str, Any]:
    """Return events as other programs read them."""
    return {"events": [_event_json(one) for one in listed]}


def event_line(one: Event) -> str:
    """Return an event as one line of JSON, for whoever follows."""
    return json.dumps({"schema": SCHEMA, **_event_json(one)})


def _event_json(one: Event) -> dict[str, Any]:
    return printable({  # type: ignore[no-any-return]
        "event_id": one.id, "at": iso(one.at), "kind": one.kind, "run_id": one.run_id,
        "session": one.session or one.facts.get("session"),
        "facts": {name: fact for name, fact in one.facts.items() if name != "session"},
    })  # fmt: skip


def event(one: Event) -> str:
    """Return an event as a line of text."""
    of_run = f" (run {one.run_id})" if one.run_id is not None else ""
    return f"{one.id:<5} {local(one.at)}  {one.kind:11}  {of_session(one)}{of_run}"


def of_session(one: Event) -> str:
    """Return the session of an event, and what there is to say of it."""
    session = one.session or one.facts.get("session") or "-"
    return f"{safe(session)}: {_told(one)}"


def _told(one: Event) -> str:
    facts = one.facts
    parts = []
    if facts.get("rolls_back") is not None:
        parts.append(f"of run {facts['rolls_back']}")
    if facts.get("pending"):
        parts.append("waits")
    if facts.get("entry_id"):
        parts.append(f"{facts.get('action', '')} of {facts['entry_id']}".strip())
    elif one.kind == "lapse":
        parts.append(f"{facts.get('action', '')} lapsed".strip())
    if facts.get("values"):
        size = f" ({bytes_(facts['size_bytes'])})" if facts.get("size_bytes") else ""
        parts.append(f"{count(facts['values'], 'value')}{size}")
    if facts.get("archives"):
        parts.append(folded_text(facts["archives"], facts.get("turns_folded", 0)))
    if one.kind == "relief" and not parts:
        parts.append("turns folded")
    if facts.get("reason"):
        parts.append(str(facts["reason"]))
    return safe(", ".join(parts)) or "-"


def counts_json(listed: Iterable[Tally]) -> dict[str, Any]:
    """Return the counts by kind and tool as other programs read them."""
    return {
        "counts": [
            {"kind": one.kind, "tool": one.tool, "values_extracted": one.extracted,
             "chars": one.extracted_chars, "values_restored": one.restored,
             "chars_restored": one.restored_chars}
            for one in listed
        ]
    }  # fmt: skip


def counts(listed: Sequence[Tally]) -> str:
    """Return the counts by kind and tool as a table."""
    if not listed:
        return "nothing was extracted or put back in this time"
    rows = [
        (one.kind, one.tool or "-", f"{one.extracted:,}", f"{one.extracted_chars:,}",
         f"{one.restored:,}", f"{one.restored_chars:,}")
        for one in listed
    ]  # fmt: skip
    head = ("kind", "tool", "extracted", "characters", "put back", "characters")
    return table(head, rows, left=2)
