"""Logs that are only described, through the whole program: scan, evidence, restore, undo."""

import pytest

from building.world import SAMPLES

LOGS = sorted((SAMPLES / "described").iterdir())
MIXED = {"keep_recent": 0, "min_value_length": 300}


@pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)
def test_a_described_log_is_pruned_and_restored_to_the_byte(world, log):
    """A second scan finds nothing; each value comes back alone, and all of them to the byte."""
    path = world.put("log.jsonl", log.read_bytes())
    before, times = path.read_bytes(), path.stat().st_mtime_ns

    first = world.scan(**MIXED)
    pruned = path.read_bytes()
    assert first.sessions_changed == 1
    assert pruned.count(b"[[extracted-") >= 3
    assert len(pruned) < len(before)
    assert world.scan(**MIXED).sessions_changed == 0
    assert path.read_bytes() == pruned

    world.restore_all(pristine=True)
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == times
