"""The characters that the next request carries of real sessions, after archiving and extraction."""

from bench.table import Row
from building.live_size import REDUCTIONS, live_sizes
from building.world import SAMPLES

SESSIONS = {
    "pi, 1.0 MB": ("pi", "large-session.derived-v3.jsonl"),
    "OpenClaw, 0.4 MB": (
        "openclaw", "2026.7.35", "agents", "main", "sessions",
        "a1a1a1a1-0000-4000-8000-000000000001.jsonl",
    ),
}  # fmt: skip


def rows(_scratch, _options):
    """Yield live characters after each reduction, beside those of the unchanged session."""
    for name, parts in SESSIONS.items():
        sizes = live_sizes(SAMPLES.joinpath(*parts).read_bytes())
        raw, _ = sizes["raw"]
        for reduction in REDUCTIONS:
            chars, size = sizes[reduction]
            yield Row(
                f"live characters, {name}: {reduction}", chars, "ch", "as it is", raw,
                note=f"{size:,} bytes of {sizes['raw'][1]:,}",
            )  # fmt: skip
