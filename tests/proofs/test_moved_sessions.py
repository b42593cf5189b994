"""Moved, copied and forked sessions: every value is restored to where it was extracted.

Sessions are renamed, rotated, exchanged, and come back from backups. Every placeholder in a file
below the roots is filled with exactly the value that was extracted there, or it stays and is
reported; and retention deletes no value because its session moved.
"""

import json
import os
import shutil
import time

import pytest
import zstandard

from brainsurgeon.errors import AmbiguousError, BrainsurgeonError, NotFoundError
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.model.reports import Watch
from brainsurgeon.model.text import readable as safe
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.restore import restore_all
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.operations.show import cat, show
from brainsurgeon.operations.status import status
from brainsurgeon.planning.matching import NO_RECORD, OTHER_ENTRY
from brainsurgeon.render.sessions import restored_all
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.apply import Attempt
from building import claw_agent
from building.claw import FORK, GATEWAY, ClawWorld
from building.file_moves import (
    BETWEEN_AGENTS,
    FORKS,
    MOVES,
    OTHER,
    THIRD,
    add_fork,
    agent_renamed,
    agents_exchanged,
    check_restored,
    conversation_with,
    copied_and_removed,
    copied_to_another_agent,
    files_renamed,
    generic_log,
    make_old,
    moved_to_another_agent,
    rename,
    root_renamed,
    with_new_ids,
    with_own_id,
    with_same_id,
    write_anew,
    write_old_session,
    write_three_sessions,
)
from building.mcp_agent import Agent, agent_after_scan, append_answer, append_open_call
from building.model_requests import add_answer
from building.turns import add_long_turn
from building.world import (
    LONG_AGO,
    Conversation,
    append,
    dump,
    entry_text,
    fork,
    note_answered,
    pin,
    sql,
)

pytestmark = pytest.mark.usefixtures("clock")

# Values that stand nowhere expire after a second.
SHORT = {"retention": "1s", "retention_standing": "30d"}


def extract(world, **settings):
    return world.scan(**{**SHORT, **settings}).values_extracted


def expire(world):
    """Scan and run retention three times; return the number of deleted values."""
    deleted = 0
    for _ in range(3):
        world.clock.now += 60
        deleted += retention(world.settings(**SHORT), world.store, clock=world.clock).values_deleted
        world.clock.now += 60
        world.scan(**SHORT)
    return deleted


def sessions_by_title(world):
    listed = sessions(world.settings(), world.store, world.clock())
    return {session.session: session for session in listed}


def printed(world, name):
    return b"".join(cat(world.settings(), world.store, str(name), world.clock()))


# --- wherever it is ------------------------------------------------------------------------------


def unseen(_world):
    """Do nothing: no scan has seen the change."""


def seen(world):
    """Run scans, which see the change, with retention runs between them."""
    assert expire(world) == 0


def expired_unseen(world):
    """Run retention without a scan that has seen the change."""
    for _ in range(3):
        world.clock.now += 60
        report = retention(world.settings(**SHORT), world.store, clock=world.clock)
        assert report.values_deleted == 0


KNOWN_BY = [
    (with_own_id, seen), (with_own_id, expired_unseen), (with_same_id, unseen),
    (with_same_id, seen), (generic_log, unseen), (generic_log, seen),
]  # fmt: skip


@pytest.mark.parametrize(
    ("happens", "session", "by"),
    [
        (happens, session, by)
        for happens in (*MOVES, *FORKS)
        for session, by in KNOWN_BY
        if not (happens in (*FORKS, *BETWEEN_AGENTS) and session is generic_log)
    ],
)
def test_moved_files_are_restored_with_their_own_values(world, happens, session, by):
    """After any move, copy or fork each file is printed and restored with its own values.

    Logs with numbered entries are moved within their agent only. A log without a session id does
    not follow a renamed root: it may still be in the old one, where it is reported as well.
    """
    files = write_three_sessions(world, session)
    assert extract(world) == 3
    files = happens(world, files)
    by(world)

    assert set(world.root.resolve().rglob("*.jsonl")) == set(files)
    assert {path: printed(world, path) for path in files} == files
    named = [result for result in world.restore_all(pristine=True) if result.unfinished]
    assert {path: path.read_bytes() for path in files} == files
    assert len(named) == 3 * (happens is root_renamed and session is generic_log)
    assert all("cannot be read" in result.reason for result in named)


MOVES = [files_renamed, agent_renamed, moved_to_another_agent, copied_and_removed]


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("move", MOVES)
def test_moved_session_is_found_by_its_present_names_only(world, move, scanned):
    """These are its path, its file's name and the id in its header."""
    files = write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    [old, *_], [new, *_] = files, move(world, files)
    if scanned:
        world.scan(**SHORT)
    known = session_named(world.settings(), world.store, str(new))

    for name in (known.title, "session-secret-0", f"{known.agent}/session-secret-0"):
        assert session_named(world.settings(), world.store, name).path == str(new), name
    for name in (str(old), "main/a"):
        with pytest.raises(NotFoundError):
            session_named(world.settings(), world.store, name)
    shown = show(world.settings(), world.store, "00000003", session=known.title)
    assert shown.content["message.content.0.text"].startswith("secret 0")
    answer = world.restore("00000003", session="session-secret-0")
    assert (answer.session, answer.pending) == (known.title, False)
    assert entry_text(new, "00000003").startswith("secret 0")


def test_restore_all_includes_roots_no_longer_configured(world):
    """Sessions below a root that was removed from the configuration are restored in place."""
    files = write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    elsewhere = world.base / "elsewhere"
    elsewhere.mkdir()

    check_restored(world, files, roots=[{"path": str(elsewhere)}])


def test_moved_session_keeps_requests_and_stays_one_session(world):
    """Its pending request is carried out, and it is pruned again under its new path."""
    files = write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    before = sql(world, "SELECT count(*) FROM sessions")
    world.restore("00000003", session="session-secret-0", quiet_seconds=10**9)
    files = agent_renamed(world, files)
    report = world.scan(**SHORT)

    assert report.values_restored == 1
    assert entry_text(next(iter(files)), "00000003").startswith("secret 0")
    assert sql(world, "SELECT count(*) FROM sessions") == before
    world.clock.now += 700
    assert extract(world) == 1
    check_restored(world, files)


@pytest.mark.parametrize("session", [with_same_id, generic_log])
def test_repeatedly_rotated_log_is_restored(world, session):
    """Each of four generations gets its own value, whatever its number is."""
    originals = []
    for number in range(4):
        for older in sorted(world.directory.glob("s.*.jsonl"), reverse=True):
            count = int(older.name.split(".")[1])
            older.rename(older.with_name(f"s.{count + 1}.jsonl"))
        path = world.directory / "s.jsonl"
        if path.exists():
            path.rename(world.directory / "s.1.jsonl")
        originals.insert(0, write_old_session(path, session(f"generation {number}"))[1])
        assert extract(world) == 1
        assert expire(world) == 0

    names = ["s.jsonl", *(f"s.{number}.jsonl" for number in range(1, 4))]
    check_restored(
        world, {world.directory / n: original for n, original in zip(names, originals, strict=True)}
    )


@pytest.fixture
def pruned(world):
    """Write and prune a session; return its path and its original content."""
    path, content = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    assert extract(world) == 1
    return path, content


# --- copied and forked ---------------------------------------------------------------------------


def test_copy_of_a_session_counts_its_values(world, pruned):
    """A copy lists the values of its session, and keeps them when that is deleted."""
    path, content = pruned
    copy = path.with_name("t.jsonl")
    shutil.copy2(path, copy)
    world.scan(**SHORT)
    listed = sessions_by_title(world)

    assert listed["main/s"].values_extracted == listed["main/t"].values_extracted == 1
    assert listed["main/s"].bytes_saved == listed["main/t"].bytes_saved > 1900
    path.unlink()
    assert expire(world) == 0
    check_restored(world, {copy: content})


@pytest.mark.parametrize("deleted", [False, True])
def test_copy_of_a_copy_that_grew_is_restored(world, deleted):
    """Of two copies that differ, a third one has the values of the one that it was made from."""
    path, _ = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    longer_talk = conversation_with("secret")
    longer_talk.turn("later: " + "y" * 2000)
    longer_talk.turn("short")
    longer, content = write_old_session(path.with_name("t.jsonl"), longer_talk)
    assert extract(world) == 3
    copy = path.with_name("u.jsonl")
    shutil.copy2(longer, copy)
    if deleted:
        path.unlink()

    assert printed(world, copy) == content
    check_restored(world, {longer: content, copy: content})


@pytest.mark.parametrize("scanned", ["before", "after", None])
def test_archived_session_and_its_copy_are_restored(world, scanned, pruned):
    """Both the agent's archive of a session and a copy of it are restored."""
    path, content = pruned
    copy = list(copied_to_another_agent(world, {path: content}))[1]
    if scanned == "before":
        world.scan(**SHORT)
    away = path.rename(path.with_name("s.jsonl.reset.2026-11-21T10-00-00.000Z"))
    if scanned == "after":
        world.scan(**SHORT)

    check_restored(world, {away: content, copy: content})


@pytest.fixture
def both(world):
    """Prune a session and its fork, which has another text in the same entry."""
    parent, content = write_old_session(
        world.directory / "s.jsonl", conversation_with("the parent's")
    )
    child = fork(parent, OTHER)
    lines = [json.loads(line) for line in child.read_bytes().splitlines()]
    lines[3]["message"]["content"][0]["text"] = "the fork's: " + "y" * 3000
    _, forked_content = write_old_session(child, b"".join(map(dump, lines)))
    assert extract(world) == 2
    return {parent: content, child: forked_content}


def test_fork_has_its_own_value_for_a_changed_entry(world, both):
    """Show, print, list and restore use the fork's text, never its parent's."""
    child, name = list(both)[1], f"main/{OTHER}"
    shown = show(world.settings(), world.store, "00000003", session=name)
    assert shown.content["message.content.0.text"].startswith("the fork's")
    assert printed(world, name) == both[child]
    [value] = context(world.settings(), world.store, name, world.clock()).extracted
    assert value.chars > 3000
    busy = world.restore("00000003", session=name, quiet_seconds=10**9)
    assert busy.content["message.content.0.text"].startswith("the fork's")
    listed = sessions_by_title(world)
    assert (listed["main/s"].values_extracted, listed[name].values_extracted) == (1, 1)
    assert listed[name].bytes_saved > 2900 > listed["main/s"].bytes_saved
    assert status(world.settings(), world.store, world.clock()).store.values_extracted == 2

    world.restore("00000003", session=name)
    assert entry_text(child, "00000003").startswith("the fork's")
    check_restored(world, both)


def test_fork_with_an_own_and_an_inherited_value_is_restored(world):
    """Each placeholder of the fork gets its own value."""
    conversation = conversation_with("the parent's")
    conversation.turn("both: " + "z" * 2000)
    conversation.turn("short")
    parent, content = write_old_session(world.directory / "s.jsonl", conversation)
    assert extract(world) == 2
    child = fork(parent, OTHER)
    lines = [json.loads(line) for line in child.read_bytes().splitlines()]
    full = [json.loads(line) for line in content.splitlines()]
    text = "the fork's: " + "y" * 3000
    for listed in (lines, full):
        listed[3]["message"]["content"][0]["text"] = text
    write_old_session(child, b"".join(map(dump, lines)))
    assert extract(world) == 1
    own = b"".join(map(dump, [lines[0], *full[1:]]))
    shown = show(world.settings(), world.store, "00000003", session=f"main/{OTHER}")
    assert shown.content["message.content.0.text"] == text
    assert printed(world, child) == own

    check_restored(world, {parent: content, child: own})


def test_fork_of_an_archived_parent_is_restored(world):
    """The parent was rewritten and archived under another agent's name, and is restored, too."""
    files = write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    files = agent_renamed(world, files)
    parent, *_ = files
    _, files = add_fork(files, parent, "a-fork")
    shutil.copy2(parent, parent.with_name("anew")).rename(parent)
    away = parent.rename(parent.with_name(f"{parent.name}.reset.2026-11-21T10-00-00.000Z"))
    files[away] = files.pop(parent)

    check_restored(world, files)


# --- written anew --------------------------------------------------------------------------------


def two_secrets():
    conversation = conversation_with("secret")
    conversation.turn("another: " + "x" * 2000)
    conversation.turn("short")
    return conversation


def without_first_turn(data):
    """Return a session whose agent dropped its first turn, as after a compaction."""
    header, *entries = data.splitlines(keepends=True)
    return b"".join([header, *entries[4:]])


def with_new_ids_and_without_first_turn(data):
    return with_new_ids(without_first_turn(data))


def said_long(data):
    return data.count(b"x" * 2000)


CHANGES = [with_new_ids, without_first_turn, with_new_ids_and_without_first_turn]


@pytest.mark.parametrize("change", CHANGES)
def test_history_rewritten_from_memory_is_restored(world, change):
    """Values that the agent wrote again are extracted again, and restored after a move."""
    path, content = write_old_session(world.directory / "s.jsonl", two_secrets())
    assert extract(world) == 2
    write_anew(path, change(content))
    left = extract(world)
    [listed] = sessions(world.settings(), world.store, world.clock())
    assert listed.values_extracted == left == said_long(change(content))
    write_anew(path, path.read_bytes())
    files = agent_renamed(world, {path: change(content)})

    assert printed(world, next(iter(files))) == change(content)
    check_restored(world, files)


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_history_rewritten_with_placeholders_is_restored(world, change, scanned):
    """After a rewrite and a move every placeholder is filled, and no value expires early."""
    path, content = write_old_session(world.directory / "s.jsonl", two_secrets())
    assert extract(world) == 2
    write_anew(path, change(path.read_bytes()))
    files = agent_renamed(world, {path: change(content)})
    if scanned:
        assert expire(world) == 0

    assert printed(world, next(iter(files))) == change(content)
    check_restored(world, files)


def test_placeholders_of_a_rewritten_parent_count_in_its_fork(world):
    """After the parent was rewritten, its old placeholders count for the fork only."""
    path, content = write_old_session(world.directory / "s.jsonl", two_secrets())
    assert extract(world) == 2
    child, files = add_fork({path: content}, path)
    world.scan(**SHORT)
    write_anew(path, with_new_ids(content))
    assert extract(world) == 2
    assert expire(world) == 0
    os.utime(child, (time.time() - LONG_AGO - 60,) * 2)
    world.scan(**SHORT)
    listed = sessions_by_title(world)
    assert listed["main/s"].values_extracted == listed[f"main/{OTHER}"].values_extracted == 2

    check_restored(world, agent_renamed(world, files | {path: with_new_ids(content)}))


def test_redacted_call_with_a_new_id_does_not_block_restoring(world):
    """The call stays redacted, and every value of its session is restored."""
    agent = agent_after_scan(world)
    path = agent.path
    before = append_open_call(agent, {"action": "restore", "entry": "00000003"})
    answer = world.restore("00000003", session=str(path))
    append_answer(agent, before, note_answered(world, answer))
    world.scan(**SHORT)
    assert b'"Restored 00000003."' in path.read_bytes()
    assert b"[[extracted-" in path.read_bytes()
    write_anew(path, with_new_ids(path.read_bytes()))
    [moved] = agent_renamed(world, {path: b""})

    assert not any(result.unfinished for result in world.restore_all(pristine=True))
    assert b"[[extracted-" not in moved.read_bytes()
    assert b'"Restored 00000003."' in moved.read_bytes()


@pytest.mark.parametrize("changed", ["toolName", "toolCallId", "isError", "details"])
def test_entry_is_recognized_by_its_id_alone(world, changed, pruned):
    """If entry ids are random, other changes in the entry do not prevent restoring."""
    path, content = pruned
    both = [
        [json.loads(line) for line in data.splitlines()] for data in (path.read_bytes(), content)
    ]
    for lines in both:
        lines[3]["message"][changed] = {"new": 1} if changed == "details" else "another"
    write_old_session(path, b"".join(map(dump, both[0])))

    check_restored(world, {path: b"".join(map(dump, both[1]))})


def generic_with_another_tool(path):
    """Change what else an entry says whose id may be used twice."""
    return path.read_bytes().replace(b'"__id":"msg-3","name":"exec"', b'"__id":"msg-3","name":"x"')


def generic_with_another_id(path):
    return path.read_bytes().replace(b'"__id":"msg-3"', b'"__id":"msg-9"')


def another_result(path):
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[3]["id"] = lines[4]["parentId"] = "another"
    lines[3]["message"]["toolCallId"] = "another"
    return b"".join(map(dump, lines))


@pytest.mark.parametrize(
    ("session", "change"),
    [
        (generic_log, generic_with_another_tool),
        (generic_log, generic_with_another_id),
        (with_same_id, another_result),
    ],
)
def test_value_is_not_restored_into_another_entry(world, session, change):
    """The placeholder stays and is reported, and its value is kept and shown."""
    path, _ = write_old_session(world.directory / "s.jsonl", session("secret"))
    assert extract(world) == 1
    _, before = write_old_session(path, change(path))
    [result] = world.restore_all(pristine=True)
    entry = "00000003" if session is with_same_id else "msg-3"

    assert path.read_bytes() == before
    assert result.unfinished
    assert [why.partition(": ")[2] for why in result.left] == [OTHER_ENTRY]
    assert expire(world) == 0
    assert show(world.settings(), world.store, entry).content
    with pytest.raises(BrainsurgeonError):
        world.restore(entry)
    assert path.read_bytes() == before


# --- forks with every kind of change --------------------------------------------------------------


def thinking(talk, text):
    """Add a turn with signed thinking."""
    talk.user()
    block = {"type": "thinking", "thinking": text, "thinkingSignature": "signature"}
    content = [block, {"type": "text", "text": "done."}]
    add_answer(talk, content, "anthropic-messages", model="claude-fable-5-1")


EVERYTHING = {"archive": {"enabled": True, "token_threshold": 0, "keep_turns": 1}}


def check_has_everything(lines, *more):
    """Check that lines have every kind of change that brainsurgeon makes."""
    content = b"".join(lines)
    for mark in (b"[[extracted-", b'"_restored"', b'"_redacted":true', b'"_extractable":false',
                 b'"thinking":""', *more):  # fmt: skip
        assert mark in content, mark


@pytest.fixture
def everything(world):
    """Return an agent whose session has every kind of change that brainsurgeon makes."""
    agent = Agent(world)
    thinking(agent.conversation, "a long thought " * 100)
    agent.conversation.turn("a value: " + "x" * 2000)
    pinned = agent.conversation.turn("a pinned value: " + "x" * 2000)
    requested = agent.conversation.turn("a value that is asked for: " + "x" * 2000)
    for _ in range(3):
        agent.conversation.turn("short")
    agent.write()
    assert pin(world, pinned, value=False).pending is False
    assert extract(world) == 3
    before = append_open_call(agent, {"action": "restore", "entry": requested})
    answer = world.restore(requested, session=str(agent.path))
    append_answer(agent, before, note_answered(world, answer))
    world.scan(**SHORT)
    prompt, _ = add_long_turn(agent.conversation)
    agent.append(
        since=next(n for n, line in enumerate(agent.conversation.lines) if line.get("id") == prompt)
    )
    for number in range(2):
        agent.conversation.turn(f"short {number}")
    agent.append(since=len(agent.conversation.lines) - 8)
    make_old(agent.path)
    world.scan(**SHORT, **EVERYTHING)
    check_has_everything(agent.path.read_bytes().splitlines(), b"[archived turn]")
    return agent


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("parent", ["there", "deleted", "undone", "renamed"])
def test_fork_with_every_kind_of_change_is_restored(world, everything, parent, scanned):
    """Fields, emptied thinking, archives and redacted calls are undone in forks and copies."""
    path = everything.path
    files = {path: everything.written}
    child, files = add_fork(files, path, THIRD)
    copy = path.with_name("copy.jsonl")
    shutil.copy2(path, copy)
    files[copy] = everything.written
    if scanned:
        world.scan(**SHORT)
    if parent == "deleted":
        path.unlink()
        del files[path]
    if parent == "renamed":
        files = rename(files, path, path.with_name("renamed.jsonl"))
    if parent == "undone":
        world.restore_all(session=str(path), pristine=True)
        assert path.read_bytes() == everything.written
    if scanned:
        world.scan(**SHORT)
        check_restored(world, files)
    assert b"[[extracted-" in child.read_bytes() or scanned

    check_restored(world, files)


# --- many logs -----------------------------------------------------------------------------------


def numbered_log(number):
    """Return a log whose entries are numbered from 1, as those of every other log."""
    entries = []
    for turn in range(2):
        entries += [
            {"type": "message", "role": "user", "content": "go on"},
            {"type": "tool_call", "name": "exec", "arguments": {"command": "ls"}},
            {"type": "tool_result", "name": "exec", "output": f"result {turn} of {number} " * 50},
            {"type": "message", "role": "assistant", "content": "done."},
        ]
    entries += [{"type": "message", "role": "assistant", "content": "done."}] * 3
    return b"".join(dump({**entry, "__id": str(at)}) for at, entry in enumerate(entries, 1))


@pytest.mark.parametrize(
    "count",
    [200, pytest.param(3000, marks=pytest.mark.long(proves=("store", "rewrite", "operations")))],
)
def test_cost_per_log_is_constant_for_logs_with_equal_ids(world, count):
    """The last logs cost SQLite less than twice the steps of the first; all are restored."""
    files = dict(
        write_old_session(world.directory / f"{number:05}.jsonl", numbered_log(number))
        for number in range(count)
    )
    paths = [str(path) for path in files]
    steps = [0]

    def step():
        steps[0] += 1

    world.store._connection.set_progress_handler(step, 20)
    batch, costs = count // 10, []
    for at in range(0, count, batch):
        before = steps[0]
        assert extract(world, only=paths[at : at + batch]) == 2 * batch
        costs.append(steps[0] - before)
    assert costs[-1] < 2 * costs[0]

    marks = []
    results = restore_all(
        world.settings(), world.store, clock=world.clock, pristine=True,
        watch=Watch(progress=lambda _: marks.append(steps[0])),
    )  # fmt: skip
    assert marks[-1] - marks[-batch] < 2 * (marks[batch] - marks[1])
    assert not any(result.unfinished for result in results)
    assert {path: path.read_bytes() for path in files} == files


# --- databases -----------------------------------------------------------------------------------


@pytest.fixture
def claw(tmp_path):
    """Yield a world in which OpenClaw keeps its sessions in a database."""
    claw_world = ClawWorld(tmp_path / "claw-world")
    yield claw_world
    claw_world.close()


CALL = "brainsurgeon__purge_control"


def write_everything(claw, last, say, **settings):
    """Write every kind of change into a session; `say` appends lines as its agent.

    `last` is the id of the entry before them. Return the lines as the agent wrote them.
    """
    talk, written = Conversation(), []
    talk.last = last
    talk.lines.clear()

    def end_of_turn():
        say(talk.lines)
        written.extend(talk.lines)
        talk.lines.clear()
        claw.later(120)

    thinking(talk, "a long thought " * 100)
    talk.turn("a value: " + "x" * 2000)
    pinned = talk.turn("a pinned value: " + "x" * 2000)
    requested = talk.turn("a value that is asked for: " + "x" * 2000)
    add_long_turn(talk)
    for _ in range(3):
        talk.turn("short")
    end_of_turn()
    set_extractable(
        claw.settings(), claw.store, pinned, value=False, clock=claw.clock, session=GATEWAY
    )
    claw.scan(**settings)
    talk.user("what was it?")
    talk.call(CALL, {"action": "restore", "entry": requested}, call="call_x")
    end_of_turn()
    answer = claw.restore(requested)
    assert answer.pending
    text = note_answered(claw, answer)
    talk.result(text, CALL, call="call_x", details={"mcpServer": "brainsurgeon"})
    talk.assistant("it said so")
    end_of_turn()
    claw.scan(**settings)
    return [dump(line).rstrip() for line in written]


def in_rows(claw):
    """Return a function that appends lines to a session in a database."""

    def say(lines):
        with claw_agent.transaction(claw.claw.path) as agent:
            for line in lines:
                text = line if isinstance(line, bytes) else dump(line).rstrip()
                claw_agent.append(agent, GATEWAY, text, int(claw.clock.now * 1000))

    return say


def in_file(claw, path):
    def say(lines):
        append(path, lines)
        os.utime(path, (claw.clock.now,) * 2)

    return say


def import_sessions(claw, scanned, *, everything=False):
    """Prune a session in a file, then import it into the database of its agent.

    `scanned` is when a scan first sees the database: "beside" the file, "after" it was archived, or
    None. Return the original lines.
    """
    directory = claw.claw.root / "main" / "sessions"
    directory.mkdir()
    path = directory / f"{GATEWAY}.jsonl"
    texts = claw.claw.texts(GATEWAY)
    header = json.dumps(json.loads(texts[0]) | {"version": 3}, separators=(",", ":")).encode()
    path.write_bytes(b"".join(line + b"\n" for line in (header, *texts[1:])))
    away = claw.claw.path.rename(claw.claw.path.with_suffix(".away"))
    claw.later(7 * 86_400)
    assert claw.scan().values_extracted > 3
    more = []
    if everything:
        last = json.loads(texts[-1])["id"]
        more = write_everything(claw, last, in_file(claw, path), **EVERYTHING)
        check_has_everything(path.read_bytes().splitlines(), b"[archived turn]")
    rows = path.read_bytes().splitlines()
    away.rename(claw.claw.path)
    for seq, line in enumerate(rows[1 : len(texts)], 1):
        claw.claw.sql(
            "UPDATE transcript_events SET event_json = ?, event_utf8_bytes = ?, event_zstd = NULL,"
            " navigation_json = NULL WHERE session_id = ? AND seq = ?",
            (line.decode(), len(line), GATEWAY, seq),
        )
    in_rows(claw)(rows[len(texts) :])
    if scanned == "beside":
        claw.scan()
    archive = claw.claw.root / "main" / "session-sqlite-import-archive"
    archive.mkdir()
    path.rename(archive / f"agent_main_x.{GATEWAY}.jsonl.imported-1795276186279")
    if scanned:
        claw.scan()
    return texts + more


@pytest.mark.parametrize("scanned", [None, "after", "beside"])
def test_imported_session_counts_once(claw, scanned):
    """Its values are shown and restored by the entry alone, and everything is restored."""
    texts = import_sessions(claw, scanned)
    first, other = claw.placeholders()[-2:]
    assert not {first, other} & set(claw.placeholders(FORK))
    texts_by_id = {json.loads(text)["id"]: text for text in texts[1:]}
    for ident in (first, other):
        shown = show(claw.settings(), claw.store, ident)
        assert shown.session == f"main/{GATEWAY}"
        assert all(dump(text).rstrip() in texts_by_id[ident] for text in shown.content.values())
        assert show(claw.settings(), claw.store, ident, session=GATEWAY) == shown
    assert not claw.restore(first, session=None).pending
    assert first not in claw.placeholders()
    results = claw.restore_all(pristine=True)

    assert claw.claw.texts(GATEWAY)[1:] == texts[1:]
    [away] = claw.claw.root.glob("main/session-sqlite-import-archive/*")
    assert b"[[extracted-" not in away.read_bytes()
    assert not any(result.unfinished for result in results)


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("deleted", [False, True])
def test_database_fork_with_every_kind_of_change_is_restored(claw, imported, scanned, deleted):
    """This holds for imported rows, too, and if the parent was deleted."""
    if imported:
        texts = import_sessions(claw, "after", everything=True)
    else:
        texts = claw.claw.texts(GATEWAY)
        texts += write_everything(claw, json.loads(texts[-1])["id"], in_rows(claw))
        check_has_everything(claw.claw.texts(GATEWAY))
    inherited = claw.claw.texts(GATEWAY)
    with claw_agent.transaction(claw.claw.path) as agent:
        claw_agent.fork(agent, GATEWAY, OTHER, int(claw.clock.now * 1000))
        if deleted:
            claw_agent.delete(agent, GATEWAY, int(claw.clock.now * 1000), archived=False)
    claw.later(7 * 86_400)
    if scanned:
        claw.scan()
    assert scanned or claw.claw.texts(OTHER) == inherited
    results = claw.restore_all(pristine=True)

    assert not any(result.unfinished for result in results)
    for session in (OTHER, *[GATEWAY] * (not deleted)):
        assert claw.claw.texts(session)[1:] == texts[1:]
    assert claw.claw.sound() == []


# --- undoing everything tells the truth ----------------------------------------------------------


def test_sessions_of_an_unreadable_root_are_reported(world, tmp_path):
    """Each session that may have placeholders is reported with the reason."""
    write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    world.root.rename(tmp_path / "away")
    results = world.restore_all()

    assert [result.unfinished for result in results] == [True] * 3
    assert all("cannot be read" in result.reason for result in results)


def test_placeholders_of_a_lost_store_are_reported_as_orphans(world):
    """`restore --all` and `doctor` name each of them and advise on `state_dir`."""
    files = write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    world.close()
    shutil.rmtree(world.state)
    before = [path.read_bytes() for path in files]
    results = world.restore_all()
    findings = doctor(world.settings(), world.store)

    assert [path.read_bytes() for path in files] == before
    assert len(results) == 3
    assert all(result.unfinished and result.left[0].startswith("00000003: ") for result in results)
    assert all(
        result.left[0].endswith(NO_RECORD) and "state_dir" in result.reason for result in results
    )
    orphans = [
        finding for finding in findings if "1 placeholder is an orphan, in 00000003" in finding.what
    ]
    assert len(orphans) == 3
    assert all("state_dir" in orphan.advice for orphan in orphans)


def test_typed_placeholder_text_is_left_alone(world):
    """A text that only looks like a placeholder stays and is not reported."""
    conversation = Conversation()
    conversation.user("[[extracted-00000009]]")
    conversation.assistant("[[extracted-00000001]]")
    path, content = write_old_session(world.directory / "s.jsonl", conversation)
    write_old_session(world.directory / "t.jsonl", conversation_with("secret", OTHER))
    assert extract(world) == 1

    check_restored(world, {path: content})


@pytest.mark.parametrize("how", ["reset", "deleted"])
def test_archived_session_file_is_restored(world, how, pruned):
    """The file that an agent archived is restored like a session."""
    path, content = pruned
    away = path.rename(path.with_name(f"s.jsonl.{how}.2026-11-21T04-49-16.343Z"))
    results = {result.session: result for result in world.restore_all(pristine=True)}

    assert away.read_bytes() == content
    assert (results[str(away)].state, results[str(away)].values_restored) == ("restored", 1)
    assert not any(result.unfinished for result in results.values())
    assert not any(result.unfinished for result in world.restore_all(pristine=True))


def test_compressed_archive_is_reported_and_not_written(world, pruned):
    """The report has one line for it, and its values do not expire."""
    path, _ = pruned
    away = path.with_name("s.jsonl.reset.2026-11-21T04-49-16.343Z.zst")
    away.write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    before = away.read_bytes()
    results = world.restore_all()
    [line] = [line for line in restored_all(results).splitlines() if str(away) in line]

    assert "1 placeholder stays" in line
    assert away.read_bytes() == before
    assert [result.session for result in results if result.unfinished] == [str(away)]
    assert expire(world) == 0


def test_deleted_session_needs_no_restoring(world):
    """A session that is gone from an existing root counts as finished."""
    path, _ = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    write_old_session(world.directory / "t.jsonl", conversation_with("another", OTHER))
    assert extract(world) == 2
    path.unlink()
    results = {result.session: result for result in world.restore_all()}

    assert (results["main/s"].state, results["main/s"].unfinished) == ("gone", False)
    assert status(world.settings(), world.store, world.clock()).store.bytes_saved == 0


# --- names ---------------------------------------------------------------------------------------


@pytest.fixture
def pi(world):
    """Write a session and a fork of it, named as pi names them; return the files."""
    directory = world.root / "--home-dev-x--"
    first = directory / f"2026-11-21T10-00-00-000Z_{OTHER}.jsonl"
    write_old_session(first, conversation_with("secret", OTHER))
    assert extract(world) == 1
    second = fork(first, THIRD, directory=directory)
    return first, make_old(second.rename(directory / f"2026-11-21T11-00-00-000Z_{THIRD}.jsonl"))


def test_pi_session_is_found_by_id_stem_and_prefix(world, pi):
    """Each name works alone and after the name of its agent."""
    first, second = pi
    for path, ident in ((first, OTHER), (second, THIRD)):
        for agent in ("", "pi:--home-dev-x--/", "openclaw:--home-dev-x--/"):
            for name in (ident, ident[:7], path.stem):
                match = session_named(world.settings(), world.store, agent + name)
                assert match.path == str(path)
    match = session_named(world.settings(), world.store, OTHER)
    assert match.title == f"pi:--home-dev-x--/{first.stem}"


def test_codex_session_is_found_by_id_stem_and_prefix(world):
    """The id is the part of the file's name after the time."""
    stem = f"rollout-2026-11-21T13-30-08-{OTHER}"
    meta = {"type": "session_meta", "payload": {"id": OTHER}}
    path = world.put(f"{stem}.jsonl", json.dumps(meta).encode() + b"\n")

    for name in (OTHER, OTHER[:7], stem):
        assert session_named(world.settings(), world.no_store, name).path == str(path)


def test_renamed_session_is_found_by_its_header_id(world):
    """This works without a scan and without a store."""
    write_old_session(world.directory / "renamed.jsonl", conversation_with("secret", "s1"))

    assert session_named(world.settings(), world.no_store, "s1").name == "renamed"
    assert session_named(world.settings(), world.store, "main/s1").name == "renamed"
    with pytest.raises(NotFoundError):
        session_named(world.settings(), world.store, "s2")


def test_ambiguous_header_id_lists_usable_names(world):
    """Each name that the error lists leads to one of the files."""
    for name in ("a", "b"):
        write_old_session(world.directory / f"{name}.jsonl", conversation_with("secret", "s1"))
    with pytest.raises(AmbiguousError) as error:
        session_named(world.settings(), world.store, "s1")

    for line in error.value.candidates:
        for name in line.split():
            assert session_named(world.settings(), world.store, name).title in error.value.args[0]


@pytest.mark.parametrize("stem", ["naïve", "caf\udce9", "tab\there", "two words", "x" * 200])
def test_printed_session_names_can_be_used_as_arguments(world, stem):
    """This includes names that are escaped for printing."""
    path, _ = write_old_session(
        world.directory / f"{stem}.jsonl", conversation_with("secret", OTHER)
    )
    assert extract(world) == 1
    for session in sessions(world.settings(), world.store, world.clock()):
        for printed in (session.session, safe(session.session), safe(session.path)):
            assert session_named(world.settings(), world.store, printed).path == str(path)


# --- stopped in between --------------------------------------------------------------------------


def killed(*arguments, **keywords):
    raise KeyboardInterrupt


EXCHANGED, RETIRED = (Attempt, "record"), (recover, "_remove")


def kill_scan(world, monkeypatch, step):
    """Kill a scan before a step after its exchange; return the name of the old file."""
    with monkeypatch.context() as patch:
        patch.setattr(recover, "resolve", lambda *_, **__: None)
        patch.setattr(*step, killed)
        with pytest.raises(KeyboardInterrupt):
            world.scan(**SHORT)
    [left] = world.leftovers()
    return left


def moved_alone(world, files):
    place = world.root / "other" / "sessions"
    for path in list(files):
        files = rename(files, path, place / path.name)
    return files


def moved_and_exchanged(world, files):
    return agents_exchanged(world, moved_alone(world, files))


def exchanged_with_an_empty_one(world, files):
    """Exchange the names of the agent's directory and an empty one."""
    (world.root / "other" / "sessions").mkdir(parents=True)
    return agents_exchanged(world, files)


@pytest.mark.parametrize(
    "move",
    [files_renamed, agent_renamed, exchanged_with_an_empty_one, moved_alone, moved_and_exchanged],
)
@pytest.mark.parametrize("step", [EXCHANGED, RETIRED], ids=["exchanged", "retired"])
def test_session_moved_after_a_crash_loses_no_late_line(world, monkeypatch, move, step):
    """A late line follows a renamed session, or stays in an old file that `doctor` names."""
    path, original = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    late = dump({"type": "custom", "id": "late", "data": 1})
    left = kill_scan(world, monkeypatch, step)
    world.close()
    with open(world.directory / left, "ab") as old:
        old.write(late)
    moved = move is not files_renamed
    files = move(world, {path: original + late * (not moved)})
    recover.recover(world.store)

    left = list(world.root.rglob(".brainsurgeon-*.tmp"))
    assert [file.read_bytes().endswith(late) for file in left] == [True] * moved
    named = [
        finding.what for finding in doctor(world.settings(), world.store) if finding.level != "ok"
    ]
    assert all(any(file.name in what for what in named) for file in left)
    assert expire(world) == 0
    check_restored(world, files)


@pytest.mark.parametrize("where", ["main", "other"])
@pytest.mark.parametrize("mode", ["ab", "wb"])
def test_reused_inode_of_a_deleted_session_gets_no_line(world, monkeypatch, where, mode):
    """After a crash, late lines are not moved to another session with the same inode number."""
    path, _ = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    left = kill_scan(world, monkeypatch, RETIRED)
    [rewrite] = world.store.journal.open_rewrites()
    with open(world.directory / left, mode) as old:
        old.write(dump({"type": "custom", "id": "late", "data": "secret"}))
    path.unlink()
    another = world.root / where / "sessions" / "t.jsonl"
    another.parent.mkdir(parents=True, exist_ok=True)
    _, content = write_old_session(another, conversation_with("theirs", OTHER))
    with world.store.transaction():
        world.store.journal.update(rewrite.id, new_inode=another.stat().st_ino)
    world.close()
    results = recover.recover(world.store)

    assert rewrite.new_inode is not None
    assert another.read_bytes() == content
    assert [event.what.endswith("both files stay") for event in results] == [True]
    assert world.leftovers() == [left]


def test_root_renamed_after_a_crash_is_scanned_and_restored(world, monkeypatch):
    """The interrupted rewrite waits for the old root, and each value is restored."""
    path, original = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    with monkeypatch.context() as patch:
        patch.setattr(recover, "_remove", killed)
        with pytest.raises(KeyboardInterrupt):
            world.scan(**SHORT)
    world.close()
    world.root = world.root.rename(world.base / "renamed")
    assert recover.recover(world.store)[0].what.endswith("left for the next run")
    world.scan(**SHORT)

    check_restored(world, {world.root / "main/sessions" / path.name: original})
