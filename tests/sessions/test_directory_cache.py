"""Directory listings, cached from one run to the next while they are valid."""

import os
import time

import pytest

from brainsurgeon.files import leases
from brainsurgeon.model.session_files import SessionFile
from brainsurgeon.sessions import discovery


class Memory:
    """Cache of directory listings; no file in it counts as unchanged."""

    rules, now = "", 0.0

    def __init__(self):
        self.listings, self.listed = {}, {}

    def known_in(self, directory):
        return {}

    def record_skipped(self, directory, names):
        """Ignore the names: no file may be skipped."""


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
    """Return the list of directories listed since; a listing may be cached at once."""
    monkeypatch.setattr(discovery, "AGED", 0.0)
    listings = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda at: listings.append(at) or scandir(at))
    return listings


def walk(root, memory=None):
    """Walk a root as a run does; return the fingerprint of each file by path."""
    if memory:
        memory.listings, memory.listed = memory.listed, {}
    files = list(discovery.discover([discovery.Root(str(root))], memory=memory))
    assert all(isinstance(file, SessionFile) for file in files)
    return {file.path: file.fingerprint for file in files}


def test_unchanged_directory_is_not_listed_again(root, listed):
    """A second walk returns the same files and lists no directory."""
    memory = Memory()
    first = walk(root, memory)
    before = len(listed)
    second = walk(root, memory)

    assert second == first
    assert (len(first), before, len(listed)) == (4, 5, 5)


def test_only_the_changed_directory_is_listed_again(root, listed):
    """A new file in one directory costs one listing."""
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
def test_cached_walk_sees_every_change(root, listed, change):
    """A walk with a cache returns the same files as a walk without one."""
    memory = Memory()
    walk(root, memory)
    CHANGES[change](root)
    seen = walk(root, memory)

    assert seen == walk(root)
    assert seen == walk(root, memory)


def test_listing_of_a_just_changed_directory_is_not_cached(root, monkeypatch):
    """A second change within the clock step of the filesystem would not change its time."""
    monkeypatch.setattr(discovery, "AGED", 60.0)
    memory = Memory()
    walk(root, memory)

    assert memory.listed == {}


def test_listing_on_an_unproven_filesystem_is_not_cached(root, listed, monkeypatch):
    """A directory is listed in every run if its filesystem is not known to keep its times."""
    monkeypatch.setattr(leases, "PROVEN", {})
    memory = Memory()
    walk(root, memory)

    assert memory.listed == {}


def test_daemon_runs_share_the_directory_cache(world, conversation, listed):
    """A second run of the process lists nothing again, and a new session is still seen."""
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
