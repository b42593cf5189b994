"""Render the agents, offers and results of `init`, and the settings, as text and JSON."""

import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from brainsurgeon.model import reports
from brainsurgeon.model.text import bytes_, counted
from brainsurgeon.model.text import readable as safe
from brainsurgeon.render import runs
from brainsurgeon.render.formatting import table, titles

_MOST = 12  # sessions that are listed


def found(
    homes: Iterable[reports.FoundHome], foreign: Collection[reports.FoundHome],
    unused: Sequence[reports.UnusedHome], why_none: str | None, config: str,
) -> str:  # fmt: skip
    lines = [
        f"found {home.agent}: {safe(home.path)}" + (f" ({home.note})" if home.note else "")
        for home in homes if home not in foreign
    ]  # fmt: skip
    lines += [
        f"left out {home.agent}: {safe(home.path)} belongs to another user;"
        " run `brainsurgeon init` as that user"
        for home in foreign
    ]
    if why_none:
        lines.append(why_none)
    return "\n".join(lines + runs.homes(unused, config))


def log(seen: reports.LogCheck) -> str:
    count = sum(seen.roles.values())
    turn = seen.open_turn or "the last turn is finished"
    if seen.left_alone:
        turn += f"; a scan would leave it alone: {seen.left_alone}"
    elif seen.open_turn:
        turn += ", but it is old and counts as finished"
    rows = [(role, f"{number:,}", "") for role, number in seen.roles.items()]
    lines = [
        f"{safe(seen.path)}: {seen.format}, {counted(count, 'entry', 'entries')}; {turn}",
        f"{counted(seen.tool_calls, 'tool call')}, {seen.answered:,} with a result", "",
        table(("role", "entries"), [row[:2] for row in rows]), "",
        table(("values", "reason to keep", "number", "characters"), [
            (one.where, one.reason, f"{one.values:,}", f"{one.chars:,}") for one in seen.found
        ], left=2),
    ]  # fmt: skip
    missed = [
        (one.where, f"{one.first_line:,}", f"{one.values:,}", f"{one.chars:,}")
        for one in seen.unreached[:_MOST]
    ]
    if missed:
        head = ("texts that nothing reaches", "first line", "number", "characters")
        lines += ["", table(head, missed)]
    if more := len(seen.unreached) - len(missed):
        lines.append(f"… and {more} more paths")
    lines += [f"leads to nothing here: {safe(key)}" for key in seen.unused_keys]
    return "\n".join([*lines, *(f"problem: {safe(problem)}" for problem in seen.faults)])


def totals(report: reports.ScanReport, config: str, *, verbose: bool) -> str:
    if verbose:
        return "\n".join(runs.report(report, config, verbose=True))
    changed = sorted(
        (outcome for outcome in report.sessions if outcome.outcome == "changed"),
        key=lambda outcome: outcome.bytes_after - outcome.bytes_before,
    )
    lines = [
        f"{safe(place.path)}: {safe(place.reason)}" for place in report.unreadable if place.failed
    ]
    if changed:
        names = titles((outcome.session for outcome in changed), only_some=True)
        rows = [
            (names[outcome.session], bytes_(outcome.bytes_before), bytes_(outcome.bytes_after),
             f"{len(outcome.executed.values):,}")
            for outcome in changed[:_MOST]
        ]  # fmt: skip
        head = ("a first run would change", "now", "then", "values")
        lines.append(table(head, rows, fixed=1))
    if len(changed) > _MOST:
        more = counted(len(changed) - _MOST, "more session")
        lines.append(f"… and {more} (--verbose names each, with every value)")
    programs = Counter(database.title for database in report.databases)
    lines += [f"found {counted(found, 'database')} of {title}" for title, found in programs.items()]
    lines += [
        f"{safe(database.path)} is left alone: {safe(database.left_alone)}"
        for database in report.databases if database.left_alone
    ]  # fmt: skip
    return "\n".join([*lines, runs.summary(report)])


def offer(offer: reports.Offer) -> str:
    note = [f"  note: {safe(offer.note)}"] if offer.note else []
    return "\n".join([f"{offer.title}:", *(f"  {_step(step)}" for step in offer.steps), *note])


def _step(step: reports.Step) -> str:
    notes = {"there": " (is there already)", "other": " (exists and differs: left unchanged)"}
    note = notes.get(step.state, "")
    if not isinstance(step, reports.FileStep):
        act = step.shown or f"{'' if note else 'run '}{shlex.join(step.command)}"
        return f"{safe(act)}{note}"
    if note:
        return f"{safe(step.path)}{note}"
    act = "write" if step.state == "new" else "overwrite"
    commands = "".join(f", then {shlex.join(command)}" for command in step.after)
    size = bytes_(len(step.content.encode()))
    return f"{act} {safe(step.path)}, {size}{safe(commands)}"


def undoing(entries: Iterable[dict[str, Any]]) -> str:
    lines = [
        f"  remove {safe(entry['path'])}"
        if "digest" in entry
        else f"  run {safe(shlex.join(entry['undo']))}"
        if entry["undo"] and entry["undo"][0] != "sh"  # a shell program, as for cron
        else f"  remove the {entry['what']}"
        for entry in entries
    ]
    return "\n".join(["undo:", *reversed(lines)])


def done(results: Iterable[reports.Done]) -> str:
    return "\n".join(
        f"{'! ' if step.left else ''}{step.what}: {safe(step.result)}" for step in results
    )


def init_json(
    homes: Sequence[reports.FoundHome], offers: Iterable[reports.Offer],
    report: reports.ScanReport | None, results: Iterable[reports.Done],
) -> dict[str, Any]:  # fmt: skip
    answer: dict[str, Any] = {}
    if report:
        offered = [_offer_json(offer) for offer in offers]
        answer = {**runs.report_json(report), "homes": homes, "offers": offered}
    answer["steps"] = [
        {"what": step.what, "outcome": "left" if step.left else "done", "note": step.result}
        for step in results
    ]
    return answer


def _offer_json(offer: reports.Offer) -> dict[str, Any]:
    steps = [
        {"what": step.what, "state": step.state, "path": step.path}
        if isinstance(step, reports.FileStep)
        else {"what": step.what, "state": step.state, "command": shlex.join(step.command)}
        for step in offer.steps
    ]
    return {"title": offer.title, "asked": offer.asked, "note": offer.note, "steps": steps}


def settings(listed: Iterable[reports.Setting], source: str | None) -> str:
    lines: dict[bool, list[str]] = {True: [], False: []}
    for setting in listed:
        origin = safe(setting.source.removeprefix(f"{source}:") if source else setting.source)
        text = f"# {setting.key} is not set"
        if setting.value is not None:
            text = "\n".join(map(safe, f"{setting.key} = {setting.value}".split("\n")))
            if setting.source != "default":
                text = f"{text.ljust(44)} # {'line ' if origin.isdigit() else ''}{origin}"
        lines[setting.source == "default"].append(text)
    head = f"# {safe(source)}" if source else "# no file: `brainsurgeon init` writes one"
    differ = lines[False] or ["# nothing differs from the defaults"]
    return "\n".join([head, *differ, "", "# defaults", *lines[True]])
