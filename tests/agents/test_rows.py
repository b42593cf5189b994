"""A small agent with a database: a module that names its tables, and a line in the registry.

Its rows have keys that are texts, and its lines have the row of a chapter as context.
"""

import json
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from sqlite3 import connect

import pytest

from brainsurgeon import agents
from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.rows import (
    Database,
    Databases,
    Layout,
    OpenRows,
    Recorded,
    Row,
    digest,
    split,
)  # fmt: skip
from brainsurgeon.files import sqlite
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.model.entries import PLACEHOLDER
from brainsurgeon.model.records import Confirmation
from brainsurgeon.model.session_files import NotIdleError, Root
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.planning.row_steps import RowIndex
from brainsurgeon.rewrite.recover import recover
from brainsurgeon.sessions.discovery import open_session
from brainsurgeon.sessions.row_listing import list_rows_at
from building.world import LONG_AGO, World

NAME = "notes.sqlite"
TEXT = "a long result " * 500


class Note(Row, frozen=True):
    """A row of `notes`. Its line begins with the row of its chapter, which is only read."""

    chapter: bytes
    note: bytes

    @property
    def context(self):
        return b'{"chapter": ' + self.chapter + b", "

    def line(self):
        return self.context + self.note.removeprefix(b"{")

    @cached_property
    def digest(self):
        return digest(self.note)


class Summary(Recorded, frozen=True):
    """What the database says about a session."""

    changed: int

    def newest(self, _):
        return self.changed


class OpenNotes(OpenRows):
    """A session of the small agent."""

    def check_turn(self, open_turn, quiet, now):
        if self.databases.at_work:
            raise NotIdleError("its agent is at work", in_database=True)

    def fence(self, _quiet, _clock):
        return lambda database: (
            None if Notes().recorded(database, self.file.name) == self.recorded else "it changed"
        )

    def row_with(self, before, text):
        if not text.startswith(before.context):
            raise RefusedError("its chapter would change")
        return Note(before.chapter, b"{" + text.removeprefix(before.context))

    def write(self, edits, _):
        for edit in edits:
            done = self.database.execute(
                "UPDATE notes SET note = CAST(? AS TEXT) WHERE id = ? AND note IS CAST(? AS TEXT)",
                (edit.after.note, edit.key, edit.before.note),
            )
            if done.rowcount != 1:
                raise RefusedError("a row changed meanwhile")
        return self.recorded, None


ROWS = (
    "SELECT notes.id, CAST(about AS BLOB), CAST(note AS BLOB) FROM notes"
    " JOIN chapters ON chapters.id = chapter WHERE session = ?{}"
    " ORDER BY chapters.started, notes.id"
)


class Notes(Databases):
    """What the small agent tells of its databases."""

    form = FORMATS["generic"]
    at_work = False

    def has(self, path):
        return path.endswith(f"/{NAME}")

    def below(self, root):
        path = f"{root}/{NAME}"
        yield Database(root, "small", root, path)

    def layout(self, database):
        return Layout(0, sqlite.pragma(database, "schema_version"), "1.0", None)

    def sessions(self, database):
        listed = database.execute("SELECT name, upper(name), changed FROM sessions ORDER BY name")
        return [Summary(*row) for row in listed]

    def names(self, database):
        return [summary.session for summary in self.sessions(database)]

    def recorded(self, database, session):
        return {summary.session: summary for summary in self.sessions(database)}.get(session)

    def sizes(self, database, _, session):
        rows = database.execute(ROWS.format(""), (session,))
        return [(key, len(Note(*columns).line())) for key, *columns in rows]

    def totals(self, database, layout):
        return {
            name: RowIndex(self.sizes(database, layout, name)).size for name in self.names(database)
        }

    def fetch(self, database, _, session, keys):
        rows = ROWS.format(f" AND notes.id IN ({', '.join('?' * len(keys))})")
        return [(key, Note(*columns)) for key, *columns in database.execute(rows, (session, *keys))]

    @contextmanager
    def session(self, file, check_stop):
        with ExitStack() as held:
            database = held.enter_context(self.opened(file.directory))
            yield OpenNotes(self, file, database, check_stop, held)


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Return a world with two sessions of the small agent in a database."""
    monkeypatch.setattr(agents, "DATABASES", [*agents.DATABASES, Notes()])
    world = World(tmp_path)
    with closing(connected(world)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE sessions (name TEXT, changed INTEGER)")
        database.execute("CREATE TABLE chapters (id TEXT, started INTEGER, about TEXT)")
        database.execute("CREATE TABLE notes (id TEXT, session TEXT, chapter TEXT, note TEXT)")
        for session in ("one", "two"):
            changed = int((world.clock() - LONG_AGO) * 1000)
            database.execute("INSERT INTO sessions VALUES (?, ?)", (session, changed))
            for number in range(10):
                chapter = f"{session}-{chr(ord('z') - number)}"  # not in the order of time
                about = json.dumps({"number": number, "title": TEXT})
                database.execute("INSERT INTO chapters VALUES (?, ?, ?)", (chapter, number, about))
                for part, (role, text) in enumerate((
                    ("user", "go on"), ("tool_result", f"{number} {TEXT}"), ("assistant", "done"),
                )):  # fmt: skip
                    ident = f"{session}-{number}-{role}"
                    line = json.dumps({"type": role, "__id": ident, "content": text})
                    note = f"{chapter}-{part}", session, chapter, line
                    database.execute("INSERT INTO notes VALUES (?, ?, ?, ?)", note)
    yield world
    world.close()


def connected(world):
    return connect(world.root / NAME)


def notes(world):
    with closing(connected(world)) as database:
        return [note for (note,) in database.execute("SELECT note FROM notes ORDER BY rowid")]


def test_sessions_in_rows_are_pruned_restored_and_listed(world):
    """The second scan finds nothing to do, and restoring everything gives back every row."""
    before = notes(world)

    first, second = world.scan(keep_recent=0), world.scan(keep_recent=0)

    assert [(one.session, one.outcome) for one in first.sessions] == [
        ("small/one", "changed"), ("small/two", "changed"),
    ]  # fmt: skip
    pruned = notes(world)
    assert sum(bool(PLACEHOLDER.search(note.encode())) for note in pruned) == 20
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
    digests = digest(notes(world)[1].encode()).hex(), "another"
    rows = [("one-z-1", *(reversed(digests) if made else digests))]
    with world.store.transaction():
        world.store.journal.begin(record.id, file, "", Confirmation(rows=rows))

    assert [one.what for one in recover(world.store)] == ["finished" if made else "undone"]


def test_restore_does_not_wait_for_an_agent_that_rereads_its_rows(world):
    """Beside an agent at work, only values come back. Without the attribute, they wait, too."""
    before = notes(world)
    world.scan(keep_recent=0)
    pruned = notes(world)
    (kept,) = [one for one in agents.DATABASES if isinstance(one, Notes)]
    kept.at_work = True

    waits = world.restore("one-3-tool_result")
    assert (waits.pending, waits.why_pending) == (True, "its agent is at work")
    assert notes(world) == pruned
    kept.rereads = True
    with closing(connected(world)) as database, database:  # as an agent at work does
        database.execute("UPDATE sessions SET changed = changed + 1")
    assert not world.restore("one-3-tool_result").pending
    assert [one.reason for one in world.scan(keep_recent=0).sessions] == [
        "its agent is at work"
    ] * 2
    pinned = set_extractable(
        world.settings(), world.store, "one-4-tool_result", False, clock=world.clock
    )
    assert pinned.pending
    assert sum(old == new for old, new in zip(pruned, notes(world), strict=True)) == 59
    world.restore_all(pristine=True)
    assert notes(world) == before
    kept.at_work = False
    world.scan(keep_recent=0, min_value_length=10**6)
    assert sum('"_extractable"' in note for note in notes(world)) == 1


def test_context_of_a_line_is_read_but_never_changed(world):
    """A change of the context is refused, and pruning leaves every other table as it was."""
    with closing(connected(world)) as database:
        before = database.execute("SELECT * FROM chapters").fetchall()
    (file, _) = list_rows_at([Root(str(world.root))], str(world.root / NAME))

    world.scan(keep_recent=0)

    with closing(connected(world)) as database:
        assert database.execute("SELECT * FROM chapters").fetchall() == before
    with open_session(file) as opened:
        row = opened.lines.row(opened.lines.index[4])
        assert json.loads(row.line())["chapter"]["number"] == 1
        changed = row.line().replace(b'"number": 1', b'"number": 2')
        with pytest.raises(RefusedError, match="chapter"):
            opened.row_with(row, changed)
        assert opened.row_with(row, row.line()) == row


def test_split_fills_each_list_up_to_its_limits():
    """A list may have exactly the greatest length and weight; what is heavier is alone."""
    assert [*split([2, 2, 3, 9, 1], int, most=9, heaviest=4)] == [[2, 2], [3], [9], [1]]
    assert [*split([1, 1, 1], int, most=2, heaviest=4)] == [[1, 1], [1]]
