"""The live scenario: sessions that are too long for their model, brought back by one command."""

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
    """Somebody who talks to an agent, and has brainsurgeon at hand."""

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
        one = self.agent
        return str(one.path) if isinstance(one, Pi) else one.session

    def printing(self, tag, lines=200):
        command = lines_of(tag, lines)
        return self.tool, {"command": command, "description": "print"}

    def asks(self, *rounds):
        """Do one turn; give its requests where it came to its end, else nothing."""
        with suppress(AssertionError):
            self.agent.turn(*rounds)
        asked = self.model.of(max(self.model.plans))
        return asked if len(asked) == len(rounds) + 1 else []

    def runs(self, *words):
        """Run our program when the session is at rest; give its exit code and what it prints."""
        time.sleep(QUIET + 2.5)
        done = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", *words], env=self.agent.environment,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        print(words, done.returncode, done.stdout, done.stderr)
        return done.returncode, done.stdout

    def fills(self, turns=5, lines=200):
        """Talk for some turns; give the tokens that the first request had."""
        first = None
        for number in range(turns):
            calls = [self.printing(number, lines)], [self.printing(f"{number} too", lines)]
            asked = self.asks(*calls)
            assert asked, self.model.refused
            first = first or tokens_of(asked[0])
        return first


@EVERY
def test_a_session_that_was_too_long_answers_again(tmp_path, start, kind):
    """A session that is refused at every prompt answers the next one after `relieve`.

    Nobody asked a model for it, and `restore --all --pristine` gives back every byte. The tokens
    that the run recorded are those by which the request fell, within a tenth (of pi: Claude Code
    drops old turns by itself between the requests that are compared).
    """
    with Bounded() as model:
        person = Person(tmp_path, start, model, kind)
        person.with_window(person.fills() + SPARE)
        assert not person.asks()
        assert not person.asks()
        asked = len(model.too_long)
        code, said = person.runs("relieve", person.session, "--to", "95%", "--json")
        assert code == 0, said
        assert len(model.too_long) == asked
        answered = person.asks([person.printing("after", lines=20)])
        assert answered, model.refused
        assert tokens_of(answered[-1]) <= model.window
        if kind is pi:
            code, said = person.runs("history", "--json")
            fell = max(model.too_long) - tokens_of(answered[0])
            assert json.loads(said)["runs"][-1]["tokens"] == pytest.approx(fell, rel=0.1)
        code, said = person.runs("restore", "--all", "--pristine", "--json")
        assert code == 0, said


@EVERY
def test_one_giant_result_is_taken_out_of_the_newest_turn(tmp_path, start, kind):
    """A result that fills the window by itself leaves, though it is the newest."""
    with Bounded() as model:
        person = Person(tmp_path, start, model, kind)
        person.with_window(person.fills(1, lines=20) + SPARE)
        giant = person.printing("giant", lines=650)
        assert not person.asks([giant])
        assert not person.asks()
        code, said = person.runs("relieve", person.session, "--to", "95%", "--json")
        assert code == 0, said
        assert person.asks(), model.refused


def test_a_broken_signature_is_taken_out(tmp_path, start):
    """A session that every prompt breaks on, since a signature does not hold, answers again."""
    with Bounded() as model:
        unaware = 'keep_recent = 2\nmin_reclaim = 0\nsigned_models = ["!*"]'
        person = Person(tmp_path, start, model, pi, unaware, name=SIGNING)
        person.fills(4)
        assert person.runs("scan", "--once")[0] == 0
        assert not person.asks()
        assert any(BROKEN in one for one in model.refused), model.refused
        person.settings = person.settings.replace('signed_models = ["!*"]', "")
        person.with_window(None)
        code, said = person.runs("relieve", person.session, "--signatures", "--json")
        assert code == 0, said
        assert person.asks(), model.refused[-1]


@EVERY
def test_a_session_that_cannot_fit_says_so_and_stays_valid(tmp_path, start, kind):
    """Where the system prompt alone fills the window `relieve` ends with 1, and breaks nothing.

    The same session answers as soon as the window is large enough for what is left.
    """
    with Bounded() as model:
        person = Person(tmp_path, start, model, kind)
        fixed = person.fills(3)
        person.with_window(fixed // 4)
        assert not person.asks()
        code, said = person.runs("relieve", person.session, "--json")
        assert code == 1, said
        assert json.loads(said)
        person.with_window(None)
        assert person.asks(), model.refused
