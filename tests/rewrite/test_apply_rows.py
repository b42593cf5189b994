"""Plans carried out in a database: what goes wrong is said of the one that it went wrong with."""

import json
import sqlite3

import pytest

from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.sessions import leases, row_writing
from brainsurgeon.sessions.row_listing import UNTRIED
from brainsurgeon.store import open_store
from building import claw_agent
from building.claw import GATEWAY, WRITTEN, ClawWorld
from building.world import dump

WORLD = ClawWorld


def full(store):
    """Let our store's disk be full from now on."""
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")


def between_steps(monkeypatch, act):
    """Take steps of two rows each, and do something once after the first of them."""
    monkeypatch.setattr(row_writing, "MOST_ROWS", 2)
    left = [act]
    monkeypatch.setattr("brainsurgeon.rewrite.apply.time.sleep", lambda _: left and left.pop()())


def differing(before, now):
    return sum(one != other for one, other in zip(before, now, strict=True))


def writers(monkeypatch):
    """Note each agent's database that is opened for changing rows."""
    opened, begin = [], row_writing.RowWriter.__init__

    def noting(writer, *arguments):
        begin(writer, *arguments)
        opened.append(writer)

    monkeypatch.setattr(row_writing.RowWriter, "__init__", noting)
    return opened


class TestTroubles:
    """An error names the database that it comes from, and what became of the rows."""

    def test_our_own_store_is_blamed_for_its_own_errors(self, world):
        """Where our store fails in the middle of a step, that is what is said, and no row changes.

        The agent's database has nothing to do with it, and the whole run ends: every session
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
        assert reason.startswith(f"{changed} rows changed, then: ")
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
            f"2 rows changed, then: {world.claw.path}: it cannot be written (SQLITE_READONLY); this"
            " step changed nothing"
        )
        assert 0 < len(world.placeholders()) <= 2
        monkeypatch.undo()
        world.restore_all(pristine=True)
        assert world.claw.columns(GATEWAY) == before


class TestRecords:
    """What was seen of other placeholders is written down together with what was changed."""

    def test_a_placeholder_that_stands_again_counts_as_standing(self, world):
        """Where its agent brought a restored value's placeholder back, the records say so."""
        world.scan()
        ident = world.placeholders()[0]
        cut = texts_by_id(world)[ident]
        world.restore(ident)
        assert states(world, ident) == {"restored"}
        says(world, ident, cut)
        works(world)

        assert states(world, ident) == {"standing"}

    def test_a_placeholder_that_is_gone_counts_as_standing_no_more(self, world):
        """Where its agent wrote something short instead, the records do not wait for it."""
        world.scan()
        ident = world.placeholders()[0]
        entry = json.loads(texts_by_id(world)[ident])
        entry["message"] |= {"content": [{"type": "text", "text": "short"}], "details": {}}
        assert states(world, ident) == {"standing"}
        says(world, ident, dump(entry).rstrip())
        works(world)

        assert states(world, ident) == {"restored"}


class TestFilesystems:
    """Where SQLite's locks were not tried, only a root that is exclusive is written."""

    @pytest.fixture(autouse=True)
    def untried(self, monkeypatch):
        """Let this machine's filesystem be one on which nothing was tried."""
        monkeypatch.setattr(leases, "PROVEN", {})

    def test_nothing_is_touched_there(self, world):
        """Each session is skipped with the reason."""
        before = world.claw.contents()

        outcome, reason = world.outcome(GATEWAY)

        assert outcome == "skipped"
        assert reason.startswith(UNTRIED.partition("{")[0])
        assert world.claw.contents() == before

    def test_what_was_cut_below_an_exclusive_root_comes_back(self, world):
        """Below such a root a session is extracted, and one or all values are restored."""
        before = world.claw.columns(GATEWAY)
        roots = [{"path": str(world.claw.root), "exclusive": True}]
        world.scan(roots=roots)
        ident = world.placeholders()[0]

        answer = world.restore(ident, roots=roots)

        assert not answer.pending
        assert ident not in world.placeholders()
        told = world.restore_all(roots=roots, pristine=True)
        assert {one.state for one in told} == {"restored"}
        assert world.claw.columns(GATEWAY) == before


def texts_by_id(world):
    return {json.loads(text)["id"]: text for text in world.claw.texts(GATEWAY)}


def records(world, ident):
    """Give what the store says of what was extracted from an entry of the session."""
    here = f"{world.claw.path}/{GATEWAY}"
    row = world.store.sessions.at(here)
    return [one for one in world.store.extractions.of_session(row.id) if one.entry_id == ident]


def states(world, ident):
    return {one.state for one in records(world, ident)}


def says(world, ident, text):
    seq = next(seq for seq, now in world.claw.events(GATEWAY) if json.loads(now)["id"] == ident)
    world.claw.sql(
        "UPDATE transcript_events SET event_json = CAST(? AS TEXT), event_utf8_bytes = ?,"
        " event_zstd = NULL, navigation_json = NULL WHERE session_id = ? AND seq = ?",
        (text, len(text), GATEWAY, seq),
    )


def works(world):
    """Let the agent do a turn, and cut what is in it, so that rows are changed."""
    call = {"type": "toolCall", "id": "c9", "name": "exec", "arguments": {}}
    messages = (
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": "c9", "toolName": "exec", "isError": False,
         "content": [{"type": "text", "text": "what it printed " * 300}]},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}], "stopReason": "stop"},
    )  # fmt: skip
    with claw_agent.transaction(world.claw.path) as agent:
        for number, message in enumerate(messages):
            entry = {"type": "message", "id": f"new-{number}", "timestamp": 1, "message": message}
            claw_agent.append(agent, GATEWAY, dump(entry).rstrip(), int(WRITTEN * 1000))
    world.later(3600)
    assert world.outcome(GATEWAY, keep_recent=0)[0] == "changed"
    assert "new-1" in world.placeholders()
