"""Reasoning of GPT-6.2 in Codex, which OpenAI drops behind each change of a thread."""

import json
import time

import pytest

from brainsurgeon.model.text import iso
from brainsurgeon.operations.estimate import estimate
from brainsurgeon.operations.sessions import session_costs
from building.codex import CodexWorld, thread_id
from building.world import dump

HOUR = 3600
EARLY, LATE = 2000, 24_000  # characters of results


@pytest.fixture
def codex(tmp_path):
    world = CodexWorld(tmp_path)
    yield world
    world.close()


class Thread:
    """A thread whose turns have one call each, with reasoning of `tokens`."""

    def __init__(self, at, model):
        self.at, self.tokens, self.sum, self.lines = at, 4000, 0, []
        self.add("session_meta", id=thread_id(1), cwd="/w")
        self.add("turn_context", model=model)

    def add(self, kind, **payload):
        self.lines.append({"timestamp": iso(self.at), "type": kind, "payload": payload})

    def answer(self, **item):
        number, usage = len(self.lines), {"reasoning_output_tokens": self.tokens}
        self.add(
            "response_item",
            type="reasoning",
            id=f"rs_{number}",
            summary=[],
            encrypted_content="e" * 900,
        )
        self.add("response_item", id=f"msg_{number}", **item)
        before, tokens = self.sum, 10_000 + sum(map(len, map(dump, self.lines))) // 3
        self.sum += tokens
        usage |= {"input_tokens": tokens, "cached_input_tokens": tokens - 100 if before else 0,
                  "output_tokens": 20}  # fmt: skip
        whole = {"input_tokens": self.sum, "output_tokens": number}
        self.add("token_usage_record", usage=usage)
        return lambda: self.add("event_msg", type="token_count", info={
            "last_token_usage": usage, "total_token_usage": whole})  # fmt: skip

    def turn(self, size):
        text, call = "r" * size, f"call_{len(self.lines):020}"
        self.add("response_item", type="message", role="user", id=f"user-{call}",
                 content=[{"type": "input_text", "text": "go on"}])  # fmt: skip
        count = self.answer(type="function_call", name="exec_command", call_id=call, arguments="{}")
        self.add("event_msg", type="exec_command_end", call_id=call, stdout=text)
        self.add("response_item", type="function_call_output", call_id=call, output=text)
        count()
        self.answer(
            type="message", role="assistant", content=[{"type": "output_text", "text": "done."}]
        )()
        return call


@pytest.fixture
def thread(codex):
    def write(model="gpt-6.2-sol", late=LATE):
        talk = Thread(time.time() - 2 * HOUR, model)
        calls = [talk.turn(EARLY), *(talk.turn(10) for _ in range(4))]
        talk.tokens = 200
        calls += [talk.turn(late), talk.turn(10), talk.turn(10)]
        name = f"rollout-2026-11-28T18-23-31-{thread_id(1)}.jsonl"
        return codex.put(name, b"".join(map(dump, talk.lines)), age=2 * HOUR), calls[0], calls[5]

    return write


def taken(path):
    lines = [json.loads(line)["payload"] for line in path.read_bytes().splitlines()]
    return {
        f"{item['call_id']} {key}" for item in lines for key in ("output", "stdout")
        if str(item.get(key)).startswith("[[extracted-")
    }  # fmt: skip


def test_late_results_and_unsent_copies_leave_first(codex, thread):
    """An early result stays while the reasoning behind it is worth more; all reasoning stays."""
    path, early, late = thread()
    before = path.read_bytes().count(b"encrypted_content")
    codex.scan()

    assert taken(path) == {f"{early} stdout", f"{late} stdout", f"{late} output"}
    assert path.read_bytes().count(b"encrypted_content") == before


def test_early_results_leave_where_no_reasoning_is_lost(codex, thread):
    """Models before GPT-6.2 keep their reasoning, so the oldest results leave, too."""
    path, early, _ = thread("gpt-5.5")
    codex.scan()

    assert f"{early} output" in taken(path)


def test_calls_have_the_model_of_their_turn(codex, thread):
    """Only the context of a turn names it; each call counts once, with its price."""
    path, *_ = thread()
    [cost] = session_costs(codex.settings(), codex.store, thread_id(1)).models
    [found] = estimate(codex.settings(), codex.store, [str(path)], codex.clock()).sessions

    assert (cost.model, cost.calls) == ("gpt-6.2-sol", 16)
    assert cost.cost_dollars > 0
    assert found.policies["always"].reasoning_lost > found.policies["configured"].reasoning_lost
