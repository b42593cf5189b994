"""A value follows its session: renamed, moved, rotated, copied, forked, exchanged.

Each case ends with every value restored to the byte in the right file, or with the session named
and nothing written; and retention, with one second for what stands nowhere, deletes nothing for
having moved.
"""

import json
import os
import shutil
import time

import pytest

from brainsurgeon import clock as clocks
from brainsurgeon.decide.matching import ELSEWHERE
from brainsurgeon.errors import AmbiguousError, BrainsurgeonError, NotFoundError
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.context import context
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.restore import note_answer
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.sessions import sessions
from brainsurgeon.operations.show import show
from brainsurgeon.operations.status import status
from brainsurgeon.render import as_json
from brainsurgeon.render.sessions import restored_json
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.finishing import Rewrite
from brainsurgeon.rewrite.under_way import Way
from building.alike import back_from_a_backup, generic_log
from building.tool import answered, asking, pruned
from building.world import LONG_AGO, Clock, Conversation, dump, fork, sql, text_of

OTHER = "22222222-0000-4000-8000-000000000002"
THIRD = "33333333-0000-4000-8000-000000000003"
SHORT = {"retention": "1s", "retention_standing": "30d"}
"""So much time has what stands nowhere any more."""


@pytest.fixture(autouse=True)
def clock(world, monkeypatch):
    """Give the world clocks that go only when told."""
    world.clock = Clock(int(time.time()))
    monkeypatch.setattr(clocks, "boot_clock", lambda: world.clock.now)
    return world.clock


def talk(secret, session="11111111-0000-4000-8000-000000000001", **header):
    """Give a conversation whose first result is long; its ids are those of every other one."""
    one = Conversation(session, **header)
    one.turn(f"{secret}: " + "x" * 2000)
    one.turn("short")
    return one


def filled(path):
    """Give what a session of `talk` says that has its stub, or inherited it."""
    return path.read_bytes().replace(b"[[extracted-00000003]]", b"secret: " + b"x" * 2000)


def write(path, data):
    """Write a session, last changed long ago; give the path with its original bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data if isinstance(data, bytes) else data.bytes())
    os.utime(path, (time.time() - LONG_AGO,) * 2)
    return path, path.read_bytes()


def cut(world, **settings):
    """Scan, and give how many values were cut."""
    return world.scan(**{**SHORT, **settings}).values_extracted


def let_go(world, **settings):
    """Let time pass and retention mark, a scan see all roots, and retention delete."""
    deleted = 0
    keys = {**SHORT, **settings}
    for _ in range(4):
        world.clock.now += 60
        deleted += retention(world.settings(**keys), world.store, clock=world.clock).values_deleted
        world.clock.now += 60
        world.scan(**keys)
    return deleted


def is_undone(world, *expected, **settings):
    """Undo everything; check that nothing of ours stays, and that each file is as it was."""
    done = world.restore_all(pristine=True, **settings)
    assert not any(one.unfinished for one in done), done
    for path, original in expected:
        assert path.read_bytes() == original, path
    return done


# --- renamed and moved ---------------------------------------------------------------------------


@pytest.fixture
def ten(world):
    """Let ten sessions of one agent be pruned; give their files with what stood in them."""
    files = [
        write(world.directory / f"{number}.jsonl", talk(f"secret {number}", f"session-{number}"))
        for number in range(10)
    ]
    assert cut(world) == 10
    return files


def renamed_file(world):
    """Give every session of the agent another name."""
    for path in sorted(world.directory.glob("*.jsonl")):
        path.rename(path.with_name(f"was-{path.name}"))
    return lambda path: path.with_name(f"was-{path.name}")


def renamed_agent(world):
    """Give the agent's directory another name."""
    (world.root / "main").rename(world.root / "prime")
    return lambda path: world.root / "prime" / "sessions" / path.name


def moved_to_another_agent(world):
    """Move the sessions into the directory of an agent that has some of its own."""
    other = world.root / "other" / "sessions"
    write(other / "own.jsonl", talk("own", OTHER))
    for path in sorted(world.directory.glob("*.jsonl")):
        path.rename(other / path.name)
    return lambda path: other / path.name


def copied_and_removed(world):
    """Move the agent's directory as one does between filesystems."""
    shutil.copytree(world.root / "main", world.root / "prime")
    shutil.rmtree(world.root / "main")
    return lambda path: world.root / "prime" / "sessions" / path.name


MOVES = [renamed_file, renamed_agent, moved_to_another_agent, copied_and_removed]


@pytest.mark.parametrize("move", MOVES)
def test_what_moved_is_put_back_where_it_is_now(world, ten, move):
    """Undoing everything right after a move gives every session its own bytes."""
    place = move(world)

    is_undone(world, *((place(path), original) for path, original in ten))


@pytest.mark.parametrize("move", MOVES)
def test_nothing_is_deleted_for_having_moved(world, ten, move):
    """Retention deletes none of ten values whose stubs stand in live files; then all come back."""
    place = move(world)

    assert let_go(world) == 0
    is_undone(world, *((place(path), original) for path, original in ten))


@pytest.mark.parametrize("move", MOVES)
def test_retention_alone_deletes_nothing_that_moved(world, ten, move):
    """Neither does it where no scan has followed the sessions yet: what stands counts."""
    place = move(world)
    for _ in range(3):
        world.clock.now += 60
        keys = world.settings(**SHORT)
        assert retention(keys, world.store, clock=world.clock).values_marked == 0

    is_undone(world, *((place(path), original) for path, original in ten))


@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("scanned", [False, True])
def test_a_moved_session_is_known_by_all_its_names(world, ten, move, scanned):
    """By its path, its new name, its header's id, and the name and path that it had before."""
    (old, original), place = ten[3], move(world)
    new = place(old)
    if scanned:
        world.scan(**SHORT)
    known = session_named(world.settings(), world.store, str(new))

    for name in (known.title, known.name, "session-3", "session-"[:8] + "3", str(old)):
        if name == str(old) and not scanned:
            continue
        assert session_named(world.settings(), world.store, name).path == str(new), name
    full = b"".join(cat(world.settings(), world.store, str(new), world.clock()))
    assert full == original
    shown = show(world.settings(), world.store, "00000003", session=known.title)
    assert shown.content["message.content.0.text"].startswith("secret 3")
    answer = world.restore("00000003", session="session-3")
    assert (answer.session, answer.pending) == (known.title, False)
    assert text_of(new, "00000003").startswith("secret 3")


def a_changed_configuration(world):
    """Give the root another name, here and in the configuration."""
    world.root = world.root.rename(world.base / "renamed")
    return {}


def a_link_in_the_old_place(world):
    """Give the root another name and leave a link; the configuration stays."""
    moved = world.root.rename(world.base / "renamed")
    world.root.symlink_to(moved)
    return {}


def a_link_and_a_changed_configuration(world):
    """Give the root another name, leave a link, and configure the new name."""
    old, moved = world.root, world.root.rename(world.base / "renamed")
    old.symlink_to(moved)
    world.root = moved
    return {}


@pytest.mark.parametrize(
    "rename", [a_changed_configuration, a_link_in_the_old_place, a_link_and_a_changed_configuration]
)
def test_a_root_may_be_renamed(world, ten, rename):
    """Everything below it follows, before and after a scan, and nothing is deleted."""
    rename(world)
    files = [(world.root / "main/sessions" / path.name, original) for path, original in ten]
    name = session_named(world.settings(), world.store, "session-4").path
    assert name == os.path.realpath(files[4][0])

    assert let_go(world) == 0
    is_undone(world, *files)


def test_what_lies_below_no_root_of_today_is_put_back(world, ten):
    """A root that is configured no more is gone through by undoing everything, where it lies."""
    elsewhere = world.base / "elsewhere"
    elsewhere.mkdir()

    is_undone(world, *ten, roots=[{"path": str(elsewhere)}])


def test_a_moved_session_goes_on_where_it_is(world, ten):
    """Wishes and pins follow, it is cut again under its record, and no second one is made."""
    before = sql(world, "SELECT count(*) FROM sessions")
    world.restore("00000003", session="session-3", quiet_seconds=10**9)
    place = renamed_agent(world)
    report = world.scan(**SHORT)

    assert report.values_restored == 1
    assert text_of(place(ten[3][0]), "00000003").startswith("secret 3")
    assert sql(world, "SELECT count(*) FROM sessions") == before
    world.clock.now += 700
    assert cut(world) == 1
    is_undone(world, *((place(path), original) for path, original in ten))


# --- rotated -------------------------------------------------------------------------------------


def same_header(secret):
    """Begin anew under the same header, with the same ids."""
    return talk(secret).bytes()


def new_header(secret):
    """Begin anew under a header of its own, with the same ids."""
    return talk(secret, OTHER, timestamp="2026-11-02T10:00:00.000Z").bytes()


@pytest.mark.parametrize("anew", [same_header, new_header, generic_log])
@pytest.mark.parametrize("rotated", ["s.1.jsonl", "z.jsonl"])
@pytest.mark.parametrize("scanned", [False, True])
def test_both_conversations_of_a_rotated_log_come_back(world, anew, rotated, scanned):
    """The older goes on under its new name, the newer is another one, though ids start anew."""
    first = generic_log("first") if anew is generic_log else talk("first").bytes()
    path, older = write(world.directory / "s.jsonl", first)
    assert cut(world) == 1
    path.rename(path.with_name(rotated))
    _, newer = write(path, anew("second"))
    if scanned:
        assert cut(world) == 1
        assert let_go(world) == 0

    is_undone(world, (path.with_name(rotated), older), (path, newer))


def test_a_log_that_is_rotated_again_and_again(world):
    """Every generation is its own session, wherever it has come to lie by now."""
    originals = []
    for number in range(4):
        for older in sorted(world.directory.glob("s.*.jsonl"), reverse=True):
            count = int(older.name.split(".")[1])
            older.rename(older.with_name(f"s.{count + 1}.jsonl"))
        path = world.directory / "s.jsonl"
        if path.exists():
            path.rename(world.directory / "s.1.jsonl")
        originals.insert(0, write(path, generic_log(f"generation {number}"))[1])
        assert cut(world) == 1
        assert let_go(world) == 0

    names = ["s.jsonl", *(f"s.{number}.jsonl" for number in range(1, 4))]
    is_undone(world, *((world.directory / n, one) for n, one in zip(names, originals, strict=True)))


# --- copied and forked ---------------------------------------------------------------------------


def test_a_copy_is_a_fork_with_records_of_its_own(world):
    """Both come back, each from what is recorded of it, and both count in the figures."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    copy = path.with_name("t.jsonl")
    shutil.copy2(path, copy)
    world.scan(**SHORT)
    listed = {one.session: one for one in sessions(world.settings(), world.store, world.clock())}

    assert listed["main/s"].extracted == listed["main/t"].extracted == 1
    assert listed["main/s"].saved == listed["main/t"].saved > 1900
    path.unlink()
    let_go(world)
    is_undone(world, (copy, original))


def test_a_copy_that_no_scan_has_seen_comes_back(world):
    """Undoing everything knows it by what it says."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    copy = path.with_name("t.jsonl")
    shutil.copy2(path, copy)

    is_undone(world, (path, original), (copy, original))


def test_what_nothing_tells_apart_is_named_and_not_written(world):
    """Two sessions that differ only in what was cut get no value where their inodes say nothing.

    They came back from a backup, and one got the inode that the other one had; or they exchanged
    their names, and one was written anew.
    """
    one = write(world.directory / "s.jsonl", talk("the secret of A"))
    two = write(world.directory / "t.jsonl", talk("the secret of B"))
    assert cut(world) == 2
    back_from_a_backup(world, one[0], two[0])

    before = [path.read_bytes() for path, _ in (one, two)]
    done = world.restore_all(pristine=True)
    assert [path.read_bytes() for path, _ in (one, two)] == before
    assert {answer.session for answer in done if answer.left} == {"main/s", "main/t"}


def test_an_inode_that_came_back_with_a_backup_says_nothing(world):
    """Two sessions of one id keep their values where what they hold tells them apart."""
    one = write(world.directory / "s.jsonl", talk("the secret of A"))
    another = Conversation()
    another.turn("the secret of B: " + "x" * 2000, tool="read")
    another.turn("short")
    two = write(world.directory / "t.jsonl", another)
    assert cut(world) == 2
    back_from_a_backup(world, one[0], two[0])

    is_undone(world, one, two)


@pytest.mark.parametrize("gone", [False, True])
def test_of_several_sessions_a_copy_is_of_the_one_that_explains_it(world, gone):
    """Two that were copies of each other went apart: a third holds what only one of them said."""
    other, _ = write(world.directory / "s.jsonl", talk("secret"))
    path = other.with_name("t.jsonl")
    longer = talk("secret")
    longer.turn("later: " + "y" * 2000)
    longer.turn("short")
    _, original = write(path, longer)
    assert cut(world) == 3
    copy = path.with_name("u.jsonl")
    shutil.copy2(path, copy)
    if gone:
        other.unlink()

    assert b"".join(cat(world.settings(), world.store, str(copy), world.clock())) == original
    is_undone(world, (path, original), (copy, original))


def test_another_agents_copy_gets_nothing_and_is_named(world):
    """What was copied into another agent's directory is not its own: its stubs stay, said so."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    copy = world.root / "other" / "sessions" / "s.jsonl"
    copy.parent.mkdir(parents=True)
    shutil.copy2(path, copy)
    before = copy.read_bytes()
    assert let_go(world) == 0
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert path.read_bytes() == original
    assert copy.read_bytes() == before
    assert not done["main/s"].unfinished
    assert done["other/s"].unfinished
    assert done["other/s"].left[0].startswith("00000003: ")
    with pytest.raises(NotFoundError):
        show(world.settings(), world.store, "00000003", session="other/s")


@pytest.mark.parametrize("scanned", ["before", "after", None])
def test_another_agents_copy_of_what_was_put_away_gets_nothing(world, scanned):
    """A session in the archive is not gone: its copy in another agent's directory stays one."""
    path, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    copy = world.root / "other" / "sessions" / "u.jsonl"
    copy.parent.mkdir(parents=True)
    shutil.copy2(path, copy)
    before = copy.read_bytes()
    if scanned == "before":
        world.scan(**SHORT)
    path.rename(path.with_name("s.jsonl.reset.2026-11-21T10-00-00.000Z"))
    if scanned == "after":
        world.scan(**SHORT)
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert copy.read_bytes() == before
    assert done["other/u"].unfinished


def as_the_file_that_was_cut(world, path):
    """Let a file have the inode of the one that was cut, as after the agent wrote that anew."""
    [record] = world.store.sessions.all()
    status = path.stat()
    world.store.sessions.stands_as(record.id, (status.st_dev, status.st_ino))


def test_an_inode_that_another_agents_copy_got_gives_it_nothing(world):
    """The session stands where it was, as another file; its inode was given to a copy of it."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    copy = world.root / "other" / "sessions" / "s.jsonl"
    copy.parent.mkdir(parents=True)
    shutil.copy2(path, copy)
    as_the_file_that_was_cut(world, copy)
    before = copy.read_bytes()
    assert let_go(world) == 0
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert (path.read_bytes(), copy.read_bytes()) == (original, before)
    assert done["other/s"].unfinished


def test_an_inode_that_a_copy_beside_got_costs_nothing(world):
    """Of two files of one agent that say the same, either may count as the one that was cut."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    copy = path.with_name("t.jsonl")
    shutil.copy2(path, copy)
    as_the_file_that_was_cut(world, copy)
    assert let_go(world) == 0

    is_undone(world, (path, original), (copy, original))


def test_an_inode_that_another_session_got_says_nothing(world):
    """What says something else of itself is another session, whatever its inode."""
    path, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    held = path.read_bytes()
    path.unlink()
    header, _ = talk("another", OTHER).bytes().split(b"\n", 1)
    other, _ = write(path.with_name("t.jsonl"), header + held[held.index(b"\n") :])
    as_the_file_that_was_cut(world, other)
    before = other.read_bytes()
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert other.read_bytes() == before
    assert done["main/t"].unfinished


@pytest.fixture
def both_cut(world):
    """Let a session and its fork cut the same entry, which said something else in each."""
    parent, original = write(world.directory / "s.jsonl", talk("the parent's"))
    child = fork(parent, OTHER)
    lines = [json.loads(line) for line in child.read_bytes().splitlines()]
    lines[3]["message"]["content"][0]["text"] = "the fork's: " + "y" * 3000
    _, forked = write(child, b"".join(map(dump, lines)))
    assert cut(world) == 2
    return (parent, original), (child, forked)


def test_a_forks_own_value_speaks_for_it(world, both_cut):
    """Shown, printed, listed and put back is what the fork said, never what its parent did."""
    (parent, original), (child, forked) = both_cut
    name = f"main/{OTHER}"
    shown = show(world.settings(), world.store, "00000003", session=name)
    assert shown.content["message.content.0.text"].startswith("the fork's")
    assert b"".join(cat(world.settings(), world.store, name, world.clock())) == forked
    [value] = context(world.settings(), world.store, name, world.clock()).extracted
    assert value.chars > 3000
    busy = world.restore("00000003", session=name, quiet_seconds=10**9)
    assert busy.content["message.content.0.text"].startswith("the fork's")
    listed = {one.session: one for one in sessions(world.settings(), world.store, world.clock())}
    assert (listed["main/s"].extracted, listed[name].extracted) == (1, 1)
    assert listed[name].saved > 2900 > listed["main/s"].saved
    assert status(world.settings(), world.store, world.clock()).values_extracted == 2

    world.restore("00000003", session=name)
    assert text_of(child, "00000003").startswith("the fork's")
    is_undone(world, (parent, original), (child, forked))


def test_a_forks_own_value_speaks_beside_what_it_inherited(world):
    """Where a fork holds its parent's stubs and cuts one entry for itself, each stub is its own."""
    one = talk("the parent's")
    one.turn("both: " + "z" * 2000)
    one.turn("short")
    parent, original = write(world.directory / "s.jsonl", one)
    assert cut(world) == 2
    child = fork(parent, OTHER)
    lines = [json.loads(line) for line in child.read_bytes().splitlines()]
    full = [json.loads(line) for line in original.splitlines()]
    text = "the fork's: " + "y" * 3000
    lines[3]["message"]["content"][0]["text"] = text
    write(child, b"".join(map(dump, lines)))
    assert cut(world) == 1
    full[0], full[3] = lines[0], json.loads(json.dumps(full[3]))
    full[3]["message"]["content"][0]["text"] = text
    said = b"".join(map(dump, full))
    name = f"main/{OTHER}"
    shown = show(world.settings(), world.store, "00000003", session=name)
    assert shown.content["message.content.0.text"] == text
    assert b"".join(cat(world.settings(), world.store, name, world.clock())) == said

    is_undone(world, (parent, original), (child, said))


def test_a_fork_moves_to_another_agent_with_what_it_inherited(world):
    """What stands in it is its own by then: its parent stays behind and may go."""
    parent, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    child = fork(parent, OTHER)
    original = filled(child)
    world.scan(**SHORT)
    moved = world.root / "other" / "sessions" / child.name
    moved.parent.mkdir(parents=True)
    child.rename(moved)
    parent.unlink()
    let_go(world)

    is_undone(world, (moved, original))


def test_a_parent_that_was_renamed_is_still_its_forks_parent(world):
    """A fork names the file that it was forked from; the session goes on under another name."""
    parent, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    parent.rename(parent.with_name("renamed.jsonl"))
    world.scan(**SHORT)
    child = fork(parent.with_name("renamed.jsonl"), OTHER, parent=str(parent))
    os.utime(child, (time.time() - LONG_AGO,) * 2)

    is_undone(world, (parent.with_name("renamed.jsonl"), original))
    assert b"[[extracted-" not in child.read_bytes()


@pytest.fixture
def renamed_unseen(world):
    """Let an agent's directory be renamed after a session was cut; no scan has seen it since."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    (world.root / "main").rename(world.root / "prime")
    return world.root / "prime" / "sessions" / path.name, original


@pytest.mark.parametrize("name", ["a-fork", "the-fork"])
def test_a_fork_of_what_moved_unseen_is_one(world, renamed_unseen, name):
    """A fork names its parent's new path: what stands there says whose stubs these are."""
    parent, original = renamed_unseen
    child = fork(parent, name)
    said = filled(child)
    assert b"".join(cat(world.settings(), world.store, str(child), world.clock())) == said

    is_undone(world, (parent, original), (child, said))


@pytest.mark.parametrize("name", ["a-fork", "the-fork"])
def test_what_a_fork_inherited_is_its_own_once_it_was_seen(world, renamed_unseen, name):
    """Even a scan that comes upon the fork before its parent, which has moved, knows both."""
    parent, _ = renamed_unseen
    child = fork(parent, name)
    os.utime(child, (time.time() - LONG_AGO,) * 2)
    said = filled(child)
    world.scan(**SHORT)
    parent.unlink()
    let_go(world)

    is_undone(world, (child, said))


@pytest.mark.parametrize("name", ["a-fork", "the-fork"])
def test_a_fork_that_moved_with_its_parent_unseen_is_one(world, name):
    """The path that it names is gone with the old name of the directory."""
    parent, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    child = fork(parent, name)
    os.utime(child, (time.time() - LONG_AGO,) * 2)
    said = filled(child)
    (world.root / "main").rename(world.root / "prime")
    parent, child = (world.root / "prime" / "sessions" / one.name for one in (parent, child))

    assert b"".join(cat(world.settings(), world.store, str(child), world.clock())) == said
    world.scan(**SHORT)
    parent.unlink()
    let_go(world)
    is_undone(world, (child, said))


def test_a_fork_of_a_fork_is_known_before_a_scan(world):
    """What nobody has noted yet is followed from file to file."""
    first, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    last = fork(fork(first, OTHER), THIRD)
    said = filled(last)

    assert b"".join(cat(world.settings(), world.store, str(last), world.clock())) == said


@pytest.mark.parametrize("between", ["between.jsonl", "s.jsonl"])
def test_a_fork_that_may_be_of_either_of_two_gets_nothing_and_is_named(world, between):
    """Two sessions with the same ids cut the same entry, and nothing tells whose fork it is."""
    parent, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    between = parent.rename(parent.with_name(between))
    child = fork(between, "the-fork")
    before = child.read_bytes()
    moved = between.rename(parent.with_name("moved.jsonl"))
    _, another = write(parent, talk("another", "another"))
    os.utime(child)  # still at work: the scan does not note it
    assert cut(world) == 1
    os.utime(child, (time.time() - LONG_AGO,) * 2)
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert (moved.read_bytes(), parent.read_bytes()) == (original, another)
    assert child.read_bytes() == before
    assert done["main/the-fork"].unfinished


@pytest.mark.parametrize("scanned", [False, True])
def test_another_session_in_the_parents_place_is_not_the_parent(world, scanned):
    """A fork names a path that another session has taken since: what it holds tells the two."""
    parent, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    child = fork(parent, OTHER)
    said = filled(child)
    moved = parent.rename(parent.with_name("moved.jsonl"))
    _, another = write(parent, talk("another", "another"))
    if scanned:
        assert cut(world) == 1

    is_undone(world, (moved, original), (parent, another), (child, said))


def test_a_fork_whose_parent_nobody_can_follow_is_known_by_its_stubs(world):
    """Renamed before the fork and again after it, unseen: the path that it names was never known.

    What it says shows which session of its agent it was forked from.
    """
    parent, original = write(world.directory / "s.jsonl", talk("secret"))
    one = Conversation("another")
    one.turn("short")
    one.turn("another: " + "x" * 2000)
    one.turn("short")
    another, _ = write(world.directory / "another.jsonl", one)
    assert cut(world) == 2
    child = fork(parent.rename(parent.with_name("between.jsonl")), OTHER)
    said = filled(child)
    parent = parent.with_name("between.jsonl").rename(parent.with_name("last.jsonl"))
    assert another.exists()

    is_undone(world, (parent, original), (child, said))


def test_a_fork_whose_parent_is_gone_like_its_directorys_name_is_named(world):
    """Nothing shows then that it is of the same agent: nothing is written, and nothing deleted."""
    parent, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    child = fork(parent, OTHER)
    before = child.read_bytes()
    parent.unlink()
    (world.root / "main").rename(world.root / "prime")
    child = world.root / "prime" / "sessions" / child.name
    assert let_go(world) == 0
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert child.read_bytes() == before
    assert done[f"prime/{OTHER}"].unfinished


def test_a_fork_knows_its_parent_that_was_written_anew_and_put_away(world, renamed_unseen):
    """What lies in the archive beside it says of itself that it is the session that was cut."""
    parent, _ = renamed_unseen
    child = fork(parent, "a-fork")
    said = filled(child)
    anew = parent.with_name("anew")
    shutil.copy2(parent, anew)
    anew.rename(parent)
    parent.rename(parent.with_name(f"{parent.name}.reset.2026-11-21T10-00-00.000Z"))
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert child.read_bytes() == said
    assert not done["prime/a-fork"].unfinished


def test_a_copy_of_what_moved_unseen_is_a_copy(world, renamed_unseen):
    """The session is the file that was cut; a copy of it beside comes back as well."""
    path, original = renamed_unseen
    copy = path.with_name("a-copy.jsonl")
    shutil.copy2(path, copy)
    for one in (path, copy):
        assert b"".join(cat(world.settings(), world.store, str(one), world.clock())) == original
    world.scan(**SHORT)
    listed = {one.session: one for one in sessions(world.settings(), world.store, world.clock())}
    assert listed["prime/s"].extracted == listed["prime/a-copy"].extracted == 1

    is_undone(world, (path, original), (copy, original))


# --- written anew, then moved --------------------------------------------------------------------


def two_secrets():
    """Give a conversation of which two results are long."""
    one = talk("secret")
    one.turn("another: " + "x" * 2000)
    one.turn("short")
    return one


def written_anew(path, data):
    """Let the agent write a session anew, as another file under its name."""
    before = path.stat().st_ino
    fresh, _ = write(path.with_suffix(".writing"), data)
    fresh.rename(path)
    assert path.stat().st_ino != before


def with_new_ids(data):
    """Give the entries of a session other ids, as where its agent wrote it from memory."""
    lines = [json.loads(line) for line in data.splitlines()]
    last = None
    for number, line in enumerate(lines[1:]):
        line["id"], line["parentId"] = f"new-{number}", last
        last = line["id"]
    return b"".join(map(dump, lines))


def without_first_turn(data):
    """Give a session whose agent dropped its first turn, as after a compaction."""
    header, *entries = data.splitlines(keepends=True)
    return b"".join([header, *entries[4:]])


@pytest.mark.parametrize("change", [with_new_ids, without_first_turn])
def test_what_a_scan_saw_gone_holds_nothing_back(world, change):
    """Stubs that the agent wrote away are not looked for where the rest has moved unseen."""
    path, original = write(world.directory / "s.jsonl", two_secrets())
    assert cut(world) == 2
    said = change(original)
    written_anew(path, said)
    left = cut(world)
    [listed] = sessions(world.settings(), world.store, world.clock())
    assert listed.extracted == left
    written_anew(path, path.read_bytes())
    moved = renamed_agent(world)(path)

    assert b"".join(cat(world.settings(), world.store, str(moved), world.clock())) == said
    is_undone(world, (moved, said))


def test_what_stands_in_a_fork_does_not_stand_in_its_parent(world):
    """The parent was written anew; scans and retention come upon its old stubs in the fork."""
    path, original = write(world.directory / "s.jsonl", two_secrets())
    assert cut(world) == 2
    child = fork(path, OTHER)
    os.utime(child, (time.time() - LONG_AGO,) * 2)
    world.scan(**SHORT)
    said = with_new_ids(original)
    written_anew(path, said)
    assert cut(world) == 2
    assert let_go(world) == 0
    os.utime(child, (time.time() - LONG_AGO - 60,) * 2)
    world.scan(**SHORT)
    listed = {one.session: one for one in sessions(world.settings(), world.store, world.clock())}
    assert listed["main/s"].extracted == listed[f"main/{OTHER}"].extracted == 2
    written_anew(path, path.read_bytes())
    moved = renamed_agent(world)(path)

    is_undone(world, (moved, said))


def test_a_redacted_call_with_a_new_id_holds_nothing_back(world):
    """What the store shortened is known by what it says where the agent gave it another id."""
    agent = pruned(world)
    path, cut_out = agent.path, agent.path.read_bytes().count(b"[[extracted-")
    assert cut_out > 1
    before = asking(agent, {"action": "restore", "entry": "00000003"})
    answer = world.restore("00000003", session=str(path))
    note_answer(world.store, answer)
    answered(agent, before, as_json(restored_json(answer)))
    world.scan(**SHORT)
    assert b'"Restored 00000003."' in path.read_bytes()
    assert path.read_bytes().count(b"[[extracted-") >= cut_out - 1
    written_anew(path, with_new_ids(path.read_bytes()))
    moved = renamed_agent(world)(path)

    is_undone(world)
    assert b"[[extracted-" not in moved.read_bytes()
    assert b'"Restored 00000003."' in moved.read_bytes()


def with_new_ids_and_without_first_turn(data):
    """Let the agent do both."""
    return with_new_ids(without_first_turn(data))


@pytest.mark.parametrize("change", [without_first_turn, with_new_ids_and_without_first_turn])
def test_what_went_and_moved_between_two_scans_is_named(world, change):
    """Nothing tells it from an older copy: nothing is written, and nothing that stands deleted.

    Once what went has expired, nothing misses it any more, and what stands comes back.
    """
    path, original = write(world.directory / "s.jsonl", two_secrets())
    assert cut(world) == 2
    written_anew(path, change(path.read_bytes()))
    moved = renamed_agent(world)(path)
    before = moved.read_bytes()
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert moved.read_bytes() == before
    assert [why.partition(": ")[2] for why in done["prime/s"].left] == [ELSEWHERE]
    assert any("1 stub is an orphan" in one.what for one in doctor(world.settings(), world.store))
    assert let_go(world) == 1
    is_undone(world, (moved, change(original)))


# --- exchanged -----------------------------------------------------------------------------------


@pytest.mark.parametrize("write_one", [lambda secret: talk(secret).bytes(), generic_log])
@pytest.mark.parametrize("scanned", [False, True])
def test_agents_that_exchange_their_names_keep_their_secrets(world, write_one, scanned):
    """Same names, same ids, same everything but the value: each gets back what it said itself."""
    one = write(world.directory / "s.jsonl", write_one("the secret of A"))
    two = write(world.root / "other" / "sessions" / "s.jsonl", write_one("the secret of B"))
    assert cut(world) == 2
    for old, new in (("main", "third"), ("other", "main"), ("third", "other")):
        (world.root / old).rename(world.root / new)
    if scanned:
        assert let_go(world) == 0

    is_undone(world, (two[0], one[1]), (one[0], two[1]))


@pytest.mark.parametrize("name", ["s.jsonl", "was-s.jsonl"])
@pytest.mark.parametrize("scanned", [False, True])
def test_a_copy_near_the_old_place_does_not_pass_for_the_session(world, name, scanned):
    """A session whose directory was exchanged is itself, whatever copy lies where it once lay."""
    one = write(world.directory / "s.jsonl", talk("the secret of A"))
    two = write(world.root / "other" / "sessions" / "t.jsonl", talk("the secret of B"))
    assert cut(world) == 2
    for old, new in (("main", "third"), ("other", "main"), ("third", "other")):
        (world.root / old).rename(world.root / new)
    moved = world.root / "other" / "sessions" / name
    moved.with_name("s.jsonl").rename(moved)
    beside, copy = world.directory / "t.jsonl", world.directory / "u.jsonl"
    shutil.copy2(beside, copy)
    if scanned:
        assert let_go(world) == 0

    is_undone(world, (moved, one[1]), (beside, two[1]), (copy, two[1]))


@pytest.mark.parametrize("scanned", [False, True])
def test_a_copy_in_the_old_place_gets_no_value_of_the_session(world, scanned):
    """It is a copy of what lies beside it, or nobody's; what cannot be told apart is named."""
    one = write(world.directory / "s.jsonl", talk("the secret of A"))
    two = write(world.root / "other" / "sessions" / "t.jsonl", talk("the secret of B"))
    assert cut(world) == 2
    for old, new in (("main", "third"), ("other", "main"), ("third", "other")):
        (world.root / old).rename(world.root / new)
    beside, copy = world.directory / "t.jsonl", world.directory / "s.jsonl"
    shutil.copy2(beside, copy)
    before = copy.read_bytes()
    if scanned:
        assert let_go(world) == 0
    done = {each.session: each for each in world.restore_all(pristine=True)}

    assert beside.read_bytes() == two[1]
    assert copy.read_bytes() in (before, two[1])
    moved = world.root / "other" / "sessions" / "s.jsonl"
    assert moved.read_bytes() == one[1] or done["other/s"].unfinished


def test_sessions_that_exchange_their_names_keep_their_values(world):
    """So do two sessions of one agent."""
    one = write(world.directory / "a.jsonl", talk("one"))
    two = write(world.directory / "b.jsonl", talk("two"))
    assert cut(world) == 2
    for old, new in (("a", "c"), ("b", "a"), ("c", "b")):
        (world.directory / f"{old}.jsonl").rename(world.directory / f"{new}.jsonl")

    is_undone(world, (two[0], one[1]), (one[0], two[1]))


@pytest.mark.parametrize("changed", ["toolName", "toolCallId", "isError", "details"])
def test_a_value_never_lands_in_an_entry_that_is_another(world, changed):
    """Where the rest of the entry is not as recorded, the stub stays and is named."""
    path, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[3]["message"][changed] = {"new": 1} if changed == "details" else "another"
    _, before = write(path, b"".join(map(dump, lines)))
    [done] = world.restore_all(pristine=True)

    assert path.read_bytes() == before
    assert done.unfinished
    assert done.left == ("00000003: the rest of the entry is not as recorded",)
    assert let_go(world) == 0
    assert show(world.settings(), world.store, "00000003").content
    with pytest.raises(BrainsurgeonError):
        world.restore("00000003")
    assert path.read_bytes() == before


def test_what_an_agent_changes_when_it_writes_anew_does_not_matter(world):
    """Other ids, links and times around a message: it is the entry that was recorded."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    said = [json.loads(line) for line in original.splitlines()]
    for number, (line, true) in enumerate(zip(lines[1:], said[1:], strict=True)):
        for one in (line, true):
            one.update(id=f"new-{number}", parentId=number and f"new-{number - 1}")
            one["timestamp"] = "2026-12-01T00:00:00.000Z"
    write(path, b"".join(map(dump, lines)))

    is_undone(world, (path, b"".join(map(dump, said))))


# --- undoing everything tells the truth ----------------------------------------------------------


def test_a_root_that_is_away_is_named(world, ten, tmp_path):
    """While a root cannot be looked into, each session that may hold stubs there is named."""
    world.root.rename(tmp_path / "away")
    done = world.restore_all()

    assert [one.unfinished for one in done] == [True] * 10
    assert all("cannot be looked into" in one.reason for one in done)


def test_after_a_lost_store_every_orphan_is_named(world, ten):
    """Without the store nothing can be put back: both verbs say which stubs, and what to do."""
    world.close()
    shutil.rmtree(world.state)
    before = [path.read_bytes() for path, _ in ten]
    done = world.restore_all()
    findings = doctor(world.settings(), world.store)

    assert [path.read_bytes() for path, _ in ten] == before
    assert len(done) == 10
    assert all(one.unfinished and one.left[0].startswith("00000003: ") for one in done)
    assert all("state_dir" in one.reason for one in done)
    orphans = [one for one in findings if "1 stub is an orphan, in 00000003" in one.what]
    assert len(orphans) == 10
    assert all("state_dir" in one.advice for one in orphans)


def test_a_text_that_looks_like_a_stub_is_nobodys(world):
    """What a user typed stays, and nothing is said to be left."""
    one = Conversation()
    one.user("[[extracted-00000009]]")
    one.assistant("[[extracted-00000001]]")
    _, original = write(world.directory / "s.jsonl", one)
    write(world.directory / "t.jsonl", talk("secret", OTHER))
    assert cut(world) == 1

    is_undone(world, (world.directory / "s.jsonl", original))


def test_what_expired_is_named(world):
    """A stub that leads to a tombstone stays, and undoing everything is not done."""
    path, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    sql(world, "UPDATE extractions SET blob_id = NULL, state = 'expired', expired_at = 1.0")
    [done] = world.restore_all()

    assert done.unfinished
    assert done.left == ("00000003: expired",)
    assert b"[[extracted-00000003]]" in path.read_bytes()


def test_an_archive_with_stubs_is_named(world):
    """What its agent put away is read, never written."""
    path, _ = write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    away = path.rename(path.with_name("s.jsonl.reset.2026-11-21T04-49-16.343Z"))
    before = away.read_bytes()
    done = {one.session: one for one in world.restore_all()}

    assert away.read_bytes() == before
    assert done[str(away)].unfinished
    assert let_go(world) == 0


def test_pending_is_no_failure(world):
    """A session that is not settled gets its values later; that is as good as done."""
    write(world.directory / "s.jsonl", talk("secret"))
    assert cut(world) == 1
    [done] = world.restore_all(quiet_seconds=10**9)

    assert (done.state, done.unfinished) == ("pending", False)


def test_a_deleted_session_leaves_nothing_to_undo(world):
    """Its root is there and it is not: nothing of ours stays anywhere."""
    path, _ = write(world.directory / "s.jsonl", talk("secret"))
    write(world.directory / "t.jsonl", talk("another", OTHER))
    assert cut(world) == 2
    path.unlink()
    done = {one.session: one for one in world.restore_all()}

    assert (done["main/s"].state, done["main/s"].unfinished) == ("gone", False)
    assert status(world.settings(), world.store, world.clock()).bytes_saved == 0


# --- names ---------------------------------------------------------------------------------------


@pytest.fixture
def pi(world):
    """Let pi write a session and a fork of it, as it names them; give the files."""
    directory = world.root / "--home-dev-x--"
    first = directory / f"2026-11-21T10-00-00-000Z_{OTHER}.jsonl"
    write(first, talk("secret", OTHER))
    assert cut(world) == 1
    second = fork(first, THIRD, directory=directory)
    second = second.rename(directory / f"2026-11-21T11-00-00-000Z_{THIRD}.jsonl")
    os.utime(second, (time.time() - LONG_AGO,) * 2)
    return first, second


def test_pi_sessions_are_known_by_the_ids_that_pi_gives_them(world, pi):
    """By the header's id, what follows the time, the whole stem, and each behind its agent."""
    first, second = pi
    for path, ident in ((first, OTHER), (second, THIRD)):
        for agent in ("", "pi:--home-dev-x--/", "openclaw:--home-dev-x--/"):
            for name in (ident, ident[:7], path.stem):
                found = session_named(world.settings(), world.store, agent + name)
                assert found.path == str(path)
    found = session_named(world.settings(), world.store, OTHER)
    assert found.title == f"pi:--home-dev-x--/{first.stem}"


def test_a_codex_session_is_known_by_the_id_that_codex_prints(world):
    """By what follows the time in the file's name, a beginning of it, and the whole stem."""
    stem = f"rollout-2026-11-21T13-30-08-{OTHER}"
    meta = {"type": "session_meta", "payload": {"id": OTHER}}
    path = world.put(f"{stem}.jsonl", json.dumps(meta).encode() + b"\n")

    for name in (OTHER, OTHER[:7], stem):
        assert session_named(world.settings(), None, name).path == str(path)


def test_a_header_that_says_something_else_is_a_name_too(world):
    """A file that was renamed answers to the id in its header, before any scan and without one."""
    write(world.directory / "renamed.jsonl", talk("secret", "s1"))

    assert session_named(world.settings(), None, "s1").name == "renamed"
    assert session_named(world.settings(), world.store, "main/s1").name == "renamed"
    with pytest.raises(NotFoundError):
        session_named(world.settings(), world.store, "s2")


def test_two_files_that_say_the_same_are_told_apart_by_name(world):
    """A header's id that fits two is ambiguous; what is printed for each leads to it."""
    for name in ("a", "b"):
        write(world.directory / f"{name}.jsonl", talk("secret", "s1"))
    with pytest.raises(AmbiguousError) as told:
        session_named(world.settings(), world.store, "s1")

    for line in told.value.candidates:
        for name in line.split():
            assert session_named(world.settings(), world.store, name).title in told.value.args[0]


@pytest.mark.parametrize("stem", ["naïve", "caf\udce9", "tab\there", "two words", "x" * 200])
def test_every_printed_name_can_be_pasted_back(world, stem):
    """Also where the name had to be escaped to be shown."""
    from brainsurgeon.render import safe  # noqa: PLC0415

    path, _ = write(world.directory / f"{stem}.jsonl", talk("secret", OTHER))
    assert cut(world) == 1
    for one in sessions(world.settings(), world.store, world.clock()):
        for printed in (one.session, safe(one.session), safe(one.path)):
            assert session_named(world.settings(), world.store, printed).path == str(path)


# --- stopped in between --------------------------------------------------------------------------


def killed(*arguments, **keywords):
    """Die."""
    raise KeyboardInterrupt


def exchanged_agents(world):
    """Let the agent's directory exchange its name with that of another agent."""
    (world.root / "other" / "sessions").mkdir(parents=True)
    (world.root / "main").rename(world.root / "between")
    (world.root / "other").rename(world.root / "main")
    (world.root / "between").rename(world.root / "other")
    return lambda path: world.root / "other" / "sessions" / path.name


def moved_file(world):
    """Move the sessions into the directory of another agent, and leave everything else."""
    (world.root / "other" / "sessions").mkdir(parents=True)
    for path in world.directory.glob("*.jsonl"):
        path.rename(world.root / "other" / "sessions" / path.name)
    return lambda path: world.root / "other" / "sessions" / path.name


def moved_file_and_exchanged(world):
    """Move the sessions, and then let the two directories exchange their names."""
    moved_file(world)
    (world.root / "main").rename(world.root / "between")
    (world.root / "other").rename(world.root / "main")
    (world.root / "between").rename(world.root / "other")
    return lambda path: path


@pytest.mark.parametrize(
    "move", [renamed_file, renamed_agent, exchanged_agents, moved_file, moved_file_and_exchanged]
)
@pytest.mark.parametrize("at", ["exchanged", "retired"])
def test_a_session_that_moves_after_a_crash_is_recovered_where_it_is(world, monkeypatch, move, at):
    """The journal names where it was; late lines, the old file and the records follow it."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    late = dump({"type": "custom", "id": "late", "data": 1})
    with monkeypatch.context() as patch:
        patch.setattr(recover, "resolve", lambda *_, **__: None)
        if at == "exchanged":
            patch.setattr(Way, "settle", killed)
        else:
            patch.setattr(Rewrite, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            world.scan(**SHORT)
    [left] = world.leftovers()
    world.close()
    with open(world.directory / left, "ab") as old:
        old.write(late)
    place = move(world)
    recover.recover(world.store)

    assert world.leftovers() == []
    assert place(path).read_bytes().endswith(late)
    assert let_go(world) == 0
    is_undone(world, (place(path), original + late))


def cut_and_killed(world, monkeypatch):
    """Let a scan be killed before it removes the old file; give the name of that."""
    with monkeypatch.context() as patch:
        patch.setattr(Rewrite, "remove", killed)
        patch.setattr(recover, "resolve", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            world.scan(**SHORT)
    [left] = world.leftovers()
    return left


@pytest.mark.parametrize("where", ["main", "other"])
@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_another_session_with_the_inode_of_a_deleted_one_gets_nothing(
    world, monkeypatch, where, mode
):  # fmt: skip
    """After a crash the session is deleted, and the number of its inode is given out again."""
    path, _ = write(world.directory / "s.jsonl", talk("secret"))
    left = cut_and_killed(world, monkeypatch)
    [rewrite] = world.store.journal.open_rewrites()
    with open(world.directory / left, mode) as old:
        old.write(dump({"type": "custom", "id": "late", "data": "secret"}))
    path.unlink()
    another = world.root / where / "sessions" / "t.jsonl"
    another.parent.mkdir(parents=True, exist_ok=True)
    _, said = write(another, talk("theirs", OTHER))
    sql(world, "UPDATE journal SET new_inode = ?", (another.stat().st_ino,))
    world.close()
    done = recover.recover(world.store)

    assert rewrite.new_inode is not None
    assert another.read_bytes() == said
    assert [one.what for one in done] == ["finished"]
    assert world.leftovers() == []


def test_a_session_written_anew_after_a_move_gets_its_late_lines(world, monkeypatch):
    """Whose file it is where nothing in it is as it was: what its first line says tells that."""
    path, _ = write(world.directory / "s.jsonl", talk("secret"))
    late = dump({"type": "custom", "id": "late", "data": 1})
    left = cut_and_killed(world, monkeypatch)
    world.close()
    with open(world.directory / left, "ab") as old:
        old.write(late)
    place = moved_file(world)(path)
    anew = talk("anew").bytes()
    place.write_bytes(anew)
    recover.recover(world.store)

    assert place.read_bytes() == anew + late
    assert world.leftovers() == []


def test_a_root_that_moves_after_a_crash_is_recovered(world, monkeypatch):
    """So it is where the whole root was renamed: the next scan knows where the roots are."""
    path, original = write(world.directory / "s.jsonl", talk("secret"))
    with monkeypatch.context() as patch:
        patch.setattr(Rewrite, "remove", killed)
        with pytest.raises(KeyboardInterrupt):
            world.scan(**SHORT)
    world.close()
    world.root = world.root.rename(world.base / "renamed")
    assert recover.recover(world.store)[0].what.endswith("left for the next run")
    world.scan(**SHORT)

    assert world.leftovers() == []
    is_undone(world, (world.root / "main/sessions" / path.name, original))
