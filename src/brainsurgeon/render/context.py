"""One session taken apart: what fills it, what was taken out, what would go next and what stays."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import dotted
from brainsurgeon.model.text import readable as safe
from brainsurgeon.render import WIDTH, bar, bytes_, columns, count, in_local_time, printable, table
from brainsurgeon.render.turns import (
    fullness,
    fullness_json,
    record_json,
    standing,
    turns,
    verdict_json,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from brainsurgeon.operations.context import Context, Filling

_MOST_ROWS = 8
# Characters of a bar: at least, where nothing has to fit, and at most.
_SHORTEST, _USUAL, _LONGEST = 8, 20, 60


def context_json(one: Context, extracted: list[dict[str, Any]]) -> dict[str, Any]:
    """Return a session taken apart as other programs read it, its values already described."""
    return {
        "session": one.session, "path": printable(one.path), "format": one.format,
        "size_bytes": one.size, "state": one.state,
        "filling": [asdict(item) for item in one.filling],
        "extracted": extracted,
        "would_extract": [
            {"entry_id": cut.entry_id, "path": dotted(cut.path), "kind": cut.kind,
             "tool": cut.tool, "chars": cut.chars, "reason": cut.reason}
            for cut in one.next
        ],
        "gain_bytes": one.gain, "pays": one.pays, "deferred": one.deferred,
        "never_sent": {"values": one.unsent[0], "chars": one.unsent[1]},
        "fullness": fullness_json(one.full),
        "would_keep": [asdict(item) for item in one.kept],
        "turns": [verdict_json(turn) for turn in one.turns],
        "archives": [record_json(archive) for archive in one.archives],
        "warnings": list(one.warnings),
    }  # fmt: skip


def _extracted(value: dict[str, Any]) -> list[str]:
    expires = f", expires {in_local_time(value['expires_at'])}" if value["expires_at"] else ""
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
    wanted = [one for one in _COLUMNS if one[1] <= wide]
    rows = [[cell(one, whole) for _, _, cell in wanted] for one in listed]
    lines = table([name for name, _, _ in wanted], rows, left=2, spare=room + 2).splitlines()
    bars = [bar(one.live_chars / largest, room) for one in listed]
    return [f"{line}  {shown}".rstrip() for line, shown in zip(lines, ["", *bars], strict=True)]


# Each column, from how wide a terminal on it is shown, and what stands in it.
_COLUMNS: tuple[tuple[str, int, Callable[[Filling, int], str]], ...] = (
    ("kind", 0, lambda one, _: one.kind),
    ("tool", 0, lambda one, _: one.tool or "-"),
    ("values", 70, lambda one, _: f"{one.values:,}"),
    ("characters", 50, lambda one, _: f"{one.chars:,}"),
    ("sent", 0, lambda one, whole: f"{100 * one.live_chars / whole:.0f} %"),
)


def context(one: Context, extracted: list[dict[str, Any]]) -> str:
    """Return a session taken apart as text; of the extracted values the largest."""
    lines = [
        f"{safe(one.session)}  {one.format}, {bytes_(one.size)}, {one.state}",
        *([fullness(one.full)] if one.full else []),
        "",
        *_filling(one.filling),
        "",
        (
            f"extracted: {count(len(one.extracted), 'value')}, "
            f"{bytes_(sum(value.size for value in one.extracted))}"
        ),
    ]
    largest = sorted(extracted, key=lambda value: -value["size_bytes"])
    lines += [line for value in largest[:_MOST_ROWS] for line in _extracted(value)]
    if len(largest) > _MOST_ROWS:
        lines.append(f"  … and {len(largest) - _MOST_ROWS} more, with --json")
    if one.archives:
        lines.append(standing(one.archives))
    values, chars = one.unsent
    if values:
        lines.append(f"never sent to a model: {count(values, 'value')}, {chars:,} characters")
    if one.deferred:
        lines.append(f"deferred: {safe(one.deferred)}")
    pays = "" if one.pays or not one.next else ", too little to be worth a rewrite"
    lines.append(
        f"the next scan would take {count(len(one.next), 'value')}, {bytes_(one.gain)}{pays}"
    )
    lines += [f"  - {safe(cut.entry_id)} {safe(dotted(cut.path))}: {safe(cut.reason)}"
              for cut in one.next[:_MOST_ROWS]]  # fmt: skip
    if len(one.next) > _MOST_ROWS:
        lines.append(f"  - … and {len(one.next) - _MOST_ROWS} more")
    lines += turns(one.turns)
    lines.append("and leave")
    lines += [
        f"  = {kept.values} {kept.kind}{' of ' + safe(kept.tool) if kept.tool else ''} "
        f"({kept.chars:,} characters): {kept.reason}"
        for kept in one.kept
    ]
    lines += [f"warning: {safe(warning)}" for warning in one.warnings]
    return "\n".join(lines)
