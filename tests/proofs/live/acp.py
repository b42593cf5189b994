"""An editor's side of the Agent Client Protocol: requests to an agent, one after the other."""

import itertools
import json
import subprocess
from contextlib import contextmanager


@contextmanager
def asking(agent, *command):
    """Run an agent; yield a function that asks it, and returns the result."""
    with subprocess.Popen(
        command, env=agent.environment, cwd=agent.workspace, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        numbers = itertools.count(1)

        def ask(method, **params):
            number = next(numbers)
            said = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            process.stdin.write(json.dumps(said).encode() + b"\n")
            process.stdin.flush()
            answers = (json.loads(line) for line in process.stdout if line[:1] == b"{")
            answer = next(one for one in answers if one.get("id") == number)
            assert "result" in answer, answer
            return answer["result"]

        ask("initialize", protocolVersion=1, clientCapabilities={})
        try:
            yield ask
        finally:
            process.stdin.close()


def prompt(ask, session, text="go on"):
    ended = ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])
    assert ended["stopReason"] == "end_turn"
