"""Sessions with archived turns that are moved, copied, forked or rewritten, and then restored.

The text of an archive holds the id under which it was written, and that id names its value.
"""

import shutil

import pytest

from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.retention import retention
from building.file_moves import (
    FORKS,
    MOVES,
    agent_renamed,
    check_restored,
    copied_and_deleted,
    copied_to_another_agent,
    files_renamed,
    moved_to_another_agent,
    with_new_ids,
    write_anew,
    write_old_session,
    write_three_sessions,
)
from building.turns import add_long_turn
from building.world import Conversation

pytestmark = pytest.mark.usefixtures("clock")

SETTINGS = {
    "retention": "1s",
    "keep_recent": 0,
    "archive": {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0},
}
# Turns are archived and nothing else is extracted, so that there are no placeholders.
ARCHIVES_ALONE = SETTINGS | {"trigger_types": []}
START, END = "It begins alike. " + "x" * 1500, "y" * 1500 + " It ends alike."


def archivable(secret, session="session"):
    """Return two turns that will be archived; the secret does not show in their summaries."""
    talk = Conversation(session)
    for number in range(2):
        add_long_turn(talk, answer=f"{START} {secret} of turn {number} {END}")
    return talk.bytes()


def own_id(secret):
    return archivable(secret, secret.replace(" ", "-"))


def scan_and_expire(world, settings):
    """Scan three times, with a retention run before each, which must delete nothing."""
    for _ in range(3):
        world.clock.now += 60
        report = retention(world.settings(**settings), world.store, clock=world.clock)
        assert not report.values_deleted
        world.clock.now += 60
        world.scan(**settings)


def count_archives(path):
    return path.read_bytes().count(b'"[archived turn]')


def rewritten(_world, files):
    """Rewrite each history with new ids, as agents do."""
    for path in files:
        write_anew(path, with_new_ids(path.read_bytes()))
    return {path: with_new_ids(original) for path, original in files.items()}


def parameter_id(value):
    if isinstance(value, dict):
        return "with extractions" if value is SETTINGS else "archives alone"
    if isinstance(value, bool):
        return "scanned" if value else "unscanned"
    return value.__name__


@pytest.mark.parametrize(
    ("change", "session", "settings", "scanned"),
    [
        *((change, archivable, SETTINGS, False) for change in (*MOVES, *FORKS)),
        (copied_and_deleted, archivable, ARCHIVES_ALONE, False),
        *((change, own_id, ARCHIVES_ALONE, True) for change in FORKS),
    ],
    ids=parameter_id,
)
def test_archived_turns_return_to_their_session_after_any_change(
    world, change, session, settings, scanned
):
    """Each is restored with exactly its turns, also if only the ids of their archives differ."""
    files = write_three_sessions(world, session)
    world.scan(**settings)
    assert [count_archives(path) for path in files] == [2, 2, 2]
    assert len({path.read_bytes() for path in files}) == 3
    files = change(world, files)
    if scanned:
        scan_and_expire(world, settings)

    check_restored(world, files)


@pytest.mark.parametrize("move", [files_renamed, agent_renamed, moved_to_another_agent])
@pytest.mark.parametrize("settings", [SETTINGS, ARCHIVES_ALONE], ids=parameter_id)
@pytest.mark.parametrize("scanned", [False, True], ids=parameter_id)
def test_a_moved_and_rewritten_session_is_restored(world, move, settings, scanned):
    """New ids in another place do not matter, with or without scans in between."""
    files = write_three_sessions(world, own_id)
    world.scan(**settings)
    files = rewritten(world, move(world, files))
    if scanned:
        scan_and_expire(world, settings)

    check_restored(world, files)


def test_a_rewritten_copy_is_restored_at_its_agent_only(world):
    """A copy with new entry ids has the session id of its origin; another agent's copy stays."""
    files = write_three_sessions(world, own_id)
    world.scan(**SETTINGS)
    copies = copied_to_another_agent(world, files).items() - files.items()
    rewritten(world, dict(copies))
    held = {path: path.read_bytes() for path, _ in copies}
    beside = files[world.directory / "a.jsonl"]
    copy = shutil.copy2(world.directory / "a.jsonl", world.directory / "copy.jsonl")
    files |= rewritten(world, {copy: beside})
    results = world.restore_all(pristine=True)

    assert {path: path.read_bytes() for path in files | held} == files | held
    left = {result.session for result in results if result.left}
    assert left == {f"third/{path.stem}" for path in held}


def test_a_copy_of_an_archived_session_beside_its_twin_is_restored(world):
    """Of two equal sessions one was archived and then copied; all three get their bytes back."""
    first, original = write_old_session(world.directory / "s.jsonl", archivable("secret"))
    second, _ = write_old_session(world.directory / "t.jsonl", original)
    archive(world.settings(**ARCHIVES_ALONE), world.store, str(second), clock=world.clock)
    assert (count_archives(first), count_archives(second)) == (0, 2)
    copy = world.directory / "u.jsonl"
    shutil.copy2(second, copy)

    check_restored(world, dict.fromkeys((first, second, copy), original))
