"""Discovery: which files below a root are sessions, and that the walk never leaves the root."""

import ast
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from brainsurgeon.agents import is_session_name
from brainsurgeon.files.exchange import TEMPORARY
from brainsurgeon.model.session_files import Root, SessionFile, Unreadable
from brainsurgeon.sessions.discovery import discover
from building.claw import migrate
from building.processes import OtherProcess
from building.world import NOBODY, put_session

SESSION = b'{"type":"session","version":3,"id":"a"}\n'
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
    return [file.path for file in discover([Root(str(root), **keywords) for root in roots])]


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
def test_jsonl_file_is_discovered_as_a_session(name, root):
    """Any name that ends in `.jsonl` is a session, odd characters included."""
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
def test_other_files_of_agents_are_not_sessions(name, root):
    """Archives, checkpoints, trajectories, locks and temporary files are not sessions."""
    put(root, name)

    assert not is_session_name(name)
    assert paths(root) == []


def test_rewrite_names_its_temporary_file_by_the_known_pattern(world, conversation, monkeypatch):
    """The only temporary file that a rewrite opens matches the pattern TEMPORARY."""
    put_session(world, conversation, "one.jsonl")
    used = []
    real = os.open
    monkeypatch.setattr(
        os, "open", lambda name, *a, **k: used.append(str(name)) or real(name, *a, **k)
    )
    world.scan(keep_recent=0)
    temporary = {name for name in used if "brainsurgeon-" in name}

    assert len(temporary) == 1
    assert all(TEMPORARY.fullmatch(name) for name in temporary)


@pytest.mark.parametrize("depth", [0, 1, 2, 16, 17])
def test_session_is_discovered_up_to_16_directories_deep(root, depth):
    """A session may lie in the root itself or up to 16 directories below it, not deeper."""
    directory = root.joinpath(*["d"] * depth)
    put(directory, "a.jsonl")

    assert paths(root) == ([f"{directory}/a.jsonl"] if depth <= 16 else [])


@pytest.mark.parametrize("name", ["subagent-artifacts", "node_modules", ".git"])
def test_directories_of_other_programs_are_not_walked(root, name):
    """Directories of artifacts, packages and version control are skipped."""
    put(root / name, "a.jsonl")

    assert paths(root) == []


def test_sessions_are_discovered_in_order_of_their_paths(root):
    """Within a directory, subdirectories come before files and names are sorted."""
    put(root / "b", "2.jsonl", "1.jsonl")
    put(root / "a", "3.jsonl")
    put(root, "c.jsonl")

    assert paths(root) == [
        f"{root}/a/3.jsonl", f"{root}/b/1.jsonl", f"{root}/b/2.jsonl", f"{root}/c.jsonl",
    ]  # fmt: skip


def test_overlapping_roots_list_each_session_once(root):
    """A session below two roots, or below one root twice, is listed once, under the first."""
    put(root / "main" / "sessions", "a.jsonl", "b.jsonl")
    inner, link = root / "main", root.parent / "link"
    os.symlink(root, link)
    both = list(discover([Root(str(root)), Root(str(inner)), Root(str(link)), Root(str(root))]))
    turned = list(discover([Root(str(inner)), Root(str(root))]))

    assert [file.path for file in both] == [file.path for file in turned]
    assert len(both) == 2
    assert {file.root for file in both} == {str(root)}
    assert {file.root for file in turned} == {str(inner)}
    assert {file.agent for file in both + turned} == {"main"}


def test_root_that_is_a_link_is_followed(root):
    """A link as the root is resolved to its target."""
    put(root, "a.jsonl")
    link = root.parent / "link"
    os.symlink(root, link)

    assert paths(link) == [f"{root}/a.jsonl"]


def test_links_below_a_root_are_not_followed(root, tmp_path):
    """No link below a root is followed, neither out of it nor to another place inside."""
    put(tmp_path / "outside", "a.jsonl")
    put(root / "inside", "b.jsonl")
    os.symlink(tmp_path / "outside", root / "directory")
    os.symlink(tmp_path / "outside" / "a.jsonl", root / "c.jsonl")
    os.symlink(root / "inside", root / "loop")
    os.symlink(root / "inside" / "b.jsonl", root / "d.jsonl")
    os.symlink(tmp_path / "nowhere", root / "e.jsonl")

    assert paths(root) == [f"{root}/inside/b.jsonl"]


def test_directory_swapped_for_a_link_is_reported_and_not_entered(root, tmp_path):
    """A directory that became a link after it was listed is unreadable."""
    put(root / "a", "1.jsonl")
    put(root / "b", "2.jsonl")
    put(root / "c", "3.jsonl")
    put(tmp_path / "outside", "secret.jsonl")
    walk = discover([Root(str(root))])
    first = next(walk)
    (root / "b").rename(tmp_path / "moved")
    os.symlink(tmp_path / "outside", root / "b")
    rest = list(walk)

    assert first.path == f"{root}/a/1.jsonl"
    assert [entry.path for entry in rest] == [f"{root}/b", f"{root}/c/3.jsonl"]
    assert isinstance(rest[0], Unreadable)


def test_directory_moved_during_the_walk_is_still_the_one_walked(root, tmp_path):
    """Each step opens a name in the directory above, so a link higher up is never followed."""
    put(root / "a" / "b", "1.jsonl", "2.jsonl")
    put(tmp_path / "outside" / "b", "1.jsonl", "2.jsonl")
    walk = discover([Root(str(root))])
    first = next(walk)
    (root / "a").rename(tmp_path / "moved")
    os.symlink(tmp_path / "outside", root / "a")
    second = next(walk)
    inode = (tmp_path / "moved" / "b" / "2.jsonl").stat().st_ino

    assert first.path == f"{root}/a/b/1.jsonl"
    assert second.fingerprint.inode == inode


def test_file_or_directory_deleted_during_the_walk_is_no_error(root):
    """A session or directory deleted after it was listed is left out."""
    put(root / "a", "1.jsonl", "2.jsonl")
    put(root / "b", "3.jsonl")
    walk = discover([Root(str(root))])
    first = next(walk)
    (root / "a" / "2.jsonl").unlink()
    (root / "b" / "3.jsonl").unlink()
    (root / "b").rmdir()

    assert first.path == f"{root}/a/1.jsonl"
    assert list(walk) == []


def test_session_swapped_for_a_link_is_not_discovered(root, tmp_path):
    """A file that became a link after its directory was listed is left out."""
    put(root, "1.jsonl", "2.jsonl")
    put(tmp_path / "outside", "secret.jsonl")
    walk = discover([Root(str(root))])
    next(walk)
    (root / "2.jsonl").unlink()
    os.symlink(tmp_path / "outside" / "secret.jsonl", root / "2.jsonl")

    assert list(walk) == []


def test_missing_root_is_reported_and_stops_nothing(root, tmp_path):
    """A missing root counts as failed if it is configured, not if it is a default one."""
    put(root, "a.jsonl")
    missing = str(tmp_path / "missing")
    entries = list(discover([Root(missing), Root(missing, required=False), Root(str(root))]))

    assert [(entry.path, entry.reason, entry.failed) for entry in entries[:2]] == [
        (missing, "no such directory", True),
        (missing, "no such directory", False),
    ]
    assert entries[2].path == f"{root}/a.jsonl"


def test_root_that_is_a_file_is_reported(root):
    """A root that is not a directory counts as failed."""
    put(root, "a.jsonl")
    entries = list(discover([Root(f"{root}/a.jsonl")]))

    assert [(entry.path, entry.reason, entry.failed) for entry in entries] == [
        (f"{root}/a.jsonl", "Not a directory", True)
    ]


@pytest.fixture
def open_place():
    """Yield a directory that every user may enter, unlike those of pytest."""
    place = Path(tempfile.mkdtemp())
    place.chmod(0o755)
    yield place
    for directory in place.iterdir():
        directory.chmod(0o700)
    shutil.rmtree(place)


@pytest.fixture
def ordinary():
    other_process = OtherProcess(
        "globals().update(walk=__import__('brainsurgeon.sessions.discovery', fromlist=['x']))"
    )
    if os.geteuid() == 0:
        other_process.evaluate(f"os.setgid({NOBODY})")
        other_process.evaluate(f"os.setuid({NOBODY})")
    yield other_process
    other_process.kill()


@pytest.mark.parametrize(("mode", "named"), [(0o000, "b"), (0o100, "b"), (0o400, "b/2.jsonl")])
def test_unreadable_directory_is_reported_and_stops_nothing(open_place, ordinary, mode, named):
    """A directory without read or search permission is reported; its neighbours are discovered."""
    put(open_place / "a", "1.jsonl")
    put(open_place / "b", "2.jsonl")
    put(open_place / "c", "3.jsonl")
    if os.geteuid() == 0:
        os.chown(open_place / "b", NOBODY, NOBODY)
    (open_place / "b").chmod(mode)
    listed = ordinary.evaluate(
        f"[(type(file).__name__, file.path, getattr(file, 'reason', ''))"
        f" for file in walk.discover([walk.Root({str(open_place)!r})])]"
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
def test_session_with_an_odd_name_is_pruned_and_restored(world, conversation, name):
    """Names may hold newlines, escapes, quotes and bytes that are not UTF-8."""
    path = put_session(world, conversation, name)
    report = world.scan(keep_recent=0)
    pruned = path.read_bytes()
    world.restore_all(pristine=True)

    assert report.sessions_changed == 1
    assert b"[[extracted-" in pruned
    assert path.read_bytes() == conversation.bytes()


@pytest.mark.parametrize("below", ["", "main", "main/sessions"])
def test_agent_is_the_same_for_a_root_at_any_height(root, below):
    """A session in `<agent>/sessions` belongs to `<agent>`, also if the root is inside."""
    put(root / "main" / "sessions", "a.jsonl")
    session = next(iter(discover([Root(os.path.join(root, below))])))

    assert (session.agent, session.agent_directory) == ("main", f"{root}/main")


def test_agent_outside_the_layout_is_named_after_the_directory(root):
    """Outside `<agent>/sessions`, the agent is the directory of the file, with its format."""
    put(root / "project", "a.jsonl")
    session = next(iter(discover([Root(str(root), format="generic")])))

    assert (session.agent, session.agent_directory) == ("generic:project", f"{root}/project")
    assert (session.session, session.title) == ("a", "generic:project/a")


@pytest.mark.parametrize("below", ["", "main", "main/sessions"])
def test_migrated_agent_is_skipped_for_a_root_at_any_height(world, conversation, below):
    """Files of an agent that moved to SQLite are left as they are, also if the root is inside."""
    path = put_session(world, conversation, "one.jsonl")
    migrate(world.root / "main")
    report = world.scan(keep_recent=0, roots=[{"path": str(world.root / below)}])

    assert [session.outcome for session in report.sessions] == ["skipped"]
    assert path.read_bytes() == conversation.bytes()


def test_discovered_session_has_its_place_and_fingerprint(root):
    """A discovered session names its root, directory, file, format, inode, size and mtime."""
    put(root / "main" / "sessions", "a.jsonl")
    session = next(iter(discover([Root(str(root), format="openclaw")])))
    status = os.stat(session.path)

    assert isinstance(session, SessionFile)
    assert (session.root, session.directory, session.name) == (
        str(root), f"{root}/main/sessions", "a.jsonl",
    )  # fmt: skip
    assert session.hint == "openclaw"
    assert (session.fingerprint.inode, session.fingerprint.size, session.fingerprint.mtime_ns) == (
        status.st_ino, status.st_size, status.st_mtime_ns,
    )  # fmt: skip
