"""The memory of a run about unchanged databases and files."""

import pytest

from brainsurgeon.model.records import FileState
from brainsurgeon.model.session_files import Fingerprint, SessionFile
from brainsurgeon.store.catalogue import DATABASE, FAILED, WAITS
from brainsurgeon.store.scan_memory import FileMemory

NOW = 1_000_000.0
MARK = Fingerprint(1, 2, 3, 4, 5)
PATHS = [f"/a/agents/{name}/agent/own.sqlite" for name in "bcd"]


class Counted(dict):
    """A mapping that counts the walks over it."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()

    def items(self):
        self.walks += 1
        return super().items()


def unchanged_state(outcome="unchanged"):
    """Return the state of a file that is not due."""
    return FileState(MARK, "rules", None, outcome, "", NOW, None, NOW)


@pytest.fixture
def memory(store):
    """Return the memory of a run: three databases, one with unusual session ids, and files."""
    inside = [f"{PATHS[0]}/one", f"{PATHS[0]}/with/a/slash", f"{PATHS[1]}/other"]
    with store.transaction():
        for path in PATHS:
            store.files.remember(path, unchanged_state(DATABASE))
        for path in (*inside, f"{PATHS[0]}-beside/no.jsonl", f"{PATHS[0]}0/no.jsonl"):
            store.files.remember(path, unchanged_state())
    memory = FileMemory(store, "rules", NOW)
    memory._rows = Counted(memory._rows)
    return memory


@pytest.fixture
def create_failed(store):
    """Return a function that makes a file of a fingerprint; the last scan of MARK has failed."""
    state = FileState(MARK, "rules", None, FAILED, "", NOW, NOW + 1000.0, NOW)
    with store.transaction():
        store.files.remember("/a/s.jsonl", state)
    return lambda mark: SessionFile("/a", "/a", "s.jsonl", "a", "/a", "auto", mark)


def test_idle_database_lists_only_its_own_sessions(memory):
    """A session id may have a slash; a path with the same beginning does not match."""
    assert [sorted(memory.visit_database(path, MARK, NOW)) for path in PATHS] == [
        [f"{PATHS[0]}/one", f"{PATHS[0]}/with/a/slash"], [f"{PATHS[1]}/other"], [],
    ]  # fmt: skip


def test_files_are_walked_once_for_all_idle_databases(memory):
    """The sessions of all idle databases are found in one walk over the files."""
    for path in PATHS:
        assert memory.visit_database(path, MARK, NOW) is not None

    assert memory._rows.walks == 1


def test_waiting_sessions_are_read_again_once_their_database_changes(store):
    """This holds for ids with a slash, too, but not for sessions of other databases."""
    names = ["one", "with/a/slash"]
    with store.transaction():
        for path in PATHS[:2]:
            store.files.remember(path, unchanged_state(DATABASE))
            for name in names:
                store.files.remember(f"{path}/{name}", unchanged_state(WAITS))
    memory = FileMemory(store, "rules", NOW)
    memory.visit_database(PATHS[0], Fingerprint(1, 2, 3, 4, 6), NOW)

    assert [
        memory.visit(SessionFile("/a", path, name, "b", "/a/b", "auto", MARK), NOW)
        for path in PATHS[:2] for name in names
    ] == [False, False, True, True]  # fmt: skip


def test_forget_missing_keeps_seen_sessions_with_a_slash(memory, store):
    """Forgetting missing files keeps the sessions that the run saw, with a slash or without."""
    inside = [f"{PATHS[0]}/one", f"{PATHS[0]}/with/a/slash"]
    for path in inside:
        name = path.removeprefix(f"{PATHS[0]}/")
        assert memory.visit(SessionFile("/a", PATHS[0], name, "b", "/a/b", "auto", MARK), NOW)
    with store.transaction():
        memory.forget_missing(store)

    assert sorted(store.files.all()) == inside


def test_forget_missing_keeps_the_files_of_a_long_run(store):
    """A run that stores states by the thousand forgets the files that it did not see, no others."""
    names = [f"{number:04}.jsonl" for number in range(2003)]
    with store.transaction():
        for name in names:
            store.files.remember(f"/a/{name}", unchanged_state())
    memory = FileMemory(store, "new rules", NOW)
    for name in names[:-1]:
        file = SessionFile("/a", "/a", name, "a", "/a", "auto", MARK)
        assert not memory.visit(file, NOW)
        if memory.is_full:
            memory.write_down(store)
            memory.clear()
    with store.transaction():
        memory.forget_missing(store)

    assert sorted(store.files.all()) == [f"/a/{name}" for name in names[:-1]]


def test_file_that_fails_again_waits_longer_unless_it_changed(create_failed, memory):
    """The first failure of some bytes is tried again at once, later ones after growing pauses."""
    same, changed = create_failed(MARK), create_failed(Fingerprint(1, 2, 3, 4, 6))

    assert memory.try_again_at(changed, NOW) == NOW
    assert memory.try_again_at(same, NOW) == NOW + 2 * 1000.0
