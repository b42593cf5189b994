"""Live: an upgrade of OpenClaw from session files to databases.

OpenClaw 2026.9.6 does not start beside files of an older release; its doctor imports them into the
databases and archives them (`docs/cli/doctor/sqlite-maintenance.md` of its package).
"""

import hashlib
import json
import time
import uuid
from pathlib import Path

import pytest

from proofs.agent_packages import OPENCLAW, OPENCLAW_LATEST, package
from proofs.live.databases import PLACEHOLDER, Databases, Planned, placeholders, wait
from proofs.live.gateway import printing, running
from proofs.live.program import configure, ours

pytestmark = pytest.mark.long(
    proves=("agents", "formats", "sessions", "rewrite", "operations", "lookup", "cli")
)

QUIET = 2


class Upgraded:
    """One home of OpenClaw, first with the release that writes files, then with the newest."""

    def __init__(self, base, start, model):
        self.claw = Databases(base, start, model, OPENCLAW)
        self.sessions = [str(uuid.uuid4()), str(uuid.uuid4())]
        self.first = {}
        configure(base, self.claw.state / "agents", quiet_seconds=QUIET, keep_recent=0)

    def file(self, session):
        return self.claw.state / "agents" / "main" / "sessions" / f"{session}.jsonl"

    def lines(self, session):
        """Return the lines of a session's file, and record each as it first was."""
        lines = self.file(session).read_bytes().splitlines()
        for line in lines:
            if not PLACEHOLDER.search(line.decode()):
                self.first.setdefault((session, json.loads(line).get("id")), line)
        return lines

    def placeholders_in_file(self, session):
        return [
            ident for line in self.lines(session) for ident in PLACEHOLDER.findall(line.decode())
        ]

    def brainsurgeon(self, *words):
        return ours(self.claw, *words)

    def prune(self):
        for session in self.sessions:
            self.lines(session)
        time.sleep(QUIET + 0.5)
        report = json.loads(self.brainsurgeon("scan", "--once", "--json"))
        assert report["files_failed"] == 0
        return report

    def upgrade(self):
        """Import everything with the newest release."""
        self.claw.program[1] = str(package(OPENCLAW_LATEST) / "openclaw" / "openclaw.mjs")
        printed = self.claw.run("doctor", "--fix", "--non-interactive")
        assert self.claw.path.exists(), printed[-2000:]

    def files(self):
        """Return a digest of every session file in OpenClaw's home by path."""
        return {
            str(path): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in self.claw.state.rglob("*.jsonl*") if path.is_file()
            and "logs" not in path.parts and "trajectory" not in path.name
        }  # fmt: skip

    def changed_events(self, session):
        """Return the ids of events (headers apart) that differ from what the old release wrote."""
        return [
            ident for text in self.claw.texts(session)
            if (ident := json.loads(text).get("id")) and (session, ident) in self.first
            and json.loads(text)["type"] != "session" and self.first[session, ident] != text
        ]  # fmt: skip


def test_placeholders_imported_into_a_database_are_restored(tmp_path, start):
    """Values extracted from files are shown and restored in the database they went into.

    No turn fails before or after, and both releases send placeholders. The files that OpenClaw
    imported are restored, too; no other file that it left is written.
    """
    with Planned() as model:
        life = Upgraded(tmp_path, start, model)
        claw, (session, other) = life.claw, life.sessions
        pruned = _with_files(life)
        life.upgrade()
        left = life.files()
        assert {session: claw.placeholders(session) for session in life.sessions} == pruned
        claw.open()
        _asked_for(life, session, pruned[session])
        _shown_and_asked_for_in_a_turn(life, other, pruned[other])
        claw.end()
        time.sleep(QUIET + 0.5)
        life.brainsurgeon("scan", "--once")
        _undo(life)
        for session in life.sessions:
            assert claw.placeholders(session) == []
            assert life.changed_events(session) == []
        files = life.files()
        written = [path for path, digest in files.items() if left.get(path) != digest]
        assert files.keys() == left.keys()
        assert all(".imported-" in path for path in written)
        assert not any(PLACEHOLDER.search(Path(path).read_text()) for path in written)
        assert claw.sound() == []
        claw.open()
        assert placeholders(claw.ask(session, [printing("after all")])[0]) == set()
        claw.end()
        report = json.loads(claw.run("doctor", "--session-sqlite", "inspect", "--json"))
        assert [issue for each in report["targets"] for issue in each["issues"]] == []
        print(
            f"{claw.turns} turns, 0 failed; {sum(map(len, pruned.values()))} placeholders taken"
            " over, "
            f"{len(life.first)} lines as they were at first,"
            f" {len(left) - len(written)} files left as they are"
        )


def _with_files(life):
    """Work with the older release and prune twice; return the placeholders of each session."""
    claw = life.claw
    claw.open()
    for number in range(2):
        for session in life.sessions:
            claw.ask(session, [printing(f"{session} {number}"), printing(f"{number}, too")])
    assert life.prune()["values_extracted"] >= 8
    for session in life.sessions:
        requests = claw.ask(session, [printing(f"{session} with placeholders")])
        assert len(placeholders(requests[0])) >= 4
    claw.end()
    assert life.prune()["values_extracted"] >= 2
    assert not claw.path.exists()
    return {session: life.placeholders_in_file(session) for session in life.sessions}


def _asked_for(life, session, pruned):
    """Show values, and restore one, beside the gateway that imported the session."""
    before = life.files()
    first, second = list(dict.fromkeys(pruned))[:2]  # an entry may have several placeholders
    assert "which says nothing" in life.brainsurgeon("show", first, "--session", session)
    whole = life.brainsurgeon("show", session)
    assert PLACEHOLDER.search(whole) is None
    report = json.loads(life.brainsurgeon("sessions", session, "--json"))
    assert {each["entry_id"] for each in report["extracted"]} >= set(pruned)
    wait("the session is idle", lambda: life.claw.idle(session))
    time.sleep(QUIET + 0.5)
    answer = json.loads(life.brainsurgeon("restore", second, "--session", session, "--json"))
    assert answer["restored"]
    assert not answer["pending"]
    assert second not in life.claw.placeholders(session)
    assert first in life.claw.placeholders(session)
    assert life.files() == before


def _shown_and_asked_for_in_a_turn(life, session, pruned):
    requests = life.claw.ask(session, [running(f"brainsurgeon restore {pruned[0]}")])
    assert placeholders(requests[0]) == set(pruned)
    answered = [message for message in requests[1]["messages"] if message["role"] == "tool"][-1]
    assert "which says nothing" in json.dumps(answered["content"])
    wait("the session is idle", lambda: life.claw.idle(session))
    time.sleep(QUIET + 0.5)
    life.brainsurgeon("scan", "--once")
    assert pruned[0] not in life.claw.placeholders(session)


def _undo(life):
    report = json.loads(life.brainsurgeon("restore", "--all", "--pristine", "--json"))
    assert not any(each["left"] for each in report["sessions"])
    archives = [each for each in report["sessions"] if ".jsonl.imported-" in each["session"]]
    assert len(archives) == len(life.sessions)
    assert all(not each["missed"] for each in report["sessions"])
