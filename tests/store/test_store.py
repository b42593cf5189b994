"""Transactions: all or nothing, on full and failing disks, with two writers."""

import secrets
import sqlite3

import pytest

from brainsurgeon.errors import BusyError, StoreFullError
from brainsurgeon.store import database, open_store
from building.processes import OtherProcess
from building.store_rows import OPEN_STORE, count_rows, pragma, store_session


def test_a_transaction_is_all_or_nothing(store):
    """A block that fails leaves nothing of what it wrote."""

    def failing():
        with store.transaction():
            store._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()

    assert count_rows(store, "meta") == 0
    assert not store._connection.in_transaction


def test_a_full_disk_is_said_as_one_and_undone(store):
    """When the database cannot grow, StoreFull says so and nothing of the transaction stays."""
    pages = pragma(store, "page_count")
    store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreFullError) as full, store.transaction():
        store.blobs.put(secrets.token_bytes(100_000))

    assert count_rows(store, "blobs") == 0
    assert not store._connection.in_transaction
    assert full.value.exit_code == 1


def test_a_store_that_somebody_writes_to_for_long_is_busy(directory, monkeypatch):
    """A writer that does not let go in time makes the others Busy, not broken."""
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    store = open_store(directory)
    other = OtherProcess(*(step.format(directory=directory) for step in OPEN_STORE))
    other.evaluate("str(store._connection.execute('BEGIN IMMEDIATE'))")
    with pytest.raises(BusyError) as busy, store.transaction():
        pass
    other.evaluate("str(store._connection.execute('COMMIT'))")
    with store.transaction():
        store._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    other.kill()

    assert busy.value.exit_code == 6
    assert count_rows(store, "meta") == 1
    store.close()


def test_two_processes_write_at_once(store, neighbour):
    """Transactions of two processes wait for each other; none is lost, torn or refused."""
    rounds = 40
    store_session(store, session="x")
    neighbour.execute(f"""
        for number in range({rounds}):
            with store.transaction():
                store._connection.execute(
                    "INSERT INTO meta VALUES (?, ?)", (f"theirs{{number}}", "x" * 5000))
                grown = "UPDATE sessions SET name = name || 't'"
                store._connection.execute(grown)
    """)
    for number in range(rounds):
        with store.transaction():
            store._connection.execute(
                "INSERT INTO meta VALUES (?, ?)", (f"ours{number}", "x" * 5000)
            )
            store._connection.execute("UPDATE sessions SET name = name || 'o'")
    neighbour.receive(60)
    (name,) = store._connection.execute("SELECT name FROM sessions").fetchone()

    assert count_rows(store, "meta") == 2 * rounds
    assert (name.count("o"), name.count("t")) == (rounds, rounds)
    assert pragma(store, "integrity_check") == "ok"


def test_a_failing_disk_is_never_called_untouched():
    """An error of the disk may come after the exchange: what is said then holds there too."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"

    told = str(database.explain(error, "/state"))

    assert "the disk fails" in told
    assert "nothing was touched" not in told
