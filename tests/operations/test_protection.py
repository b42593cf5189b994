"""Protection of restored entries, and entries that are pinned or forced."""

import time

import pytest

from brainsurgeon.model.text import iso
from building.world import dump, pin, read_entry

MINUTE = 60


@pytest.fixture
def scan_after_restore(world, conversation):
    """Return a function that scans an old entry restored some time ago and returns its outcome."""

    def scan(seconds_ago, keep_after_restore_seconds=600, **fields):
        stamp = iso(time.time() - seconds_ago)
        ident = conversation.turn()
        conversation.lines[-2] |= {"_restored": stamp, **fields}
        for _ in range(3):
            conversation.turn("short")
        path = world.put("s.jsonl", b"".join(map(dump, conversation.lines)))
        world.scan(keep_after_restore_seconds=keep_after_restore_seconds)
        text = read_entry(path, ident)["message"]["content"][0]["text"]
        return {f"[[extracted-{ident}]]": "extracted", "x" * 2000: "kept"}[text]

    return scan


@pytest.mark.parametrize(
    ("seconds_ago", "protection", "fields", "outcome"),
    [
        pytest.param(5 * MINUTE, 600, {}, "kept", id="within the protection"),
        pytest.param(15 * MINUTE, 600, {}, "extracted", id="after the protection"),
        pytest.param(30, 30, {}, "extracted", id="at the end of the protection"),
        pytest.param(MINUTE, 600, {"_extractable": True}, "extracted", id="forced, protected"),
        pytest.param(60 * MINUTE, 600, {"_extractable": False}, "kept", id="pinned, unprotected"),
    ],
)
def test_restored_entry_is_kept_while_protected_or_pinned(
    scan_after_restore, seconds_ago, protection, fields, outcome
):
    """A restored entry is kept for `keep_after_restore_seconds` unless pinned or forced."""
    assert scan_after_restore(seconds_ago, protection, **fields) == outcome


@pytest.mark.parametrize("by", ["a field of the line", "the pin command"])
@pytest.mark.parametrize("form", ["generic", "openclaw"])
def test_forced_entry_of_an_unknown_type_is_extracted(world, conversation, form, by):
    """`_extractable: true` extracts an entry of any type, and a restore brings back its bytes."""
    value = "state of a plugin " * 100
    if form == "generic":
        lines = [
            {"type": "plugin_state", "__id": "p1", "data": {"text": value}},
            {"type": "user", "__id": "u1", "content": "hello"},
            {"type": "assistant", "__id": "a1", "content": "hello"},
        ]  # fmt: skip
        ident = "p1"
    else:
        ident = conversation.entry("custom", customType="plugin", data={"text": value})
        conversation.turn("short")
        lines = conversation.lines
    if by == "a field of the line":
        [line] = [line for line in lines if ident in (line.get("id"), line.get("__id"))]
        line["_extractable"] = True
    path = world.put("s.jsonl", b"".join(map(dump, lines)))
    if by == "the pin command":
        world.scan()
        assert value.encode() in path.read_bytes()
        pin(world, ident, True)
    report = world.scan()

    assert f"[[extracted-{ident}]]".encode() in path.read_bytes()
    assert value.encode() not in path.read_bytes()
    if by == "a field of the line":
        [removal] = report.sessions[0].plan.extracted
        assert removal.kind == "custom"
    world.restore_all(pristine=True)
    assert path.read_bytes() == b"".join(map(dump, lines))
