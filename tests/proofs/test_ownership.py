"""Values belong to the agent from whose session they were extracted, and to no other agent.

A tool server that is bound to an agent shows and restores only what that agent owns, whatever lies
in the agent's directory. The user's own commands fill every placeholder, each with its own value.
"""

import json
import os
import random
import shutil
import time

import pytest

from brainsurgeon.lookup.scope import Scope, bound
from brainsurgeon.mcp_server.answering import answer
from brainsurgeon.operations import store as store_care
from building.file_moves import (
    add_fork,
    contents_exchanged,
    exchanged_by_links,
    generic_log,
    inodes_exchanged,
    make_old,
    with_own_id,
    with_same_id,
    write_old_session,
    write_three_sessions,
)
from building.mcp_agent import OTHER, SESSION
from building.turns import add_long_turn
from building.world import LATER, Conversation, World, dump, entry_text, pin

# Values of the session that another agent would like to see.
VALUES = 10
STRANGER = "stranger"


# --- whose values a tool server gives ------------------------------------------------------------


def secrets(count=VALUES, whose="the owner", session=SESSION):
    one = Conversation(session)
    for number in range(count):
        one.turn(f"secret {number} of {whose}: " + "x" * 600)
    for _ in range(3):
        one.turn("short")
    return one


@pytest.fixture
def owner(world):
    """Let the session of one agent be pruned, and one of another agent; return the first."""
    path, _ = write_old_session(world.directory / f"{SESSION}.jsonl", secrets())
    write_old_session(strangers(world) / "own.jsonl", secrets(1, STRANGER, OTHER))
    assert world.scan().values_extracted == VALUES + 1
    return path


def strangers(world):
    """Return where the sessions of the other agent lie."""
    return world.root / STRANGER / "sessions"


def linked(world, path):
    os.link(path, strangers(world) / path.name)


def linked_twice(world, path):
    linked(world, path)
    os.link(path, strangers(world) / "another.jsonl")


def linked_directory(world, path):
    shutil.copytree(path.parent, strangers(world), copy_function=os.link, dirs_exist_ok=True)


def copied(world, path):
    shutil.copy2(path, strangers(world) / path.name)


def forked_there(world, path):
    child, _ = add_fork({path: path.read_bytes()}, path, "a-fork")
    child.rename(strangers(world) / child.name)


def asked_for(world, path):
    """Yield every call by which somebody could ask for the owner's values."""
    names = [
        None, SESSION, f"main/{SESSION}", f"{STRANGER}/{SESSION}", "another", "a-fork", "own",
        str(path), str(strangers(world) / path.name),
    ]  # fmt: skip
    entries = [f"{4 * number + 3:08x}" for number in range(VALUES)]
    for name in names:
        session = {} if name is None else {"session": name}
        yield {"action": "get_context", **session}
        yield {"action": "search", "text": "of the owner", **session}
        for budget in (1, 2048, 32_000, 1_000_000):
            yield {"action": "evidence", "budget": budget, **session}
        for turn in ("last", SESSION, *(f"{number:08x}" for number in range(1, 12))):
            yield {"action": "evidence", "turn": turn, **session}
        for entry in entries:
            for named in (entry, f"[[extracted-{entry}]]"):
                yield {"action": "show", "entry": named, **session}
            yield {"action": "restore", "entry": entry, **session}


@pytest.mark.parametrize("scanned", [False, True])
@pytest.mark.parametrize("lies", [linked, linked_twice, linked_directory, copied, forked_there])
def test_nothing_of_another_agent_is_given(world, owner, lies, scanned, monkeypatch):
    """Hundreds of calls by every name of a link, a copy or a fork give none of its values."""
    monkeypatch.setattr("brainsurgeon.hosts.claude_code.LATEST_LINE", 0.0)
    lies(world, owner)
    if scanned:
        world.scan()
    before = {path: path.read_bytes() for path in world.root.rglob("*.jsonl")}
    scope, _ = bound(world.settings(), world.store, Scope(STRANGER))
    world.close()
    told = [answer(world.settings(), scope, call, time.time)[0] for call in asked_for(world, owner)]

    assert len(told) > 400
    assert not [text for text in told if "of the owner" in text]
    after = {path: path.read_bytes() for path in world.root.rglob("*.jsonl")}
    own = strangers(world) / "own.jsonl"
    assert {path for path in after if after[path] != before[path]} <= {own}
    assert f"secret 0 of {STRANGER}" in entry_text(own, "00000003")


@pytest.mark.parametrize("scanned", [False, True])
def test_a_link_is_neither_written_nor_owned(world, owner, scanned):
    """While two names lead to a file it is left alone and named; then it is restored."""
    original = secrets().bytes()
    link = strangers(world) / owner.name
    os.link(owner, link)
    if scanned:
        world.scan()
    held = owner.read_bytes()
    done = {one.session: one for one in world.restore_all(pristine=True)}

    assert owner.read_bytes() == link.read_bytes() == held
    assert {name for name in done if done[name].unfinished} >= {f"main/{SESSION}"}
    link.unlink()
    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert owner.read_bytes() == original


def test_a_file_keeps_its_values_with_its_last_name(world, owner):
    """Where the first name of a session goes, the session was renamed, and its owner with it."""
    link = strangers(world) / owner.name
    os.link(owner, link)
    owner.unlink()
    world.scan()
    shown, failed = answer(
        world.settings(), Scope(STRANGER), {
            "action": "show", "entry": "00000003", "session": SESSION
        }, time.time,
    )  # fmt: skip

    assert not failed
    assert "secret 0 of the owner" in shown
    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert link.read_bytes() == secrets().bytes()


@pytest.mark.parametrize("scanned", [False, True])
def test_a_directory_of_links_comes_back(world, scanned):
    """`cp -al` of an agent; then each of the two goes on by itself, and each is restored."""
    files = write_three_sessions(world, with_own_id)
    assert world.scan().values_extracted == 3
    shutil.copytree(world.root / "main", world.root / "copy", copy_function=os.link)
    copies = {
        world.root / "copy" / path.relative_to(world.root / "main"): said
        for path, said in files.items() if path.is_relative_to(world.root / "main")
    }  # fmt: skip
    if scanned:
        world.scan()
    before = {path: path.read_bytes() for path in files}
    world.restore_all(pristine=True)
    assert {path: path.read_bytes() for path in copies} == {
        path: before[world.directory / path.name] for path in copies
    }
    for path in copies:
        make_old(shutil.copy2(path, path.with_suffix(".new")).rename(path))
    if scanned:
        world.scan()

    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert {path: path.read_bytes() for path in files | copies} == files | copies


@pytest.mark.parametrize("exchange", [contents_exchanged, exchanged_by_links])
@pytest.mark.parametrize("scanned", [False, True])
def test_agents_with_one_session_id_that_exchange_sessions(world, exchange, scanned):
    """Neither gets a value of the other by the tool, nor into its file; the user gets each."""
    files = write_three_sessions(world, with_same_id)
    assert world.scan().values_extracted == 3
    one, two, three_ = files
    files = {two: files[two], **exchange(world, {one: files[one], three_: files[three_]})}
    if scanned:
        world.scan()
    before = {path: path.read_bytes() for path in files}
    for path, theirs in ((one, "secret 2"), (three_, "secret 0")):
        scope = Scope(str(path.parent.parent))
        for action in ("get_context", "show", "restore"):
            entry = {} if action == "get_context" else {"entry": "00000003"}
            call = {"action": action, "session": str(path), **entry}
            assert theirs not in answer(world.settings(), scope, call, time.time)[0]

    assert {path: path.read_bytes() for path in files} == before
    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert {path: path.read_bytes() for path in files} == files


@pytest.mark.parametrize("scanned", [False, True])
def test_agents_with_one_session_id_that_exchange_inodes(world, scanned):
    """Each is shown its own value by the tool, and gets it back."""
    files = write_three_sessions(world, with_same_id)
    assert world.scan().values_extracted == 3
    one, two, three_ = files
    files = {two: files[two], **inodes_exchanged(world, {one: files[one], three_: files[three_]})}
    if scanned:
        world.scan()
    for path, own, theirs in ((one, "secret 0", "secret 2"), (three_, "secret 2", "secret 0")):
        call = {"action": "show", "session": str(path), "entry": "00000003"}
        shown, _ = answer(world.settings(), Scope(str(path.parent.parent)), call, time.time)
        assert own in shown
        assert theirs not in shown

    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert {path: path.read_bytes() for path in files} == files


def two_values():
    """Return a conversation in which one entry has a long text and shorter details."""
    one = Conversation(SESSION)
    one.turn("secret of the owner: " + "x" * 2000, details={"aggregated": "d" * 1000})
    for _ in range(3):
        one.turn("short")
    return one


def test_an_entry_with_values_of_two_agents_is_restored_by_the_user(world):
    """A copy in which more of an entry was extracted: its agent gets its own value shown alone."""
    path, said = write_old_session(world.directory / f"{SESSION}.jsonl", two_values())
    assert world.scan(min_value_length=1500).values_extracted == 1
    copy = strangers(world) / path.name
    copy.parent.mkdir(parents=True)
    shutil.copy2(path, copy)
    assert world.scan(min_value_length=500, only=[str(copy)]).values_extracted == 1
    before = copy.read_bytes()
    scope, call = Scope(STRANGER), {"entry": "00000003", "session": SESSION}
    shown, _ = answer(world.settings(), scope, {"action": "show", **call}, time.time)
    answer(world.settings(), scope, {"action": "restore", **call}, time.time)

    assert json.loads(shown)["content"] == {"message.details.aggregated": "d" * 1000}
    assert copy.read_bytes() == before
    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert path.read_bytes() == copy.read_bytes() == said


def test_a_turn_with_values_of_two_agents_is_not_shown_to_one(world):
    """A turn of a copy that is archived there holds placeholders of the owner: they stay."""
    one = Conversation(SESSION)
    prompt, closing = add_long_turn(one, calls=30, text="secret of the owner " * 100)
    for _ in range(3):
        one.turn("short")
    path, said = write_old_session(world.directory / f"{SESSION}.jsonl", one)
    assert world.scan().values_extracted > 0
    copy = strangers(world) / path.name
    copy.parent.mkdir(parents=True)
    shutil.copy2(path, copy)
    archive = {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0}
    world.scan(archive=archive, keep_recent=0, only=[str(copy)])
    assert b"[archived turn]" in copy.read_bytes()
    call = {"action": "show", "entry": closing, "session": SESSION}
    shown, _ = answer(world.settings(), Scope(STRANGER), call, time.time)

    assert prompt in shown
    assert "secret of the owner" not in shown
    assert not any(one.unfinished for one in world.restore_all(pristine=True))
    assert path.read_bytes() == copy.read_bytes() == said


# --- stores that are restored, and stores side by side -------------------------------------------


def random_ids(secret):
    dice = random.Random(secret)
    ids = {}
    text = with_own_id(secret).decode()
    for number in range(1, 9):
        ids[f"{number:08x}"] = f"{dice.randrange(1 << 32):08x}"
    for old, new in ids.items():
        text = text.replace(f'"{old}"', f'"{new}"')
    return text.encode()


def dated(secret):
    """Return a generic log with ids that are used again, whose lines have times."""
    return generic_log(secret, time=f"the time of {secret}")


def dated_within(secret):
    """Return such a log whose messages have the times."""
    return b"".join(
        dump({"type": "message", "__id": line.pop("__id"), "message": {
            "role": {"tool_result": "tool"}.get(line.pop("type"), "assistant"), **line,
        }})
        for line in map(json.loads, dated(secret).splitlines())
    )  # fmt: skip


LOGS = [random_ids, dated, dated_within]


@pytest.mark.parametrize("session", LOGS)
@pytest.mark.parametrize("put_back_again", [False, True])
def test_a_backup_of_the_store_that_is_put_back(world, session, put_back_again):
    """What it does not know is named and stays; nothing gets the value of something else."""
    said = dict(
        write_old_session(world.directory / f"{n}.jsonl", session(f"known {n}")) for n in range(3)
    )
    assert world.scan().values_extracted == 3
    world.close()
    shutil.copytree(world.state, world.base / "backup")
    late = dict(
        write_old_session(world.directory / f"{n}.jsonl", session(f"late {n}")) for n in range(3, 6)
    )
    assert world.scan().values_extracted == 3
    world.close()
    world.state.rename(world.base / "newer")
    shutil.copytree(world.base / "backup", world.state)
    cut = {path: path.read_bytes() for path in late}
    new = dict(
        write_old_session(world.directory / f"{n}.jsonl", session(f"new {n}")) for n in range(6, 9)
    )
    assert world.scan().values_extracted == 3
    done = world.restore_all(pristine=True)

    assert {path: path.read_bytes() for path in said | new} == said | new
    assert {path: path.read_bytes() for path in late} == cut
    assert {one.session for one in done if one.unfinished} == {"main/3", "main/4", "main/5"}
    if put_back_again:
        world.close()
        shutil.rmtree(world.state)
        (world.base / "newer").rename(world.state)
        assert not any(one.unfinished for one in world.restore_all(pristine=True))
        assert {path: path.read_bytes() for path in late} == late


def test_a_backup_that_is_put_back_gives_out_other_placeholders(world):
    """Entries that are only numbered, without times, are told apart by our numbers."""
    write_old_session(world.directory / "0.jsonl", generic_log("known"))
    assert world.scan().values_extracted == 1
    world.close()
    backup = shutil.copy2(world.state / "store.db", world.base / "backup.db")
    late, _ = write_old_session(world.directory / "1.jsonl", generic_log("late"))
    assert world.scan().values_extracted == 1
    world.close()
    with store_care.replacing_store(world.settings(), str(backup)) as (_, carry_out):
        carry_out(LATER)
    cut = late.read_bytes()
    new, said = write_old_session(world.directory / "2.jsonl", generic_log("new"))
    assert world.scan().values_extracted == 1
    world.restore_all(pristine=True)

    assert (late.read_bytes(), new.read_bytes()) == (cut, said)


@pytest.mark.parametrize("session", LOGS)
def test_two_stores_on_one_root_scan_by_turns(world, session):
    """Each restores exactly what it extracted, and names what the other one did."""
    second = World(world.base / "second")
    second.root = world.root
    files = {}
    for number in range(6):
        path, said = write_old_session(
            world.directory / f"{number}.jsonl", session(f"secret {number}")
        )
        files[path] = said
        assert (world, second)[number % 2].scan().values_extracted == 1
        assert (second, world)[number % 2].scan().values_extracted == 0
    cut = {path: path.read_bytes() for path in files}
    for number, store in enumerate((world, second)):
        done = store.restore_all(pristine=True)
        own = {path for path in files if int(path.stem) % 2 == number}
        assert {path for path in files if path.read_bytes() == files[path]} >= own
        left = {one.session.rpartition("/")[2] for one in done if one.unfinished}
        assert left == {path.stem for path in files if path.read_bytes() != files[path]}
        assert all(path.read_bytes() in (cut[path], said) for path, said in files.items())
    second.close()

    assert {path: path.read_bytes() for path in files} == files


# --- fields --------------------------------------------------------------------------------------


def test_a_field_that_the_user_set_in_another_log_stays(world):
    """Where entries are only numbered, the same bytes in another line are not of ours."""
    path, said = write_old_session(world.directory / "0.jsonl", generic_log("one", time="one"))
    assert not pin(world, "msg-3", False, session="main/0").pending
    lines = generic_log("two", time="two").splitlines(keepends=True)
    lines[2] = lines[2].replace(b"}\n", b',"_extractable":false}\n')
    other, own = write_old_session(world.directory / "1.jsonl", b"".join(lines))
    copy = shutil.copy2(path, path.with_name("copy.jsonl"))
    world.restore_all(pristine=True)

    assert (path.read_bytes(), copy.read_bytes(), other.read_bytes()) == (said, said, own)
