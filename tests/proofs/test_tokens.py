"""Recorded token savings, compared with the requests of the agents."""

import json

import pytest

from brainsurgeon.model.turns import PICTURE, RATE
from building.claude import SESSION, ClaudeConversation, ClaudeWorld
from building.model_requests import SESSIONS, add_answer, thinking_block
from building.turns import add_long_turn, folding
from building.world import SAMPLES, Conversation, sql
from proofs.agent_readers import AGENTS, VIEW

ARCHIVING = {"archive": {"enabled": True, "token_threshold": 0}}
WAYS = pytest.mark.parametrize("keys", [{}, ARCHIVING], ids=["values", "turns"])
NAME = "11111111-0000-4000-8000-000000000001.jsonl"
PICTURES = ("image", "input_image", "image_url")


@pytest.fixture(params=AGENTS)
def look(request, reader):
    return reader(VIEW, request.param)


def saved_tokens(world):
    return sum(total.tokens for total in world.store.extractions.totals().values())


def tokens(value):
    """Return the tokens of a part of a request: RATE for each character, and its pictures."""
    if isinstance(value, str):
        return RATE * len(value)
    if isinstance(value, dict):
        if value.get("type") in PICTURES or "inlineData" in value:
            return PICTURE
        signatures = ("signature", "thoughtSignature", "data", "encrypted_content")
        value = [inner for key, inner in value.items() if key not in signatures]
    return sum(map(tokens, value)) if isinstance(value, list) else 0


def compare_savings(world, look, data, keys, provider=None):
    """Check the recorded tokens against the requests to all providers, or to one.

    Return the bytes of the first request.
    """
    path = world.put(NAME, data)
    world.scan(**keys)
    before, after = look(data), look(path.read_bytes())
    saved = saved_tokens(world)

    assert saved == sum(run.facts["tokens"] for run in world.store.runs.newest(None))
    pairs = [
        (was, now) for was, now in zip(before["requests"], after["requests"], strict=True)
        if was["provider"] == (provider or was["provider"])
    ]  # fmt: skip
    assert pairs
    for was, now in pairs:
        saving = tokens(was["messages"]) - tokens(now["messages"])
        assert saved == pytest.approx(saving, rel=0.1), was["api"]
    return len(json.dumps(before["requests"][0]))


@WAYS
@pytest.mark.parametrize("sample", SESSIONS.values(), ids=SESSIONS)
def test_recorded_tokens_match_requests_of_real_sessions(world, look, sample, keys):
    """They are within 10 % for every provider, for values and for archived turns."""
    compare_savings(world, look, SAMPLES.joinpath(*sample).read_bytes(), keys)


@WAYS
def test_pictures_count_1500_tokens_and_details_none(world, look, keys):
    """Pictures count the same whatever their bytes; details are never sent."""
    talk = Conversation()
    picture = {"type": "image", "data": "A" * 700_000, "mimeType": "image/png"}
    for number in range(4):
        talk.user("look at it")
        call = {"type": "toolCall", "id": f"c{number}", "name": "read", "arguments": {"path": "p"}}
        add_answer(
            talk, [thinking_block("it", "reasoning_content"), call], "openai-completions", "toolUse"
        )
        talk.entry(message={
            "role": "toolResult", "toolCallId": f"c{number}", "toolName": "read", "isError": False,
            "content": [{"type": "text", "text": "a picture"}, picture],
            "details": {"shown": "d" * 9000}, "timestamp": 1,
        })  # fmt: skip
        add_answer(talk, [{"type": "text", "text": "seen"}], "openai-completions")
    for _ in range(4):
        add_long_turn(talk)
    add_answer(talk, [{"type": "text", "text": "bye"}], "openai-completions")

    assert compare_savings(world, look, talk.bytes(), keys, "its-provider") > 2_800_000


@WAYS
def test_recorded_tokens_match_archived_turns_of_claude_code(tmp_path, keys):
    """Its archives keep the calls, whose tokens remain in the archive's count."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    for number in range(4):
        talk.user("fix it")
        for call in range(5):
            talk.call(f"t{number}-{call}", arguments={"command": "c" * 400})
            talk.result("r" * 4000, f"t{number}-{call}")
        talk.assistant()
    path = world.put(f"{SESSION}.jsonl", talk.bytes())
    was = tokens(request(path))
    world.scan(**keys)
    saving = was - tokens(request(path))
    rows = sql(world, "SELECT tokens_before, tokens_after FROM archives")
    saved = saved_tokens(world)
    world.close()

    assert saved == pytest.approx(saving, rel=0.1)
    assert len(rows) == (2 if keys else 0)
    for before, after in rows:
        assert before == pytest.approx(RATE * 5 * 4_400, rel=0.1)
        assert after == pytest.approx(RATE * 5 * 440, rel=0.3)


def request(path):
    return [json.loads(line)["message"]["content"] for line in path.read_bytes().splitlines()]


def test_nested_archives_count_only_new_savings(world, look):
    """An archive of archives counts only what it saves in addition; the undo leaves zero."""
    keys = {"archive": {"enabled": True}, "trigger_types": []}
    talk, path = Conversation(), None
    for _ in range(12):
        written = len(talk.bytes()) if path else 0
        add_long_turn(talk)
        before = path.read_bytes() if path else b""
        path = world.put(NAME, before + talk.bytes()[written:])
        with folding(2, depth=4):
            world.scan(**keys)
    first, after = (look(data)["requests"][0] for data in (talk.bytes(), path.read_bytes()))
    saved = saved_tokens(world)

    assert sql(world, "SELECT max(depth) FROM archives")[0][0] > 1
    assert saved == sum(run.facts.get("tokens", 0) for run in world.store.runs.newest(None))
    assert saved == pytest.approx(tokens(first["messages"]) - tokens(after["messages"]), rel=0.1)
    world.restore_all(pristine=True)
    assert saved_tokens(world) == 0
