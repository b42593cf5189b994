"""The characters of a session that a model is sent, before and after extraction and archiving."""

import tempfile
from pathlib import Path

from brainsurgeon.agents import FORMATS
from building.format_reading import entries, parts_in, survey
from building.world import World

FORM = FORMATS["openclaw"]
# Extraction, archiving, or both in one run.
REDUCTIONS = {
    "scan": {},
    "archive": {"archive": {"enabled": True}, "trigger_types": []},
    "both": {"archive": {"enabled": True}},
}


def live_chars(data):
    """Count the characters that the next request carries of an OpenClaw or pi session."""
    surveyed = survey(FORM, data)
    return sum(
        part.chars
        for offset, _, _, entry in entries(data) if not surveyed.dead(offset)
        for part in parts_in(FORM, entry, surveyed, offset) if not part.dead
    )  # fmt: skip


def live_sizes(data):
    """Return live characters and bytes of a session, as it is and after each reduction."""
    sizes = {"raw": (live_chars(data), len(data))}
    for way, keys in REDUCTIONS.items():
        with tempfile.TemporaryDirectory() as place:
            world = World(Path(place))
            path = world.put("11111111-0000-4000-8000-000000000001.jsonl", data)
            world.scan(**keys)
            world.close()
            after = path.read_bytes()
        sizes[way] = (live_chars(after), len(after))
    return sizes
