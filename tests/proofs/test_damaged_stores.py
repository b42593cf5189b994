"""Salvage of randomly damaged stores."""

import os
import random
import shutil
import sqlite3
from contextlib import closing

import pytest

from brainsurgeon.errors import DamagedError
from brainsurgeon.store import open_store
from brainsurgeon.store.database import PAGE, connect, create_schema, database_path
from brainsurgeon.store.extractions import Blobs
from brainsurgeon.store.salvage import salvage

VALUES = 1100
DAMAGED = 10  # pages, of about 750
LONG = pytest.mark.long(proves=["store"])
PLACEMENT = "INSERT INTO placements VALUES (?, ?, NULL)"
EXTRACTION = """
INSERT INTO extractions (session_id, entry_id, name, path, kind, block, chars, size, digest,
    blob_id, extracted_at) VALUES (?, ?, ?, 't0', 'text', 0, ?, ?, ?, ?, 1.0)
"""


@pytest.fixture(scope="module", params=["grown", "compacted"])
def whole(request, tmp_path_factory):
    """Return the path of a store with 1,100 values of 40 sessions, as it grew or compacted."""
    directory = str(tmp_path_factory.mktemp("whole"))
    dice = random.Random(27)
    with open_store(directory) as store:
        rows = store._connection
        with store.transaction():
            for number in range(1, 41):
                path = b"/a/s%d.jsonl" % number
                rows.execute(
                    "INSERT INTO sessions (id, agent, agent_directory, name, path, last_path, root,"
                    " format) VALUES (?, 'a', x'2f61', 's', ?, ?, x'2f', 'pi')",
                    (number, path, path),
                )  # fmt: skip
        for number in range(1, VALUES + 1):
            with store.transaction():
                value = dice.randbytes(dice.randrange(100, 2500)).hex().encode()
                blob, digest, _ = store.blobs.put(value)
                session, size, entry = number % 40 + 1, len(value), f"e{number}"
                rows.execute(EXTRACTION, (session, entry, entry, size, size, digest, blob))
                rows.execute(PLACEMENT, (session, number))
        if request.param == "compacted":
            rows.execute("VACUUM")
    return database_path(directory)


def damage(whole, directory, dice, first):
    """Return a copy of a store with DAMAGED pages overwritten, at page `first` or later."""
    directory.mkdir(mode=0o700)
    path = database_path(str(directory))
    shutil.copy(whole, path)
    pages = os.path.getsize(path) // PAGE
    with open(path, "r+b") as file:
        if dice.random() < 0.5:  # in one piece, as by a stray write, or scattered
            start = dice.randrange(first, pages - DAMAGED)
            numbers = range(start, start + DAMAGED)
        else:
            numbers = dice.sample(range(first, pages), DAMAGED)
        for number in numbers:
            file.seek(number * PAGE)
            file.write(bytes(PAGE) if dice.random() < 0.3 else dice.randbytes(PAGE))
    return path


def readable(path, whole):
    """Return the values that single look-ups read, by name; `whole` says what is right."""
    values = {}
    with closing(connect(path, "ro")) as rows, closing(sqlite3.connect(whole)) as right:
        named = "SELECT name, digest, blob_id FROM extractions"
        for number in range(1, VALUES + 1):
            expected = right.execute(f"{named} WHERE id = ?", (number,)).fetchone()
            try:
                if rows.execute(f"{named} WHERE id = ?", (number,)).fetchone() == expected:
                    name, digest, blob = expected
                    values[name] = Blobs(rows).get(blob, digest)
            except (sqlite3.Error, DamagedError):
                pass
    return values


def salvage_values(path, tmp_path):
    """Salvage a store; return the values of the new one by name, each with the right digest."""
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    salvage(os.path.dirname(path), database_path(str(fresh)), 9.0)
    with open_store(str(fresh)) as store:
        assert store.damage() is None
        return {
            name: store.extractions.value(ident)
            for ident, name in store._connection.execute(
                "SELECT id, name FROM extractions WHERE blob_id IS NOT NULL"
            ).fetchall()
        }


# Pages below 51 hold the schema and the roots of tables: the short form leaves them whole.
@pytest.mark.parametrize(("seed", "first"), [
    *((seed, 51) for seed in range(5)),
    *(pytest.param(seed, 2 if seed % 2 else 51, marks=LONG) for seed in range(5, 100)),
])  # fmt: skip
def test_salvage_saves_every_value_that_a_look_up_can_read(whole, tmp_path, seed, first):
    """Every value that a single look-up reads is in the new store, and none is wrong."""
    path = damage(whole, tmp_path / "damaged", random.Random(seed), first)
    expected = readable(path, whole)
    saved = salvage_values(path, tmp_path)
    print(f"{seed}: {len(expected)} of {VALUES} can be looked up, {len(saved)} are saved")
    assert saved.items() >= expected.items()
    with closing(sqlite3.connect(whole)) as right:
        for name, value in saved.items():
            query = "SELECT digest, blob_id FROM extractions WHERE name = ?"
            digest, blob = right.execute(query, (name,)).fetchone()
            assert Blobs(right).get(blob, digest) == value


def schema_pages():
    """Return the page numbers of an empty store that hold its schema."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        create_schema(empty)
        roots = {page for (page,) in empty.execute("SELECT rootpage FROM sqlite_schema")}
        [(pages,)] = empty.execute("PRAGMA page_count")
    return sorted(set(range(1, pages + 1)) - roots - {2})  # page 2 maps pointers


@pytest.mark.parametrize("zeros", [True, False], ids=["zeros", "random"])
@pytest.mark.parametrize("number", schema_pages())
def test_salvage_saves_all_values_if_a_schema_page_is_lost(whole, tmp_path, number, zeros):
    """Any one page of the schema is overwritten with zeros or random bytes."""
    directory = tmp_path / "damaged"
    directory.mkdir(mode=0o700)
    path = database_path(str(directory))
    shutil.copy(whole, path)
    with open(path, "r+b") as file:
        file.seek((number - 1) * PAGE)
        file.write(bytes(PAGE) if zeros else random.Random(number).randbytes(PAGE))

    assert len(salvage_values(path, tmp_path)) == VALUES
