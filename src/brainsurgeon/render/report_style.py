"""How the page looks: light and dark, from 320 pixels on, on paper, and without a pointer."""

from __future__ import annotations

import base64
import hashlib

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

POLICY = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()}'"
)
"""What a browser may do with the page: use this very style, and nothing else."""
