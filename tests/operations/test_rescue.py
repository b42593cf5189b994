"""Readable rows of a damaged store are copied into a new one; the pages are damaged for real."""

import os
import random

import pytest

from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.lookup.sessions import all_sessions
from brainsurgeon.model.records import Confirmation
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.store import rescue
from brainsurgeon.store import open_store
from brainsurgeon.store.salvage import LOST
from building.database_pages import damage_pages, leaf_pages
from building.world import LATER, Conversation, sql


def many(world, turns=60):
    """Prune sessions with many different values, so that the tables have many pages."""
    for number in range(4):
        dice = random.Random(number)
        one = Conversation(f"{number:08}-0000-4000-8000-000000000009")
        for _ in range(turns):
            one.turn(dice.randbytes(1500).hex())
        world.put(f"many{number}.jsonl", one.bytes())
    return world.scan(keep_recent=0).values_extracted


def ruin(world, *names):
    """Write garbage over every leaf page of these tables or indexes."""
    world.close()
    for name in names:
        damage_pages(world.state / "store.db", *leaf_pages(world.state / "store.db", name))


def test_a_sound_store_needs_no_rescue(world, pruned):
    """An intact store is not replaced."""
    world.close()
    assert rescue(world.settings(), LATER) == []
    assert sorted(os.listdir(world.state)) == ["locks", "store.db"]


def test_what_a_damaged_store_still_holds_is_saved(world):
    """A damaged page of values costs only those: they get tombstones, the rest is restored."""
    total = many(world)
    world.close()
    pages = leaf_pages(world.state / "store.db", "blobs")
    assert len(pages) > 5
    damage_pages(world.state / "store.db", pages[len(pages) // 2])
    copied, gone, *_ = rescue(world.settings(), LATER)
    lost = sql(world, "SELECT count(*) FROM extractions WHERE blob_id IS NULL")[0][0]

    assert 0 < lost < total // 4
    assert f" {total - lost} stored values and " in copied.what
    assert gone.what == f"{lost} stored values are lost"
    assert sql(world, "SELECT DISTINCT expired_why, expired_at FROM extractions"
                      " WHERE blob_id IS NULL") == [(LOST, LATER)]  # fmt: skip
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert os.path.exists(copied.advice.partition("kept as ")[2].partition(";")[0])
    values = sum(one.values for one in world.restore_all())
    assert values == total - lost


def test_the_doctor_keeps_naming_what_was_lost(world):
    """As long as their placeholders stand, lost values are counted by each run of the doctor."""
    many(world)
    world.close()
    pages = leaf_pages(world.state / "store.db", "blobs")
    damage_pages(world.state / "store.db", pages[len(pages) // 2])
    lost = rescue(world.settings(), LATER)[1].what.partition(" ")[0]
    expected = f"{lost} placeholders lead to values lost with a damaged store"

    for _ in range(2):
        with open_store(str(world.state)) as store:
            findings = [one for one in doctor(world.settings(), store) if one.level == "error"]
        assert [one.what for one in findings] == [expected]


@pytest.mark.parametrize(
    "table", ["extractions", "files", "journal", "meta", "placements", "resumes"]
)
def test_a_ruined_page_of_any_table_leaves_a_sound_store(world, table):
    """Whichever table a damaged page belongs to, the new store is sound and holds every value."""
    total = many(world, turns=25)
    world.close()
    damage_pages(world.state / "store.db", leaf_pages(world.state / "store.db", table)[-1])
    copied = rescue(world.settings(), LATER)[0].what

    assert f" {total} stored values and " in copied
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert sql(world, "PRAGMA foreign_key_check") == []
    assert world.scan(keep_recent=0).files_failed == 0


def test_row_ids_are_not_used_again_after_a_rescue(world):
    """A row that is added after a rescue never gets the id of a lost one."""
    many(world, turns=25)
    used = sql(world, "SELECT name, seq FROM sqlite_sequence ORDER BY name")
    ruin(world, "blobs", "events")
    rescue(world.settings(), LATER)

    assert sql(world, "SELECT count(*) FROM events") == [(0,)]
    assert sql(world, "SELECT name, seq FROM sqlite_sequence ORDER BY name") == used


def test_a_store_of_which_nothing_can_be_read_stays(world, pruned):
    """If no value can be read, nothing is touched, and the message says what to do."""
    world.close()
    path = world.state / "store.db"
    path.write_bytes(b"\xff" * 30_000)
    with pytest.raises(StoreUnusableError, match="store restore FILE"):
        rescue(world.settings(), LATER)
    assert path.read_bytes() == b"\xff" * 30_000
    assert sorted(os.listdir(world.state)) == ["daemon.lock", "locks", "store.db"]


def test_without_their_run_values_go_back_all_the_same(world):
    """Without the records of runs every value is restored."""
    total = many(world)
    ruin(world, "runs")

    findings = rescue(world.settings(), LATER)

    assert findings
    assert not any("lost" in one.what for one in findings)
    assert sql(world, "SELECT count(*), count(run_id) FROM extractions") == [(total, 0)]
    world.restore_all(pristine=True)
    left = [one.read_bytes() for one in world.root.rglob("*.jsonl")]
    assert left
    assert not any(b"[[extracted-" in one for one in left)


def test_a_rewrite_that_a_crash_cut_off_is_finished_without_its_run(world):
    """A rewrite that was under way when the store was damaged counts, though its run is lost."""
    many(world)
    path = world.directory / "many0.jsonl"
    confirmation = Confirmation([], [], [], [], LATER, run_id=1)
    file = next(one.file for one in all_sessions(world.settings(), world.store)
                if one.path == str(path))  # fmt: skip
    with world.store.transaction():
        begun = world.store.journal.begin(1, file, ".gone", confirmation)
        inode = file.fingerprint.inode
        world.store.journal.update(begun, new_inode=inode, inode=1)
    world.close()
    pending(world, begun)
    ruin(world, "runs")
    rescue(world.settings(), LATER)

    assert [one.what for one in world.scan().recovered] == ["finished"]
    assert sql(world, "SELECT count(*) FROM extractions WHERE journal_id IS NOT NULL") == [(0,)]


def pending(world, journal_id):
    """Mark what was extracted from the first session as part of a rewrite under way."""
    sql(world, "UPDATE extractions SET journal_id = ? WHERE session_id = 1", (journal_id,))
    sql(world, "DELETE FROM placements WHERE session_id = 1")


def test_a_rewrite_whose_record_is_lost_counts(world):
    """Values of a rewrite that no journal row knows any more are restored like others."""
    total = many(world, turns=10)
    world.close()
    pending(world, 7)
    ruin(world, "journal")
    rescue(world.settings(), LATER)

    assert sum(one.values for one in world.restore_all()) == total
    assert placeholders_below(world) == 0


def placeholders_below(world):
    return sum(one.read_bytes().count(b'"[[extracted-') for one in world.root.rglob("*.jsonl"))


def test_without_the_rows_of_sessions_values_go_back_all_the_same(world):
    """Sessions whose rows are lost are found again by the paths and ids in the indexes."""
    total = many(world, turns=15)
    known = sql(world, "SELECT id, path, name, identity FROM sessions ORDER BY id")
    ruin(world, "sessions")

    copied, *others = rescue(world.settings(), LATER)

    assert f" {total} stored values and " in copied.what
    assert [(one.level, one.what) for one in others] == [
        ("warning", "sessions: 4 rows were lost and re-created")
    ]
    assert known == sql(world, "SELECT id, path, name, identity FROM sessions ORDER BY id")
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert sql(world, "PRAGMA foreign_key_check") == []
    assert sum(one.values for one in world.restore_all(pristine=True)) == total
    assert placeholders_below(world) == 0


def test_a_session_that_was_moved_meanwhile_is_known_by_its_identity(world):
    """A session whose row was lost and whose file was moved since is found by its id."""
    total = many(world, turns=15)
    ruin(world, "sessions")
    rescue(world.settings(), LATER)
    (world.directory / "many0.jsonl").rename(world.directory / "elsewhere.jsonl")

    assert sum(one.values for one in world.restore_all(pristine=True)) == total
    assert placeholders_below(world) == 0


def test_sessions_are_scanned_again_after_their_rows_were_lost(world):
    """The next scan continues with the same sessions, and everything is restored."""
    many(world, turns=15)
    ruin(world, "sessions")
    rescue(world.settings(), LATER)
    for path in world.directory.glob("many*.jsonl"):
        path.touch()
    assert world.scan(keep_recent=0).files_failed == 0

    assert sql(world, "SELECT count(*) FROM sessions WHERE path IS NOT NULL") == [(4,)]
    assert sql(world, "SELECT count(*) FROM sessions") == [(4,)]
    world.restore_all(pristine=True)
    assert placeholders_below(world) == 0


def test_values_are_restored_though_nothing_is_known_of_their_sessions(world):
    """Placeholders name their values, so that no row or index of a session or agent is needed."""
    total = many(world, turns=15)
    ruin(world, "sessions", "sqlite_autoindex_sessions_1", "sessions_identity")
    copied, remade = rescue(world.settings(), LATER)

    assert f" {total} stored values and " in copied.what
    assert remade.what == "sessions: 4 rows were lost and re-created"
    assert sql(world, "SELECT DISTINCT path, agent_directory FROM sessions") == [
        (None, b"/lost-with-a-damaged-store")
    ]
    world.restore_all(pristine=True)
    assert placeholders_below(world) == 0


def test_values_whose_placements_are_lost_stand_in_their_own_sessions(world):
    """Held values of lost placements are placed again; those that stood nowhere are not."""
    many(world, turns=15)
    world.restore_all(session=str(world.directory / "many0.jsonl"))
    standing = sql(world, "SELECT session_id, extraction_id FROM placements")
    assert 0 < len(standing) < sql(world, "SELECT count(*) FROM extractions")[0][0]
    ruin(world, "placements", "placements_extraction")
    rescue(world.settings(), LATER)

    assert sql(world, "SELECT session_id, extraction_id FROM placements") == standing


def test_a_request_whose_run_is_lost_does_not_restore_everything(world):
    """A request to roll back a lost run is dropped, since without the run it means all of them."""
    many(world, turns=10)
    world.close()
    asked = "INSERT INTO requests (session_id, entry_id, action, asked_at, rolls_back)"
    sql(world, f"{asked} VALUES (1, '*', 'restore', 1.0, 1), (1, 'e', 'restore', 1.0, NULL)")
    ruin(world, "runs")
    rescue(world.settings(), LATER)

    assert sql(world, "SELECT entry_id FROM requests") == [("e",)]
