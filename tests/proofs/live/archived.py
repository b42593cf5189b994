"""A session whose turns are archived while its agent runs, and all that is checked on the way."""

import json
import re
import subprocess
import sys
import time
from itertools import pairwise

from brainsurgeon.model.turns import MARK
from building.turns import branch
from proofs.live.binding import Binding
from proofs.live.program import wait

OURS = re.compile(rb',"_(?:restored|extractable|redacted)":(?:"[^"]*"|true|false|[0-9]+)')
ARCHIVED = re.compile(re.escape(MARK) + r"\narchive: (\S+)")


class Forgetful(Binding):
    """A model that can be told that what stands before its thinking changed by right.

    An agent that compacts does that by itself, and so does who wants every byte back.
    """

    def forget(self):
        """Check what was signed so far no longer for what stands before it."""
        self._bound.clear()


class Talk:
    """One session of an agent, and every line of it as the agent wrote it.

    `agent.asks` does a turn. `whole` says that the agent reads its session at each turn, and sends
    all of it. What a fork has from its `parent` is what was written there.
    """

    def __init__(self, agent, path, parent=None):
        self.agent, self.path, self.lines = agent, path, []
        self._copied = {_of_its_own(one): one for one in parent.lines[1:]} if parent else {}
        self.whole, self.turns, self.requests = True, 0, 0
        self.looks, self.touched = 0, []

    def turn(self, *rounds):
        """Do one turn, check what the model saw and what stands then; give its requests."""
        before = self.archived if self.path.exists() else []
        self.agent.model.during = self._scan_in_a_turn
        requests = self.agent.asks(self.path, rounds)
        assert self.agent.model.refused == []
        assert len(requests) == len(rounds) + 1
        for request in requests:
            check_roles(request)
        if self.whole:
            assert archived_in(requests[0]) == before
        self.turns, self.requests = self.turns + 1, self.requests + len(requests)
        self.scans()
        return requests

    def _scan_in_a_turn(self, _plan, number):
        """Scan while the agent waits for the first answer of its model."""
        before = self.path.read_bytes() if self.path.exists() else b""
        if number == 1 and before:
            self.runs("scan", "--once")
            self.looks += 1
            if self.path.read_bytes() != before:
                self.touched.append(self.looks)

    def scans(self):
        """Scan until nothing is left for later, then check what stands in the session."""
        wait("the agent has written", self._wrote)

        def idle():
            told = json.loads(self.runs("scan", "--once", "--json"))
            return not told["files_deferred"] or time.sleep(0.5)

        wait("the sessions are idle", idle)
        self.check()

    def _wrote(self):
        """Take down what the agent has written; it may be writing it all again right now."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        if len(lines) < len(self.lines) or not lines[-1].endswith(b"\n"):
            return False
        since = lines[len(self.lines) :]
        self.lines += [self._copied.get(_of_its_own(one), one) for one in since]
        return True

    def runs(self, *words):
        done = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", *words], env=self.agent.environment,
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stdout[-1500:], done.stderr[-1500:])
        return done.stdout

    def check(self):
        """Check that the branch is whole, and that all of it can be read as it was written."""
        live = [one["message"] for one in self.branch if one["type"] == "message"]
        calls = [block["id"] for one in live if one["role"] == "assistant"
                 for block in one["content"] if block["type"] == "toolCall"]  # fmt: skip
        assert calls == [one["toolCallId"] for one in live if one["role"] == "toolResult"]
        roles = [one["role"] for one in live if one["role"] in ("user", "assistant")]
        assert ("user", "user") not in list(pairwise(roles))
        self.check_lines(self.runs("show", str(self.path)))

    def check_lines(self, data):
        """Check that these are the lines as the agent wrote them, but for fields of ours.

        A fork may have the active branch alone, where the link of an archive leads nowhere.
        """
        told = OURS.sub(b"", data).splitlines(keepends=True)
        if self._copied and not {_of_its_own(one) for one in told} >= self._copied.keys():
            assert [_unlinked(one) for one in told] == [_unlinked(one) for one in self.lines]
        else:
            assert told == self.lines

    @property
    def branch(self):
        return branch(self.path.read_bytes())

    @property
    def ids(self):
        return [one["id"] for one in self.branch]

    @property
    def archived(self):
        """The ids of the archives on the active branch, oldest first."""
        return _archived(one["message"] for one in self.branch if one["type"] == "message")


def _of_its_own(line):
    """Name the entry that a line is; a header is none."""
    return json.loads(line).get("id") if b'"parentId"' in line else None


def _unlinked(line):
    return {key: value for key, value in json.loads(line).items() if key != "parentId"}


def archived_in(request):
    """Name the archives that the model is shown, oldest first."""
    return _archived(request["messages"])


def _archived(messages):
    texts = [
        block["text"]
        for message in messages if message["role"] == "assistant"
        for block in message["content"] if block["type"] == "text"
    ]  # fmt: skip
    return ARCHIVED.findall("\n".join(texts))


def check_roles(request):
    """Check that those who speak in a request take turns, and that the user begins.

    What an agent puts before them, when it has compacted, may be the user's as well.
    """
    said = [one for one in request["messages"] if one["role"] != "system"]
    roles = [one["role"] for one in said["<summary>" in json.dumps(said[0]) :]]
    assert said[0]["role"] == "user"
    assert all(one != other for one, other in pairwise(roles)), roles
