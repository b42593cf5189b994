"""What `sessions --values` and `show --why` say about each value."""

import os
import time

import pytest

from brainsurgeon.errors import NotFoundError
from brainsurgeon.files.reading import LONGEST_LINE
from brainsurgeon.operations.sessions import context, why
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.render import turns
from building.world import LONG_AGO, Conversation, append


@pytest.fixture
def session(world):
    """Write a session with an old long, an old short and a new result; return their ids."""
    talk = Conversation()
    idents = [talk.turn("x" * length) for length in (2000, 100, 2000)]
    world.talk, world.path = talk, world.put("s.jsonl", talk.bytes())
    return idents


def decided(world, ident, **keys):
    [decision] = why(world.settings(**keys), world.store, ident, None, world.clock()).decisions
    return decision


def add_messages(world, number):
    before = len(world.talk.lines)
    for _ in range(number):
        world.talk.assistant("more")
    append(world.path, world.talk.lines[before:])
    os.utime(world.path, (0, 0))


def test_recent_value_goes_after_as_many_messages_as_said(world, session):
    """As many newer messages as `show --why` names let a recent value go, one less does not."""
    *_, new = session
    kept = decided(world, new)
    assert kept.reason == "recent"
    more = int(kept.otherwise.split()[0])

    add_messages(world, more - 1)
    assert not decided(world, new).extracts
    add_messages(world, 1)
    assert decided(world, new).extracts


def test_short_value_goes_with_a_lower_limit(world, session):
    """What is too short names the limit; below it, it goes."""
    add_messages(world, 5)
    kept = decided(world, session[1])
    assert (kept.reason, kept.otherwise) == (
        "short", "more than 500 characters (min_value_length)"
    )  # fmt: skip
    assert decided(world, session[1], min_value_length=99).extracts


def test_pinned_restored_and_extracted_values_name_the_way_out(world, session):
    """A value that a command keeps or takes names the command that undoes it."""
    old, *_ = session
    set_extractable(world.settings(), world.store, old, False, clock=world.clock)
    assert decided(world, old).otherwise == "brainsurgeon pin --undo, or extract"
    set_extractable(world.settings(), world.store, old, None, clock=world.clock)
    os.utime(world.path, (0, 0))
    assert decided(world, old).otherwise == "brainsurgeon pin"

    assert world.scan().values_extracted == 1
    assert decided(world, old).otherwise == "brainsurgeon restore"
    world.restore_all()
    assert decided(world, old).otherwise.startswith("time: ")
    with pytest.raises(NotFoundError):
        decided(world, "nowhere")


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"exclude": ["session:s"]}, "excluded by session:s"),
        ({"min_reclaim": 100_000}, "too little to gain"),
        ({"quiet_seconds": 10 * LONG_AGO}, "changed "),
        ({}, ""),
    ],
)
def test_what_the_next_scan_does_not_extract_is_said_to_wait(world, session, keys, reason):
    """Where a scan would change nothing, `show --why` says why, and no value to be extracted."""
    add_messages(world, 5)
    os.utime(world.path, (time.time() - LONG_AGO,) * 2)
    answer = why(world.settings(**keys), world.store, session[0], None, world.clock())

    assert [one.extracts for one in answer.decisions] == [True]
    assert (answer.deferred or "").startswith(reason)
    assert ("the next scan extracts it" in turns.why(answer)) == (not reason)
    assert bool(reason) == (world.scan(dry_run=True, **keys).sessions_changed == 0)


def test_values_beside_a_line_that_is_too_long_are_shown(world, session):
    """A line of more than 32 MB, which no scan reads, hides the values of no other line."""
    world.talk.turn("z" * LONGEST_LINE)
    world.path.write_bytes(world.talk.bytes())

    shown = context(world.settings(), world.store, "main/s", world.clock())
    assert {one.entry_id for one in shown.plan.decisions} > {*session}
