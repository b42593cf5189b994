"""How things stand: what is not sent any more, the last runs and what failed of late."""

from brainsurgeon.model.turns import Calibration, Fullness
from brainsurgeon.operations.status import status
from brainsurgeon.render import status as standing
from building.world import sql

PLACEHOLDER = len("[[extracted-00000003]]")


def now_of(world, moment):
    """Give how things stand at a moment."""
    return status(world.settings(), world.store, moment)


def test_the_tokens_saved_are_counted_as_calls_were_seen_to_take(world, pruned, clock):
    """By the rate that is known of the session, else by the usual one; an estimate, and said so."""
    chars = 2000 - PLACEHOLDER
    assert now_of(world, clock()).tokens_saved == round(0.33 * chars)
    ((ident,),) = sql(world, "SELECT id FROM sessions")
    line = Calibration(0.5, 0.0, 9, "session", 0.0)
    with world.store.transaction():
        world.store.calibrations.remember(ident, Fullness(1, 2, 0.5, line), 1.0)

    now = now_of(world, clock())
    assert now.tokens_saved == round(0.5 * chars)
    assert "989 are not sent any more (an estimate)" in standing.status(now, clock())


def test_what_was_never_sent_saves_no_tokens(world, pruned, clock):
    """A value for the screen frees bytes, and nothing of a request."""
    sql(world, """UPDATE extractions SET path = '["message", "details", "diff"]'""")

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
