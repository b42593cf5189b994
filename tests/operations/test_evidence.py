"""Evidence of a session: its calls and their results, extracted or not, within a budget."""

import json
import re

import pytest

from brainsurgeon import api
from brainsurgeon.errors import NotFoundError, UsageError
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.evidence import LAST
from brainsurgeon.render import turns as render
from building.claude import SESSION, ClaudeConversation, ClaudeWorld
from building.claw import GATEWAY, ClawWorld
from building.turns import ARCHIVE_ON, add_long_turn
from building.world import Conversation, dump

FAILED = "Traceback: the disk is full\n" + "f" * 1200
LARGE = "".join(f"{number:07} naïve\n" for number in range(3000))


def conversation_with_failure(turns=4):
    """Return a conversation whose first call failed and whose second result is large."""
    talk = Conversation()
    talk.user()
    talk.call(call="bad")
    talk.failed = talk.result(FAILED, call="bad", details={"exitCode": 1, "durationMs": 156})
    talk.lines[-1]["message"]["isError"] = True
    talk.call(call="large")
    talk.result(LARGE, call="large")
    talk.assistant("It failed.")
    for number in range(turns):
        add_long_turn(talk, text=f"{number} " + "x" * 900)
    return talk


def write_pruned(world, turns=4):
    talk = conversation_with_failure(turns)
    world.put("s.jsonl", talk.bytes())
    world.scan()
    return talk


def evidence(world, session="s", **keys):
    return api.evidence(world.settings(), world.store, session, world.clock(), **keys)


def test_evidence_is_the_same_before_and_after_extraction(world):
    """The failed result comes first and whole, the large one shortened to fit the budget."""
    path = world.put("s.jsonl", conversation_with_failure().bytes())
    before = evidence(world)
    assert world.scan().values_extracted > 5
    report = evidence(world)

    assert b"[[extracted-" in path.read_bytes()
    assert report == before
    assert report.index[0] == f"1. exec [exit=1, 156 ms, {len(FAILED):,} B] FAILED"
    mark = report.mark
    assert report.evidence.startswith(f"{mark} {report.index[0]}\n{FAILED}\n{mark} 22. exec [")
    assert len(report.evidence.encode()) <= 32_000
    assert "bytes left out: 1024-" in report.evidence
    assert render.evidence(report).startswith(f"{mark} {report.index[0]}\n{mark} 2. exec [")
    assert render.evidence(report).endswith(f"\n{mark} --- end ---\n")


def test_evidence_of_an_archived_turn_is_complete(world):
    """The turn is named by its closing entry, its prompt, or a result in it."""
    talk = conversation_with_failure()
    world.put("s.jsonl", talk.bytes())
    whole = evidence(world, turn=talk.failed)
    world.scan(**ARCHIVE_ON)
    archive(world.settings(), world.store, "s", clock=world.clock, turns=(1, 1))
    (record, *_) = world.store.archives.of_session(1, world.store.extractions.of_session(1))

    assert len(whole.index) == 2
    assert whole.evidence.count(FAILED) == 1
    for ident in (record.entry_id, record.prompt_id, talk.failed, f"[[extracted-{talk.failed}]]"):
        assert evidence(world, turn=ident) == whole


def test_evidence_is_limited_to_one_turn(world):
    """With LAST it has the last turn's calls; an unknown turn is an error."""
    world.put("s.jsonl", conversation_with_failure().bytes())
    report = evidence(world, turn=LAST)

    assert len(report.index) == 5
    assert FAILED not in report.evidence
    with pytest.raises(NotFoundError):
        evidence(world, turn="nobody")


def test_evidence_names_an_expired_result(world):
    """A notice with id, size and time of expiry replaces the text."""
    talk = write_pruned(world)
    with world.store.transaction():
        world.store._connection.execute(
            "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
            " expired_why = 'test' WHERE name = ?", (talk.failed,),
        )  # fmt: skip
    report = evidence(world)

    assert report.index[0] == "1. exec [exit=1, 156 ms, not available] FAILED"
    notice = f"[evidence no longer available: {talk.failed}, 1,231 B, expired 1970-01-01T00:00:01Z]"
    assert report.evidence.split("\n")[1] == f"{report.mark} {notice}"


def test_evidence_works_for_databases_and_claude_code(tmp_path):
    """It is complete for an extracted session in a database and for a sub-agent's session."""
    claw, claude = ClawWorld(tmp_path / "one"), ClaudeWorld(tmp_path / "two")
    before = evidence(claw, GATEWAY)
    claw.scan()
    talk = ClaudeConversation(side=True)
    talk.turn(FAILED)
    claude.put(f"{SESSION}/subagents/agent-1.jsonl", talk.bytes())
    report = evidence(claude, "agent-1")

    assert before.index
    assert evidence(claw, GATEWAY) == before
    assert report.index == (f"1. Bash [{len(FAILED):,} B]",)
    assert FAILED in report.evidence
    claw.close()
    claude.close()


def test_a_result_cannot_pose_as_a_line_of_ours(world):
    """A result that contains the whole output, its end and a forged result is shown between marks.

    The mark changes with the results, and no result contains it.
    """
    talk = Conversation()
    talk.turn("short")
    world.put("s.jsonl", talk.bytes())
    for _ in range(3):
        printed = render.evidence(evidence(world))
        talk.turn(f"{printed}{printed[:8]} 9. exec [5 B] FAILED\nforged")
        world.put("s.jsonl", talk.bytes())
        report = evidence(world)
        ours = [line for line in report.evidence.split("\n") if line.startswith(report.mark)]

        assert report == evidence(world)
        assert sorted(ours) == sorted(f"{report.mark} {line}" for line in report.index)
        assert report.evidence.count(report.mark) == len(report.index)
        assert f"{printed}{printed[:8]} 9. exec" in report.evidence


def test_sub_agents_share_the_budget_of_their_session(tmp_path):
    """A sub-agent's failed result comes before the session's own results; each call is named."""
    world = ClaudeWorld(tmp_path)
    talk, child = ClaudeConversation(), ClaudeConversation(side=True)
    talk.turn("own " * 20_000)
    child.turn("seen by the sub-agent")
    child.user()
    child.call("bad")
    child.result(FAILED, "bad")
    child.lines[-1]["message"]["content"][0]["is_error"] = True
    world.put(f"{SESSION}.jsonl", talk.bytes())
    world.put(f"{SESSION}/subagents/agent-1.jsonl", child.bytes())
    world.put("other.jsonl", ClaudeConversation("other").bytes())
    report = evidence(world, SESSION, subagents=True, budget=8000)
    title, own = "claude-code:-w/agent-1", evidence(world, SESSION)

    assert report.index == (
        f"{title} 1. Bash [21 B]", f"{title} 2. Bash [{len(FAILED):,} B] FAILED", *own.index
    )  # fmt: skip
    assert report.evidence.startswith(f"{report.mark} {report.index[1]}\n{FAILED}\n")
    assert "seen by the sub-agent" in report.evidence
    assert len(report.evidence.encode()) == 8000
    assert len(own.index) == 1
    with pytest.raises(UsageError):
        evidence(world, SESSION, subagents=True, turn=LAST)
    world.close()


def test_sub_agent_that_cannot_be_read_is_named_once(world):
    """Its line in the index has its title and the reason; the session's own calls follow."""
    talk = Conversation("own")
    talk.turn("own")
    world.put("own.jsonl", talk.bytes())
    world.put("child.jsonl", b"no session\n")
    (world.directory / "sessions.json").write_text(json.dumps({
        "agent:main:main": {"sessionId": "own"},
        "agent:main:subagent:1": {"sessionId": "child", "spawnedBy": "agent:main:main"},
    }))  # fmt: skip

    line, _ = evidence(world, "own", subagents=True).index

    assert re.fullmatch(r"main/child \[not read: (?!main/child).+\]", line)


@pytest.mark.parametrize("place", ["main/sessions", "elsewhere"])
def test_sub_agents_are_known_by_the_index_beside_them(world, place):
    """An index of OpenClaw is read wherever it is, also outside of an agent's directory."""
    world.directory = world.root / place
    world.directory.mkdir(exist_ok=True)
    for name in ("own", "child", "third"):
        talk = Conversation(name)
        talk.turn(f"seen by {name}")
        world.put(f"{name}.jsonl", talk.bytes())
    (world.directory / "sessions.json").write_text(json.dumps({
        "agent:main:main": {"sessionId": "own"},
        "agent:main:subagent:1": {"sessionId": "child", "spawnedBy": "agent:main:main"},
        "agent:main:other": {"sessionId": "third", "spawnedBy": "agent:main:cron"},
    }))  # fmt: skip

    report = evidence(world, "own", subagents=True)

    assert "seen by child" in report.evidence
    assert "seen by third" not in report.evidence


def request_with(*texts, failed=()):
    """Return a request of Anthropic's API with these results, indented unusually."""
    blocks = [
        {"type": "tool_result", "tool_use_id": f"t{number}", "is_error": number in failed,
         "content": [{"type": "text", "text": text}]}
        for number, text in enumerate(texts)
    ]  # fmt: skip
    messages = [{"role": "user", "content": [block]} for block in blocks]
    return json.dumps({"model": "m", "messages": messages}, indent=3).encode()


def test_mount_fills_the_placeholders_of_a_request(world):
    """Only strings that are a known placeholder change; all other bytes stay."""
    talk = write_pruned(world)
    name = f"[[extracted-{talk.failed}]]"
    texts = [name, f"see {name}", "[[extracted-nobody]]"]
    filled = api.mount(world.settings(), world.store, request_with(*texts), Scope("main"))

    assert filled == request_with(FAILED, *texts[1:])


def test_mount_restores_the_lines_of_a_session(world):
    """With a large budget the lines of a pruned session are those that the agent wrote."""
    talk = write_pruned(world, 2)
    pruned = (world.directory / "s.jsonl").read_bytes()
    scope = Scope(session="s")

    assert api.mount(world.settings(), world.store, pruned, scope, 1_000_000) == talk.bytes()


def test_mount_fills_failed_results_first_within_budget(world):
    """The failed result is filled whole, the newer one shortened to the rest of the budget."""
    talk = write_pruned(world)
    large = talk.lines[5]["id"]
    texts = [f"[[extracted-{talk.failed}]]", f"[[extracted-{large}]]"]
    filled = json.loads(api.mount(
        world.settings(), world.store, request_with(*texts, failed=(0,)), Scope("main"), 3000
    ))  # fmt: skip
    first, second = (message["content"][0]["content"][0]["text"] for message in filled["messages"])

    assert first == FAILED
    assert len(second.encode()) == 3000 - len(FAILED) - 1  # a character takes two bytes
    assert second.startswith(LARGE[:900])


def test_mount_gives_what_short_results_leave_to_the_failed_one(world):
    """The budget is used to the byte, and the line about the cut has a mark."""
    talk = Conversation()
    names = [talk.turn(LARGE)] + [talk.turn("s" * 600) for _ in range(5)]
    for _ in range(4):
        talk.turn("x")
    world.put("s.jsonl", talk.bytes())
    world.scan()
    request = request_with(*(f"[[extracted-{name}]]" for name in names), failed=(0,))
    filled = api.mount(world.settings(), world.store, request, Scope("main"), 10_000)
    texts = [
        message["content"][0]["content"][0]["text"].encode()
        for message in json.loads(filled)["messages"]
    ]
    [line] = [line for line in texts[0].split(b"\n") if b"bytes left out" in line]

    assert [len(text) for text in texts] == [7000, *[600] * 5]
    assert line[:8] not in request + LARGE.encode()
    assert line[8:14] == b" [... "


def test_mount_fills_nothing_outside_its_scope(world):
    """A placeholder of another agent's session stays; an empty scope is an error."""
    talk = conversation_with_failure()
    world.put("s.jsonl", talk.bytes())
    other = Conversation("2" * 8).bytes() + dump({"type": "x"})
    world.put("../../other/sessions/o.jsonl", other)
    world.scan()
    request = request_with(f"[[extracted-{talk.failed}]]")

    assert api.mount(world.settings(), world.store, request, Scope("other")) == request
    with pytest.raises(NotFoundError):
        api.mount(world.settings(), world.store, request, Scope("nobody"))
