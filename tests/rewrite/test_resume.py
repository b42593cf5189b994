"""Looks at real session files that grow: what is read, what is found, and what makes it whole."""

import os
import re
import time
from pathlib import Path

import msgspec
import pytest

from brainsurgeon.model.reports import Watch
from brainsurgeon.operations import scan as scanning
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.scan import scan
from brainsurgeon.rewrite import tail
from building.world import SAMPLES, Conversation, World, append, dump, pin, sql

GROWING = sorted(
    path for path in SAMPLES.rglob("*.jsonl")
    if path.stat().st_size > 20_000 and "release" not in str(path)
)  # fmt: skip


def long_session(world, turns=600, text="y" * 4000):
    """Write a session of which nothing is to go, and give its file and what it says."""
    talk = Conversation()
    for _ in range(turns):
        talk.user()
        talk.assistant(text)
    return world.put("s.jsonl", talk.bytes()), talk


def say_more(path, talk, **fields):
    """Let the agent answer once more, a while ago."""
    before = len(talk.lines)
    talk.user("and now?")
    talk.assistant("that is all.", **fields)
    append(path, talk.lines[before:])
    os.utime(path, (time.time() - 60,) * 2)


@pytest.mark.parametrize(("was", "becomes"), [(b"", b',"_extractable":true'), (b"false", b" true")])
def test_a_field_set_far_in_front_is_heeded_without_an_append(world, was, becomes):
    """Set by hand or turned round in place, it decides in the next run."""
    talk = Conversation()
    field = {"_extractable": False} if was else {}
    ident = talk.user("z" * 3000, **field)
    for _ in range(600):
        talk.user()
        talk.assistant("y" * 4000)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    assert begins(world)
    first, *rest = path.read_bytes().splitlines(keepends=True)
    rest[0] = rest[0].replace(was or b"}\n", becomes if was else becomes + b"}\n")
    path.write_bytes(b"".join([first, *rest]))
    os.utime(path, (time.time() - 60,) * 2)
    assert world.scan().values_extracted == 1
    assert sql(world, "SELECT entry_id FROM extractions") == [(ident,)]


def read_by(work):
    def so_far():
        return int(re.search(r"rchar: (\d+)", Path("/proc/self/io").read_text())[1])

    before = so_far()
    work()
    return so_far() - before


def begins(world):
    """Give where the next look at each file begins."""
    points = sql(world, "SELECT resume FROM resumes")
    return [msgspec.msgpack.decode(point)["offset"] for (point,) in points]


def test_an_append_costs_an_append(world):
    """What stands in front of the tail is not read again, run after run."""
    path, talk = long_session(world)
    world.scan()
    for _ in range(3):
        say_more(path, talk)

        read = read_by(lambda: world.scan(only=[str(path)]))

        assert read < 500_000 < path.stat().st_size
        assert begins(world)[0] > path.stat().st_size - 20_000


@pytest.mark.parametrize("point", [b"\xc1", msgspec.msgpack.encode({"offset": 5})])
def test_a_resume_point_that_cannot_be_read_costs_a_look_at_everything(world, point):
    """If it is damaged, or of a version with other fields, the session is read from its start."""
    path, talk = long_session(world)
    world.scan()
    with world.store.transaction():
        world.store._connection.execute("UPDATE resumes SET resume = ?", (point,))
    say_more(path, talk)

    assert [one.outcome for one in world.scan().sessions if one.outcome == "failed"] == []
    assert begins(world)[0] > path.stat().st_size - 20_000


def test_what_was_appended_goes_when_its_time_has_come(world):
    """A result that was appended is extracted once it is old, and it comes back."""
    path, talk = long_session(world)
    world.scan()
    before = len(talk.lines)
    talk.turn("x" * 5000)
    append(path, talk.lines[before:])
    os.utime(path, (time.time() - 60,) * 2)
    assert world.scan().sessions_changed == 0
    [begin] = begins(world)
    for _ in range(3):
        say_more(path, talk)
    whole = path.read_bytes()

    assert world.scan().sessions_changed == 1
    assert len(path.read_bytes()) < len(whole)
    assert begin < whole.index(b"x" * 5000)
    world.restore_all(pristine=True)
    assert path.read_bytes() == whole


def say_much(path, talk, ident, text="x" * 5000):
    """Let the agent's tool say something long that may go at once, a while ago."""
    before = len(talk.lines)
    talk.user("and now?")
    talk.call()
    talk.result(text, ident=ident)
    talk.assistant("that is all.")
    append(path, talk.lines[before:])
    os.utime(path, (time.time() - 60,) * 2)


@pytest.fixture
def known(world):
    """Give a long session out of whose tail something was extracted already."""
    path, talk = long_session(world)
    world.scan(keep_recent=0)
    say_much(path, talk, "much-0")
    assert world.scan(keep_recent=0).values_extracted == 1
    return path, talk


def test_what_was_appended_goes_without_the_front_being_taken_apart(world, known, monkeypatch):
    """A value in the tail goes on the word of the tail alone, again and again, and comes back."""
    path, talk = known
    monkeypatch.setattr("brainsurgeon.rewrite.inspect.examine_quiet", None)
    said = [str(number) * 5000 for number in range(1, 4)]
    for number, text in enumerate(said, 1):
        say_much(path, talk, f"much-{number}", text)

        assert world.scan(only=[str(path)], keep_recent=0).values_extracted == 1
        assert begins(world)[0] > path.stat().st_size - 40_000
    assert world.scan(keep_recent=0).sessions_changed == 0
    world.restore_all(pristine=True)
    whole = path.read_bytes()
    assert all(text.encode() in whole for text in said)
    assert b"[[extracted-" not in whole


@pytest.mark.parametrize(
    ("front", "name"), [("entry", None), ("in a text", "again"), ("as a result", "again~2")]
)
def test_an_id_that_stands_in_front_as_well_means_a_look_at_everything(world, front, name):
    """Of two entries of one id nothing goes; a placeholder that is a whole value is not reused."""
    talk = Conversation()
    talk.user(ident="again" if front == "entry" else None)
    talk.assistant("it is called [[extracted-again]]" if front == "in a text" else "y")
    talk.call()
    talk.result("[[extracted-again]]" if front == "as a result" else "y")
    for _ in range(600):
        talk.user()
        talk.assistant("y" * 4000)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(keep_recent=0)
    say_much(path, talk, "first")
    assert world.scan(keep_recent=0).values_extracted == 1
    assert begins(world)
    say_much(path, talk, "again")
    before = path.read_bytes()

    assert world.scan(keep_recent=0).values_extracted == (name is not None)
    if name is None:
        assert path.read_bytes() == before
    else:
        assert sql(world, "SELECT name FROM extractions WHERE entry_id = 'again'") == [(name,)]
    world.restore_all(pristine=True)
    assert b"x" * 5000 in path.read_bytes()


@pytest.mark.parametrize("change", ["shorter", "other bytes", "another file", "a request"])
def test_anything_but_growth_means_a_look_at_everything(world, change):
    """A file cut off, written anew, replaced or asked for is read from its beginning."""
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
        say_more(path, talk)
    os.utime(path, (time.time() - 60,) * 2)

    assert read_by(world.scan) > path.stat().st_size


@pytest.mark.parametrize("step", ["result_of", "begin_after_change"])
def test_what_is_written_anew_in_place_during_a_look_is_read_whole(world, known, step, monkeypatch):
    """An agent that writes over its file before a look ends leaves no place to go on from."""
    path, talk = known
    say_much(path, talk, "much-1")
    told = getattr(scanning, step)
    anew = long_session(world, turns=900, text="z" * 3000)[1]

    def meanwhile(*given):
        anew.turn("x" * 5000)
        path.write_bytes(anew.bytes())
        return told(*given)

    sql(world, "DELETE FROM resumes")
    with monkeypatch.context() as late:
        late.setattr(scanning, step, meanwhile)
        path.write_bytes(talk.bytes())
        os.utime(path, (time.time() - 60,) * 2)
        world.scan(keep_recent=0 if step == "begin_after_change" else 50)

    assert begins(world) == []


def test_what_stands_in_front_of_the_tail_goes_on_standing(world, monkeypatch):
    """However often the tail alone is read, and cut, no placeholder in front of it is missed."""
    _, talk = long_session(world, turns=2)
    talk.turn("x" * 5000)
    for _ in range(600):
        talk.user()
        talk.assistant("y" * 4000)
    path, begun = world.put("s.jsonl", talk.bytes()), time.time()
    assert world.scan(keep_recent=0).values_extracted == 1
    say_more(path, talk)
    world.scan(keep_recent=0)
    monkeypatch.setattr("brainsurgeon.rewrite.inspect.examine_quiet", None)
    for later in (1800, 90_000):
        world.clock = lambda now=begun + later: now
        say_much(path, talk, f"much-{later}", "z" * later)

        assert world.scan(keep_recent=0).values_extracted == 1
        assert (1, 1, None) in sql(world, "SELECT * FROM placements")
    assert sql(world, "SELECT name, unplaced_at FROM extractions ORDER BY id")[1:] == [
        ("much-1800", None), ("much-90000", None),
    ]  # fmt: skip


def test_what_is_asked_for_during_a_run_is_not_stepped_over(world):
    """A request that comes after the run began, before its session's turn, is carried out."""
    path, talk = long_session(world)
    pin(world, talk.last, value=2)  # so that the store has a record of it
    world.scan()
    say_more(path, talk)
    world.scan()
    say_more(path, talk)
    request = (
        "INSERT INTO requests (session_id, entry_id, action, value, asked_at)"
        " SELECT id, ?, 'set', 'false', ? FROM sessions"
    )
    assert begins(world)
    scan(
        world.settings(), world.store, clock=world.clock,
        watch=Watch(lambda _: sql(world, request, (talk.last, world.clock()))),
    )  # fmt: skip

    assert world.store.requests.count_open() == 0
    assert b'"_extractable":false' in path.read_bytes().splitlines()[-1]


def test_an_archive_with_a_new_id_is_known_in_the_tail(world):
    """Nothing is extracted from what stands for a turn, also under another id."""
    path, talk = long_session(world)
    say_much(path, talk, "much")
    keys = world.settings(keep_recent=0, archive={"enabled": True, "keep_turns": 0})
    archive(keys, world.store, str(path), clock=world.clock)
    *front, closing = path.read_bytes().splitlines(keepends=True)
    assert b"[archived turn]" in closing
    named = b'"id":"%s"' % talk.last.encode()
    talk.last = "another"
    closing = closing.replace(named, b'"id":"another"').replace(b"}\n", b',"_extractable":true}\n')
    path.write_bytes(b"".join((*front, closing)))
    os.utime(path, (time.time() - 60,) * 2)
    assert world.scan().values_extracted == 0
    say_more(path, talk)
    [begin] = begins(world)
    assert begin <= path.read_bytes().index(b'"id":"another"')

    assert world.scan().values_extracted == 0
    assert b"[archived turn]" in path.read_bytes()


@pytest.mark.parametrize("sample", GROWING, ids=lambda path: path.name[:24])
def test_a_real_session_comes_out_the_same_however_it_is_looked_at(tmp_path, sample, monkeypatch):
    """Whether each run goes on from the last or looks at everything, the same bytes are left."""
    monkeypatch.setattr(tail, "SMALLEST", 0)
    monkeypatch.setattr(tail, "HEAD_LINES", 1)
    lines = sample.read_bytes().splitlines(keepends=True)
    steps = [lines[at : at + max(1, len(lines) // 12)]
             for at in range(0, len(lines), max(1, len(lines) // 12))]  # fmt: skip
    one, other = World(tmp_path / "one"), World(tmp_path / "other")
    paths = [each.directory / "s.jsonl" for each in (one, other)]
    try:
        for step in steps:
            said = []
            for each, path in zip((one, other), paths, strict=True):
                with path.open("ab") as file:
                    file.write(b"".join(step))
                os.utime(path, (time.time() - 7200,) * 2)
                said.append([(told.outcome, told.reason.partition(" (")[0], told.bytes_after)
                             for told in each.scan(min_reclaim=5000).sessions])  # fmt: skip
                each.scan(min_reclaim=5000)
            sql(other, "DELETE FROM resumes")
            assert said[0] == said[1]
            assert paths[0].read_bytes() == paths[1].read_bytes()
    finally:
        one.close()
        other.close()
