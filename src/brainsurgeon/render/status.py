"""How things stand, on one screen, and in one line for monitors."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon import __version__
from brainsurgeon.model.text import iso
from brainsurgeon.model.text import readable as safe
from brainsurgeon.operations.status import lasting, leaving
from brainsurgeon.render import DISABLED, bytes_, count, local, printable, table
from brainsurgeon.render.runs import (
    command,
    databases,
    did,
    events_json,
    homes,
    of_session,
    runs_json,
)
from brainsurgeon.render.turns import loads, loads_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.operations.status import Check, Metric, Status


# Of reasons, roots and the like no more are shown: it is to fit a screen.
_MOST = 6


def status_json(now: Status) -> dict[str, Any]:
    """Return how things stand as other programs read it; moments are ISO 8601 or null."""
    answer: dict[str, Any] = {
        key: iso(value) if key.endswith("_at") and value is not None else value
        for key, value in asdict(now).items()
    }
    answer["store_size_bytes"] = answer.pop("store_bytes")
    answer["loads"] = loads_json(now.loads)
    answer |= runs_json(now.runs)
    if now.leaving:
        answer["leaving"]["expires_at"] = iso(now.leaving.expires_at)
    answer["failures"] = events_json(now.failures)["events"]
    answer["roots"] = [
        {"sessions_seen" if key == "sessions" else key: value for key, value in root.items()}
        for root in map(asdict, now.roots)
    ]
    return printable(answer)  # type: ignore[no-any-return]


def check_json(found: Check) -> dict[str, Any]:
    """Return what is wrong as other programs read it."""
    return {"troubles": printable(list(found.troubles))}


def check(now: Status, found: Check) -> str:
    """Say in one line whether somebody has to look, the worst first."""
    if found.troubles:
        return f"brainsurgeon: {safe('; '.join(found.troubles))}"
    age = f"last run {lasting(found.age)} ago" if found.age is not None else ""
    sessions = count(sum(now.sessions_by_state.values()), "session")
    return f"brainsurgeon: ok, {age}, {sessions}, {bytes_(now.bytes_saved)} saved"


def status(now: Status, moment: float) -> str:
    """Return how things stand as text."""
    daemon = f"running, pid {now.daemon_pid}" if now.daemon_pid else "not running"
    states = ", ".join(f"{number:,} {state}" for state, number in now.sessions_by_state.items())
    net = now.bytes_saved - now.store_bytes
    lines = [] if now.enabled else [DISABLED]
    lines += [
        f"daemon     {daemon}",
        f"scans      {_runs(now.last_run_at, now.next_run_at, moment)}",
        f"retention  {_runs(now.last_retention_run_at, now.next_retention_run_at, moment)}",
        f"sessions   {states or 'none found'}",
        f"saved      {bytes_(now.bytes_saved)} in {count(now.values_extracted, 'value')}",
        f"tokens     about {now.tokens_saved:,} are not sent any more (an estimate)",
        f"store      {bytes_(now.store_bytes)} in {safe(now.store_path)}",
        f"net        {bytes_(net)} less than without brainsurgeon" if net >= 0
        else f"net        {bytes_(-net)} more than without brainsurgeon, so far",
    ]  # fmt: skip
    if now.turns_archived:
        lines.append(f"archived   {count(now.turns_archived, 'archive')} of finished turns")
    lines += loads(now.loads)
    lines += [
        f"run {one.id:<5} {_ago(one.at, moment)}: {command(one)}, {did(one)}" for one in now.runs
    ]
    lines += [f"failed     {_ago(one.at, moment)}: {of_session(one)}" for one in now.failures]
    if now.leaving:
        lines.append(f"leaving    {leaving(now.leaving)}")
    if now.requests_open:
        lines.append(
            f"waiting    {count(now.requests_open, 'request', 'requests')} for an idle session"
        )
    lines += _some(
        f"unfinished {safe(path)}: the next scan finishes it" for path in now.interrupted
    )
    lines += _some(f"beside     {safe(path)}: {safe(why)}" for path, why in now.kept_beside.items())
    reasons = sorted(now.reasons.items(), key=lambda item: (-item[1], item[0]))
    lines += _some(f"  {number} x {safe(reason)}" for reason, number in reasons)
    rows = [(root.path, str(root.sessions), root.protocol) for root in now.roots]
    lines += ["", table(("root", "sessions", "files are replaced by"), rows)]
    lines += _some(f"{safe(root.path)}: {safe(root.problem)}" for root in now.roots if root.problem)
    lines += databases(now.databases)
    lines += _some(
        f"{safe(path)}: nothing expires there, {safe(why)}" for path, why in now.held_back.items()
    )
    return "\n".join(lines + homes(now.homes))


def _some(lines: Iterable[str]) -> list[str]:
    """Return the first few of some lines, and say how many more there are."""
    listed = list(lines)
    if len(listed) <= _MOST:
        return listed
    return [*listed[:_MOST], f"  … and {len(listed) - _MOST} more, with --json"]


def _ago(then: float, now: float) -> str:
    return f"{lasting(max(0.0, now - then))} ago"


def _runs(last: float | None, following: float | None, now: float) -> str:
    when = "-" if last is None else f"{local(last)} ({_ago(last, now)})"
    return f"last {when}, next {local(following) if following is not None else '-'}"


# It is written plainly: a registry of counters is made for programs that count in memory, and what
# is measured here stands in the store.


_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics(measured: Iterable[Metric]) -> str:
    """Write measures, each with its help and its type, behind the version of the program."""
    lines = [
        "# HELP brainsurgeon_build_info The version of the program, as a label.",
        "# TYPE brainsurgeon_build_info gauge",
        f'brainsurgeon_build_info{{version="{__version__}"}} 1',
    ]
    for one in measured:
        lines.append(f"# HELP brainsurgeon_{one.name} {one.says}")
        lines.append(f"# TYPE brainsurgeon_{one.name} {one.kind}")
        lines += [
            f"brainsurgeon_{one.name}{_labels(labels)} {_number(value)}"
            for labels, value in one.samples
        ]
    return "\n".join(lines) + "\n"


def metrics_json(measured: Iterable[Metric]) -> dict[str, Any]:
    """Return measures as other programs read them, each sample with its label, if it has one."""
    return {
        "metrics": [
            {"metric": f"brainsurgeon_{one.name}", "label": next(iter(labels.values()), None),
             "number": float(value)}
            for one in measured for labels, value in one.samples
        ]
    }  # fmt: skip


def _labels(labels: dict[str, str]) -> str:
    told = ",".join(f'{name}="{value.translate(_ESCAPED)}"' for name, value in labels.items())
    return f"{{{told}}}" if told else ""


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
