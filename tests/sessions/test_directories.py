"""What stands in a directory is remembered from one run to the next, for as long as it is true."""

import os
import time

import pytest

from brainsurgeon.model.sessions import SessionFile
from brainsurgeon.sessions import discovery, leases


class Memory:
    """Knows what the last walk found in directories, and of no file that it may rest."""

    rules, now = "", 0.0

    def __init__(self):
        self.listings, self.listed = {}, {}

    def rows(self, directory):
        return {}

    def record_resting(self, directory, names):
        """Never hear of any."""


@pytest.fixture
def root(tmp_path):
    for agent in ("a", "b"):
        (tmp_path / "root" / agent / "sessions").mkdir(parents=True)
        for name in ("1.jsonl", "2.jsonl"):
            (tmp_path / "root" / agent / "sessions" / name).write_text("{}\n")
    time.sleep(0.05)
    return tmp_path / "root"


@pytest.fixture
def listed(monkeypatch):
    """Count how many directories are listed; their times are believed at once."""
    monkeypatch.setattr(discovery, "AGED", 0.0)
    counted = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda at: counted.append(at) or scandir(at))
    return counted


def walk(root, memory=None):
    """Walk a root as a run does; give the files that it finds, by path."""
    if memory:
        memory.listings, memory.listed = memory.listed, {}
    found = list(discovery.discover([discovery.Root(str(root))], resting=memory))
    assert all(isinstance(one, SessionFile) for one in found)
    return {one.path: one.fingerprint for one in found}


def test_a_directory_that_did_not_change_is_not_listed_again(root, listed):
    """The second walk finds the same files and lists nothing."""
    memory = Memory()
    first = walk(root, memory)
    before = len(listed)
    second = walk(root, memory)

    assert second == first
    assert (len(first), before, len(listed)) == (4, 5, 5)


def test_only_the_directory_that_changed_is_listed_again(root, listed):
    """One new file costs one listing."""
    memory = Memory()
    walk(root, memory)
    (root / "a" / "sessions" / "3.jsonl").write_text("{}\n")
    del listed[:]

    assert len(walk(root, memory)) == 5
    assert len(listed) == 1


def replaced(at):
    os.rename(at / "a", at.parent / "away")
    (at / "a").mkdir()
    (at / "a" / "9.jsonl").write_text("{}\n")


def became_a_directory(at):
    (at / "a" / "sessions" / "1.jsonl").unlink()
    (at / "a" / "sessions" / "1.jsonl").mkdir()
    (at / "a" / "sessions" / "1.jsonl" / "5.jsonl").write_text("{}\n")


CHANGES = {
    "a new file": lambda at: (at / "a" / "sessions" / "3.jsonl").write_text("{}\n"),
    "a file that grew": lambda at: (at / "a" / "sessions" / "1.jsonl").write_text("{}\n{}\n"),
    "a file that went": lambda at: (at / "a" / "sessions" / "1.jsonl").unlink(),
    "another name": lambda at: os.rename(
        at / "a" / "sessions" / "1.jsonl", at / "a" / "sessions" / "3.jsonl"
    ),
    "a move from one directory to another": lambda at: os.rename(
        at / "a" / "sessions" / "1.jsonl", at / "b" / "sessions" / "3.jsonl"
    ),
    "a file put in the place of another": lambda at: os.replace(
        at / "a" / "sessions" / "1.jsonl", at / "a" / "sessions" / "2.jsonl"
    ),
    "another name of a directory": lambda at: os.rename(at / "a", at / "c"),
    "another directory under the name": replaced,
    "a directory where a file was": became_a_directory,
    "a new directory with a file": lambda at: os.rename(
        at / "a" / "sessions", at / "b" / "further"
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_in_a_tree_is_seen(root, listed, change):
    """A walk that remembers finds what one finds that remembers nothing."""
    memory = Memory()
    walk(root, memory)
    CHANGES[change](root)
    seen = walk(root, memory)

    assert seen == walk(root)
    assert seen == walk(root, memory)


def test_a_directory_that_changed_just_now_is_listed_again(root, monkeypatch):
    """Within the step in which a filesystem counts, a further change would not show."""
    monkeypatch.setattr(discovery, "AGED", 60.0)
    memory = Memory()
    walk(root, memory)

    assert memory.listed == {}


def test_times_of_other_filesystems_are_not_believed(root, listed, monkeypatch):
    """Where nobody knows who gives a directory its times, it is listed by every run."""
    monkeypatch.setattr(leases, "PROVEN", {})
    memory = Memory()
    walk(root, memory)

    assert memory.listed == {}


def test_a_run_remembers_for_the_next_of_the_same_process(world, conversation, listed):
    """Runs of a daemon list an unchanged tree once; a new session is seen all the same."""
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    time.sleep(0.05)
    world.scan()
    del listed[:]
    at_rest = world.scan()
    again = [at for at in listed if isinstance(at, int)]
    world.put("t.jsonl", conversation.bytes())

    assert (at_rest.files_seen, at_rest.files_unchanged, again) == (1, 1, [])
    assert world.scan().files_seen == 2
