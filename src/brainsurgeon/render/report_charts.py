"""Charts of the page as inline SVG; words stand beside them in HTML, where they stay readable."""

from __future__ import annotations

from datetime import UTC, date, datetime
from itertools import accumulate
from typing import TYPE_CHECKING

from brainsurgeon.render import bytes_, count
from brainsurgeon.render.report_words import said

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from brainsurgeon.operations.report import Sum

_WIDTH, _HEIGHT = 1000, 300
_DAY = 86_400
_MOST = 12


def over_time(days: Sequence[tuple[int, int, int]], today: int) -> str:
    """Draw how what stands extracted grew, day by day, until today."""
    if not days:
        return '<p class="quiet">Nothing stands extracted yet.</p>'
    first, last = days[0][0] - 1, max(today, days[-1][0]) + 1  # a day is as wide as its hours
    sizes = list(accumulate(size for _, _, size in days))
    span, top = last - first, max(sizes)
    points = [(0.0, float(_HEIGHT))]
    for (day, _, _), size in zip(days, sizes, strict=True):
        across = _WIDTH * (day - first) / span
        points += [(across, points[-1][1]), (across, _HEIGHT * (1 - 0.94 * size / top))]
    points.append((float(_WIDTH), points[-1][1]))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    values = count(sum(number for _, number, _ in days), "value")
    label = f"{bytes_(top)} in {values} taken out of sessions since {_day(days[0][0])}"
    rules = "".join(
        f'<line class="rule" x1="0" x2="{_WIDTH}" y1="{y}" y2="{y}" '
        'vector-effect="non-scaling-stroke"/>'
        for y in (_HEIGHT * 0.06, _HEIGHT * 0.53, _HEIGHT)
    )
    return (
        f'<figure class="plot small quiet"><div class="scale number"><span>{bytes_(top)}</span>'
        f"<span>0</span></div>"
        f'<svg role="img" aria-label="{said(label)}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none">{rules}'
        f'<polygon class="area" points="{line} {_WIDTH},{_HEIGHT} 0,{_HEIGHT}"/>'
        f'<polyline class="edge" points="{line}" vector-effect="non-scaling-stroke"/></svg>'
        f'<div class="days"><span>{_day(first)}</span><span>{_day(today)}</span></div></figure>'
    )


def bars(
    sums: Sequence[Sum], what: str, written: Callable[[int], str] = bytes_
) -> str:  # fmt: skip
    """Draw a bar for each of some sums, the largest first; what is saved comes behind the size."""
    if not sums:
        return '<p class="quiet">Nothing yet.</p>'
    top = max(one.size + one.saved for one in sums) or 1
    rows = []
    for one in sums[:_MOST]:
        rest = f", {bytes_(one.saved)} saved" if one.saved else ""
        told = f"{written(one.size)}{rest}"
        rows.append(
            f'<li><div class="row"><span class="name">{said(one.name)}</span>'
            f'<span class="number">{written(one.size)}</span></div>'
            f"{bar(((one.size / top, 'main'), (one.saved / top, 'soft')), f'{one.name}: {told}')}"
            f'<div class="small quiet">{count(one.number, what)}{rest}</div></li>'
        )
    more = len(sums) - _MOST
    end = f'<p class="small quiet">and {more} more</p>' if more > 0 else ""
    return f'<ul class="bars">{"".join(rows)}</ul>{end}'


def bar(parts: Sequence[tuple[float, str]], label: str) -> str:
    """Draw one bar of several parts, each a share of its whole width and how it is filled."""
    drawn, at = ['<rect class="track" width="1000" height="10"/>'], 0.0
    for share, fill in parts:
        width = max(3.0, 1000 * share) if share > 0 else 0.0
        width = min(width, 1000 - at)
        if width > 0:
            drawn.append(
                f'<rect class="{fill}" x="{at:.1f}" width="{width:.1f}" height="10"/>'
            )  # fmt: skip
        at += width
    return (
        f'<svg class="bar" role="img" aria-label="{said(label)}" viewBox="0 0 1000 10" '
        f'preserveAspectRatio="none">{"".join(drawn)}</svg>'
    )


def legend(*entries: tuple[str, str]) -> str:
    """Say what each filling means."""
    return (
        '<ul class="legend">'
        + "".join(
            f'<li><svg class="bar" viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">'
            f'<rect class="{fill}" width="1" height="1"/></svg>{said(word)}</li>'
            for fill, word in entries
        )
        + "</ul>"
    )


def _day(number: int) -> date:
    return datetime.fromtimestamp(number * _DAY, UTC).date()
