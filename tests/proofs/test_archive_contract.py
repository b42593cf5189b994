"""What archiving promises of every sample: nothing moves, nothing is parted, everything undoes."""

import json
import re

import pytest

from building.requests import walk
from building.world import SAMPLES, copy_tree

ARCHIVES = {
    "archive": {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0},
    "keep_recent": 0,
}
WAYS = {"alone": {"trigger_types": [], **ARCHIVES}, "with cuts": ARCHIVES}
KINDS = ("openclaw", "pi", "claude-code", "generic", "traps")
LINKS = {"parentId", "parentUuid"}
FIELDS = re.compile(rb',"_(redacted":true|restored":"[-0-9T:Z]+")')


def lines(data):
    """Read every line that is JSON; what Python cannot read stands as its bytes."""
    read = []
    for raw in data.split(b"\n"):
        try:
            read.append(json.loads(raw))
        except (ValueError, RecursionError):
            read.append(raw)
    return read


def outline(line):
    """Give what may not change of a line: ids, types, roles, calls, and how it is built."""
    if not isinstance(line, dict):
        return type(line)
    message = line.get("message")
    if str(line.get("type")).startswith("api-request"):
        message = None  # a record that nobody reads: it is extracted as a whole
    content = message.get("content") if isinstance(message, dict) else None
    thoughts = ("thinking", "redacted_thinking")
    if isinstance(content, list) and all(
        isinstance(block, dict) and block.get("type") in thoughts for block in content
    ):
        content = []  # a line of nothing but signed thinking is emptied
    blocks = [
        [block.get(key) for key in ("type", "id", "name", "toolCallId", "tool_use_id")]
        if isinstance(block, dict) and block.get("type") in ("toolCall", "tool_use", "tool_result")
        else None
        for block in (content if isinstance(content, list) else ())
    ]  # fmt: skip
    named = {key: value for key, value in line.items()
             if key not in LINKS and not isinstance(value, dict | list | str)}  # fmt: skip
    ids = {key: line.get(key) for key in ("id", "uuid", "__id", "type", "timestamp")}
    role = message.get("role") if isinstance(message, dict) else None
    return [list(line), named, ids, role, blocks]


def is_boundary(line):
    return isinstance(line, dict) and line.get("subtype") == "compact_boundary"


def calls_of(line):
    if isinstance(line, dict) and line.get("type") != "tool_call":
        line = line.get("message")
    return [
        json.dumps([one.get("arguments"), one.get("input")])
        for one in walk([line] if isinstance(line, dict) else [])
        if one.get("type") in ("toolCall", "tool_use", "tool_call")
    ]  # fmt: skip


@pytest.fixture(params=WAYS, ids=WAYS)
def keys(request):
    return WAYS[request.param]


@pytest.mark.parametrize("kind", KINDS)
def test_no_line_moves_and_everything_comes_back(world, keys, kind):
    """Lines, order, ids, types, roles and calls stay; links differ at closing entries alone."""
    root = world.base / kind
    copy_tree(SAMPLES / kind, root)
    files = sorted(root.rglob("*.jsonl"))
    for path in files:  # where a sample holds fields as we write them, undoing takes them out
        path.write_bytes(FIELDS.sub(b"", path.read_bytes()))
    before = {path: path.read_bytes() for path in files}
    where = {"roots": [{"path": str(root)}]}
    report = world.scan(**where, **keys)
    closing = {
        outcome.path: {one.entry_id: one.prompt_id for one in outcome.plan.archives}
        for outcome in report.sessions if outcome.plan
    }  # fmt: skip

    for path in files:
        now = path.read_bytes()
        assert now.count(b"\n") == before[path].count(b"\n")
        pairs = list(zip(lines(before[path]), lines(now), strict=True))
        boundaries = [at for at, (was, _) in enumerate(pairs) if is_boundary(was)]
        for at, (was, new) in enumerate(pairs):
            assert outline(new) == outline(was)
            if at > max(boundaries, default=-1):  # what is before is never sent again
                assert calls_of(new) == calls_of(was)
            if isinstance(was, dict) and was.get("parentId") != new.get("parentId"):
                assert new["parentId"] == closing[str(path)][was["id"]]
    again = world.scan(**where, **keys)
    assert again.sessions_changed == 0
    world.restore_all(pristine=True, **where)
    assert {path: path.read_bytes() for path in files} == before
    assert kind in ("generic", "traps") or any(closing.values())
