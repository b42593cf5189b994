"""Thinking that is valid only behind what stood before it: taken out, shown, restored, waiting."""

import json

import pytest

from brainsurgeon.errors import ChangedError
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.show import show
from brainsurgeon.planning.signatures import BROKEN, DOUBTFUL, UNFIT
from building.world import Clock, Conversation, append, fork, pin, read_entry

SIGNS = "claude-fable-5-1"
EMPTY = {"type": "thinking", "thinking": "", "thinkingSignature": ""}


def said(talk, content, stop="stop", model=SIGNS, **more):
    return talk.entry(message={
        "role": "assistant", "content": content, "api": "anthropic-messages", "provider": "p",
        "model": model, "stopReason": stop, **more,
    })  # fmt: skip


def thought(tag):
    """Give a block of short thinking with its signature."""
    return {"type": "thinking", "thinking": f"thought {tag}", "thinkingSignature": f"sig-{tag}"}


def turn(talk, tag, **more):
    """Add a turn, with thinking before its call and its answer; give the ids of its entries."""
    call = {"type": "toolCall", "id": f"call_{tag}", "name": "exec", "arguments": {"c": "ls"}}
    return (
        talk.user(f"question {tag}"),
        said(talk, [thought(f"{tag}a"), call], "toolUse", **more),
        talk.result(f"result {tag} " * 300, call=f"call_{tag}"),
        said(talk, [thought(f"{tag}b"), {"type": "text", "text": f"answer {tag}"}], **more),
    )


@pytest.fixture
def talk():
    return Conversation()


def thoughts(path):
    """Tell of every signed message whether its thinking still stands."""
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    blocks = [
        block for line in lines if line.get("message", {}).get("role") == "assistant"
        for block in line["message"]["content"] if block["type"] == "thinking"
    ]  # fmt: skip
    return [block["thinkingSignature"] for block in blocks if block != EMPTY]


def test_every_signature_behind_the_first_cut_leaves_with_it(world, talk):
    """The last turn included, since it is closed; a dry run says so first; the undo is exact."""
    for tag in range(3):
        turn(talk, tag)
    path = world.put("s.jsonl", talk.bytes())
    before = path.read_bytes()

    dry = world.scan(dry_run=True).sessions[0]
    done = world.scan().sessions[0]

    assert path.read_bytes() != before
    assert thoughts(path) == ["sig-0a"]
    assert [cut.reason for cut in dry.plan.extracted].count(BROKEN) == 5
    assert (len(dry.made.extracted), dry.bytes_after) == (2 + 5, done.bytes_after)
    assert len(done.made.extracted) == 2 + 5
    assert done.bytes_after == path.stat().st_size
    assert world.scan().sessions == []
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


def test_a_signature_is_listed_and_shown_by_its_entry(world, talk):
    """It left no placeholder: `context` lists it, and `show` gives the block as it stood."""
    *_, answer = turn(talk, 0)
    for tag in (1, 2):
        turn(talk, tag)
    world.put("s.jsonl", talk.bytes())
    world.scan()

    one = context(world.settings(), world.store, "main/s", world.clock())
    given = show(world.settings(), world.store, answer)

    assert answer in {value.entry_id for value in one.extracted}
    assert given.content == {"message.content.0": thought("0b")}


def test_a_value_put_back_takes_newer_signatures_out(world, talk):
    """Signatures made behind the placeholder leave with it; older ones would not fit."""
    _, _, result, _ = turn(talk, 0)
    for tag in (1, 2):
        turn(talk, tag)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    since = talk.lines[-1]
    turn(talk, 3)
    append(path, talk.lines[talk.lines.index(since) + 1 :])
    assert thoughts(path) == ["sig-0a", "sig-3a", "sig-3b"]

    world.restore(result)

    assert read_entry(path, result)["message"]["content"][0]["text"] == "result 0 " * 300
    assert thoughts(path) == ["sig-0a"]


def test_a_signature_goes_back_only_where_it_fits(world, talk):
    """A block asked for stays out, with the reason, while something before it is extracted."""
    _, _, result, answer = turn(talk, 0)
    for tag in (1, 2):
        turn(talk, tag)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()

    with pytest.raises(ChangedError, match=UNFIT):
        world.restore(answer)
    world.restore(result)
    world.restore(answer)

    assert read_entry(path, answer)["message"]["content"][0] == thought("0b")
    assert thoughts(path) == ["sig-0a", "sig-0b"]


def test_everything_put_back_brings_the_signatures_that_fit(world, talk):
    """What was signed in front of originals fits them again.

    What was signed behind placeholders does not.

    A pristine undo brings every byte back all the same, and says in which session that is so.
    """
    for tag in range(3):
        turn(talk, tag)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    since = talk.lines[-1]
    turn(talk, 3)
    append(path, talk.lines[talk.lines.index(since) + 1 :])
    world.scan()
    original = talk.bytes()

    (lenient,) = world.restore_all()

    assert thoughts(path) == ["sig-0a", "sig-0b", "sig-1a", "sig-1b", "sig-2a", "sig-2b"]
    assert "2 entries no longer fits" in lenient.note
    assert "stays extracted" in lenient.note
    (pristine,) = world.restore_all(pristine=True)
    assert path.read_bytes() == original
    assert "it is restored nevertheless" in pristine.note
    assert not pristine.missed


def test_thinking_that_leaves_by_the_rules_leaves_no_text(world, talk):
    """Long signed thinking of any model becomes an empty block, and comes back as it was."""
    talk.user()
    long = {"type": "thinking", "thinking": "hm " * 400, "thinkingSignature": "sig"}
    ident = said(talk, [long, {"type": "text", "text": "a"}], model="claude-sonnet-4-5")
    for _ in range(3):
        talk.turn("short")
    path = world.put("s.jsonl", talk.bytes())

    assert world.scan().values_extracted == 1

    assert read_entry(path, ident)["message"]["content"][0] == EMPTY
    assert b"[[extracted-" not in path.read_bytes()
    world.restore(ident)
    assert read_entry(path, ident)["message"]["content"][0] == long


def stuck(talk, how):
    """Build a session in which one signature behind a cut cannot leave; give its entry."""
    turn(talk, 0)
    if how == "alone":
        talk.user("one more")
        ident = said(talk, [thought("alone")])
        return turn(talk, 1) and ident
    ids = turn(talk, 1)
    if how == "open":
        talk.user("and then?")
        call = {"type": "toolCall", "id": "c", "name": "exec", "arguments": {"c": "ls"}}
        return said(talk, [thought("open"), call], "toolUse")
    turn(talk, 2)
    if how == "pinned":
        next(line for line in talk.lines if line["id"] == ids[3])["_extractable"] = False
    return ids[3]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("pinned", "it is pinned"),
        ("alone", "nothing else is in its message"),
        ("open", "the last turn is open: a tool call, whatever its age"),
    ],
)
def test_where_a_signature_cannot_leave_the_session_stays_as_it_is(world, talk, how, why):
    """Nothing of it is changed, a request waits, and the next look says the same."""
    ident = stuck(talk, how)
    path = world.put("s.jsonl", talk.bytes())
    before = path.read_bytes()

    (told,) = world.scan(keep_recent=0).sessions

    assert (told.outcome, told.made.extracted) == ("deferred", ())
    assert told.reason == f"signatures: the thinking of {ident} would break: {why}"
    assert path.read_bytes() == before
    one = context(world.settings(keep_recent=0), world.store, "main/s", world.clock())
    assert (one.plan.deferred, one.plan.extracted) == (told.reason, ())
    assert "deferred: signatures" in {kept.reason for kept in one.plan.kept}
    assert world.scan(keep_recent=0, signed_models=["!claude-*"]).sessions_changed == 1


def test_a_value_that_cannot_go_back_now_is_given_at_once(world, talk):
    """A put-back that would break a signature which cannot leave waits like any other."""
    _, _, result, _ = turn(talk, 0)
    _, _, _, answer = turn(talk, 1)
    turn(talk, 2)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(signed_models=["!claude-*"])
    pin(world, answer, False)
    lean = path.read_bytes()

    told = world.restore(result)

    assert told.pending
    assert told.why_pending.startswith("signatures: ")
    assert told.content == {"message.content.0.text": "result 0 " * 300}
    assert path.read_bytes() == lean


def test_signed_sessions_can_be_left_alone(world, talk):
    """With `signed_thinking = "defer"` a session with signatures behind a cut stays as it is."""
    for tag in range(3):
        turn(talk, tag)
    path = world.put("s.jsonl", talk.bytes())
    before = path.read_bytes()

    (told,) = world.scan(signed_thinking="defer").sessions

    assert (told.outcome, path.read_bytes()) == ("deferred", before)
    assert told.reason.endswith('signed_thinking = "defer"')


def test_the_signatures_of_a_failed_answer_are_nobodys(world, talk):
    """It is never sent again, so that it neither leaves nor holds anything up."""
    turn(talk, 0)
    talk.user("one more")
    said(talk, [thought("failed")], "error")
    turn(talk, 1)
    path = world.put("s.jsonl", talk.bytes())

    assert world.scan(keep_recent=0).sessions_changed == 1

    assert thoughts(path) == ["sig-0a", "sig-failed"]


def test_what_is_never_sent_breaks_no_signature(world, talk):
    """A cut in details, or before a compaction, changes nothing of the request."""
    talk.user()
    said(talk, [thought("0"), {"type": "text", "text": "a"}])
    talk.result("r" * 3000)
    kept = talk.user("kept")
    talk.entry("compaction", summary="so far", firstKeptEntryId=kept, tokensBefore=1)
    talk.user()
    talk.call()
    talk.result("short", details={"diff": "d" * 3000, "patch": "p" * 3000})
    said(talk, [thought("1"), {"type": "text", "text": "b"}])
    path = world.put("s.jsonl", talk.bytes())

    told = world.scan(keep_recent=0).sessions[0]

    assert {cut.reason.partition(", ")[2] for cut in told.plan.extracted} == {
        "before the last compaction", "never sent",
    }  # fmt: skip
    assert len(told.made.extracted) == 3
    assert thoughts(path) == ["sig-0", "sig-1"]


def test_context_says_what_is_never_sent(world, talk):
    """How many values no request carries, and how long they are together."""
    talk.user("left behind")
    talk.last = None
    talk.user()
    talk.result("text", details={"diff": "d" * 30})
    talk.assistant()
    world.put("s.jsonl", talk.bytes())

    one = context(world.settings(), world.store, "main/s", world.clock())

    assert sum(amount.values for amount in one.plan.unsent) == 2
    assert sum(amount.chars for amount in one.plan.unsent) == len("left behind") + 30


def test_a_branch_left_just_now_is_not_dead_yet(world, talk):
    """Its user may step back to it any moment: it is dead when the session was silent for long."""
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
        return [one.reason.partition(", ")[2] for one in session.plan.extracted]

    assert reasons() == ["old"]
    world.clock.now += 3600
    assert reasons() == ["off the active branch"]


def test_newer_signatures_of_an_agent_that_remembers_leave(world, talk):
    """What a running pi signs from memory leaves; OpenClaw reads anew, so its stays."""
    for tag in range(3):
        turn(talk, tag)
    place = world.root / "pi" / "--home-me--"
    place.mkdir(parents=True)
    paths = [world.put("s.jsonl", talk.bytes()), place / "s.jsonl"]
    paths[1].write_bytes(talk.bytes())
    assert world.scan().sessions_changed == 2
    since = talk.lines[-1]
    turn(talk, 3)
    for path in paths:
        append(path, talk.lines[talk.lines.index(since) + 1 :])
    settings = {"trigger_types": ["assistant"]}

    (told,) = (one for one in world.scan(**settings).sessions if one.outcome == "changed")

    assert [cut.reason for cut in told.plan.removals] == [DOUBTFUL] * 2
    assert thoughts(paths[0]) == ["sig-0a", "sig-3a", "sig-3b"]
    assert thoughts(paths[1]) == ["sig-0a"]
    assert not [one for one in world.scan(**settings).sessions if one.outcome == "changed"]


def test_a_fork_has_its_signatures_taken_out_for_itself(world, talk):
    """A fork that an agent wrote from memory is extracted and signed on its own."""
    for tag in range(3):
        turn(talk, tag)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    lean = fork(path, "lean")
    whole = world.put("whole.jsonl", talk.bytes().replace(b"11111111", b"22222222", 1))

    world.scan()

    assert thoughts(lean) == thoughts(whole) == ["sig-0a"]
    (undone,) = world.restore_all("main/lean", pristine=True)
    assert undone.state == "restored"
    assert thoughts(lean)[-1] == "sig-2b"


def test_an_agent_that_asks_for_it_keeps_its_thinking(world, talk):
    """Where pi manages a model's effort it asks the provider to drop what no longer fits."""
    for tag in range(3):
        turn(talk, tag, providerThinkingLevel="high" if tag else None)
    place = world.root / "pi" / "--home-me--"
    place.mkdir(parents=True)
    (place / "s.jsonl").write_bytes(talk.bytes())

    world.scan()

    assert thoughts(place / "s.jsonl") == ["sig-0a", "sig-1a", "sig-1b", "sig-2a", "sig-2b"]
