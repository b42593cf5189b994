"""Render runs, rollbacks, events, findings, the status and the metrics as text and JSON."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from brainsurgeon import __version__
from brainsurgeon.model import reports
from brainsurgeon.model.plans import Amounts, Outcome, Plan
from brainsurgeon.model.text import about, ago, bytes_, counted, lasting
from brainsurgeon.model.text import readable as safe
from brainsurgeon.model.turns import archived_text
from brainsurgeon.render import turns
from brainsurgeon.render.estimate import models_json, saved_so_far, total_cost
from brainsurgeon.render.formatting import (
    document,
    first,
    in_json,
    in_local_time,
    local,
    table,
    title,
)
from brainsurgeon.render.sessions import NOTHING, PADDED, session_restored

CONFIGURATION = "the configuration"  # if its path is not known
_OUTCOME_KEYS = ("session", "path", "format", "outcome", "reason", "bytes_before", "bytes_after")


def report_json(report: reports.ScanReport) -> dict[str, Any]:
    sessions = [outcome_json(outcome, report.dry_run) for outcome in report.sessions]
    return {**in_json(replace(report, sessions=[])), "sessions": sessions}


def outcome_json(outcome: Outcome, dry_run: bool) -> Any:
    answer: dict[str, Any] = {key: getattr(outcome, key) for key in _OUTCOME_KEYS}
    answer["entries_extracted"] = outcome.executed.entries
    answer["values_extracted"] = len(outcome.executed.values)
    answer["values_restored"] = outcome.executed.values_restored
    if outcome.full:
        answer["fullness"] = turns.fullness_json(outcome.full)
    if outcome.plan:
        answer["warnings"] = list(outcome.plan.warnings)
        if dry_run:
            answer["would_extract"] = turns.removals_json(outcome.plan.values)
            answer["would_keep"] = outcome.plan.kept
            if outcome.plan.turns:
                answer["turns"] = [turns.verdict_json(verdict) for verdict in outcome.plan.turns]
        if outcome.plan.archives:
            answer["archived"] = [archive.entry_id for archive in outcome.plan.archives]
    return in_json(answer)


def report(
    done: reports.ScanReport,
    config: str = CONFIGURATION,
    *,
    verbose: bool = False,
    sessions: Iterable[str] = (),
) -> Iterator[str]:
    """Yield the lines of a report: problems, then sessions, then the totals.

    `config` is the path of the configuration. `sessions` are lines about sessions that are not in
    the report. With `verbose`, a dry run lists every value.
    """
    yield from [*problems(done), *databases(done.databases)]
    yield from sessions
    for outcome in done.sessions:
        yield from outcome_lines(outcome, done.dry_run, verbose=verbose)
    if not done.enabled:
        yield reports.DISABLED
    yield from paused(done.pauses)
    yield summary(done)
    if number := done.files_skipped_before:
        yield f"earlier scans left {counted(number, 'session')} of these alone; `exclude` does so"
    yield from [*used(done.used_homes, config), *homes(done.homes, config)]
    if done.stopped:
        yield "interrupted" + ("" if done.dry_run else "; the next scan continues")


def problems(done: reports.ScanReport) -> list[str]:
    return [
        *(f"recovered {safe(one.path)}: {safe(one.what)}" for one in done.recovered),
        *(f"{safe(path)}: interrupted; the next scan finishes it" for path in done.interrupted),
        *(
            f"{safe(problem.path)}: {safe(problem.reason)}; nothing was changed there"
            for problem in done.unreadable
        ),
    ]


def paused(listed: Sequence[reports.Pause]) -> list[str]:
    return [f"paused     {_pause(one)}: nothing is extracted; {_end_of(one)}" for one in listed]


def _pause(one: reports.Pause) -> str:
    ends, begun = one.ends_at, local(one.paused_at)
    term = f"since {begun}" if ends is None else f"until {local(ends)}"
    return f"{safe(one.session) or 'all sessions'}, {term}"


def _end_of(one: reports.Pause) -> str:
    of_session = f" --session {safe(one.session)}" if one.session else ""
    return f"`brainsurgeon pause --end{of_session}` ends this"


def pauses(listed: Sequence[reports.Pause]) -> str:
    return "\n".join(paused(listed))


def pause_ended(left: Sequence[reports.Pause], *, ended: bool, keep: float) -> str:
    """Return what `pause --end` did. A restored value stays for `keep` seconds."""
    later = f", restored values {lasting(keep)} after their restore" if keep else ""
    if ended:
        first_line = "the pause is ended" + ("" if left else f"; scans extract again{later}")
    else:
        first_line = "no pause was ended" if left else "nothing was paused"
    return "\n".join([first_line, *paused(left)])


def used(found: Sequence[reports.FoundHome], config: str) -> list[str]:
    if not found:
        return []
    return [
        "",
        "No configuration names roots, so the agents that were found are scanned:",
        *(f"  {home.agent}: {safe(home.path)}" for home in found),
        "`brainsurgeon init` writes a configuration with these roots. To scan only some of them,",
        f"put only their lines into {safe(config)}:",
        *(
            f"  {line}"
            for home in found
            for line in ("[[roots]]", f"path = {safe(json.dumps(home.path, ensure_ascii=False))}")
        ),
    ]


def homes(unused: Sequence[reports.UnusedHome], config: str) -> list[str]:
    if not unused:
        return []
    roots = dict.fromkeys(
        f"[[roots]]{root}".rstrip()
        for home in unused for root in home.config.split("[[roots]]")[1:]
    )  # fmt: skip
    return [
        "",
        *(
            f"{home.agent} keeps sessions in {safe(home.path)}, which no root covers"
            f"{f' ({home.note})' if home.note else ''}."
            for home in unused
        ),
        f"To add them, put this into {safe(config)}:",
        *(f"  {safe(line)}" for root in roots for line in root.splitlines()),
    ]


def databases(listed: Sequence[reports.DatabaseStatus]) -> list[str]:
    lines = []
    for database in listed:
        version = (
            f"{database.title} {database.program or 'of unknown version'}, layout {database.layout}"
        )
        layout = "" if database.layout is None else f" ({version})"
        reason = database.left_alone
        state = f"left alone, {safe(reason)}" if reason else "its sessions are pruned"
        lines.append(f"database of {safe(database.agent)} {safe(database.path)}{layout}: {state}")
    return lines + database_notes(listed)


def database_notes(listed: Sequence[reports.DatabaseStatus]) -> list[str]:
    return list(dict.fromkeys(database.note for database in listed if database.note))


def outcome_lines(outcome: Outcome, dry_run: bool, *, verbose: bool = False) -> list[str]:
    name = safe(title(outcome.session))
    if outcome.outcome != "changed":
        why = f"{name}: {outcome.outcome}, {safe(in_local_time(outcome.reason))}"
        plan = outcome.plan if dry_run else None
        return [why, *(_explain(plan, verbose=verbose) if plan else ())]
    sizes = f"{bytes_(outcome.bytes_before)} -> {bytes_(outcome.bytes_after)}"
    if outcome.executed.values and outcome.bytes_before == outcome.bytes_after:
        sizes += " (with spaces: that saves tokens, no disk space)"
    step = f", step {outcome.full.step}" if outcome.full and outcome.full.step else ""
    lines = [f"{name}: {'would be ' if dry_run else ''}{outcome.reason}, {sizes}{step}"]
    if outcome.plan:
        if dry_run:
            lines += _explain(outcome.plan, verbose=verbose)
        lines += [f"  warning: {safe(warning)}" for warning in outcome.plan.warnings[:3]]
        lines += [f"  {safe(entry)}: {safe(why)}" for entry, why in outcome.plan.handled.missed[:3]]
    return lines


def _explain(plan: Plan, *, verbose: bool) -> list[str]:
    lines = turns.removals(plan.values)
    if not verbose:
        lines = first(lines, turns.MOST_ROWS, "  - … and {:,} more (--verbose names each)")
    lines += turns.turns(plan.turns)
    sums = Amounts()
    for kept in plan.kept:
        sums.add(kept.reason, values=kept.values, chars=kept.chars)
    for (reason,), (values, size) in sums.ranked():
        stay = "stays" if values == 1 else "stay"
        number = counted(values, "value")
        lines.append(
            f"  = {number} ({counted(size, 'character')}) {stay}: {safe(in_local_time(reason))}"
        )
    return lines


def summary(done: reports.ScanTotals) -> str:
    verb = "would change" if done.dry_run else "changed"
    parts = [f"{counted(done.files_seen, 'session')}: {done.sessions_changed:,} {verb}"]
    if done.sessions_changed:
        share = 100 * (1 - done.bytes_after / done.bytes_before) if done.bytes_before else 0
        change = f"{abs(share):.0f} % {'more' if share < 0 else 'less'}"
        parts.append(f"{bytes_(done.bytes_before)} -> {bytes_(done.bytes_after)} ({change})")
    if done.bytes_stored:
        parts.append(f"{bytes_(done.bytes_stored)} stored")
    parts += [
        f"{number:,} {word}"
        for number, word in (
            (done.files_unchanged, "unchanged"), (done.files_deferred, "deferred"),
            (done.files_failed, "failed"),
        ) if number
    ]  # fmt: skip
    end = "; nothing was written" if done.dry_run else ""
    return f"{', '.join(parts)}, {done.duration_seconds:.1f} s{end}"


def retention(done: reports.RetentionReport) -> str:
    lines = [
        f"{safe(root)}: nothing was deleted: {safe(why)}" for root, why in done.held_back.items()
    ]
    lines += [f"  {number:,} {reason}" for reason, number in done.reasons.items()]
    if done.values_damaged:
        lines.append(f"{counted(done.values_damaged, 'stored value')} damaged: see `doctor`")
    deleted = f"{'would be ' if done.dry_run else ''}deleted ({bytes_(done.bytes_deleted)})"
    stored = counted(done.values_held, "stored value")
    return "\n".join([*lines, f"{stored}: {done.values_deleted:,} {deleted}"])


def findings(listed: list[reports.Finding]) -> str:
    lines = []
    for finding, following in zip(listed, [*listed[1:], None], strict=True):
        lines.append(f"{finding.level:8} {safe(finding.what)}")
        if finding.advice and not (following and following.advice == finding.advice):
            lines.append(f"{'':8} {safe(finding.advice)}")
    return "\n".join(lines)


# The counts of a run. Maps their names in the store to the names in JSON.
_COUNTS = {
    "sessions": "sessions_changed", "extracted": "values_extracted", "restored": "values_restored",
    "redacted": "values_redacted", "expired": "values_deleted", "fields": "fields_changed",
    "archived": "turns_archived", "unarchived": "turns_unarchived", "chars": "chars",
    "tokens": "tokens",
}  # fmt: skip


def runs_json(listed: Iterable[reports.Run]) -> dict[str, Any]:
    rows = [
        {"run_id": run.id, "at": run.at, "command": run.command,
         **{key: run.facts.get(name, 0) for name, key in _COUNTS.items()},
         "rolls_back": run.facts.get("rolls_back")}
        for run in listed
    ]  # fmt: skip
    return {"runs": rows}


def runs(listed: Sequence[reports.Run]) -> str:
    if not listed:
        return "no run has changed anything yet"
    rows = [
        (str(run.id), local(run.at)[: len("2026-11-01 10:00")], command(run), changes(run),
         f"{run.facts.get('sessions', 0):,}", about(run.facts.get("tokens", 0)))
        for run in listed
    ]  # fmt: skip
    head = ("run", "when", "command", "values", "sessions", "tokens")
    note = "tokens: an estimate of how much shorter the next requests of these sessions are"
    return "\n".join([table(head, rows, left=4), note])


def command(run: reports.Run) -> str:
    undone = run.facts.get("rolls_back")
    return run.command if undone is None else f"{run.command} {undone}"


def changes(run: reports.Run) -> str:
    facts = run.facts
    done = [
        f"{facts[name]:,} {'shortened' if name == 'redacted' else name}"
        for name in ("extracted", "restored", "redacted", "expired") if facts.get(name)
    ] + [
        f"{archived_text(facts[name], facts.get(f'{name}_turns', 0))} {name}"
        for name in ("archived", "unarchived") if facts.get(name)
    ]  # fmt: skip
    if facts.get("fields"):
        done.append(counted(facts["fields"], "field"))
    return ", ".join(done) or "-"


def rollback_json(done: reports.RollbackReport, *, dry_run: bool = False) -> dict[str, Any]:
    noted = {"dry_run": True} if dry_run else {}
    return {**noted, "rolls_back": done.undone.id, "run_id": done.run_id, "sessions": done.sessions}


def rollback(done: reports.RollbackReport, *, dry_run: bool = False) -> str:
    lines = []
    for one in done.sessions:
        lines += session_restored(one, one.turns_unarchived, dry_run=dry_run)
        lines += [f"  {counted(n, 'value')}: {safe(why)}" for why, n in one.reasons.items()]
    states = Counter(session.state for session in done.sessions)
    wait = "would wait" if dry_run else "waiting"
    waits = f", {states['pending']} {wait} until idle" if states["pending"] else ""
    lines.append(
        f"{counted(len(done.sessions), 'session')} of run {done.undone.id} ({done.undone.command}, "
        f"{local(done.undone.at)}), {states['rolled back']} {'would be ' if dry_run else ''}"
        f"rolled back{waits}"
    )
    lines += [NOTHING] if dry_run else []
    return "\n".join(lines)


def event_line(event: reports.Event) -> str:
    return document(event_json(event), indent=None)


def event_json(event: reports.Event) -> dict[str, Any]:
    return {
        "event_id": event.id, "at": event.at, "kind": event.kind, "run_id": event.run_id,
        "session": event.session or event.facts.get("session"),
        "facts": {name: fact for name, fact in event.facts.items() if name != "session"},
    }  # fmt: skip


def event(event: reports.Event) -> str:
    of_run = f" (run {event.run_id})" if event.run_id is not None else ""
    return f"{event.id:<5} {local(event.at)}  {event.kind:11}  {event_text(event)}{of_run}"


def event_text(event: reports.Event) -> str:
    facts = event.facts
    parts = []
    if facts.get("rolls_back") is not None:
        parts.append(f"of run {facts['rolls_back']}")
    if facts.get("pending"):
        parts.append("waits")
    if facts.get("entry_id"):
        parts.append(f"{facts.get('action', '')} of {facts['entry_id']}".strip())
    elif event.kind == "lapse":
        parts.append(f"{facts.get('action', '')} lapsed".strip())
    if facts.get("values"):
        size = f" ({bytes_(facts['size_bytes'])})" if facts.get("size_bytes") else ""
        parts.append(f"{counted(facts['values'], 'value')}{size}")
    if facts.get("archives"):
        parts.append(archived_text(facts["archives"], facts.get("turns_held", 0)))
    if event.kind == "relief" and not parts:
        parts.append("turns archived")
    if facts.get("reason"):
        parts.append(str(facts["reason"]))
    session = event.session or facts.get("session") or "-"
    return f"{safe(session)}: {safe(', '.join(parts)) or '-'}"


def counts(listed: Sequence[reports.Tally]) -> str:
    if not listed:
        return "no value was extracted or restored in this period"
    rows = [
        (tally.kind, tally.tool or "-", f"{tally.values_extracted:,}", f"{tally.chars:,}",
         f"{tally.values_restored:,}", f"{tally.chars_restored:,}")
        for tally in listed
    ]  # fmt: skip
    head = ("kind", "tool", "extracted", "characters", "restored", "characters")
    return table(head, rows, left=2)


# The fields of a status that JSON does not nest: their own fields become top-level keys.
_PARTS = ("daemon", "store", "unfinished", "places", "tokens")
# The most troubles and the most reasons in a status, so that it fits on a screen.
_MOST = 6


def status_json(state: reports.Status) -> dict[str, Any]:
    answer: dict[str, Any] = {}
    for name, part in in_json(state).items():
        answer |= part if name in _PARTS else {name: part}
    del answer["models"], answer["troubles"]  # `check` adds the age of the last run to these
    failures = [event_json(event) for event in state.failures]
    costs = models_json(state.tokens.models)
    return {**answer, **runs_json(state.runs), "costs": costs, "failures": failures}


def check(state: reports.Status, troubles: list[str], now: float) -> str:
    if troubles:
        return f"brainsurgeon: {safe('; '.join(_some(troubles)))}"
    last = state.daemon.last_run_at
    age = f"last run {ago(last, now)}, " if last is not None else ""
    sessions = counted(sum(state.sessions_by_state.values()), "session")
    return f"brainsurgeon: ok, {age}{sessions}, {bytes_(state.store.bytes_saved)} saved"


def status(
    state: reports.Status, now: float, config: str = CONFIGURATION, troubles: Iterable[str] = ()
) -> str:
    daemon, store, tokens, places = state.daemon, state.store, state.tokens, state.places
    running = f"running, pid {daemon.daemon_pid}" if daemon.daemon_pid else "not running"
    states = ", ".join(f"{number:,} {name}" for name, number in state.sessions_by_state.items())
    lines = [
        f"daemon     {running}",
        f"full scan  {_times(daemon.last_run_at, daemon.next_run_at, now)}",
        f"retention  {_times(daemon.last_retention_run_at, daemon.next_retention_run_at, now)}",
        f"sessions   {states or 'none found'}",
        *_savings(store, tokens),
    ]
    if store.bytes_padded:
        lines.append(f"padded     {PADDED.format(bytes_(store.bytes_padded))}")
    lines += paused(state.pauses)
    if tokens.models:
        lines.append(f"cost       {total_cost(tokens.models)}")
    if so_far := saved_so_far(tokens.saved_so_far):
        lines.append(f"so far     {so_far}")
    if tokens.turns_archived:
        lines.append(f"archived   {counted(tokens.turns_archived, 'archive')} of finished turns")
    lines += turns.loads(tokens.loads)
    lines += [
        f"run {one.id:<5} {ago(one.at, now)}: {command(one)}, {changes(one)}" for one in state.runs
    ]
    lines += [f"failed     {ago(one.at, now)}: {event_text(one)}" for one in state.failures]
    if requests := state.unfinished.requests_open:
        lines.append(f"waiting    {counted(requests, 'request')}, until the sessions are idle")
    lines += [
        f"{'expiring' if one.kind == 'expiring_values' else 'unfinished':10} {safe(one.what)}"
        for one in state.troubles if one.harmless
    ]  # fmt: skip
    lines += _some(f"trouble    {safe(trouble)}" for trouble in troubles)
    reasons = sorted(state.reasons.items(), key=lambda item: (-item[1], item[0]))
    lines += _some(f"  {number} x {safe(in_local_time(reason))}" for reason, number in reasons)
    rows = [
        (
            one.path,
            str(one.sessions_seen),
            one.protocol if one.sessions_seen else "-",
        )
        for one in places.roots
    ]
    lines += ["", table(("root", "sessions", "changes guarded by"), rows)]
    lines += databases(places.databases)
    return "\n".join(lines + homes(places.homes, config))


def _some(lines: Iterable[str]) -> list[str]:
    return first([*lines], _MOST, "  … and {} more, with --json")


def _savings(store: reports.StoreStatus, tokens: reports.TokensStatus) -> list[str]:
    place = safe(store.store_path)
    if not store.store_size_bytes:
        return [f"store      none yet: the first scan makes it in {place}"]
    net = store.bytes_saved - store.store_size_bytes
    return [
        f"saved      {bytes_(store.bytes_saved)} in {counted(store.values_extracted, 'value')}",
        f"tokens     about {about(tokens.tokens_saved)} are not sent any more",
        f"store      {bytes_(store.store_size_bytes)} in {place}",
        f"disk       {bytes_(abs(net))} {'less' if net >= 0 else 'more'} used than without it",
    ]


def _times(last: float | None, following: float | None, now: float) -> str:
    done = "never" if last is None else f"{local(last)} ({ago(last, now)})"
    return done if following is None else f"{done}, next {local(following)}"


# `prometheus_client` is not used: its import takes 45 ms, and it keeps the figures in memory, while
# these come from the store.
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics(measured: Iterable[reports.Metric]) -> str:
    lines = [
        "# HELP brainsurgeon_build_info The version of the program, as a label.",
        "# TYPE brainsurgeon_build_info gauge",
        f'brainsurgeon_build_info{{version="{__version__}"}} 1',
    ]
    for metric in measured:
        name = f"brainsurgeon_{metric.name}"
        lines += [f"# HELP {name} {metric.help_text}", f"# TYPE {name} {metric.kind}"]
        if isinstance(metric.value, dict):
            lines += [
                f'{name}{{{metric.label}="{outcome.translate(_ESCAPED)}"}} {_number(number)}'
                for outcome, number in metric.value.items()
            ]
        else:
            lines.append(f"{name} {_number(metric.value)}")
    return "\n".join(lines) + "\n"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
