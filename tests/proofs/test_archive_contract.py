"""Archiving of every sample: lines keep their place and parts, and everything can be undone."""

import json
import re

import pytest

from building.model_requests import dicts_in
from building.world import SAMPLES, copy_tree

ARCHIVES = {
    "archive": {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0},
    "keep_recent": 0,
}
VARIANTS = {"archives alone": {"trigger_types": [], **ARCHIVES}, "with extractions": ARCHIVES}
KINDS = ("openclaw", "pi", "claude-code", "generic", "described", "traps")
LINKS = {"parentId", "parentUuid"}
FIELDS = re.compile(rb',"_(redacted":true|restored":"[-0-9T:Z]+")')


def lines(data):
    """Return each line parsed, or as bytes if Python cannot parse it."""
    parsed = []
    for raw in data.split(b"\n"):
        try:
            parsed.append(json.loads(raw))
        except (ValueError, RecursionError):
            parsed.append(raw)
    return parsed


def outline(line):
    """Return the parts of a line that may not change: keys, ids, types, roles, calls, scalars."""
    if not isinstance(line, dict):
        return type(line)
    message = line.get("message")
    if str(line.get("type")).startswith("api-request"):
        message = None  # no agent reads this record: it is extracted as a whole
    content = message.get("content") if isinstance(message, dict) else None
    thoughts = ("thinking", "redacted_thinking")
    if isinstance(content, list) and all(
        isinstance(block, dict) and block.get("type") in thoughts for block in content
    ):
        content = []  # a line with only signed thinking is emptied
    blocks = [
        [block.get(key) for key in ("type", "id", "name", "toolCallId", "tool_use_id")]
        if isinstance(block, dict) and block.get("type") in ("toolCall", "tool_use", "tool_result")
        else None
        for block in (content if isinstance(content, list) else ())
    ]  # fmt: skip
    scalars = {key: value for key, value in line.items()
             if key not in LINKS and not isinstance(value, dict | list | str)}  # fmt: skip
    ids = {key: line.get(key) for key in ("id", "uuid", "__id", "type", "timestamp")}
    role = message.get("role") if isinstance(message, dict) else None
    return [list(line), scalars, ids, role, blocks]


def is_boundary(line):
    return isinstance(line, dict) and line.get("subtype") == "compact_boundary"


def calls_of(line):
    if isinstance(line, dict) and line.get("type") != "tool_call":
        line = line.get("message")
    return [
        json.dumps([call.get("arguments"), call.get("input")])
        for call in dicts_in([line] if isinstance(line, dict) else [])
        if call.get("type") in ("toolCall", "tool_use", "tool_call")
    ]  # fmt: skip


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("kind", KINDS)
def test_archiving_keeps_lines_in_place_and_can_be_undone(world, settings, kind):
    """Lines, order, ids, types, roles and calls stay; only parent links of closing entries change.

    A second scan changes nothing, and a pristine restore gives back the original bytes.
    """
    root = world.base / kind
    copy_tree(SAMPLES / kind, root)
    files = sorted(root.rglob("*.jsonl"))
    for path in files:  # undoing would remove fields of brainsurgeon that a sample holds
        path.write_bytes(FIELDS.sub(b"", path.read_bytes()))
    before = {path: path.read_bytes() for path in files}
    roots = [{"path": str(root)}]
    report = world.scan(roots=roots, **settings)
    closing = {
        outcome.path: {archive.entry_id: archive.prompt_id for archive in outcome.plan.archives}
        for outcome in report.sessions if outcome.plan
    }  # fmt: skip

    for path in files:
        data = path.read_bytes()
        assert data.count(b"\n") == before[path].count(b"\n")
        pairs = list(zip(lines(before[path]), lines(data), strict=True))
        boundaries = [number for number, (old, _) in enumerate(pairs) if is_boundary(old)]
        for number, (old, new) in enumerate(pairs):
            assert outline(new) == outline(old)
            if number > max(boundaries, default=-1):  # lines before it are never sent again
                assert calls_of(new) == calls_of(old)
            if isinstance(old, dict) and old.get("parentId") != new.get("parentId"):
                assert new["parentId"] == closing[str(path)][old["id"]]
    assert world.scan(roots=roots, **settings).sessions_changed == 0
    world.restore_all(pristine=True, roots=roots)
    assert {path: path.read_bytes() for path in files} == before
    assert kind in ("generic", "traps") or any(closing.values())
