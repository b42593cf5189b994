"""What `init` found, offers and did, and the settings in force."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.text import counted
from brainsurgeon.model.text import readable as safe
from brainsurgeon.operations.install import FileStep
from brainsurgeon.render import bytes_, printable, runs, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from brainsurgeon.config.origins import Setting
    from brainsurgeon.model.reports import ScanReport
    from brainsurgeon.operations.init import Setup
    from brainsurgeon.operations.install import Done, Offer, Step

# Sessions that are listed; the rest is counted.
MOST = 12
_SAID = {
    "there": "is there already", "other": "is there and not ours: it stays as it is",
}  # fmt: skip


def found(setup: Setup, nothing: str | None) -> str:
    """Name the homes that were found, and those that are somebody else's."""
    lines = [
        f"found {one.agent}: {safe(one.path)}" + (f" ({one.note})" if one.note else "")
        for one in setup.homes if one not in setup.foreign
    ]  # fmt: skip
    lines += [
        f"left out {one.agent}: {safe(one.path)} belongs to another user; run this as that one"
        for one in setup.foreign
    ]
    return "\n".join([*lines, *([nothing] if nothing else []), *runs.homes(setup.unused)])


def totals(report: ScanReport, *, verbose: bool) -> str:
    """Return what a first run would do: a line a session, the largest gain first, and the sum."""
    if verbose:
        return runs.report(report, verbose=True)
    changed = [one for one in report.sessions if one.outcome == "changed"]
    changed.sort(key=lambda one: one.bytes_after - one.bytes_before)
    lines = [f"{safe(one.path)}: {safe(one.why)}" for one in report.problems if one.failed]
    if changed:
        head = ("a first run would change", "now", "then", "values")
        rows = [
            (one.session, bytes_(one.bytes_before), bytes_(one.bytes_after),
             f"{one.values_extracted:,}")
            for one in changed[:MOST]
        ]  # fmt: skip
        lines.append(table(head, rows))
    if len(changed) > MOST:
        more = counted(len(changed) - MOST, "more session")
        lines.append(f"… and {more} (--verbose names each, with every value)")
    if report.databases:
        number = counted(len(report.databases), "database")
        lines.append(f"{number} of OpenClaw looked at, sessions and all")
    alone = [one for one in report.databases if one.left_alone]
    lines += [f"{safe(one.path)} is left alone: {safe(one.left_alone or '')}" for one in alone]
    return "\n".join([*lines, runs.summary(report)])


def offer(one: Offer) -> str:
    """Show what would be done for one offer, each file and command, before it is."""
    lines = [f"{one.title}:", *(f"  {_step(step)}" for step in one.steps)]
    return "\n".join(lines + ([f"  note: {safe(one.note)}"] if one.note else []))


def _step(step: Step) -> str:
    said = f" ({_SAID[step.state]})" if step.state in _SAID else ""
    if isinstance(step, FileStep):
        act = {"new": "write ", "ours": "write anew "}.get(step.state, "")
        size = f", {bytes_(len(step.content.encode()))}" if act else ""
        commands = "".join(f", then {shlex.join(one)}" for one in step.after) if act else ""
        return f"{act}{safe(step.path)}{size}{safe(commands)}{said}"
    return f"{'' if said else 'run '}{safe(shlex.join(step.command))}{said}"


def undoing(entries: Iterable[dict[str, Any]]) -> str:
    """Show what would be taken back, the last first."""
    lines = []
    for one in entries:
        if "digest" in one:
            lines.append(f"  remove {safe(one['path'])}")
        else:
            lines.append(f"  run {safe(shlex.join(one['undo']))}")
    return "\n".join(["take back:", *reversed(lines)])


def done(listed: Sequence[Done]) -> str:
    """Return what became of each step."""
    return "\n".join(f"{'! ' if one.left else ''}{one.what}: {safe(one.said)}" for one in listed)


def init_json(
    setup: Setup | None, report: ScanReport | None, listed: Sequence[Done]
) -> dict[str, Any]:
    """Return what was found, offered and done as other programs read it."""
    answer: dict[str, Any] = {}
    if setup:
        answer["homes"] = [asdict(one) for one in setup.homes]
        answer["offers"] = [_offer_json(one) for one in setup.offers]
    if report:
        whole = runs.report_json(report)
        for one in whole["sessions"]:
            one.pop("would_extract", None), one.pop("would_keep", None)
        answer |= {key: value for key, value in whole.items() if key != "homes"}
    answer["steps"] = [
        {"what": one.what, "outcome": "left" if one.left else "done", "note": one.said}
        for one in listed
    ]
    return printable(answer)  # type: ignore[no-any-return]


def _offer_json(one: Offer) -> dict[str, Any]:
    steps = [
        {"what": step.what, "state": step.state, "path": step.path}
        if isinstance(step, FileStep)
        else {"what": step.what, "state": step.state, "command": shlex.join(step.command)}
        for step in one.steps
    ]
    return {"title": one.title, "asked": one.asked, "note": one.note, "steps": steps}


def settings(listed: Iterable[Setting], source: str | None) -> str:
    """Write the settings in force as a configuration, each with where it comes from."""
    lines, tables, wide = [f"# {safe(source)}" if source else "# no file: the defaults"], [], 44
    for one in listed:
        came = safe(one.source.removeprefix(f"{source}:") if source else one.source)
        came = f"line {came}" if came.isdigit() else came
        if one.table:
            for number, text in enumerate(one.table):
                head = f"[[{one.key}]]".ljust(wide)
                tables += [
                    "",
                    f"{head} # {came}" if number == 0 else head.rstrip(),
                    safe_lines(text),
                ]
        elif one.value is None:
            lines.append(f"# {one.key} is not set")
        else:
            lines.append(f"{safe(f'{one.key} = {one.value}').ljust(wide)} # {came}")
    return "\n".join([*lines, *tables])


def safe_lines(text: str) -> str:
    """Escape what a name could do to a terminal, line by line."""
    return "\n".join(map(safe, text.split("\n")))


def settings_json(
    listed: Iterable[Setting], source: str | None, warnings: Sequence[str]
) -> dict[str, Any]:
    """Return the settings in force as other programs read them."""
    rows = [{"key": one.key, "value": one.value, "source": one.source} for one in listed]
    return printable({"configuration": source, "settings": rows, "warnings": list(warnings)})  # type: ignore[no-any-return]
