"""What a run remembers of databases that rest, and what asking for it costs."""

import pytest

from brainsurgeon.model.records import FileState
from brainsurgeon.model.sessions import Fingerprint, SessionFile
from brainsurgeon.store.scan_memory import FileMemory
from brainsurgeon.store.sessions import DATABASE

NOW = 1_000_000.0
MARK = Fingerprint(1, 2, 3, 4, 5)
PATHS = [f"/a/agents/{name}/agent/own.sqlite" for name in "bcd"]


class Counted(dict):
    """A mapping that counts how often somebody goes over all of it."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()

    def items(self):
        self.walks += 1
        return super().items()


def seen(outcome="unchanged"):
    """Give the state of something that was looked at and is not due."""
    return FileState(MARK, "rules", None, outcome, "", NOW, None, NOW)


@pytest.fixture
def memory(store):
    """Give the memory of a run: three databases, one with sessions of odd ids, and files."""
    inside = [f"{PATHS[0]}/one", f"{PATHS[0]}/with/a/slash", f"{PATHS[1]}/other"]
    with store.transaction():
        for path in PATHS:
            store.files.remember(path, seen(DATABASE))
        for path in (*inside, f"{PATHS[0]}-beside/no.jsonl", f"{PATHS[0]}0/no.jsonl"):
            store.files.remember(path, seen())
    memory = FileMemory(store, "rules", NOW)
    memory._rows = Counted(memory._rows)
    return memory


def test_a_database_that_rests_names_its_own_sessions(memory):
    """Also those whose ids hold a slash, and nothing of what only begins alike."""
    assert [sorted(memory.idle(path, MARK, NOW)) for path in PATHS] == [
        [f"{PATHS[0]}/one", f"{PATHS[0]}/with/a/slash"], [f"{PATHS[1]}/other"], [],
    ]  # fmt: skip


def test_directories_are_gone_over_once_for_all_databases(memory):
    """What a run over resting databases costs grows with these, not with all files for each."""
    for path in PATHS:
        assert memory.idle(path, MARK, NOW) is not None

    assert memory._rows.walks == 1


def test_a_session_whose_id_holds_a_slash_was_found(memory, store):
    """The end of a whole run forgets files that it did not meet, and only these."""
    inside = [f"{PATHS[0]}/one", f"{PATHS[0]}/with/a/slash"]
    for path in inside:
        name = path.removeprefix(f"{PATHS[0]}/")
        assert memory.unchanged(SessionFile("/a", PATHS[0], name, "b", "/a/b", "auto", MARK), NOW)
    with store.transaction():
        memory.forget_missing(store)

    assert sorted(store.files.all()) == inside
