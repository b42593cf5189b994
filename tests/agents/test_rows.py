"""A small agent with a database: a module that names its tables, and a line in the registry."""

import json
import sqlite3
from contextlib import ExitStack, closing, contextmanager

import pytest

from brainsurgeon import agents
from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.rows import (
    Database,
    Databases,
    Layout,
    OpenRows,
    Row,
    RowIndex,
    RowSession,
    digest,
)  # fmt: skip
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.transactions import transaction
from brainsurgeon.model.entries import PLACEHOLDER
from brainsurgeon.model.records import Confirmation
from brainsurgeon.model.sessions import Fingerprint, Root
from brainsurgeon.rewrite.recover import recover
from brainsurgeon.sessions.row_listing import list_rows_at
from building.world import LONG_AGO, World

NAME = "notes.sqlite"
TEXT = "a long result " * 500


class Note(Row, frozen=True):
    """A row that holds its line as text."""

    note: bytes

    def line(self):
        return self.note


class OpenNotes(OpenRows):
    """A session of the small agent."""

    read_only_reason = None

    def __init__(self, databases, file, database, check_stop, held):
        self.database = database
        sizes = databases.sizes(database, file.name)
        self.changed = databases.changed(database, file.name)
        super().__init__(databases, file, file.name.upper(), sizes, check_stop, held)

    def fetch(self, first, last):
        return fetch(self.database, self.file.name, first, last)

    def fingerprint_of(self, size):
        return fingerprint(self.file.name, size, self.changed)

    def check_turn(self, open_turn, quiet, now):
        """Accept every time."""

    def row_with(self, text, _):
        return Note(text)

    def change(self, edits, _quiet, _clock, *, durable):
        with transaction(self.file.directory, self.database, durable=durable):
            for edit in edits:
                done = self.database.execute(
                    "UPDATE notes SET note = CAST(? AS TEXT)"
                    " WHERE rowid = ? AND note IS CAST(? AS TEXT)",
                    (edit.after.note, edit.seq, edit.before.note),
                )
                if done.rowcount != 1:
                    raise RefusedError("a row changed meanwhile")


def fetch(database, session, first, last):
    rows = database.execute(
        "SELECT rowid, CAST(note AS BLOB) FROM notes"
        " WHERE session = ? AND rowid BETWEEN ? AND ? ORDER BY rowid", (session, first, last),
    )  # fmt: skip
    return [(seq, Note(note)) for seq, note in rows]


def fingerprint(name, size, changed):
    return Fingerprint(1, sum(name.encode()), size, changed * 10**6, 0)


class Notes(Databases):
    """What the small agent tells of its databases."""

    form = FORMATS["generic"]

    def has(self, path):
        return path.endswith(f"/{NAME}")

    def below(self, root):
        path = f"{root}/{NAME}"
        yield Database(root, "small", root, path)

    def layout(self, _):
        return Layout(1, "1.0", None)

    def sizes(self, database, session):
        return database.execute(
            "SELECT rowid, length(CAST(note AS BLOB)) FROM notes WHERE session = ? ORDER BY rowid",
            (session,),
        ).fetchall()

    def changed(self, database, session):
        query = "SELECT changed FROM sessions WHERE name = ?"
        return database.execute(query, (session,)).fetchone()[0]

    def sessions(self, database, _layout, _path, _own):
        names = database.execute("SELECT name, changed FROM sessions ORDER BY name").fetchall()
        return [
            RowSession(name, name.upper(), fingerprint(
                name, RowIndex(self.sizes(database, name)).size, changed
            )) for name, changed in names
        ], {}  # fmt: skip

    @contextmanager
    def session(self, file, check_stop):
        with ExitStack() as held:
            database = held.enter_context(self.opened(file.directory))
            yield OpenNotes(self, file, database, check_stop, held)

    def rows(self, path, session, seqs):
        with self.opened(path) as database:
            for seq in seqs:
                yield from fetch(database, session, seq, seq)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Return a world with two sessions of the small agent in a database."""
    monkeypatch.setattr(agents, "DATABASES", [*agents.DATABASES, Notes()])
    world = World(tmp_path)
    with closing(connected(world)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE sessions (name TEXT, changed INTEGER)")
        database.execute("CREATE TABLE notes (session TEXT, note TEXT)")
        for session in ("one", "two"):
            changed = int((world.clock() - LONG_AGO) * 1000)
            database.execute("INSERT INTO sessions VALUES (?, ?)", (session, changed))
            for number in range(10):
                for role, text in (("user", "go on"), ("tool_result", f"{number} {TEXT}"),
                                   ("assistant", "done")):  # fmt: skip
                    ident = f"{session}-{number}-{role}"
                    line = json.dumps({"type": role, "__id": ident, "content": text})
                    database.execute("INSERT INTO notes VALUES (?, ?)", (session, line))
    yield world
    world.close()


def connected(world):
    return sqlite3.connect(world.root / NAME)


def notes(world):
    with closing(connected(world)) as database:
        return database.execute("SELECT * FROM notes ORDER BY rowid").fetchall()


def test_sessions_in_rows_are_pruned_restored_and_listed(world):
    """The second scan finds nothing to do, and restoring everything gives back every row."""
    before = notes(world)

    first, second = world.scan(keep_recent=0), world.scan(keep_recent=0)

    assert [(one.session, one.outcome) for one in first.sessions] == [
        ("small/one", "changed"), ("small/two", "changed"),
    ]  # fmt: skip
    pruned = notes(world)
    assert sum(bool(PLACEHOLDER.search(note.encode())) for _, note in pruned) == 20
    assert second.sessions_changed == 0
    world.restore("one-3-tool_result", session="ONE")
    assert sum(old == new for old, new in zip(pruned, notes(world), strict=True)) == 59
    world.restore_all(pristine=True)
    assert notes(world) == before


@pytest.mark.parametrize("made", [True, False])
def test_interrupted_change_is_judged_by_its_rows(world, made):
    """A change in the journal was made if its row has the new digest, else it is undone."""
    world.scan(keep_recent=0)
    path = str(world.root / NAME)
    (file, _) = list_rows_at([Root(str(world.root))], path)
    record = next(row for row in world.store.sessions.all() if row.path == file.path)
    digests = digest(notes(world)[1][1].encode()).hex(), "another"
    rows = [(2, *(reversed(digests) if made else digests))]
    with world.store.transaction():
        world.store.journal.begin(record.id, file, "", Confirmation(rows=rows))

    assert [one.what for one in recover(world.store)] == ["finished" if made else "undone"]
