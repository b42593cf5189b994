"""Batches: sessions that a run plans and rewrites together share syncs, but fail alone."""

import os
import time

import pytest

from brainsurgeon.errors import BusyError, StoppedError, StoreFullError
from brainsurgeon.files import exchange, leases
from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.scan import scan
from brainsurgeon.rewrite.recover import TOGETHER
from brainsurgeon.store import Store, open_store
from brainsurgeon.store.catalogue import Sessions
from brainsurgeon.store.extractions import Blobs
from building.processes import wait_until
from building.world import (
    LONG_AGO,
    Conversation,
    appending,
    fork,
    open_rewrites,
    put_session,
    sql,
)

# Of a commit: the journal twice, the directory twice, the database.
SYNCS = 5
# Allowed for each session of a run over many.
MOST_SYNCS = 8
PLACEHOLDER = b"[[extracted-"


@pytest.fixture
def paths(world):
    """Return sessions with a value in each, one more than a batch holds."""
    return [write(world, number) for number in range(TOGETHER + 1)]


def write(world, number):
    conversation = Conversation(f"22222222-0000-4000-8000-{number:012}")
    conversation.turn(f"{number} " + "x" * 4000)
    return world.put(f"{number:04}.jsonl", conversation.bytes())


@pytest.fixture
def sync_counts(monkeypatch):
    """Return counts of commits, and of syncs of files and directories."""
    counts = {"commits": 0, "syncs": 0}
    transaction, fsync = Store.transaction, os.fsync

    def counting(store):
        counts["commits"] += 1
        return transaction(store)

    def syncing(descriptor):
        counts["syncs"] += 1
        fsync(descriptor)

    monkeypatch.setattr(Store, "transaction", counting)
    monkeypatch.setattr(os, "fsync", syncing)
    return counts


def outcomes(report):
    return {os.path.basename(outcome.path): outcome.outcome for outcome in report.sessions}


def test_a_run_over_many_sessions_makes_few_syncs(world, paths, sync_counts):
    """A run makes at most eight syncs a session, and leaves no temporary file."""
    assert world.store
    sync_counts.update(commits=0, syncs=0)
    report = world.scan(keep_recent=0)
    syncs = sync_counts["commits"] * SYNCS + sync_counts["syncs"]

    assert report.sessions_changed == len(paths)
    assert syncs <= MOST_SYNCS * len(paths)
    assert world.leftovers() == []
    assert open_rewrites(world) == []


def test_a_run_reports_sessions_in_the_order_of_discovery(world, paths):
    """The order is that of the dry run, although sessions wait for their batch."""
    foretold = world.scan(dry_run=True, keep_recent=0)
    report = world.scan(keep_recent=0)

    assert list(outcomes(report)) == list(outcomes(foretold))
    assert set(outcomes(report).values()) == {"changed"}


@pytest.mark.parametrize("meanwhile", [False, True], ids=["before", "meanwhile"])
def test_an_open_session_is_deferred_alone(world, paths, other_process, monkeypatch, meanwhile):
    """An open session is deferred, if the first check or a later one finds it; others change."""
    before = paths[3].read_bytes()
    if meanwhile:
        monkeypatch.setattr(exchange, "check_closed", lambda _: None)
    other_process.evaluate(f"globals().update(fd=os.open({str(paths[3])!r}, os.O_RDONLY))")
    report = world.scan(keep_recent=0)

    assert outcomes(report).pop(paths[3].name) == "deferred"
    assert report.sessions_changed == len(paths) - 1
    assert paths[3].read_bytes() == before
    assert open_rewrites(world) == []


def test_a_late_opener_delays_only_its_session(world, paths, other_process, monkeypatch):
    """All sessions of the batch change, and the late line is at the end of its session."""
    monkeypatch.setattr("brainsurgeon.files.exchange.WAIT_FOR_CLOSING", 20.0)
    swap, take, leased, late = leases.exchange, leases.take, [], b'{"late":1}\n'
    opening = []

    def taking(descriptor):
        leased.append(descriptor)
        return take(descriptor)

    def exchanging(directory, first, other):
        if other == paths[2].name and not opening:  # reading the file would break the lease
            opening.append(other)
            descriptor = leased[-1]
            other_process.send(
                f"globals().update(fd=os.open({str(paths[2])!r}, os.O_WRONLY | os.O_APPEND))",
                f"os.write(fd, {late!r})", "os.close(fd)",
            )  # fmt: skip
            wait_until(lambda: not leases.held(descriptor))
        swap(directory, first, other)

    monkeypatch.setattr(leases, "take", taking)
    monkeypatch.setattr(leases, "exchange", exchanging)
    report = world.scan(keep_recent=0)

    assert report.sessions_changed == len(paths)
    assert all(PLACEHOLDER in path.read_bytes() for path in paths)
    assert paths[2].read_bytes().endswith(late)
    assert world.leftovers() == []


def test_a_value_that_cannot_be_stored_defers_its_session(world, paths, monkeypatch):
    """The other sessions of the batch are changed."""
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


def test_a_session_that_cannot_be_recorded_fails_alone(world, paths, monkeypatch):
    """The other sessions of the batch are changed."""
    note = Sessions.note

    def noting(sessions, file, *more):
        if file.path == str(paths[1]):
            raise StoreFullError("the disk is full")
        return note(sessions, file, *more)

    monkeypatch.setattr(Sessions, "note", noting)
    report = world.scan(keep_recent=0)

    assert outcomes(report).pop(paths[1].name) == "failed"
    assert report.sessions_changed == len(paths) - 1
    assert PLACEHOLDER not in paths[1].read_bytes()


def test_a_locked_session_is_waited_for_without_other_locks(world, paths, monkeypatch):
    """Two runs that lock the same sessions in different order do not block each other."""
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


def test_a_stopped_run_leaves_planned_sessions_unchanged(world, paths):
    """Sessions that are planned but not yet rewritten keep their bytes."""
    before = [path.read_bytes() for path in paths]
    seen = []

    def stop():
        if len(seen) == 4:
            raise StoppedError

    report = scan(world.settings(keep_recent=0), world.store, watch=Watch(seen.append, stop))

    assert report.stopped
    assert [path.read_bytes() for path in paths] == before
    assert world.leftovers() == []
    assert open_rewrites(world) == []


def test_a_fork_is_updated_when_its_parent_is_extracted_again(world):
    """The placeholder in the fork then refers to the new record of its parent's value."""
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
    placements = sql(world, "SELECT session_id, extraction_id FROM placements")
    assert placements == [(1, 2), (2, 2), (2, 3)]


def test_a_copy_with_the_record_of_a_renamed_session_stays_locked(world, conversation):
    """A copy that takes over a record in the same batch is locked until its rewrite is finished."""
    path, moved = put_session(world, conversation, "a.jsonl"), world.base / "moved.jsonl"
    world.scan(keep_recent=0)
    with appending(path, conversation):
        conversation.turn("y" * 4000)
    before, held = path.read_bytes(), []
    copy = world.put("b.jsonl", before)
    record = world.store.sessions.at(str(path))

    def rename(file):
        if file.path == str(copy):
            path.rename(moved)

    def note(outcome):
        if outcome.path == str(copy):
            try:
                with other.lock(record.id, patience=0):
                    held.append(False)
            except BusyError:
                held.append(True)

    with open_store(str(world.state)) as other:
        report = world.scan(keep_recent=0, watch=Watch(rename, ended=note))

    assert (report.sessions_changed, held) == (1, [True])
    assert world.store.sessions.at(str(copy)).id == record.id
    assert moved.read_bytes() == before
    assert copy.read_bytes().count(PLACEHOLDER) == 2
    assert open_rewrites(world) == []
