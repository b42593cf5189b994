"""The evidence of a session: its calls and their results, extracted or not, within a budget."""

import json

import pytest

from brainsurgeon import api
from brainsurgeon.errors import NotFoundError
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.evidence import LAST
from brainsurgeon.render import turns as render
from building.claude import ClaudeConversation, ClaudeWorld
from building.claw import GATEWAY, ClawWorld
from building.turns import ARCHIVE_ON, add_long_turn
from building.world import Conversation, dump

FAILED = "Traceback: the disk is full\n" + "f" * 1200
LARGE = "".join(f"{number:07} naïve\n" for number in range(3000))


def worked(turns=4):
    """Return a session that called a tool often: the first call failed, one result is large."""
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


def evidence(world, session="s", **keys):
    return api.evidence(world.settings(), world.store, session, world.clock(), **keys)


def test_what_is_extracted_and_what_is_not_comes_within_the_budget(world):
    """The failed result stands first and whole, the large one as its two ends."""
    path = world.put("s.jsonl", worked().bytes())
    before = evidence(world)
    assert world.scan().values_extracted > 5
    report = evidence(world)

    assert b"[[extracted-" in path.read_bytes()
    assert report == before
    assert report.index[0] == f"1. exec [exit=1, 156 ms, {len(FAILED):,} B] FAILED"
    assert report.evidence.startswith(f"{report.index[0]}\n{FAILED}\n22. exec [")
    assert len(report.evidence.encode()) <= 32_000
    assert "bytes left out: 1024-" in report.evidence
    assert render.evidence(report).endswith("\n--- end ---\n")


def test_an_archived_turn_gives_its_evidence(world):
    """Archived in the linked form, by the id of its last answer, its prompt or a result in it."""
    talk = worked()
    world.put("s.jsonl", talk.bytes())
    whole = evidence(world, turn=talk.failed)
    world.scan(**ARCHIVE_ON)
    archive(world.settings(), world.store, "s", clock=world.clock, turns=(1, 1))
    (made, *_) = world.store.archives.of_session(1, world.store.extractions.of_session(1))

    assert len(whole.index) == 2
    assert whole.evidence.count(FAILED) == 1
    for ident in (made.entry_id, made.prompt_id, talk.failed, f"[[extracted-{talk.failed}]]"):
        assert evidence(world, turn=ident) == whole


def test_the_last_turn_alone_may_be_asked_for(world):
    """The index and the results are those of the last turn; an unknown turn is an error."""
    world.put("s.jsonl", worked().bytes())
    report = evidence(world, turn=LAST)

    assert len(report.index) == 5
    assert FAILED not in report.evidence
    with pytest.raises(NotFoundError):
        evidence(world, turn="nobody")


def test_what_expired_is_named(world):
    """An expired result says its id, its size and when it went, in place of its text."""
    talk = worked()
    world.put("s.jsonl", talk.bytes())
    world.scan()
    with world.store.transaction():
        world.store._connection.execute(
            "UPDATE extractions SET blob_id = NULL, expired_at = 1.0,"
            " expired_why = 'test' WHERE name = ?", (talk.failed,),
        )  # fmt: skip
    report = evidence(world)

    assert report.index[0] == "1. exec [exit=1, 156 ms, expired] FAILED"
    notice = f"[evidence no longer available: {talk.failed}, 1,231 B, expired 1970-01-01T00:00:01Z]"
    assert report.evidence.split("\n")[1] == notice


def test_a_session_in_a_database_and_one_of_claude_code_give_theirs(tmp_path):
    """Each format has results; a sub-agent's own session has them, too."""
    claw, claude = ClawWorld(tmp_path / "one"), ClaudeWorld(tmp_path / "two")
    before = evidence(claw, GATEWAY)
    claw.scan()
    talk = ClaudeConversation(side=True)
    talk.turn(FAILED)
    directory = claude.project / "11111111-1111-4111-8111-111111111111" / "subagents"
    directory.mkdir(parents=True)
    (directory / "agent-1.jsonl").write_bytes(talk.bytes())
    report = evidence(claude, "agent-1")

    assert before.index
    assert evidence(claw, GATEWAY) == before
    assert report.index == (f"1. Bash [{len(FAILED):,} B]",)
    assert FAILED in report.evidence
    claw.close()
    claude.close()


# --- mount ---------------------------------------------------------------------------------------


def request_with(*texts, failed=()):
    """Return a request with these results, as Anthropic's API takes it, oddly spaced."""
    blocks = [
        {"type": "tool_result", "tool_use_id": f"t{number}", "is_error": number in failed,
         "content": [{"type": "text", "text": text}]}
        for number, text in enumerate(texts)
    ]  # fmt: skip
    messages = [{"role": "user", "content": [block]} for block in blocks]
    return json.dumps({"model": "m", "messages": messages}, indent=3).encode()


def test_mount_fills_the_placeholders_of_a_request(world):
    """Only strings that are a placeholder change; unknown ones and all other bytes stay."""
    talk = worked()
    world.put("s.jsonl", talk.bytes())
    world.scan()
    name = f"[[extracted-{talk.failed}]]"
    texts = [name, f"see {name}", "[[extracted-nobody]]"]
    filled = api.mount(world.settings(), world.store, request_with(*texts), Scope("main"))

    assert filled == request_with(FAILED, *texts[1:])


def test_mount_fills_the_lines_of_a_session(world):
    """The lines of a pruned session come back as the agent wrote them, while the budget lasts."""
    talk = worked(2)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()

    scope = Scope(session="s")
    assert api.mount(
        world.settings(), world.store, path.read_bytes(), scope, 1_000_000
    ) == talk.bytes()  # fmt: skip


def test_mount_gives_failed_results_first_and_keeps_to_the_budget(world):
    """The older result failed, so it comes whole; the newer one is cut to what is left."""
    talk = worked()
    large = talk.lines[5]["id"]
    world.put("s.jsonl", talk.bytes())
    world.scan()
    texts = [f"[[extracted-{talk.failed}]]", f"[[extracted-{large}]]"]
    filled = json.loads(api.mount(
        world.settings(), world.store, request_with(*texts, failed=(0,)), Scope("main"), 3000
    ))  # fmt: skip
    first, second = (one["content"][0]["content"][0]["text"] for one in filled["messages"])

    assert first == FAILED
    assert len(second.encode()) == 3000 - len(FAILED)
    assert second.startswith(LARGE[:900])


def test_mount_gives_nothing_of_another_scope(world):
    """A placeholder of another agent's session stays; a scope without sessions is an error."""
    talk = worked()
    world.put("s.jsonl", talk.bytes())
    other = world.root / "other" / "sessions"
    other.mkdir(parents=True)
    (other / "o.jsonl").write_bytes(Conversation("2" * 8).bytes() + dump({"type": "x"}))
    world.scan()
    request = request_with(f"[[extracted-{talk.failed}]]")

    assert api.mount(world.settings(), world.store, request, Scope("other")) == request
    with pytest.raises(NotFoundError):
        api.mount(world.settings(), world.store, request, Scope("nobody"))
