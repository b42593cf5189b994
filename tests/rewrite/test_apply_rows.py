"""Plans carried out in a database: which errors are reported, and what is recorded."""

import json
import sqlite3
from contextlib import contextmanager

import pytest

from brainsurgeon.agents.rows import UNTRIED
from brainsurgeon.errors import StoreUnusableError
from brainsurgeon.files import leases, transactions
from brainsurgeon.planning import row_steps
from brainsurgeon.store import open_store
from building import claw_agent
from building.claw import GATEWAY, WRITTEN, ClawWorld
from building.full_disk import empty_store_disk, fill_store_disk
from building.world import Conversation, dump

WORLD = ClawWorld


def between_steps(monkeypatch, act):
    """Make steps of two rows each, and call a function once after the first step."""
    monkeypatch.setattr(row_steps, "MOST_ROWS", 2)
    actions = [act]
    sleep = "brainsurgeon.rewrite.apply.time.sleep"
    monkeypatch.setattr(sleep, lambda _: actions and actions.pop()())


def count_differing(before, now):
    return sum(old != new for old, new in zip(before, now, strict=True))


def note_writers(monkeypatch):
    """Note each connection with which an agent's database is changed."""
    opened, original = [], transactions.writing

    @contextmanager
    def noting(path):
        with original(path) as database:
            opened.append(database)
            yield database

    monkeypatch.setattr(transactions, "writing", noting)
    return opened


class TestErrors:
    """An error names the database that it is from, and what became of the rows."""

    def test_store_error_names_the_store(self, world):
        """If the store fails in a step, the run ends with its error and no row has changed."""
        world.scan(only=[f"{world.claw.path}/nobody"])
        world.store._connection.execute("DROP TABLE extractions")
        before = world.claw.contents()

        with pytest.raises(StoreUnusableError) as error, world.store:
            world.scan()

        assert str(world.base / "state" / "store.db") in str(error.value)
        assert str(world.claw.path) not in str(error.value)
        assert isinstance(error.value.__cause__, sqlite3.Error)
        assert world.claw.contents() == before
        world._stores.clear()
        reopened = open_store(str(world.base / "state"))
        assert reopened.journal.open_rewrites() == []
        reopened.close()

    def test_full_disk_of_the_store_in_a_later_step(self, world, monkeypatch):
        """The error names the store and the number of changed rows, which can be restored."""
        before = world.claw.events(GATEWAY)
        world.scan(only=[f"{world.claw.path}/nobody"])
        between_steps(monkeypatch, lambda: fill_store_disk(world.store))

        outcome, reason = world.outcome(GATEWAY)

        assert outcome == "failed"
        assert str(world.base / "state" / "store.db") in reason
        assert "the disk is full" in reason
        changed = count_differing(before, world.claw.events(GATEWAY))
        assert reason.startswith(f"{changed} rows changed, then: ")
        assert changed >= 2
        monkeypatch.undo()
        empty_store_disk(world.store)
        world.restore_all(pristine=True)
        assert world.claw.events(GATEWAY) == before

    def test_database_that_refuses_a_later_step(self, world, monkeypatch):
        """The error names the agent's database and the number of rows changed before."""
        before = world.claw.events(GATEWAY)
        opened = note_writers(monkeypatch)
        between_steps(
            monkeypatch, lambda: opened[-1].execute("PRAGMA query_only = ON")
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
        assert world.claw.events(GATEWAY) == before


class TestRecords:
    """The states of extractions are updated together with changed rows."""

    def test_placeholder_written_back_by_the_agent_is_standing(self, world):
        """If the agent writes the placeholder of a restored value back, its state is standing."""
        world.scan()
        ident = world.placeholders()[0]
        extracted = texts_by_id(world)[ident]
        world.restore(ident)
        assert states(world, ident) == {"restored"}
        set_event_text(world, ident, extracted)
        change_rows(world)

        assert states(world, ident) == {"standing"}

    def test_placeholder_replaced_by_the_agent_is_restored(self, world):
        """If the agent replaces the placeholder by a short text, its state is restored."""
        world.scan()
        ident = world.placeholders()[0]
        entry = json.loads(texts_by_id(world)[ident])
        entry["message"] |= {"content": [{"type": "text", "text": "short"}], "details": {}}
        assert states(world, ident) == {"standing"}
        set_event_text(world, ident, dump(entry).rstrip())
        change_rows(world)

        assert states(world, ident) == {"restored"}


class TestFilesystems:
    """On a filesystem where SQLite's locks are untested only an exclusive root is written."""

    @pytest.fixture(autouse=True)
    def untested_filesystem(self, monkeypatch):
        """Treat the filesystem as one on which locks were not tested."""
        monkeypatch.setattr(leases, "PROVEN", {})

    def test_database_on_an_untested_filesystem_is_skipped(self, world):
        """Each session is skipped with the reason."""
        before = world.claw.contents()

        outcome, reason = world.outcome(GATEWAY)

        assert outcome == "skipped"
        assert reason.startswith(UNTRIED.partition("{")[0])
        assert world.claw.contents() == before

    def test_database_below_an_exclusive_root_is_scanned_and_restored(self, world):
        """Below an exclusive root values are extracted, and one or all are restored."""
        before = world.claw.events(GATEWAY)
        roots = [{"path": str(world.claw.root), "exclusive": True}]
        world.scan(roots=roots)
        ident = world.placeholders()[0]

        answer = world.restore(ident, roots=roots)

        assert not answer.pending
        assert ident not in world.placeholders()
        outcomes = world.restore_all(roots=roots, pristine=True)
        assert {outcome.state for outcome in outcomes} == {"restored"}
        assert world.claw.events(GATEWAY) == before


def texts_by_id(world):
    return {json.loads(text)["id"]: text for text in world.claw.texts(GATEWAY)}


def states(world, ident):
    """Return the states of the extractions from an entry of the session."""
    row = world.store.sessions.at(f"{world.claw.path}/{GATEWAY}")
    records = world.store.extractions.of_session(row.id)
    return {record.state for record in records if record.entry_id == ident}


def set_event_text(world, ident, text):
    seq = next(seq for seq, now in world.claw.events(GATEWAY) if json.loads(now)["id"] == ident)
    world.claw.sql(
        "UPDATE transcript_events SET event_json = CAST(? AS TEXT), event_utf8_bytes = ?,"
        " event_zstd = NULL, navigation_json = NULL WHERE session_id = ? AND seq = ?",
        (text, len(text), GATEWAY, seq),
    )


def change_rows(world):
    """Append a turn as the agent and extract its result, so that rows are changed."""
    talk = Conversation()
    talk.last = json.loads(world.claw.texts(GATEWAY)[-1])["id"]
    talk.call()
    ident = talk.result("what it printed " * 300)
    talk.assistant()
    with claw_agent.transaction(world.claw.path) as agent:
        for entry in talk.lines[1:]:
            claw_agent.append(agent, GATEWAY, dump(entry).rstrip(), int(WRITTEN * 1000))
    world.later(3600)
    assert world.outcome(GATEWAY, keep_recent=0)[0] == "changed"
    assert ident in world.placeholders()
