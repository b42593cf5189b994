"""The walk from roots to sessions: what counts as one, and that it never leaves a root."""

import ast
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from brainsurgeon.hosts.openclaw import is_session_name
from brainsurgeon.model.sessions import Root, SessionFile, Unreadable
from brainsurgeon.sessions.discovery import discover
from brainsurgeon.sessions.exchange import TEMPORARY
from building.processes import Puppet

SESSION = b'{"type":"session","version":3,"id":"a"}\n'
NOBODY = 65534
UUID = "11111111-0000-4000-8000-000000000001"


@pytest.fixture
def root(tmp_path):
    path = tmp_path / "root"
    path.mkdir()
    return path


def put(directory, *names):
    directory.mkdir(parents=True, exist_ok=True)
    for name in names:
        with open(os.path.join(directory, name), "wb") as handle:
            handle.write(SESSION)


def paths(*roots, **keywords):
    return [one.path for one in discover([Root(str(r), **keywords) for r in roots])]


@pytest.mark.parametrize(
    "name",
    [
        f"{UUID}.jsonl",
        f"{UUID}-topic-42.jsonl",
        "2026-11-21T04-27-00-000Z_0f3c.jsonl",
        "rollout-2026-11-21T04-27-00-0f3c.jsonl",
        "a.jsonl",
        "trajectory.jsonl",
        "a.checkpoint.jsonl",
        "a.jsonl.jsonl",
        "two\nlines.jsonl",
        "\x1b[31mred.jsonl",
        os.fsdecode(b"\xff\xfe.jsonl"),
    ],
)
def test_a_live_session_is_known_by_its_name(name, root):
    """Whatever stands before `.jsonl` is a session, odd characters included, and is found."""
    put(root, name)

    assert is_session_name(name)
    assert paths(root) == [f"{root}/{name}"]


@pytest.mark.parametrize(
    "name",
    [
        ".jsonl",
        "a.trajectory.jsonl",
        f"a.checkpoint.{UUID}.jsonl",
        f"a.checkpoint.{UUID.replace('1', 'A')}.jsonl",
        "a.jsonl.reset.2026-11-21T04-49-16.343Z",
        "a.jsonl.deleted.2026-11-21T04-49-58.342Z",
        "a.jsonl.bak.1",
        "a.jsonl.bak-1234-1795245440",
        "a.jsonl.reset.2026-11-21.jsonl",
        "a.jsonl.lock",
        "a.jsonl.tmp",
        "a.jsonl.repair-1",
        "a.trajectory-path.json",
        "sessions.json",
        "sessions.json.1234.0f3c.tmp",
        ".brainsurgeon-0123456789abcdef.tmp",
        ".brainsurgeon-0123456789abcdef.tmp.old",
        "a.JSONL",
        "a.jsonl ",
        "a.jsonl\n",
    ],
)
def test_what_agents_keep_beside_sessions_is_none(name, root):
    """Archives, checkpoints, trajectories, locks and temporaries are never taken for sessions."""
    put(root, name)

    assert not is_session_name(name)
    assert paths(root) == []


def test_our_temporary_names_are_what_the_knife_uses(world, conversation, monkeypatch):
    """The names of our temporary files have the one shape that is known as ours."""
    conversation.turn("x" * 4000)
    world.put("one.jsonl", conversation.bytes())
    used = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda name, *a, **k: used.append(str(name)) or real(name, *a, **k)
    )
    world.scan(keep_recent=0)
    ours = {name for name in used if "brainsurgeon-" in name}

    assert len(ours) == 1
    assert all(TEMPORARY.fullmatch(name) for name in ours)


@pytest.mark.parametrize("depth", [0, 1, 2, 16])
def test_sessions_are_found_below_the_root(root, depth):
    """A session stands in the root itself or in a directory below it, to a bounded depth."""
    directory = root.joinpath(*["d"] * depth)
    put(directory, "a.jsonl")

    assert paths(root) == [f"{directory}/a.jsonl"]


def test_the_walk_is_not_endless(root):
    """Deeper than sixteen directories nothing is looked for."""
    put(root.joinpath(*["d"] * 17), "a.jsonl")

    assert paths(root) == []


@pytest.mark.parametrize("name", ["subagent-artifacts", "node_modules", ".git"])
def test_directories_that_hold_no_sessions_are_passed_over(root, name):
    """Directories of artifacts and of other programs are not walked."""
    put(root / name, "a.jsonl")

    assert paths(root) == []


def test_the_order_is_that_of_the_names(root):
    """Two walks of the same tree list the same sessions in the same order."""
    put(root / "b", "2.jsonl", "1.jsonl")
    put(root / "a", "3.jsonl")
    put(root, "c.jsonl")

    assert paths(root) == [
        f"{root}/a/3.jsonl", f"{root}/b/1.jsonl", f"{root}/b/2.jsonl", f"{root}/c.jsonl",
    ]  # fmt: skip


def test_overlapping_roots_list_each_session_once(root):
    """A session below two roots, or below one root twice, is found once, under the first."""
    put(root / "main" / "sessions", "a.jsonl", "b.jsonl")
    inner, link = root / "main", root.parent / "link"
    os.symlink(root, link)
    both = list(discover([Root(str(root)), Root(str(inner)), Root(str(link)), Root(str(root))]))
    turned = list(discover([Root(str(inner)), Root(str(root))]))

    assert [one.path for one in both] == [one.path for one in turned]
    assert len(both) == 2
    assert {one.root for one in both} == {str(root)}
    assert {one.root for one in turned} == {str(inner)}
    assert {one.agent for one in both + turned} == {"main"}


def test_a_root_may_be_a_link(root):
    """The root is the user's word: a link there is followed to its real place."""
    put(root, "a.jsonl")
    link = root.parent / "link"
    os.symlink(root, link)

    assert paths(link) == [f"{root}/a.jsonl"]


def test_links_below_a_root_are_not_followed(root, tmp_path):
    """No link below a root leads anywhere: not out of it, and not to another place inside."""
    put(tmp_path / "outside", "a.jsonl")
    put(root / "inside", "b.jsonl")
    os.symlink(tmp_path / "outside", root / "directory")
    os.symlink(tmp_path / "outside" / "a.jsonl", root / "c.jsonl")
    os.symlink(root / "inside", root / "loop")
    os.symlink(root / "inside" / "b.jsonl", root / "d.jsonl")
    os.symlink(tmp_path / "nowhere", root / "e.jsonl")

    assert paths(root) == [f"{root}/inside/b.jsonl"]


def test_a_directory_swapped_for_a_link_leads_nowhere(root, tmp_path):
    """A directory that became a link after it was listed is named as unreadable and not entered."""
    put(root / "a", "1.jsonl")
    put(root / "b", "2.jsonl")
    put(root / "c", "3.jsonl")
    put(tmp_path / "outside", "secret.jsonl")
    found = discover([Root(str(root))])
    first = next(found)
    (root / "b").rename(tmp_path / "moved")
    os.symlink(tmp_path / "outside", root / "b")
    rest = list(found)

    assert first.path == f"{root}/a/1.jsonl"
    assert [one.path for one in rest] == [f"{root}/b", f"{root}/c/3.jsonl"]
    assert isinstance(rest[0], Unreadable)


def test_a_directory_moved_out_is_walked_where_it_was_entered(root, tmp_path):
    """Each step goes through the directory above: a swap higher up cannot lead the walk away."""
    put(root / "a" / "b", "1.jsonl", "2.jsonl")
    put(tmp_path / "outside" / "b", "1.jsonl", "2.jsonl")
    found = discover([Root(str(root))])
    first = next(found)
    (root / "a").rename(tmp_path / "moved")
    os.symlink(tmp_path / "outside", root / "a")
    second = next(found)
    inode = (tmp_path / "moved" / "b" / "2.jsonl").stat().st_ino

    assert first.path == f"{root}/a/b/1.jsonl"
    assert second.fingerprint.inode == inode


def test_what_goes_away_during_the_walk_is_no_error(root):
    """A session, or a directory, that is deleted between listing and looking is passed over."""
    put(root / "a", "1.jsonl", "2.jsonl")
    put(root / "b", "3.jsonl")
    found = discover([Root(str(root))])
    first = next(found)
    (root / "a" / "2.jsonl").unlink()
    (root / "b" / "3.jsonl").unlink()
    (root / "b").rmdir()

    assert first.path == f"{root}/a/1.jsonl"
    assert list(found) == []


def test_a_session_swapped_for_a_link_is_not_listed(root, tmp_path):
    """A file that became a link after it was listed is none of ours."""
    put(root, "1.jsonl", "2.jsonl")
    put(tmp_path / "outside", "secret.jsonl")
    found = discover([Root(str(root))])
    next(found)
    (root / "2.jsonl").unlink()
    os.symlink(tmp_path / "outside" / "secret.jsonl", root / "2.jsonl")

    assert list(found) == []


def test_a_missing_root_is_named_and_stops_nothing(root, tmp_path):
    """A configured root that is missing counts as failed; the default one may be missing."""
    put(root, "a.jsonl")
    missing = str(tmp_path / "missing")
    found = list(discover([Root(missing), Root(missing, required=False), Root(str(root))]))

    assert [(one.path, one.why, one.failed) for one in found[:2]] == [
        (missing, "no such directory", True),
        (missing, "no such directory", False),
    ]
    assert found[2].path == f"{root}/a.jsonl"


def test_a_root_that_is_a_file_is_named(root):
    """A root that is no directory is reported, not read."""
    put(root, "a.jsonl")
    found = list(discover([Root(f"{root}/a.jsonl")]))

    assert [(one.path, one.why, one.failed) for one in found] == [
        (f"{root}/a.jsonl", "Not a directory", True)
    ]


@pytest.fixture
def open_place():
    """Give a directory that every user may enter, which the one of pytest is not."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    for directory in place.iterdir():
        directory.chmod(0o700)
    shutil.rmtree(place)


@pytest.fixture
def ordinary():
    puppet = Puppet(
        "globals().update(walk=__import__('brainsurgeon.sessions.discovery', fromlist=['x']))"
    )
    if os.geteuid() == 0:
        puppet.ask(f"os.setgid({NOBODY})")
        puppet.ask(f"os.setuid({NOBODY})")
    yield puppet
    puppet.kill()


@pytest.mark.parametrize(("mode", "named"), [(0o000, "b"), (0o100, "b"), (0o400, "b/2.jsonl")])
def test_an_unreadable_directory_is_named_and_stops_nothing(open_place, ordinary, mode, named):
    """What a user cannot look into, or only list, is reported; its neighbours are found."""
    put(open_place / "a", "1.jsonl")
    put(open_place / "b", "2.jsonl")
    put(open_place / "c", "3.jsonl")
    if os.geteuid() == 0:
        os.chown(open_place / "b", NOBODY, NOBODY)
    (open_place / "b").chmod(mode)
    listed = ordinary.ask(
        f"[(type(one).__name__, one.path, getattr(one, 'why', ''))"
        f" for one in walk.discover([walk.Root({str(open_place)!r})])]"
    )

    assert ast.literal_eval(listed) == [
        ("SessionFile", f"{open_place}/a/1.jsonl", ""),
        ("Unreadable", f"{open_place}/{named}", "Permission denied"),
        ("SessionFile", f"{open_place}/c/3.jsonl", ""),
    ]


@pytest.mark.parametrize(
    "name",
    ["two\nlines.jsonl", "\x1b[2Jcls.jsonl", os.fsdecode(b"caf\xe9.jsonl"), "a'b\"c;--.jsonl"],
)
def test_sessions_with_odd_names_are_pruned_and_restored(world, conversation, name):
    """Names with newlines, escapes or bytes that are not UTF-8 go through the whole round."""
    conversation.turn("x" * 4000)
    path = world.put(name, conversation.bytes())
    report = world.scan(keep_recent=0)
    pruned = path.read_bytes()
    world.restore_all(pristine=True)

    assert report.sessions_changed == 1
    assert b"[[extracted-" in pruned
    assert path.read_bytes() == conversation.bytes()


@pytest.mark.parametrize("below", ["", "main", "main/sessions"])
def test_the_agent_does_not_depend_on_the_root(root, below):
    """Sessions in `<agent>/sessions` belong to `<agent>`, wherever above them the root is put."""
    put(root / "main" / "sessions", "a.jsonl")
    found = next(iter(discover([Root(os.path.join(root, below))])))

    assert (found.agent, found.agent_directory) == ("main", f"{root}/main")


def test_elsewhere_the_agent_is_named_after_the_directory(root):
    """Outside that layout the directory of the file is the agent, and its own."""
    put(root / "project", "a.jsonl")
    found = next(iter(discover([Root(str(root), format="generic")])))

    assert (found.agent, found.agent_directory) == ("generic:project", f"{root}/project")
    assert (found.session, found.title) == ("a", "generic:project/a")


@pytest.mark.parametrize("below", ["", "main", "main/sessions"])
def test_a_migrated_agent_is_guarded_wherever_the_root_is_put(world, conversation, below):
    """The guard for agents that moved to SQLite holds for a root at any height."""
    conversation.turn("x" * 4000)
    path = world.put("one.jsonl", conversation.bytes())
    (world.root / "main" / "agent").mkdir()
    place = world.root / "main" / "agent" / "openclaw-agent.sqlite"
    with closing(sqlite3.connect(place)) as database, database:
        database.execute("CREATE TABLE transcript_events (id)")
        database.execute("INSERT INTO transcript_events VALUES (1)")
    report = world.scan(keep_recent=0, roots=[{"path": str(world.root / below)}])

    assert [one.outcome for one in report.sessions] == ["skipped"]
    assert path.read_bytes() == conversation.bytes()


def test_a_session_found_says_where_and_what_it_is(root):
    """What the walk gives names the root, the directory and the file apart, and its state."""
    put(root / "main" / "sessions", "a.jsonl")
    found = next(iter(discover([Root(str(root), format="openclaw")])))
    status = os.stat(found.path)

    assert isinstance(found, SessionFile)
    assert (found.root, found.directory, found.name) == (
        str(root), f"{root}/main/sessions", "a.jsonl",
    )  # fmt: skip
    assert found.hint == "openclaw"
    assert (found.fingerprint.inode, found.fingerprint.size, found.fingerprint.mtime_ns) == (
        status.st_ino, status.st_size, status.st_mtime_ns,
    )  # fmt: skip
