"""Sessions of Claude Code: discovery, extraction, restore, forks, and processes at work."""

import json
import os
import shutil
import time

import pytest

from brainsurgeon.files import exchange
from brainsurgeon.model.entries import KINDS
from brainsurgeon.model.text import iso
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.show import cat, show
from brainsurgeon.render import runs as render
from brainsurgeon.render import sessions as listing
from brainsurgeon.render.formatting import local
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
OLDER_SAMPLES = sorted((SAMPLES / "claude-code").glob("*.jsonl"))
HOUR = 3600
DAY = 24 * HOUR


@pytest.fixture
def conversation():
    return ClaudeConversation()


@pytest.fixture
def path(world, conversation):
    """Write a session of five turns, last changed three days ago, and return its path."""
    conversation.results = [conversation.turn(f"{number} " + "x" * 2000) for number in range(5)]
    return world.put(f"{SESSION}.jsonl", conversation.bytes())


def placeholder(uuid):
    return f"[[extracted-{uuid}]]"


def content(path, uuid):
    return read_entries(path)[uuid]["message"]["content"][0]["content"]


def outcome(report):
    [session] = report.sessions
    return session.outcome, session.reason


def test_claude_sessions_and_sub_agents_are_discovered(world):
    """Main sessions and those of sub-agents belong to their project; other files are ignored."""
    world.copy_samples()
    project = world.root / "-home-dev-demo-1-ws"
    beside = project / SAMPLE.format(1)
    line = dump({"type": "user", "uuid": "u", "parentUuid": None, "sessionId": "s"})
    (world.home / "history.jsonl").write_bytes(line)
    for stray in ("tool-results/x.jsonl", "resume-head.jsonl", "subagents/workflows/w/agent.jsonl"):
        (beside / stray).parent.mkdir(parents=True, exist_ok=True)
        (beside / stray).write_bytes(line)

    for root in (world.root, world.home):
        rows = sessions(world.settings(roots=[{"path": str(root)}]), world.no_store, time.time())

        assert {row.session for row in rows} == {
            *(f"{PROJECT}/{SAMPLE.format(number)}" for number in (1, 2, 3, 4)),
            f"{PROJECT}/agent-a3fa87885c4515720",
            f"{PROJECT}/agent-a4248f2a174afc4f1",
            f"{PROJECT}/agent-aef306ba26e2ce726",
        }
        assert {row.state for row in rows} == {"idle"}
        assert {row.session.partition("/")[2]: row.started_by for row in rows
                if row.started_by} == {
            "agent-a3fa87885c4515720": f"{PROJECT}/{SAMPLE.format(1)}",
            "agent-a4248f2a174afc4f1": f"{PROJECT}/{SAMPLE.format(4)}",
            "agent-aef306ba26e2ce726": f"{PROJECT}/{SAMPLE.format(4)}",
        }  # fmt: skip
        assert {row.format for row in rows} == {"claude-code"}


def test_a_claude_session_outside_a_home_is_discovered(world, conversation):
    """A copy elsewhere is named after its directory."""
    conversation.turn()
    place = world.base / "backup"
    place.mkdir()
    (place / "copy.jsonl").write_bytes(conversation.bytes())
    [row] = sessions(world.settings(roots=[{"path": str(place)}]), world.no_store, time.time())

    assert row.session == "claude-code:backup/copy"


@pytest.mark.parametrize("rules", [{}, EVERYTHING], ids=["default", "everything"])
def test_restore_all_restores_whole_claude_homes(world, rules):
    """A scan changes session files only, a second one nothing, and `cat` prints the originals."""
    world.copy_samples()
    before = world.files()
    report = world.scan(**rules)
    pruned = world.files()

    assert report.sessions_changed >= 6
    assert report.files_failed == 0
    assert before.keys() == pruned.keys()
    changed = [path for path in before if before[path] != pruned[path]]
    assert {path.suffix for path in changed} == {".jsonl"}
    assert all(pruned[path][1] == mtime for path, (_, mtime) in before.items())
    assert world.scan(**rules).sessions_changed == 0
    assert world.files() == pruned
    for path in pruned:
        if path.suffix == ".jsonl":
            printed = cat(world.settings(), world.store, str(world.root / path), time.time())
            assert b"".join(printed) == before[path][0]
    world.restore_all(pristine=True)
    assert world.files() == before


@pytest.mark.parametrize("sample", OLDER_SAMPLES, ids=lambda path: path.name[:12])
def test_restore_all_restores_sessions_of_older_versions(world, sample):
    """Versions 1.0 to 2.1.38 included, with invalid lines and without a last newline."""
    path = world.put(sample.name, sample.read_bytes())
    written = path.stat().st_mtime_ns
    world.scan(**EVERYTHING)

    assert len(path.read_bytes()) < sample.stat().st_size
    assert path.stat().st_mtime_ns == written
    world.restore_all(pristine=True)
    assert path.read_bytes() == sample.read_bytes()
    assert path.stat().st_mtime_ns == written


def test_extraction_keeps_the_structure_of_every_line(world):
    """Lines, order, ids, parents, roles, types and lengths of lists stay."""
    world.copy_samples()
    before = world.files()
    world.scan(**EVERYTHING)
    seen = 0
    for name, (old, _) in before.items():
        if name.suffix != ".jsonl":
            continue
        new = (world.root / name).read_bytes()
        end = old.rfind(b'"subtype":"compact_boundary"')
        pairs = list(zip(old.split(b"\n"), new.split(b"\n"), strict=True))
        for was, now in pairs:
            seen += was != now
            if was:
                # Before a compaction, which is never loaded again, whole objects may leave.
                whole = {"attachment", "toolUseResult"} if old.index(was) < end else ()
                shapes = [_shape(json.loads(line)) for line in (now, was)]
                for shape in shapes:
                    shape.update(dict.fromkeys(shape.keys() & whole))
                assert shapes[0] == shapes[1]
                assert now[:15] == was[:15]
    assert seen > 100


def _shape(value, key=None):
    """Return a value with its texts replaced, and blocks that may be extracted whole as one."""
    if isinstance(value, dict):
        if str(value.get("type")).startswith("api-request"):
            return {name: _shape(inner, name) for name, inner in value.items()
                    if name not in ("shape", "message", "params")}  # fmt: skip
        if value.get("type") in ("image", "text", "thinking") and key is None:
            return "block"
        return {name: _shape(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        if [item.get("type") for item in value if isinstance(item, dict)] == ["thinking"]:
            return []
        return [_shape(inner) for inner in value]
    if isinstance(value, str) and key not in ("uuid", "parentUuid", "type", "role", "tool_use_id",
                                              "id", "name", "sessionId", "signature"):  # fmt: skip
        return "text"
    return value


def test_a_value_for_model_and_screen_is_stored_once(world, path):
    """The copy for the model and the copy for the screen share a blob and are restored together."""
    [first, *_] = read_entries(path).values()
    result = next(uuid for uuid in read_entries(path) if is_tool_result(path, uuid))
    world.scan()
    entry = read_entries(path)[result]

    assert entry["message"]["content"][0]["content"] == entry["toolUseResult"]["stdout"]
    assert entry["message"]["content"][0]["content"] == placeholder(result)
    blobs = world.store._connection.execute("SELECT count(*) FROM blobs").fetchone()[0]
    values = world.store._connection.execute("SELECT count(*) FROM extractions").fetchone()[0]
    assert values == 2 * blobs
    world.restore(result)
    restored = read_entries(path)[result]
    assert restored["message"]["content"][0]["content"] == restored["toolUseResult"]["stdout"]
    assert restored["toolUseResult"]["stdout"].startswith("0 xxx")
    assert list(restored)[-1] == "_restored"
    assert first["uuid"] in read_entries(path)


def is_tool_result(path, uuid):
    blocks = read_entries(path)[uuid].get("message", {}).get("content")
    return isinstance(blocks, list) and blocks[0]["type"] == "tool_result"


def test_the_screen_copy_is_extracted_with_any_triggers(world, path, conversation):
    """It is never sent; the copy that is sent stays if no trigger includes it."""
    world.scan(trigger_types=["thinking"])
    old, recent = conversation.results[0], conversation.results[-1]

    assert read_entries(path)[old]["toolUseResult"]["stdout"] == placeholder(old)
    assert content(path, old).startswith("0 xxx")
    assert read_entries(path)[recent]["toolUseResult"]["stdout"].startswith("4 xxx")


def test_a_session_with_a_busy_process_is_deferred(world, path, other_process):
    """It is deferred however long its file has been unchanged."""
    world.record(other_process.pid, status="busy")
    before = path.read_bytes()

    assert outcome(world.scan()) == (
        "deferred", f"process {other_process.pid} of Claude Code is at work on it",
    )  # fmt: skip
    assert path.read_bytes() == before
    world.record(other_process.pid, session=OTHER, status="busy")
    assert world.scan().sessions_changed == 1


def test_an_open_claude_code_defers_new_extractions(world, path, conversation, other_process):
    """It never reads its session again; a named scan and a restore do not wait."""
    changed_at = int(time.time() / 60) * 60 - 60
    os.utime(path, (changed_at,) * 2)
    world.record(other_process.pid, status="idle")
    until = iso(changed_at + HOUR)
    why = f"an open Claude Code has it in memory: waits for its exit, at most until {until}"

    for dry_run in (True, False, True, False):
        assert outcome(world.scan(dry_run=dry_run)) == ("deferred", why)
    [row] = sessions(world.settings(), world.store, time.time())
    assert (row.state, row.reason) == ("busy", why)
    shown = why.replace(iso(changed_at + HOUR), local(changed_at + HOUR))
    assert f"deferred, {shown}" in "\n".join(render.report(world.scan()))
    assert shown in listing.sessions([row], time.time())
    assert outcome(world.scan(only={str(path)})) == ("deferred", why)
    assert world.scan(only={str(path)}, named=True).sessions_changed == 1
    old = conversation.results[0]
    assert not world.restore(old).pending
    assert content(path, old).startswith("0 xxx")


def test_an_open_session_that_grew_stays_deferred(world, path, conversation, other_process):
    """It is deferred until its process ends."""
    world.record(other_process.pid, status="idle")
    os.utime(path, (time.time() - 60,) * 2)
    world.scan()
    conversation.turn("small")
    world.put(path.name, conversation.bytes(), age=60)

    for _ in range(2):
        assert "an open Claude Code has it in memory" in outcome(world.scan())[1]
    (world.records / f"{other_process.pid}.json").unlink()
    assert world.scan().sessions_changed == 1


def test_an_open_claude_code_defers_for_an_hour_at_most(world, path, other_process):
    """A session unchanged for an hour is probably read again before it continues."""
    world.clock = Clock()
    os.utime(path, (world.clock.now - 60,) * 2)
    world.record(other_process.pid, status="idle")
    assert world.scan().sessions_changed == 0
    world.clock.now += HOUR - 61
    assert world.scan().sessions_changed == 0
    world.clock.now += 2
    assert world.scan().sessions_changed == 1


def test_an_older_session_must_be_quiet_for_two_minutes(world):
    """Without `stop_reason` more of the turn may follow, with any `quiet_seconds`."""
    conversation = ClaudeConversation(version="2.1.37")
    for _ in range(5):
        conversation.turn()
        conversation.lines[-1]["message"]["stop_reason"] = None
    path = world.put(f"{SESSION}.jsonl", conversation.bytes(), age=100)

    assert outcome(world.scan())[0] == "deferred"
    os.utime(path, (time.time() - 121,) * 2)
    assert world.scan().sessions_changed == 1


@pytest.mark.parametrize("between", ["", "workflows/wf1/"])
def test_a_recent_sub_agent_defers_its_session(world, path, between):
    """The report of the sub-agent has yet to be written to the session."""
    own = ClaudeConversation(side=True)
    own.turn()
    side = world.put(f"{SESSION}/subagents/{between}agent-a1.jsonl", own.bytes(), age=0)

    report = world.scan(quiet_seconds=30, only={str(path)})
    assert "one of its sub-agents wrote" in outcome(report)[1]
    os.utime(side, (time.time() - 31,) * 2)
    assert world.scan(quiet_seconds=30, only={str(path)}).sessions_changed == 1


def test_sub_agents_of_workflows_are_pruned(world, path):
    """Two of them may have the same name; the journal beside them is left alone."""
    own = ClaudeConversation(side=True)
    for number in range(5):
        own.turn(f"{number} " + "x" * 2000)
    journal = world.put(f"{SESSION}/subagents/workflows/wf1/journal.jsonl", b'{"result": "x"}\n')
    for flow in ("wf1", "wf2"):
        world.put(f"{SESSION}/subagents/workflows/{flow}/agent-a1.jsonl", own.bytes())

    assert world.scan().sessions_changed == 3
    assert journal.read_bytes() == b'{"result": "x"}\n'
    rows = sessions(world.settings(), world.store, time.time())
    assert sorted(row.started_by or "" for row in rows) == [
        "", *2 * [f"claude-code:-w/{SESSION}"]
    ]  # fmt: skip


@pytest.mark.parametrize("behind", ["projects", ".claude"])
def test_process_records_are_found_if_projects_are_behind_a_link(world, path, tmp_path, behind):
    """A session keeps its name and its sub-agents, and an open process is respected."""
    place = world.root if behind == "projects" else world.home
    real = tmp_path / "elsewhere" / "real"
    real.parent.mkdir()
    place.rename(real)
    place.symlink_to(real)
    own = ClaudeConversation(side=True)
    own.turn()
    world.put(f"{SESSION}/subagents/agent-a1.jsonl", own.bytes())
    world.record(os.getpid(), status="busy")

    done = {row.session: row.reason for row in world.scan().sessions}
    assert "is at work on it" in done[f"claude-code:-w/{SESSION}"]
    rows = sessions(world.settings(), world.store, time.time())
    assert {row.started_by for row in rows} == {None, f"claude-code:-w/{SESSION}"}


def test_session_keeps_its_name_if_its_file_becomes_unreadable(
    unprivileged_world, conversation, monkeypatch
):
    """Its place tells whose it is, before and after a scan that could not read it."""
    world = unprivileged_world
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(world.root))
    conversation.turn()
    path = world.root / "projects" / "-w" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(conversation.bytes())
    os.utime(path, (LONG_AGO, LONG_AGO))

    seen = [row.session for row in sessions(world.settings(), world.store, time.time())]
    path.chmod(0)
    for _ in range(2):
        seen += [row.session for row in world.scan(only={str(path)}).sessions]

    assert seen == 3 * [f"claude-code:-w/{SESSION}"]


def test_a_process_that_begins_under_the_lease_stops_it(world, path, other_process, monkeypatch):
    """A process that is busy by the time of the exchange defers the session."""
    replace = exchange.replace

    def begin_to_work(candidates):
        world.record(other_process.pid, status="busy")
        replace(candidates)

    monkeypatch.setattr(exchange, "replace", begin_to_work)
    before = path.read_bytes()

    assert "is at work on it" in outcome(world.scan())[1]
    assert path.read_bytes() == before
    assert world.leftovers() == []


@pytest.mark.parametrize("says", [True, False], ids=["2.1.330", "2.1.112"])
def test_values_are_found_and_restored_in_a_claude_fork(world, path, conversation, says):
    """The original session keeps its placeholders."""
    world.scan()
    old = conversation.results[0]
    copy = fork_claude_session(path, OTHER, says=says)
    pruned, extracted = path.read_bytes(), copy.read_bytes()

    printed = b"".join(cat(world.settings(), world.store, OTHER, time.time()))
    assert placeholder(old).encode() not in printed
    shown = show(world.settings(), world.store, old, session=OTHER, keys=["stdout"])
    assert b"0 xxx" in (shown if isinstance(shown, bytes) else str(shown).encode())
    assert not world.restore(placeholder(old), session=OTHER).pending
    assert content(copy, old).startswith("0 xxx")
    assert path.read_bytes() == pruned
    world.restore_all(OTHER, pristine=True)
    assert placeholder(old).encode() not in copy.read_bytes()
    assert copy.read_bytes() != extracted
    world.restore_all(SESSION, pristine=True)
    assert path.read_bytes() == conversation.bytes()


@pytest.mark.parametrize("says", [True, False], ids=["2.1.330", "2.1.112"])
def test_values_of_a_fork_survive_its_deleted_original(world, path, conversation, clock, says):
    """Days after the original was deleted, each placeholder of the fork has a value."""
    world.scan()
    copy = fork_claude_session(path, OTHER, says=says)
    assert {finding.level for finding in doctor(world.settings(), world.store)} == {"ok"}
    world.scan()
    path.unlink()
    for _ in range(3):
        clock.now += 2 * DAY
        world.scan()
        report = retention(world.settings(), world.store, clock=clock)

    assert (report.held_back, report.values_deleted) == ({}, 0)
    assert {finding.level for finding in doctor(world.settings(), world.store)} == {"ok"}
    world.restore_all(OTHER, pristine=True)
    assert b"[[extracted-" not in copy.read_bytes()
    assert content(copy, conversation.results[0]).startswith("0 xxx")


def test_results_joined_in_one_message_are_restored(world):
    """A result is matched by its tool call, at any index in a message."""
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
    answers = world.restore_all(OTHER, pristine=True)
    joined = read_entries(copy)[first["uuid"]]["message"]["content"]

    assert [block["content"] for block in joined] == ["a" * 2000, "b" * 2000]
    assert not answers[0].left


def test_a_fork_of_a_fork_restores_values_of_both(world, path, conversation):
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


@pytest.mark.parametrize("says", [True, False], ids=["2.1.330", "2.1.112"])
def test_a_copy_in_another_project_restores_its_values(world, path, conversation, says):
    """The same uuids in another project name the same values, for the user who owns both."""
    world.scan()
    copy = fork_claude_session(path, OTHER, says=says, directory=world.root / "-other")

    world.scan()
    world.restore_all(OTHER, pristine=True)
    assert b"[[extracted-" not in copy.read_bytes()
    assert content(copy, conversation.results[0]).startswith("0 xxx")


def test_a_session_without_its_oldest_lines_is_restored(world, path, conversation):
    """Claude Code may drop lines and write the file again under another inode."""
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
    assert show(world.settings(), world.store, conversation.results[0], session=SESSION)


def test_values_before_a_compaction_are_restored(world, path, conversation):
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


def test_signatures_after_unsent_values_are_restored(world):
    """Restoring is complete if only values that are never sent left before the signatures."""
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
    answers = world.restore_all(SESSION, pristine=True)

    assert path.read_bytes() == conversation.bytes()
    assert answers[0].note == ""


def test_extracted_thinking_leaves_the_calibration_as_it_was(world, conversation):
    """Requests before the scan had the text of signed thinking, which no signature makes longer."""
    sent = 0
    for number in range(20):
        conversation.user("p" * 100)
        sent += 100
        thought = {"type": "thinking", "thinking": "t" * (300 + 90 * number)}
        for block in (thought | {"signature": "s" * 4000}, {"type": "text", "text": "o" * 50}):
            conversation.assistant(block, message=f"m{number}")
            usage = {"input_tokens": 500 + round(0.3 * sent)}
            conversation.lines[-1]["message"] |= {"usage": usage, "model": "claude-opus-4-5"}
        sent += len(thought["thinking"]) + 50
    path = world.put(f"{SESSION}.jsonl", conversation.bytes())
    size = path.stat().st_size
    known = lambda: context(world.settings(), world.store, SESSION, time.time()).full.calibration  # noqa: E731
    before = known()
    world.scan(when="always", min_value_length=500)

    assert path.stat().st_size < size - 50_000
    assert before.method == "session"
    assert known() == before
