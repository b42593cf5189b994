"""A session with archived turns is restored wherever it is and however it was written anew.

The text of an archive names the id under which it was written, and that names its value.
"""

import json
import shutil

import pytest

from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.retention import retention
from building.alike import (
    FORKS,
    WHEREVER,
    agent_renamed,
    copied_to_another_agent,
    files_renamed,
    moved_to_another_agent,
    three,
    write,
)
from building.turns import long_turn
from building.world import Conversation, dump

pytestmark = pytest.mark.usefixtures("clock")

AT_ONCE = {
    "retention": "1s",
    "keep_recent": 0,
    "archive": {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0},
}
# Turns are archived, and nothing else is extracted: no placeholder stands anywhere.
ONLY_TEXTS = AT_ONCE | {"trigger_types": []}
ENDS = "It begins alike. " + "x" * 1500, "y" * 1500 + " It ends alike."


def archivable(secret, session="session"):
    """Return two turns that will be archived; where these differ, their summaries do not."""
    talk = Conversation(session)
    for number in range(2):
        long_turn(talk, answer=f" {secret} of turn {number} ".join(ENDS))
    return talk.bytes()


def own_id(secret):
    return archivable(secret, secret.replace(" ", "-"))


def scans(world, settings):
    """Let scans see what happened, with retention runs between them."""
    for _ in range(3):
        world.clock.now += 60
        keys = world.settings(**settings)
        assert not retention(keys, world.store, clock=world.clock).values_deleted
        world.clock.now += 60
        world.scan(**settings)


def is_undone(world, files):
    """Undo everything; check that nothing of ours stays, and that each file is as it was."""
    done = world.restore_all(pristine=True)
    assert {path: path.read_bytes() for path in files} == files
    assert not any(one.unfinished for one in done), done


def archives(path):
    return path.read_bytes().count(b'"[archived turn]')


def with_new_ids(data):
    lines = [json.loads(line) for line in data.splitlines()]
    for number, line in enumerate(lines[1:]):
        line.update(id=f"new-{number}", parentId=f"new-{number - 1}" if number else None)
    return b"".join(map(dump, lines))


def written_anew(_world, files):
    """Let the agents write their histories anew with new ids."""
    for path in files:
        fresh, _ = write(path.with_suffix(".writing"), with_new_ids(path.read_bytes()))
        fresh.rename(path)
    return {path: with_new_ids(said) for path, said in files.items()}


@pytest.mark.parametrize(
    ("happens", "session", "settings", "scanned"),
    [
        *((happens, archivable, AT_ONCE, False) for happens in (*WHEREVER, *FORKS)),
        *((happens, own_id, ONLY_TEXTS, True) for happens in FORKS),
    ],
)
def test_every_turn_comes_back_to_where_it_was(world, happens, session, settings, scanned):
    """Whatever happened to the files, each is restored with exactly its own turns."""
    files = three(world, session)
    world.scan(**settings)
    assert [archives(path) for path in files] == [2, 2, 2]
    files = happens(world, files)
    if scanned:
        scans(world, settings)

    is_undone(world, files)


@pytest.mark.parametrize("move", [files_renamed, agent_renamed, moved_to_another_agent])
@pytest.mark.parametrize("settings", [AT_ONCE, ONLY_TEXTS])
@pytest.mark.parametrize("scanned", [False, True])
def test_what_moved_and_was_written_anew_comes_back(world, move, settings, scanned):
    """With new ids in another place it is restored all the same."""
    files = three(world, own_id)
    world.scan(**settings)
    files = written_anew(world, move(world, files))
    if scanned:
        scans(world, settings)

    is_undone(world, files)


def test_another_agents_copy_written_anew_comes_back(world):
    """A copy with new ids has the id of the session that it was copied from."""
    files = three(world, own_id)
    world.scan(**AT_ONCE)
    copies = {
        path: said for path, said in copied_to_another_agent(world, files).items()
        if path not in files
    }  # fmt: skip

    is_undone(world, files | written_anew(world, copies))


def test_an_archive_is_unique_where_all_else_is_the_same(world):
    """Two sessions that differ only in what their summaries leave out have archives of their own.

    Both are gone from their places, and what is left of them lies in two files of a third agent.
    """
    files = three(world, archivable)
    world.scan(**ONLY_TEXTS)
    assert len({path.read_bytes() for path in files}) == 3
    copies = copied_to_another_agent(world, files)
    for path in files:
        path.unlink()

    is_undone(world, {path: said for path, said in copies.items() if path not in files})


def test_a_copy_of_the_one_of_two_that_was_archived(world):
    """Two were copies of each other until one was archived: a copy of that one is undone, too."""
    first, said = write(world.directory / "s.jsonl", archivable("secret"))
    second, _ = write(world.directory / "t.jsonl", said)
    archive(world.settings(**ONLY_TEXTS), world.store, str(second), clock=world.clock)
    assert (archives(first), archives(second)) == (0, 2)
    copy = world.directory / "u.jsonl"
    shutil.copy2(second, copy)

    is_undone(world, dict.fromkeys((first, second, copy), said))
