"""Live: sessions too long for their model, made usable again by `relieve`."""

import json
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from proofs.live.agents import TOOLS, pi
from proofs.live.binding import BROKEN
from proofs.live.bounded import Bounded, tokens_of
from proofs.live.pi import Pi
from proofs.live.program import lines_of

pytestmark = pytest.mark.long(proves=("planning", "formats", "rewrite", "operations"))

MODEL = "claude-sonnet-4-5"
SIGNING = "claude-fable-5-1"
QUIET = 1
# Tokens that the small window leaves beside what the first request of a session holds.
SPARE = 5_000


EVERY = pytest.mark.parametrize("kind", TOOLS, ids=lambda kind: kind.__name__)


class Person:
    """A user of an agent who has brainsurgeon."""

    def __init__(self, base, start, model, kind, settings="", name=MODEL):
        self.model, self.tool, self.base = model, TOOLS[kind], base
        self.agent, roots = kind(base, start, model, name)
        self.settings = (
            f'state_dir = "{base}/state"\nquiet_seconds = {QUIET}\nabandoned_after_seconds = 2\n'
            f'{settings}\n[[roots]]\npath = "{roots}"\n'
        )
        self.with_window(None)

    def with_window(self, tokens):
        self.model.window = tokens
        windows = f'[windows]\n"claude-*" = {tokens}\n' if tokens else ""
        (self.base / "config.toml").write_text(self.settings + windows)

    @property
    def session(self):
        agent = self.agent
        return str(agent.path) if isinstance(agent, Pi) else agent.session

    def printing(self, tag, lines=200):
        command = lines_of(tag, lines)
        return self.tool, {"command": command, "description": "print"}

    def asks(self, *rounds):
        """Do one turn; return its requests if it came to its end, else an empty list."""
        with suppress(AssertionError):
            self.agent.turn(*rounds)
        requests = self.model.of(max(self.model.plans))
        return requests if len(requests) == len(rounds) + 1 else []

    def runs(self, *words):
        """Run brainsurgeon once the session is idle; return its exit code and output."""
        time.sleep(QUIET + 2.5)
        process = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", *words], env=self.agent.environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        print(words, process.returncode, process.stdout, process.stderr)
        return process.returncode, process.stdout

    def fills(self, turns=5, lines=200):
        """Do some turns; return the tokens of the first request."""
        first = None
        for number in range(turns):
            calls = [self.printing(number, lines)], [self.printing(f"{number} too", lines)]
            requests = self.asks(*calls)
            assert requests, self.model.refused
            first = first or tokens_of(requests[0])
        return first


@EVERY
def test_relieve_makes_a_too_long_session_usable(tmp_path, start, kind):
    """A session that is refused at every prompt answers the next one after `relieve`.

    No model is called for it, and `restore --all --pristine` succeeds. The tokens recorded for the
    run are within 10 % of the difference between the requests (checked for pi only: Claude Code
    drops old turns by itself between the two).
    """
    with Bounded() as model:
        person = Person(tmp_path, start, model, kind)
        person.with_window(person.fills() + SPARE)
        assert not person.asks()
        assert not person.asks()
        refusals = len(model.too_long)
        code, output = person.runs("relieve", person.session, "--to", "95%", "--json")
        assert code == 0, output
        assert len(model.too_long) == refusals
        answered = person.asks([person.printing("after", lines=20)])
        assert answered, model.refused
        assert tokens_of(answered[-1]) <= model.window
        if kind is pi:
            code, output = person.runs("history", "--json")
            difference = max(model.too_long) - tokens_of(answered[0])
            assert json.loads(output)["runs"][-1]["tokens"] == pytest.approx(difference, rel=0.1)
        code, output = person.runs("restore", "--all", "--pristine", "--json")
        assert code == 0, output


@EVERY
def test_relieve_extracts_a_huge_result_of_the_newest_turn(tmp_path, start, kind):
    """A result that fills the window by itself is extracted, although it is the newest."""
    with Bounded() as model:
        person = Person(tmp_path, start, model, kind)
        person.with_window(person.fills(1, lines=20) + SPARE)
        giant = person.printing("giant", lines=650)
        assert not person.asks([giant])
        assert not person.asks()
        code, output = person.runs("relieve", person.session, "--to", "95%", "--json")
        assert code == 0, output
        assert person.asks(), model.refused


def test_relieve_signatures_repairs_a_broken_signature(tmp_path, start):
    """A session whose prompts fail for an invalid signature answers again."""
    with Bounded() as model:
        unaware = 'keep_recent = 2\nmin_reclaim = 0\nsigned_models = ["!*"]'
        person = Person(tmp_path, start, model, pi, unaware, name=SIGNING)
        person.fills(4)
        assert person.runs("scan", "--once")[0] == 0
        assert not person.asks()
        assert any(BROKEN in problem for problem in model.refused), model.refused
        person.settings = person.settings.replace('signed_models = ["!*"]', "")
        person.with_window(None)
        code, output = person.runs("relieve", person.session, "--signatures", "--json")
        assert code == 0, output
        assert person.asks(), model.refused[-1]


@EVERY
def test_relieve_fails_if_the_system_prompt_fills_the_window(tmp_path, start, kind):
    """`relieve` exits with 1, and the session answers once the window is large enough."""
    with Bounded() as model:
        person = Person(tmp_path, start, model, kind)
        fixed = person.fills(3)
        person.with_window(fixed // 4)
        assert not person.asks()
        code, output = person.runs("relieve", person.session, "--json")
        assert code == 1, output
        assert json.loads(output)
        person.with_window(None)
        assert person.asks(), model.refused
