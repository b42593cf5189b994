"""What archiving finished turns saves of real sessions, beside what cutting values saves."""

from building.live import WAYS, figures
from building.world import SAMPLES, TOP

PAGE = (TOP / "deploy" / "docs" / "configuration.md").read_text()
SESSIONS = {
    "pi, 88 turns": ("pi", "large-session.derived-v3.jsonl"),
    **{
        f"OpenClaw {version}, {turns} turns": (
            "openclaw", version, "agents", agent, "sessions",
            f"{name}-0000-4000-8000-{number:012}.jsonl",
        )
        for version, agent, name, number, turns in (
            ("2026.2.19", "main", "c3c3c3c3", 4, 4),
            ("2026.7.35", "main", "a1a1a1a1", 1, 5),
            ("2026.7.35", "main", "a1a1a1a1", 2, 3),
            ("2026.7.35", "thinker", "b2b2b2b2", 3, 4),
        )
    },
}  # fmt: skip


def row(name, found):
    """Return the row of the table: the characters of a request, raw and after each way."""
    cells = [f"{chars:,}" for chars, _ in found.values()]
    return f"| {' | '.join([name, *cells])} |"


def test_the_table_in_the_reference_is_what_archives_save():
    """Each session has its row, with today's figures; both together leave least to be sent."""
    rows = []
    for name, parts in SESSIONS.items():
        found = figures(SAMPLES.joinpath(*parts).read_bytes())
        raw, *ways = (found[way][0] for way in ("raw", *WAYS))
        assert ways[-1] <= min(ways) <= raw
        rows.append(row(name, found))

    assert "\n".join(rows) in PAGE, "\n".join(rows)
