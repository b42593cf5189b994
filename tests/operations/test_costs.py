"""Costs of sessions, by the model calls that they record."""

import itertools
import json
import time
from contextlib import closing

import pytest

from brainsurgeon.errors import StoppedError
from brainsurgeon.model.text import iso
from brainsurgeon.model.turns import Spent
from brainsurgeon.operations.sessions import session_costs
from brainsurgeon.operations.status import status
from brainsurgeon.planning.calls import costs_of
from brainsurgeon.render.estimate import costs as render
from brainsurgeon.render.estimate import costs_json
from brainsurgeon.render.formatting import in_json
from brainsurgeon.render.runs import status as status_text
from brainsurgeon.render.runs import status_json
from brainsurgeon.rewrite.signals import count_calls
from brainsurgeon.sessions.discovery import discover_at, open_session
from brainsurgeon.sessions.transcripts import Transcripts
from brainsurgeon.store import open_store
from building.cached_conversation import CachedConversation
from building.claude import SESSION, ClaudeConversation, ClaudeWorld
from building.claw import ClawWorld
from building.world import SAMPLES, Conversation, appending, fork, sql

PRICE = {"input": 4, "cache_read": 0.2, "cache_write": 5, "output": 20}
USAGE = {"input_tokens": 1_000, "output_tokens": 100, "cache_read_input_tokens": 0,
         "cache_creation_input_tokens": 0}  # fmt: skip


def cost(world, name="main/s", **keys):
    return session_costs(world.settings(**keys), world.no_store, name)


def spend(talk, dollars, model="claude-opus-4-5", **fields):
    talk.assistant(**fields)
    talk.lines[-1]["message"] |= {"model": model, "usage": {
        "input": 1_000, "output": 100, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 1_100,
        "cost": {"input": dollars / 2, "output": dollars / 2, "total": dollars},
    }}  # fmt: skip


def one_call():
    """Return a conversation of one call that cost half a dollar."""
    talk = Conversation()
    talk.user()
    spend(talk, 0.50)
    return talk


def open_file(world, path, *check_stop):
    return open_session(discover_at(world.settings().root_directories(), str(path)), *check_stop)


def test_recorded_costs_take_precedence_over_prices(world):
    """A call costs what its agent recorded, else what `[prices]` says, else it is unknown."""
    talk = Conversation()
    for dollars, model in ((0.5, "opus"), (0.0, "opus"), (0.0, "house-1"), (0.25, "haiku")):
        talk.user()
        spend(talk, dollars, model)
    world.put("s.jsonl", talk.bytes())
    costs = cost(world, prices={"OPUS": PRICE}).models

    counts = [(one.model, one.turns_answered, one.calls, one.calls_unpriced) for one in costs]
    assert counts == [
        ("opus", 2, 2, 0), ("haiku", 1, 1, 0), ("house-1", 1, 1, 1),
    ]  # fmt: skip
    assert [model.cost_dollars or 0 for model in costs] == pytest.approx(
        [0.5 + 0.004 + 0.002, 0.25, 0]
    )
    document = costs_json(cost(world))["costs"]
    assert (document["cost_dollars"], document["calls_unpriced"]) == (0.75, 2)
    assert [model["cost_dollars"] for model in document["models"]] == [0.5, 0.25, None]
    text = render(cost(world), world.clock())
    assert text[0] == "cost       $0.75, unknown for 2 calls; 4 recorded calls"
    assert text[-1].split()[-1] == "unknown"
    assert render(cost(world, prices={"haiku": PRICE}), 0)[2].split()[-3:] == ["$0.50", "+", "?"]


def test_impossible_usage_counts_as_zero(world):
    """Token counts and costs that no call can have stop no scan and count as zero."""
    talk = Conversation()
    for odd in (2**63 - 1, 10**298, 1e999, True):
        talk.user()
        spend(talk, odd)
        talk.lines[-1]["message"]["usage"] |= {"cacheRead": odd, "output": odd}
    world.put("s.jsonl", talk.bytes().replace(b"Infinity", b"1e999"))

    assert world.scan().files_failed == 0
    [model] = cost(world, prices={"*": PRICE}).models
    assert (model.calls, model.tokens_sent) == (4, 4_000)
    assert model.cost_dollars == pytest.approx(4 * 0.004)


def test_a_call_with_a_lone_surrogate_in_its_id_counts(tmp_path):
    """JSON may contain half of a surrogate pair, which is not UTF-8."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    talk.user()
    talk.assistant(message="msg\ud800", requestId="r")
    talk.lines[-1]["message"] |= {"model": "m\ud800", "usage": USAGE}
    world.put(
        f"{SESSION}.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in talk.lines)
    )
    world.scan()
    counted = total(world)
    world.close()

    assert counted == (1, 0.0)


def test_each_kind_of_token_has_its_price(world, clock):
    """Input, cache reads, cache writes and output are priced apart."""
    talk = CachedConversation(clock.now)
    for _ in range(2):
        talk.user()
        talk.assistant()
    world.put("s.jsonl", talk.bytes())
    first, second = (line["message"]["usage"] for line in talk.lines if "usage" in str(line))
    paid = (first["cacheWrite"] + second["cacheWrite"]) * 5 + second["cacheRead"] * 0.2 + 40 * 20

    [model] = cost(world, prices={"*": PRICE}).models
    assert model.cost_dollars == pytest.approx(paid / 1e6)


def test_an_aborted_answer_costs_what_is_recorded(world):
    """A refused prompt is no call; an aborted answer costs what its agent recorded."""
    talk = Conversation()
    talk.user()
    spend(talk, 0.5, stop="aborted")
    talk.user()
    talk.assistant([], stop="error")
    talk.lines[-1]["message"]["errorMessage"] = "prompt is too long: 210000 tokens > 200000 maximum"
    world.put("s.jsonl", talk.bytes())

    [model] = cost(world, prices={"*": PRICE}).models
    assert (model.calls, model.cost_dollars) == (1, 0.5)


def test_a_message_in_several_lines_and_files_counts_once(tmp_path):
    """The last line has the whole usage; a sub-agent's copy is the same message."""
    world, talk, side = ClaudeWorld(tmp_path), ClaudeConversation(), ClaudeConversation(side=True)
    talk.user()
    for output in (1, 40, 100):
        talk.assistant(message="msg_a", requestId="req_a")
        talk.lines[-1]["message"]["usage"] = USAGE | {"output_tokens": output}
    world.put(f"{SESSION}.jsonl", talk.bytes())
    for message in ("msg_a", "msg_b"):
        side.user("sub work")
        side.assistant(message=message, requestId=message.replace("msg", "req"))
        side.lines[-1]["message"]["usage"] = USAGE
    world.put(f"{SESSION}/subagents/agent-1.jsonl", side.bytes())
    costs = cost(world, SESSION, prices={"*": PRICE})
    world.close()

    [model] = costs.models
    assert (model.calls, model.tokens_answered, costs.subagents) == (2, 200, 1)
    assert model.cost_dollars == pytest.approx(2 * (0.004 + 0.002))
    assert "with 1 sub-agent" in render(costs, 0)[0]


def test_tokens_of_an_advisor_count_for_its_model(tmp_path):
    """The usage of an answer does not include those of its advisor."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    advice = {"type": "advisor_message", "model": "claude-opus-5-5", **USAGE, "input_tokens": 7_000}
    talk.user()
    for number in range(2):  # an answer in two lines
        talk.assistant(message="msg_1")
        talk.lines[-1]["message"] |= {
            "model": "claude-haiku-5-5",
            "usage": {**USAGE, "iterations": [{"type": "message", **USAGE}, *number * [advice]]},
        }  # fmt: skip
    world.put(f"{SESSION}.jsonl", talk.bytes())

    costs = cost(world, SESSION)
    assert {one.model: (one.calls, one.tokens_sent) for one in costs.models} == {
        "claude-haiku-5-5": (1, 1_000), "claude-opus-5-5": (1, 7_000)
    }  # fmt: skip
    world.scan()
    models = status(world.settings(), world.store, time.time()).tokens.models
    assert sum(one.tokens_sent for one in models) == 8_000
    world.close()


def test_the_total_equals_the_cost_state_of_claude_code(world):
    """A session of 2.1.330 with its sub-agent costs what the agent itself recorded.

    The known price of its model is the one that the agent used.
    """
    roots = [{"path": str(SAMPLES / "claude-code" / "projects")}]
    costs = cost(world, "5a5a5a5a-0001", roots=roots, prices={"claude-opus-5-5": PRICE})

    assert sum(model.cost_dollars for model in costs.models) == pytest.approx(0.4686478)
    assert (costs.subagents, costs.stated) == (1, pytest.approx(0.4686478))
    assert render(cost(world, "5a5a5a5a-0001", roots=roots), 0)[0] == (
        "cost       $0.47; 13 recorded calls, with 1 sub-agent; its agent recorded $0.47"
    )


def test_a_message_copied_under_a_new_id_counts_once(world, clock):
    """OpenClaw writes messages again with new ids when it changes its branch."""
    talk = Conversation()
    talk.user()
    for _ in range(2):
        spend(talk, 0.5)
        talk.lines[-1]["message"] |= {"responseId": "resp_1", "timestamp": 1_795_000_000_000}
    world.put("s.jsonl", talk.bytes())

    assert [model.calls for model in cost(world).models] == [1]


def test_compactions_and_cache_expiry_are_shown(world, clock):
    """The last compaction has its time and tokens; the cache is warm until, or cold since."""
    talk = CachedConversation(clock.now - 120)
    for _ in range(2):
        talk.turn()
        load = talk.lines[-1]["message"]["usage"]["totalTokens"]
        talk.entry("compaction", summary="so far", firstKeptEntryId=talk.last, tokensBefore=1)
    talk.turn()
    world.put("s.jsonl", talk.bytes(), age=0)
    costs = cost(world)

    assert costs.compactions[0].tokens_before == load
    assert [compaction.at for compaction in costs.compactions] == [int(talk.at)] * 2
    document = in_json(costs_json(costs))["compactions"]
    assert document[0] == {"at": iso(int(talk.at)), "tokens_before": load}
    assert costs.warm_until == pytest.approx(talk.at + 300, abs=1)
    text = "\n".join(render(costs, clock.now))
    assert "compacted  2 times, last 20" in text
    assert f"at {load:,} tokens" in text
    assert "cache      warm until" in text
    assert "cache      cold since" in "\n".join(render(costs, clock.now + 301))


def test_a_session_without_usage_has_no_cost_line(world):
    """Nothing is printed about costs that are not recorded."""
    talk = Conversation()
    talk.turn()
    world.put("s.jsonl", talk.bytes())

    assert render(cost(world), world.clock()) == []


def total(world, **keys):
    """Return the calls and the dollars that `status` sums up."""
    models = status(world.settings(**keys), world.store, world.clock()).tokens.models
    return sum(model.calls for model in models), sum(model.cost_dollars or 0 for model in models)


def test_status_sums_calls_once_over_scans_and_forks(world):
    """A call counts once over several scans and forks, and prices set later apply."""
    talk = one_call()
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    assert total(world) == (1, 0.5)
    with appending(path, talk):
        talk.user()
        spend(talk, 0.25)
        spend(talk, 0.0, "house-1")
    fork(path, "22222222-0000-4000-8000-000000000002")
    for _ in range(2):
        world.scan()
        world.scan(keep_recent=0)

    assert total(world) == (3, 0.75)
    now = status(world.settings(), world.store, world.clock())
    assert "cost       $0.75, unknown for 1 call; 3 recorded calls" in status_text(now, 0)
    document = status_json(now)["costs"]
    assert (document["cost_dollars"], document["calls"], document["calls_unpriced"]) == (0.75, 3, 1)
    assert total(world, prices={"house-*": PRICE}) == (3, pytest.approx(0.75 + 0.006))


def test_scan_of_a_grown_session_counts_only_new_calls(world):
    """Of a session that grew, each call counts once."""
    world.kept = Transcripts()
    talk = Conversation()
    for _ in range(600):
        talk.user()
        spend(talk, 0.5, content="y" * 900)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    with appending(path, talk):
        talk.user()
        for _ in range(3):
            spend(talk, 0.25)
    world.scan()

    assert total(world) == (603, 300.75)


def test_calls_counted_by_two_processes_count_once(world):
    """If both read the same calls as new, the total has them once."""
    talk = one_call()
    path = world.put("s.jsonl", talk.bytes())
    with closing(open_store(str(world.state))) as other:
        for store in (world.store, other):
            with open_file(world, path) as session:
                count_calls(store, session)
        for store in (world.store, other):
            with store.transaction():
                store.spending.flush()
        assert total(world) == (1, 0.5)

        with appending(path, talk):
            spend(talk, 0.25)
        with open_file(world, path) as session:
            count_calls(other, session)
        with other.transaction():
            other.spending.flush()
    assert total(world) == (2, 0.75)


def test_a_stopped_count_starts_again(world):
    """An interrupted count records nothing, so that no call is taken for counted."""
    talk = Conversation()
    for _ in range(2_000):
        talk.user()
        spend(talk, 0.5, content="y" * 900)
    path = world.put("s.jsonl", talk.bytes())
    looks = itertools.count()

    def check_stop():
        if next(looks) == 1:
            raise StoppedError

    with open_file(world, path, check_stop) as session, pytest.raises(StoppedError):
        count_calls(world.store, session)
    world.scan()

    assert total(world) == (2_000, 1_000)


def test_calls_before_a_message_in_several_lines_count(tmp_path):
    """Claude Code writes a message in several lines; the calls before it are counted."""
    world, talk = ClaudeWorld(tmp_path), ClaudeConversation()
    path = world.put(f"{SESSION}.jsonl", b"")
    for begin in (0, 3):
        with appending(path, talk):
            for number in range(begin, begin + 3):
                talk.user()
                for _ in range(3):
                    talk.assistant(message=f"msg_{number}", requestId="req")
                    talk.lines[-1]["message"]["usage"] = USAGE
        world.scan()

    assert total(world, prices={"*": PRICE}) == (6, pytest.approx(6 * 0.006))
    world.close()


def test_calls_of_sessions_in_a_database_count_once(tmp_path):
    """A second scan adds nothing."""
    world = ClawWorld(tmp_path)
    for _ in range(2):
        world.scan()
        assert total(world) == (25, 0)
    world.close()


def test_a_store_without_counts_reads_sessions_again(world):
    """The counts are a cache: without them the next scan counts every call."""
    talk = one_call()
    world.put("s.jsonl", talk.bytes())
    world.scan()
    for table in ("spending", "counted_calls", "files", "resumes"):
        sql(world, f"DELETE FROM {table}")
    world.scan()

    assert total(world) == (1, 0.5)


def test_sums_of_calls_keep_the_dearer_prompts_apart(world):
    """Above 100,000 tokens, Haiku 5.5 costs five times as much: the sum is that of all calls."""
    talk = Conversation()
    for tokens in (60_000, 140_000):
        talk.user()
        talk.assistant()
        talk.lines[-1]["message"] |= {
            "model": "claude-haiku-5-5", "usage": {"input": tokens, "output": 0},
        }  # fmt: skip
    world.put("one.jsonl", talk.bytes())
    world.scan()

    [model] = costs_of(world.store.spending.total(), ())
    assert (model.calls, model.cost_dollars) == (2, pytest.approx(0.006 + 0.07))


def test_dearest_model_is_named_first():
    """Models are sorted by dollars, not by the tokens that were sent to them."""
    cheap = Spent("cheap", priced=True, calls=1, tokens=9_000, dollars=0.1)
    dear = Spent("dear", priced=True, calls=1, tokens=1_000, dollars=0.5)

    assert [cost.model for cost in costs_of([cheap, dear], ())] == ["dear", "cheap"]
