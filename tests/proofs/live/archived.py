"""A session that is archived while its agent runs, and the checks after each turn."""

import json
import re
import subprocess
import sys
import time
from itertools import pairwise

from brainsurgeon.model.turns import MARK
from building.turns import active_branch
from proofs.live.binding import Binding
from proofs.live.program import wait

OURS = re.compile(rb',"_(?:restored|extractable|redacted)":(?:"[^"]*"|true|false|[0-9]+)')
ARCHIVED = re.compile(re.escape(MARK) + r"\narchive: (\S+)")


class Forgetful(Binding):
    """A model that can accept its old signatures behind a changed history.

    An agent that compacts changes its history by itself, and so does a user who restores it all.
    """

    def forget(self):
        """Stop checking what the signatures issued so far were bound to."""
        self._bound.clear()


class Talk:
    """One session of an agent, and every line of it as the agent wrote it.

    `agent.do_turn` does a turn. `sends_all` is true if the agent reads its session at each turn and
    sends all of it. `parent` holds the original lines that a fork copied.
    """

    def __init__(self, agent, path, parent=None):
        self.agent, self.path, self.lines = agent, path, []
        self._copied = {_entry_id(line): line for line in parent.lines[1:]} if parent else {}
        self.sends_all, self.turns, self.requests = True, 0, 0
        self.scans_in_turns, self.changed_in_turns = 0, []

    def turn(self, *rounds):
        """Do one turn, check the requests and the session, and return the requests."""
        before = self.archived if self.path.exists() else []
        self.agent.model.during = self._scan_in_a_turn
        requests = self.agent.do_turn(self.path, rounds)
        assert self.agent.model.refused == []
        assert len(requests) == len(rounds) + 1
        for request in requests:
            check_roles(request)
        if self.sends_all:
            assert archived_in(requests[0]) == before
        self.turns, self.requests = self.turns + 1, self.requests + len(requests)
        self.scan()
        return requests

    def _scan_in_a_turn(self, _plan, number):
        """Scan while the agent waits for the first answer of its model."""
        before = self.path.read_bytes() if self.path.exists() else b""
        if number == 1 and before:
            self.run("scan", "--once")
            self.scans_in_turns += 1
            if self.path.read_bytes() != before:
                self.changed_in_turns.append(self.scans_in_turns)

    def scan(self):
        """Scan until no session is deferred, then check the session."""
        wait("the agent has written", self._wrote)

        def idle():
            report = json.loads(self.run("scan", "--once", "--json"))
            return not report["files_deferred"] or time.sleep(0.5)

        wait("the sessions are idle", idle)
        self.check()

    def _wrote(self):
        """Record the lines that the agent has written; false while it is rewriting the file."""
        lines = self.path.read_bytes().splitlines(keepends=True)
        if len(lines) < len(self.lines) or not lines[-1].endswith(b"\n"):
            return False
        since = lines[len(self.lines) :]
        self.lines += [self._copied.get(_entry_id(line), line) for line in since]
        return True

    def run(self, *words):
        result = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", *words], env=self.agent.environment,
            capture_output=True, timeout=120, check=False,
        )  # fmt: skip
        assert result.returncode == 0, (words, result.stdout[-1500:], result.stderr[-1500:])
        return result.stdout

    def check(self):
        """Check that the branch is complete, and that `show` prints it as it was written."""
        live = [entry["message"] for entry in self.branch if entry["type"] == "message"]
        calls = [block["id"] for entry in live if entry["role"] == "assistant"
                 for block in entry["content"] if block["type"] == "toolCall"]  # fmt: skip
        assert calls == [entry["toolCallId"] for entry in live if entry["role"] == "toolResult"]
        roles = [entry["role"] for entry in live if entry["role"] in ("user", "assistant")]
        assert ("user", "user") not in list(pairwise(roles))
        self.check_lines(self.run("show", str(self.path)))

    def check_lines(self, data):
        """Check that the lines are those of the agent, except for fields of brainsurgeon.

        A fork may have the active branch only, where the link of an archive leads nowhere.
        """
        shown = OURS.sub(b"", data).splitlines(keepends=True)
        if self._copied and not {_entry_id(line) for line in shown} >= self._copied.keys():
            assert [_unlinked(line) for line in shown] == [_unlinked(line) for line in self.lines]
        else:
            assert shown == self.lines

    @property
    def branch(self):
        return active_branch(self.path.read_bytes())

    @property
    def ids(self):
        return [entry["id"] for entry in self.branch]

    @property
    def archived(self):
        """Return the ids of the archives on the active branch, oldest first."""
        return _archived(entry["message"] for entry in self.branch if entry["type"] == "message")


def _entry_id(line):
    """Return the id of the entry in a line, or None for a header."""
    return json.loads(line).get("id") if b'"parentId"' in line else None


def _unlinked(line):
    return {key: value for key, value in json.loads(line).items() if key != "parentId"}


def archived_in(request):
    """Return the ids of the archives in a request, oldest first."""
    return _archived(request["messages"])


def _archived(messages):
    texts = [
        block["text"]
        for message in messages if message["role"] == "assistant"
        for block in message["content"] if block["type"] == "text"
    ]  # fmt: skip
    return ARCHIVED.findall("\n".join(texts))


def check_roles(request):
    """Check that user and assistant alternate in a request, and that the user begins.

    The summary that an agent puts first may be the user's as well.
    """
    spoken = [message for message in request["messages"] if message["role"] != "system"]
    roles = [message["role"] for message in spoken["<summary>" in json.dumps(spoken[0]) :]]
    assert spoken[0]["role"] == "user"
    assert all(role != following for role, following in pairwise(roles)), roles
