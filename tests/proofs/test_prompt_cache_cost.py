"""The tokens that an agent pays over twenty turns with a prompt cache, with and without scans."""

import json

import pytest

from brainsurgeon.model.text import iso
from building.prompt_cache import PromptCache
from building.world import Clock, Conversation, World, set_mtime

START = 1_795_000_000
SYSTEM = "s" * 40_000
# By the price of a cached token.
MODELS = {0.1: "claude-opus-4-5", 0.05: "claude-opus-5-5", 0.025: "claude-fable-5-1"}
# Seconds between the turns of a burst, and after it.
GAP, PAUSE = 60, 1200
# Seconds after a turn, or after a pause, in which the daemon scans.
SCANS = (31, 61, 301, 331)


class Agent:
    """An agent that reads its session for every request, as OpenClaw does, and appends to it."""

    def __init__(self, world, cache, clock):
        self.world, self.cache, self.clock = world, cache, clock
        self.path = world.put("s.jsonl", Conversation().bytes())
        self.talk = Conversation()

    def _append(self, add):
        self.clock.now += 2
        add()
        entry = {**self.talk.lines[-1], "timestamp": iso(self.clock.now)}
        with open(self.path, "ab") as file:
            file.write(json.dumps(entry, separators=(",", ":")).encode() + b"\n")
        set_mtime(self.path, self.clock.now)

    def _call(self, add):
        lines = self.path.read_bytes().splitlines()[1:]
        messages = [json.dumps(json.loads(line)["message"].get("content")) for line in lines]
        blocks = [SYSTEM, *messages]
        usage = self.cache.serve(blocks, [1, len(blocks)])
        names = {"plain": "input", "read": "cacheRead", "written": "cacheWrite"}
        usage = {names[key]: tokens for key, tokens in usage.items()} | {"output": 50}

        def with_usage():
            add()
            self.talk.lines[-1]["message"] |= {"usage": usage, "model": MODELS[self.cache.read]}

        self._append(with_usage)

    def turn(self, number, results):
        self._append(lambda: self.talk.user(f"do step {number}"))
        for index, length in enumerate(results):
            ident, text = f"call_{number}_{index}", f"{number}.{index} "
            self._call(lambda ident=ident, text=text: self.talk.call("exec", {"command": text},
                                                                     ident))  # fmt: skip
            text = (text * length)[:length]
            self._append(lambda ident=ident, text=text: self.talk.result(text, call=ident))
        self._call(lambda: self.talk.assistant(f"step {number} is done"))

    def rest(self, seconds, **settings):
        """Advance the clock, with the daemon's scans if there are settings."""
        end = self.clock.now + seconds
        for after in SCANS if settings else ():
            if after < seconds:
                self.clock.now = end - seconds + after
                self.world.scan(**{**settings, "quiet": "30s", "min_reclaim": "1%"})
        self.clock.now = end


def cache_after_turns(base, results, turns=20, read=0.1, **settings):
    """Run an agent's turns in bursts of five; return the cache, which counts the tokens."""
    base.mkdir()
    world, clock = World(base), Clock(START)
    world.clock = clock
    cache = PromptCache(clock, read=read)
    agent = Agent(world, cache, clock)
    for number in range(turns):
        agent.turn(number, results)
        agent.rest(PAUSE if number % 5 == 4 else GAP, **settings)
    world.close()
    return cache


@pytest.mark.parametrize(
    ("results", "read"),
    [((3_000, 9_000), 0.1), ((20_000,), 0.1), ((800,) * 6, 0.1), ((40_000, 700), 0.1),
     ((20_000,), 0.05), ((3_000, 9_000), 0.025)],
)  # fmt: skip
def test_default_when_costs_less_over_twenty_turns(tmp_path, results, read):
    """`when = "pays"` costs less than no scans, and at most 5 % more than the best policy."""
    raw = cache_after_turns(tmp_path / "raw", results, read=read)
    runs = {
        when: cache_after_turns(tmp_path / when, results, read=read, when=when)
        for when in ("pays", "cold", "always")
    }

    assert runs["pays"].paid < raw.paid
    assert runs["cold"].paid < raw.paid
    assert runs["pays"].paid <= 1.05 * min(cache.paid for cache in runs.values())
    assert runs["pays"].sent < raw.sent


@pytest.mark.parametrize("turns", [1, 2, 3])
@pytest.mark.parametrize("results", [(3_000, 9_000), (700,), (40_000, 700), ()])
def test_short_session_costs_at_most_one_percent_more(tmp_path, turns, results):
    """A session of one to three turns, too short to gain, costs no more than 1 % extra."""
    raw = cache_after_turns(tmp_path / "raw", results, turns)

    assert cache_after_turns(tmp_path / "pays", results, turns, when="pays").paid <= 1.01 * raw.paid
