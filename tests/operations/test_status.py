"""status: tokens that are not sent any more, the last runs, and recent failures."""

from brainsurgeon.model.turns import Calibration, Fullness
from brainsurgeon.operations.status import status
from brainsurgeon.render import runs as render
from building.world import dump, sql

PLACEHOLDER = len("[[extracted-00000003]]")


def test_status_sums_the_tokens_recorded_with_each_value(world, conversation, pruned, path, clock):
    """Tokens are counted at the rate of the session known at extraction, else at the default."""
    chars = 2000 - PLACEHOLDER
    assert status(world.settings(), world.store, clock()).tokens.tokens_saved == round(0.33 * chars)
    ((ident,),) = sql(world, "SELECT id FROM sessions")
    calibration = Calibration(0.5, 0.0, 9, "session", 0.0)
    with world.store.transaction():
        world.store.calibrations.remember(ident, Fullness(1, 2, 0.5, calibration))
    assert status(world.settings(), world.store, clock()).tokens.tokens_saved == round(0.33 * chars)
    count = len(conversation.lines)
    conversation.turn("go on")
    world.put("s.jsonl", path.read_bytes() + b"".join(map(dump, conversation.lines[count:])))
    world.scan()

    now = status(world.settings(), world.store, clock())
    first, second = (run.facts["tokens"] for run in world.store.runs.newest(None))
    assert (first, second) == (round(0.33 * chars), round(0.5 * chars))
    assert now.tokens.tokens_saved == first + second
    assert "about 1,600 are not sent any more" in render.status(now, clock())


def test_session_that_is_gone_saves_no_tokens(world, pruned, path, clock):
    """Like the extracted values, the tokens of a removed session do not count any more."""
    before = status(world.settings(), world.store, clock())
    path.unlink()
    now = status(world.settings(), world.store, clock())

    assert (before.store.values_extracted, now.store.values_extracted) == (1, 0)
    assert before.tokens.tokens_saved > now.tokens.tokens_saved == 0


def test_values_outside_requests_save_no_tokens(world, conversation, clock):
    """Values for display only and values of an abandoned branch save no tokens."""
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
    assert status(world.settings(), world.store, clock()).tokens.tokens_saved == 0


def test_status_lists_the_last_three_runs_and_failures(world, pruned, clock):
    """At most three of each are shown, newest last, and no failure older than a week."""
    with world.store.transaction():
        for number in range(5):
            facts = {"session": f"main/{number}", "reason": "torn"}
            world.store.events.add(clock(), "failure", None, facts, None)
    now = status(world.settings(), world.store, clock())
    text = render.status(now, clock())

    assert [failure.facts["session"] for failure in now.failures] == ["main/2", "main/3", "main/4"]
    assert "failed     0 s ago: main/4: torn" in text
    assert "run 1     0 s ago: scan, 1 extracted" in text
    assert len(text.splitlines()) <= 24
    sql(world, "UPDATE runs SET at = at + 700000")
    assert status(world.settings(), world.store, clock() + 700_000).failures == ()
