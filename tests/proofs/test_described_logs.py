"""Logs that are only described, through the whole program: scan, evidence, restore, undo."""

import base64
import json
import os
import re
import time

import pytest

from brainsurgeon import agents, api
from brainsurgeon.agents.described import described_format
from brainsurgeon.lookup.scope import Scope
from building.mcp_agent import call_tool
from building.world import SAMPLES, append, dump

LOGS = sorted((SAMPLES / "described").iterdir())
RULES = {"keep_recent": 0, "min_value_length": 300, "when": "always"}
PLACEHOLDER = re.compile(rb"\[\[extracted-([^\]]+)\]\]")
each_log = pytest.mark.parametrize("log", LOGS, ids=lambda log: log.stem)


@each_log
def test_a_described_log_is_pruned_and_restored_to_the_byte(world, log):
    """A second scan finds nothing; at the end, bytes and times are those of before."""
    path = world.put("log.jsonl", log.read_bytes())
    before, times = path.read_bytes(), path.stat().st_mtime_ns

    assert world.scan(**RULES).sessions_changed == 1
    pruned = path.read_bytes()
    assert pruned.count(b"[[extracted-") >= 3
    assert world.scan(**RULES).sessions_changed == 0
    assert path.read_bytes() == pruned
    world.restore_all(pristine=True)
    assert path.read_bytes() == before
    assert path.stat().st_mtime_ns == times


ENDS = {
    "BOM": lambda data: b"\xef\xbb\xbf" + data,
    "CRLF": lambda data: data.replace(b"\n", b"\r\n"),
    "blank lines": lambda data: data.replace(b"\n", b"\n\n") + b"\n",
    "half a line": lambda data: data + data.splitlines()[-1][:40],
    "no newline": lambda data: data.rstrip(b"\n"),
    "no UTF-8": lambda data: data + b'{"role":"user","content":"\xff"}\n',
}


@pytest.mark.parametrize("change", ENDS.values(), ids=ENDS)
def test_a_described_log_may_have_odd_bytes_around_its_entries(world, change):
    """They stay, and the other lines are pruned and restored as ever."""
    before = change((SAMPLES / "described" / "openai-chat-nanobot.jsonl").read_bytes())
    path = world.put("log.jsonl", before)
    world.clock = lambda: time.time() + 3 * 86_400  # a turn that is open by then was left

    assert world.scan(**RULES).sessions_changed == 1
    pruned = path.read_bytes()
    assert pruned.count(b"[[extracted-") >= 3
    assert world.scan(**RULES).sessions_changed == 0
    assert path.read_bytes() == pruned
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


@each_log
def test_a_value_of_a_described_log_comes_back_alone(world, log):
    """It stays for a while, as its entry says; a pinned entry is never extracted."""
    path = world.put("log.jsonl", log.read_bytes())
    world.scan(**RULES)
    ident = PLACEHOLDER.search(path.read_bytes())[1].decode()
    line = next(line for line in path.read_bytes().splitlines() if ident.encode() in line)
    number = path.read_bytes().splitlines().index(line)

    world.restore(ident)
    entry = json.loads(path.read_bytes().splitlines()[number])
    assert entry.pop("_restored")
    assert entry == json.loads(log.read_bytes().splitlines()[number])
    api.set_extractable(world.settings(), world.store, ident, False, clock=world.clock)
    world.clock = lambda: time.time() + 7200
    world.scan(**RULES)
    entry = json.loads(path.read_bytes().splitlines()[number])
    assert entry["_extractable"] is False
    assert PLACEHOLDER.search(path.read_bytes().splitlines()[number]) is None


@each_log
def test_evidence_of_a_described_log_has_each_call_with_its_result(world, log):
    """Before and after an extraction, it is the same."""
    world.put("log.jsonl", log.read_bytes())
    before = api.evidence(world.settings(), world.store, "log", world.clock())

    world.scan(**RULES)
    after = api.evidence(world.settings(), world.store, "log", world.clock())

    assert len(before.index) >= 2
    assert not [line for line in before.index if "unknown" in line]
    assert after == before


@pytest.mark.parametrize("covers", [True, False])
def test_signed_thinking_that_covers_the_request_defers_the_session(world, covers):
    """Its signature would break, and nobody knows whether the agent could do without it."""
    signature = base64.b64encode(bytes([*([0x08, 4] if covers else []), 0x12, 2, 9, 9])).decode()
    lines = (SAMPLES / "described" / "openai-chat-nanobot.jsonl").read_bytes()
    signed = {"type": "thinking", "thinking": "hm", "signature": signature}
    path = world.put("log.jsonl", lines)
    append(path, [
        {"role": "user", "content": "go on"},
        {"role": "assistant", "content": [signed, {"type": "text", "text": "well"}]},
    ])  # fmt: skip
    os.utime(path, (time.time() - 60,) * 2)

    report = world.scan(**RULES)

    assert (report.sessions_changed, report.files_deferred) == ((0, 1) if covers else (1, 0))
    assert (b"[[extracted-" in path.read_bytes()) is not covers


SCREEN = {"unsent": "screen"}
PLAN = {"texts": ["body", "plan"]}
THOUGHT = {"thinking": "plan"}


@pytest.fixture
def describe():
    """Return what describes a format, in place of the description before."""
    table = {
        "recognise": [{"who": "user", "made": "*"}],
        "entries": [{"role": role, "when": {"who": who}} for who, role in
                    (("user", "prompt"), ("tool", "result"), ("bot", "reply"))],
        "texts": "body",
    }  # fmt: skip
    yield lambda more: agents.learn([described_format("mine", {**table, **more})])
    agents.learn([])


@pytest.mark.parametrize("ids", [{}, {"id": "uid"}], ids=["without ids", "with ids"])
@pytest.mark.parametrize(
    ("former", "now"),
    [({}, SCREEN), (SCREEN, {}), ({}, PLAN), (PLAN, {}), ({}, THOUGHT), (THOUGHT, {})],
)
def test_values_come_back_after_their_description_has_changed(world, describe, former, now, ids):
    """What one description reaches is restored under another, also after a scan by that one."""
    said = [("user", "go"), ("tool", "x" * 800), ("bot", "ok")] * 3
    lines = [
        {"who": who, "uid": f"u{number}", "made": f"2026-11-0{1 + number}T10:00:00Z", "body": text,
         "screen": "y" * 700, "plan": "z" * 900}
        for number, (who, text) in enumerate(said)
    ]  # fmt: skip
    before = b"".join(map(dump, lines))
    path = world.put("log.jsonl", before)
    for again in (False, True):
        describe({**ids, **former})
        world.clock = lambda late=again: time.time() + 86_400 * late
        assert world.scan(**RULES).sessions_changed == 1
        describe({**ids, **now})
        if again:
            world.scan(**RULES)
        world.restore_all(pristine=True)

        assert path.read_bytes() == before


@pytest.mark.parametrize("session", [{}, {"session": "run"}], ids=["no session id", "session id"])
@pytest.mark.parametrize("order", ["dropped", "inserted", "swapped"])
def test_values_of_a_log_without_ids_come_back_from_other_lines(world, describe, order, session):
    """A value is known by its placeholder, also where another entry has the number of its line."""
    describe(session)
    said = [("user", "go"), ("tool", "{} " * 300), ("bot", "ok")]
    turns = [
        b"".join(dump({"who": who, "run": "r", "made": 1, "body": text.format(*[turn] * 300)})
                 for who, text in said) for turn in range(6)
    ]  # fmt: skip
    moved = {
        "dropped": [0, 2, 3, 4, 5],
        "inserted": [0, 6, 1, 2, 3, 4, 5],
        "swapped": [0, 3, 2, 1, 4, 5],
    }[order]
    turns.append(turns[5].replace(b"5 ", b"7 "))
    path = world.put("log.jsonl", b"".join(turns[:6]))
    world.scan(**RULES)
    pruned = path.read_bytes().splitlines(keepends=True)
    pruned += turns[6].splitlines(keepends=True)
    path.write_bytes(b"".join(line for turn in moved for line in pruned[turn * 3 : turn * 3 + 3]))
    world.scan(**RULES)
    world.restore_all(pristine=True)

    assert path.read_bytes() == b"".join(turns[turn] for turn in moved)


LONG = "k" * 80


@pytest.mark.parametrize(
    ("more", "fields"),
    [
        ({"id": "uid", "texts": ["body", "uid"]}, {"uid": "{} " + LONG}),
        ({"id": "uid", "texts": ["body", "*"]}, {"uid": "{} " + LONG}),
        ({"unsent": "made"}, {"made": "2026-11-01T10:00:00.00000{}+00:00"}),
        ({"recognise": [{"sort": [LONG]}], "unsent": "sort"}, {"sort": LONG}),
        ({"id": f"[sort={LONG}].uid", "unsent": "sort"}, {"sort": LONG, "uid": "{}"}),
        ({"results": [{"at": "call", "texts": ["said", "name"]}]},
         {"call": {"id": "{}", "name": LONG, "said": LONG}}),
        ({"texts": ["body", "picture"]},
         {"picture": {"type": "image", "source": {"type": "base64", "data": LONG * 9}}}),
        ({"unsent": "parts.*.source.data", "texts": ["body", "parts"]},
         {"parts": [{"type": "image", "source": {"type": "base64", "data": LONG * 9}}]}),
        ({"texts": ["body", "parts"]}, {"parts": [{"text": LONG * 9, "signature": LONG * 9}]}),
    ],
)  # fmt: skip
def test_a_wrong_description_extracts_no_name_of_an_entry(world, describe, more, fields):
    """A value that is a name, a role, a time or a signature stays; all others come back."""
    describe(more)
    said = [("user", "go"), ("tool", "x" * 800), ("bot", "ok")] * 3
    lines = [
        {"who": who, "made": "2026-11-01", "body": text}
        | json.loads(json.dumps(fields).replace("{}", str(number)))
        for number, (who, text) in enumerate(said)
    ]  # fmt: skip
    before = b"".join(map(dump, lines))
    path = world.put("log.jsonl", before)

    world.scan(**RULES | {"min_value_length": 30})
    pruned = [json.loads(line) for line in path.read_bytes().splitlines()]
    assert all(line["body"].startswith("[[extracted-") for line in pruned[1:6:3])
    assert all(line.get("uid") == old.get("uid") for line, old in zip(pruned, lines, strict=True))
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("now", [{}, {"texts": "plan"}, {"entries": [
    {"role": role, "when": {"who": who}} for who, role in
    (("user", "prompt"), ("tool", "aside"), ("bot", "reply"))]}])  # fmt: skip
def test_placeholders_that_another_description_leaves_are_named(world, describe, now):
    """If entries have other ids by it; under the former description, the values come back."""
    former = {"id": "uid", "session": "run"}
    said = [("user", "go"), ("tool", "x" * 800), ("bot", "ok")] * 3
    lines = [{"who": who, "uid": f"u{number}", "other": f"o{number}", "run": "r", "made": 1,
              "body": text} for number, (who, text) in enumerate(said)]  # fmt: skip
    before = b"".join(map(dump, lines))
    path = world.put("log.jsonl", before)
    describe(former)
    world.scan(**RULES)
    describe({"id": "other", **now})
    [outcome] = world.restore_all(pristine=True)

    assert outcome.left
    assert path.read_bytes() != before
    describe(former)
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


def openai_turn(name, arguments, answer):
    return [
        {"role": "user", "content": "what was it?"},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "own", "type": "function",
             "function": {"name": name, "arguments": json.dumps(arguments)}}]},
        {"role": "tool", "tool_call_id": "own", "name": name, "content": answer},
        {"role": "assistant", "content": "That."},
        *[{"role": role, "content": "go on"} for role in ("user", "assistant")] * 2,
    ]  # fmt: skip


def qwen_turn(name, arguments, answer):
    line = lambda kind, *parts: {  # noqa: E731
        "uuid": os.urandom(16).hex(), "sessionId": "s", "type": kind,
        "message": {"role": kind, "parts": list(parts)},
    }  # fmt: skip
    return [
        line("user", {"text": "what was it?"}),
        line("assistant", {"functionCall": {"id": "own", "name": name, "args": arguments}}),
        line("tool_result", {"functionResponse": {
            "id": "own", "name": name, "response": {"output": answer}}}),
        line("assistant", {"text": "That."}),
        *[line(kind, {"text": "go on"}) for kind in ("user", "assistant") * 2],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("log", "turn"),
    [("openai-chat-nanobot", openai_turn), ("qwen-code", qwen_turn)],
)
def test_our_own_call_in_a_described_log_is_redacted(world, log, turn):
    """The value comes back through the tool; call and answer are shortened, and can be undone."""
    path = world.put("log.jsonl", (SAMPLES / "described" / f"{log}.jsonl").read_bytes())
    world.scan(**RULES)
    ident = PLACEHOLDER.search(path.read_bytes())[1].decode()
    arguments = {"action": "restore", "entry": ident, "session": str(path)}
    tool = "mcp_brainsurgeon_purge_control"
    append(path, turn(tool, arguments, "")[:2])
    os.utime(path)
    failed, answer = call_tool(world.settings(), Scope(), arguments)
    assert not failed, answer
    assert json.loads(answer)["redacted"] is True
    append(path, turn(tool, arguments, answer)[2:])
    os.utime(path, (time.time() - 60,) * 2)

    world.scan(**RULES)
    lines = path.read_bytes().splitlines()

    redacted = [json.loads(line) for line in lines if b'"_redacted"' in line]
    assert len(redacted) == 2
    assert f"Restored {ident}." in json.dumps(redacted[1])
    assert answer not in json.dumps(redacted[1])
    assert f"[[extracted-{ident}]]" not in path.read_text()
    world.restore_all(pristine=True)
    assert b"_redacted" not in path.read_bytes()
    assert json.dumps(answer, ensure_ascii=False) in path.read_text()
