"""Signed thinking: extracted behind the first placeholder, shown, restored, deferred."""

import json

import pytest

from brainsurgeon.errors import ChangedError
from brainsurgeon.operations.relieve import relieve
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.show import show
from brainsurgeon.planning.signatures import BROKEN, DOUBTFUL, UNFIT
from brainsurgeon.render.sessions import restored_all
from brainsurgeon.rewrite.relief import Wanted
from building.world import Clock, Conversation, append, fork, pin, read_entry

SIGNS = "claude-fable-5-1"
EMPTY = {"type": "thinking", "thinking": "", "thinkingSignature": ""}


def respond(talk, content, stop="stop", **more):
    return talk.entry(message={
        "role": "assistant", "content": content, "api": "anthropic-messages", "provider": "p",
        "model": SIGNS, "stopReason": stop, **more,
    })  # fmt: skip


def thought(tag):
    """Return a block of short thinking with its signature."""
    return {"type": "thinking", "thinking": f"thought {tag}", "thinkingSignature": f"sig-{tag}"}


def turn(talk, tag, **more):
    """Add a turn with thinking before its call and its answer; return the ids of its entries."""
    call = {"type": "toolCall", "id": f"call_{tag}", "name": "exec", "arguments": {"c": "ls"}}
    return (
        talk.user(f"question {tag}"),
        respond(talk, [thought(f"{tag}a"), call], "toolUse", **more),
        talk.result(f"result {tag} " * 300, call=f"call_{tag}"),
        respond(talk, [thought(f"{tag}b"), {"type": "text", "text": f"answer {tag}"}], **more),
    )


def write_turns(world, talk):
    """Write a session of three turns; return its path and the ids of its first turn."""
    ids = [turn(talk, tag) for tag in range(3)]
    return world.put("s.jsonl", talk.bytes()), ids[0]


def append_turn(talk, tag, *paths):
    since = len(talk.lines)
    turn(talk, tag)
    for path in paths:
        append(path, talk.lines[since:])


@pytest.fixture
def talk():
    return Conversation()


def thoughts(path):
    """Return the signatures of all thinking that is not extracted."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    blocks = [
        block for line in lines if line.get("message", {}).get("role") == "assistant"
        for block in line["message"]["content"] if block["type"] == "thinking"
    ]  # fmt: skip
    return [block["thinkingSignature"] for block in blocks if block != EMPTY]


def test_thinking_behind_the_first_placeholder_is_extracted(world, talk):
    """This includes the last, closed turn; a dry run plans the same, and the undo is exact."""
    path, _ = write_turns(world, talk)
    before = path.read_bytes()

    dry = world.scan(dry_run=True).sessions[0]
    result = world.scan().sessions[0]

    assert path.read_bytes() != before
    assert thoughts(path) == ["sig-0a"]
    assert [removal.reason for removal in dry.plan.extracted].count(BROKEN) == 5
    assert (len(dry.executed.extracted), dry.bytes_after) == (2 + 5, result.bytes_after)
    assert len(result.executed.extracted) == 2 + 5
    assert result.bytes_after == path.stat().st_size
    assert world.scan().sessions == []
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


def test_extracted_thinking_is_listed_and_shown_by_entry(world, talk):
    """It has no placeholder, but `context` lists it and `show` returns the block."""
    _, (*_, answer) = write_turns(world, talk)
    world.scan()

    listed = context(world.settings(), world.store, "main/s", world.clock())
    shown = show(world.settings(), world.store, answer)

    assert answer in {value.entry_id for value in listed.extracted}
    assert shown.content == {"message.content.0": thought("0b")}


def test_restoring_a_value_extracts_newer_signatures(world, talk):
    """Signatures made behind the placeholder no longer fit; older ones stay extracted."""
    path, (_, _, result, _) = write_turns(world, talk)
    world.scan()
    append_turn(talk, 3, path)
    assert thoughts(path) == ["sig-0a", "sig-3a", "sig-3b"]

    world.restore(result)

    assert read_entry(path, result)["message"]["content"][0]["text"] == "result 0 " * 300
    assert thoughts(path) == ["sig-0a"]


def test_thinking_is_restored_only_where_its_signature_fits(world, talk):
    """It is refused with the reason while a value before it is extracted."""
    path, (_, _, result, answer) = write_turns(world, talk)
    world.scan()

    with pytest.raises(ChangedError, match=UNFIT):
        world.restore(answer)
    world.restore(result)
    world.restore(answer)

    assert read_entry(path, answer)["message"]["content"][0] == thought("0b")
    assert thoughts(path) == ["sig-0a", "sig-0b"]


def test_restore_all_restores_the_signatures_that_fit(world, talk):
    """Signatures made behind placeholders stay extracted, which the note says.

    A pristine undo restores every byte all the same, and its note names the sessions with them.
    """
    path, _ = write_turns(world, talk)
    world.scan()
    append_turn(talk, 3, path)
    world.scan()
    original = talk.bytes()

    (lenient,) = world.restore_all()

    assert thoughts(path) == ["sig-0a", "sig-0b", "sig-1a", "sig-1b", "sig-2a", "sig-2b"]
    assert "2 entries may no longer fit" in lenient.note
    assert "stays extracted" in lenient.note
    assert restored_all([lenient]).endswith(
        "no placeholder is left; signed thinking of 2 entries stays extracted: --pristine"
        " restores it, too"
    )
    (pristine,) = world.restore_all(pristine=True)
    assert path.read_bytes() == original
    assert "it is restored nevertheless" in pristine.note
    assert (pristine.missed, pristine.signed_left) == ((), 0)


def stuck(talk, how):
    """Write a session with a signature that cannot be extracted; return its entry."""
    turn(talk, 0)
    if how == "alone":
        talk.user("one more")
        ident = respond(talk, [thought("alone")])
        return turn(talk, 1) and ident
    ids = turn(talk, 1)
    if how == "open":
        talk.user("and then?")
        call = {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"c": "ls"}}
        return respond(talk, [thought("open"), call], "toolUse")
    turn(talk, 2)
    if how == "pinned":
        next(line for line in talk.lines if line["id"] == ids[3])["_extractable"] = False
    return ids[3]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("pinned", "it is pinned"),
        ("alone", "nothing else is in its message"),
        ("open", "the last turn is open: a tool call (even an old open turn keeps its signatures)"),
    ],
)
def test_session_with_an_unremovable_signature_is_deferred(world, talk, how, why):
    """It is not changed, and `context` gives the same reason as the scan."""
    ident = stuck(talk, how)
    path = world.put("s.jsonl", talk.bytes())
    before = path.read_bytes()

    (result,) = world.scan(keep_recent=0).sessions

    assert (result.outcome, result.executed.extracted) == ("deferred", ())
    assert result.reason == f"signatures: the thinking of {ident} would break: {why}"
    assert path.read_bytes() == before
    report = context(world.settings(keep_recent=0), world.store, "main/s", world.clock())
    assert (report.plan.deferred, report.plan.extracted) == (result.reason, ())
    assert "deferred: signatures" in {part.reason for part in report.plan.kept}
    assert world.scan(keep_recent=0, signed_models=["!claude-*"]).sessions_changed == 1


def test_restore_that_would_break_a_signature_is_pending(world, talk):
    """The value is returned at once, and the session is not changed."""
    _, _, result, _ = turn(talk, 0)
    _, _, _, answer = turn(talk, 1)
    turn(talk, 2)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(signed_models=["!claude-*"])
    pin(world, answer, False)
    lean = path.read_bytes()

    answer = world.restore(result)

    assert answer.pending
    assert answer.why_pending.startswith("signatures: ")
    assert answer.content == {"message.content.0.text": "result 0 " * 300}
    assert path.read_bytes() == lean


def test_extracting_unsent_values_keeps_signatures(world, talk):
    """Details, and entries before a compaction, are in no request."""
    talk.user()
    respond(talk, [thought("0"), {"type": "text", "text": "a"}])
    talk.result("r" * 3000)
    first_kept = talk.user("kept")
    talk.entry("compaction", summary="so far", firstKeptEntryId=first_kept, tokensBefore=1)
    talk.user()
    talk.call()
    talk.result("short", details={"diff": "d" * 3000, "patch": "p" * 3000})
    respond(talk, [thought("1"), {"type": "text", "text": "b"}])
    path = world.put("s.jsonl", talk.bytes())

    result = world.scan(keep_recent=0).sessions[0]

    assert {removal.reason.partition(", ")[2] for removal in result.plan.extracted} == {
        "before the last compaction", "never sent",
    }  # fmt: skip
    assert len(result.executed.extracted) == 3
    assert thoughts(path) == ["sig-0", "sig-1"]


def test_context_counts_values_that_are_never_sent(world, talk):
    """It gives the number of such values and their length in characters."""
    talk.user("left behind")
    talk.last = None
    talk.user()
    talk.result("text", details={"diff": "d" * 30})
    talk.assistant()
    world.put("s.jsonl", talk.bytes())

    report = context(world.settings(), world.store, "main/s", world.clock())

    assert sum(amount.values for amount in report.plan.unsent) == 2
    assert sum(amount.chars for amount in report.plan.unsent) == len("left behind") + 30


def test_branch_is_dead_only_after_an_hour_of_silence(world, talk):
    """The user may step back to a branch that was left just now."""
    root = talk.user()
    talk.call()
    talk.result("r" * 3000)
    talk.assistant()
    talk.last = root
    talk.call()
    talk.result("short")
    talk.assistant()
    world.put("s.jsonl", talk.bytes(), age=60)
    world.clock = Clock()

    def reasons():
        [session] = world.scan(dry_run=True).sessions
        return [removal.reason.partition(", ")[2] for removal in session.plan.extracted]

    assert reasons() == ["old"]
    world.clock.now += 3600
    assert reasons() == ["off the active branch"]


def test_newer_signatures_of_a_running_pi_are_extracted(world, talk):
    """A running pi signs from memory; OpenClaw reads its session again, so its signatures stay."""
    path, _ = write_turns(world, talk)
    place = world.root / "pi" / "--home-me--"
    place.mkdir(parents=True)
    paths = [path, place / "s.jsonl"]
    paths[1].write_bytes(talk.bytes())
    assert world.scan().sessions_changed == 2
    append_turn(talk, 3, *paths)
    settings = {"trigger_types": ["assistant"]}

    (result,) = (
        session for session in world.scan(**settings).sessions if session.outcome == "changed"
    )

    assert [removal.reason for removal in result.plan.removals] == [DOUBTFUL] * 2
    assert thoughts(paths[0]) == ["sig-0a", "sig-3a", "sig-3b"]
    assert thoughts(paths[1]) == ["sig-0a"]
    assert not [
        session for session in world.scan(**settings).sessions if session.outcome == "changed"
    ]


def test_signatures_of_forks_are_extracted_separately(world, talk):
    """A fork and a copy written from memory are each extracted on their own."""
    path, _ = write_turns(world, talk)
    world.scan()
    lean = fork(path, "lean")
    whole = world.put("whole.jsonl", talk.bytes().replace(b"11111111", b"22222222", 1))

    world.scan()

    assert thoughts(lean) == thoughts(whole) == ["sig-0a"]
    (result,) = world.restore_all("main/lean", pristine=True)
    assert result.state == "restored"
    assert thoughts(lean)[-1] == "sig-2b"


def test_thinking_is_kept_if_the_agent_lets_it_be_dropped(world, talk):
    """If pi sets a thinking level, it asks the provider to drop thinking that no longer fits."""
    for tag in range(3):
        turn(talk, tag, providerThinkingLevel="high" if tag else None)
    place = world.root / "pi" / "--home-me--"
    place.mkdir(parents=True)
    (place / "s.jsonl").write_bytes(talk.bytes())

    world.scan()

    assert thoughts(place / "s.jsonl") == ["sig-0a", "sig-1a", "sig-1b", "sig-2a", "sig-2b"]


def test_relieve_finds_a_masked_signature_in_the_newest_turn(world, talk):
    """It leaves with `--signatures`, though no refusal was recorded; a whole signature stays."""
    whole = "Eg" + "A" * 42  # an envelope that is as long as it says: an empty field, then zeros
    talk.user("one")
    for signature in (whole, "EokCCk…aGAE="):
        block = {"type": "thinking", "thinking": "hm", "thinkingSignature": signature}
        respond(talk, [block, {"type": "text", "text": "done"}], model="claude-sonnet-4-6")
        talk.user("more")
    respond(talk, [{"type": "text", "text": "done"}])
    path = world.put("s.jsonl", talk.bytes())
    before = path.read_bytes()

    relief = relieve(
        world.settings(), world.store, "main/s", Wanted(signatures=True), clock=world.clock
    )

    assert (relief.signatures, relief.refused) == (1, ())
    assert thoughts(path) == [whole]
    world.restore_all(pristine=True)
    assert path.read_bytes() == before
