"""What a monitor is told: nothing where all is well, and each trouble in words."""

from brainsurgeon.model.text import lasting
from brainsurgeon.operations.status import check, status
from building.world import sql


def troubles(world, now, **settings):
    world.close()
    return tuple(check(status(world.settings(**settings), world.store, now), now, max_age=900))


def test_a_fresh_run_without_failures_is_well(world, pruned, clock):
    """Right after a run in which nothing failed there is nothing to say."""
    assert troubles(world, clock()) == ()


def test_a_run_that_is_too_old_is_said(world, pruned, clock):
    """A scheduler that stopped shows in the age of the last run."""
    assert troubles(world, clock() + 7300) == (
        "the last run was 2 h ago, more than --max-age 15 min",
    )


def test_before_the_first_run_there_is_no_comfort(world):
    """Where no run was ever made that is the trouble."""
    assert troubles(world, 1.0) == ("no run was ever made",)


def test_failures_and_missing_roots_are_said(world, pruned, clock):
    """A session that failed, a root that is gone, extraction that is off: each is a trouble."""
    sql(world, "UPDATE files SET outcome = 'failed', reason = 'torn'")
    assert troubles(world, clock()) == ("1 session failed",)
    assert "nothing is extracted: enabled = false" in troubles(world, clock(), enabled=False)
    world.root.rename(world.base / "elsewhere")
    assert any("agents" in one for one in troubles(world, clock()))


def test_spans_are_written_in_their_largest_unit():
    """Seconds, minutes, hours and days, each rounded down."""
    spans = {0: "0 s", 59.9: "60 s", 60: "1 min", 7300: "2 h", 200_000: "2 d"}

    assert {span: lasting(span) for span in spans} == spans
