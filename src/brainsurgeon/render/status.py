"""The status, on one screen, and in one line for monitors."""

from collections.abc import Iterable
from typing import Any

from msgspec import to_builtins

from brainsurgeon import __version__
from brainsurgeon.model.reports import Metric, Status
from brainsurgeon.model.text import about, ago, counted, iso
from brainsurgeon.model.text import readable as safe
from brainsurgeon.render import DISABLED, bytes_, in_local_time, local, printable, table
from brainsurgeon.render.estimate import saved_so_far
from brainsurgeon.render.runs import (
    command,
    databases,
    did,
    events_json,
    homes,
    of_session,
    runs_json,
)
from brainsurgeon.render.turns import loads

# The most lines of a kind, so that it fits on a screen.
_MOST = 6


def status_json(now: Status) -> dict[str, Any]:
    """Return the status for JSON; times are ISO 8601 or null."""
    answer: dict[str, Any] = {
        key: iso(value) if key.endswith("_at") and value is not None else value
        for key, value in to_builtins(now).items()
    }
    answer["store_size_bytes"] = answer.pop("store_bytes")
    answer |= runs_json(now.runs)
    if now.leaving:
        answer["leaving"]["expires_at"] = iso(now.leaving.expires_at)
    answer["failures"] = events_json(now.failures)["events"]
    return printable(answer)  # type: ignore[no-any-return]


def check_json(troubles: list[str]) -> dict[str, Any]:
    return {"troubles": printable(troubles)}


def check(now: Status, troubles: list[str], moment: float) -> str:
    if troubles:
        return f"brainsurgeon: {safe('; '.join(troubles))}"
    age = f"last run {ago(now.last_run_at, moment)}" if now.last_run_at is not None else ""
    sessions = counted(sum(now.sessions_by_state.values()), "session")
    return f"brainsurgeon: ok, {age}, {sessions}, {bytes_(now.bytes_saved)} saved"


def status(now: Status, moment: float) -> str:
    daemon = f"running, pid {now.daemon_pid}" if now.daemon_pid else "not running"
    states = ", ".join(f"{number:,} {state}" for state, number in now.sessions_by_state.items())
    net = now.bytes_saved - now.store_bytes
    lines = [] if now.enabled else [DISABLED]
    lines += [
        f"daemon     {daemon}",
        f"scans      {_runs(now.last_run_at, now.next_run_at, moment)}",
        f"retention  {_runs(now.last_retention_run_at, now.next_retention_run_at, moment)}",
        f"sessions   {states or 'none found'}",
        f"saved      {bytes_(now.bytes_saved)} in {counted(now.values_extracted, 'value')}",
        f"tokens     about {about(now.tokens_saved)} are not sent any more",
        f"store      {bytes_(now.store_bytes)} in {safe(now.store_path)}",
        f"net        {bytes_(net)} less than without brainsurgeon" if net >= 0
        else f"net        {bytes_(-net)} more than without brainsurgeon, so far",
    ]  # fmt: skip
    if so_far := saved_so_far(now.saved_so_far):
        lines.append(f"so far     {so_far}")
    if now.turns_archived:
        lines.append(f"archived   {counted(now.turns_archived, 'archive')} of finished turns")
    lines += loads(now.loads)
    lines += [
        f"run {one.id:<5} {ago(one.at, moment)}: {command(one)}, {did(one)}" for one in now.runs
    ]
    lines += [f"failed     {ago(one.at, moment)}: {of_session(one)}" for one in now.failures]
    if now.values_damaged:
        lines.append(f"damaged    {counted(now.values_damaged, 'stored value')}: see `doctor`")
    if now.leaving:
        lines.append(f"leaving    {now.leaving.message}")
    if now.requests_open:
        lines.append(
            f"waiting    {counted(now.requests_open, 'request', 'requests')} for an idle session"
        )
    lines += _some(
        f"unfinished {safe(path)}: the next scan finishes it" for path in now.interrupted
    )
    lines += _some(f"beside     {safe(path)}: {safe(why)}" for path, why in now.kept_beside.items())
    lines += _some(f"blocked    {safe(path)}: {safe(why)}" for path, why in now.blocked.items())
    reasons = sorted(now.reasons.items(), key=lambda item: (-item[1], item[0]))
    lines += _some(f"  {number} x {safe(in_local_time(reason))}" for reason, number in reasons)
    rows = [(root.path, str(root.sessions), root.protocol) for root in now.roots]
    lines += ["", table(("root", "sessions", "files are replaced by"), rows)]
    lines += _some(f"{safe(root.path)}: {safe(root.problem)}" for root in now.roots if root.problem)
    lines += databases(now.databases)
    lines += _some(
        f"{safe(path)}: nothing expires there, {safe(why)}" for path, why in now.held_back.items()
    )
    return "\n".join(lines + homes(now.homes))


def _some(lines: Iterable[str]) -> list[str]:
    listed = list(lines)
    if len(listed) <= _MOST:
        return listed
    return [*listed[:_MOST], f"  … and {len(listed) - _MOST} more, with --json"]


def _runs(last: float | None, following: float | None, now: float) -> str:
    when = "-" if last is None else f"{local(last)} ({ago(last, now)})"
    return f"last {when}, next {local(following) if following is not None else '-'}"


# Written without a library: their registries are made for programs that count in memory, and these
# figures come from the store.


_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def metrics(measured: Iterable[Metric]) -> str:
    lines = [
        "# HELP brainsurgeon_build_info The version of the program, as a label.",
        "# TYPE brainsurgeon_build_info gauge",
        f'brainsurgeon_build_info{{version="{__version__}"}} 1',
    ]
    for metric in measured:
        name = f"brainsurgeon_{metric.name}"
        lines += [f"# HELP {name} {metric.says}", f"# TYPE {name} {metric.kind}"]
        if isinstance(metric.value, dict):
            lines += [
                f'{name}{{outcome="{outcome.translate(_ESCAPED)}"}} {_number(number)}'
                for outcome, number in metric.value.items()
            ]
        else:
            lines.append(f"{name} {_number(metric.value)}")
    return "\n".join(lines) + "\n"


def metrics_json(measured: Iterable[Metric]) -> dict[str, Any]:
    samples: list[tuple[str, str | None, float]] = []
    for metric in measured:
        values = metric.value if isinstance(metric.value, dict) else {None: metric.value}
        samples += [(metric.name, label, number) for label, number in values.items()]
    return {
        "metrics": [
            {"metric": f"brainsurgeon_{name}", "label": label, "number": float(number)}
            for name, label, number in samples
        ]
    }


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
