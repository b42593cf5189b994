"""The table of savings by archives and extractions in deploy/docs/configuration.md."""

from building.live_size import REDUCTIONS, live_sizes
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


def test_savings_table_holds_the_measured_figures():
    """Each session has its row, and both ways together leave the fewest characters to send."""
    rows = []
    for name, parts in SESSIONS.items():
        measured = live_sizes(SAMPLES.joinpath(*parts).read_bytes())
        raw, *ways = (measured[way][0] for way in ("raw", *REDUCTIONS))
        assert ways[-1] <= min(ways) <= raw
        rows.append(f"| {' | '.join([name, *(f'{chars:,}' for chars, _ in measured.values())])} |")

    assert "\n".join(rows) in PAGE, "\n".join(rows)
