"""A placeholder names its value: whatever happens to a file, its values come back to the byte.

Sessions are renamed, moved, rotated, copied, forked, exchanged, and come back from backups. Every
placeholder in any file below the roots is filled with exactly the value that was extracted there,
or it is left alone and named; and retention deletes nothing for having moved.
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
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.restore import note_answer, restore_all
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.operations.show import show
from brainsurgeon.operations.status import status
from brainsurgeon.planning.matching import NO_RECORD, OTHER_ENTRY
from brainsurgeon.render.formatting import as_json
from brainsurgeon.render.sessions import restored_all, restored_json
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.apply import Attempt
from building import claw_agent
from building.claw import FORK, GATEWAY, ClawWorld
from building.file_moves import (
    FORKS,
    MOVES,
    OTHER,
    THIRD,
    add_fork,
    agent_renamed,
    agents_exchanged,
    conversation_with,
    copied_and_removed,
    copied_to_another_agent,
    files_renamed,
    generic_log,
    make_old,
    moved_to_another_agent,
    rename,
    root_renamed,
    with_own_id,
    with_same_id,
    write_old_session,
    write_three_sessions,
)
from building.mcp_agent import Agent, agent_after_scan, append_answer, append_open_call
from building.turns import add_long_turn
from building.world import LONG_AGO, Conversation, append, dump, entry_text, fork, pin, sql

pytestmark = pytest.mark.usefixtures("clock")

# Values that stand nowhere expire after a second.
SHORT = {"retention": "1s", "retention_standing": "30d"}


def extract(world, **settings):
    return world.scan(**{**SHORT, **settings}).values_extracted


def expire(world, **settings):
    """Let time pass, with scans and retention runs; return how many values were deleted."""
    deleted = 0
    keys = {**SHORT, **settings}
    for _ in range(3):
        world.clock.now += 60
        deleted += retention(world.settings(**keys), world.store, clock=world.clock).values_deleted
        world.clock.now += 60
        world.scan(**keys)
    return deleted


def printed(world, name):
    return b"".join(cat(world.settings(), world.store, str(name), world.clock()))


def is_undone(world, files, away=0, **settings):
    """Undo everything; check that nothing of ours stays, and that each file is as it was.

    `away` is the number of sessions of which nobody can tell whether they are still there.
    """
    named = [one for one in world.restore_all(pristine=True, **settings) if one.unfinished]
    assert {path: path.read_bytes() for path in files} == files
    assert len(named) == away
    assert all("cannot be read" in one.reason for one in named)


# --- wherever it is ------------------------------------------------------------------------------


def unseen(_world):
    """Do nothing: no scan has seen what happened."""


def seen(world):
    """Let scans see what happened, with retention runs between them."""
    assert expire(world) == 0


def expired_unseen(world):
    """Let retention run where no scan has seen what happened."""
    for _ in range(3):
        world.clock.now += 60
        done = retention(world.settings(**SHORT), world.store, clock=world.clock)
        assert done.values_deleted == 0


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
        if not (happens in FORKS and session is generic_log)
    ],
)
def test_every_value_comes_back_to_where_it_was_extracted(world, happens, session, by):
    """Whatever happened to the files, each is printed and restored with exactly its own values.

    Logs that name no session do not follow a root that was renamed: nobody can tell whether they
    are still in the old one, so that they are named there, too.
    """
    files = write_three_sessions(world, session)
    assert extract(world) == 3
    files = happens(world, files)
    by(world)

    assert set(world.root.resolve().rglob("*.jsonl")) == set(files)
    assert {path: printed(world, path) for path in files} == files
    is_undone(world, files, away=3 * (happens is root_renamed and session is generic_log))


MOVES = [files_renamed, agent_renamed, moved_to_another_agent, copied_and_removed]


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("move", MOVES)
def test_a_moved_session_is_known_by_its_present_names(world, move, scanned):
    """By its path, its file's name and the id in its header; not by names that it had before."""
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


def test_a_root_that_is_not_configured_is_restored_too(world):
    """A root that is configured no more is gone through by undoing everything, where it lies."""
    files = write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    elsewhere = world.base / "elsewhere"
    elsewhere.mkdir()

    is_undone(world, files, roots=[{"path": str(elsewhere)}])


def test_a_moved_session_goes_on_where_it_is(world):
    """Pending requests follow it, it is pruned again, and it stays one session."""
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
    is_undone(world, files)


@pytest.mark.parametrize("session", [with_same_id, generic_log])
def test_a_log_that_is_rotated_again_and_again(world, session):
    """Every generation gets its own value, whatever its number is by now."""
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
    is_undone(world, {world.directory / n: one for n, one in zip(names, originals, strict=True)})


# --- copied and forked ---------------------------------------------------------------------------


def test_a_copy_counts_in_the_figures(world):
    """A copy has the values of its session, and keeps them when that is gone."""
    path, said = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    assert extract(world) == 1
    copy = path.with_name("t.jsonl")
    shutil.copy2(path, copy)
    world.scan(**SHORT)
    listed = {one.session: one for one in sessions(world.settings(), world.store, world.clock())}

    assert listed["main/s"].extracted == listed["main/t"].extracted == 1
    assert listed["main/s"].saved == listed["main/t"].saved > 1900
    path.unlink()
    assert expire(world) == 0
    is_undone(world, {copy: said})


@pytest.mark.parametrize("gone", [False, True])
def test_a_copy_of_what_was_a_copy_and_grew(world, gone):
    """Two copies of each other went apart: a third holds what only one of them said."""
    path, _ = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    one = conversation_with("secret")
    one.turn("later: " + "y" * 2000)
    one.turn("short")
    longer, said = write_old_session(path.with_name("t.jsonl"), one)
    assert extract(world) == 3
    copy = path.with_name("u.jsonl")
    shutil.copy2(longer, copy)
    if gone:
        path.unlink()

    assert printed(world, copy) == said
    is_undone(world, {longer: said, copy: said})


@pytest.mark.parametrize("scanned", ["before", "after", None])
def test_a_copy_of_what_was_put_away_comes_back(world, scanned):
    """The archive that an agent made of a session and a copy of it are restored, both."""
    path, said = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    assert extract(world) == 1
    copy = list(copied_to_another_agent(world, {path: said}))[1]
    if scanned == "before":
        world.scan(**SHORT)
    away = path.rename(path.with_name("s.jsonl.reset.2026-11-21T10-00-00.000Z"))
    if scanned == "after":
        world.scan(**SHORT)
    done = world.restore_all(pristine=True)

    assert (away.read_bytes(), copy.read_bytes()) == (said, said)
    assert not any(one.unfinished for one in done)


@pytest.fixture
def both(world):
    """Let a session and its fork extract the same entry, which says something else in each."""
    parent, said = write_old_session(world.directory / "s.jsonl", conversation_with("the parent's"))
    child = fork(parent, OTHER)
    lines = [json.loads(line) for line in child.read_bytes().splitlines()]
    lines[3]["message"]["content"][0]["text"] = "the fork's: " + "y" * 3000
    _, forked_said = write_old_session(child, b"".join(map(dump, lines)))
    assert extract(world) == 2
    return {parent: said, child: forked_said}


def test_what_a_fork_said_itself_is_its_own(world, both):
    """Shown, printed, listed and restored is what the fork said, never what its parent did."""
    child, name = list(both)[1], f"main/{OTHER}"
    shown = show(world.settings(), world.store, "00000003", session=name)
    assert shown.content["message.content.0.text"].startswith("the fork's")
    assert printed(world, name) == both[child]
    [value] = context(world.settings(), world.store, name, world.clock()).extracted
    assert value.chars > 3000
    busy = world.restore("00000003", session=name, quiet_seconds=10**9)
    assert busy.content["message.content.0.text"].startswith("the fork's")
    listed = {one.session: one for one in sessions(world.settings(), world.store, world.clock())}
    assert (listed["main/s"].extracted, listed[name].extracted) == (1, 1)
    assert listed[name].saved > 2900 > listed["main/s"].saved
    assert status(world.settings(), world.store, world.clock()).values_extracted == 2

    world.restore("00000003", session=name)
    assert entry_text(child, "00000003").startswith("the fork's")
    is_undone(world, both)


def test_a_forks_own_value_beside_an_inherited_one(world):
    """A fork has a placeholder of its parent and one of its own: each gets its own value."""
    one = conversation_with("the parent's")
    one.turn("both: " + "z" * 2000)
    one.turn("short")
    parent, said = write_old_session(world.directory / "s.jsonl", one)
    assert extract(world) == 2
    child = fork(parent, OTHER)
    lines = [json.loads(line) for line in child.read_bytes().splitlines()]
    full = [json.loads(line) for line in said.splitlines()]
    text = "the fork's: " + "y" * 3000
    for listed in (lines, full):
        listed[3]["message"]["content"][0]["text"] = text
    write_old_session(child, b"".join(map(dump, lines)))
    assert extract(world) == 1
    own = b"".join(map(dump, [lines[0], *full[1:]]))
    shown = show(world.settings(), world.store, "00000003", session=f"main/{OTHER}")
    assert shown.content["message.content.0.text"] == text
    assert printed(world, child) == own

    is_undone(world, {parent: said, child: own})


def test_a_fork_of_a_parent_that_was_written_anew_and_put_away(world):
    """The parent lies in an archive under another agent's name, and comes back, too."""
    files = write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    files = agent_renamed(world, files)
    parent, *_ = files
    _, files = add_fork(files, parent, "a-fork")
    shutil.copy2(parent, parent.with_name("anew")).rename(parent)
    away = parent.rename(parent.with_name(f"{parent.name}.reset.2026-11-21T10-00-00.000Z"))
    files[away] = files.pop(parent)
    done = world.restore_all(pristine=True)

    assert {path: path.read_bytes() for path in files} == files
    assert not any(one.unfinished for one in done)


# --- written anew --------------------------------------------------------------------------------


def two_secrets():
    one = conversation_with("secret")
    one.turn("another: " + "x" * 2000)
    one.turn("short")
    return one


def written_anew(path, data):
    before = path.stat().st_ino
    fresh, _ = write_old_session(path.with_suffix(".writing"), data)
    fresh.rename(path)
    assert path.stat().st_ino != before


def with_new_ids(data):
    lines = [json.loads(line) for line in data.splitlines()]
    last = None
    for number, line in enumerate(lines[1:]):
        line["id"], line["parentId"] = f"new-{number}", last
        line["timestamp"] = "2026-12-01T00:00:00.000Z"
        last = line["id"]
    return b"".join(map(dump, lines))


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
def test_an_agent_writes_its_history_anew_with_its_values(world, change):
    """The agent has the values in memory; what is extracted then is undone where it moved to."""
    path, said = write_old_session(world.directory / "s.jsonl", two_secrets())
    assert extract(world) == 2
    written_anew(path, change(said))
    left = extract(world)
    [listed] = sessions(world.settings(), world.store, world.clock())
    assert listed.extracted == left == said_long(change(said))
    written_anew(path, path.read_bytes())
    files = agent_renamed(world, {path: change(said)})

    assert printed(world, next(iter(files))) == change(said)
    is_undone(world, files)


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_an_agent_writes_its_history_anew_with_placeholders(world, change, scanned):
    """Written anew and moved: what stands is filled, what was dropped expires only after weeks."""
    path, said = write_old_session(world.directory / "s.jsonl", two_secrets())
    assert extract(world) == 2
    written_anew(path, change(path.read_bytes()))
    files = agent_renamed(world, {path: change(said)})
    if scanned:
        assert expire(world) == 0

    assert printed(world, next(iter(files))) == change(said)
    is_undone(world, files)


def test_what_stands_in_a_fork_does_not_stand_in_its_parent(world):
    """The parent was written anew; scans find its old placeholders in the fork only."""
    path, said = write_old_session(world.directory / "s.jsonl", two_secrets())
    assert extract(world) == 2
    child, files = add_fork({path: said}, path)
    world.scan(**SHORT)
    written_anew(path, with_new_ids(said))
    assert extract(world) == 2
    assert expire(world) == 0
    os.utime(child, (time.time() - LONG_AGO - 60,) * 2)
    world.scan(**SHORT)
    listed = {one.session: one for one in sessions(world.settings(), world.store, world.clock())}
    assert listed["main/s"].extracted == listed[f"main/{OTHER}"].extracted == 2

    is_undone(world, agent_renamed(world, files | {path: with_new_ids(said)}))


def test_a_redacted_call_with_a_new_id_holds_nothing_back(world):
    """A call that was shortened stays so where its agent gave it another id; values come back."""
    agent = agent_after_scan(world)
    path = agent.path
    before = append_open_call(agent, {"action": "restore", "entry": "00000003"})
    answer = world.restore("00000003", session=str(path))
    text = as_json(restored_json(answer))
    note_answer(world.store, answer, text)
    append_answer(agent, before, text)
    world.scan(**SHORT)
    assert b'"Restored 00000003."' in path.read_bytes()
    assert b"[[extracted-" in path.read_bytes()
    written_anew(path, with_new_ids(path.read_bytes()))
    [moved] = agent_renamed(world, {path: b""})

    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert b"[[extracted-" not in moved.read_bytes()
    assert b'"Restored 00000003."' in moved.read_bytes()


@pytest.mark.parametrize("changed", ["toolName", "toolCallId", "isError", "details"])
def test_an_entry_with_the_recorded_id_is_the_recorded_one(world, changed):
    """Where entry ids are random, whatever else changed in the entry does not matter."""
    path, said = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    assert extract(world) == 1
    both = [[json.loads(line) for line in data.splitlines()] for data in (path.read_bytes(), said)]
    for lines in both:
        lines[3]["message"][changed] = {"new": 1} if changed == "details" else "another"
    write_old_session(path, b"".join(map(dump, both[0])))

    is_undone(world, {path: b"".join(map(dump, both[1]))})


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
def test_a_value_never_lands_in_another_entry(world, session, change):
    """The placeholder stays and is named, and its value is kept and shown."""
    path, _ = write_old_session(world.directory / "s.jsonl", session("secret"))
    assert extract(world) == 1
    _, before = write_old_session(path, change(path))
    [done] = world.restore_all(pristine=True)
    entry = "00000003" if session is with_same_id else "msg-3"

    assert path.read_bytes() == before
    assert done.unfinished
    assert [why.partition(": ")[2] for why in done.left] == [OTHER_ENTRY]
    assert expire(world) == 0
    assert show(world.settings(), world.store, entry).content
    with pytest.raises(BrainsurgeonError):
        world.restore(entry)
    assert path.read_bytes() == before


# --- forks with everything of ours ---------------------------------------------------------------


def thinking(talk, text):
    """Add a turn that a model thought about; its thinking is signed."""
    talk.user()
    block = {"type": "thinking", "thinking": text, "thinkingSignature": "signature"}
    content = [block, {"type": "text", "text": "done."}]
    talk.entry(message={
        "role": "assistant", "content": content, "api": "anthropic-messages", "provider": "p",
        "model": "claude-fable-5-1", "stopReason": "stop",
    })  # fmt: skip


EVERYTHING = {"archive": {"enabled": True, "token_threshold": 0, "keep_turns": 1}}


def has_everything(lines, *more):
    """Check that lines hold everything that we ever set."""
    said = b"".join(lines)
    for ours in (b"[[extracted-", b'"_restored"', b'"_redacted":true', b'"_extractable":false',
                 b'"thinking":""', *more):  # fmt: skip
        assert ours in said, ours


@pytest.fixture
def everything(world):
    agent = Agent(world)
    thinking(agent.conversation, "a long thought " * 100)
    agent.conversation.turn("a value: " + "x" * 2000)
    pinned = agent.conversation.turn("a pinned value: " + "x" * 2000)
    asked = agent.conversation.turn("a value that is asked for: " + "x" * 2000)
    for _ in range(3):
        agent.conversation.turn("short")
    agent.write()
    assert pin(world, pinned, value=False).pending is False
    assert extract(world) == 3
    before = append_open_call(agent, {"action": "restore", "entry": asked})
    answer = world.restore(asked, session=str(agent.path))
    text = as_json(restored_json(answer))
    note_answer(world.store, answer, text)
    append_answer(agent, before, text)
    world.scan(**SHORT)
    prompt, _ = add_long_turn(agent.conversation)
    agent.append(
        since=next(n for n, one in enumerate(agent.conversation.lines) if one.get("id") == prompt)
    )
    for number in range(2):
        agent.conversation.turn(f"short {number}")
    agent.append(since=len(agent.conversation.lines) - 8)
    make_old(agent.path)
    world.scan(**SHORT, **EVERYTHING)
    has_everything(agent.path.read_bytes().splitlines(), b"[archived turn]")
    return agent


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("parent", ["there", "deleted", "undone", "renamed"])
def test_a_fork_with_everything_of_ours_is_undone(world, everything, parent, scanned):
    """Fields, emptied thinking, archives and shortened calls go from a fork as from its parent."""
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
        is_undone(world, files)
    assert b"[[extracted-" in child.read_bytes() or scanned

    is_undone(world, files)


# --- many logs -----------------------------------------------------------------------------------


def numbered_log(number):
    """Return a log whose entries are numbered from 1, as those of every other one."""
    entries = []
    for turn in range(2):
        entries += [
            {"type": "message", "role": "user", "content": "go on"},
            {"type": "tool_call", "name": "exec", "arguments": {"command": "ls"}},
            {"type": "tool_result", "name": "exec", "output": f"result {turn} of {number} " * 50},
            {"type": "message", "role": "assistant", "content": "done."},
        ]
    entries += [{"type": "message", "role": "assistant", "content": "done."}] * 3
    return b"".join(dump({**one, "__id": str(at)}) for at, one in enumerate(entries, 1))


@pytest.mark.parametrize(
    "count",
    [200, pytest.param(3000, marks=pytest.mark.long(proves=("store", "rewrite", "operations")))],
)
def test_many_logs_with_the_same_ids_cost_the_same_each(world, count):
    """All come back to the byte; the last of them cost SQLite no more steps than the first."""
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
    done = restore_all(
        world.settings(), world.store, clock=world.clock, pristine=True,
        watch=Watch(progress=lambda _: marks.append(steps[0])),
    )  # fmt: skip
    assert marks[-1] - marks[-batch] < 2 * (marks[batch] - marks[1])
    assert not any(one.unfinished for one in done)
    assert {path: path.read_bytes() for path in files} == files


# --- databases -----------------------------------------------------------------------------------


@pytest.fixture
def claw(tmp_path):
    """Give a world in which OpenClaw keeps its sessions in a database."""
    one = ClawWorld(tmp_path / "claw-world")
    yield one
    one.close()


CALL = "brainsurgeon__purge_control"


def say_everything(claw, last, say, **settings):
    """Let a session hold everything that we ever set in one; `say` writes lines as its agent.

    `last` is the id of the entry behind which they come.
    """
    talk, said = Conversation(), []
    talk.last = last
    talk.lines.clear()

    def end_of_turn():
        say(talk.lines)
        said.extend(talk.lines)
        talk.lines.clear()
        claw.later(120)

    thinking(talk, "a long thought " * 100)
    talk.turn("a value: " + "x" * 2000)
    pinned = talk.turn("a pinned value: " + "x" * 2000)
    asked = talk.turn("a value that is asked for: " + "x" * 2000)
    add_long_turn(talk)
    for _ in range(3):
        talk.turn("short")
    end_of_turn()
    set_extractable(
        claw.settings(), claw.store, pinned, value=False, clock=claw.clock, session=GATEWAY
    )
    claw.scan(**settings)
    talk.user("what was it?")
    talk.call(CALL, {"action": "restore", "entry": asked}, call="call_x")
    end_of_turn()
    answer = claw.restore(asked)
    assert answer.pending
    text = as_json(restored_json(answer))
    note_answer(claw.store, answer, text)
    talk.result(text, CALL, call="call_x", details={"mcpServer": "brainsurgeon"})
    talk.assistant("it said so")
    end_of_turn()
    claw.scan(**settings)
    return [dump(line).rstrip() for line in said]


def in_rows(claw):
    """Return what appends lines to a session in a database."""

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
    """Let a session be pruned in a file, and then be imported to the database of its agent.

    `scanned` says when a scan sees the database for the first time: while the file is there, too,
    or after it went to the archive of imported files. Return what the session says.
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
        more = say_everything(claw, last, in_file(claw, path), **EVERYTHING)
        has_everything(path.read_bytes().splitlines(), b"[archived turn]")
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
def test_an_imported_session_is_one_session(claw, scanned):
    """Its values are shown and restored by the entry alone, and everything is undone."""
    texts = import_sessions(claw, scanned)
    one, other = claw.placeholders()[-2:]
    assert not {one, other} & set(claw.placeholders(FORK))
    said = {json.loads(text)["id"]: text for text in texts[1:]}
    for ident in (one, other):
        shown = show(claw.settings(), claw.store, ident)
        assert shown.session == f"main/{GATEWAY}"
        assert all(dump_value(text) in said[ident] for text in shown.content.values())
        assert show(claw.settings(), claw.store, ident, session=GATEWAY) == shown
    assert not claw.restore(one, session=None).pending
    assert one not in claw.placeholders()
    done = claw.restore_all(pristine=True)

    assert claw.claw.texts(GATEWAY)[1:] == texts[1:]
    [away] = claw.claw.root.glob("main/session-sqlite-import-archive/*")
    assert b"[[extracted-" not in away.read_bytes()
    assert not any(one.unfinished for one in done)


def dump_value(value):
    return dump(value).rstrip()


@pytest.mark.parametrize("imported", [False, True])
@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("gone", [False, True])
def test_a_fork_with_everything_of_ours_in_a_database_is_undone(claw, imported, scanned, gone):
    """A fork carries everything of ours in its parent's rows, also where that was deleted."""
    if imported:
        texts = import_sessions(claw, "after", everything=True)
    else:
        texts = claw.claw.texts(GATEWAY)
        texts += say_everything(claw, json.loads(texts[-1])["id"], in_rows(claw))
        has_everything(claw.claw.texts(GATEWAY))
    inherited = claw.claw.texts(GATEWAY)
    with claw_agent.transaction(claw.claw.path) as agent:
        claw_agent.fork(agent, GATEWAY, OTHER, int(claw.clock.now * 1000))
        if gone:
            claw_agent.delete(agent, GATEWAY, int(claw.clock.now * 1000), archived=False)
    claw.later(7 * 86_400)
    if scanned:
        claw.scan()
    assert scanned or claw.claw.texts(OTHER) == inherited
    done = claw.restore_all(pristine=True)

    assert not any(one.unfinished for one in done)
    for session in (OTHER, *[GATEWAY] * (not gone)):
        assert claw.claw.texts(session)[1:] == texts[1:]
    assert claw.claw.sound() == []


# --- undoing everything tells the truth ----------------------------------------------------------


def test_a_root_that_is_away_is_named(world, tmp_path):
    """While a root cannot be looked into, each session that may hold placeholders is named."""
    write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    world.root.rename(tmp_path / "away")
    done = world.restore_all()

    assert [one.unfinished for one in done] == [True] * 3
    assert all("cannot be read" in one.reason for one in done)


def test_after_a_lost_store_every_orphan_is_named(world):
    """Without the store nothing can be restored: both verbs say what stays, and what to do."""
    files = write_three_sessions(world, with_own_id)
    assert extract(world) == 3
    world.close()
    shutil.rmtree(world.state)
    before = [path.read_bytes() for path in files]
    done = world.restore_all()
    findings = doctor(world.settings(), world.store)

    assert [path.read_bytes() for path in files] == before
    assert len(done) == 3
    assert all(one.unfinished and one.left[0].startswith("00000003: ") for one in done)
    assert all(one.left[0].endswith(NO_RECORD) and "state_dir" in one.reason for one in done)
    orphans = [one for one in findings if "1 placeholder is an orphan, in 00000003" in one.what]
    assert len(orphans) == 3
    assert all("state_dir" in one.advice for one in orphans)


def test_a_text_that_looks_like_a_placeholder_is_nobodys(world):
    """What a user typed stays, and nothing is said to be left."""
    one = Conversation()
    one.user("[[extracted-00000009]]")
    one.assistant("[[extracted-00000001]]")
    path, said = write_old_session(world.directory / "s.jsonl", one)
    write_old_session(world.directory / "t.jsonl", conversation_with("secret", OTHER))
    assert extract(world) == 1

    is_undone(world, {path: said})


@pytest.mark.parametrize("how", ["reset", "deleted"])
def test_an_archive_that_is_a_file_is_restored(world, how):
    """What its agent put away gets its values back, byte for byte, like a session."""
    path, said = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    assert extract(world) == 1
    away = path.rename(path.with_name(f"s.jsonl.{how}.2026-11-21T04-49-16.343Z"))
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert away.read_bytes() == said
    assert (done[str(away)].state, done[str(away)].values) == ("restored", 1)
    assert not any(one.unfinished for one in done.values())
    assert not any(one.unfinished for one in world.restore_all(pristine=True))


def test_an_archive_that_its_agent_packed_is_named(world):
    """A compressed archive is read, never written: one line names it."""
    path, _ = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    assert extract(world) == 1
    away = path.with_name("s.jsonl.reset.2026-11-21T04-49-16.343Z.zst")
    away.write_bytes(zstandard.compress(path.read_bytes()))
    path.unlink()
    before = away.read_bytes()
    done = world.restore_all()
    [line] = [line for line in restored_all(done).splitlines() if str(away) in line]

    assert "1 placeholder stays" in line
    assert away.read_bytes() == before
    assert [one.session for one in done if one.unfinished] == [str(away)]
    assert expire(world) == 0


def test_a_deleted_session_leaves_nothing_to_undo(world):
    """Its root is there and it is not: nothing of ours stays anywhere."""
    path, _ = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    write_old_session(world.directory / "t.jsonl", conversation_with("another", OTHER))
    assert extract(world) == 2
    path.unlink()
    done = {one.session: one for one in world.restore_all()}

    assert (done["main/s"].state, done["main/s"].unfinished) == ("gone", False)
    assert status(world.settings(), world.store, world.clock()).bytes_saved == 0


# --- names ---------------------------------------------------------------------------------------


@pytest.fixture
def pi(world):
    """Let pi write a session and a fork of it, as it names them; return the files."""
    directory = world.root / "--home-dev-x--"
    first = directory / f"2026-11-21T10-00-00-000Z_{OTHER}.jsonl"
    write_old_session(first, conversation_with("secret", OTHER))
    assert extract(world) == 1
    second = fork(first, THIRD, directory=directory)
    return first, make_old(second.rename(directory / f"2026-11-21T11-00-00-000Z_{THIRD}.jsonl"))


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
        assert session_named(world.settings(), world.no_store, name).path == str(path)


def test_a_header_that_says_something_else_is_a_name_too(world):
    """A file that was renamed answers to the id in its header, before any scan and without one."""
    write_old_session(world.directory / "renamed.jsonl", conversation_with("secret", "s1"))

    assert session_named(world.settings(), world.no_store, "s1").name == "renamed"
    assert session_named(world.settings(), world.store, "main/s1").name == "renamed"
    with pytest.raises(NotFoundError):
        session_named(world.settings(), world.store, "s2")


def test_two_files_that_say_the_same_are_told_apart_by_name(world):
    """A header's id that fits two is ambiguous; what is printed for each leads to it."""
    for name in ("a", "b"):
        write_old_session(world.directory / f"{name}.jsonl", conversation_with("secret", "s1"))
    with pytest.raises(AmbiguousError) as told:
        session_named(world.settings(), world.store, "s1")

    for line in told.value.candidates:
        for name in line.split():
            assert session_named(world.settings(), world.store, name).title in told.value.args[0]


@pytest.mark.parametrize("stem", ["naïve", "caf\udce9", "tab\there", "two words", "x" * 200])
def test_every_printed_name_can_be_pasted_back(world, stem):
    """Also where the name had to be escaped to be shown."""
    path, _ = write_old_session(
        world.directory / f"{stem}.jsonl", conversation_with("secret", OTHER)
    )
    assert extract(world) == 1
    for one in sessions(world.settings(), world.store, world.clock()):
        for printed in (one.session, safe(one.session), safe(one.path)):
            assert session_named(world.settings(), world.store, printed).path == str(path)


# --- stopped in between --------------------------------------------------------------------------


def killed(*arguments, **keywords):
    raise KeyboardInterrupt


def moved_alone(world, files):
    place = world.root / "other" / "sessions"
    for path in list(files):
        files = rename(files, path, place / path.name)
    return files


def moved_and_exchanged(world, files):
    return agents_exchanged(world, moved_alone(world, files))


def exchanged_with_an_empty_one(world, files):
    """Let the agent's directory exchange its name with that of another agent."""
    (world.root / "other" / "sessions").mkdir(parents=True)
    return agents_exchanged(world, files)


@pytest.mark.parametrize(
    "move",
    [files_renamed, agent_renamed, exchanged_with_an_empty_one, moved_alone, moved_and_exchanged],
)
@pytest.mark.parametrize("at", ["exchanged", "retired"])
def test_a_session_that_moves_after_a_crash_loses_nothing(world, monkeypatch, move, at):
    """A late line follows a renamed session, or is kept in a file that is named."""
    path, original = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    late = dump({"type": "custom", "id": "late", "data": 1})
    with monkeypatch.context() as patch:
        patch.setattr(recover, "resolve", lambda *_, **__: None)
        if at == "exchanged":
            patch.setattr(Attempt, "settle", killed)
        else:
            patch.setattr(recover, "_remove", killed)
        with pytest.raises(KeyboardInterrupt):
            world.scan(**SHORT)
    [left] = world.leftovers()
    world.close()
    with open(world.directory / left, "ab") as old:
        old.write(late)
    moved = move is not files_renamed
    files = move(world, {path: original + late * (not moved)})
    recover.recover(world.store)

    left = list(world.root.rglob(".brainsurgeon-*.tmp"))
    assert [one.read_bytes().endswith(late) for one in left] == [True] * moved
    named = [one.what for one in doctor(world.settings(), world.store) if one.level != "ok"]
    assert all(any(one.name in what for what in named) for one in left)
    assert expire(world) == 0
    is_undone(world, files)


def cut_and_killed(world, monkeypatch):
    """Let a scan be killed before it removes the old file; give the name of that."""
    with monkeypatch.context() as patch:
        patch.setattr(recover, "_remove", killed)
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
    path, _ = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    left = cut_and_killed(world, monkeypatch)
    [rewrite] = world.store.journal.open_rewrites()
    with open(world.directory / left, mode) as old:
        old.write(dump({"type": "custom", "id": "late", "data": "secret"}))
    path.unlink()
    another = world.root / where / "sessions" / "t.jsonl"
    another.parent.mkdir(parents=True, exist_ok=True)
    _, said = write_old_session(another, conversation_with("theirs", OTHER))
    with world.store.transaction():
        world.store.journal.update(rewrite.id, new_inode=another.stat().st_ino)
    world.close()
    done = recover.recover(world.store)

    assert rewrite.new_inode is not None
    assert another.read_bytes() == said
    assert [one.what.endswith("both files stay") for one in done] == [True]
    assert world.leftovers() == [left]


def test_a_root_that_moves_after_a_crash_is_scanned_as_ever(world, monkeypatch):
    """The rewrite waits for the root; the old file stays, and each value goes back."""
    path, original = write_old_session(world.directory / "s.jsonl", conversation_with("secret"))
    with monkeypatch.context() as patch:
        patch.setattr(recover, "_remove", killed)
        with pytest.raises(KeyboardInterrupt):
            world.scan(**SHORT)
    world.close()
    world.root = world.root.rename(world.base / "renamed")
    assert recover.recover(world.store)[0].what.endswith("left for the next run")
    world.scan(**SHORT)

    is_undone(world, {world.root / "main/sessions" / path.name: original})
