"""One page about everything, as a single file that needs no network and runs no script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon import __version__
from brainsurgeon.operations.check import lasting
from brainsurgeon.render import bytes_, count, local
from brainsurgeon.render.passes import WHAT_STAYS
from brainsurgeon.render.report_charts import bar, bars, legend, over_time
from brainsurgeon.render.report_style import POLICY, STYLE
from brainsurgeon.render.report_words import code, said

if TYPE_CHECKING:
    from collections.abc import Iterable

    from brainsurgeon.operations.report import Report, SessionPage, Value

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
        ("Last pass", f"{when}{ago}", "the daemon runs" if now.daemon_pid else "no daemon runs"),
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
        if page.untold and page.about.state == "settled":
            reasons.setdefault(("deferred", page.untold), []).append(page.about.session)
    if not reasons:
        return _section("waiting", "", '<p class="quiet">Nothing waits: all are settled.</p>')
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
        "waiting", "These are left as they are, and tried again by every pass.",
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
    """Say which sessions are too many to be here, and how to see them."""
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
