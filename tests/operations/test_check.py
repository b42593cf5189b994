"""`status --check`: the problems that it reports to a monitor."""

from brainsurgeon.operations.status import check, status
from building.world import sql


def problems(world, now, **settings):
    world.close()
    return tuple(check(status(world.settings(**settings), world.store, now), now, max_age=900))


def test_check_reports_nothing_after_a_clean_run(world, pruned, clock):
    """Right after a run without failures there is no problem."""
    assert problems(world, clock()) == ()


def test_check_reports_an_old_last_run(world, pruned, clock):
    """The problem names the age of the last run and `--max-age`."""
    assert problems(world, clock() + 7300) == (
        "the last run was 2 h ago, more than --max-age 15 min",
    )


def test_check_reports_that_no_run_was_made(world):
    """Without any run that is the problem."""
    assert problems(world, 1.0) == ("there was no run yet",)


def test_check_reports_failures_missing_roots_and_disabling(world, pruned, clock):
    """A failed session, a missing root and `enabled = false` are one problem each."""
    sql(world, "UPDATE files SET outcome = 'failed', reason = 'torn'")
    assert problems(world, clock()) == ("1 session failed",)
    assert "nothing is extracted: enabled = false" in problems(world, clock(), enabled=False)
    world.root.rename(world.base / "elsewhere")
    assert any("agents" in problem for problem in problems(world, clock()))
