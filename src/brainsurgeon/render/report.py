"""Render the report page: one HTML file that loads nothing from a network and runs no script."""

import base64
import hashlib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from html import escape
from itertools import accumulate

from brainsurgeon import __version__
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.reports import Report, SessionPage, Sum
from brainsurgeon.model.text import about as rounded
from brainsurgeon.model.text import ago, bytes_, counted, readable, short_titles
from brainsurgeon.render import estimate
from brainsurgeon.render.formatting import columned, first, local
from brainsurgeon.render.runs import database_notes

_DAY = 86_400  # seconds
_WIDTH, _HEIGHT = 1000, 300  # of the plot
_MOST = 12  # bars in a list
_TROUBLES = 6  # at the top
_LARGEST = 15  # rows in the table of the largest sessions
_NUMBERS = (  # titles of columns with numbers
    "Now", "Saved", "Next scan", "Sessions", "Files", "Size", "tokens sent", "from cache",
    "tokens paid", "of raw", "dollars", "calls", "answered", "cost", "Cost",
)  # fmt: skip
_ZEROS = frozenset({"0", "0 B", "0 %", "$0.00", "-", ""})
_BARS = "Of the largest"  # title of the column with bars
_CHOICES = (
    ("every", "all"), ("next", "changed by the next scan"), ("pruned", "pruned"),
    ("waits", "waiting"),
)  # fmt: skip
_NO_SESSIONS = '<p class="quiet">No sessions were found.</p>'


def html(text: str) -> str:
    return escape(readable(text))


def code(text: str) -> str:
    return f"<code>{html(text)}</code>"


def over_time(days: Sequence[tuple[int, int, int]], today: int) -> str:
    if not days:
        return '<p class="quiet">Nothing is extracted at present.</p>'
    first, last = days[0][0] - 1, max(today, days[-1][0]) + 1
    sizes = list(accumulate(size for _, _, size in days))
    points = [(0.0, float(_HEIGHT))]
    for (day, _, _), size in zip(days, sizes, strict=True):
        across = _WIDTH * (day - first) / (last - first)
        points += [(across, points[-1][1]), (across, _HEIGHT * (1 - 0.94 * size / max(sizes)))]
    points.append((float(_WIDTH), points[-1][1]))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    top = bytes_(max(sizes))
    values = counted(sum(number for _, number, _ in days), "value")
    rules = "".join(
        f'<line class="rule" x1="0" x2="{_WIDTH}" y1="{y}" y2="{y}" '
        'vector-effect="non-scaling-stroke"/>'
        for y in (_HEIGHT * 0.06, _HEIGHT * 0.53, _HEIGHT)
    )
    return (
        f'<figure class="plot small quiet"><div class="scale number"><span>{top}</span>'
        f'<span>0</span></div><svg role="img" aria-label="{top} in {values} extracted '
        f'since {_date(days[0][0])}" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'preserveAspectRatio="none">{rules}'
        f'<polygon class="area" points="{line} {_WIDTH},{_HEIGHT} 0,{_HEIGHT}"/>'
        f'<polyline class="edge" points="{line}" vector-effect="non-scaling-stroke"/></svg>'
        f'<div class="days"><span>{_date(first)}</span><span>{_date(today)}</span></div></figure>'
    )


def bars(sums: Sequence[Sum], unit: str, format_size: Callable[[int], str] = bytes_) -> str:
    if not sums:
        return '<p class="quiet">Nothing yet.</p>'
    top = max(group.size + group.saved for group in sums) or 1
    rows = []
    for group in sums[:_MOST]:
        rest = f", {bytes_(group.saved)} saved" if group.saved else ""
        size = format_size(group.size)
        shares = (group.size / top, "main"), (group.saved / top, "soft")
        rows.append(
            f'<li><div class="row"><span class="name">{html(group.name)}</span>'
            f'<span class="number">{size}</span></div>'
            f"{bar(shares, f'{group.name}: {size}{rest}')}"
            f'<div class="small quiet">{counted(group.number, unit)}{rest}</div></li>'
        )
    more = len(sums) - _MOST
    end = f'<p class="small quiet">and {more} more</p>' if more > 0 else ""
    return f'<ul class="bars">{"".join(rows)}</ul>{end}'


def bar(parts: Iterable[tuple[float, str]], label: str) -> str:
    drawn, at = "", 0.0
    for share, fill in parts:
        width = min(max(3.0, 1000 * share), 1000 - at)
        if share > 0 and width > 0:
            drawn += f'<rect class="{fill}" x="{at:.1f}" width="{width:.1f}" height="10"/>'
            at += width
    return (
        f'<svg class="bar" role="img" aria-label="{html(label)}" viewBox="0 0 1000 10" '
        'preserveAspectRatio="none"><rect class="track" width="1000" height="10"/>'
        f"{drawn}</svg>"
    )


def legend(*entries: tuple[str, str]) -> str:
    items = "".join(
        '<li><svg class="bar" viewBox="0 0 1 1" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect class="{fill}" width="1" height="1"/></svg>{word}</li>'
        for fill, word in entries
    )
    return f'<ul class="legend">{items}</ul>'


def _date(day: int) -> date:
    return date(1970, 1, 1) + timedelta(day)


with open(os.path.join(os.path.dirname(__file__), "report.css"), encoding="utf-8") as _handle:
    STYLE = _handle.read()

# The page may load nothing but this style.
POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)


def report(report: Report) -> str:
    sizes = (
        f'<div class="columns"><div><h3>By agent</h3>'
        f"{legend(('main', 'in its sessions now'), ('soft', 'saved'))}"
        f"{bars(report.agents, 'session')}</div>"
        f"<div><h3>Extracted, by kind</h3>{bars(report.kinds, 'value')}"
        f"<h3>Extracted, by tool</h3>{bars(report.tools, 'value')}</div></div>"
    )
    sections = (
        ("money", "Money", "", _money(report)),
        ("largest", "Largest sessions", *_largest(report)),
        *_over_time(report),
        ("sizes", "Sizes", "", sizes),
        ("waiting", "What waits", *_waiting(report)),
        ("unreached", "Other copies",
         ("Agents keep copies of values outside of their sessions. They may contain secrets. "
          "brainsurgeon never changes them."),
         _unreached(report)),
        ("sessions", "Each session", _left_out(report),
         _each_session(report)),
    )  # fmt: skip
    links = "".join(f'<li><a href="#{name}">{title}</a></li>' for name, title, _, _ in sections)
    parts = "".join(
        f'<section id="{name}" aria-labelledby="{name}-h"><h2 id="{name}-h">{title}</h2>'
        + (f'<p class="quiet">{lead}</p>' if lead else "")
        + f"{body}</section>\n"
        for name, title, lead, body in sections
    )
    content = (
        "This page quotes values: keep it as secret as the sessions."
        if report.previews
        else "This page has no content of sessions, only names of sessions, tools and files."
    )
    return f"""<!DOCTYPE html><!-- brainsurgeon status -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="color-scheme" content="light dark">
<title>brainsurgeon: content of your sessions</title>
<style>{STYLE}</style>
</head>
<body>
<header class="top">
<h1>Content of your sessions</h1>
<p class="quiet">brainsurgeon {__version__}, {html(local(report.made_at))}</p>
<nav aria-label="Parts of this page"><ul>{links}</ul></nav>
</header>
<main>
<p class="lead">{html(_outcome(report))}</p>
{_figures(report)}
{parts}
</main>
<footer class="small quiet">Made by <code>brainsurgeon status --format html</code>. This page
loads nothing and sends nothing. {content}</footer>
</body>
</html>
"""


def _over_time(report: Report) -> list[tuple[str, str, str, str]]:
    """Return the section with the chart, or nothing: one day needs no chart."""
    if len(report.days) == 1:
        return []
    lead = "The values that are extracted at present, by the day of their extraction."
    chart = over_time(report.days, int(report.made_at // _DAY))
    return [("time", "Over time", lead, chart)]


def _outcome(report: Report) -> str:
    """Return one sentence: what was achieved, and what waits."""
    now, store = report.status, report.status.store
    done = "Nothing is extracted at present"
    if store.values_extracted:
        size = sum(agent.size for agent in report.agents)
        share = 100 * store.bytes_saved / max(1, size + store.bytes_saved)
        done = (
            f"{counted(store.values_extracted, 'value is', 'values are')} extracted: the sessions"
            f" are {bytes_(store.bytes_saved)} ({share:.0f} %) smaller, and their next requests"
            f" {rounded(now.tokens.tokens_saved)} tokens shorter"
        )
    coming = _coming(report)
    waits = [f"the next scan extracts {bytes_(coming)}"] if coming else []
    waits += [f"{counted(number, 'session waits', 'sessions wait')}"] if (
        number := len(report.waiting)
    ) else []  # fmt: skip
    return f"{done}; {' and '.join(waits) or 'nothing waits'}."


def _coming(report: Report) -> int:
    """Return how many bytes the next scan extracts from the largest sessions."""
    return sum(page.next_bytes or 0 for page in report.sessions)


def _table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return an HTML table without columns of zeros.

    On a narrow screen, names in the cells replace the table's head.
    """
    every = list(rows)
    kept = [
        at for at, name in enumerate(names)
        if name not in _NUMBERS or any(row[at] not in _ZEROS for row in every)
    ]  # fmt: skip
    names = [names[at] for at in kept]
    rows = [[row[at] for at in kept] for row in every]
    head = "".join(
        f'<th scope="col"{" class=number" if name in _NUMBERS else ""}>{name}</th>'
        for name in names
    )
    body = "".join(f"<tr>{''.join(map(_cell, names, row))}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(name: str, content: str) -> str:
    if name in _NUMBERS:
        return f'<td class="number" data-is="{name.lower()}">{content}</td>'
    kind = {_BARS: ' class="wide"', "Extracted": ' data-is="extracted"'}.get(name, "")
    return f"<td{kind}>{content}</td>"


def _money(report: Report) -> str:
    found, now = report.estimate, report.status.tokens
    so_far = estimate.saved_so_far(now.saved_so_far)
    spent = estimate.total_cost(now.models) if now.models else f"unknown: {estimate.NO_USAGE}"
    parts = [f"<p>Cost so far, as recorded: {html(spent)}.</p>"]
    if now.models:
        columns = [column for column in estimate.MODELS if column[0] != "turns"]
        names, rows = columned(columns, now.models, room=math.inf)
        parts.append(_table(names, [list(map(html, row)) for row in rows]))
    parts += [f"<p>Saved so far: {html(so_far)}.</p>"] if so_far else []
    if found.sessions:
        head, *listed = estimate.bills(found)
        lead = f"The {counted(found.calls, 'call')} of the largest sessions under each policy"
        parts += [
            f"<h3>{lead}</h3>", _table(head, listed),
            f'<p class="small quiet">{estimate.ASSUMPTIONS}</p>',
        ]  # fmt: skip
    return "".join(parts)


def _figures(report: Report) -> str:
    now, store, tokens = report.status, report.status.store, report.status.tokens
    net = store.bytes_saved - store.store_size_bytes
    last = now.daemon.last_run_at
    size = sum(agent.size for agent in report.agents)
    share = 100 * store.bytes_saved / (size + store.bytes_saved) if size + store.bytes_saved else 0
    whole = estimate.total(tokens.models)
    calls = counted(whole.calls, "recorded call")
    unpriced = f", {whole.calls_unpriced:,} without a price" if whole.calls_unpriced else ""
    rows = (
        ("Cost so far",
         f"${whole.cost_dollars:,.2f}" if whole.calls and whole.cost_dollars is not None
         else "unknown", calls + unpriced),
        ("Not sent any more", f"{rounded(tokens.tokens_saved)} tokens",
         "fewer in the next requests of all sessions"),
        ("Saved in sessions", bytes_(store.bytes_saved), f"{share:.0f} % of their former size"),
        ("Next scan extracts", bytes_(_coming(report)),
         f"of the {counted(len(report.sessions), 'largest session')}"),
    )  # fmt: skip
    cells = "".join(
        f'<div><dt>{name}</dt><dd>{html(value)}<span class="note">{html(note)}</span></dd></div>'
        for name, value, note in rows
    )
    if store.values_lost:
        lost = f'{store.values_lost:,}<span class="note">placeholders without a stored value</span>'
        cells = f'<div class="warn"><dt>Cannot be restored</dt><dd>{lost}</dd></div>{cells}'
    troubles = "".join(
        f'<p class="warn">{html(trouble)}</p>'
        for trouble in first(
            [one.what for one in now.troubles if not one.harmless], _TROUBLES, "… and {} more"
        )
    )
    figures = f'<dl class="figures">{cells}</dl>'
    states = ", ".join(
        f"{number:,} {state}" for state, number in Counter(now.sessions_by_state).most_common()
    )
    scanned = "never" if last is None else ago(last, report.made_at)
    rest = (
        f"Sessions: {bytes_(size)} ({states or 'none'}). Store: {bytes_(store.store_size_bytes)},"
        f" {bytes_(abs(net))} {'less' if net >= 0 else 'more'} on disk in total. Last full scan:"
        f" {scanned}; {'the daemon runs' if now.daemon.daemon_pid else 'no daemon runs'}."
    )
    return (
        f'{troubles}<section class="flush" aria-label="Figures">{figures}</section>\n'
        f'<p class="small quiet">{html(rest)}</p>\n'
    )


def _largest(report: Report) -> tuple[str, str]:
    """Return the introduction and the content of a section, as `_waiting` does."""
    pages = [page for page in report.sessions if page.about.size_bytes][:_LARGEST]
    if not pages:
        return "", _NO_SESSIONS
    top = max(page.about.size_bytes + page.about.bytes_saved for page in pages)
    short = short_titles(page.about.session for page in report.sessions)
    names = ("Session", "Cost", "Now", "Saved", "Next scan", _BARS)
    return "The column “Next scan” shows by how much a scan would shrink the session now.", (
        legend(("main", "stays"), ("next", "the next scan extracts"), ("soft", "saved already"))
        + _table(names, [_large(page, short[page.about.session], top) for page in pages])
    )


def _large(page: SessionPage, name: str, top: int) -> Sequence[str]:
    about, coming = page.about, page.next_bytes or 0
    whole, soft = (about.size_bytes - coming) / top, about.bytes_saved / top
    parts = ((whole, "main"), (coming / top, "next"), (soft, "soft"))
    size, saved, taken = bytes_(about.size_bytes), bytes_(about.bytes_saved), bytes_(coming)
    cost = estimate.cost(estimate.total(page.models)) if page.models else "-"
    drawn = bar(parts, f"{size} now, the next scan extracts {taken}, {saved} saved")
    next_scan = "-" if page.next_bytes is None else taken
    return html(name), cost, size, saved, next_scan, drawn


def _waiting(report: Report) -> tuple[str, str]:
    waiting = [(about.state, about.reason, about.session) for about in report.waiting]
    waiting += [
        ("deferred", page.deferred, page.about.session)
        for page in report.sessions if page.deferred and page.about.state == "idle"
    ]  # fmt: skip
    short = short_titles([name for _, _, name in waiting], only_some=True)
    if not waiting:
        return "", '<p class="quiet">No session waits.</p>'
    reasons: dict[tuple[str, str], list[str]] = {}
    for state, why, name in waiting:
        reasons.setdefault((state, why), []).append(html(short[name]))
    ranked = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
    rows = []
    for (state, why), names in ranked:
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""  # noqa: PLR2004
        which = f'<span class="small">{", ".join(names[:3])}{more}</span>'
        rows.append(
            (f'<span class="state">{html(state)}</span>', html(why), f"{len(names):,}", which)
        )
    lead = "These sessions were not pruned. A later run may prune them."
    return lead, _table(("State", "Why", "Sessions", "Which"), rows)


def _unreached(report: Report) -> str:
    if not report.unreached:
        return '<p class="quiet">No copies were found below the roots.</p>'
    rows = [
        (code(place.name), f"{place.number:,}", bytes_(place.size)) for place in report.unreached
    ]
    notes = database_notes(report.status.places.databases)
    paragraphs = (f'<p class="small quiet">{html(note)}.</p>' for note in notes)
    return _table(("Place", "Files", "Size"), rows) + "".join(paragraphs)


def _left_out(report: Report) -> str:
    listed = [page.about for page in report.sessions]
    left_out = sum(agent.number for agent in report.agents) - len(listed)
    if not left_out:
        return ""
    size = sum(agent.size for agent in report.agents) - sum(one.size_bytes for one in listed)
    saved = sum(agent.saved for agent in report.agents) - sum(one.bytes_saved for one in listed)
    return (
        f"These are the {len(report.sessions):,} largest sessions. The figures above include "
        f"{counted(left_out, 'smaller session')} ({bytes_(size)}, {bytes_(saved)} saved). "
        "<code>brainsurgeon sessions</code> lists all sessions, "
        "<code>brainsurgeon sessions SESSION</code> prints the content of one."
    )


def _each_session(report: Report) -> str:
    """Return the sessions below the names of their agents, and a choice which of them to show.

    Each agent's sessions can be folded away. The style hides what is not chosen: no script runs.
    """
    if not report.sessions:
        return _NO_SESSIONS
    names = short_titles(page.about.session for page in report.sessions)
    waiting = {about.session for about in report.waiting}
    numbers = Counter({"every": len(report.sessions)})
    groups: dict[str, list[str]] = {}
    for page in report.sessions:
        about = page.about
        waits = about.session in waiting or page.deferred
        kinds = ["next"] * bool(page.next_values) + ["waits"] * bool(waits)
        kinds += ["pruned"] * bool(page.values)
        numbers.update(kinds)
        shown = _session(page, names[about.session], report.made_at, " ".join(kinds))
        groups.setdefault(page.program, []).append(shown)
    choices = "".join(
        f'<label><input type="radio" name="show" id="show-{kind}"'
        f"{' checked' * (kind == 'every')}> {text} ({numbers[kind]:,})</label> "
        for kind, text in _CHOICES
        if numbers[kind]
    )
    listed = (
        f'<details class="agent" open><summary><span class="name">{html(agent)}</span>'
        f'<span class="number quiet">{counted(len(listed), "session")}</span></summary>'
        f"<div>{''.join(listed)}</div></details>\n"
        for agent, listed in groups.items()
    )
    of_one = "".join(*groups.values()) if len(groups) == 1 else ""
    return f"<fieldset><legend>Show</legend>{choices}</fieldset>{of_one or ''.join(listed)}"


def _session(page: SessionPage, name: str, now: float, kinds: str) -> str:
    about = page.about
    age = "" if about.changed_at is None else f", changed {ago(about.changed_at, now)}"
    how = f"{about.format or 'unknown format'}, {about.state}: {about.reason}{age}"
    lines = [f'<p class="small quiet">{code(about.path)}<br>{html(how)}</p>']
    if page.deferred:
        lines.append(f'<p class="small">Extraction is deferred: {html(page.deferred)}.</p>')
    elif page.next_values:
        taken = f"{counted(page.next_values, 'value')}, {bytes_(page.next_bytes or 0)}"
        lines.append(f"<p>The next scan would extract {taken}.</p>")
    if page.filling:
        characters = bars(page.filling, "value", lambda number: counted(number, "character"))
        lines.append(f"<h3>Content by kind</h3>{characters}")
    lines.append(_values(page))
    return (
        f'<details class="session {kinds}"><summary><span class="name">{html(name)}</span>'
        f'<span class="number">{bytes_(about.size_bytes)}</span>'
        f'<span class="number quiet">{bytes_(about.bytes_saved)} saved</span></summary>'
        f"<div>{''.join(lines)}</div></details>\n"
    )


def _values(page: SessionPage) -> str:
    if not page.values:
        return '<p class="small quiet">No value is extracted.</p>'
    rows = []
    for value, preview in page.values:
        place = f'<div class="small quiet">{code(dotted(value.path))}</div>'
        begins = f"<blockquote>{html(preview)}</blockquote>" if preview else ""
        expired = ", <span class=warn>expired</span>" if value.blob_id is None else ""
        rows.append((
            code(value.entry_id), html(value.tool or value.kind) + place + begins,
            bytes_(value.size),
            f'<span class="small">{html(local(value.extracted_at))}{expired}</span>',
        ))  # fmt: skip
    end = f'<p class="small quiet">and {page.more:,} smaller values</p>' if page.more else ""
    names = ("Entry", "Value", "Size", "Extracted")
    return f"<h3>Extracted values</h3>{_table(names, rows)}{end}"
