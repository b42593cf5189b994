"""What a model is sent of a session, before and after turns are archived and values leave."""

import tempfile
from pathlib import Path

from brainsurgeon.formats import FORMATS
from building.format_reading import entries, survey
from building.world import World

FORM = FORMATS["openclaw"]
# What is done to a session: values leave, turns are archived, or both in one run.
REDUCTIONS = {
    "scan": {},
    "archive": {"archive": {"enabled": True}, "trigger_types": []},
    "both": {"archive": {"enabled": True}},
}


def live_chars(data):
    """Count the characters that the next request carries of a session of OpenClaw or pi."""
    look = survey(FORM, data)
    return sum(
        part.chars
        for offset, _, _, entry in entries(data) if not look.dead(offset)
        for part in FORM.parts(entry, look, offset) if not part.dead
    )  # fmt: skip


def live_sizes(data):
    """Give live characters and bytes of a session as it is, and after each way of leaning it."""
    found = {"raw": (live_chars(data), len(data))}
    for way, keys in REDUCTIONS.items():
        with tempfile.TemporaryDirectory() as place:
            world = World(Path(place))
            path = world.put("11111111-0000-4000-8000-000000000001.jsonl", data)
            world.scan(**keys)
            world.close()
            after = path.read_bytes()
        found[way] = (live_chars(after), len(after))
    return found
