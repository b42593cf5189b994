"""The runs that commands record."""

from building.world import pin, sql


def recorded_runs(world):
    return [(run.command, run.facts) for run in world.store.runs.newest(None)]


def test_scan_records_a_run_with_its_counts(world, pruned):
    """The run has the counts of the scan, and each extraction names it."""
    [(command, facts)] = recorded_runs(world)

    assert command == "scan"
    assert facts == {"sessions": 1, "extracted": 1, "chars": 2000, "tokens": 653}
    assert sql(world, "SELECT DISTINCT run_id FROM extractions") == [(1,)]


def test_scan_without_changes_records_no_run(world, pruned):
    """A second scan of an unchanged tree, and a dry run, record neither a run nor an event."""
    before = recorded_runs(world), world.store.events.after(0)
    world.scan()
    world.scan(dry_run=True)

    assert (recorded_runs(world), world.store.events.after(0)) == before


def test_restore_and_pin_record_runs(world, pruned, clock):
    """Both are recorded with their counts, and each field names the run that set it."""
    world.restore(pruned)
    clock.now += 1
    pin(world, pruned, False)

    assert recorded_runs(world)[1:] == [
        ("restore", {"sessions": 1, "restored": 1, "fields": 1}),
        ("pin", {"sessions": 1, "fields": 1}),
    ]  # fmt: skip
    assert sql(world, "SELECT name, run_id FROM fields ORDER BY id") == [
        ("_restored", 2), ("_extractable", 3),
    ]  # fmt: skip


def test_restore_all_records_one_run(world, pruned, conversation):
    """`restore --all` is one run for all sessions."""
    world.put("t.jsonl", conversation.bytes().replace(b"000000000001", b"000000000002"))
    world.scan()
    world.restore_all(pristine=True)

    assert recorded_runs(world)[-1] == ("restore", {"sessions": 2, "restored": 2})
