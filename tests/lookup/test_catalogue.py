"""The catalogue of sessions: a record follows its session's header id."""

import pytest

from brainsurgeon.lookup.sessions import find_record, note_record
from brainsurgeon.sessions.discovery import Root, discover_at, open_session
from brainsurgeon.store import open_store
from building.file_moves import exchange_names
from building.world import Conversation


@pytest.fixture
def root(tmp_path):
    return tmp_path / "agents"


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path / "state")
    yield store
    store.close()


@pytest.fixture
def write_session(root):
    """Return a function that writes a session and returns its path."""

    def writing(name, identity):
        path = root / "main" / "sessions" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        conversation = Conversation(identity)
        conversation.user()
        path.write_bytes(conversation.bytes())
        return path

    return writing


@pytest.fixture
def open_as_scan(store, root):
    """Return a function that opens a session as a scan does and passes it to the catalogue."""

    def looking(path, action=note_record):
        with open_session(discover_at([Root(str(root))], str(path))) as session:
            return action(store, session)

    return looking


def test_find_record_creates_no_record(store, write_session, open_as_scan):
    """A session that was never noted has no record, also after a search for it."""
    assert open_as_scan(write_session("a", "one"), find_record) is None
    assert list(store.sessions.all()) == []


def test_a_copy_gets_its_own_record(store, write_session, open_as_scan):
    """While the original exists, a file with the same header id is another session."""
    first, second = open_as_scan(write_session("a", "one")), open_as_scan(write_session("b", "one"))

    assert first.id != second.id
    assert store.sessions.at(first.path) == first
    assert [record.id for record in store.sessions.of_identity("one")] == [second.id, first.id]


@pytest.mark.parametrize("first", ["a", "b"])
def test_records_follow_exchanged_files(write_session, open_as_scan, first):
    """Whichever of two exchanged files is opened first, both keep their records."""
    paths = {"a": write_session("a", "one"), "b": write_session("b", "two")}
    rows = {name: open_as_scan(path).id for name, path in paths.items()}
    exchange_names({}, paths["a"], paths["b"])
    second = "b" if first == "a" else "a"

    searched = {name: open_as_scan(paths[name], find_record).id for name in (first, second)}
    noted = {name: open_as_scan(paths[name], note_record).id for name in (first, second)}

    assert searched == noted == {"a": rows["b"], "b": rows["a"]}


def test_a_displaced_session_is_found_at_a_new_path(store, write_session, open_as_scan):
    """A session whose path another one took gets its record back wherever its id appears."""
    first = open_as_scan(write_session("a", "one"))
    open_as_scan(write_session("a", "two"))
    again = open_as_scan(write_session("b", "one"))

    assert (again.id, again.displaced, again.name) == (first.id, False, "b")
    assert len(list(store.sessions.all())) == 2


def test_an_unreadable_session_keeps_its_record(write_session, open_as_scan):
    """A file without a readable id may still be the session, so a copy elsewhere is a new one."""
    path = write_session("a", "one")
    row = open_as_scan(path)
    path.write_bytes(b"\0")

    assert open_as_scan(write_session("b", "one")).id != row.id
