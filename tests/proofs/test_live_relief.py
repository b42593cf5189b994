"""The live scenario: the real OpenClaw on a model that refuses what is too long, and `relieve`."""

import json
import subprocess
import sys
import time

import pytest

from proofs.live.gateway import OpenClaw, wait
from proofs.live.model import Model

pytestmark = pytest.mark.long(proves=("formats", "decide", "rewrite", "operations", "cli"))

QUIET = 2
ROOM = 60_000
"""Characters that the model takes beyond the first prompt."""


class Strict(Model):
    """A model that takes so many characters, and is in no mood to sum anything up."""

    def __init__(self):
        super().__init__()
        self.longest, self.refusals = None, 0
        outer = self

        class Handler(self._server.RequestHandlerClass):
            def do_POST(self):  # noqa: N802  the name that the standard library calls
                """Refuse what is too long, as a provider does."""
                body = self.rfile.read(int(self.headers["content-length"]))
                if outer.takes(json.loads(body)):
                    self.rfile = _Again(body)
                    super().do_POST()
                else:
                    outer.refusals += 1
                    self._refuse()

            def _refuse(self):
                said = json.dumps({"error": {
                    "message": "Your input exceeds the context window of this model.",
                    "type": "invalid_request_error", "code": "context_length_exceeded",
                }}).encode()  # fmt: skip
                self.close_connection = True
                self.send_response(400)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

        self._server.RequestHandlerClass = Handler

    def takes(self, request):
        """Tell whether a request is short enough; without tools it asks for a summary."""
        size = len(json.dumps(request["messages"]))
        if self.longest is None:
            self.longest = size + ROOM
        return bool(request.get("tools")) and size <= self.longest


class _Again:
    """The body of a request that was read already."""

    def __init__(self, body):
        self._body = body

    def read(self, size):
        """Give it."""
        return self._body[:size]

    def close(self):
        """Do nothing."""


def printing(tag, lines):
    """Give a call that prints that many lines and waits for them."""
    command = f"yes 'this is a line of {tag}, which says nothing' | head -{lines}"
    return "exec", {"command": command, "yieldMs": 120_000}


def brainsurgeon(claw, *words):
    """Call the program; give its code and the document that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", "brainsurgeon", *words, "--json"], env=claw.environment,
        capture_output=True, check=False, timeout=300,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout)


def relieved(claw):
    """Ask for relief; give nothing as long as it waits: a run that failed is marked for a while."""
    code, told = brainsurgeon(claw, "relieve", claw.session)
    time.sleep(1)
    return None if told.get("pending") else (code, told)


def bricked(claw):
    """Tell whether the session answers no prompt any more, whatever is tried."""
    try:
        claw.turn()
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("giant", [False, True], ids=["many results", "one giant result"])
def test_a_bricked_session_goes_on_after_one_command(tmp_path, start, giant):
    """Refused again and again, not to be compacted; then `relieve`, and the next turn is ok."""
    with Strict() as model:
        claw = OpenClaw(tmp_path, start, model)
        (tmp_path / "config.toml").write_text(
            f'state_dir = "{tmp_path}/state"\nquiet_seconds = {QUIET}\n'
            f'[[roots]]\npath = "{claw.state}/agents"\n'
        )
        claw.open()
        try:
            for number in range(20):
                claw.turn([printing(number, 1500 if giant and number else 500)])
        except AssertionError:
            assert model.refusals
        assert bricked(claw)
        wait("the agent is at rest", lambda: time.time() - claw.path.stat().st_mtime > QUIET + 1)
        lines = claw.path.read_bytes().splitlines()
        code, told = wait("its agent lets go of it", lambda: relieved(claw))
        assert code == 0
        assert told["fits"] is True
        print(f"{told['before']['load_tokens']:,} -> {told['after']['load_tokens']:,} tokens, "
              f"step {told['after']['step']}, {told['values_extracted']} values")  # fmt: skip
        refusals = model.refusals
        claw.turn([printing("the turn after", 20)])
        assert model.refusals == refusals
        assert len(claw.path.read_bytes().splitlines()) > len(lines)
