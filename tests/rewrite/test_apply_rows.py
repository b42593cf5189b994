"""Plans carried out in a database: what goes wrong is said of the one that it went wrong with."""

import sqlite3

import pytest

from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.sessions import row_edits, rows
from brainsurgeon.store import open_store
from building.claw import GATEWAY, ClawWorld


@pytest.fixture
def world(tmp_path):
    """Give a world with a database and a store."""
    one = ClawWorld(tmp_path)
    yield one
    one.close()


def full(store):
    """Let our store's disk be full from now on."""
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")


def between_steps(monkeypatch, act):
    """Take steps of two rows each, and do something once after the first of them."""
    monkeypatch.setattr(row_edits, "MOST_ROWS", 2)
    left = [act]
    monkeypatch.setattr(
        "brainsurgeon.rewrite.apply_rows.time.sleep", lambda _: left and left.pop()()
    )


def differing(before, now):
    """Count the rows that are not as they were."""
    return sum(one != other for one, other in zip(before, now, strict=True))


def writers(monkeypatch):
    """Note each agent's database that is opened for changing rows."""
    opened, begin = [], rows.RowWriter.__init__

    def noting(writer, *arguments):
        begin(writer, *arguments)
        opened.append(writer)

    monkeypatch.setattr(rows.RowWriter, "__init__", noting)
    return opened


class TestTroubles:
    """An error names the database that it comes from, and what became of the rows."""

    def test_our_own_store_is_blamed_for_its_own_errors(self, world):
        """Where our store fails in the middle of a step, that is what is said, and no row changes.

        The agent's database has nothing to do with it, and the whole pass ends: every session
        needs the store.
        """
        world.scan(only=[f"{world.claw.path}/nobody"])
        world.store._connection.execute("DROP TABLE row_columns")
        before = world.claw.contents()

        with pytest.raises(StoreUnusableError) as told, world.store:
            world.scan()

        assert str(world.base / "state" / "store.db") in str(told.value)
        assert str(world.claw.path) not in str(told.value)
        assert isinstance(told.value.__cause__, sqlite3.Error)
        assert world.claw.contents() == before
        world._stores.clear()
        again = open_store(str(world.base / "state"))
        assert again.journal.open_rewrites() == []
        again.close()

    def test_a_full_disk_of_ours_in_a_later_step_is_said_so(self, world, monkeypatch):
        """The store is named, and that what was changed before that stays so, recorded."""
        before = world.claw.columns(GATEWAY)
        world.scan(only=[f"{world.claw.path}/nobody"])
        between_steps(monkeypatch, lambda: full(world.store))

        outcome, reason = world.outcome(GATEWAY)

        assert outcome == "failed"
        assert str(world.base / "state" / "store.db") in reason
        assert "the disk is full" in reason
        changed = differing(before, world.claw.columns(GATEWAY))
        assert reason.endswith(f"; {changed} rows changed before that")
        assert changed >= 2
        monkeypatch.undo()
        world.store._connection.execute("PRAGMA max_page_count = 1000000")
        world.restore_all(pristine=True)
        assert world.claw.columns(GATEWAY) == before

    def test_a_database_that_refuses_a_later_step_is_said_so(self, world, monkeypatch):
        """The agent's database is named, and that what was changed before that stays so."""
        before = world.claw.columns(GATEWAY)
        opened = writers(monkeypatch)
        between_steps(
            monkeypatch, lambda: opened[-1].database.execute("PRAGMA query_only = ON")
        )  # fmt: skip

        outcome, reason = world.outcome(GATEWAY)

        assert outcome == "failed"
        assert reason == (
            f"{world.claw.path}: it cannot be written (SQLITE_READONLY); nothing more was changed;"
            " 2 rows changed before that"
        )
        assert 0 < len(world.stubs()) <= 2
        monkeypatch.undo()
        world.restore_all(pristine=True)
        assert world.claw.columns(GATEWAY) == before
