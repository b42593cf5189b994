"""Lines that move in files into which Codex stores offsets: every offset moves with them."""

import fcntl
import json
import os
import re
import sqlite3
from contextlib import closing

import pytest
import zstandard

from brainsurgeon.agents.codex.locks import BUSY
from building.codex import INDEX, CodexWorld, edges, key, numbered, thread_id, turn_of

LEAN = {"rules": [{"kind": "tool_result", "keep_recent": 0, "min_value_length": 300}]}
TAKEN = re.compile(rb"\[\[extracted-[^]]*\]\]")


@pytest.fixture
def codex(tmp_path):
    world = CodexWorld(tmp_path)
    yield world
    world.close()


def shrinking(codex):
    return {**LEAN, "roots": [{"path": str(codex.root), "shrink": True}]}


def family(codex, **more):
    """Return a thread, a fork of its end, and a fork of that fork; all in the index."""
    thread = codex.thread(1, **more)
    fork = codex.thread(2, 3, base=(thread, max(edges(thread))))
    last = codex.thread(3, 2, base=(fork, max(edges(fork)) - 7))
    codex.index(thread, fork, last)
    return thread, fork, last


def test_a_file_to_which_nothing_points_becomes_smaller(codex):
    """Without a row, a fork or a page, what no request contains leaves, too; all comes back."""
    path, other = codex.thread(1), codex.thread(2)
    codex.index(other)
    before, size = path.read_bytes(), other.stat().st_size
    codex.scan(**LEAN)
    pruned = path.read_bytes()

    assert len(pruned) < len(before) / 2
    assert len(TAKEN.findall(pruned)) == 12
    assert b']]" ' not in pruned
    assert other.stat().st_size == size
    codex.restore_all()
    assert path.read_bytes() == before


def test_offsets_move_with_the_lines_if_that_is_wanted(codex):
    """With `shrink`, a thread and its forks become smaller, and every offset stays right."""
    paths = family(codex)
    before = [path.read_bytes() for path in paths]
    times = [path.stat().st_mtime_ns for path in paths]
    result = codex.scan(**shrinking(codex))

    assert [one.outcome for one in result.sessions] == ["changed"] * 3
    assert all(len(path.read_bytes()) < len(old) for path, old in zip(paths, before, strict=True))
    assert codex.offsets() == ([], 27)
    assert [path.stat().st_mtime_ns for path in paths] == times
    codex.restore_all(**shrinking(codex))
    assert codex.offsets() == ([], 27)
    assert [re.sub(rb"(?<=[0-9]) +(?=[,}])", b"", path.read_bytes()) for path in paths] == before


def test_a_fork_gets_room_for_a_longer_offset(codex):
    """After a restore, the offset of a fork that was made meanwhile has more digits."""
    thread = codex.thread(1)
    codex.index(thread)
    before = thread.read_bytes()
    codex.scan(**shrinking(codex))
    fork = codex.thread(2, base=(thread, max(edges(thread))))
    below = codex.thread(3, base=(fork, max(edges(fork))))
    with closing(sqlite3.connect(codex.root / INDEX)) as index:
        codex.project(index, fork)
        codex.project(index, below)
        index.commit()
    size = fork.stat().st_size
    codex.restore_all(thread.stem)

    assert thread.read_bytes() == before
    assert fork.stat().st_size > size
    assert codex.offsets()[0] == []
    assert codex.leftovers() == []


def test_copies_without_spaces_come_back(codex):
    """Codex copies a placeholder into a later compaction without the spaces behind it."""
    path = codex.thread(1)
    codex.index(path)
    before = path.read_bytes()
    codex.scan(**LEAN)
    pruned = path.read_bytes()
    assert len(pruned) == len(before)
    item = json.loads(pruned.splitlines()[4])["payload"]
    assert TAKEN.fullmatch(item["output"].encode())
    compacted = ("compacted", {"message": "", "replacement_history": [item]})
    more = numbered([compacted, *turn_of("9")], max(edges(path)))
    path.write_bytes(pruned + more)
    os.utime(path, (0, 0))
    codex.restore_all()

    whole = json.loads(before.splitlines()[4])["payload"]
    assert path.read_bytes() == before + numbered(
        [("compacted", {"message": "", "replacement_history": [whole]}), *turn_of("9")],
        max(edges(path)) - 8,
    )  # fmt: skip
    assert codex.offsets()[0] == []


def rows_of(codex, path):
    with closing(sqlite3.connect(codex.root / INDEX)) as index:
        return index.execute(
            "SELECT * FROM thread_turns WHERE thread_id = ?", (key(path),)
        ).fetchall()


def unknown_migration(codex):
    with closing(sqlite3.connect(codex.root / INDEX)) as index:
        index.execute("INSERT INTO _sqlx_migrations VALUES (10, 'new', 0, 1, x'00', 0)")
        index.commit()


def no_index(codex):
    (codex.root / INDEX).unlink()


def index_elsewhere(codex):
    (codex.root / "config.toml").write_text('sqlite_home = "/elsewhere"\n')


def compressed_fork(codex):
    thread = next(codex.directory.glob(f"*{thread_id(1)}.jsonl"))
    fork = codex.thread(4, base=(thread, max(edges(thread))))
    fork.with_name(f"{fork.name}.zst").write_bytes(zstandard.compress(fork.read_bytes()))
    fork.unlink()


def blank_line(codex):
    thread = next(codex.directory.glob(f"*{thread_id(1)}.jsonl"))
    thread.write_bytes(b"\n" + thread.read_bytes())
    os.utime(thread, (0, 0))


def wrong_offset(codex):
    with closing(sqlite3.connect(codex.root / INDEX)) as index:
        index.execute("UPDATE thread_turns SET rollout_byte_offset = 5 WHERE rollout_ordinal = 1")
        index.commit()


@pytest.mark.parametrize(
    "strange",
    [unknown_migration, no_index, index_elsewhere, compressed_fork, wrong_offset, blank_line],
)
def test_what_is_not_understood_keeps_its_length(codex, strange):
    """Then spaces take the place of values, and no offset is touched."""
    thread, *_ = family(codex)
    strange(codex)
    rows = rows_of(codex, thread) if strange is not no_index else None
    size = thread.stat().st_size
    codex.scan(**shrinking(codex))

    assert TAKEN.search(thread.read_bytes())
    assert thread.stat().st_size == size
    assert rows == (rows_of(codex, thread) if rows else None)


def test_lines_wait_for_a_fork_that_is_loaded(codex):
    """Codex reads the files above a loaded thread at offsets that it keeps in memory."""
    thread, _, last = family(codex)
    before = thread.read_bytes()
    with open(codex.locks / f"{thread_id(3)}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = {one.path: one for one in codex.scan(**shrinking(codex)).sessions}
    assert {(one.outcome, one.reason) for one in held.values()} == {("deferred", BUSY)}
    assert thread.read_bytes() == before
    codex.scan(**shrinking(codex))
    assert codex.offsets() == ([], 27)
    assert len(thread.read_bytes()) < len(before)
    assert last.exists()


def test_lines_wait_until_the_index_is_written(codex):
    """Codex writes its index a moment after it let go of a thread."""
    thread, *_ = family(codex)
    os.utime(thread)
    waiting = {one.path: one for one in codex.scan(**shrinking(codex)).sessions}[str(thread)]
    os.utime(thread, (0, 0))

    assert (waiting.outcome, waiting.reason) == ("deferred", "Codex has just written it")
    assert codex.scan(**shrinking(codex)).sessions[0].outcome == "changed"


def test_a_fork_that_was_begun_just_before_gets_its_offset(codex):
    """A fork that took its offset before the change, and wrote it after that, is mended."""
    thread = codex.thread(1)
    codex.index(thread)
    place = edges(thread)[36]
    codex.scan(**shrinking(codex))
    fork = codex.thread(2, base=(thread, 36))
    right = edges(thread)[36]
    fork.write_bytes(fork.read_bytes().replace(b":%d}" % right, b":%d}" % place))
    os.utime(fork, (0, 0))
    assert len(codex.offsets()[0]) == 1
    codex.scan(**shrinking(codex))

    assert codex.offsets()[0] == []
