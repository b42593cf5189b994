"""What each command leaves as its run."""

from building.world import pin, sql


def listed(world):
    return [(one.command, one.facts) for one in world.store.runs.newest(None)]


def test_what_a_scan_cuts_names_its_run(world, pruned):
    """Every extraction names the run that made it, and the run says what it did."""
    [(command, facts)] = listed(world)

    assert command == "scan"
    assert facts == {"sessions": 1, "extracted": 1, "chars": 2000, "tokens": 653}
    assert sql(world, "SELECT DISTINCT run_id FROM extractions") == [(1,)]


def test_a_scan_that_changes_nothing_is_no_run(world, pruned):
    """A second scan of an unchanged tree leaves neither a run nor an event."""
    before = listed(world), world.store.events.after(0)
    world.scan()
    world.scan(dry_run=True)

    assert (listed(world), world.store.events.after(0)) == before


def test_a_restore_and_a_pin_are_runs(world, pruned, clock):
    """Fields name the run that set them, and a restore says what it restored."""
    world.restore(pruned)
    clock.now += 1
    pin(world, pruned, False)

    assert listed(world)[1:] == [
        ("restore", {"sessions": 1, "restored": 1, "fields": 1}),
        ("pin", {"sessions": 1, "fields": 1}),
    ]  # fmt: skip
    assert sql(world, "SELECT name, run_id FROM fields ORDER BY id") == [
        ("_restored", 2), ("_extractable", 3),
    ]  # fmt: skip


def test_everything_that_is_put_back_at_once_is_one_run(world, pruned, conversation):
    """`restore --all` is one run, however many sessions it goes through."""
    world.put("t.jsonl", conversation.bytes().replace(b"000000000001", b"000000000002"))
    world.scan()
    world.restore_all(pristine=True)

    assert listed(world)[-1] == ("restore", {"sessions": 2, "restored": 2})
