"""The six cases that were promised of restored, forced and pinned entries, on real sessions."""

import json
import time

import pytest

from brainsurgeon.model.text import iso
from brainsurgeon.render.sessions import restored, restored_json
from building.world import dump, pin, read_entry

MINUTE = 60


@pytest.fixture
def after_restore(world, conversation):
    """Give what a run makes of an old entry that says when it was restored, and more."""

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


def test_restored_5_minutes_ago_with_600_s_is_kept(after_restore):
    """Within its protection a restored entry stays."""
    assert after_restore(5 * MINUTE, 600) == "kept"


def test_restored_15_minutes_ago_with_600_s_is_extracted(after_restore):
    """After its protection a restored entry is an entry like any other."""
    assert after_restore(15 * MINUTE, 600) == "extracted"


def test_restored_30_s_ago_with_30_s_is_extracted(after_restore):
    """At the boundary itself the protection is over."""
    assert after_restore(30, 30) == "extracted"


def test_restoring_an_entry_that_was_restored_before_reports_it(world, conversation, after_restore):
    """The answer names the earlier restore and suggests to pin the entry."""
    assert after_restore(15 * MINUTE, 600) == "extracted"
    [ident] = [one["id"] for one in conversation.lines if "_restored" in one]
    before = next(one["_restored"] for one in conversation.lines if "_restored" in one)

    answer = world.restore(ident)

    told = json.loads(json.dumps(restored_json(answer)))
    assert told["previous_restored_at"] == before
    assert "consider setting _extractable: false on the entry" in told["suggestion"]
    assert told["suggestion"] in restored(answer)


def test_forced_one_minute_after_a_restore_is_extracted_at_once(after_restore):
    """`_extractable: true` goes before the protection."""
    assert after_restore(MINUTE, 600, _extractable=True) == "extracted"


def test_pinned_an_hour_after_a_restore_is_kept(after_restore):
    """`_extractable: false` holds for good."""
    assert after_restore(60 * MINUTE, 600, _extractable=False) == "kept"


@pytest.mark.parametrize("by", ["the line", "a command"])
@pytest.mark.parametrize("form", ["generic", "openclaw"])
def test_an_entry_of_no_kind_is_forced_like_any_other(world, conversation, form, by):
    """What `_extractable: true` names goes whatever its type, as `custom`, and comes back."""
    value = "what a plugin keeps " * 100
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
    if by == "the line":
        next(one for one in lines if ident in (one.get("id"), one.get("__id")))["_extractable"] = (
            True
        )
    path = world.put("s.jsonl", b"".join(map(dump, lines)))
    if by == "a command":
        world.scan()
        assert value.encode() in path.read_bytes()
        pin(world, ident, True)
    report = world.scan()

    assert f"[[extracted-{ident}]]".encode() in path.read_bytes()
    assert value.encode() not in path.read_bytes()
    if by == "the line":
        [cut] = report.sessions[0].plan.extracted
        assert cut.kind == "custom"
    world.restore_all(pristine=True)
    assert path.read_bytes() == b"".join(map(dump, lines))
