"""What is asked for is looked for once: one walk over the roots, one reading of a value."""

import sys

import pytest

from brainsurgeon.operations.status import status
from brainsurgeon.sessions.discovery import discover
from building.mcp_agent import SESSION, agent_after_scan
from building.world import Conversation

_listings, _openings = [], []


def _heard(event, arguments):
    if event == "os.scandir":
        _listings.append(event)
    elif event == "open" and str(arguments[0]).endswith(".jsonl"):
        _openings.append(arguments[0])


sys.addaudithook(_heard)


class Counted:
    """How many directories were listed, and how often stored bytes were read, in a block."""

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
def several(world, conversation):
    """Give a world with sessions of three agents, and how many directories one walk lists."""
    conversation.turn("x" * 4000)
    for _ in range(4):
        conversation.turn("short")
    world.put("one.jsonl", conversation.bytes())
    for agent in ("second", "third"):
        directory = world.root / agent / "sessions"
        directory.mkdir(parents=True)
        (directory / "s.jsonl").write_bytes(Conversation(agent).bytes())
    world.scan()
    with Counted() as one_walk:
        files = list(discover(world.settings().root_directories()))
    assert len(files) == 3
    assert one_walk.listed == 7
    return world, one_walk.listed


def test_a_restore_walks_once_and_reads_each_value_twice(several):
    """A restore walks the roots once; it reads each value to print it, and again to write it."""
    world, one_walk = several

    with Counted(world.store) as counted:
        answer = world.restore("00000003")

    assert not answer.pending
    assert (counted.listed, counted.read) == (one_walk, 2)


def test_a_pending_restore_reads_each_value_once(several):
    """A restore that has to wait reads each value only to print it."""
    world, one_walk = several

    with Counted(world.store) as counted:
        answer = world.restore("00000003", quiet_seconds=10**9)

    assert answer.pending
    assert (counted.listed, counted.read) == (one_walk, 1)


def test_the_tool_walks_once(world):
    """An agent that calls the tool waits for one walk, whatever the action."""
    agent = agent_after_scan(world)
    with Counted() as one_walk:
        list(discover(world.settings().root_directories()))

    for call in (
        {"action": "get_context"},
        {"action": "show", "entry": "00000003"},
        {"action": "restore", "entry": "00000003"},
        {"action": "set_extractable", "entry": "00000003", "value": False},
    ):
        with Counted() as counted:
            agent.answer(session=SESSION, **call)
        assert counted.listed == one_walk.listed, call


def test_status_walks_once(several):
    """All that `status` says of sessions comes from one walk; each root is listed once more."""
    world, one_walk = several

    with Counted() as counted:
        status(world.settings(), world.store, 0.0)

    assert counted.listed == one_walk + len(world.settings().root_directories())


def test_a_path_that_changed_is_looked_at_alone(several):
    """A run over one named path lists no directory at all."""
    world, _ = several
    path = world.directory / "one.jsonl"
    path.touch()

    with Counted() as counted:
        report = world.scan(only=[str(path)])

    assert (report.files_seen, report.files_scanned) == (1, 1)
    assert counted.listed == 0


@pytest.mark.parametrize(
    "path", ["gone.jsonl", "node_modules/x.jsonl", "one.trajectory.jsonl", "../../../x.jsonl"]
)
def test_a_named_path_is_no_way_around_the_walk(several, path):
    """A run over a path that the walk would not have found finds nothing either."""
    world, _ = several
    place = world.directory / path
    if not path.startswith("gone"):
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(Conversation().bytes())

    assert world.scan(only=[str(place)]).files_seen == 0


def test_a_named_path_behind_a_link_is_left_alone(several):
    """No link below a root is followed, also where the path is named."""
    world, _ = several
    (world.root / "linked").symlink_to(world.directory)

    assert world.scan(only=[str(world.root / "linked" / "one.jsonl")]).files_seen == 0


def test_a_session_file_is_complete_when_it_is_found(world, conversation):
    """Where the layout does not name the agent, the file's own format and directory do."""
    elsewhere = world.root / "-home-me"
    elsewhere.mkdir()
    (elsewhere / "s.jsonl").write_bytes(conversation.bytes())
    (elsewhere / "t.jsonl").write_bytes(b"no session\n")

    found = {file.name: file.agent for file in discover(world.settings().root_directories())}

    assert found == {"s.jsonl": "pi:-home-me", "t.jsonl": "unknown:-home-me"}


def test_forks_that_name_each_other_are_read_a_few_times_each(world):
    """Sessions that exchanged their names name each other as parents: no file is read for ever."""
    names = [f"{letter}.jsonl" for letter in "abcdef"]
    for name, parent in zip(names, [*names[1:], names[0]], strict=True):
        talk = Conversation(name, parentSession=str(world.directory / parent))
        talk.turn("short")
        world.put(name, talk.bytes())
    _openings.clear()
    world.scan()
    world.restore_all(pristine=True)

    assert len(_openings) <= 3 * len(names)
