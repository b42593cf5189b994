"""store rescue: readable rows of a damaged store are copied into a new one."""

import os
import random

import pytest

from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.lookup.sessions import all_sessions
from brainsurgeon.model.records import Confirmation
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.status import check, status
from brainsurgeon.operations.store import rescue
from brainsurgeon.store import open_store, salvage
from brainsurgeon.store.salvage import LOST
from building.database_pages import damage_pages, leaf_pages
from building.world import LATER, Conversation, sql


def scan_many_values(world, turns=60):
    """Prune sessions with many different values and return their number."""
    for number in range(4):
        dice = random.Random(number)
        conversation = Conversation(f"{number:08}-0000-4000-8000-000000000009")
        for _ in range(turns):
            conversation.turn(dice.randbytes(1500).hex())
        world.put(f"many{number}.jsonl", conversation.bytes())
    return world.scan(keep_recent=0).values_extracted


def damage_tables(world, *names):
    """Overwrite every leaf page of some tables or indexes with garbage."""
    world.close()
    for name in names:
        damage_pages(world.state / "store.db", *leaf_pages(world.state / "store.db", name))


def test_rescue_leaves_an_intact_store(world, pruned):
    """An intact store is not replaced."""
    world.close()
    assert rescue(world.settings(), LATER) == []
    assert sorted(os.listdir(world.state)) == ["locks", "store.db"]


def test_rescue_of_a_damaged_page_loses_only_its_values(world):
    """The values of a damaged page get tombstones, and all others are restored."""
    total = scan_many_values(world)
    world.close()
    pages = leaf_pages(world.state / "store.db", "blobs")
    assert len(pages) > 5
    damage_pages(world.state / "store.db", pages[len(pages) // 2])
    copied, lost_finding, *_ = rescue(world.settings(), LATER)
    lost = sql(world, "SELECT count(*) FROM extractions WHERE blob_id IS NULL")[0][0]

    assert 0 < lost < total // 4
    assert f" {total - lost} stored values and " in copied.what
    assert copied.what.endswith(" other records were copied into a new one")
    assert lost_finding.what == f"{lost} stored values are lost"
    assert sql(world, "SELECT DISTINCT expired_why, expired_at FROM extractions"
                      " WHERE blob_id IS NULL") == [(LOST, LATER)]  # fmt: skip
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert os.path.exists(copied.advice.partition("kept as ")[2].partition(";")[0])
    values = sum(outcome.values_restored for outcome in world.restore_all())
    assert values == total - lost


def test_doctor_counts_placeholders_of_lost_values(world):
    """`doctor` and `status --check` count placeholders of lost values until they are gone."""
    conversation = Conversation()
    conversation.turn("x" * 3000)
    kept = world.put("kept.jsonl", conversation.bytes())
    scan_many_values(world)
    world.close()
    pages = leaf_pages(world.state / "store.db", "blobs")
    damage_pages(world.state / "store.db", pages[len(pages) // 2])
    lost = rescue(world.settings(), LATER)[1].what.partition(" ")[0]
    expected = f", {lost} expired, 0 without a record"
    trouble = f"{lost} placeholders in sessions have no stored value: see `doctor`"

    for _ in range(2):
        with open_store(str(world.state)) as store:
            findings = doctor(world.settings(), store)
            troubles = check(status(world.settings(), store, LATER), LATER)
        *listed, total = [finding.what for finding in findings if finding.level == "error"]
        assert all("a value that expired or was lost" in what or "values" in what
                   for what in listed)  # fmt: skip
        assert total.endswith(expected)
        assert troubles == [trouble]

    for path in kept.parent.glob("many*"):
        path.unlink()
    with open_store(str(world.state)) as store:
        retention(world.settings(), store, clock=lambda: LATER)
        assert check(status(world.settings(), store, LATER), LATER) == []


@pytest.mark.parametrize(
    "table", ["extractions", "files", "journal", "meta", "placements", "resumes"]
)
def test_rescue_of_a_damaged_table_leaves_an_intact_store(world, table):
    """A damaged page of any other table costs no value, and the new store passes its checks."""
    total = scan_many_values(world, turns=25)
    world.close()
    damage_pages(world.state / "store.db", leaf_pages(world.state / "store.db", table)[-1])
    copied = rescue(world.settings(), LATER)[0].what

    assert f" {total} stored values and " in copied
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert sql(world, "PRAGMA foreign_key_check") == []
    assert world.scan(keep_recent=0).files_failed == 0


def test_rescue_keeps_the_row_id_sequences(world):
    """A row added after a rescue never gets the id of a lost one."""
    scan_many_values(world, turns=25)
    used = sql(world, "SELECT name, seq FROM sqlite_sequence ORDER BY name")
    damage_tables(world, "blobs", "events")
    rescue(world.settings(), LATER)

    assert sql(world, "SELECT count(*) FROM events") == [(0,)]
    assert sql(world, "SELECT name, seq FROM sqlite_sequence ORDER BY name") == used


def test_rescue_refuses_an_unreadable_store(world, pruned, monkeypatch):
    """If no value can be read the store stays, and the error names `store restore`."""
    world.close()
    path = world.state / "store.db"
    path.write_bytes(b"\xff" * 30_000)
    monkeypatch.setattr(salvage, "_BEYOND", 100)  # the row ids to try of a table without any
    with pytest.raises(StoreUnusableError, match="store restore FILE"):
        rescue(world.settings(), LATER)
    assert path.read_bytes() == b"\xff" * 30_000
    assert sorted(os.listdir(world.state)) == ["daemon.lock", "locks", "store.db"]


def test_rescue_without_runs_restores_every_value(world):
    """Values whose runs were lost are restored, and no value is reported as lost."""
    total = scan_many_values(world)
    damage_tables(world, "runs")

    findings = rescue(world.settings(), LATER)

    assert findings
    assert not any("lost" in finding.what for finding in findings)
    assert sql(world, "SELECT count(*), count(run_id) FROM extractions") == [(total, 0)]
    world.restore_all(pristine=True)
    left = [finding.read_bytes() for finding in world.root.rglob("*.jsonl")]
    assert left
    assert not any(b"[[extracted-" in finding for finding in left)


def test_interrupted_rewrite_is_finished_after_a_rescue(world):
    """A rewrite in the journal is finished although its run was lost."""
    scan_many_values(world)
    path = world.directory / "many0.jsonl"
    confirmation = Confirmation([], [], [], [], LATER, run_id=1)
    file = next(session.file for session in all_sessions(world.settings(), world.store)
                if session.path == str(path))  # fmt: skip
    with world.store.transaction():
        journal_id = world.store.journal.begin(1, file, ".gone", confirmation)
        inode = file.fingerprint.inode
        world.store.journal.update(journal_id, new_inode=inode, inode=1)
    world.close()
    mark_unconfirmed(world, journal_id)
    damage_tables(world, "runs")
    rescue(world.settings(), LATER)

    assert [session.what for session in world.scan().recovered] == ["finished"]
    assert sql(world, "SELECT count(*) FROM extractions WHERE journal_id IS NOT NULL") == [(0,)]


def mark_unconfirmed(world, journal_id):
    """Mark the extractions of the first session as part of a rewrite in progress."""
    sql(world, "UPDATE extractions SET journal_id = ? WHERE session_id = 1", (journal_id,))
    sql(world, "DELETE FROM placements WHERE session_id = 1")


def test_values_of_a_rewrite_without_a_journal_row_are_restored(world):
    """Values of a rewrite whose journal row was lost count as extracted and are restored."""
    total = scan_many_values(world, turns=10)
    world.close()
    mark_unconfirmed(world, 7)
    damage_tables(world, "journal")
    rescue(world.settings(), LATER)

    assert sum(outcome.values_restored for outcome in world.restore_all()) == total
    assert count_placeholders(world) == 0


def count_placeholders(world):
    return sum(path.read_bytes().count(b'"[[extracted-') for path in world.root.rglob("*.jsonl"))


@pytest.mark.parametrize("moved", [False, True])
def test_rescue_re_creates_lost_session_rows(world, moved):
    """Lost rows are re-created from the indexes of paths and ids, for moved files too."""
    total = scan_many_values(world, turns=15)
    sessions = sql(world, "SELECT id, path, name, identity FROM sessions ORDER BY id")
    damage_tables(world, "sessions")

    copied, *others = rescue(world.settings(), LATER)

    assert f" {total} stored values and " in copied.what
    [finding] = others
    assert finding.level == "warning"
    assert finding.what == "sessions: 4 records were lost and re-created"
    assert sessions == sql(world, "SELECT id, path, name, identity FROM sessions ORDER BY id")
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert sql(world, "PRAGMA foreign_key_check") == []
    if moved:
        (world.directory / "many0.jsonl").rename(world.directory / "elsewhere.jsonl")
    assert sum(outcome.values_restored for outcome in world.restore_all(pristine=True)) == total
    assert count_placeholders(world) == 0


def test_scan_after_a_rescue_keeps_the_session_rows(world):
    """A scan after a rescue adds no row for the same sessions, and everything is restored."""
    scan_many_values(world, turns=15)
    damage_tables(world, "sessions")
    rescue(world.settings(), LATER)
    for path in world.directory.glob("many*.jsonl"):
        path.touch()
    assert world.scan(keep_recent=0).files_failed == 0

    assert sql(world, "SELECT count(*) FROM sessions WHERE path IS NOT NULL") == [(4,)]
    assert sql(world, "SELECT count(*) FROM sessions") == [(4,)]
    world.restore_all(pristine=True)
    assert count_placeholders(world) == 0


def test_values_without_session_rows_and_indexes_are_restored(world):
    """Placeholders name their values, so no row or index of a session is needed."""
    total = scan_many_values(world, turns=15)
    damage_tables(world, "sessions", "sqlite_autoindex_sessions_1", "sessions_identity")
    copied, re_created = rescue(world.settings(), LATER)

    assert f" {total} stored values and " in copied.what
    assert re_created.what == "sessions: 4 records were lost and re-created"
    assert sql(world, "SELECT DISTINCT path, agent_directory FROM sessions") == [
        (None, b"/lost-with-a-damaged-store")
    ]
    world.restore_all(pristine=True)
    assert count_placeholders(world) == 0


def test_values_of_lost_sessions_are_kept_without_a_complaint(world, clock):
    """Values whose session and its record are lost are kept, and no root is reported for them."""
    total = scan_many_values(world, turns=15)
    damage_tables(world, "sessions", "sqlite_autoindex_sessions_1", "sessions_identity")
    rescue(world.settings(), LATER)
    (world.directory / "many0.jsonl").unlink()
    clock.now = LATER
    world.scan(keep_recent=0)
    held = []
    for _ in range(40):
        clock.now += 86_400
        for path in world.directory.iterdir():
            os.utime(path, (clock.now,) * 2)
        report = retention(world.settings(), world.store, clock=clock)
        held.append((report.values_held, report.held_back))

    assert report.values_deleted == 0
    assert held[1:] == [(total, {})] * 39
    assert check(status(world.settings(), world.store, clock.now), clock.now) == []


def test_rescue_re_creates_the_placements_of_stored_values(world):
    """Lost placements are re-created for values in place and not for restored ones."""
    scan_many_values(world, turns=15)
    world.restore_all(session=str(world.directory / "many0.jsonl"))
    placements = sql(world, "SELECT session_id, extraction_id FROM placements")
    assert 0 < len(placements) < sql(world, "SELECT count(*) FROM extractions")[0][0]
    damage_tables(world, "placements", "placements_extraction")
    rescue(world.settings(), LATER)

    assert sql(world, "SELECT session_id, extraction_id FROM placements") == placements
