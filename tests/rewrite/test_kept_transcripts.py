"""Scans of a daemon, which keeps what it read of sessions and reads only their new end."""

import os
import re
import time
from pathlib import Path

import pytest

from brainsurgeon.errors import StoppedError
from brainsurgeon.model.reports import Watch
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.signals import find_signals
from brainsurgeon.sessions.transcripts import Transcripts
from building.world import SAMPLES, Conversation, World, append, dump, pin, sql

SAMPLE_SESSIONS = sorted(
    path for path in SAMPLES.rglob("*.jsonl")
    if path.stat().st_size > 20_000 and "release" not in str(path)
)[::3]  # fmt: skip


@pytest.fixture
def daemon(world):
    """Make the scans of a world keep what they read."""
    world.kept = Transcripts()
    return world


def long_session(world, turns=600, text="y" * 4000):
    """Write a long session without extractable values; return the file and the conversation."""
    talk = Conversation()
    for _ in range(turns):
        talk.user()
        talk.assistant(text)
    return world.put("s.jsonl", talk.bytes()), talk


def append_turn(path, talk, result=None):
    """Append a turn, a minute ago."""
    before = len(talk.lines)
    talk.user("and now?")
    if result:
        talk.call()
        talk.result(result)
    talk.assistant("that is all.")
    append(path, talk.lines[before:])
    os.utime(path, (time.time() - 60,) * 2)


def bytes_read(work):
    def count():
        return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])

    before = count()
    work()
    return count() - before


def test_scan_of_a_grown_session_reads_its_new_end(daemon):
    """Scan after scan, only the lines that are new are read."""
    path, talk = long_session(daemon)
    daemon.scan()
    for _ in range(3):
        append_turn(path, talk)

        assert bytes_read(lambda: daemon.scan(only=[str(path)])) < 500_000 < path.stat().st_size


def test_value_of_a_kept_session_is_extracted_once_it_is_old(daemon):
    """A result that a scan read when it was new goes when it is old, and comes back."""
    path, talk = long_session(daemon)
    daemon.scan()
    append_turn(path, talk, "x" * 5000)
    assert daemon.scan().sessions_changed == 0
    for _ in range(3):
        append_turn(path, talk)
    whole = path.read_bytes()

    assert daemon.scan().values_extracted == 1
    assert len(path.read_bytes()) < len(whole)
    append_turn(path, talk)
    assert daemon.scan().sessions_changed == 0
    daemon.restore_all(pristine=True)
    assert path.read_bytes().startswith(whole)


def test_line_changed_far_from_the_end_is_not_overwritten(daemon):
    """A session whose middle changed in place, at equal length, is read again before an edit."""
    path, talk = long_session(daemon)
    append_turn(path, talk, "x" * 5000)
    daemon.scan()
    data = path.read_bytes()
    middle = data.index(b"yyyy", len(data) // 2)
    path.write_bytes(data[:middle] + b"zzzz" + data[middle + 4 :])
    for _ in range(3):
        append_turn(path, talk)
    changed = path.read_bytes()

    assert daemon.scan().values_extracted == 1
    assert b"zzzz" in path.read_bytes()
    daemon.restore_all(pristine=True)
    assert path.read_bytes() == changed


def test_value_that_changed_in_place_is_not_extracted(daemon):
    """A result that was due, but was renamed at equal length since it was read, stays."""
    path, talk = long_session(daemon)
    append_turn(path, talk, "x" * 5000)
    daemon.scan()
    path.write_bytes(path.read_bytes().replace(b'"text":"xxx', b'"tixt":"xxx'))
    for _ in range(3):
        append_turn(path, talk)
    changed = path.read_bytes()
    report = daemon.scan()

    assert report.values_extracted == report.files_failed == 0
    assert path.read_bytes() == changed


def test_scan_after_an_extraction_reads_the_new_end(daemon):
    """What a scan edited itself is not read again, only the edited lines and what is new."""
    path, talk = long_session(daemon)
    append_turn(path, talk, "x" * 5000)
    daemon.scan()
    for _ in range(3):
        append_turn(path, talk)
    assert daemon.scan().values_extracted == 1
    append_turn(path, talk)

    assert bytes_read(lambda: daemon.scan(only=[str(path)])) < 500_000 < path.stat().st_size


def test_two_sessions_with_equal_ids_keep_their_placeholders(daemon):
    """An id that got a number, since another value has it, is kept as it stands in the file."""
    paths, talks = [], []
    for number in (1, 2):
        talk = Conversation(f"11111111-0000-4000-8000-00000000000{number}")
        talk.turn(f"{number}" * 4000)
        for _ in range(3):
            talk.turn("short")
        paths.append(daemon.put(f"{number}.jsonl", talk.bytes()))
        talks.append(talk)
    assert daemon.scan().values_extracted == 2
    assert b"~2]]" in paths[1].read_bytes()
    before = sql(daemon, "SELECT * FROM placements"), sql(daemon, "SELECT * FROM savings")
    for path, talk in zip(paths, talks, strict=True):
        append_turn(path, talk)
    daemon.scan()

    assert (sql(daemon, "SELECT * FROM placements"), sql(daemon, "SELECT * FROM savings")) == before


def test_rewrites_before_a_stop_are_counted(daemon):
    """A daemon that is stopped just after it changed sessions reports that it changed them."""
    talk = Conversation()
    for text in ("x" * 5000, "short", "short", "short"):
        talk.turn(text)
    paths = [daemon.put(f"{number}.jsonl", talk.bytes()) for number in range(3)]

    def stop():
        if any(b"[[extracted-" in path.read_bytes() for path in paths):
            raise StoppedError

    assert daemon.scan(watch=Watch(check_stop=stop)).sessions_changed == 3


def test_search_for_signals_reads_the_new_end_of_a_kept_session(daemon):
    """At each change of a large session, only its new lines are read to look for signals."""
    path, talk = long_session(daemon)
    daemon.scan()
    append_turn(path, talk)

    def search():
        find_signals(daemon.settings(), daemon.store, str(path), daemon.clock(), daemon.kept)

    assert bytes_read(search) < 500_000 < path.stat().st_size


@pytest.mark.parametrize("change", ["shorter", "other bytes", "another file", "a request"])
def test_scan_reads_a_session_that_did_not_only_grow(daemon, change):
    """A session that was truncated, changed, replaced or has a request is read from its start."""
    path, talk = long_session(daemon)
    daemon.scan()
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
        pin(daemon, talk.last, value=False)
        append_turn(path, talk)
    os.utime(path, (time.time() - 60,) * 2)

    assert bytes_read(daemon.scan) > path.stat().st_size


def test_request_made_during_a_scan_is_carried_out(daemon):
    """A request made after the scan began and before its session's turn is carried out."""
    path, talk = long_session(daemon, turns=20)
    pin(daemon, talk.last, value=2)  # so that the store has a record of it
    daemon.scan()
    for _ in range(2):
        append_turn(path, talk)
        daemon.scan()
    append_turn(path, talk)
    request = (
        "INSERT INTO requests (session_id, entry_id, action, value, asked_at)"
        " SELECT id, ?, 'set', 'false', ? FROM sessions"
    )
    scan(
        daemon.settings(), daemon.store, clock=daemon.clock, transcripts=daemon.kept,
        watch=Watch(lambda _: sql(daemon, request, (talk.last, daemon.clock()))),
    )  # fmt: skip

    assert daemon.store.requests.count_open() == 0
    assert b'"_extractable":false' in path.read_bytes().splitlines()[-1]


@pytest.mark.parametrize(
    ("front", "name"), [("entry", None), ("in a text", "again"), ("as a result", "again~2")]
)
def test_id_that_earlier_scans_read_is_not_used_again(daemon, front, name):
    """Entries with one id are not extracted, and a placeholder in front is not used again."""
    talk = Conversation()
    talk.user(ident="again" if front == "entry" else None)
    talk.assistant("it is called [[extracted-again]]" if front == "in a text" else "y")
    talk.call()
    talk.result("[[extracted-again]]" if front == "as a result" else "y")
    path = daemon.put("s.jsonl", talk.bytes())
    daemon.scan(keep_recent=0)
    before = len(talk.lines)
    talk.user()
    talk.call()
    talk.result("x" * 5000, ident="again")
    talk.assistant()
    append(path, talk.lines[before:])
    os.utime(path, (time.time() - 60,) * 2)
    data = path.read_bytes()

    assert daemon.scan(keep_recent=0).values_extracted == (name is not None)
    if name is None:
        assert path.read_bytes() == data
    else:
        assert sql(daemon, "SELECT name FROM extractions WHERE entry_id = 'again'") == [(name,)]
    daemon.restore_all(pristine=True)
    assert b"x" * 5000 in path.read_bytes()


def test_scans_of_a_grown_session_keep_earlier_placements(daemon):
    """Scans that read only new lines keep the placeholders before them as in place."""
    path, talk = long_session(daemon, turns=20)
    append_turn(path, talk, "x" * 5000)
    assert daemon.scan(keep_recent=0).values_extracted == 1
    start = time.time()
    for later in (1800, 90_000):
        daemon.clock = lambda now=start + later: now
        for _ in range(2):
            append_turn(path, talk)
            daemon.scan(keep_recent=0)

    assert sql(daemon, "SELECT * FROM placements") == [(1, 1, None)]
    assert sql(daemon, "SELECT unplaced_at FROM extractions") == [(None,)]


def test_archive_under_a_new_id_is_recognized_by_a_daemon(daemon):
    """Nothing is extracted from an archive whose id the agent changed."""
    path, talk = long_session(daemon, turns=20)
    daemon.scan()
    append_turn(path, talk, "x" * 5000)
    keys = daemon.settings(keep_recent=0, archive={"enabled": True, "keep_turns": 0})
    archive(keys, daemon.store, str(path), clock=daemon.clock)
    *front, closing = path.read_bytes().splitlines(keepends=True)
    assert b"[archived turn]" in closing
    old_id = b'"id":"%s"' % talk.last.encode()
    talk.last = "another"
    closing = closing.replace(old_id, b'"id":"another"').replace(b"}\n", b',"_extractable":true}\n')
    path.write_bytes(b"".join((*front, closing)))
    os.utime(path, (time.time() - 60,) * 2)
    assert daemon.scan().values_extracted == 0
    append_turn(path, talk)

    assert daemon.scan().values_extracted == 0
    assert b"[archived turn]" in path.read_bytes()


@pytest.mark.parametrize("sample", SAMPLE_SESSIONS, ids=lambda path: path.name[:24])
def test_kept_and_fresh_transcripts_lead_to_equal_results(tmp_path, sample):
    """A growing sample ends with the same bytes and outcomes whether or not scans keep it."""
    lines = sample.read_bytes().splitlines(keepends=True)
    size = max(1, len(lines) // 12)
    worlds = World(tmp_path / "kept"), World(tmp_path / "fresh")
    worlds[0].kept = Transcripts()
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
            assert outcomes[0] == outcomes[1]
            assert paths[0].read_bytes() == paths[1].read_bytes()
    finally:
        for world in worlds:
            world.close()
