"""A store of release 0.1.0 is opened by this program: nothing is lost, and no question refused."""

import json
import os
import re
import shutil
import sqlite3
from contextlib import closing

import pytest

from brainsurgeon import clock as clocks
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.sessions import sessions
from brainsurgeon.operations.show import show
from brainsurgeon.operations.status import status
from brainsurgeon.rewrite import recover
from brainsurgeon.store import open_store, open_to_read, opening
from brainsurgeon.store.key_paths import key_path_read, key_path_text
from building.release import NOW, release_0_1_0
from building.rows import begin, cut, session
from building.world import Clock, dump, entry, sql, text_of

OURS = re.compile(rb',"_(?:restored|extractable|redacted)":(?:"[^"]*"|true|false|[0-9]+)')
DROPPED = {
    "extractions": {"reason"}, "wishes": {"closed_at"}, "journal": {"begun_at"},
    "fields": {"set_at"},
}  # fmt: skip
ANSWER = '{"restored": true, "answer": "of 0.1.0"}'


@pytest.fixture
def old(world, monkeypatch):
    """Give the sessions of a world that 0.1.0 left, with what stood in them."""
    world.clock = Clock(NOW + 1)
    monkeypatch.setattr(clocks, "boot_clock", lambda: world.clock.now)
    return release_0_1_0(world)


def rows(path):
    """Read every row of every table of a database, by column."""
    with closing(sqlite3.connect(path)) as database:
        database.row_factory = sqlite3.Row
        tables = [name for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table'"
            " AND substr(name, 1, 1) != '_' AND name NOT LIKE 'sqlite%'"
        )]  # fmt: skip
        return {table: [dict(row) for row in database.execute(f"SELECT * FROM {table}")]
                for table in tables}  # fmt: skip


def named(old, stem):
    """Find a session of the old world by its name."""
    return next(path for path in old if path.stem == stem)


def test_every_row_of_the_old_store_is_there(world, old):
    """The migration adds what was not known, drops what nobody read, and keeps all else."""
    before = rows(world.state / "store.db")
    open_store(str(world.state)).close()
    after = rows(world.state / "store.db")

    for table, listed in before.items():
        kept = [
            {key: value for key, value in row.items() if key not in DROPPED.get(table, ())}
            for row in listed
        ]
        if table == "extractions":
            for row in (*kept, *after[table]):
                row["path"] = key_path_read(row["path"])
        if table == "agents":
            for row in kept:
                row["name"] = row["name"].replace("openclaw:", "pi:")
        now = [{key: row[key] for key in old_row} for row, old_row in
               zip(after[table], kept, strict=True)]  # fmt: skip
        assert now == kept, table
    assert not any(DROPPED[table] & row.keys() for table in DROPPED for row in after[table])
    assert sql(world, "PRAGMA foreign_key_check") == []
    assert sql(world, "PRAGMA integrity_check") == [("ok",)]
    assert [name for (name,) in sql(world, "SELECT name FROM _sqlite_migrations")] == list(
        opening.KNOWN_MIGRATIONS
    )


def test_paths_are_written_alike_by_the_migration_and_by_this_program(world):
    """A value that is cut again is known by its place, however old its record is."""
    paths = [
        ("message", "content", 0, "text"), ("message", "content", 12, "content"),
        ("message", "content", "0", "text"), ("message", "content", 0, "text", "text"),
        ("message", "content", 0, "input"), ("message", "content"), ("a", 'b", "text"]'), (),
        ("message", "content", 0, 'x, "text"]', "text"), ("message", "content", 0, 1, "text"),
    ]  # fmt: skip
    row = session(world.store)
    begin(world.store, row, [cut(f"e{number}") for number, _ in enumerate(paths)])
    world.close()
    for number, path in enumerate(paths):
        change = "UPDATE extractions SET path = ? WHERE entry_id = ?"
        sql(world, change, (json.dumps(path), f"e{number}"))
    sql(world, "DELETE FROM _sqlite_migrations WHERE name = 'm007_keep_records_small'")

    open_store(str(world.state)).close()
    written = [text for (text,) in sql(world, "SELECT path FROM extractions ORDER BY id")]
    assert written == [key_path_text(path) for path in paths]
    assert [key_path_read(text) for text in written] == paths


def test_whoever_only_looks_reads_the_old_store_as_it_is(world, old):
    """Nothing that only looks migrates it, and everything that it asks is answered."""
    before = (world.state / "store.db").read_bytes()
    path = named(old, "standing")
    with open_to_read(str(world.state)) as store:
        settings = world.settings()
        assert b"".join(cat(settings, store, str(path), world.clock())) == old[path]
        assert show(settings, store, "00000003", session="main/standing").content
        listed = {one.session: one for one in sessions(settings, store, world.clock())}
        assert listed["main/standing"].extracted == 3
        assert "pi:--home-dev-x--/" in "".join(listed)
        assert status(settings, store, world.clock()).wishes_open == 3
        assert scan(settings, store, clock=world.clock, dry_run=True).files_seen == 8

    assert (world.state / "store.db").read_bytes() == before


def test_a_store_that_knows_no_rows_yet_is_read_as_it_is(world):
    """A store from before databases is read without them, and migrated by who writes."""
    open_store(str(world.state)).close()
    for statement in ("DROP TABLE row_columns", "DROP TABLE row_writes",
                      "DELETE FROM _sqlite_migrations WHERE name = 'm004_keep_rows'"):  # fmt: skip
        sql(world, statement)
    before = (world.state / "store.db").read_bytes()

    with open_to_read(str(world.state)) as store:
        assert store.rows.own_times() == {}
        assert scan(world.settings(), store, clock=world.clock, dry_run=True).files_seen == 0
    assert (world.state / "store.db").read_bytes() == before
    with open_store(str(world.state)) as store:
        assert list(store.rows.unneeded()) == []
    assert sql(world, "SELECT count(*) FROM row_writes") == [(0,)]


def test_the_interrupted_rewrite_of_the_old_program_is_finished(world, old):
    """Its journal row is as good as one of today; what it cut is recorded, nothing is left."""
    path = named(old, "interrupted")
    [done] = recover.recover(world.store)

    assert (done.path, done.what) == (str(path), "finished")
    assert world.leftovers() == []
    assert b"".join(cat(world.settings(), world.store, str(path), world.clock())) == old[path]


def test_what_the_old_program_was_asked_for_is_done(world, old):
    """A put-back, a pin and a redaction that waited are carried out by the first scan."""
    path = named(old, "wished")
    before = old[path]
    call = {"type": "toolCall", "id": "call_x", "name": "purge_control",
            "arguments": {"action": "restore", "entry": "00000003", "keys": "content"}}  # fmt: skip
    said = [
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": "call_x", "toolName": "purge_control",
         "content": [{"type": "text", "text": ANSWER}]},
        {"role": "assistant", "content": [{"type": "text", "text": "that"}], "stopReason": "stop"},
    ]  # fmt: skip
    with open(path, "ab") as handle:
        handle.writelines(
            dump({"type": "message", "id": f"x{number}", "message": message})
            for number, message in enumerate(said)
        )
    os.utime(path, (NOW - 60,) * 2)
    world.scan()

    true = next(line for line in before.splitlines() if b'"00000003"' in line)
    assert OURS.sub(b"", true) in [OURS.sub(b"", one) for one in path.read_bytes().splitlines()]
    assert entry(path, "00000003")["_restored"]
    assert entry(path, "00000007")["_extractable"] is False
    assert entry(path, "x1")["_redacted"] is True
    assert text_of(path, "x1") == "Restored 00000003."
    assert sql(world, "SELECT count(*) FROM wishes WHERE state = 'open'") == [(0,)]


@pytest.mark.parametrize("scanned", [False, True])
def test_undoing_everything_gives_back_what_0_1_0_cut(world, old, scanned):
    """Every session is as it was, but for the one value that had expired, which is named."""
    if scanned:
        world.scan()
    else:
        recover.recover(world.store)
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert {name for name, one in done.items() if one.unfinished} == {"main/expired"}
    assert done["main/expired"].left == ("00000003: expired",)
    for path, original in old.items():
        if path.stem != "expired":
            assert path.read_bytes() == original, path


@pytest.mark.parametrize("moved", [None, "prime"])
def test_retention_deletes_nothing_of_it_that_stands(world, old, moved):
    """Also where the agent's directory is renamed right after the first scan of this program."""
    keys = {"retention": "1s", "retention_standing": "never"}
    world.scan(**keys)
    if moved:
        (world.root / "main").rename(world.root / moved)
    for _ in range(3):
        world.clock.now += 60
        retention(world.settings(**keys), world.store, clock=world.clock)
        world.clock.now += 60
        world.scan(**keys)
    done = world.restore_all(pristine=True)

    assert {one.session for one in done if one.unfinished} == {f"{moved or 'main'}/expired"}
    for path, original in old.items():
        place = world.root / moved / "sessions" / path.name if moved else path
        if path.stem != "expired" and path.parent.name == "sessions":
            assert place.read_bytes() == original, path


def test_a_copy_of_an_old_session_is_known(world, old):
    """What 0.1.0 cut comes back in a copy, too, by the older rule."""
    world.scan()
    path = named(old, "standing")
    copied = path.with_name("copied.jsonl")
    shutil.copy2(path, copied)
    world.restore_all(pristine=True)

    assert path.read_bytes() == copied.read_bytes() == old[path]


def test_what_is_cut_beside_an_old_value_comes_back_with_it(world, old):
    """In an entry of which 0.1.0 cut one value, this program cuts another, and undoes both."""
    path = named(old, "parent")
    world.restore("00000003", session=str(path), keys=["aggregated"])
    world.clock.now += 700
    assert world.scan().values_extracted >= 1
    world.restore_all(session=str(path), pristine=True)

    assert path.read_bytes() == old[path]
