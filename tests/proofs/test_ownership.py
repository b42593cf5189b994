"""Ownership of values: each belongs to the agent from whose session it was extracted.

A tool server bound to an agent shows and restores only values that the agent owns, whatever files
are in the agent's directory. The user's own commands fill every placeholder with its value.
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
    check_restored,
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
    talk = Conversation(session)
    for number in range(count):
        talk.turn(f"secret {number} of {whose}: " + "x" * 600)
    for _ in range(3):
        talk.turn("short")
    return talk


@pytest.fixture
def owner(world):
    """Prune a session of one agent, and one of another; return the first."""
    path, _ = write_old_session(world.directory / f"{SESSION}.jsonl", secrets())
    write_old_session(strangers_sessions(world) / "own.jsonl", secrets(1, STRANGER, OTHER))
    assert world.scan().values_extracted == VALUES + 1
    return path


def strangers_sessions(world):
    """Return the sessions directory of the other agent, which is created."""
    directory = world.root / STRANGER / "sessions"
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def linked(world, path):
    os.link(path, strangers_sessions(world) / path.name)


def linked_twice(world, path):
    linked(world, path)
    os.link(path, strangers_sessions(world) / "another.jsonl")


def linked_directory(world, path):
    shutil.copytree(
        path.parent, strangers_sessions(world), copy_function=os.link, dirs_exist_ok=True
    )


def copied(world, path):
    return shutil.copy2(path, strangers_sessions(world) / path.name)


def forked_there(world, path):
    child, _ = add_fork({path: path.read_bytes()}, path, "a-fork")
    child.rename(strangers_sessions(world) / child.name)


def calls_for_the_values(world, path):
    """Yield every call by which an agent could try to get the owner's values."""
    names = [
        None, SESSION, f"main/{SESSION}", f"{STRANGER}/{SESSION}", "another", "a-fork", "own",
        str(path), str(strangers_sessions(world) / path.name),
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
def test_tool_returns_no_value_of_another_agent(world, owner, lies, scanned, monkeypatch):
    """More than 400 calls by every name of a link, a copy or a fork return none of its values."""
    monkeypatch.setattr("brainsurgeon.agents.CLAUDE_CODE.home.call_delay", 0.0)
    lies(world, owner)
    if scanned:
        world.scan()
    before = {path: path.read_bytes() for path in world.root.rglob("*.jsonl")}
    scope, _ = bound(world.settings(), world.store, Scope(STRANGER))
    world.close()
    answers = [
        answer(world.settings(), scope, call, time.time)[0]
        for call in calls_for_the_values(world, owner)
    ]

    assert len(answers) > 400
    assert not [text for text in answers if "of the owner" in text]
    after = {path: path.read_bytes() for path in world.root.rglob("*.jsonl")}
    own = strangers_sessions(world) / "own.jsonl"
    assert {path for path in after if after[path] != before[path]} <= {own}
    assert f"secret 0 of {STRANGER}" in entry_text(own, "00000003")


@pytest.mark.parametrize("scanned", [False, True])
def test_session_with_two_names_is_not_restored_until_one_goes(world, owner, scanned):
    """A file with a hard link is left alone and reported, then restored after the link is gone."""
    original = secrets().bytes()
    link = strangers_sessions(world) / owner.name
    os.link(owner, link)
    if scanned:
        world.scan()
    held = owner.read_bytes()
    results = {result.session: result for result in world.restore_all(pristine=True)}

    assert owner.read_bytes() == link.read_bytes() == held
    assert {name for name in results if results[name].unfinished} >= {f"main/{SESSION}"}
    link.unlink()
    check_restored(world, {owner: original})


def test_session_whose_first_name_goes_changes_its_owner(world, owner):
    """A file whose first name is removed counts as renamed, so its new agent owns the values."""
    link = strangers_sessions(world) / owner.name
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
    check_restored(world, {link: secrets().bytes()})


@pytest.mark.parametrize("scanned", [False, True])
def test_agent_copied_by_hard_links_is_restored(world, scanned):
    """After `cp -al` and separate changes, each of the two agents is restored."""
    files = write_three_sessions(world, with_own_id)
    assert world.scan().values_extracted == 3
    shutil.copytree(world.root / "main", world.root / "copy", copy_function=os.link)
    copies = {
        world.root / "copy" / path.relative_to(world.root / "main"): content
        for path, content in files.items() if path.is_relative_to(world.root / "main")
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

    check_restored(world, files | copies)


@pytest.mark.parametrize("exchange", [contents_exchanged, exchanged_by_links])
@pytest.mark.parametrize("scanned", [False, True])
def test_agents_that_exchange_equal_sessions_keep_their_values(world, exchange, scanned):
    """Neither agent gets a value of the other by the tool; the user restores each value."""
    files = write_three_sessions(world, with_same_id)
    assert world.scan().values_extracted == 3
    first, second, third = files
    files = {second: files[second], **exchange(world, {first: files[first], third: files[third]})}
    if scanned:
        world.scan()
    before = {path: path.read_bytes() for path in files}
    for path, theirs in ((first, "secret 2"), (third, "secret 0")):
        scope = Scope(str(path.parent.parent))
        for action in ("get_context", "show", "restore"):
            entry = {} if action == "get_context" else {"entry": "00000003"}
            call = {"action": action, "session": str(path), **entry}
            assert theirs not in answer(world.settings(), scope, call, time.time)[0]

    assert {path: path.read_bytes() for path in files} == before
    check_restored(world, files)


@pytest.mark.parametrize("scanned", [False, True])
def test_agents_that_exchange_inodes_keep_their_values(world, scanned):
    """Sessions with one id: the tool shows each agent its own value, and each is restored."""
    files = write_three_sessions(world, with_same_id)
    assert world.scan().values_extracted == 3
    first, second, third = files
    files = {
        second: files[second],
        **inodes_exchanged(world, {first: files[first], third: files[third]}),
    }
    if scanned:
        world.scan()
    for path, own, theirs in ((first, "secret 0", "secret 2"), (third, "secret 2", "secret 0")):
        call = {"action": "show", "session": str(path), "entry": "00000003"}
        shown, _ = answer(world.settings(), Scope(str(path.parent.parent)), call, time.time)
        assert own in shown
        assert theirs not in shown

    check_restored(world, files)


def two_values():
    """Return a conversation in which one entry has a long text and shorter details."""
    talk = Conversation(SESSION)
    talk.turn("secret of the owner: " + "x" * 2000, details={"aggregated": "d" * 1000})
    for _ in range(3):
        talk.turn("short")
    return talk


def test_entry_with_values_of_two_agents_is_restored_by_the_user(world):
    """The tool shows the copy's agent only its own value, and restores nothing."""
    path, content = write_old_session(world.directory / f"{SESSION}.jsonl", two_values())
    assert world.scan(min_value_length=1500).values_extracted == 1
    copy = copied(world, path)
    assert world.scan(min_value_length=500, only=[str(copy)]).values_extracted == 1
    before = copy.read_bytes()
    scope, call = Scope(STRANGER), {"entry": "00000003", "session": SESSION}
    shown, _ = answer(world.settings(), scope, {"action": "show", **call}, time.time)
    answer(world.settings(), scope, {"action": "restore", **call}, time.time)

    assert json.loads(shown)["content"] == {"message.details.aggregated": "d" * 1000}
    assert copy.read_bytes() == before
    check_restored(world, {path: content, copy: content})


def test_archived_copy_is_shown_without_values_of_the_owner(world):
    """The turn that the copy's agent is shown keeps the owner's placeholders."""
    talk = Conversation(SESSION)
    prompt, closing = add_long_turn(talk, calls=30, text="secret of the owner " * 100)
    for _ in range(3):
        talk.turn("short")
    path, content = write_old_session(world.directory / f"{SESSION}.jsonl", talk)
    assert world.scan().values_extracted > 0
    copy = copied(world, path)
    archive = {"enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0}
    world.scan(archive=archive, keep_recent=0, only=[str(copy)])
    assert b"[archived turn]" in copy.read_bytes()
    call = {"action": "show", "entry": closing, "session": SESSION}
    shown, _ = answer(world.settings(), Scope(STRANGER), call, time.time)

    assert prompt in shown
    assert "secret of the owner" not in shown
    check_restored(world, {path: content, copy: content})


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
    """Return a generic log with repeated ids, whose lines have times."""
    return generic_log(secret, time=f"the time of {secret}")


def dated_within(secret):
    """Return a generic log with repeated ids, whose messages have times."""
    return b"".join(
        dump({"type": "message", "__id": line.pop("__id"), "message": {
            "role": {"tool_result": "tool"}.get(line.pop("type"), "assistant"), **line,
        }})
        for line in map(json.loads, dated(secret).splitlines())
    )  # fmt: skip


LOGS = [random_ids, dated, dated_within]


@pytest.mark.parametrize("session", LOGS)
@pytest.mark.parametrize("put_back_again", [False, True])
def test_values_unknown_to_a_restored_store_stay_and_are_named(world, session, put_back_again):
    """No placeholder gets another's value; with the newer store back, all are restored."""

    def write_and_prune(kind, numbers):
        files = dict(
            write_old_session(world.directory / f"{number}.jsonl", session(f"{kind} {number}"))
            for number in numbers
        )
        assert world.scan().values_extracted == 3
        return files

    known = write_and_prune("known", range(3))
    world.close()
    shutil.copytree(world.state, world.base / "backup")
    late = write_and_prune("late", range(3, 6))
    world.close()
    world.state.rename(world.base / "newer")
    shutil.copytree(world.base / "backup", world.state)
    pruned = {path: path.read_bytes() for path in late}
    new = write_and_prune("new", range(6, 9))
    results = world.restore_all(pristine=True)

    assert {path: path.read_bytes() for path in known | new} == known | new
    assert {path: path.read_bytes() for path in late} == pruned
    unfinished = {result.session for result in results if result.unfinished}
    assert unfinished == {"main/3", "main/4", "main/5"}
    if put_back_again:
        world.close()
        shutil.rmtree(world.state)
        (world.base / "newer").rename(world.state)
        check_restored(world, late)


def test_restored_store_uses_new_placeholder_names(world):
    """Entries that are only numbered, without times, are told apart by the store's own numbers."""
    write_old_session(world.directory / "0.jsonl", generic_log("known"))
    assert world.scan().values_extracted == 1
    world.close()
    backup = shutil.copy2(world.state / "store.db", world.base / "backup.db")
    late, _ = write_old_session(world.directory / "1.jsonl", generic_log("late"))
    assert world.scan().values_extracted == 1
    world.close()
    store_care.replace_store(world.settings(), str(backup), lambda: LATER, lambda _: None)
    pruned = late.read_bytes()
    new, content = write_old_session(world.directory / "2.jsonl", generic_log("new"))
    assert world.scan().values_extracted == 1
    world.restore_all(pristine=True)

    assert (late.read_bytes(), new.read_bytes()) == (pruned, content)


@pytest.mark.parametrize("session", LOGS)
def test_two_stores_on_one_root_restore_their_own_values(world, session):
    """Each store restores exactly what it extracted, and names the placeholders of the other."""
    second = World(world.base / "second")
    second.root = world.root
    files = {}
    for number in range(6):
        path, content = write_old_session(
            world.directory / f"{number}.jsonl", session(f"secret {number}")
        )
        files[path] = content
        assert (world, second)[number % 2].scan().values_extracted == 1
        assert (second, world)[number % 2].scan().values_extracted == 0
    pruned = {path: path.read_bytes() for path in files}
    for number, store in enumerate((world, second)):
        results = store.restore_all(pristine=True)
        own = {path for path in files if int(path.stem) % 2 == number}
        assert {path for path in files if path.read_bytes() == files[path]} >= own
        left = {result.session.rpartition("/")[2] for result in results if result.unfinished}
        assert left == {path.stem for path in files if path.read_bytes() != files[path]}
        assert all(path.read_bytes() in (pruned[path], content) for path, content in files.items())
    second.close()

    assert {path: path.read_bytes() for path in files} == files


# --- fields --------------------------------------------------------------------------------------


def test_field_set_by_the_user_in_another_log_is_kept(world):
    """Removing a field of brainsurgeon leaves the same bytes in another log."""
    path, content = write_old_session(world.directory / "0.jsonl", generic_log("one", time="one"))
    assert not pin(world, "msg-3", False, session="main/0").pending
    lines = generic_log("two", time="two").splitlines(keepends=True)
    lines[2] = lines[2].replace(b"}\n", b',"_extractable":false}\n')
    other, own = write_old_session(world.directory / "1.jsonl", b"".join(lines))
    copy = shutil.copy2(path, path.with_name("copy.jsonl"))
    world.restore_all(pristine=True)

    assert (path.read_bytes(), copy.read_bytes(), other.read_bytes()) == (content, content, own)
