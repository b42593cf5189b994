"""Live: the real OpenClaw's gateway on a model that signs its thinking."""

import json
import re
import sys
import time

import pytest

from proofs.live.binding import BROKEN, Binding
from proofs.live.claw_messages import OnMessages
from proofs.live.program import configure, lines_of, ours, wait
from proofs.live.witness import Witness

pytestmark = pytest.mark.long(proves=("formats", "planning", "rewrite", "operations", "daemon"))

QUIET = 2
MODEL = "claude-fable-5-1"
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f]{8})\]\]")


class Signed(OnMessages):
    """A gateway on a model that binds signatures to the history before them."""

    name = MODEL


def printing(tag, lines=80):
    return "exec", {"command": lines_of(tag, lines)}


def shown(request):
    return set(PLACEHOLDER.findall(json.dumps(request["messages"])))


@pytest.mark.parametrize("knows", [True, False], ids=["with the rule", "without it"])
def test_signed_openclaw_is_refused_only_without_the_rule(tmp_path, start, knows):
    """Ten turns with a restore are not refused, and the undo restores every byte.

    With `signed_models` set to no model, the same turns are refused, and OpenClaw sends its history
    without any thinking.
    """
    with Binding() as model:
        claw = Signed(tmp_path, start, model)
        configure(
            tmp_path, claw.state / "agents", quiet_seconds=QUIET, keep_recent=2,
            scan_interval_seconds=1, keep_after_restore_seconds=5,
            **({} if knows else {"signed_models": ["!*"]}),
        )  # fmt: skip
        daemon = start(
            [sys.executable, "-m", "brainsurgeon", "run"], claw.environment, "daemon.log"
        )
        claw.open()
        requests = []
        with Witness(claw.path) as witness:
            for number in range(10):
                calls = [printing(number), printing(f"{number} too")]
                if number == 5:
                    ident = claw.results()[0]["id"]
                    calls = [("exec", {"command": f"brainsurgeon restore {ident}"})]
                try:
                    requests += claw.turn(calls, [printing(f"{number} again", lines=20)])
                except AssertionError:
                    assert not knows, model.refused
                if not knows and any(BROKEN in problem for problem in model.refused):
                    return
                time.sleep(QUIET + 2.5)
            daemon.terminate()
            assert daemon.wait(20) == 0
            wait("the agent is at rest", lambda: time.time() - claw.path.stat().st_mtime > QUIET)
        assert knows, "nothing was refused"
        assert model.refused == []
        assert len(shown(requests[-1])) >= 10
        assert '"signature"' in json.dumps(requests[-1]["messages"])
        pruned = claw.path.stat().st_size
        ours(claw, "restore", "--all", "--pristine")
        original = b"".join(witness.lines)
        assert claw.path.read_bytes() == original
        print(
            f"{claw.turns} turns, {len(requests)} requests, none refused; "
            f"{len(shown(requests[-1]))} placeholders in the last; {len(original):,} bytes, "
            f"{pruned:,} when pruned"
        )
