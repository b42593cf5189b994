"""Live: a cache that the newest pi keeps warm, and what it or its provider leaves out."""

import json

import pytest

from brainsurgeon import config
from brainsurgeon.agents import FORMATS
from brainsurgeon.model.providers import LIFE
from brainsurgeon.model.text import parse_time
from brainsurgeon.operations.scan import scan
from brainsurgeon.store import open_store
from building.format_reading import Reading
from proofs.live.caching import Caching
from proofs.live.messages import Messages
from proofs.live.pi import Pi
from proofs.live.program import configure, lines_of, ours, wait
from proofs.live.responses import Reasoning
from proofs.live.slow_clock import SlowClock

pytestmark = pytest.mark.long(proves=("formats", "planning", "operations"))

# pi warms a cache that its model calls dear, a second (of the machine) after the last call.
WARMED = {
    "promptCache": {"short": 11}, "compat": {"forceAdaptiveThinking": True},
    "cost": {"input": 1000, "output": 1, "cacheRead": 1, "cacheWrite": 1000},
}  # fmt: skip


def entries(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def warmings(path):
    return [entry for entry in entries(path) if entry.get("kind") == "cache_warm"]


def printing(tag, lines=100):
    return "bash", {"command": lines_of(tag, lines)}


def extracted(base, sessions, now):
    """Return how many values a scan at a time extracts, with a store of its own."""
    settings = config.Settings.model_validate({
        "roots": [{"path": str(sessions)}], "state_dir": str(base / f"state at {now}"),
        "when": "cold",
    })  # fmt: skip
    with open_store(settings.state_dir) as store:
        report = scan(settings, store, clock=lambda: now)
    assert report.files_failed == 0
    return report.values_extracted


def test_a_cache_that_pi_keeps_warm_is_not_extracted_as_cold(tmp_path):
    """It is cold five minutes after pi's last call to warm it, not after the last answer."""
    clock = SlowClock(tmp_path)
    with Caching(clock) as model:
        pi = Pi(tmp_path, model, "claude-sonnet-4-5", **WARMED)
        pi.environment |= clock.environment
        with pi.conversation() as running:
            running.turn(*([printing(number)] for number in range(4)))
            wait("pi warms the cache", lambda: warmings(pi.path))
        assert model.refused == []
    clock.date(pi.sessions)
    lines = pi.path.read_bytes().splitlines(keepends=True)
    count = len(warmings(pi.path))
    answer, last = (
        parse_time(json.loads(line)["timestamp"]) for line in (lines[-count - 1], lines[-1])
    )
    between, after = LIFE + (answer + last) / 2, LIFE + last + 1
    assert json.loads(lines[-count - 1])["message"]["role"] == "assistant"
    without = tmp_path / "without" / "sessions" / "s.jsonl"
    without.parent.mkdir(parents=True)
    without.write_bytes(b"".join(lines[:-count]))
    clock.date(without.parent)

    assert extracted(tmp_path, without.parent, between) > 0
    assert extracted(tmp_path, pi.sessions, between) == 0
    assert extracted(tmp_path, pi.sessions, after) > 0
    print(f"{count} calls kept the cache warm, {last - answer:.1f} s longer than the answer")


def test_reasoning_left_out_behind_an_extraction_is_shown(tmp_path):
    """The provider leaves out what pi recorded as `prefix_mismatch`, and `sessions` counts it."""
    with Reasoning() as model:
        pi = Pi(tmp_path, model, "gpt-6.2-sol", "openai-responses")
        configure(tmp_path, pi.sessions, when="always")
        for number in range(3):
            pi.turn(printing(number))
        before = json.loads(ours(pi, "sessions", "s1", "--json"))
        ours(pi, "scan", "--once")
        pi.turn(printing("after"))
        after = json.loads(ours(pi, "sessions", "s1", "--json"))
        shown = ours(pi, "sessions", "s1")

    assert "[[extracted-" in json.dumps(model.requests[-1])
    assert before["reasoning_dropped"] == 0 < before["reasoning_lost"]
    assert after["reasoning_dropped"] > 0
    items = after["reasoning_dropped"]
    assert f"{items} items dropped by the provider in the last call: prefix_mismatch" in shown
    print(f"{items} items of reasoning left out behind an extraction")


def thinking_counted(path):
    """Return the characters of thinking that count as sent, but for that of the last answer."""
    transcript = Reading(FORMATS["openclaw"], path.read_bytes()).transcript
    return [
        value.size[0]
        for index, _ in enumerate(transcript.entries)
        for value in transcript.values(index) if value.kind == "thinking"
    ][:-1]  # fmt: skip


def thinking_in(request):
    return [
        len(block["thinking"])
        for message in request["messages"]
        for block in message["content"] if block["type"] == "thinking"
    ]  # fmt: skip


def test_thinking_counts_if_pi_sends_it_to_the_model_of_now(tmp_path):
    """It is left out after a change of the model, and sent again after a return."""
    with Messages() as model:
        pi = Pi(tmp_path, model, "claude-sonnet-4-5")
        place = pi.place / "models.json"
        known = json.loads(place.read_text())
        listed = known["providers"]["loopback"]["models"]
        listed.append({**listed[0], "id": "claude-opus-5-5"})
        place.write_text(json.dumps(known))
        for pi.name in ("claude-sonnet-4-5", "claude-opus-5-5", "claude-sonnet-4-5"):
            last = pi.turn([printing(pi.name)])[-1]
            assert list(filter(None, thinking_counted(pi.path))) == thinking_in(last)
    assert model.refused == []
    assert 0 in thinking_counted(pi.path)
