"""The catalogue of sessions: one row a path, and a row follows its session id."""

import os

import pytest

from brainsurgeon.model.sessions import Fingerprint, SessionFile


@pytest.fixture
def file(tmp_path):
    def writing(name="a", agent="main"):
        home = tmp_path / "agents" / agent
        path = home / "sessions" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return SessionFile(
            str(home.parent), str(path.parent), path.name, agent, str(home), "auto",
            Fingerprint.of(path.stat()),
        )  # fmt: skip

    return writing


@pytest.fixture
def note(store):
    def noting(file, identity=None):
        with store.transaction():
            return store.sessions.note(file, "pi", identity)

    return noting


def count(store):
    return len(list(store.sessions.all()))


def test_a_session_is_noted_as_it_was_found(store, file, note):
    """Its row says whose it is, where it lies and what its agent calls it."""
    one = file()
    row = note(one, "one")

    assert (row.agent, row.name, row.title, row.format) == ("main", "a", "main/a", "pi")
    assert (row.path, row.root, row.identity) == (one.path, one.root, "one")
    assert (row.displaced, row.missed_at) == (False, None)
    assert store.sessions.at(one.path) == store.sessions.known(row.id) == row


def test_a_path_has_one_row(store, file, note):
    """Noting a session again changes nothing."""
    one = file()

    assert note(one, "one") == note(one, "one")
    assert count(store) == 1


def test_a_file_name_is_no_session_id(store, file, note):
    """A session that says no id is known by its path alone."""
    row = note(file("a"))
    os.unlink(row.path)
    other = file("b")

    assert note(other).id != row.id
    assert store.sessions.ids_of_identity(None) == set()


def test_a_session_that_says_its_id_later_keeps_its_row(file, note):
    """What was noted without an id gets it, and keeps it where it cannot be read again."""
    one = file()
    row = note(one)

    assert note(one, "one").id == row.id
    assert note(one).identity == "one"


def test_another_session_at_the_path_displaces_the_first(store, file, note):
    """The first one has no path then; its row says where it was last seen."""
    one = file()
    first, second = note(one, "one"), note(one, "two")

    assert first.id != second.id
    assert store.sessions.at(one.path) == second
    displaced = store.sessions.known(first.id)
    assert (displaced.displaced, displaced.path) == (True, one.path)


def test_since_when_a_session_is_missed_ends_where_it_is_noted(store, file, note):
    """The moment is kept until the session is there again."""
    one = file()
    row = note(one, "one")
    with store.transaction():
        store.sessions.miss([(row.id, 5.0)])
    assert store.sessions.known(row.id).missed_at == 5.0
    assert note(one, "one").missed_at is None

    with store.transaction():
        store.sessions.miss([(row.id, 6.0)])
        store.sessions.miss([(row.id, None)])
    assert store.sessions.known(row.id).missed_at is None


def test_what_lies_below_a_path_is_found(store, file, note):
    """A path, or a directory above it; not a path that only begins alike."""
    row = note(file("a"))
    directory = os.path.dirname(row.path)

    assert store.sessions.is_below(row.path)
    assert store.sessions.is_below(directory)
    assert not store.sessions.is_below(directory[:-1])
    assert not store.sessions.is_below(f"{directory}/b.jsonl")


@pytest.mark.parametrize("name", [b"caf\xe9", b"new\nline", "ü".encode()])
def test_a_path_of_any_bytes_is_kept(store, file, note, name):
    """The path is kept byte for byte, and names are text that can be shown."""
    one = file(os.fsdecode(name))
    row = note(one)

    assert os.fsencode(row.path) == os.fsencode(one.path)
    assert row.name.encode()
    assert store.sessions.at(one.path) == row
