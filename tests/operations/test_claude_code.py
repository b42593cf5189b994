"""Claude Code's sessions in use: found, cut, restored, left alone while somebody is at work."""

import json
import os
import shutil
import time

import pytest

from brainsurgeon.model.entries import KINDS
from brainsurgeon.model.text import iso
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.sessions import sessions
from brainsurgeon.operations.show import show
from brainsurgeon.render import runs as render
from brainsurgeon.render import sessions as listing
from brainsurgeon.render.formatting import local
from brainsurgeon.sessions import exchange
from building.claude import (
    SESSION,
    ClaudeConversation,
    ClaudeWorld,
    fork_claude_session,
    read_entries,
)
from building.world import LONG_AGO, SAMPLES, Clock, dump

WORLD = ClaudeWorld

OTHER = "22222222-2222-4222-8222-222222222222"
THIRD = "33333333-3333-4333-8333-333333333333"
PROJECT = "claude-code:-home-dev-demo-1-ws"
SAMPLE = "5a5a5a5a-000{0}-4000-8000-00000000000{0}"
EVERYTHING = {"keep_recent": 0, "min_value_length": 20, "trigger_types": list(KINDS)}
OLDER = sorted((SAMPLES / "claude-code").glob("*.jsonl"))
HOUR = 3600
DAY = 24 * HOUR


@pytest.fixture
def conversation():
    return ClaudeConversation()


@pytest.fixture
def path(world, conversation):
    """Write a session of five turns, last changed three days ago, and give its file."""
    conversation.results = [conversation.turn(f"{number} " + "x" * 2000) for number in range(5)]
    return world.put(f"{SESSION}.jsonl", conversation.bytes())


def placeholder(uuid):
    return f"[[extracted-{uuid}]]"


def content(path, uuid):
    return read_entries(path)[uuid]["message"]["content"][0]["content"]


def outcome(report):
    [one] = report.sessions
    return one.outcome, one.reason


# Which files are sessions, and whose.


def test_sessions_are_found_where_claude_code_keeps_them(world):
    """Main sessions and those of sub-agents belong to their project; nothing else is one."""
    world.copy_samples()
    project = world.root / "-home-dev-demo-1-ws"
    beside = project / SAMPLE.format(1)
    line = dump({"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s"})
    (world.home / "history.jsonl").write_bytes(line)
    for stray in ("tool-results/x.jsonl", "resume-head.jsonl", "subagents/workflows/w/agent.jsonl"):
        (beside / stray).parent.mkdir(parents=True, exist_ok=True)
        (beside / stray).write_bytes(line)

    for root in (world.root, world.home):
        found = sessions(world.settings(roots=[{"path": str(root)}]), world.no_store, time.time())

        assert {one.session for one in found} == {
            *(f"{PROJECT}/{SAMPLE.format(number)}" for number in (1, 2, 3, 4)),
            f"{PROJECT}/agent-a3fa87885c4515720",
            f"{PROJECT}/agent-a4248f2a174afc4f1",
            f"{PROJECT}/agent-aef306ba26e2ce726",
        }
        assert {one.state for one in found} == {"idle"}
        assert {one.session.partition("/")[2]: one.started_by for one in found
                if one.started_by} == {
            "agent-a3fa87885c4515720": f"{PROJECT}/{SAMPLE.format(1)}",
            "agent-a4248f2a174afc4f1": f"{PROJECT}/{SAMPLE.format(4)}",
            "agent-aef306ba26e2ce726": f"{PROJECT}/{SAMPLE.format(4)}",
        }  # fmt: skip
        assert {one.format for one in found} == {"claude-code"}


def test_a_session_outside_any_home_belongs_to_its_directory(world, conversation):
    """A copy is read as what it says, wherever it lies."""
    conversation.turn()
    place = world.base / "backup"
    place.mkdir()
    (place / "copy.jsonl").write_bytes(conversation.bytes())
    [found] = sessions(world.settings(roots=[{"path": str(place)}]), world.no_store, time.time())

    assert found.session == "claude-code:backup/copy"


# Cutting and undoing.


@pytest.mark.parametrize("rules", [{}, EVERYTHING], ids=["default", "everything"])
def test_whole_homes_come_back_to_the_byte(world, rules):
    """A run changes session files alone, a second writes nothing, undoing gives back all."""
    world.copy_samples()
    before = world.files()
    report = world.scan(**rules)
    pruned = world.files()

    assert report.sessions_changed >= 6
    assert report.files_failed == 0
    assert before.keys() == pruned.keys()
    assert {one for one in before if before[one] != pruned[one]} <= {
        one for one in before if one.suffix == ".jsonl"
    }
    assert {one: at for one, (_, at) in before.items()} == {
        one: at for one, (_, at) in pruned.items()
    }
    assert world.scan(**rules).sessions_changed == 0
    assert world.files() == pruned
    for one in pruned:
        if one.suffix == ".jsonl":
            printed = cat(world.settings(), world.store, str(world.root / one), time.time())
            assert b"".join(printed) == before[one][0]
    world.restore_all(pristine=True)
    assert world.files() == before


@pytest.mark.parametrize("sample", OLDER, ids=lambda path: path.name[:12])
def test_older_sessions_come_back_to_the_byte(world, sample):
    """Also what 1.0 to 2.1.38 wrote, with lines that do not parse and without a last newline."""
    path = world.put(sample.name, sample.read_bytes())
    written = path.stat().st_mtime_ns
    world.scan(**EVERYTHING)

    assert len(path.read_bytes()) < sample.stat().st_size
    assert path.stat().st_mtime_ns == written
    world.restore_all(pristine=True)
    assert path.read_bytes() == sample.read_bytes()
    assert path.stat().st_mtime_ns == written


def test_the_shape_of_a_session_stays(world):
    """Lines, order, ids, parents, roles, types, lengths of lists and kinds of values stay.

    Only before a compaction, where nothing is loaded, does an object of a line go as a whole.
    """
    world.copy_samples()
    before = world.files()
    world.scan(**EVERYTHING)
    seen = 0
    for one, (old, _) in before.items():
        if one.suffix != ".jsonl":
            continue
        new = (world.root / one).read_bytes()
        end = old.rfind(b'"subtype":"compact_boundary"')
        pairs = list(zip(old.split(b"\n"), new.split(b"\n"), strict=True))
        for was, now in pairs:
            seen += was != now
            if was:
                whole = {"attachment", "toolUseResult"} if old.index(was) < end else ()
                shapes = [_shape(json.loads(line)) for line in (now, was)]
                for shape in shapes:
                    shape.update(dict.fromkeys(shape.keys() & whole))
                assert shapes[0] == shapes[1]
                assert now[:15] == was[:15]
    assert seen > 100


def _shape(value, key=None):
    """Give a value without its texts; what may be replaced as a whole counts as one."""
    if isinstance(value, dict):
        if str(value.get("type")).startswith("api-request"):
            return {name: _shape(inner, name) for name, inner in value.items()
                    if name not in ("shape", "message", "params")}  # fmt: skip
        if value.get("type") in ("image", "text", "thinking") and key is None:
            return "block"
        return {name: _shape(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        if [one.get("type") for one in value if isinstance(one, dict)] == ["thinking"]:
            return []
        return [_shape(inner) for inner in value]
    if isinstance(value, str) and key not in ("uuid", "parentUuid", "type", "role", "tool_use_id",
                                              "id", "name", "sessionId", "signature"):  # fmt: skip
        return "text"
    return value


def test_a_value_that_stands_twice_is_stored_once(world, path):
    """What the model gets and what the screen shows are one value."""
    [first, *_] = read_entries(path).values()
    result = next(one for one in read_entries(path) if content_or_none(path, one))
    world.scan()
    said = read_entries(path)[result]

    assert said["message"]["content"][0]["content"] == said["toolUseResult"]["stdout"]
    assert said["message"]["content"][0]["content"] == placeholder(result)
    blobs = world.store._connection.execute("SELECT count(*) FROM blobs").fetchone()[0]
    values = world.store._connection.execute("SELECT count(*) FROM extractions").fetchone()[0]
    assert values == 2 * blobs
    world.restore(result)
    back = read_entries(path)[result]
    assert back["message"]["content"][0]["content"] == back["toolUseResult"]["stdout"]
    assert back["toolUseResult"]["stdout"].startswith("0 xxx")
    assert list(back)[-1] == "_restored"
    assert first["uuid"] in read_entries(path)


def content_or_none(path, uuid):
    blocks = read_entries(path)[uuid].get("message", {}).get("content")
    return isinstance(blocks, list) and blocks[0]["type"] == "tool_result"


def test_what_the_screen_shows_goes_whatever_the_triggers(world, path, conversation):
    """It is never sent; what is sent stays where no rule speaks of it."""
    world.scan(trigger_types=["thinking"])
    old, recent = conversation.results[0], conversation.results[-1]

    assert read_entries(path)[old]["toolUseResult"]["stdout"] == placeholder(old)
    assert content(path, old).startswith("0 xxx")
    assert read_entries(path)[recent]["toolUseResult"]["stdout"].startswith("4 xxx")


# Who is at work.


def test_a_session_that_a_process_works_on_is_left_alone(world, path, other_process):
    """Busy means busy, however long the file has been silent."""
    world.record(other_process.pid, status="busy")
    before = path.read_bytes()

    assert outcome(world.scan()) == (
        "deferred", f"process {other_process.pid} of Claude Code is at work on it",
    )  # fmt: skip
    assert path.read_bytes() == before
    world.record(other_process.pid, session=OTHER, status="busy")
    assert world.scan().sessions_changed == 1


def test_beside_a_process_at_rest_new_extractions_wait(world, path, conversation, other_process):
    """It never reads its session again; who names the session need not wait, nor do requests."""
    changed_at = int(time.time() / 60) * 60 - 60
    os.utime(path, (changed_at,) * 2)
    world.record(other_process.pid, status="idle")
    until = iso(changed_at + HOUR)
    why = f"an open Claude Code has it in memory: waits for its exit, at most until {until}"

    for dry_run in (True, False, True, False):
        assert outcome(world.scan(dry_run=dry_run)) == ("deferred", why)
    [listed] = sessions(world.settings(), world.store, time.time())
    assert (listed.state, listed.reason) == ("busy", why)
    shown = why.replace(iso(changed_at + HOUR), local(changed_at + HOUR))
    assert f"deferred, {shown}" in "\n".join(render.report(world.scan()))
    assert shown in listing.sessions([listed], time.time(), chosen=False)
    assert outcome(world.scan(only={str(path)})) == ("deferred", why)
    assert world.scan(only={str(path)}, named=True).sessions_changed == 1
    old = conversation.results[0]
    answer = world.restore(old)
    assert not answer.pending
    assert content(path, old).startswith("0 xxx")


def test_a_session_in_use_is_held_however_much_of_it_was_seen(
    world, path, conversation, other_process
):
    """A session that grew beside a resting process waits, too, and comes free when that ends."""
    world.record(other_process.pid, status="idle")
    os.utime(path, (time.time() - 60,) * 2)
    world.scan()
    conversation.turn("small")
    world.put(path.name, conversation.bytes(), age=60)

    for _ in range(2):
        assert "an open Claude Code has it in memory" in outcome(world.scan())[1]
    (world.records / f"{other_process.pid}.json").unlink()
    assert world.scan().sessions_changed == 1


def test_beside_a_process_at_rest_new_extractions_wait_for_an_hour(world, path, other_process):
    """Whoever takes the session up after so long probably reads it again."""
    world.clock = Clock()
    os.utime(path, (world.clock.now - 60,) * 2)
    world.record(other_process.pid, status="idle")
    assert world.scan().sessions_changed == 0
    world.clock.now += HOUR - 61
    assert world.scan().sessions_changed == 0
    world.clock.now += 2
    assert world.scan().sessions_changed == 1


def test_the_end_of_an_older_session_asks_for_two_quiet_minutes(world):
    """Without `stop_reason` more of the turn may follow, whatever `quiet_seconds` says."""
    conversation = ClaudeConversation(version="2.1.37")
    for _ in range(5):
        conversation.turn()
        conversation.lines[-1]["message"]["stop_reason"] = None
    path = world.put(f"{SESSION}.jsonl", conversation.bytes(), age=100)

    assert outcome(world.scan())[0] == "deferred"
    os.utime(path, (time.time() - 121,) * 2)
    assert world.scan().sessions_changed == 1


def test_a_young_sub_agent_keeps_its_session_busy(world, path):
    """Its report is still to come."""
    own = ClaudeConversation(side=True)
    own.turn()
    place = world.project / SESSION / "subagents"
    place.mkdir(parents=True)
    (place / "agent-a1.jsonl").write_bytes(own.bytes())

    report = world.scan(quiet_seconds=30, only={str(path)})
    assert "a sub-agent of it wrote" in outcome(report)[1]
    os.utime(place / "agent-a1.jsonl", (time.time() - 31,) * 2)
    assert world.scan(quiet_seconds=30, only={str(path)}).sessions_changed == 1


def test_a_gate_that_closes_under_the_lease_stops_the_rewrite(
    world, path, other_process, monkeypatch
):
    """A process that began between the look and the exchange is noticed in time."""
    real = exchange.replace

    def late(candidates):
        world.record(other_process.pid, status="busy")
        real(candidates)

    monkeypatch.setattr(exchange, "replace", late)
    before = path.read_bytes()

    assert "is at work on it" in outcome(world.scan())[1]
    assert path.read_bytes() == before
    assert world.leftovers() == []


# Forks, and files that Claude Code writes anew.


@pytest.mark.parametrize("says", [True, False], ids=["2.1.330", "2.1.112"])
def test_a_fork_gets_the_values_of_its_origin(world, path, conversation, says):
    """Found, shown and restored in the fork; the origin stays as it is."""
    world.scan()
    old = conversation.results[0]
    copy = fork_claude_session(path, OTHER, says=says)
    pruned, extracted = path.read_bytes(), copy.read_bytes()

    printed = b"".join(cat(world.settings(), world.store, OTHER, time.time()))
    assert placeholder(old).encode() not in printed
    shown = show(world.settings(), world.store, old, session=OTHER, keys=["stdout"])
    assert b"0 xxx" in (shown if isinstance(shown, bytes) else str(shown).encode())
    answer = world.restore(placeholder(old), session=OTHER)
    assert not answer.pending
    assert content(copy, old).startswith("0 xxx")
    assert path.read_bytes() == pruned
    world.restore_all(OTHER, pristine=True)
    assert placeholder(old).encode() not in copy.read_bytes()
    assert copy.read_bytes() != extracted
    world.restore_all(SESSION, pristine=True)
    assert path.read_bytes() == conversation.bytes()


@pytest.mark.parametrize("says", [True, False], ids=["2.1.330", "2.1.112"])
def test_the_values_of_a_fork_stand_when_its_origin_is_gone(world, path, conversation, says):
    """Every placeholder leads to a value, before and after days with only the fork."""
    world.clock = Clock()
    world.scan()
    copy = fork_claude_session(path, OTHER, says=says)
    assert {one.level for one in doctor(world.settings(), world.store)} == {"ok"}
    world.scan()
    path.unlink()
    for _ in range(3):
        world.clock.now += 2 * DAY
        world.scan()
        retention(world.settings(), world.store, clock=world.clock)

    assert {one.level for one in doctor(world.settings(), world.store)} == {"ok"}
    world.restore_all(OTHER, pristine=True)
    assert b"[[extracted-" not in copy.read_bytes()
    assert content(copy, conversation.results[0]).startswith("0 xxx")


def test_results_that_a_fork_joins_in_one_message_are_restored(world):
    """The result of a call is known by that call, at whatever index of a message it is."""
    conversation = ClaudeConversation()
    conversation.user()
    conversation.call("toolu_a")
    conversation.call("toolu_b")
    conversation.result("a" * 2000, "toolu_a")
    conversation.result("b" * 2000, "toolu_b")
    for _ in range(3):
        conversation.assistant()
        conversation.user()
    conversation.assistant()
    path = world.put(f"{SESSION}.jsonl", conversation.bytes())
    world.scan()
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    first, second = (line for line in lines if line.get("toolUseResult"))
    first["message"]["content"] += second["message"]["content"]
    lines[lines.index(second) + 1]["parentUuid"] = first["uuid"]
    lines.remove(second)
    copy = world.put(
        f"{OTHER}.jsonl", b"".join(dump(dict(line, sessionId=OTHER)) for line in lines)
    )
    done = world.restore_all(OTHER, pristine=True)
    joined = read_entries(copy)[first["uuid"]]["message"]["content"]

    assert [block["content"] for block in joined] == ["a" * 2000, "b" * 2000]
    assert not done[0].left


def test_a_fork_of_a_fork_gets_the_values_of_both(world, path, conversation):
    """Each line names the session that it was first sent from."""
    world.scan()
    middle = fork_claude_session(path, OTHER)
    fresh = ClaudeConversation(session=OTHER)
    fresh._ids = conversation._ids
    fresh.last = conversation.last
    later = [fresh.turn(f"fork {number} " + "y" * 2000) for number in range(4)]
    middle.write_bytes(middle.read_bytes() + fresh.bytes())
    os.utime(middle, (time.time() - LONG_AGO,) * 2)
    world.scan()
    assert content(middle, later[0]) == placeholder(later[0])
    last = fork_claude_session(middle, THIRD)

    world.restore_all(THIRD, pristine=True)
    assert b"[[extracted-" not in last.read_bytes()


@pytest.mark.parametrize("says", [True, False])
def test_a_copy_in_another_project_gets_its_values(world, path, conversation, says):
    """The same uuids in another project name the same values, for the user who owns both."""
    world.scan()
    copy = fork_claude_session(path, OTHER, says=says, directory=world.root / "-other")

    world.scan()
    world.restore_all(OTHER, pristine=True)
    assert b"[[extracted-" not in copy.read_bytes()
    assert content(copy, conversation.results[0]).startswith("0 xxx")


def test_a_file_that_lost_its_oldest_lines_keeps_the_other_values(world, path, conversation):
    """Claude Code may drop lines and write the file anew under another inode."""
    world.scan()
    lines = path.read_bytes().splitlines(keepends=True)
    fresh = path.with_name("fresh")
    fresh.write_bytes(b"".join(lines[4:]))
    shutil.copystat(path, fresh)
    fresh.replace(path)
    second = conversation.results[1]

    assert content(path, second) == placeholder(second)
    world.scan()
    world.restore_all(SESSION)
    assert content(path, second).startswith("1 xxx")
    first = show(world.settings(), world.store, conversation.results[0], session=SESSION)
    assert first


def test_values_from_before_a_compaction_are_found(world, path, conversation):
    """The summary tells the model to read the file, where it meets placeholders."""
    conversation.compaction()
    conversation.assistant()
    path = world.put(f"{SESSION}.jsonl", conversation.bytes())
    world.scan()
    last = conversation.results[-1]

    assert content(path, last) == placeholder(last)
    assert show(world.settings(), world.store, last, session=SESSION)
    assert not world.restore(last).pending
    assert content(path, last).startswith("4 xxx")


def test_a_signature_fits_where_only_unsent_values_left_before_it(world):
    """A record and a screen's copy were extracted first, signatures behind them in a later run."""
    conversation = ClaudeConversation()
    conversation.note("api-request-shape", shapeHash="a" * 64, shape={"tools": ["y" * 3000]})
    conversation.turn("short")
    conversation.lines[-2]["toolUseResult"]["stdout"] = "o" * 3000
    for _ in range(6):
        conversation.user()
        conversation.assistant()
    name, before = f"{SESSION}.jsonl", len(conversation.lines)
    path = world.put(name, conversation.bytes())
    world.scan(abandoned_after_seconds=0)
    for number in range(8):
        conversation.user()
        thinking = {"type": "thinking", "thinking": "", "signature": "S" * 400}
        conversation.assistant(thinking, message=f"msg_{number}", stop=None)
        conversation.call(f"toolu_{number}", message=f"msg_{number}")
        conversation.result(call=f"toolu_{number}")
        conversation.assistant()
    world.put(name, path.read_bytes() + b"".join(map(dump, conversation.lines[before:])))
    world.scan(abandoned_after_seconds=0)
    assert path.read_bytes().count(b"signature") == 1
    done = world.restore_all(SESSION, pristine=True)

    assert path.read_bytes() == conversation.bytes()
    assert done[0].note == ""
