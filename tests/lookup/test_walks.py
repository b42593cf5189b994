"""The cost of a lookup: one walk over the roots, and one read of each value."""

import os
import sys
import time

import pytest

from brainsurgeon.files import reading
from brainsurgeon.operations.sessions import sessions
from brainsurgeon.operations.status import status
from brainsurgeon.sessions.discovery import discover
from building.mcp_agent import SESSION, agent_after_scan
from building.world import Conversation, append

_listings, _openings = [], []


def _count_access(event, arguments):
    if event == "os.scandir":
        _listings.append(event)
    elif event == "open" and str(arguments[0]).endswith(".jsonl"):
        _openings.append(arguments[0])


sys.addaudithook(_count_access)

DATABASES = 2  # agents that look for databases in a root itself


class Counter:
    """Counts directory listings and reads of stored values within a block."""

    def __init__(self, store=None):
        self._store = store
        self.read = 0

    def __enter__(self):
        self._before = len(_listings)
        if self._store:
            self._store._connection.set_trace_callback(self._statement)
        return self

    def _statement(self, text):
        self.read += text.startswith("SELECT size, codec, data FROM blobs")

    def __exit__(self, *_):
        self.listed = len(_listings) - self._before
        if self._store:
            self._store._connection.set_trace_callback(None)


@pytest.fixture
def world_and_walk(world, conversation):
    """Return a world with sessions of three agents, and the directories that one walk lists."""
    conversation.turn("x" * 4000)
    for _ in range(4):
        conversation.turn("short")
    world.put("one.jsonl", conversation.bytes())
    for agent in ("second", "third"):
        directory = world.root / agent / "sessions"
        directory.mkdir(parents=True)
        (directory / "s.jsonl").write_bytes(Conversation(agent).bytes())
    world.scan()
    with Counter() as one_walk:
        files = list(discover(world.settings().root_directories()))
    assert len(files) == 3
    assert one_walk.listed == 7
    return world, one_walk.listed


def test_a_restore_walks_once_and_reads_each_value_three_times(world_and_walk):
    """It walks the roots once; it reads a value to print it, to check it, and to write it."""
    world, one_walk = world_and_walk

    with Counter(world.store) as counted:
        answer = world.restore("00000003")

    assert not answer.pending
    assert (counted.listed, counted.read) == (one_walk + DATABASES, 3)


def test_a_pending_restore_reads_each_value_once(world_and_walk):
    """A restore that has to wait reads each value only to print it."""
    world, one_walk = world_and_walk

    with Counter(world.store) as counted:
        answer = world.restore("00000003", quiet_seconds=10**9)

    assert answer.pending
    assert (counted.listed, counted.read) == (one_walk + DATABASES, 1)


def test_each_tool_action_walks_once(world):
    """An agent's tool call lists each directory once, whatever its action."""
    agent = agent_after_scan(world)
    with Counter() as one_walk:
        list(discover(world.settings().root_directories()))

    for call in (
        {"action": "get_context"},
        {"action": "show", "entry": "00000003"},
        {"action": "restore", "entry": "00000003"},
        {"action": "set_extractable", "entry": "00000003", "value": False},
    ):
        with Counter() as counted:
            agent.answer(session=SESSION, **call)
        assert counted.listed == one_walk.listed + DATABASES, call


def test_status_walks_once(world_and_walk):
    """`status` walks the roots once and lists each root a few times more."""
    world, one_walk = world_and_walk

    with Counter() as counted:
        status(world.settings(), world.store, 0.0)

    assert counted.listed == one_walk + 3 * len(world.settings().root_directories()) + 2 * DATABASES


def test_scan_of_a_named_path_lists_no_directory(world_and_walk):
    """A run over one named path scans that file and lists no directory."""
    world, _ = world_and_walk
    path = world.directory / "one.jsonl"
    path.touch()

    with Counter() as counted:
        report = world.scan(only=[str(path)])

    assert (report.files_seen, report.files_scanned) == (1, 1)
    assert counted.listed == 0


@pytest.mark.parametrize(
    "path", ["gone.jsonl", "node_modules/x.jsonl", "one.trajectory.jsonl", "../../../x.jsonl"]
)
def test_scan_of_a_named_path_obeys_the_rules_of_the_walk(world_and_walk, path):
    """A named path that a walk would not find is not scanned."""
    world, _ = world_and_walk
    place = world.directory / path
    if not path.startswith("gone"):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(Conversation().bytes())

    assert world.scan(only=[str(place)]).files_seen == 0


def test_scan_of_a_named_path_follows_no_link(world_and_walk):
    """A named path behind a link below a root is not scanned."""
    world, _ = world_and_walk
    (world.root / "linked").symlink_to(world.directory)

    assert world.scan(only=[str(world.root / "linked" / "one.jsonl")]).files_seen == 0


def test_discover_names_agents_by_format_and_directory(world, conversation):
    """Where the layout does not name the agent, the file's format and directory do."""
    elsewhere = world.root / "-home-me"
    elsewhere.mkdir()
    (elsewhere / "s.jsonl").write_bytes(conversation.bytes())
    (elsewhere / "t.jsonl").write_bytes(b"no session\n")
    (elsewhere / "old.jsonl").write_bytes(
        conversation.bytes().replace(b'"version":3', b'"version":1')
    )

    agents = {file.name: file.agent for file in discover(world.settings().root_directories())}

    assert agents == {
        "s.jsonl": "pi:-home-me", "old.jsonl": "pi:-home-me", "t.jsonl": "unknown:-home-me",
    }  # fmt: skip


def test_forks_that_name_each_other_are_read_few_times(world):
    """Sessions that name each other as parents in a circle are opened at most three times each."""
    names = [f"{letter}.jsonl" for letter in "abcdef"]
    for name, parent in zip(names, [*names[1:], names[0]], strict=True):
        conversation = Conversation(name, parentSession=str(world.directory / parent))
        conversation.turn("short")
        world.put(name, conversation.bytes())
    _openings.clear()
    world.scan()
    world.restore_all(pristine=True)

    assert len(_openings) <= 3 * len(names)


@pytest.mark.parametrize("moved", [False, True])
def test_no_known_session_is_read_to_list_it(world_and_walk, monkeypatch, moved):
    """`sessions` reads a session again only if it changed since the last scan."""
    world, _ = world_and_walk
    settings = world.settings()
    if moved:  # then sessions without a record may be the moved one
        (world.directory / "one.jsonl").unlink()
        world.scan()
    before = {row.session: row.state for row in sessions(settings, world.store, time.time())}
    changed = world.root / "third" / "sessions" / "s.jsonl"
    append(changed, [{"type": "custom", "id": "c1", "parentId": None, "customType": "x"}])
    read, lines = [], reading.FileLines.__iter__
    monkeypatch.setattr(
        reading.FileLines, "__iter__",
        lambda self: read.append(os.readlink(f"/proc/self/fd/{self._descriptor}")) or lines(self),
    )  # fmt: skip
    after = {row.session: row.state for row in sessions(settings, world.store, time.time())}
    assert set(read) == {str(changed)}
    assert after == before
