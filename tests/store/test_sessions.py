"""The catalogue of sessions: one row a path, and a row follows its session id."""

import os

import pytest

from brainsurgeon.model.sessions import Fingerprint, SessionFile


@pytest.fixture
def file(tmp_path):
    """Give a way to write a session file of an agent; its bytes do not matter here."""

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
    """Give a way to note a session as it is looked at."""

    def noting(file, identity=None):
        with store.transaction():
            return store.sessions.note(file, "pi", identity)

    return noting


def count(store):
    """Count the rows of the catalogue."""
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


def test_looking_for_a_session_makes_no_row(store, file):
    """A session that nobody noted is not there."""
    assert store.sessions.find(file(), "one") is None
    assert count(store) == 0


def test_a_row_follows_its_session_to_another_path(store, file, note):
    """Where the old path is gone, the same session id at a new path is the same session."""
    row = note(file("a"), "one")
    os.unlink(row.path)
    moved = file("b", agent="other")

    assert store.sessions.find(moved, "one").id == row.id
    after = note(moved, "one")
    assert (after.id, after.path, after.title) == (row.id, moved.path, "other/b")
    assert count(store) == 1


def test_a_copy_gets_a_row_of_its_own(store, file, note):
    """While a file stands at the old path, a second one with its id is another session."""
    first, second = note(file("a"), "one"), note(file("b"), "one")

    assert first.id != second.id
    assert store.sessions.at(first.path) == first
    assert store.sessions.alike("one") == {first.id, second.id}
    assert [one.id for one in store.sessions.of_identity("one")] == [second.id, first.id]


def test_a_second_name_of_a_file_changes_nothing(store, file, note):
    """A hard link does not take the row away from the name that it had."""
    first = note(file("a"), "one")
    second = file("b")
    os.unlink(second.path)
    os.link(first.path, second.path)
    note(second, "one")

    assert store.sessions.at(first.path) == first


def test_a_file_name_is_no_session_id(store, file, note):
    """A session that says no id is known by its path alone."""
    row = note(file("a"))
    os.unlink(row.path)
    other = file("b")

    assert store.sessions.find(other, None) is None
    assert note(other).id != row.id
    assert store.sessions.alike(None) == set()


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


def test_a_displaced_session_is_found_again_wherever_it_comes_up(store, file, note):
    """Its path belongs to another one, so that the row follows the id."""
    one, other = file("a"), file("b")
    first = note(one, "one")
    note(one, "two")
    found = note(other, "one")

    assert (found.id, found.displaced, found.path) == (first.id, False, other.path)
    assert count(store) == 2


def test_two_sessions_that_change_places_are_told_apart(store, file, note):
    """Two files that were exchanged: once both were looked at, each path has the right row."""
    one, other = file("a"), file("b")
    for file_, identity in ((one, "one"), (other, "two"), (one, "two"), (other, "one")):
        note(file_, identity)

    assert {row.path: row.identity for row in store.sessions.all() if not row.displaced} == {
        one.path: "two", other.path: "one",
    }  # fmt: skip


def test_a_session_behind_a_link_is_not_where_it_was(file, note, tmp_path):
    """A directory that was moved and linked to: the row follows to where the file really is."""
    row = note(file("a"), "one")
    home = tmp_path / "agents" / "main"
    home.rename(tmp_path / "agents" / "moved")
    home.symlink_to(tmp_path / "agents" / "moved")

    assert note(file("a", agent="moved"), "one").id == row.id


def test_agents_are_told_apart_by_their_directories(file, note):
    """Two agents of one name are two, and a renamed one is the same."""
    one, other = note(file("a", agent="main")), note(file("a", agent="other"))
    assert one.agent_id != other.agent_id
    assert note(file("b", agent="main")).agent_id == one.agent_id


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
