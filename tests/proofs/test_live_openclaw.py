"""Live: the real OpenClaw's gateway on a scripted model, beside the daemon."""

import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from datetime import datetime
from functools import partial

import pytest

from building import uninstall
from proofs.live.gateway import OpenClaw, printing, running
from proofs.live.model import Model
from proofs.live.program import configure, ours, wait
from proofs.live.witness import Witness

pytestmark = pytest.mark.long(
    proves=("agents", "formats", "sessions", "rewrite", "operations", "mcp_server", "daemon", "cli")
)


QUIET = 3
PROTECTION = 40
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f]{8})\]\]")


def text(entry):
    return entry["message"]["content"][0]["text"]


def writing(path, tag):
    return "write", {"path": str(path), "content": f"{tag} is written down.\n" * 150}


def placeholders(request):
    shown = [message["content"] for message in request["messages"] if message["role"] == "tool"]
    return set(PLACEHOLDER.findall(json.dumps(shown)))


def test_openclaw_works_with_placeholders_and_is_restored(tmp_path, start):
    """No turn fails over restores by shell and tool; the undo restores every byte."""
    with Model() as model:
        claw = OpenClaw(tmp_path, start, model)
        configure(
            tmp_path, claw.state / "agents", quiet_seconds=QUIET, keep_recent=0,
            scan_interval_seconds=2, keep_after_restore_seconds=PROTECTION,
        )  # fmt: skip
        daemon = start(
            [sys.executable, "-m", "brainsurgeon", "run"], claw.environment, "daemon.log"
        )
        claw.open()
        with Witness(claw.path) as witness:
            _several_turns(claw)
            ident = _restore_in_a_turn(claw)
            _protected_then_extracted_again(claw, ident)
            _restore_by_the_tool(claw, ident)
            daemon.terminate()
            assert daemon.wait(20) == 0
            wait("the agent is at rest", lambda: time.time() - claw.path.stat().st_mtime > QUIET)
            pruned = claw.path.stat().st_size
            ours(claw, "restore", "--all", "--pristine")
        original = b"".join(witness.lines)
        assert claw.path.read_bytes() == original
        requests = claw.turn([printing("the turn after all")])
        assert placeholders(requests[0]) == set()
        print(
            f"{claw.turns} turns of {min(claw.seconds):.1f} to {max(claw.seconds):.1f} s, all ok; "
            f"{witness.states} states of the file seen; {len(original):,} bytes written by "
            f"OpenClaw, {pruned:,} when pruned, {len(original):,} after the undo"
        )


def test_removal_right_after_a_turn_restores_the_session(tmp_path, start):
    """Typed a second after a turn, the removal commands wait for its end and exit with 0."""
    with Model() as model:
        claw = OpenClaw(tmp_path, start, model)
        configure(tmp_path, claw.state / "agents", quiet_seconds=QUIET, keep_recent=0)
        claw.open()
        claw.turn([printing("the first turn")])
        wait("the agent is at rest", lambda: time.time() - claw.path.stat().st_mtime > QUIET)
        ours(claw, "scan", "--once")
        assert b"[[extracted-" in claw.path.read_bytes()
        claw.turn([printing("the second turn")])
        time.sleep(1)
        uninstall.run_documented_commands(claw.environment)

        assert b"[[extracted-" not in claw.path.read_bytes()
        assert not (tmp_path / "state").exists()
        assert placeholders(claw.turn([printing("the turn after all")])[0]) == set()


def test_every_restore_request_of_twenty_turns_is_finished(tmp_path, start):
    """Restores by exec, exec in JSON, MCP and a person leave no pending request.

    Of the agent's calls only the answer of brainsurgeon is redacted, also with the debug log on.
    A redaction for a person's restore in the middle of a turn is cancelled with its reason.
    """
    with Model() as model:
        claw = OpenClaw(tmp_path, start, model)
        configure(
            tmp_path, claw.state / "agents", quiet_seconds=1, keep_recent=0,
            scan_interval_seconds=2, log_level="debug", keep_after_restore_seconds=5,
        )  # fmt: skip
        start([sys.executable, "-m", "brainsurgeon", "run"], claw.environment, "daemon.log")
        claw.open()
        calls = []
        for number in range(20):
            if number >= 2:
                wait("something is extracted", lambda: _placeholders_standing(claw))
            calls += _ASKING[number % len(_ASKING) if number >= 2 else 0](claw)
        wait("every request is ended", lambda: not _requests(tmp_path))
        results = {entry["message"]["toolCallId"]: entry for entry in claw.results()}
        texts = {call: (text(results[call]), around % ident) for call, ident, around in calls}

        assert {call: pair for call, pair in texts.items() if not re.search(*pair[::-1])} == {}
        assert not [entry for entry, _ in texts.values() if "says nothing" in entry]
        assert all(results[call]["_redacted"] is True for call, *_ in calls)
        assert len(calls) == 11
        cancelled = _rows(
            tmp_path, "events WHERE kind = 'lapse' AND json_extract(facts, '$.action') = 'redact'"
        )
        assert cancelled
        print(
            f"{claw.turns} turns of {min(claw.seconds):.1f} to {max(claw.seconds):.1f} s, "
            f"0 failed; {len(calls)} of {len(calls)} calls shortened; "
            f"{len(cancelled)} redactions of a person's restores ended with their reason; "
            "no request is open"
        )


WAITS = "action = 'restore'"


def _placeholders_standing(claw):
    """Return the ids of the results that are placeholders, oldest first."""
    return [entry["id"] for entry in claw.results() if PLACEHOLDER.fullmatch(text(entry))]


def _requests(base, where="TRUE"):
    return _rows(base, f"requests WHERE {where}")


def _rows(base, source):
    with closing(sqlite3.connect(base / "state" / "store.db", timeout=60)) as database:
        return database.execute(f"SELECT id FROM {source}").fetchall()


def _just_work(claw):
    claw.turn([printing(f"turn {claw.turns}"), printing(f"turn {claw.turns}, more")])
    return []


def _by_exec(claw, option=""):
    ident = _placeholders_standing(claw)[0]
    command = f"echo looking; date; brainsurgeon restore{option} {ident}; echo done"
    requests = claw.turn([running(command), printing(f"turn {claw.turns}")])
    assert '"event": "restoration"' in json.dumps(requests[-1]).replace('\\"', '"')
    around = r"(?s)^looking\n.*\nRestored %s\.\n?done"  # a value may end without a newline
    return [(_call_of(requests[-1], command), ident, around)]


def _by_exec_in_json(claw):
    return _by_exec(claw, " --json")


def _by_mcp(claw):
    ident = _placeholders_standing(claw)[0]
    requests = claw.turn(
        [("brainsurgeon__purge_control", {"action": "restore", "entry": ident})],
        [printing(f"turn {claw.turns}")],
    )
    return [(_call_of(requests[-1], ident), ident, r"^Restored %s\.$")]


def _by_a_person(claw):
    outputs, command = [], f"sleep 4; echo the turn after {claw.turns}"

    def person():
        wait("the turn is open", lambda: command in claw.path.read_text())
        process = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", "restore", ident], capture_output=True,
            env=claw.environment, timeout=60, check=False,
        )  # fmt: skip
        outputs.append((process.returncode, process.stdout.decode()))

    pending = partial(_requests, claw.base, WAITS)  # by earlier turns, of the very same value
    wait(
        "there is a placeholder without a pending request",
        lambda: not pending() and _placeholders_standing(claw),
    )
    ident = _placeholders_standing(claw)[0]
    asking = threading.Thread(target=person)
    asking.start()
    claw.turn([running(command), printing("beside a person")])
    asking.join()
    assert outputs[0][0] == 0
    assert "The daemon restores it" in outputs[0][1], outputs
    return []


def _call_of(request, words):
    """Return the id of the last call in a request whose arguments contain `words`."""
    calls = [call for message in request["messages"] for call in message.get("tool_calls") or ()]
    return next(
        call["id"] for call in reversed(calls) if words in json.dumps(call["function"])
    )  # fmt: skip


_ASKING = (_just_work, _by_exec, _by_mcp, _by_exec_in_json, _by_a_person)


def _several_turns(claw):
    """Do three turns, each pruned before the next; each shows the model more placeholders."""
    shown = [set()]
    for number in range(3):
        report = claw.base / "workspace" / f"{number}.txt"
        requests = claw.turn(
            [printing(f"turn {number}"), writing(report, f"turn {number}")],
            [("read", {"path": str(report)}), printing(f"turn {number}, more", lines=200)],
        )
        assert shown[-1] <= placeholders(requests[0])
        shown.append(placeholders(requests[0]))
        wait("the turn is pruned", lambda least=3 * (number + 1): _pruned(claw) >= least)
    assert len(shown[-1]) == 6


def _pruned(claw):
    return len(
        {
            placeholder
            for entry in claw.results()
            for placeholder in PLACEHOLDER.findall(text(entry))
        }
    )


def _restore_in_a_turn(claw):
    """Restore a value by a model's call of exec; return the id of its entry."""
    ident = PLACEHOLDER.fullmatch(text(claw.results()[0]))[1]
    look = f"stat -c '%i %s %y %z' {claw.path}"
    requests = claw.turn(
        [("exec", {"command": f"{look} > before; brainsurgeon restore '[[extracted-{ident}]]'; "
                              f"{look} > after"})],
        [printing("something else", lines=5)],
    )  # fmt: skip
    value = "\n".join(["this is a line of turn 0, which says nothing"] * 80)
    answer = requests[1]["messages"][-1]["content"]
    assert value in (answer if isinstance(answer, str) else answer[0]["text"])
    places = claw.base / "workspace"
    assert (places / "before").read_text() == (places / "after").read_text() != ""
    call = claw.results()[-2]

    restored, redacted = wait(
        f"it is back and its call redacted: {text(call)[:300]}",
        lambda: _restored_and_redacted(claw, ident, call["id"]),
    )
    assert text(restored).rstrip() == value
    assert redacted["_redacted"] is True
    assert text(redacted) == f"Restored {ident}."
    assert value.splitlines()[0] not in json.dumps(redacted)
    return ident


def _restored_and_redacted(claw, ident, call):
    """Return the restored entry and the redacted call, which one rewrite makes, or None."""
    now = {entry["id"]: entry for entry in claw.results()}
    both = "_restored" in now[ident] and "_redacted" in now[call]
    return (now[ident], now[call]) if both else None


def _protected_then_extracted_again(claw, ident):
    """Check that a restored value is sent whole while it is protected, and extracted after."""
    protected_until = datetime.fromisoformat(claw.result(ident)["_restored"]).timestamp()
    protected_until += PROTECTION
    requests = claw.turn([printing("the turn after")])
    if time.time() < protected_until:  # a very busy machine takes longer for a turn
        assert ident not in placeholders(requests[0])
    assert len(placeholders(requests[0])) >= 5
    wait("it is extracted again", lambda: text(claw.result(ident)) == f"[[extracted-{ident}]]")
    requests = claw.turn([printing("the last turn")])
    assert ident in placeholders(requests[0])


def _restore_by_the_tool(claw, ident):
    """Restore by a model's call of `purge_control`, whose server the host started."""
    requests = claw.turn(
        [("brainsurgeon__purge_control", {"action": "get_context"})],
        [("brainsurgeon__purge_control", {"action": "restore", "entry": f"[[extracted-{ident}]]"})],
    )
    listed = json.loads(requests[1]["messages"][-1]["content"])
    assert claw.session in listed["session"]
    assert ident in {row["entry_id"] for row in listed["extracted"]}
    answer = json.loads(requests[2]["messages"][-1]["content"])
    value = "\n".join(["this is a line of turn 0, which says nothing"] * 80)
    assert answer["pending"] is True
    assert value in answer["content"]["message.content.0.text"]
    assert answer["previous_restored_at"]
    call = claw.results()[-1]

    restored, redacted = wait(
        "it is back and redacted", lambda: _restored_and_redacted(claw, ident, call["id"])
    )
    assert text(restored).rstrip() == value
    assert text(redacted) == f"Restored {ident}."
