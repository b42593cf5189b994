"""What a damaged store still holds is saved: pages are really ruined here."""

import os
import random
import sqlite3
from contextlib import closing

import pytest

from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.lookup.sessions import all_sessions
from brainsurgeon.model.records import Confirmation
from brainsurgeon.operations.rescue import rescue, rescued
from brainsurgeon.store import opening
from brainsurgeon.store.salvage import LOST
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


def leaf_pages(world, table):
    """Give the numbers of the pages on which rows of a table lie."""
    with closing(sqlite3.connect(world.state / "store.db")) as database:
        root = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()[0]
    data = (world.state / "store.db").read_bytes()
    found, waiting = [], [root]
    while waiting:
        number = waiting.pop()
        at = (number - 1) * opening.PAGE
        page = data[at : at + opening.PAGE]
        if page[0] == 0x0D:
            found.append(number)
            continue
        cells = int.from_bytes(page[3:5], "big")
        places = [int.from_bytes(page[12 + 2 * i : 14 + 2 * i], "big") for i in range(cells)]
        waiting += [int.from_bytes(page[one : one + 4], "big") for one in places]
        waiting.append(int.from_bytes(page[8:12], "big"))
    return sorted(found)


def spoil(world, page):
    """Write garbage over a page of the database."""
    with open(world.state / "store.db", "r+b") as file:
        file.seek((page - 1) * opening.PAGE)
        file.write(b"\xa5" * opening.PAGE)


def test_a_sound_store_needs_no_rescue(world, pruned):
    """Where nothing is damaged nothing is replaced."""
    world.close()
    assert rescue(world.settings(), LATER) is None
    assert sorted(os.listdir(world.state)) == ["locks", "store.db"]


def test_what_a_damaged_store_still_holds_is_saved(world):
    """One ruined page of values costs these alone: the rest goes back, they get tombstones."""
    total = many(world)
    world.close()
    pages = leaf_pages(world, "blobs")
    assert len(pages) > 5
    spoil(world, pages[len(pages) // 2])
    done = rescue(world.settings(), LATER)
    lost = sql(world, "SELECT count(*) FROM extractions WHERE blob_id IS NULL")[0][0]

    assert 0 < done.saved.values_lost == lost < total // 4
    assert done.saved.values == total - lost
    assert sql(world, "SELECT DISTINCT expired_why, expired_at, state FROM extractions"
                      " WHERE blob_id IS NULL") == [(LOST, LATER, "expired")]  # fmt: skip
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert os.path.exists(done.kept)
    values = sum(one.values for one in world.restore_all())
    assert values == total - lost


@pytest.mark.parametrize("table", ["extractions", "files", "journal", "meta"])
def test_a_ruined_page_of_any_table_leaves_a_sound_store(world, table):
    """Whichever table a page belongs to, what is saved is sound and holds every value."""
    total = many(world, turns=25)
    world.close()
    spoil(world, leaf_pages(world, table)[-1])
    done = rescue(world.settings(), LATER)

    assert done.saved.values == total
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert sql(world, "PRAGMA foreign_key_check") == []
    assert world.scan(keep_recent=0).files_failed == 0


def test_row_ids_are_not_used_again_after_a_rescue(world):
    """A value cut after a rescue never gets the id of one that was lost."""
    many(world, turns=25)
    world.close()
    last = sql(world, "SELECT seq FROM sqlite_sequence WHERE name = 'blobs'")[0][0]
    spoil(world, leaf_pages(world, "blobs")[-1])
    rescue(world.settings(), LATER)

    assert sql(world, "SELECT seq FROM sqlite_sequence WHERE name = 'blobs'")[0][0] >= last


def test_a_store_of_which_nothing_can_be_read_stays(world, pruned):
    """Where not even the tables can be told, nothing is touched, and the way on is named."""
    world.close()
    (world.state / "store.db").write_bytes(b"\xff" * 30_000)
    before = (world.state / "store.db").read_bytes()
    with pytest.raises(StoreUnusableError, match="store restore FILE"):
        rescue(world.settings(), LATER)
    assert (world.state / "store.db").read_bytes() == before


def test_without_their_pass_values_go_back_all_the_same(world):
    """A ruined page of passes costs what was known of those, and no value and no stub's record."""
    total = many(world)
    world.close()
    for page in leaf_pages(world, "passes"):
        spoil(world, page)

    done = rescue(world.settings(), LATER)

    assert done is not None
    assert done.saved.values_lost == 0
    assert sql(world, "SELECT count(*), count(pass_id) FROM extractions") == [(total, 0)]
    world.restore_all(pristine=True)
    left = [one.read_bytes() for one in world.root.rglob("*.jsonl")]
    assert left
    assert not any(b"[[extracted-" in one for one in left)


def test_a_rewrite_that_a_crash_cut_off_is_finished_without_its_pass(world):
    """What was under way when the store was damaged counts, though its pass is lost."""
    many(world)
    path = world.directory / "many0.jsonl"
    confirmation = Confirmation([], [], [], [], LATER, pass_id=1)
    file = next(one.file for one in all_sessions(world.settings(), world.store)
                if one.path == str(path))  # fmt: skip
    with world.store.transaction():
        begun = world.store.journal.begin(1, file, ".gone", confirmation)
    world.close()
    sql(world, "UPDATE journal SET new_inode = inode, inode = 1")
    sql(world, "UPDATE extractions SET state = 'pending', journal_id = ? WHERE session_id = 1",
        (begun,))  # fmt: skip
    for page in leaf_pages(world, "passes"):
        spoil(world, page)
    rescue(world.settings(), LATER)

    assert [one.what for one in world.scan().recovered] == ["finished"]
    assert sql(world, "SELECT count(*) FROM extractions WHERE state = 'pending'") == [(0,)]


def test_without_the_names_of_agents_values_go_back_all_the_same(world):
    """The one page that names all agents is ruined: what was cut from their sessions goes back."""
    total = many(world, turns=10)
    world.close()
    [page] = leaf_pages(world, "agents")
    spoil(world, page)

    done = rescue(world.settings(), LATER)

    assert done is not None
    assert (done.saved.values, done.saved.unread) == (total, {"agents"})
    assert sum(one.values for one in world.restore_all()) == total
    assert sql(world, "PRAGMA foreign_key_check") == []


def ruin(world, *tables):
    """Spoil every page of these tables."""
    world.close()
    for table in tables:
        for page in leaf_pages(world, table):
            spoil(world, page)


def stubs_below(world):
    """Count the stubs that stand in the sessions of a world."""
    return sum(one.read_bytes().count(b'"[[extracted-') for one in world.root.rglob("*.jsonl"))


@pytest.mark.parametrize("tables", [("sessions",), ("sessions", "agents")], ids=len)
def test_without_the_rows_of_sessions_values_go_back_all_the_same(world, tables):
    """Where every page of sessions is ruined, their paths and identities still lead to them."""
    total = many(world, turns=15)
    known = sql(world, "SELECT id, path, name, identity FROM sessions ORDER BY id")
    ruin(world, *tables)

    done = rescue(world.settings(), LATER)

    assert (done.saved.values, done.saved.values_lost) == (total, 0)
    assert (done.saved.sessions_made, done.saved.sessions_lost) == (4, 0)
    assert "sessions: 4 rows were put together again from an index" in [
        one.what for one in rescued(done) if one.level == "warning"
    ]
    assert sql(world, "SELECT id, path, name, identity FROM sessions ORDER BY id") == known
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert sql(world, "PRAGMA foreign_key_check") == []
    assert sum(one.values for one in world.restore_all(pristine=True)) == total
    assert stubs_below(world) == 0


def test_a_session_that_was_moved_meanwhile_is_known_by_its_identity(world):
    """Where its row is lost and its file lies elsewhere now, what it says of itself is enough."""
    total = many(world, turns=15)
    ruin(world, "sessions")
    rescue(world.settings(), LATER)
    (world.directory / "many0.jsonl").rename(world.directory / "elsewhere.jsonl")

    assert sum(one.values for one in world.restore_all(pristine=True)) == total
    assert stubs_below(world) == 0


def test_sessions_are_scanned_again_after_their_rows_were_lost(world):
    """What is cut later is cut of the same sessions, and everything goes back."""
    many(world, turns=15)
    ruin(world, "sessions")
    rescue(world.settings(), LATER)
    for path in world.directory.glob("many*.jsonl"):
        path.touch()
    assert world.scan(keep_recent=0).files_failed == 0

    assert sql(world, "SELECT DISTINCT format FROM sessions") == [("openclaw",)]
    world.restore_all(pristine=True)
    assert stubs_below(world) == 0
