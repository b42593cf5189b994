"""Sessions of a run that are carried out together: what they share, and what stays their own."""

import os
import time

import pytest

from brainsurgeon.errors import BusyError, StoppedError
from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.scan import scan
from brainsurgeon.rewrite.recover import TOGETHER
from brainsurgeon.sessions import exchange, leases
from brainsurgeon.store import Store
from brainsurgeon.store.extractions import Blobs
from building.processes import wait_until
from building.world import LONG_AGO, Conversation, fork, open_rewrites, sql

# Of a commit: the journal twice, the directory twice, the database.
SYNCS = 5
MOST = 8
PLACEHOLDER = b"[[extracted-"


@pytest.fixture
def paths(world):
    """Give sessions with something to cut in each, one more than go together."""
    return [put(world, number) for number in range(TOGETHER + 1)]


def put(world, number, name=None, **header):
    conversation = Conversation(f"22222222-0000-4000-8000-{number:012}", **header)
    conversation.turn(f"{number} " + "x" * 4000)
    return world.put(name or f"{number:04}.jsonl", conversation.bytes())


@pytest.fixture
def costs(monkeypatch):
    """Count the commits, and the syncs of files and directories."""
    counted = {"commits": 0, "syncs": 0}
    transaction, fsync = Store.transaction, os.fsync

    def counting(store):
        counted["commits"] += 1
        return transaction(store)

    def syncing(descriptor):
        counted["syncs"] += 1
        fsync(descriptor)

    monkeypatch.setattr(Store, "transaction", counting)
    monkeypatch.setattr(os, "fsync", syncing)
    return counted


def outcomes(report):
    return {os.path.basename(one.path): one.outcome for one in report.sessions}


def test_a_session_costs_few_syncs_where_many_are_cut(world, paths, costs):
    """A first run over many sessions makes at most eight syncs for each of them."""
    assert world.store
    costs.update(commits=0, syncs=0)
    report = world.scan(keep_recent=0)
    syncs = costs["commits"] * SYNCS + costs["syncs"]

    assert report.sessions_changed == len(paths)
    assert syncs <= MOST * len(paths)
    assert world.leftovers() == []
    assert open_rewrites(world) == []


def test_sessions_are_told_in_the_order_of_the_walk(world, paths):
    """What waits for others is told where it was looked at, as a dry run foretells it."""
    foretold = world.scan(dry_run=True, keep_recent=0)
    report = world.scan(keep_recent=0)

    assert list(outcomes(report)) == list(outcomes(foretold))
    assert set(outcomes(report).values()) == {"changed"}


@pytest.mark.parametrize("meanwhile", [False, True])
def test_one_that_is_held_open_leaves_the_others_alone(
    world, paths, other_process, monkeypatch, meanwhile
):  # fmt: skip
    """A session that somebody opens, behind the first look or before, is deferred as it is."""
    before = paths[3].read_bytes()
    if meanwhile:
        monkeypatch.setattr(exchange, "check_closed", lambda _: None)
    other_process.evaluate(f"globals().update(fd=os.open({str(paths[3])!r}, os.O_RDONLY))")
    report = world.scan(keep_recent=0)

    assert outcomes(report).pop(paths[3].name) == "deferred"
    assert report.sessions_changed == len(paths) - 1
    assert paths[3].read_bytes() == before
    assert open_rewrites(world) == []


def test_a_late_opener_of_one_holds_up_nobody_else(world, paths, other_process, monkeypatch):
    """Only the session that somebody comes late to waits; the late line has its place there."""
    monkeypatch.setattr("brainsurgeon.sessions.exchange.WAIT_FOR_CLOSING", 20.0)
    swap, take, leased, late = leases.exchange, leases.take, [], b'{"late":1}\n'
    opening = []

    def taking(descriptor):
        leased.append(descriptor)
        return take(descriptor)

    def exchanging(directory, one, other):
        if other == paths[2].name and not opening:  # a look into the file would break the lease
            opening.append(other)
            held = leased[-1]
            other_process.send(
                f"globals().update(fd=os.open({str(paths[2])!r}, os.O_WRONLY | os.O_APPEND))",
                f"os.write(fd, {late!r})", "os.close(fd)",
            )  # fmt: skip
            wait_until(lambda: not leases.held(held))
        swap(directory, one, other)

    monkeypatch.setattr(leases, "take", taking)
    monkeypatch.setattr(leases, "exchange", exchanging)
    report = world.scan(keep_recent=0)

    assert report.sessions_changed == len(paths)
    assert all(PLACEHOLDER in path.read_bytes() for path in paths)
    assert paths[2].read_bytes().endswith(late)
    assert world.leftovers() == []


def test_what_goes_wrong_with_one_is_not_the_others(world, paths, monkeypatch):
    """A value that cannot be stored now defers its own session only."""
    put, tried = Blobs.put, []

    def putting(blobs, value):
        tried.append(value)
        if value == tried[0]:
            raise BusyError("another request for this session was recorded meanwhile; try again")
        return put(blobs, value)

    monkeypatch.setattr(Blobs, "put", putting)
    report = world.scan(keep_recent=0)

    assert outcomes(report).pop(paths[0].name) == "deferred"
    assert report.sessions_changed == len(paths) - 1
    assert PLACEHOLDER not in paths[0].read_bytes()
    assert open_rewrites(world) == []


def test_a_session_that_another_of_us_holds_is_waited_for_alone(world, paths, monkeypatch):
    """Two runs whose sessions cross do not wait for each other with sessions in their hands."""
    world.scan(keep_recent=0)
    world.restore_all(pristine=True)
    lock, refused = Store.lock, []

    def locking(store, session_id, patience=0.0, check_stop=lambda: None):
        if not patience and not refused:
            refused.append(session_id)
            raise BusyError("another brainsurgeon is rewriting this session; try again")
        return lock(store, session_id, patience, check_stop)

    monkeypatch.setattr(Store, "lock", locking)
    report = world.scan(keep_recent=0, keep_after_restore_seconds=0)

    assert refused
    assert report.sessions_changed == len(paths)


def test_a_run_that_is_stopped_leaves_what_waits_as_it_was(world, paths):
    """Sessions that were only planned are not touched once the program was told to stop."""
    before = [path.read_bytes() for path in paths]
    seen = []

    def stop():
        if len(seen) == 4:
            raise StoppedError

    report = scan(
        world.settings(keep_recent=0), world.store, watch=Watch(seen.append, stop)
    )  # fmt: skip

    assert report.stopped
    assert [path.read_bytes() for path in paths] == before
    assert world.leftovers() == []
    assert open_rewrites(world) == []


def test_a_fork_is_changed_with_its_session_whose_value_is_cut_anew(world):
    """What the fork was seen to hold has a new record by then, which stands in the fork, too."""
    talk = Conversation()
    ident = talk.turn("x" * 4000)
    original = talk.bytes()
    path = world.put("a.jsonl", original)
    assert world.scan(keep_recent=0).values_extracted == 1
    written = len(talk.lines)
    talk.turn("z" * 4000)
    copy = fork(path, "b", ending=talk.lines[written:])
    os.utime(copy, (time.time() - LONG_AGO,) * 2)
    world.scan(keep_recent=10)
    world.restore(ident, session=str(path), pristine=True)
    world.put("a.jsonl", original)
    report = world.scan(keep_recent=0, keep_after_restore_seconds=0)

    assert outcomes(report) == {"a.jsonl": "changed", "b.jsonl": "changed"}
    assert sql(world, "SELECT session_id, extraction_id FROM placements") == [
        (1, 2),
        (2, 2),
        (2, 3),
    ]
