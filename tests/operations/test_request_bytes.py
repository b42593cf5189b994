"""The bytes of a request: pictures and documents count, and the largest leave first."""

import json

import pytest

from brainsurgeon.model.rules import Budget
from brainsurgeon.operations.relieve import relieve
from brainsurgeon.operations.sessions import context
from brainsurgeon.rewrite.relief import Wanted
from building.claude import ClaudeConversation
from building.processes import run
from building.world import Conversation, pin

LIMIT = {"request_bytes": {"*": 100_000}}


def block(size, kind="document"):
    source = {"type": "base64", "media_type": "application/pdf", "data": "A" * size}
    return {"type": kind, "source": source}


def add_document(talk, size):
    """Add a turn that reads a document, as 2.1.112 writes it; return the id of its line."""
    talk.user()
    talk.call(call=f"toolu_{len(talk.lines)}", tool="Read", arguments={"file_path": "a.pdf"})
    talk.result("PDF file read", call=f"toolu_{len(talk.lines) - 1}")
    ident = talk.user([block(size)], isMeta=True)
    talk.assistant({"type": "text", "text": "I see."})
    return ident


def documents(*sizes):
    talk = ClaudeConversation()
    return talk, [add_document(talk, size) for size in sizes]


def relieved(world, **keys):
    return relieve(world.settings(**keys), world.store, "s", Wanted(), clock=world.clock)


def fullness(world, **keys):
    return context(world.settings(**keys), world.store, "s", world.clock()).full


def extracted(path):
    """Return the ids of the lines from whose content a value was extracted."""
    lines = map(json.loads, path.read_bytes().splitlines())
    return {line["uuid"] for line in lines if "[[extracted-" in json.dumps(line["message"])}


def test_relieve_extracts_the_largest_blocks_first(world, clock):
    """As few as possible leave, whatever their age; text and small pictures stay."""
    talk, idents = documents(3000, 60_000, 8000, 30_000, 7000, 40_000)
    pasted = talk.user([block(20_000, "image"), {"type": "text", "text": "look"}])
    talk.assistant({"type": "text", "text": "y" * 900})
    path = world.put("s.jsonl", talk.bytes())
    before = path.read_bytes()
    full = fullness(world, **LIMIT)
    relief = relieved(world, **LIMIT)

    assert full.pressure < 0.1
    assert full.bytes == pytest.approx(168_000, rel=0.02)
    assert full.is_too_full
    assert relief.fits
    assert extracted(path) == {idents[1], idents[5]}
    assert pasted not in extracted(path)
    assert relief.after.bytes == pytest.approx(fullness(world, **LIMIT).bytes, rel=0.02)
    assert relief.after.bytes <= 75_000
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


def test_refused_request_loses_half_of_its_bytes(world, clock):
    """The refused size is the limit if it is below the known one, and pinned blocks stay."""
    talk, idents = documents(40_000, 20_000, 20_000, 10_000)
    talk.user()
    error = "Request too large (max 32MB). Double press esc to go back."
    details = "request_too_large: 413 Request exceeds the maximum size"
    message = {"model": "<synthetic>"}
    text = {"type": "text", "text": error}
    talk.assistant(text, isApiErrorMessage=True, errorDetails=details, message=message)
    path = world.put("s.jsonl", talk.bytes())
    pin(world, idents[0], False)
    relief = relieved(world)

    assert relief.before.most_bytes == relief.before.bytes == pytest.approx(90_000, rel=0.01)
    assert relief.fits
    assert extracted(path) >= set(idents[1:])
    assert idents[0] not in extracted(path)


def test_relieve_exits_1_if_the_blocks_may_not_leave(world, clock):
    """A pinned document that is too large alone is named by its size, and stays."""
    talk, [ident] = documents(200_000)
    path = world.put("s.jsonl", talk.bytes())
    pin(world, ident, False)
    config = world.config_file()
    config.write_text(config.read_text() + '[request_bytes]\n"*" = "100KB"\n')
    result = run("relieve", "main/s", "--config", config)

    assert result.returncode == 1
    assert "the request: 200.1 KB -> 200.1 KB of 100.0 KB" in result.stdout.decode()
    assert "it still does not fit" in result.stdout.decode()
    assert block(200_000)["source"]["data"] in path.read_bytes().decode()


def test_scan_with_a_budget_relieves_a_request_that_is_too_large(world, clock):
    """Even the newest block, and before the cache is cold; without a budget it stays."""
    talk, idents = documents(9000, 120_000)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(**LIMIT)
    assert idents[1] not in extracted(path)
    report = world.scan(budget={"enabled": True}, **LIMIT)

    assert idents[1] in extracted(path)
    assert report.sessions[0].full.bytes < 75_000


def test_pictures_of_openclaw_count(world, clock):
    """The largest picture of an OpenClaw session leaves as a whole."""
    talk = Conversation()
    for size in (30_000, 90_000, 5000):
        talk.user()
        talk.call("screenshot")
        talk.result("")
        talk.lines[-1]["message"]["content"] = [
            {"type": "image", "data": "A" * size, "mimeType": "image/png"}
        ]
        talk.assistant()
    path = world.put("s.jsonl", talk.bytes())
    relief = relieved(world, **LIMIT)

    assert relief.fits
    assert relief.values == 1
    assert b"A" * 90_000 not in path.read_bytes()
    assert b"A" * 30_000 in path.read_bytes()


def test_limit_is_built_in_for_claude_and_configured_for_others():
    """A configured limit takes precedence; 0 is no limit; other models have none."""
    budget = Budget(request_bytes=(("house-*", 5), ("*haiku*", 0)))

    assert budget.most_bytes("anthropic/Claude-Sonnet-4-5") == 32_000_000
    assert budget.most_bytes("claude-haiku-4-5") is None
    assert budget.most_bytes("House-1") == 5
    assert budget.most_bytes("gpt-5") is budget.most_bytes(None) is None
