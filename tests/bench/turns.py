"""What the next request carries of real sessions once turns are archived and values leave."""

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


def rows(_scratch, _wanted):
    """Give live characters after each way, beside those of the session as it is."""
    for name, parts in SESSIONS.items():
        found = live_sizes(SAMPLES.joinpath(*parts).read_bytes())
        raw, _ = found["raw"]
        for way in REDUCTIONS:
            chars, size = found[way]
            yield Row(
                f"live characters, {name}: {way}", chars, "ch", "as it is", raw,
                note=f"{size:,} bytes of {found['raw'][1]:,}",
            )  # fmt: skip
