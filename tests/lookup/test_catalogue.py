"""The catalogue of sessions: a row follows its session id."""

import json

import pytest

from brainsurgeon.lookup.sessions import find_record, note_record
from brainsurgeon.sessions.discovery import Root, discover_at, open_session
from brainsurgeon.store import open_store


@pytest.fixture
def root(tmp_path):
    return tmp_path / "agents"


@pytest.fixture
def store(tmp_path):
    one = open_store(tmp_path / "state")
    yield one
    one.close()


@pytest.fixture
def write(root):
    def writing(name, identity, agent="main"):
        path = root / agent / "sessions" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        header = {"type": "session", "version": 3, "id": identity, "timestamp": "", "cwd": "/"}
        entry = {"type": "message", "id": "0000000a", "message": {"role": "user", "content": "x"}}
        lines = (header, entry) if identity else (entry,)
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path

    return writing


@pytest.fixture
def look(store, root):
    """Open a session as a scan does, and pass it to a function of the catalogue."""

    def looking(path, how=note_record):
        with open_session(discover_at([Root(str(root))], str(path))) as session:
            return how(store, session)

    return looking


def exchange(one, other):
    between = one.with_name("between")
    one.rename(between)
    other.rename(one)
    between.rename(other)


def test_looking_for_a_session_makes_no_row(store, write, look):
    """A session that was never noted is not there, and stays so."""
    assert look(write("a", "one"), find_record) is None
    assert list(store.sessions.all()) == []


def test_a_copy_gets_a_row_of_its_own(store, write, look):
    """While a file with the id stands at the old path, a second one is another session."""
    first, second = look(write("a", "one")), look(write("b", "one"))

    assert first.id != second.id
    assert store.sessions.at(first.path) == first
    assert store.sessions.ids_of_identity("one") == {first.id, second.id}
    assert [one.id for one in store.sessions.of_identity("one")] == [second.id, first.id]


@pytest.mark.parametrize("first", ["a", "b"])
def test_the_rows_of_exchanged_files_follow_at_the_first_look(write, look, first):
    """Whichever of two exchanged files is looked at first, both keep their rows."""
    paths = {"a": write("a", "one"), "b": write("b", "two")}
    rows = {name: look(path).id for name, path in paths.items()}
    exchange(paths["a"], paths["b"])
    second = "b" if first == "a" else "a"

    found = {name: look(paths[name], find_record).id for name in (first, second)}
    noted = {name: look(paths[name], note_record).id for name in (first, second)}

    assert found == noted == {"a": rows["b"], "b": rows["a"]}


def test_a_displaced_session_is_found_again_wherever_it_comes_up(store, write, look):
    """Its path belongs to another session, so that the row follows the id."""
    first = look(write("a", "one"))
    look(write("a", "two"))
    again = look(write("b", "one"))

    assert (again.id, again.displaced, again.name) == (first.id, False, "b")
    assert len(list(store.sessions.all())) == 2


def test_a_session_that_cannot_be_read_keeps_its_row(write, look):
    """What stands at the old path says no id any more: the session may still be there."""
    path = write("a", "one")
    row = look(path)
    path.write_bytes(b"\0")

    assert look(write("b", "one")).id != row.id
