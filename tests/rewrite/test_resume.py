"""Resume points: scans that read only the new end of a session, and when they read everything."""

import os
import re
import time
from pathlib import Path

import msgspec
import pytest

from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.scan import scan
from brainsurgeon.rewrite import tail
from building.world import SAMPLES, Conversation, World, append, dump, pin, sql

SAMPLE_SESSIONS = sorted(
    path for path in SAMPLES.rglob("*.jsonl")
    if path.stat().st_size > 20_000 and "release" not in str(path)
)  # fmt: skip


def long_session(world, turns=600, text="y" * 4000):
    """Write a long session without extractable values; return the file and the conversation."""
    talk = Conversation()
    add_turns(talk, turns, text)
    return world.put("s.jsonl", talk.bytes()), talk


def add_turns(talk, turns=600, text="y" * 4000):
    for _ in range(turns):
        talk.user()
        talk.assistant(text)


def append_turn(path, talk):
    """Append a turn without large values, a minute ago."""
    before = len(talk.lines)
    talk.user("and now?")
    talk.assistant("that is all.")
    append_from(path, talk, before)


def append_from(path, talk, before):
    append(path, talk.lines[before:])
    os.utime(path, (time.time() - 60,) * 2)


@pytest.mark.parametrize(("was", "becomes"), [(b"", b',"_extractable":true'), (b"false", b" true")])
def test_field_set_by_hand_before_the_tail_is_applied(world, was, becomes):
    """`_extractable` set or changed in place near the start applies in the next scan."""
    talk = Conversation()
    field = {"_extractable": False} if was else {}
    ident = talk.user("z" * 3000, **field)
    add_turns(talk)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    assert resume_offsets(world)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    rest[0] = rest[0].replace(was or b"}\n", becomes if was else becomes + b"}\n")
    path.write_bytes(b"".join([first, *rest]))
    os.utime(path, (time.time() - 60,) * 2)
    assert world.scan().values_extracted == 1
    assert sql(world, "SELECT entry_id FROM extractions") == [(ident,)]


def bytes_read(work):
    def count():
        return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])

    before = count()
    work()
    return count() - before


def resume_offsets(world):
    """Return the offset of each stored resume point."""
    points = sql(world, "SELECT resume FROM resumes")
    return [msgspec.msgpack.decode(point)["offset"] for (point,) in points]


def test_scan_reads_only_the_new_end_of_a_session(world):
    """Scan after scan reads the tail only, and the resume point moves on."""
    path, talk = long_session(world)
    world.scan()
    for _ in range(3):
        append_turn(path, talk)

        read = bytes_read(lambda: world.scan(only=[str(path)]))

        assert read < 500_000 < path.stat().st_size
        assert resume_offsets(world)[0] > path.stat().st_size - 20_000


@pytest.mark.parametrize("point", [b"\xc1", msgspec.msgpack.encode({"offset": 5})])
def test_unreadable_resume_point_is_replaced(world, point):
    """A damaged resume point, or one with other fields, makes the scan read the whole session."""
    path, talk = long_session(world)
    world.scan()
    with world.store.transaction():
        world.store._connection.execute("UPDATE resumes SET resume = ?", (point,))
    append_turn(path, talk)

    assert not [session for session in world.scan().sessions if session.outcome == "failed"]
    assert resume_offsets(world)[0] > path.stat().st_size - 20_000


def test_appended_result_is_extracted_once_it_is_old(world):
    """A result after the resume point is extracted once it is old, and restored."""
    path, talk = long_session(world)
    world.scan()
    before = len(talk.lines)
    talk.turn("x" * 5000)
    append_from(path, talk, before)
    assert world.scan().sessions_changed == 0
    [offset] = resume_offsets(world)
    for _ in range(3):
        append_turn(path, talk)
    whole = path.read_bytes()

    assert world.scan().sessions_changed == 1
    assert len(path.read_bytes()) < len(whole)
    assert offset < whole.index(b"x" * 5000)
    world.restore_all(pristine=True)
    assert path.read_bytes() == whole


def append_result(path, talk, ident, text="x" * 5000):
    """Append a turn with a large result, a minute ago."""
    before = len(talk.lines)
    talk.user("and now?")
    talk.call()
    talk.result(text, ident=ident)
    talk.assistant("that is all.")
    append_from(path, talk, before)


@pytest.fixture
def pruned_tail(world):
    """Write a long session and extract a value from its tail."""
    path, talk = long_session(world)
    world.scan(keep_recent=0)
    append_result(path, talk, "much-0")
    assert world.scan(keep_recent=0).values_extracted == 1
    return path, talk


def test_tail_is_pruned_without_reading_the_front(world, pruned_tail, monkeypatch):
    """Values in the tail are extracted by scans of the tail alone, and restored."""
    path, talk = pruned_tail
    monkeypatch.setattr("brainsurgeon.rewrite.inspect.examine_quiet", None)
    texts = [str(number) * 5000 for number in range(1, 4)]
    for number, text in enumerate(texts, 1):
        append_result(path, talk, f"much-{number}", text)

        assert world.scan(only=[str(path)], keep_recent=0).values_extracted == 1
        assert resume_offsets(world)[0] > path.stat().st_size - 40_000
    assert world.scan(keep_recent=0).sessions_changed == 0
    world.restore_all(pristine=True)
    whole = path.read_bytes()
    assert all(text.encode() in whole for text in texts)
    assert b"[[extracted-" not in whole


@pytest.mark.parametrize(
    ("front", "name"), [("entry", None), ("in a text", "again"), ("as a result", "again~2")]
)
def test_id_in_front_of_the_tail_makes_the_scan_read_all(world, front, name):
    """Entries with one id are not extracted, and a placeholder in front is not used again."""
    talk = Conversation()
    talk.user(ident="again" if front == "entry" else None)
    talk.assistant("it is called [[extracted-again]]" if front == "in a text" else "y")
    talk.call()
    talk.result("[[extracted-again]]" if front == "as a result" else "y")
    add_turns(talk)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(keep_recent=0)
    append_result(path, talk, "first")
    assert world.scan(keep_recent=0).values_extracted == 1
    assert resume_offsets(world)
    append_result(path, talk, "again")
    before = path.read_bytes()

    assert world.scan(keep_recent=0).values_extracted == (name is not None)
    if name is None:
        assert path.read_bytes() == before
    else:
        assert sql(world, "SELECT name FROM extractions WHERE entry_id = 'again'") == [(name,)]
    world.restore_all(pristine=True)
    assert b"x" * 5000 in path.read_bytes()


@pytest.mark.parametrize("change", ["shorter", "other bytes", "another file", "a request"])
def test_scan_reads_a_session_that_did_not_only_grow(world, change):
    """A session that was truncated, changed, replaced or has a request is read from its start."""
    path, talk = long_session(world)
    world.scan()
    data = path.read_bytes()
    more = dump(talk.lines[-1]).replace(talk.last.encode(), b"another1")
    if change == "shorter":
        path.write_bytes(b"".join(data.splitlines(keepends=True)[:-2]))
    elif change == "other bytes":
        path.write_bytes(data.replace(b'"cwd":"/w"', b'"cwd":"/v"', 1) + more)
    elif change == "another file":
        path.with_suffix(".new").write_bytes(data + more)
        path.with_suffix(".new").rename(path)
    else:
        pin(world, talk.last, value=False)
        append_turn(path, talk)
    os.utime(path, (time.time() - 60,) * 2)

    assert bytes_read(world.scan) > path.stat().st_size


@pytest.mark.parametrize("step", ["result_of", "resume_after_edit"])
def test_session_rewritten_during_a_scan_has_no_resume_point(world, pruned_tail, step, monkeypatch):
    """If an agent rewrites its file in place during a scan, no resume point is stored."""
    path, talk = pruned_tail
    append_result(path, talk, "much-1")
    original = getattr(tail, step)
    rewritten = long_session(world, turns=900, text="z" * 3000)[1]

    def rewrite(*arguments):
        rewritten.turn("x" * 5000)
        path.write_bytes(rewritten.bytes())
        return original(*arguments)

    sql(world, "DELETE FROM resumes")
    with monkeypatch.context() as late:
        late.setattr(tail, step, rewrite)
        path.write_bytes(talk.bytes())
        os.utime(path, (time.time() - 60,) * 2)
        world.scan(keep_recent=0 if step == "resume_after_edit" else 50)

    assert resume_offsets(world) == []


def test_scans_of_the_tail_keep_earlier_placements(world, monkeypatch):
    """Scans that read and prune only the tail keep the placeholders before it as in place."""
    _, talk = long_session(world, turns=2)
    talk.turn("x" * 5000)
    add_turns(talk)
    path, start = world.put("s.jsonl", talk.bytes()), time.time()
    assert world.scan(keep_recent=0).values_extracted == 1
    append_turn(path, talk)
    world.scan(keep_recent=0)
    monkeypatch.setattr("brainsurgeon.rewrite.inspect.examine_quiet", None)
    for later in (1800, 90_000):
        world.clock = lambda now=start + later: now
        append_result(path, talk, f"much-{later}", "z" * later)

        assert world.scan(keep_recent=0).values_extracted == 1
        assert (1, 1, None) in sql(world, "SELECT * FROM placements")
    assert sql(world, "SELECT name, unplaced_at FROM extractions ORDER BY id")[1:] == [
        ("much-1800", None), ("much-90000", None),
    ]  # fmt: skip


def test_request_made_during_a_scan_is_carried_out(world):
    """A request made after the scan began and before its session's turn is carried out."""
    path, talk = long_session(world)
    pin(world, talk.last, value=2)  # so that the store has a record of it
    world.scan()
    append_turn(path, talk)
    world.scan()
    append_turn(path, talk)
    request = (
        "INSERT INTO requests (session_id, entry_id, action, value, asked_at)"
        " SELECT id, ?, 'set', 'false', ? FROM sessions"
    )
    assert resume_offsets(world)
    scan(
        world.settings(), world.store, clock=world.clock,
        watch=Watch(lambda _: sql(world, request, (talk.last, world.clock()))),
    )  # fmt: skip

    assert world.store.requests.count_open() == 0
    assert b'"_extractable":false' in path.read_bytes().splitlines()[-1]


def test_archive_under_a_new_id_is_recognized_in_the_tail(world):
    """Nothing is extracted from an archive whose id the agent changed."""
    path, talk = long_session(world)
    append_result(path, talk, "much")
    keys = world.settings(keep_recent=0, archive={"enabled": True, "keep_turns": 0})
    archive(keys, world.store, str(path), clock=world.clock)
    *front, closing = path.read_bytes().splitlines(keepends=True)
    assert b"[archived turn]" in closing
    old_id = b'"id":"%s"' % talk.last.encode()
    talk.last = "another"
    closing = closing.replace(old_id, b'"id":"another"').replace(b"}\n", b',"_extractable":true}\n')
    path.write_bytes(b"".join((*front, closing)))
    os.utime(path, (time.time() - 60,) * 2)
    assert world.scan().values_extracted == 0
    append_turn(path, talk)
    [offset] = resume_offsets(world)
    assert offset <= path.read_bytes().index(b'"id":"another"')

    assert world.scan().values_extracted == 0
    assert b"[archived turn]" in path.read_bytes()


@pytest.mark.parametrize("sample", SAMPLE_SESSIONS, ids=lambda path: path.name[:24])
def test_resumed_and_complete_scans_have_equal_results(tmp_path, sample, monkeypatch):
    """Growing samples end with the same bytes whether scans resume or read everything."""
    monkeypatch.setattr(tail, "SMALLEST", 0)
    monkeypatch.setattr(tail, "HEAD_LINES", 1)
    lines = sample.read_bytes().splitlines(keepends=True)
    size = max(1, len(lines) // 12)
    worlds = World(tmp_path / "resumed"), World(tmp_path / "complete")
    paths = [world.directory / "s.jsonl" for world in worlds]
    try:
        for start in range(0, len(lines), size):
            outcomes = []
            for world, path in zip(worlds, paths, strict=True):
                with path.open("ab") as file:
                    file.write(b"".join(lines[start : start + size]))
                os.utime(path, (time.time() - 7200,) * 2)
                sessions = world.scan(min_reclaim=5000).sessions
                outcomes.append(
                    [
                        (session.outcome, session.reason.partition(" (")[0], session.bytes_after)
                        for session in sessions
                    ]
                )
                world.scan(min_reclaim=5000)
            sql(worlds[1], "DELETE FROM resumes")
            assert outcomes[0] == outcomes[1]
            assert paths[0].read_bytes() == paths[1].read_bytes()
    finally:
        for world in worlds:
            world.close()
