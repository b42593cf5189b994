"""The table of savings for sample sessions of Claude Code on its page."""

import time

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.config import Settings
from brainsurgeon.model.entries import placeholder_named
from brainsurgeon.model.plans import gain
from building.format_reading import plan, snapshot
from building.world import SAMPLES, TOP

FORM = FORMATS["claude-code"]
SESSIONS = sorted((SAMPLES / "claude-code").rglob("*.jsonl"))
PAGE = (TOP / "deploy" / "claude-code" / "README.md").read_text()
LIVE = "seven written by 2.1.330"


def measured(path):
    """Return a session's size, its sizes without live and without all values, and chars sent."""
    data, rules = path.read_bytes(), Settings(state_dir="/nowhere").decision_rules()
    size, session = len(data), snapshot(FORM, data, now=time.time())
    dead, sent = set(), 0
    for index, entry in enumerate(session.transcript.entries):
        for part in session.transcript.values(index):
            if part.dead or index in session.transcript.chain.dead:
                dead.add((entry.ident, part.path))
            else:
                sent += part.chars
    result = plan(session, rules)
    live = [removal for removal in result.extracted if (removal.entry_id, removal.path) not in dead]
    spared = sum(removal.chars - len(placeholder_named(removal.name)) for removal in live)
    return (
        size,
        size - gain(live),
        size - result.gain,
        sent,
        sent - spared,
    )


def row(name, before, live, whole, sent, after):
    assert whole <= live <= before
    assert after <= sent
    less, share = f"{100 * (1 - whole / before):.0f} %", f"{100 * sent / before:.0f} %"
    cells = (name, f"{before:,}", f"{live:,}", f"{whole:,} ({less} less)", share)
    return f"| {' | '.join(cells)} |"


def test_savings_table_is_up_to_date():
    """Each sample has a row with today's figures; those of 2.1.330 share one."""
    measures = {path: measured(path) for path in SESSIONS}
    written = [measures_of for path, measures_of in measures.items() if "projects" in path.parts]
    rows = [
        row(f"`{path.stem}`", *measures_of)
        for path, measures_of in measures.items() if "projects" not in path.parts
    ]  # fmt: skip
    rows.append(row(LIVE, *map(sum, zip(*written, strict=True))))

    assert len(written) == 7
    assert "\n".join(rows) in PAGE, "\n".join(rows)


@pytest.mark.parametrize(("column", "profile"), [(2, None), (3, "lean")])
def test_file_sizes_in_the_comparison_are_up_to_date(column, profile):
    """The comparison with another program has each session's size before and after a scan."""
    rows = [line.split(" | ") for line in PAGE.splitlines() if line.count(" / ") == 4]
    compared = [row for row in rows if row[0].startswith("| `")]
    sizes = {}
    for cells in compared:
        first, _, second = cells[0].strip("| `").partition("-")
        [path] = [path for path in SESSIONS if path.match(f"{first}-{second}*.jsonl")]
        rules = Settings(state_dir="/nowhere").under(profile).decision_rules()
        data = path.read_bytes()
        after = len(data) - plan(snapshot(FORM, data, now=time.time()), rules).gain
        sizes[cells[0]] = f"{len(data):,}", f"{after:,}"

    assert len(sizes) == 7
    assert sizes == {
        cells[0]: tuple(cells[index].partition(" / ")[0] for index in (1, column))
        for cells in compared
    }
