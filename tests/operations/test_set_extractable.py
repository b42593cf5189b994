"""Entries pinned, forced, or given a window of their own."""

import json
import time

import pytest

from brainsurgeon.errors import ChangedError
from brainsurgeon.render.sessions import set_, set_json
from building.world import (
    close_turn,
    dump,
    entry_text,
    file_states,
    kept_reasons,
    open_turn,
    pin,
    raw_line,
    read_entry,
    sql,
)


@pytest.fixture
def ident(world, conversation):
    """Give the id of an old result, of which nothing was extracted yet."""
    ident = conversation.turn()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    return ident


def test_an_entry_with_a_hostile_id_is_pinned_by_it(world, conversation, path):
    """An id that JSON writes with escapes names its entry before anything was extracted there."""
    hostile = "a]] ../x\n\x1b[31m"
    conversation.turn("x" * 2000, ident=hostile)
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())

    assert pin(world, hostile, False).entry_id == hostile
    assert read_entry(path, hostile)["_extractable"] is False
    assert world.scan().values_extracted == 0


def test_the_store_remembers_a_pin_that_the_file_lost(world, conversation, ident, path, clock):
    """A pin holds although the agent's rewrite dropped `_extractable`: the store's word counts."""
    pin(world, ident, False)
    path.write_bytes(conversation.bytes())
    clock.now = int(time.time()) + 60

    assert world.scan().values_extracted == 0


def test_an_unpinned_entry_is_as_the_agent_wrote_it(world, conversation, ident, path, clock):
    """The field leaves the file, byte for byte, and the rules decide again."""
    for value in (False, 7, True):
        pin(world, ident, value)
        assert read_entry(path, ident)["_extractable"] == value
        pin(world, ident, None)
        assert path.read_bytes() == conversation.bytes()
    clock.now = int(time.time()) + 60

    assert world.scan().values_extracted == 1


# --- fields --------------------------------------------------------------------------------------


def test_a_pin_of_an_idle_session_stands_at_once(world, conversation, ident, path, clock):
    """`set-extractable false` writes the field and nothing else, and the next scan keeps."""
    answer = pin(world, ident, False)
    line = raw_line(conversation.bytes(), ident)

    assert not answer.pending
    assert path.read_bytes() == conversation.bytes().replace(
        line, line[:-1] + b',"_extractable":false}'
    )
    assert world.scan().values_extracted == 0
    assert kept_reasons(world)["pinned"] == 1


def test_a_pin_of_a_busy_session_binds_at_once(world, conversation, ident, path, clock):
    """A pin noted in an open turn decides before it is written; the next rewrite writes it."""
    open_turn(path, conversation, clock)
    before = file_states(world.root)
    answer = pin(world, ident, False)

    assert answer.pending
    assert file_states(world.root) == before
    assert kept_reasons(world)["pinned"] == 1

    close_turn(path, conversation, clock)
    clock.now += 100_000
    report = world.scan()

    assert report.values_extracted == 0
    assert read_entry(path, ident)["_extractable"] is False
    assert world.scan().files_unchanged == 1


def test_the_last_word_on_an_entry_counts(world, conversation, ident, path, clock):
    """A newer request replaces an older one that still waits."""
    open_turn(path, conversation, clock)
    pin(world, ident, False)
    pin(world, ident, 1)
    close_turn(path, conversation, clock)
    report = world.scan()

    assert report.values_extracted == 1
    assert read_entry(path, ident)["_extractable"] == 1


def test_forcing_cuts_inside_the_protection(world, pruned, path, clock):
    """`set-extractable true` a minute after a restore has the entry cut by the next scan."""
    world.restore(pruned)
    clock.now += 60
    pin(world, pruned, True)

    assert world.scan().values_extracted == 1
    assert entry_text(path, pruned) == f"[[extracted-{pruned}]]"


@pytest.mark.parametrize("open_now", [False, True])
def test_a_pin_of_what_is_extracted_says_that_it_is_out(world, pruned, path, conversation, clock,
                                                        open_now):  # fmt: skip
    """The answer counts the values that stay out, and names the call that restores them."""
    if open_now:
        open_turn(path, conversation, clock)
    pinned = pin(world, pruned, False)

    assert pinned.pending is open_now
    assert set_json(pinned)["still_extracted"] == pinned.extracted == 1
    assert "call restore" in set_json(pinned)["suggestion"]
    assert f"`brainsurgeon restore {pruned}`" in set_(pinned)
    if not open_now:
        world.restore(pruned)
        assert "still_extracted" not in set_json(pin(world, pruned, False))
        assert pin(world, pruned, True).extracted == 0


def test_a_field_that_cannot_be_set_is_not_called_set(world, conversation, path, clock):
    """Where `_extractable` stands twice the entry is left alone, and nobody is told otherwise."""
    ident = conversation.turn()
    conversation.turn("short")
    line = raw_line(conversation.bytes(), ident)
    twice = line[:-1] + b',"_extractable":1,"_extractable":1}'
    data = conversation.bytes().replace(line, twice)
    world.put("s.jsonl", data)
    with pytest.raises(ChangedError, match="duplicate key _extractable"):
        pin(world, ident, False)

    assert path.read_bytes() == data


def test_an_entry_whose_id_stands_twice_is_not_called_pinned(world, conversation, path, clock):
    """Where two entries could be meant neither is touched, and nobody is told otherwise."""
    conversation.turn()
    ident = conversation.user(ident="twice")
    conversation.user(ident="twice")
    conversation.assistant()
    world.put("s.jsonl", conversation.bytes())
    with pytest.raises(ChangedError, match="occurs twice"):
        pin(world, ident, False)

    assert path.read_bytes() == conversation.bytes()


def test_an_entry_with_two_marks_is_left_alone(world, conversation, path, clock):
    """Where `_restored` stands twice nothing is restored, and the reason is given."""
    ident = conversation.turn()
    conversation.turn("short")
    line = raw_line(conversation.bytes(), ident)
    twice = b',"_restored":"2026-02-20T10:00:00Z"'
    data = conversation.bytes().replace(line, line[:-1] + twice + twice + b"}")
    world.put("s.jsonl", data)
    world.scan()
    before = file_states(world.root)

    with pytest.raises(ChangedError, match="duplicate key _restored"):
        world.restore(ident)
    [done] = world.restore_all()

    assert done.missed == (f"{ident}: duplicate key _restored",)
    assert file_states(world.root) == before

    world.restore_all(pristine=True)

    assert path.read_bytes() == data


def test_entries_without_an_id_are_marked_one_by_one(world, path):
    """Lines that are named by their places get the same mark in the same second, and lose it."""
    lines = [
        {"type": "tool_result", "__id": "first", "output": "short"},
        {"type": "tool_result", "output": "x" * 2000},
        {"type": "tool_result", "output": "y" * 2000},
        *({"type": "message", "role": "assistant", "content": "ok"} for _ in range(4)),
    ]
    original = b"".join(map(dump, lines))
    world.put("s.jsonl", original)
    world.scan()
    [marked] = world.restore_all()
    [undone] = world.restore_all(pristine=True)

    assert (marked.values, marked.missed) == (2, ())
    assert path.read_bytes() == original
    assert (len(undone.insertions_removed), undone.missed) == (2, ())
    assert len(set(undone.insertions_removed)) == 2
    assert sql(world, "SELECT count(*) FROM fields WHERE state = 'standing'") == [(0,)]


def test_an_entry_without_id_keeps_its_name_through_edits(world, path, clock):
    """A line that is named by its place is pinned, marked and undone like any other."""
    lines = [
        {"type": "tool_result", "__id": "first", "output": "short"},
        {"type": "tool_result", "output": "x" * 2000},
        *({"type": "message", "role": "assistant", "content": "ok"} for _ in range(4)),
    ]
    original = b"".join(map(dump, lines))
    world.put("s.jsonl", original)
    world.scan()
    placeholder = json.loads(path.read_bytes().splitlines()[1])["output"]
    world.restore(placeholder)
    pin(world, placeholder, False)
    clock.now += 700

    assert placeholder.startswith("[[extracted-L2-")
    assert world.scan().values_extracted == 0

    [done] = world.restore_all(pristine=True)

    assert path.read_bytes() == original
    assert len(done.insertions_removed) == 2
