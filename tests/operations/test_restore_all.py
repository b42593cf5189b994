"""Everything restored, and what we inserted taken out again."""

import os
import time

import pytest

from brainsurgeon.errors import NotFoundError
from brainsurgeon.model.reports import Watch
from brainsurgeon.model.text import iso
from brainsurgeon.model.turns import RATE
from brainsurgeon.operations.restore import overfull_after, restore_all
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.render.sessions import restored_json, set_json
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.recover import UNFINISHED
from brainsurgeon.sessions import exchange, retire
from building.world import (
    Conversation,
    add_two_values,
    append,
    close_turn,
    entry_text,
    open_turn,
    pin,
    raw_line,
    read_entry,
    sql,
)

OTHER = "22222222-0000-4000-8000-000000000002"


def test_everything_but_the_expired_comes_back(world, conversation, path):
    """`restore --all` restores what there is and names what is expired."""
    ident = add_two_values(conversation)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    sql(
        world,
        "UPDATE extractions SET blob_id = NULL, expired_at = 1.0 WHERE path LIKE '%aggregated%'",
    )
    [done] = world.restore_all()

    assert (done.state, done.values) == ("restored", 2)
    assert done.missed == done.left == (f"{ident}: expired",)
    assert done.unfinished
    assert read_entry(path, ident)["message"]["details"]["aggregated"] == f"[[extracted-{ident}]]"


# --- pristine ------------------------------------------------------------------------------------


def test_pristine_takes_recorded_insertions_out_and_names_them(
    world, conversation, pruned, path, clock
):
    """Marks and pins of ours go with the placeholders, are named, and the file is as it was."""
    world.restore(pruned)
    clock.now += 600
    world.scan()
    pin(world, pruned, 9)
    pin(world, conversation.last, False)

    assert path.read_bytes().count(b"_extractable") == 2

    [done] = world.restore_all(pristine=True)

    assert path.read_bytes() == conversation.bytes()
    assert done.values == 1
    assert sorted(done.insertions_removed) == sorted([
        f"_restored of {pruned}", f"_extractable of {pruned}",
        f"_extractable of {conversation.last}",
    ])  # fmt: skip
    assert sql(world, "SELECT count(*) FROM fields WHERE state = 'standing'") == [(0,)]


def test_pristine_of_one_entry_leaves_the_others(world, conversation, pruned, path, clock):
    """Only the entry that was named is as it was."""
    world.restore(pruned)
    clock.now += 600
    world.scan()
    pin(world, conversation.last, False)
    answer = world.restore(pruned, pristine=True)

    assert raw_line(path.read_bytes(), pruned) == raw_line(conversation.bytes(), pruned)
    assert answer.insertions_removed == (f"_restored of {pruned}",)
    assert read_entry(path, conversation.last)["_extractable"] is False


def test_pristine_takes_the_mark_of_a_restored_entry_out(world, conversation, pruned, path):
    """Where the value stands already, pristine still undoes the mark, and does not complain."""
    world.restore(pruned)
    answer = world.restore(pruned, pristine=True)

    assert path.read_bytes() == conversation.bytes()
    assert answer.insertions_removed == (f"_restored of {pruned}",)


def test_pristine_gives_back_what_stood_in_our_field(world, conversation, path, clock):
    """A field that we replaced, twice, gets the very bytes of its first owner back."""
    ident = conversation.turn("x" * 2000, _extractable=4)
    conversation.turn("short")
    original = conversation.bytes().replace(b'"_extractable":4', b'"_extractable" : 4 ')
    world.put("s.jsonl", original)
    pin(world, ident, False)
    pin(world, ident, 50)

    assert read_entry(path, ident)["_extractable"] == 50

    world.restore_all(pristine=True)

    assert path.read_bytes() == original


def test_an_insertion_that_was_changed_is_reported(world, conversation, pruned, path, clock):
    """A mark that no longer stands as it was set stays, and is named; the values come back."""
    world.restore(pruned)
    clock.now += 600
    world.scan()
    data = path.read_bytes().replace(b'"_restored":"', b'"_restored": "')
    path.write_bytes(data)
    clock.now = max(clock.now, int(time.time()) + 1)
    [done] = world.restore_all(pristine=True)

    assert entry_text(path, pruned) == "x" * 2000
    assert b'"_restored": "' in path.read_bytes()
    assert done.insertions_removed == ()
    assert done.missed == (f"{pruned}: _restored no longer has the value that was set",)


def test_pristine_protects_from_the_next_scan(world, conversation, pruned, path, clock):
    """What was just undone is not cut at once, though the file does not say that it was undone."""
    world.restore_all(pristine=True)

    assert world.scan().values_extracted == 0
    assert path.read_bytes() == conversation.bytes()

    clock.now += 600

    assert world.scan().values_extracted == 1


# --- all -----------------------------------------------------------------------------------------


def test_everything_is_restored_or_requested_for(world, conversation, pruned, path, clock):
    """`restore --all` lists what it did with each session; a busy one gets its values later."""
    busy = world.put("t.jsonl", conversation.bytes())
    untouched = Conversation(OTHER)
    untouched.turn("short")
    world.put("u.jsonl", untouched.bytes())
    world.scan()
    open_turn(busy, conversation, clock)
    done = {one.session: one for one in world.restore_all()}

    assert done["main/s"].state == "restored"
    assert (done["main/s"].values, read_entry(path, pruned)["_restored"]) == (1, iso(clock.now))
    assert done["main/t"].state == "pending"
    assert "a user message" in done["main/t"].reason
    assert entry_text(busy, pruned) == f"[[extracted-{pruned}]]"
    assert [one.state for one in world.restore_all("main/s")] == ["nothing to undo"]
    assert [one.state for one in world.restore_all("main/u")] == ["nothing to undo"]
    with pytest.raises(NotFoundError):
        world.restore_all("main/nobody")

    close_turn(busy, conversation, clock)
    world.scan()

    assert entry_text(busy, pruned) == "x" * 2000


# --- what is said when not all went well ---------------------------------------------------------


NOT_YET = "an earlier rewrite of it is not finished yet"


@pytest.fixture
def old_file_kept_open(monkeypatch):
    """Let somebody open the old file of every rewrite after the exchange, and go on writing."""
    held, replace = [], exchange.replace

    def replaced(candidates):
        replace(candidates)
        held.extend(
            os.open(new.temporary, os.O_WRONLY, dir_fd=new.session.directory) for new in candidates
        )

    monkeypatch.setattr(retire, "LOOK_BACK", 0.05)
    monkeypatch.setattr(retire, "LOOK_BACK_LONGEST", 0.1)
    monkeypatch.setattr(exchange, "replace", replaced)

    def let_go():
        while held:
            os.close(held.pop())

    yield let_go
    let_go()


def test_an_old_file_that_stays_is_said_by_every_verb(world, pruned, old_file_kept_open):
    """While somebody keeps the old file open it stays, all else waits, and every verb says so."""
    restored = world.restore(pruned)
    pinned = set_extractable(world.settings(), world.store, pruned, False, clock=world.clock)
    [undone] = world.restore_all(pristine=True)

    assert restored.missed == (UNFINISHED,)
    assert restored_json(restored)["missed"] == [UNFINISHED]
    assert set_json(pinned)["pending"]
    assert set_json(pinned)["reason"] == undone.reason == NOT_YET
    assert len(world.leftovers()) == 1
    old_file_kept_open()
    recover.recover(world.store)
    assert world.leftovers() == []
    [undone] = world.restore_all(pristine=True)
    assert undone.state == "restored"


def test_nothing_put_back_is_not_called_nothing_to_undo(world, pruned):
    """A session whose only value is damaged in the store is told apart from an untouched one."""
    with world.store.transaction():
        world.store._connection.execute("UPDATE blobs SET data = zeroblob(length(data))")

    [done] = world.restore_all()

    assert done.state == "nothing restored"
    assert done.missed == (f"{pruned}: damaged in the store",)


def test_a_link_in_the_place_of_a_session_is_not_called_gone(world, pruned, path):
    """It is not followed, and the file that it leads to may contain placeholders."""
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path.with_suffix(".away"))
    [one] = world.restore_all()

    assert (one.state, one.unfinished) == ("failed", True)
    assert "symbolic link" in one.reason


def test_it_waits_for_a_session_at_work(world, conversation, pruned, path, clock):
    """With patience, a session whose turn ends meanwhile is restored, and its reason was named."""
    open_turn(path, conversation, clock)
    reasons = []

    def waiting(pending):
        reasons.extend(session.reason for session in pending)
        close_turn(path, conversation, clock)

    [done] = restore_all(
        world.settings(),
        world.store,
        clock=clock,
        pristine=True,
        watch=Watch(patience=60, waiting=waiting),
    )

    assert (done.state, done.values, len(reasons)) == ("restored", 1, 1)
    assert path.read_bytes() == conversation.bytes()


def test_without_an_end_of_the_turn_waiting_ends(world, conversation, pruned, path, clock):
    """After its patience it says what waits, and that this is not done."""
    open_turn(path, conversation, clock)
    [done] = restore_all(world.settings(), world.store, clock=clock, watch=Watch(patience=0.1))

    assert (done.state, done.unfinished) == ("pending", True)


def test_what_will_be_too_large_is_named(world, conversation, path):
    """A session that will not fit once all is back, as it is now, with or without a budget."""
    for number in range(9):
        conversation.turn(f"{number}" + "x" * 6000)
    world.put(path.name, conversation.bytes())
    whole = context(world.settings(), world.no_store, "s", world.clock()).full.load
    world.scan(keep_recent=0)

    def overfull(window):
        settings = world.settings(windows={"*": window})
        named = overfull_after(settings, world.store, world.clock())
        return [(one.session, one.load) for one in named]

    assert overfull(whole - 100) == [("main/s", pytest.approx(whole, rel=0.02))]
    assert overfull(whole + 500) == []
    conversation.user("z" * 9000)
    append(path, conversation.lines[-1:])
    assert overfull(whole + 500) == [("main/s", pytest.approx(whole + 9000 * RATE, rel=0.02))]
