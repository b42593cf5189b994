"""restore --all: values of all sessions, `--pristine`, and outcomes that are incomplete."""

import os
import re
import time

import pytest
from msgspec.structs import asdict

from brainsurgeon.errors import FailedError, NotFoundError
from brainsurgeon.files import exchange, retire
from brainsurgeon.model.reports import Watch
from brainsurgeon.model.text import iso
from brainsurgeon.model.turns import RATE
from brainsurgeon.operations.restore import How, overfull_after, restore, restore_all
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.render.sessions import restored_json, set_json
from brainsurgeon.rewrite import recover
from brainsurgeon.rewrite.recover import UNFINISHED
from building.processes import json_output, program_for
from building.world import (
    NOBODY,
    Conversation,
    add_two_values,
    append,
    close_turn,
    entry_text,
    file_states,
    fork,
    open_turn,
    pin,
    raw_line,
    read_entry,
    sql,
)

OTHER = "22222222-0000-4000-8000-000000000002"


def test_restore_all_names_expired_values(world, conversation, path):
    """`restore --all` restores every value that is left and lists the expired ones."""
    ident = add_two_values(conversation)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    sql(
        world,
        "UPDATE extractions SET blob_id = NULL, expired_at = 1.0 WHERE path LIKE '%aggregated%'",
    )
    [outcome] = world.restore_all()

    assert (outcome.state, outcome.values_restored) == ("restored", 2)
    assert outcome.missed == outcome.left == (f"{ident}: expired",)
    assert outcome.unfinished
    assert read_entry(path, ident)["message"]["details"]["aggregated"] == f"[[extracted-{ident}]]"


@pytest.mark.parametrize(
    "words",
    [("ENTRY",), ("--all", "--pristine"), ("--all", "--session", "main/s"), ("--run", "1")],
    ids=lambda words: words[0],
)
def test_dry_run_of_a_restore_reports_what_the_restore_does(world, conversation, path, words):
    """It names the same sessions, entries and numbers of values, and writes nothing."""
    ident = add_two_values(conversation)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    world.close()
    call, words = program_for(world), [ident if word == "ENTRY" else word for word in words]
    before = file_states(world.base)
    seen = json_output(call("restore", *words, "--dry-run", "--json"))
    text = call("restore", *words, "--dry-run").stdout.decode()
    after = file_states(world.base)
    done = json_output(call("restore", *words, "--json"))
    varies = {"dry_run", "restored", "run_id", "answer_id", "restored_at", "kept_until", "redacted"}

    assert seen["dry_run"] is True
    assert after == before
    assert {key: fact for key, fact in seen.items() if key not in varies} == {
        key: fact for key, fact in done.items() if key not in varies
    }
    assert text.endswith("nothing was written\n")


def copied(path, _conversation):
    os.utime(fork(path, OTHER), (1, 1))
    return OTHER


def copied_and_busy(path, conversation):
    conversation.user("and now?")
    fork(path, OTHER, ending=conversation.lines[-1:])
    return OTHER


def hard_linked(path, _conversation):
    os.link(path, path.with_name("other"))
    return "s"


def moved(path, _conversation):
    path.rename(path.with_name("moved.jsonl"))
    return "moved"


def opened(_path, _conversation):
    return "s"


@pytest.mark.parametrize("change", [copied, copied_and_busy, hard_linked, moved, opened])
@pytest.mark.parametrize("pristine", [False, True])
@pytest.mark.parametrize("what", ["entry", "all"])
def test_dry_run_of_a_restore_foresees_its_errors(
    world, conversation, path, clock, other_process, change, pristine, what
):
    """It says what the restore says of a session that moved, waits or is not in the store yet."""
    ident = add_two_values(conversation)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    world.restore(ident, keys=("message.details.content",))
    world.store._connection.execute("UPDATE extractions SET blob_id = NULL, expired_at = 1, "
                                    "expired_why = 'x' WHERE path LIKE '%aggregated%'")  # fmt: skip
    session, settings, answers = change(path, conversation), world.settings(), []
    if change is opened:
        other_process.evaluate(f"globals().update(fd=os.open({str(path)!r}, os.O_RDONLY))")
    before = file_states(world.root), world.store._connection.total_changes
    for dry_run in (True, False):
        try:
            if what == "all":
                [answer] = restore_all(
                    settings, world.store, clock=clock, session=session, pristine=pristine,
                    dry_run=dry_run,
                )  # fmt: skip
                facts = {**asdict(answer), "reason": answer.reason.partition("; the request")[0]}
            else:
                how = How(("message.content.0.text",), pristine=pristine, dry_run=dry_run)
                answer = restore(
                    settings, world.store, ident, clock=clock, session=session, how=how
                )
                varies = {"dry_run", "at", "kept_until", "answer_id", "redaction", "restored_by"}
                facts = {key: fact for key, fact in asdict(answer).items() if key not in varies}
        except FailedError as error:
            facts = {"error": str(error).partition("; the request")[0]}
        answers.append(facts)
        if dry_run:
            assert (file_states(world.root), world.store._connection.total_changes) == before

    assert answers[0] == answers[1]


@pytest.mark.parametrize("words", [("ENTRY",), ("--all",), ("--run", "1")], ids=lambda w: w[0])
def test_dry_run_of_a_restore_names_why_it_would_wait(
    world, conversation, pruned, path, clock, words
):
    """In an open turn, it prints the reason and records no request."""
    open_turn(path, conversation, clock)
    words = [pruned if word == "ENTRY" else word for word in words]
    result = program_for(world)("restore", *words, "--dry-run")

    assert b"would wait (the last turn is open: a user message)" in result.stdout
    assert world.store.requests.count_open() == 0


# --- pristine ------------------------------------------------------------------------------------


def test_pristine_removes_and_lists_the_inserted_fields(world, conversation, pruned, path, clock):
    """Fields of restores and pins are removed with the placeholders and listed."""
    world.restore(pruned)
    clock.now += 600
    world.scan()
    pin(world, pruned, 9)
    pin(world, conversation.last, False)

    assert path.read_bytes().count(b"_extractable") == 2

    [outcome] = world.restore_all(pristine=True)

    assert path.read_bytes() == conversation.bytes()
    assert outcome.values_restored == 1
    assert sorted(outcome.insertions_removed) == sorted([
        f"_restored of {pruned}", f"_extractable of {pruned}",
        f"_extractable of {conversation.last}",
    ])  # fmt: skip
    assert sql(world, "SELECT count(*) FROM fields WHERE state = 'standing'") == [(0,)]


def test_pristine_restore_of_an_entry_keeps_fields_of_others(
    world, conversation, pruned, path, clock
):
    """`restore ENTRY --pristine` makes that line original and keeps the pin of another entry."""
    world.restore(pruned)
    clock.now += 600
    world.scan()
    pin(world, conversation.last, False)
    answer = world.restore(pruned, pristine=True)

    assert raw_line(path.read_bytes(), pruned) == raw_line(conversation.bytes(), pruned)
    assert answer.insertions_removed == (f"_restored of {pruned}",)
    assert read_entry(path, conversation.last)["_extractable"] is False


def test_pristine_removes_the_field_of_a_restored_entry(world, conversation, pruned, path):
    """If the value is already back, `--pristine` still removes `_restored`."""
    world.restore(pruned)
    answer = world.restore(pruned, pristine=True)

    assert path.read_bytes() == conversation.bytes()
    assert answer.insertions_removed == (f"_restored of {pruned}",)


def test_pristine_restores_the_original_bytes_of_a_field(world, conversation, path, clock):
    """An `_extractable` field replaced twice by pins gets the original bytes back."""
    ident = conversation.turn("x" * 2000, _extractable=4)
    conversation.turn("short")
    original = conversation.bytes().replace(b'"_extractable":4', b'"_extractable" : 4 ')
    world.put("s.jsonl", original)
    pin(world, ident, False)
    pin(world, ident, 50)

    assert read_entry(path, ident)["_extractable"] == 50

    world.restore_all(pristine=True)

    assert path.read_bytes() == original


def test_pristine_keeps_and_reports_a_changed_field(world, pruned, path, clock):
    """A field whose value is not the one that was set stays and is named; values are restored."""
    world.restore(pruned)
    clock.now += 600
    world.scan()
    data = path.read_bytes().replace(b'"_restored":"', b'"_restored":"1')
    path.write_bytes(data)
    clock.now = max(clock.now, int(time.time()) + 1)
    [outcome] = world.restore_all(pristine=True)

    assert entry_text(path, pruned) == "x" * 2000
    assert b'"_restored":"1' in path.read_bytes()
    assert outcome.insertions_removed == ()
    assert outcome.missed == (f"{pruned}: _restored no longer has the value that was set",)


def test_pristine_restore_forgets_a_field_that_the_agent_dropped(world, pruned, path, clock):
    """A field that is no longer in its entry is not reported, and its record ends."""
    world.restore(pruned)
    restored = path.read_bytes()
    path.write_bytes(re.sub(rb',"_restored":"[^"]*"', b"", restored))
    assert path.read_bytes() != restored
    clock.now = int(time.time()) + 60
    [outcome] = world.restore_all(pristine=True)

    assert (outcome.missed, outcome.insertions_removed) == ((), ())
    assert sql(world, "SELECT count(*) FROM fields WHERE state = 'standing'") == [(0,)]


def test_pristine_restore_is_protected_without_a_field(world, conversation, pruned, path, clock):
    """Values restored without `_restored` are still protected from the next scans."""
    world.restore_all(pristine=True)

    assert world.scan().values_extracted == 0
    assert path.read_bytes() == conversation.bytes()

    clock.now += 600

    assert world.scan().values_extracted == 1


# --- all -----------------------------------------------------------------------------------------


def test_restore_all_restores_idle_sessions_and_requests_busy_ones(
    world, conversation, pruned, path, clock
):
    """Each session is restored, pending with its reason, or has nothing to undo."""
    busy = world.put("t.jsonl", conversation.bytes())
    untouched = Conversation(OTHER)
    untouched.turn("short")
    world.put("u.jsonl", untouched.bytes())
    world.scan()
    open_turn(busy, conversation, clock)
    idle, pending = sorted(world.restore_all(), key=lambda outcome: outcome.session)[:2]

    assert (idle.session, idle.state, idle.values_restored) == ("main/s", "restored", 1)
    assert read_entry(path, pruned)["_restored"] == iso(clock.now)
    assert (pending.session, pending.state) == ("main/t", "pending")
    assert "a user message" in pending.reason
    assert entry_text(busy, pruned) == f"[[extracted-{pruned}]]"
    for session in ("main/s", "main/u"):
        assert [outcome.state for outcome in world.restore_all(session)] == ["nothing to undo"]
    with pytest.raises(NotFoundError):
        world.restore_all("main/nobody")

    close_turn(busy, conversation, clock)
    world.scan()

    assert entry_text(busy, pruned) == "x" * 2000


# --- incomplete restores -------------------------------------------------------------------------


NOT_YET = "an earlier rewrite of it is not finished yet"


@pytest.fixture
def old_file_kept_open(monkeypatch):
    """Keep the old file of every rewrite open for writing; yield a function that closes them."""
    held, replace = [], exchange.replace

    def replaced(candidates):
        replace(candidates)
        held.extend(
            os.open(new.temporary, os.O_WRONLY, dir_fd=new.session.directory) for new in candidates
        )

    monkeypatch.setattr(retire, "LOOK_BACK", 0.05)
    monkeypatch.setattr(retire, "LOOK_BACK_LONGEST", 0.1)
    monkeypatch.setattr(exchange, "replace", replaced)

    def close():
        while held:
            os.close(held.pop())

    yield close
    close()


def test_commands_report_an_unfinished_rewrite(world, pruned, old_file_kept_open):
    """While a process holds the old file open, every command reports an unfinished rewrite."""
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


def test_restore_all_of_a_damaged_value_reports_nothing_restored(world, pruned):
    """A session whose only value is damaged is not reported as having nothing to undo."""
    with world.store.transaction():
        world.store._connection.execute("UPDATE blobs SET data = zeroblob(length(data))")

    [outcome] = world.restore_all()

    assert outcome.state == "nothing restored"
    assert outcome.missed == (f"{pruned}: damaged in the store",)


def test_restore_all_fails_for_a_session_replaced_by_a_link(world, pruned, path):
    """A symbolic link is not followed, and its session is reported as failed, not as gone."""
    path.rename(path.with_suffix(".away"))
    path.symlink_to(path.with_suffix(".away"))
    [outcome] = world.restore_all()

    assert (outcome.state, outcome.unfinished) == ("failed", True)
    assert "symbolic link" in outcome.reason


def test_pristine_fails_for_an_unreadable_root_with_our_fields(world, pruned, path):
    """Fields may still be in the files: the session is reported as failed, not as gone."""
    world.restore(pruned)
    assert b"_restored" in path.read_bytes()
    world.restore_all()
    os.chmod(world.root, 0)
    os.seteuid(NOBODY) if os.geteuid() == 0 else None
    try:
        [outcome] = world.restore_all(pristine=True)
    finally:
        os.seteuid(os.getuid())
        os.chmod(world.root, 0o755)
    [undone] = world.restore_all(pristine=True)

    assert (outcome.state, outcome.unfinished) == ("failed", True)
    assert "fields of brainsurgeon" in outcome.reason
    assert undone.insertions_removed
    assert b"_restored" not in path.read_bytes()


def test_restore_all_waits_for_a_busy_session(world, conversation, pruned, path, clock):
    """With patience, a session whose turn ends is restored, and its reason was reported before."""
    open_turn(path, conversation, clock)
    reasons = []

    def waiting(pending):
        reasons.extend(session.reason for session in pending)
        close_turn(path, conversation, clock)

    [outcome] = restore_all(
        world.settings(),
        world.store,
        clock=clock,
        pristine=True,
        watch=Watch(patience=60, waiting=waiting),
    )

    assert (outcome.state, outcome.values_restored, len(reasons)) == ("restored", 1, 1)
    assert path.read_bytes() == conversation.bytes()


def test_restore_all_reports_a_session_pending_after_its_patience(
    world, conversation, pruned, path, clock
):
    """A session that stays busy is pending when the patience ends."""
    open_turn(path, conversation, clock)
    [outcome] = restore_all(world.settings(), world.store, clock=clock, watch=Watch(patience=0.1))

    assert (outcome.state, outcome.unfinished) == ("pending", True)


def test_sessions_too_full_after_a_restore_are_listed(world, conversation, path):
    """Sessions that would exceed their window after `restore --all` are listed with their load."""
    for number in range(9):
        conversation.turn(f"{number}" + "x" * 6000)
    world.put(path.name, conversation.bytes())
    whole = context(world.settings(), world.no_store, "s", world.clock()).full.load
    world.scan(keep_recent=0)

    def overfull(window):
        settings = world.settings(windows={"*": window})
        sessions = overfull_after(settings, world.store, world.clock())
        return [(session.session, session.load_tokens) for session in sessions]

    assert overfull(whole - 100) == [("main/s", pytest.approx(whole, rel=0.02))]
    assert overfull(whole + 500) == []
    conversation.user("z" * 9000)
    append(path, conversation.lines[-1:])
    assert overfull(whole + 500) == [("main/s", pytest.approx(whole + 9000 * RATE, rel=0.02))]
