"""Shapes of session files that people reported: each is pruned, read again, and restored.

`tests/samples/cases` holds the small ones. Others are built by the tests of their rules, such as
`formats/test_claude_code.py` (a kept output that is whole, hooks), `hosts/test_openclaw_signs.py`
(locks, registries), `operations/test_broken_databases.py`, `operations/test_troubles.py` (files of
another user).
"""

import json
import os
import shutil
import time

import pytest

from brainsurgeon.model.entries import PLACEHOLDER
from building.claude import ClaudeWorld
from building.world import LONG_AGO, SAMPLES, World

CASES = SAMPLES / "cases"
# From how many entries the defaults extract values; copies of an entry count once.
EXTRACTED = {
    "claude-code/01-hook-uuid-cycle": 5,
    "claude-code/04-snapshot-id-collision": 10,
    "claude-code/07-edit-original-null": 5,
    "claude-code/10-nul-in-output": 3,
    "claude-code/11-mcp-structured": 5,
    "claude-code/14-empty-text-block": 8,
    "claude-code/16-same-session-two-projects": 14,
    "claude-code/18-one-uuid-twice-in-file": 4,
    "claude-code/19-bridge-only": 6,
    "claude-code/20-workflow-subagents": 24,
    "claude-code/22-missing-parallel-result": 8,
    "claude-code/24-jsonb-rebuilt": 11,
    "claude-code/27-half-compaction": 11,
    "claude-code/28-microcompact": 12,
    "claude-code/44-non-object-lines": 10,
    "openclaw/03-orphan-calls": 5,
    "openclaw/05-attachment": 6,
    "openclaw/09-nul-line": 7,
    "openclaw/11-thinking-shapes": 12,
    "openclaw/14c-leaf-target-missing": 3,
    "generic/22-generic-malformed": 11,
}


def files(root):
    return {
        path.relative_to(root): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*.jsonl"))
    }


def skeleton(data):
    """Return each line's ids, calls and results; a line that is no object as it is."""
    lines = []
    for raw in data.split(b"\n"):
        try:
            entry = json.loads(raw)
        except ValueError:
            entry = raw
        if not isinstance(entry, dict):
            lines.append(raw)
            continue
        message = entry.get("message") if isinstance(entry.get("message"), dict) else {}
        content = message.get("content") if isinstance(message.get("content"), list) else []
        calls = [
            block.get("id") or block.get("tool_use_id") for block in content
            if isinstance(block, dict)
        ]  # fmt: skip
        keys = ("uuid", "parentUuid", "id", "parentId", "type")
        lines.append(([entry.get(key) for key in keys], message.get("toolCallId"), calls))
    return lines


@pytest.mark.parametrize("case", EXTRACTED)
def test_reported_shape_is_pruned_and_restored_to_the_byte(tmp_path, case):
    """A dry run writes nothing, a second scan changes nothing, ids and calls stay as they were."""
    world = ClaudeWorld(tmp_path) if case.startswith("claude") else World(tmp_path)
    place = world.root if case.startswith("claude") else world.directory
    shutil.copytree(CASES / case, place, dirs_exist_ok=True)
    for path in place.rglob("*.jsonl"):
        os.utime(path, (time.time() - LONG_AGO,) * 2)
    before = files(world.root)
    whole = b"".join(data for data, _ in before.values())
    keys = {"min_reclaim": "1%"}
    if case.startswith("generic"):
        keys["roots"] = [{"path": str(world.root), "format": "generic"}]
    try:
        dry = world.scan(dry_run=True, **keys)
        assert files(world.root) == before
        report = world.scan(**keys)
        after = files(world.root)

        assert report.files_failed == 0
        assert dry.values_extracted == report.values_extracted
        texts = (data for data, _ in after.values())
        placed = {name for text in texts for name in PLACEHOLDER.findall(text)}
        assert len(placed - set(PLACEHOLDER.findall(whole))) == EXTRACTED[case]
        assert world.scan(**keys).sessions_changed == 0
        assert files(world.root) == after
        assert {path: skeleton(data) for path, (data, _) in after.items()} == {
            path: skeleton(data) for path, (data, _) in before.items()
        }
        world.restore_all(pristine=True)
        assert files(world.root) == before
    finally:
        world.close()


def test_every_copied_case_is_tried():
    """No case lies beside the test unused."""
    assert {f"{path.parent.name}/{path.name}" for path in CASES.glob("*/*")} == set(EXTRACTED)
