"""The live scenario: the real OpenClaw's gateway, a scripted model, and our daemon beside it."""

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

from building import removal
from proofs.live.gateway import OpenClaw, printing, running
from proofs.live.model import Model
from proofs.live.program import ours, wait
from proofs.live.witness import Witness

pytestmark = pytest.mark.long(
    proves=("hosts", "formats", "sessions", "rewrite", "operations", "mcp_server", "daemon", "cli")
)


QUIET = 3
PROTECTION = 40
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f]{8})\]\]")


def text(entry):
    return entry["message"]["content"][0]["text"]


def writing(path, tag):
    return "write", {"path": str(path), "content": f"{tag} is written down.\n" * 150}


def placeholders(request):
    shown = [one["content"] for one in request["messages"] if one["role"] == "tool"]
    return set(PLACEHOLDER.findall(json.dumps(shown)))


def test_the_real_openclaw_gets_its_bytes_back(tmp_path, start):
    """No turn fails, placeholders reach the model, a value asked for comes, nothing is lost."""
    with Model() as model:
        claw = OpenClaw(tmp_path, start, model)
        (tmp_path / "config.toml").write_text(
            f'state_dir = "{tmp_path}/state"\nquiet_seconds = {QUIET}\nkeep_recent = 0\n'
            f"min_reclaim = 0\nscan_interval_seconds = 2\n"
            f"keep_after_restore_seconds = {PROTECTION}\n"
            f'[[roots]]\npath = "{claw.state}/agents"\n'
        )
        daemon = start(
            [sys.executable, "-m", "brainsurgeon", "run"], claw.environment, "daemon.log"
        )
        claw.open()
        with Witness(claw.path) as witness:
            _several_turns(claw)
            ident = _restore_in_a_turn(claw)
            _protected_then_cut_again(claw, ident)
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


def test_removing_it_a_second_after_a_turn_leaves_nothing(tmp_path, start):
    """The commands for removing it, typed after a live turn, wait for its end and end with 0."""
    with Model() as model:
        claw = OpenClaw(tmp_path, start, model)
        (tmp_path / "config.toml").write_text(
            f'state_dir = "{tmp_path}/state"\nquiet_seconds = {QUIET}\nkeep_recent = 0\n'
            f'min_reclaim = 0\n[[roots]]\npath = "{claw.state}/agents"\n'
        )
        claw.open()
        claw.turn([printing("the first turn")])
        wait("the agent is at rest", lambda: time.time() - claw.path.stat().st_mtime > QUIET)
        ours(claw, "scan", "--once")
        assert b"[[extracted-" in claw.path.read_bytes()
        claw.turn([printing("the second turn")])
        time.sleep(1)
        removal.remove(claw.environment)

        assert b"[[extracted-" not in claw.path.read_bytes()
        assert not (tmp_path / "state").exists()
        assert placeholders(claw.turn([printing("the turn after all")])[0]) == set()


def test_twenty_turns_leave_no_request_open(tmp_path, start):
    """Asked by exec, by exec in JSON, by MCP and by a person, with the debug log on: all is ended.

    No turn fails, of every call of the agent's our answer goes and nothing else, and what a person
    asked for in the middle of a turn ends with its reason.
    """
    with Model() as model:
        claw = OpenClaw(tmp_path, start, model)
        (tmp_path / "config.toml").write_text(
            f'state_dir = "{tmp_path}/state"\nquiet_seconds = 1\nkeep_recent = 0\n'
            f'min_reclaim = 0\nscan_interval_seconds = 2\nlog_level = "debug"\n'
            f'keep_after_restore_seconds = 5\n[[roots]]\npath = "{claw.state}/agents"\n'
        )
        start([sys.executable, "-m", "brainsurgeon", "run"], claw.environment, "daemon.log")
        claw.open()
        asked = []
        for number in range(20):
            if number >= 2:
                wait("something is extracted", lambda: _placeholders_standing(claw))
            asked += _ASKING[number % len(_ASKING) if number >= 2 else 0](claw)
        wait("every request is ended", lambda: not _requests(tmp_path))
        results = {one["message"]["toolCallId"]: one for one in claw.results()}
        texts = {call: (text(results[call]), around % ident) for call, ident, around in asked}

        assert {call: pair for call, pair in texts.items() if not re.search(*pair[::-1])} == {}
        assert not [one for one, _ in texts.values() if "says nothing" in one]
        assert all(results[call]["_redacted"] is True for call, *_ in asked)
        assert len(asked) == 11
        lapsed = _rows(
            tmp_path, "events WHERE kind = 'lapse' AND json_extract(facts, '$.action') = 'redact'"
        )
        assert lapsed
        print(
            f"{claw.turns} turns of {min(claw.seconds):.1f} to {max(claw.seconds):.1f} s, "
            f"0 failed; {len(asked)} of {len(asked)} calls shortened; "
            f"{len(lapsed)} redactions of a person's restores ended with their reason; "
            "no request is open"
        )


WAITS = "action = 'restore'"


def _placeholders_standing(claw):
    """Give the ids of the results that stand as placeholders, the oldest first."""
    return [one["id"] for one in claw.results() if PLACEHOLDER.fullmatch(text(one))]


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
    said, command = [], f"sleep 4; echo the turn after {claw.turns}"

    def person():
        wait("the turn is open", lambda: command in claw.path.read_text())
        done = subprocess.run(
            [sys.executable, "-m", "brainsurgeon", "restore", ident], capture_output=True,
            env=claw.environment, timeout=60, check=False,
        )  # fmt: skip
        said.append((done.returncode, done.stdout.decode()))

    asked = partial(_requests, claw.base, WAITS)  # by earlier turns, of the very same value
    wait(
        "a placeholder stands that nobody asked for",
        lambda: not asked() and _placeholders_standing(claw),
    )
    ident = _placeholders_standing(claw)[0]
    asking = threading.Thread(target=person)
    asking.start()
    claw.turn([running(command), printing("beside a person")])
    asking.join()
    assert said[0][0] == 0
    assert "The daemon restores it" in said[0][1], said
    return []


def _call_of(request, words):
    """Give the id of the last call in a request whose arguments hold these words."""
    calls = [call for one in request["messages"] for call in one.get("tool_calls") or ()]
    return next(
        call["id"] for call in reversed(calls) if words in json.dumps(call["function"])
    )  # fmt: skip


_ASKING = (_just_work, _by_exec, _by_mcp, _by_exec_in_json, _by_a_person)


def _several_turns(claw):
    """Let three turns pass, each pruned before the next.

    The model is shown more and more placeholders.
    """
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
    """Let the model ask for a value by its exec tool; give the id of its entry."""
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

    back, redacted = wait(
        f"it is back and its call redacted: {text(call)[:300]}",
        lambda: _put_back(claw, ident, call["id"]),
    )
    assert text(back).rstrip() == value
    assert redacted["_redacted"] is True
    assert text(redacted) == f"Restored {ident}."
    assert value.splitlines()[0] not in json.dumps(redacted)
    return ident


def _put_back(claw, ident, call):
    """Give the entry restored and the call redacted, which one rewrite does, from one reading."""
    now = {one["id"]: one for one in claw.results()}
    both = "_restored" in now[ident] and "_redacted" in now[call]
    return (now[ident], now[call]) if both else None


def _protected_then_cut_again(claw, ident):
    """Check that the next turn sees the value whole, and a placeholder after its protection."""
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
    """Let the model ask again, by purge_control over MCP: the host started our server itself."""
    requests = claw.turn(
        [("brainsurgeon__purge_control", {"action": "get_context"})],
        [("brainsurgeon__purge_control", {"action": "restore", "entry": f"[[extracted-{ident}]]"})],
    )
    listed = json.loads(requests[1]["messages"][-1]["content"])
    assert claw.session in listed["session"]
    assert ident in {one["entry_id"] for one in listed["extracted"]}
    told = json.loads(requests[2]["messages"][-1]["content"])
    value = "\n".join(["this is a line of turn 0, which says nothing"] * 80)
    assert told["pending"] is True
    assert value in told["content"]["message.content.0.text"]
    assert told["previous_restored_at"]
    call = claw.results()[-1]

    back, redacted = wait("it is back and redacted", lambda: _put_back(claw, ident, call["id"]))
    assert text(back).rstrip() == value
    assert text(redacted) == f"Restored {ident}."
