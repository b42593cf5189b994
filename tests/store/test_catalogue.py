"""Catalogue of sessions: one row a path; a row follows its session id."""

import os

import pytest

from brainsurgeon.model.session_files import Fingerprint, SessionFile
from brainsurgeon.model.turns import Spent


@pytest.fixture
def create_file(tmp_path):
    def create(name="a"):
        home = tmp_path / "agents" / "main"
        path = home / "sessions" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return SessionFile(
            str(home.parent), str(path.parent), path.name, "main", str(home), "auto",
            Fingerprint.of(path.stat()),
        )  # fmt: skip

    return create


@pytest.fixture
def note_session(store):
    def note_session(create_file, identity=None):
        with store.transaction():
            return store.sessions.note(create_file, "pi", identity)

    return note_session


def count(store):
    return len(list(store.sessions.all()))


def test_noted_session_has_agent_path_and_title(store, create_file, note_session):
    """A noted session has its agent, path, root, title, format and id."""
    session = create_file()
    row = note_session(session, "one")

    assert (row.agent, row.name, row.title, row.format) == ("main", "a", "main/a", "pi")
    assert (row.path, row.root, row.identity) == (session.path, session.root, "one")
    assert (row.displaced, row.missed_at) == (False, None)
    assert store.sessions.at(session.path) == store.sessions.by_id(row.id) == row


def test_noting_a_session_again_changes_nothing(store, create_file, note_session):
    """Noting a session at a path again returns the same row."""
    session = create_file()

    assert note_session(session, "one") == note_session(session, "one")
    assert count(store) == 1


def test_session_without_an_id_is_known_only_by_its_path(store, create_file, note_session):
    """A session without an id is another one at another path, whatever its file name."""
    row = note_session(create_file("a"))
    os.unlink(row.path)
    second = create_file("b")

    assert note_session(second).id != row.id
    assert store.sessions.of_identity(None) == []


def test_session_that_gets_an_id_later_keeps_its_row(create_file, note_session):
    """A session that gets an id later keeps its row, and its id if that becomes unreadable."""
    session = create_file()
    row = note_session(session)

    assert note_session(session, "one").id == row.id
    assert note_session(session).identity == "one"


def test_other_session_at_a_path_displaces_the_first(store, create_file, note_session):
    """The first session at a path is displaced by a second; its row keeps the last path."""
    session = create_file()
    first, second = note_session(session, "one"), note_session(session, "two")

    assert first.id != second.id
    assert store.sessions.at(session.path) == second
    displaced = store.sessions.by_id(first.id)
    assert (displaced.displaced, displaced.path) == (True, session.path)


def test_missed_time_of_a_session_ends_when_it_is_noted(store, create_file, note_session):
    """The time since which a session is missed ends when it is noted, or when it is cleared."""
    session = create_file()
    row = note_session(session, "one")
    with store.transaction():
        store.sessions.record_missing([(row.id, 5.0)])
    assert store.sessions.by_id(row.id).missed_at == 5.0
    assert note_session(session, "one").missed_at is None

    with store.transaction():
        store.sessions.record_missing([(row.id, 6.0)])
        store.sessions.record_missing([(row.id, None)])
    assert store.sessions.by_id(row.id).missed_at is None


def test_any_at_or_below_matches_a_path_and_its_directories(store, create_file, note_session):
    """A session is below its path and its directories, not below a path that begins alike."""
    row = note_session(create_file("a"))
    directory = os.path.dirname(row.path)

    assert store.sessions.any_at_or_below(row.path)
    assert store.sessions.any_at_or_below(directory)
    assert not store.sessions.any_at_or_below(directory[:-1])
    assert not store.sessions.any_at_or_below(f"{directory}/b.jsonl")


def test_costs_of_later_calls_are_added_to_those_of_their_model(store):
    """A session has one sum for each model, and for its calls with and without a price."""
    spent = [Spent("opus", priced=priced, calls=1, tokens=100, dollars=0.5) for priced in (0, 1)]
    for call in (1, 2):
        with store.transaction():
            store.spending.add("/s.jsonl", [call], spent)
            store.spending.flush()

    assert store.spending.of("/s.jsonl") == [
        Spent("opus", priced=priced, calls=2, tokens=200, dollars=1.0) for priced in (0, 1)
    ]
