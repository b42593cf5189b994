"""Transactions: atomic, on a full or failing disk, with two writers."""

import secrets
import sqlite3

import pytest

from brainsurgeon.errors import BusyError, StoreFullError
from brainsurgeon.store import database, open_store
from building.processes import OtherProcess
from building.store_rows import OPEN_STORE, count_rows, pragma, store_session


def test_failed_transaction_writes_nothing(store):
    """A failed transaction writes nothing and is over."""

    def failing():
        with store.transaction():
            store._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()

    assert count_rows(store, "meta") == 0
    assert not store._connection.in_transaction


def test_full_disk_undoes_the_transaction_and_raises_store_full(store):
    """A full disk undoes the transaction and raises StoreFullError with exit code 1."""
    pages = pragma(store, "page_count")
    store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StoreFullError) as error, store.transaction():
        store.blobs.put(secrets.token_bytes(100_000))

    assert count_rows(store, "blobs") == 0
    assert not store._connection.in_transaction
    assert error.value.exit_code == 1


def test_transaction_beside_a_long_writer_raises_busy(directory, monkeypatch):
    """A transaction beside a long writer raises BusyError; a later one succeeds."""
    monkeypatch.setattr(database, "STORE_LOCK_SECONDS", 0.05)
    store = open_store(directory)
    writer = OtherProcess(*(step.format(directory=directory) for step in OPEN_STORE))
    writer.evaluate("str(store._connection.execute('BEGIN IMMEDIATE'))")
    with pytest.raises(BusyError) as error, store.transaction():
        pass
    writer.evaluate("str(store._connection.execute('COMMIT'))")
    with store.transaction():
        store._connection.execute("INSERT INTO meta VALUES ('a', 'b')")
    writer.kill()

    assert error.value.exit_code == 6
    assert count_rows(store, "meta") == 1
    store.close()


def test_transactions_of_two_processes_wait_for_each_other(store, other_process):
    """Transactions of two processes wait for each other; none is lost, torn or refused."""
    rounds = 40
    store_session(store, session="x")
    other_process.execute(f"""
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
    other_process.receive(60)
    (name,) = store._connection.execute("SELECT name FROM sessions").fetchone()

    assert count_rows(store, "meta") == 2 * rounds
    assert (name.count("o"), name.count("t")) == (rounds, rounds)
    assert pragma(store, "integrity_check") == "ok"


def test_disk_error_message_does_not_claim_nothing_was_touched():
    """The message of a disk error claims nothing untouched: it may come after the exchange."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorname = "SQLITE_IOERR_FSYNC"

    message = str(database.explain(error, "/state"))

    assert "the disk fails" in message
    assert "nothing was touched" not in message
