"""The context of a session: what fills it, what is extracted, what would go next, what stays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from brainsurgeon.model.entries import dotted
from brainsurgeon.model.text import counted
from brainsurgeon.model.text import readable as safe
from brainsurgeon.render import (
    WIDTH,
    Column,
    bar,
    bytes_,
    columned,
    columns,
    in_local_time,
    printable,
    table,
)
from brainsurgeon.render.runs import removals_json
from brainsurgeon.render.turns import (
    fullness,
    fullness_json,
    record_json,
    standing,
    turns,
    verdict_json,
)

if TYPE_CHECKING:
    from brainsurgeon.model.reports import Context, Filling

_MOST_ROWS = 8
# Least, usual and greatest number of characters of a bar; the usual one if the width is unknown.
_SHORTEST, _USUAL, _LONGEST = 8, 20, 60


def context_json(context: Context, extracted: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "session": context.session, "path": printable(context.path), "format": context.format,
        "size_bytes": context.size, "state": context.state,
        "filling": to_builtins(context.filling),
        "extracted": extracted,
        "would_extract": removals_json(context.next),
        "gain_bytes": context.gain, "pays": context.pays, "deferred": context.deferred,
        "never_sent": {"values": context.unsent[0], "chars": context.unsent[1]},
        "fullness": fullness_json(context.full),
        "would_keep": to_builtins(context.kept),
        "turns": [verdict_json(turn) for turn in context.turns],
        "archives": [record_json(archive) for archive in context.archives],
        "warnings": list(context.warnings),
    }  # fmt: skip


def _extracted(value: dict[str, Any]) -> list[str]:
    expires = f", expires {in_local_time(value['expires_at'])[:10]}" if value["expires_at"] else ""
    gone = ", expired" if value["expired"] else ""
    place = f"{value['tool'] or value['kind']}, {bytes_(value['size_bytes'])}"
    lines = [f"  # {safe(value['entry_id'])} {safe(value['path'])}: {safe(place)}{expires}{gone}"]
    if value.get("preview"):
        lines.append(f"      {safe(value['preview'])[: WIDTH - 6]}")
    return lines


def _filling(listed: Sequence[Filling]) -> list[str]:
    """Return what fills a session as a table, with each share of what is sent as a bar.

    On a narrow terminal the columns that matter least are left out.
    """
    whole = max(1, sum(one.live_chars for one in listed))
    wide = columns()
    room = _USUAL if wide == math.inf else max(_SHORTEST, min(_LONGEST, int(wide) // 4))
    largest = max((one.live_chars for one in listed), default=0) or 1
    lines = table(*columned(_COLUMNS, wide, listed, whole), left=2, spare=room + 2).splitlines()
    bars = [bar(one.live_chars / largest, room) for one in listed]
    return [f"{line}  {shown}".rstrip() for line, shown in zip(lines, ["", *bars], strict=True)]


_COLUMNS: tuple[Column, ...] = (
    ("kind", 0, lambda one, _: one.kind),
    ("tool", 0, lambda one, _: one.tool or "-"),
    ("values", 70, lambda one, _: f"{one.values:,}"),
    ("characters", 50, lambda one, _: f"{one.chars:,}"),
    ("sent", 0, lambda one, whole: f"{100 * one.live_chars / whole:.0f} %"),
)


def context(context: Context, extracted: list[dict[str, Any]]) -> str:
    lines = [
        f"{safe(context.session)}  {context.format}, {bytes_(context.size)}, {context.state}",
        *([fullness(context.full)] if context.full else []),
        "",
        *_filling(context.filling),
        "",
        (
            f"extracted: {counted(len(context.extracted), 'value')}, "
            f"{bytes_(sum(value.size for value in context.extracted))}"
        ),
    ]
    largest = sorted(extracted, key=lambda value: -value["size_bytes"])
    lines += [line for value in largest[:_MOST_ROWS] for line in _extracted(value)]
    if len(largest) > _MOST_ROWS:
        lines.append(f"  … and {len(largest) - _MOST_ROWS} more, with --json")
    if context.archives:
        lines.append(standing(context.archives))
    unsent, chars = context.unsent
    if unsent:
        lines.append(f"never sent to a model: {counted(unsent, 'value')}, {chars:,} characters")
    if context.deferred:
        lines.append(f"deferred: {safe(context.deferred)}")
    pays = "" if context.pays or not context.next else ", too little to be worth a rewrite"
    values = counted(len(context.next), "value")
    lines.append(f"the next scan would take {values}, {bytes_(context.gain)}{pays}")
    lines += [f"  - {safe(removal.entry_id)} {safe(dotted(removal.path))}: {safe(removal.reason)}"
              for removal in context.next[:_MOST_ROWS]]  # fmt: skip
    if len(context.next) > _MOST_ROWS:
        lines.append(f"  - … and {len(context.next) - _MOST_ROWS} more")
    lines += turns(context.turns)
    lines.append("and leave")
    lines += [
        f"  = {kept.values} {kept.kind}{' of ' + safe(kept.tool) if kept.tool else ''} "
        f"({kept.chars:,} characters): {kept.reason}"
        for kept in context.kept
    ]
    lines += [f"warning: {safe(warning)}" for warning in context.warnings]
    return "\n".join(lines)
