"""Live: the tokens that real agents pay for twenty turns, with and without brainsurgeon."""

import json
from contextlib import closing

import pytest

from brainsurgeon import config
from brainsurgeon.model.providers import LIFE
from brainsurgeon.operations.estimate import estimate
from brainsurgeon.operations.scan import scan
from brainsurgeon.store import open_store, open_to_read
from building.claw import plain_connection
from proofs.agent_packages import OPENCLAW_LATEST
from proofs.live.agents import TOOLS
from proofs.live.caching import Caching
from proofs.live.claw_messages import OnMessages
from proofs.live.databases import events
from proofs.live.program import lines_of
from proofs.live.slow_clock import SlowClock

pytestmark = pytest.mark.long(proves=("planning", "formats", "rewrite", "operations"))

TURNS, BURST = 20, 5
# Turns that fill a small window several times.
LARGE_TURNS = 8


def printing(tool, tag, lines):
    command = lines_of(tag, lines)
    return tool, {"command": command, "description": "print"}


class Talk:
    """One agent with one session on a model with a prompt cache."""

    def __init__(self, base, start, kind, model, clock):
        self.model, self.tool, self.clock = model, TOOLS[kind], clock
        self.agent, self.roots = kind(base, start, model, "claude-sonnet-4-5", clock.environment)
        self.settings = settings(base, self.roots)

    def run(self, turns, scans):
        """Do the turns in bursts with pauses, with scans at the times of a daemon."""
        with open_store(self.settings.state_dir) as store:
            for number in range(turns):
                rounds = [
                    [printing(self.tool, f"{number} {part}", lines)]
                    for part, lines in enumerate((100, 300, 20))
                ]
                self.agent.turn(*rounds)
                self.clock.date(self.roots)
                self._rest(self.settings.quiet, store, scans)
                if number % BURST == BURST - 1 and number < turns - 1:
                    self._rest(LIFE, store, scans)
        assert self.model.refused == []

    def _rest(self, seconds, store, scans):
        self.clock.jump(seconds)
        if scans:
            report = scan(self.settings, store, clock=self.clock)
            assert report.files_failed == 0


def settings(base, roots):
    return config.Settings.model_validate({
        "roots": [{"path": str(roots)}], "state_dir": str(base / "state"),
    })  # fmt: skip


def paid(base, start, kind, turns, *, scans):
    """Return the cache after a run of turns, and what `estimate` prints for it."""
    base.mkdir()
    clock = SlowClock(base)
    with Caching(clock) as model:
        talk = Talk(base, start, kind, model, clock)
        talk.run(turns, scans)
        estimated = estimate(talk.settings, open_to_read(talk.settings.state_dir), (), clock())
    return model.cache, estimated


@pytest.mark.parametrize("kind", TOOLS, ids=lambda kind: kind.__name__)
def test_default_configuration_costs_less_over_twenty_turns(tmp_path, start, kind):
    """Turns in bursts cost fewer input tokens, by the share that `estimate` printed."""
    raw, estimated_costs = paid(tmp_path / "without", start, kind, TURNS, scans=False)
    with_us, _ = paid(tmp_path / "with", start, kind, TURNS, scans=True)

    estimated = (
        estimated_costs.policies["configured"].tokens_paid
        / estimated_costs.policies["raw"].tokens_paid
    )
    print(
        f"{kind.__name__}: {raw.paid:,.0f} input tokens paid without, {with_us.paid:,.0f} with "
        f"({with_us.paid / raw.paid:.1%}); {raw.sent:,} and {with_us.sent:,} sent; an estimate "
        f"from the run without says {estimated:.1%}"
    )
    assert with_us.paid < raw.paid
    assert with_us.sent < raw.sent
    assert estimated == pytest.approx(with_us.paid / raw.paid, abs=0.06)


@pytest.mark.parametrize("kind", TOOLS, ids=lambda kind: kind.__name__)
def test_two_turns_cost_at_most_one_percent_more(tmp_path, start, kind):
    """A session too short to gain costs at most 1 % more with brainsurgeon."""
    raw, _ = paid(tmp_path / "without", start, kind, 2, scans=False)
    with_us, _ = paid(tmp_path / "with", start, kind, 2, scans=True)

    print(f"{kind.__name__}: {with_us.paid / raw.paid:.1%} of the price without")
    assert with_us.paid <= 1.01 * raw.paid


class Lenient(Caching):
    """Accepts prompts that begin with an answer: OpenClaw may leave out the oldest messages."""

    def _check(self, request):
        messages = [{"role": "user", "content": "the rest"}, *request["messages"]]
        super()._check({**request, "messages": messages})


class Narrow(OnMessages):
    """A gateway whose model has a small window, and whose summaries may have any form."""

    window = 64_000

    def _configure(self):
        super()._configure()
        path = self.state / "openclaw.json"
        settings = json.loads(path.read_text())
        settings["agents"]["defaults"]["compaction"] = {"mode": "default"}
        path.write_text(json.dumps(settings))


def compactions(base, start, *, scans):
    """Return how often the agent compacted its session in some turns with large results."""
    base.mkdir()
    clock = SlowClock(base)
    with Lenient(clock) as model:
        agent = Narrow(base, start, model, OPENCLAW_LATEST)
        agent.environment |= clock.environment
        agent.open()
        used = settings(base, agent.state / "agents")
        with open_store(used.state_dir) as store:
            for number in range(LARGE_TURNS):
                agent.turn(*([printing("exec", f"{number} {part}", 600)] for part in range(6)))
                clock.jump(2 * used.quiet)
                if scans:
                    assert scan(used, store, clock=clock).files_failed == 0
    with closing(
        plain_connection(agent.state / "agents/main/agent/openclaw-agent.sqlite")
    ) as database:
        types = [json.loads(text)["type"] for *_, text in events(database)]
    return types.count("compaction")


def test_openclaw_compacts_less_often_with_brainsurgeon(tmp_path, start):
    """This holds for a window of 64,000 tokens and turns with large results."""
    without = compactions(tmp_path / "without", start, scans=False)
    with_us = compactions(tmp_path / "with", start, scans=True)

    print(f"{without} compactions in {LARGE_TURNS} turns without, {with_us} with")
    assert with_us < without
