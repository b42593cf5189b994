"""One page about everything, as a single file that needs no network and runs no script."""

from __future__ import annotations

import base64
import hashlib
from datetime import UTC, date, datetime
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

from brainsurgeon import __version__
from brainsurgeon.model.text import readable
from brainsurgeon.operations.status import lasting
from brainsurgeon.render import bytes_, count, local
from brainsurgeon.render.runs import WHAT_STAYS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from brainsurgeon.operations.report import Report, SessionPage, Sum, Value


def said(text: str) -> str:
    """Make a text fit to stand in HTML, in an attribute, too: shown as it is, never obeyed."""
    return escape(readable(text), quote=True)


def code(text: str) -> str:
    """Return a name or a path as such."""
    return f"<code>{said(text)}</code>"


_WIDTH, _HEIGHT = 1000, 300
_SECONDS_A_DAY = 86_400
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
    """Return what each filling means."""
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
    return datetime.fromtimestamp(number * _SECONDS_A_DAY, UTC).date()


STYLE = """
:root {
  color-scheme: light dark;
  --ground: #f6f7f9; --sheet: #ffffff; --text: #1a1f29; --quiet: #535c6b; --line: #dde1e8;
  --track: #e7eaf0; --main: #2b5cc4; --soft: #b9cbf3; --next: #a85f00; --warn: #a32b1e;
  --focus: #2b5cc4;
}
@media (prefers-color-scheme: dark) {
  :root {
    --ground: #11141a; --sheet: #191e27; --text: #e8ebf1; --quiet: #a4aebd; --line: #2d3440;
    --track: #2a313d; --main: #8db0ff; --soft: #33497d; --next: #f0b35a; --warn: #ff9d8f;
    --focus: #8db0ff;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--ground); color: var(--text);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans",
    sans-serif;
}
main, .top { max-width: 66rem; margin: 0 auto; padding: 0 1rem; }
.top { padding-top: 2rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .25rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; line-height: 1.3; margin: 0 0 .75rem; }
h3 { font-size: 1rem; margin: 1.25rem 0 .5rem; }
p { margin: .25rem 0 .75rem; max-width: 44rem; }
.quiet { color: var(--quiet); }
.small { font-size: .875rem; }
.warn { color: var(--warn); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: 1rem 0 0;
  list-style: none; }
a { color: var(--main); text-underline-offset: .2em; }
a:focus-visible, summary:focus-visible, [tabindex]:focus-visible {
  outline: 3px solid var(--focus); outline-offset: 2px; border-radius: 4px;
}
section { background: var(--sheet); border: 1px solid var(--line); border-radius: 10px;
  padding: 1.25rem; margin: 1.25rem 0; }
section.flush { padding: 0; overflow: hidden; }
.figures { display: grid; grid-template-columns: repeat(3, 1fr); gap: 1px; margin: 0;
  background: var(--line); }
.figures div { background: var(--sheet); padding: 1rem 1.25rem; }
.figures dt { color: var(--quiet); font-size: .875rem; }
.figures dd { margin: 0; font-size: 1.5rem; line-height: 1.3; font-weight: 600;
  font-variant-numeric: tabular-nums; }
.figures .note { display: block; font-size: .8125rem; font-weight: 400; color: var(--quiet); }
figure { margin: 0; }
.plot { display: grid; grid-template-columns: auto 1fr; gap: .25rem .75rem; }
.plot .high { align-self: start; } .plot .low { align-self: end; }
.plot .scale { display: flex; flex-direction: column; justify-content: space-between;
  text-align: right; }
.plot .days { grid-column: 2; display: flex; justify-content: space-between; }
.plot svg { display: block; width: 100%; height: 11rem; }
.area { fill: var(--soft); } .edge { fill: none; stroke: var(--main); stroke-width: 2; }
.rule { stroke: var(--line); stroke-width: 1; }
.bar { display: block; width: 100%; height: .625rem; border-radius: 3px; }
.bar .track { fill: var(--track); } .bar .main { fill: var(--main); }
.bar .soft { fill: var(--soft); } .bar .next { fill: var(--next); }
.legend { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; margin: 0 0 .75rem; padding: 0;
  list-style: none; font-size: .875rem; color: var(--quiet); }
.legend .bar { display: inline-block; width: .75rem; height: .75rem; margin-right: .4rem;
  border-radius: 2px; vertical-align: -.05rem; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 1.25rem 2.5rem; }
.columns h3:first-child { margin-top: 0; }
ul.bars { list-style: none; margin: 0; padding: 0; }
ul.bars li { margin: 0 0 .75rem; }
ul.bars .row { display: flex; justify-content: space-between; gap: 1rem; }
ul.bars .name { overflow-wrap: anywhere; }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
table { width: 100%; border-collapse: collapse; font-size: .9375rem; }
th { text-align: left; font-weight: 600; color: var(--quiet); font-size: .8125rem; }
th, td { padding: .5rem .75rem .5rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child td { border-bottom: 0; }
td { overflow-wrap: anywhere; }
td.number, th.number { text-align: right; }
td.wide { width: 22%; padding-top: .9rem; }
code { font: .875em/1.4 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace;
  overflow-wrap: anywhere; }
details { border-bottom: 1px solid var(--line); }
details:last-of-type { border-bottom: 0; }
summary { cursor: pointer; padding: .6rem 0; display: flex; flex-wrap: wrap; gap: 0 1rem;
  align-items: baseline; list-style: none; }
summary::-webkit-details-marker { display: none; }
summary::before { content: "+"; color: var(--quiet); width: .75rem; }
details[open] > summary::before { content: "\\2212"; }
summary .name { flex: 1 1 12rem; font-weight: 600; overflow-wrap: anywhere; }
details > div { padding: 0 0 1rem 1.75rem; }
blockquote { margin: .25rem 0 0; padding-left: .75rem; border-left: 3px solid var(--line);
  color: var(--quiet); overflow-wrap: anywhere; }
footer { max-width: 66rem; margin: 0 auto; padding: 0 1rem 3rem; }
@media (max-width: 40rem) {
  section { padding: 1rem; border-radius: 8px; }
  section.flush { padding: 0; }
  .figures { grid-template-columns: 1fr 1fr; }
  .figures div { padding: .75rem 1rem; } .figures dd { font-size: 1.25rem; }
  table, tbody, tr, td { display: block; width: 100%; }
  thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  tbody tr { padding: .6rem 0; border-bottom: 1px solid var(--line); }
  tbody tr:last-child { border-bottom: 0; }
  td, td.number { border: 0; padding: .1rem 0; text-align: left; }
  td.number { display: inline-block; width: auto; margin-right: 1rem; }
  td.wide { width: 100%; padding: .35rem 0 0; }
  td[data-is]::before { content: attr(data-is) " "; color: var(--quiet); font-size: .8125rem; }
  summary .name { flex-basis: calc(100% - 2rem); }
  summary .name + .number { margin-left: 1.75rem; }
  details > div { padding-left: 0; }
}
@media print {
  body { background: #fff; } nav { display: none; }
  section { break-inside: avoid; border-color: #ccc; }
}
@media (forced-colors: active) { .bar rect, .area { forced-color-adjust: none; } }
"""

# What a browser may do with the page: use this very style, and nothing else.
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)


_LARGEST = 15
_DAY = 86_400
_SECTIONS = (
    ("time", "Over time"), ("sizes", "Sizes"), ("largest", "Largest sessions"),
    ("waiting", "What waits"), ("unreached", "Not reached"), ("sessions", "Each session"),
)  # fmt: skip


def report(one: Report) -> str:
    """Write the page."""
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title in _SECTIONS)
    parts = (_time, _sizes, _largest, _waiting, _unreached, _sessions)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>brainsurgeon: what your sessions hold</title>
<style>{STYLE}</style>
</head>
<body>
<header class="top">
<h1>What your sessions hold</h1>
<p class="quiet">brainsurgeon {__version__}, {said(local(one.made_at))}</p>
<nav aria-label="Parts of this page"><ul>{links}</ul></nav>
</header>
<main>
{_figures(one)}
{"".join(part(one) for part in parts)}
</main>
<footer class="small quiet">Made by <code>brainsurgeon report</code>. Nothing is loaded from
anywhere and nothing is sent. {_on_content(one)}</footer>
</body>
</html>
"""


def _on_content(one: Report) -> str:
    if one.previews:
        return "It shows how values begin: it is as secret as the sessions."
    return "No content of a session stands here, but names of sessions, tools and files do."


def _section(name: str, lead: str, body: str) -> str:
    title = dict(_SECTIONS)[name]
    told = f'<p class="quiet">{lead}</p>' if lead else ""
    return f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{title}</h2>{told}{body}</section>\n'  # noqa: E501


def _figures(one: Report) -> str:
    now = one.status
    net = now.bytes_saved - now.store_bytes
    size = sum(agent.size for agent in one.agents)
    share = 100 * now.bytes_saved / (size + now.bytes_saved) if size + now.bytes_saved else 0
    when = "never" if now.last_run_at is None else lasting(max(0.0, one.made_at - now.last_run_at))
    ago = "" if now.last_run_at is None else " ago"
    coming = sum(page.next_bytes or 0 for page in one.sessions)
    rows = (
        ("Saved in sessions", bytes_(now.bytes_saved), f"{share:.0f} % of what they held"),
        ("Sessions now", bytes_(size), _states(one)),
        ("Next scan takes", bytes_(coming), f"of the {_apart(one)} largest sessions"),
        ("Store", bytes_(now.store_bytes), _net(net)),
        ("Values held", f"{now.values_extracted:,}", "each comes back byte for byte"),
        ("Last run", f"{when}{ago}", "the daemon runs" if now.daemon_pid else "no daemon runs"),
    )
    cells = "".join(
        f'<div><dt>{name}</dt><dd>{said(value)}<span class="note">{said(note)}</span></dd></div>'
        for name, value, note in rows
    )
    off = "" if now.enabled else '<p class="warn">Nothing is extracted: enabled = false.</p>'
    figures = f'<dl class="figures">{cells}</dl>'
    return f'{off}<section class="flush" aria-label="Figures">{figures}</section>\n'


def _apart(one: Report) -> int:
    return sum(page.next_bytes is not None for page in one.sessions)


def _net(net: int) -> str:
    return f"{bytes_(net)} less on disk in all" if net >= 0 else f"{bytes_(-net)} more in all"


def _states(one: Report) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in one.states) or "none"


def _time(one: Report) -> str:
    return _section(
        "time", "What stands outside the sessions today, by the day on which it was taken out.",
        over_time(one.days, int(one.made_at // _DAY)),
    )  # fmt: skip


def _sizes(one: Report) -> str:
    return _section("sizes", "", (
        '<div class="columns"><div><h3>By agent</h3>'
        + legend(("main", "in its sessions now"), ("soft", "saved"))
        + bars(one.agents, "session")
        + "</div><div><h3>Extracted, by kind</h3>"
        + bars(one.kinds, "value")
        + "<h3>Extracted, by tool</h3>"
        + bars(one.tools, "value")
        + "</div></div>"
    ))  # fmt: skip


def _largest(one: Report) -> str:
    pages = [page for page in one.sessions if page.about.size][:_LARGEST]
    if not pages:
        return _section("largest", "", '<p class="quiet">No sessions were found.</p>')
    top = max(page.about.size + page.about.saved for page in pages)
    rows = "".join(_large(page, top) for page in pages)
    body = (
        legend(("main", "stays"), ("next", "the next scan takes"), ("soft", "saved already"))
        + '<table><thead><tr><th scope="col">Session</th><th scope="col" class="number">Now</th>'
        '<th scope="col" class="number">Saved</th><th scope="col" class="number">Next scan</th>'
        f'<th scope="col">Of the largest</th></tr></thead><tbody>{rows}</tbody></table>'
    )
    return _section(
        "largest", "What the next scan would take is told by reading each of them.", body
    )


def _large(page: SessionPage, top: int) -> str:
    about, coming = page.about, page.next_bytes or 0
    parts = (
        ((about.size - coming) / top, "main"), (coming / top, "next"), (about.saved / top, "soft"),
    )  # fmt: skip
    label = f"{bytes_(about.size)} now, {bytes_(coming)} of it next, {bytes_(about.saved)} saved"
    return (
        f"<tr><td>{said(about.session)}</td>"
        f'<td class="number" data-is="now">{bytes_(about.size)}</td>'
        f'<td class="number" data-is="saved">{bytes_(about.saved)}</td>'
        f'<td class="number" data-is="next scan">{_coming(page)}</td>'
        f'<td class="wide">{bar(parts, label)}</td></tr>'
    )


def _coming(page: SessionPage) -> str:
    return "-" if page.next_bytes is None else bytes_(page.next_bytes)


def _waiting(one: Report) -> str:
    reasons: dict[tuple[str, str], list[str]] = {}
    for about in one.waiting:
        reasons.setdefault((about.state, about.reason), []).append(about.session)
    for page in one.sessions:
        if page.untold and page.about.state == "idle":
            reasons.setdefault(("deferred", page.untold), []).append(page.about.session)
    if not reasons:
        return _section("waiting", "", '<p class="quiet">Nothing waits: all are idle.</p>')
    ranked = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = "".join(
        f'<tr><td>{said(state)}</td><td>{said(why)}</td><td class="number" '
        f'data-is="sessions">{len(names):,}</td><td class="small">{_some(names)}</td></tr>'
        for (state, why), names in ranked
    )
    head = (
        '<tr><th scope="col">State</th><th scope="col">Why</th>'
        '<th scope="col" class="number">Sessions</th><th scope="col">Which</th></tr>'
    )
    return _section(
        "waiting", "These are left as they are, and tried again by every run.",
        f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>",
    )  # fmt: skip


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004
    return ", ".join(said(name) for name in names[:3]) + more


def _unreached(one: Report) -> str:
    rows = "".join(
        f'<tr><td>{code(place.name)}</td><td class="number" data-is="files">{place.number:,}</td>'
        f'<td class="number" data-is="size">{bytes_(place.size)}</td></tr>'
        for place in one.unreached
    )
    lead = (
        "Agents keep copies of values beside their sessions. No pruning reaches these; what is "
        "secret there stays there."
    )
    if not rows:
        return _section("unreached", lead, '<p class="quiet">None were found below the roots.</p>')
    head = (
        '<tr><th scope="col">Place</th><th scope="col" class="number">Files</th>'
        '<th scope="col" class="number">Size</th></tr>'
    )
    note = f'<p class="small quiet">{said(WHAT_STAYS)}.</p>' if one.status.databases else ""
    table = f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>"
    return _section("unreached", lead, table + note)


def _sessions(one: Report) -> str:
    body = "".join(_session(page, one.made_at) for page in one.sessions)
    return _section(
        "sessions", _left_out(one), body or '<p class="quiet">No sessions were found.</p>'
    )


def _left_out(one: Report) -> str:
    """Return which sessions are too many to be here, and how to see them."""
    rest = one.smaller
    if not rest.number:
        return ""
    return (
        f"These are the {len(one.sessions):,} largest. {count(rest.number, 'smaller session')} "
        f"({bytes_(rest.size)}, {bytes_(rest.saved)} saved) would make the page too long: "
        "<code>brainsurgeon sessions</code> lists all, <code>brainsurgeon context SESSION</code> "
        "shows what is in one. All figures above count them."
    )


def _session(page: SessionPage, now: float) -> str:
    about = page.about
    changed = about.changed_at
    age = "" if changed is None else f", changed {lasting(max(0.0, now - changed))} ago"
    how = f"{about.format or 'of no known format'}, {about.state}: {about.reason}{age}"
    lines = [f'<p class="small quiet">{code(about.path)}<br>{said(how)}</p>']
    if page.untold:
        lines.append(f'<p class="small">What the next scan would take: {said(page.untold)}.</p>')
    elif page.next_values:
        taken = f"{count(page.next_values, 'value')}, {bytes_(page.next_bytes or 0)}"
        lines.append(f"<p>The next scan would take {taken}.</p>")
    if page.filling:
        lines.append("<h3>What fills it</h3>" + bars(page.filling, "value", _characters))
    lines.append(_values(page.values, page.more))
    return (
        f'<details><summary><span class="name">{said(about.session)}</span>'
        f'<span class="number">{bytes_(about.size)}</span>'
        f'<span class="number quiet">{bytes_(about.saved)} saved</span></summary>'
        f"<div>{''.join(lines)}</div></details>\n"
    )


def _characters(number: int) -> str:
    return count(number, "character")


def _values(values: Iterable[Value], more: int) -> str:
    rows = "".join(
        f"<tr><td>{code(one.entry_id)}</td><td>{said(one.tool or one.kind)}"
        f'<div class="small quiet">{code(one.path)}</div>{_preview(one)}</td>'
        f'<td class="number" data-is="size">{bytes_(one.size)}</td>'
        f'<td class="small" data-is="taken">{said(local(one.extracted_at))}'
        f"{', <span class=warn>expired</span>' if one.expired else ''}</td></tr>"
        for one in values
    )
    if not rows:
        return '<p class="small quiet">Nothing of it is extracted.</p>'
    end = f'<p class="small quiet">and {more:,} smaller ones</p>' if more else ""
    head = (
        '<tr><th scope="col">Entry</th><th scope="col">Value</th>'
        '<th scope="col" class="number">Size</th><th scope="col">Taken</th></tr>'
    )
    return f"<h3>Extracted</h3><table><thead>{head}</thead><tbody>{rows}</tbody></table>{end}"


def _preview(one: Value) -> str:
    return f"<blockquote>{said(one.preview)}</blockquote>" if one.preview else ""
