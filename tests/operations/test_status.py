"""How things stand: what is not sent any more, the last runs and what failed of late."""

from brainsurgeon.model.turns import Calibration, Fullness
from brainsurgeon.operations.status import status
from brainsurgeon.render import runs as standing
from building.world import dump, sql

PLACEHOLDER = len("[[extracted-00000003]]")


def now_of(world, moment):
    return status(world.settings(), world.store, moment)


def test_the_tokens_saved_are_those_recorded_with_each_value(
    world, conversation, pruned, path, clock
):
    """By the rate that was known of the session then, else by the usual one; runs add up to it."""
    chars = 2000 - PLACEHOLDER
    assert now_of(world, clock()).tokens_saved == round(0.33 * chars)
    ((ident,),) = sql(world, "SELECT id FROM sessions")
    line = Calibration(0.5, 0.0, 9, "session", 0.0)
    with world.store.transaction():
        world.store.calibrations.remember(ident, Fullness(1, 2, 0.5, line))
    assert now_of(world, clock()).tokens_saved == round(0.33 * chars)
    known = len(conversation.lines)
    conversation.turn("go on")
    world.put("s.jsonl", path.read_bytes() + b"".join(map(dump, conversation.lines[known:])))
    world.scan()

    now = now_of(world, clock())
    first, second = (one.facts["tokens"] for one in world.store.runs.newest(None))
    assert (first, second) == (round(0.33 * chars), round(0.5 * chars))
    assert now.tokens_saved == first + second
    assert "about 1,600 are not sent any more" in standing.status(now, clock())


def test_what_no_request_carried_saves_no_tokens(world, conversation, clock):
    """A value for the screen and a branch that was left free bytes, and nothing of a request."""
    first = conversation.user()
    conversation.call()
    conversation.result("short", details={"diff": "d" * 3000})
    conversation.assistant()
    conversation.turn("z" * 3000)
    conversation.user(parentId=first)
    conversation.assistant("another branch")
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())

    assert world.scan(keep_recent=0).values_extracted == 2
    assert now_of(world, clock()).tokens_saved == 0


def test_the_last_passes_and_failures_are_shown(world, pruned, clock):
    """Three of each at most, the newest last; a failure of a week ago is told by `events`."""
    with world.store.transaction():
        for number in range(5):
            facts = {"session": f"main/{number}", "reason": "torn"}
            world.store.events.add(clock(), "failure", None, facts, None)
    now = now_of(world, clock())
    told = standing.status(now, clock())

    assert [one.facts["session"] for one in now.failures] == ["main/2", "main/3", "main/4"]
    assert "failed     0 s ago: main/4: torn" in told
    assert "run 1     0 s ago: scan, 1 extracted" in told
    assert len(told.splitlines()) <= 24
    sql(world, "UPDATE runs SET at = at + 700000")
    assert now_of(world, clock() + 700_000).failures == ()
