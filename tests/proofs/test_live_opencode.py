"""The real opencode with a pruned database: turns, forks, compactions, scans beside it."""

import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from proofs.live.binding import Binding
from proofs.live.messages import Messages
from proofs.live.opencode import (
    MODEL,
    Kilo,
    Opencode,
    OpencodeModel,
    attached,
    picture,
    printing,
    reading,
    scripted,
    signing,
)
from proofs.live.program import configure, ours, wait
from proofs.live.terminal import Terminal

pytestmark = pytest.mark.long(proves=("formats", "agents", "planning", "rewrite", "files"))

SCANNING = Path(__file__).parent / "live" / "scanning.py"
TAKEN = re.compile(r"\[\[extracted-[^\]]+\]\]")
KEYS = {"when": "always", "keep_recent": 1}


@pytest.fixture
def opencode(tmp_path):
    with OpencodeModel() as model:
        driven = Opencode(tmp_path, model)
        configure(tmp_path, driven.root, **KEYS)
        (driven.workspace / "shot.png").write_bytes(picture())
        yield driven


def filled(opencode, server, turns=4):
    """Return a new session with some turns: results, a picture of a tool, thinking."""
    session = server.begin()
    for number in range(turns):
        second = printing(f"more of {number}", 40)
        if number == 1:
            second = reading(opencode.workspace / "shot.png")
        server.turn(session, printing(f"turn {number}"), second)
    return session


def taken(request):
    return TAKEN.findall(json.dumps(request["messages"]))


def size(request):
    """Return the characters of all messages but the prompt of the system."""
    return len(json.dumps(request["messages"][1:]))


def check(request):
    """Check that each call is answered next, and return the roles and the ids of calls."""
    pending, seen = [], []
    for message in request["messages"]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == pending.pop(0)
            continue
        assert not pending
        pending = [call["id"] for call in message.get("tool_calls") or ()]
        seen.append((message["role"], *pending))
    return seen


def same(before, after):
    """Check that every row that was there before is as it was."""
    assert set(before) <= set(after)
    return True


def reasons(opencode):
    """Return why a scan waits, by session."""
    report = json.loads(ours(opencode, "scan", "--json"))
    waiting = [one for one in report["sessions"] if one["outcome"] == "deferred"]
    return {one["session"].split("/")[1]: one["reason"] for one in waiting}


def test_twenty_turns_are_pruned_beside_a_server_and_come_back(opencode, tmp_path):
    """The next request is smaller by nine tenths and valid; every row comes back as it was."""
    configure(tmp_path, opencode.root, **KEYS, trigger_types=["thinking", "tool_result", "user"])
    with opencode.serving() as server:
        session = filled(opencode, server, 18)
        server.turn(session, parts=[attached(picture(seed=2))])
        whole = server.turn(session)[0]
        before = opencode.rows()
        ours(opencode, "scan")
        pruned = opencode.rows()
        request = server.turn(session)[0]
        assert size(request) < size(whole) / 10
        assert len(taken(request)) > 70
        assert "image_url" in json.dumps(whole)
        assert "image_url" not in json.dumps(request)
        # Beside a picture of a tool, opencode sends a message of the user.
        assert [one for one in check(request) if one[0] == "assistant"][:-1] == [
            one for one in check(whole) if one[0] == "assistant"
        ]
        assert same(pruned, opencode.rows())
        ours(opencode, "restore", "--all", "--pristine")
        assert same(before, opencode.rows())
        assert not taken(server.turn(session)[0])
    requests = opencode.run("run", "--session", session, "once more")
    assert check(requests[0])


def test_kilo_cli_is_pruned_beside_its_server_and_undone(tmp_path):
    """The next request has placeholders and is smaller; then every row is as it was."""
    with OpencodeModel() as model:
        kilo = Kilo(tmp_path, model)
        configure(tmp_path, kilo.root, **KEYS, trigger_types=["thinking", "tool_result", "user"])
        (kilo.workspace / "shot.png").write_bytes(picture())
        with kilo.serving() as server:
            session = filled(kilo, server)
            server.turn(session, parts=[attached(picture(seed=2))])
            whole = server.turn(session)[0]
            before = kilo.rows()
            [report] = json.loads(ours(kilo, "scan", "--json"))["sessions"]
            assert (report["session"], report["outcome"]) == (f"kilo/{session}", "changed")
            request = server.turn(session)[0]
            assert size(request) < size(whole) / 2
            assert len(taken(request)) >= 7
            assert "image_url" not in json.dumps(request)
            ours(kilo, "restore", "--all", "--pristine")
            assert same(before, kilo.rows())
            assert not taken(server.turn(session)[0])


def test_restore_within_a_turn_is_in_its_next_request(opencode):
    """While the turn is open, a scan waits; a value that comes back is there at the next step."""
    with opencode.serving() as server:
        session = filled(opencode, server)
        ours(opencode, "scan")
        entry = next(part for part in opencode.rows("part", session) if TAKEN.search(part[-1]))[0]
        seen = []

        def during(number):
            if number == 1:
                seen.append(reasons(opencode)[session])
                ours(opencode, "restore", entry)

        opencode.model.during = during
        first, second, third = server.turn(session, printing("one", 2), printing("two", 2))
        opencode.model.during = None

        assert seen == ["the last turn is open: a prompt without a complete answer"]
        name = f"[[extracted-{entry}]]"
        assert [name in taken(request) for request in (first, second, third)] == [True, True, False]
        assert len(taken(third)) == len(taken(first)) - 1
        assert check(third)
        assert '"_restored"' in dict(opencode.sql("SELECT id, data FROM part"))[entry]
        assert check(server.turn(session)[0])


def test_scans_beside_fifteen_turns_lose_nothing(opencode, tmp_path):
    """While scans follow each other, each turn ends well, and all its results come back."""
    command = [sys.executable, SCANNING, tmp_path / "config.toml"]
    with opencode.serving() as server:
        session = server.begin()
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=opencode.environment) as scans:
            assert scans.stdout.readline() == b"scanning\n"
            for number in range(15):
                calls = printing(f"turn {number}"), printing(f"more of {number}")
                requests = server.turn(session, *calls)
                assert len(requests) == 3
                assert check(requests[-1])
            scans.send_signal(signal.SIGTERM)
            counts = json.loads(scans.stdout.read())
        assert counts["changed"] > 0
        assert "failed" not in counts
        assert taken(requests[-1])
        ours(opencode, "restore", "--all", "--pristine")
        parts = opencode.parts(session)
    outputs = [part["state"]["output"] for part in parts if part["type"] == "tool"]
    tags = [tag for number in range(15) for tag in (f"turn {number}", f"more of {number}")]
    assert outputs == [
        f"this is a line of {tag}, which says nothing\n" * 80 for tag in tags
    ]  # fmt: skip
    assert not any(TAKEN.search(json.dumps(part)) for part in parts)


def test_forks_and_reverts_of_a_pruned_session_continue(opencode):
    """A fork has placeholders, which come back there, too; a revert deletes what it deletes."""
    with opencode.serving() as server:
        session = filled(opencode, server)
        ours(opencode, "scan")
        before = opencode.rows("part", session)
        fork = server("POST", f"/session/{session}/fork", {})["id"]
        copied = taken(server.turn(fork)[0])
        assert len(copied) >= 7
        prompts = [row[0] for row in opencode.rows("message", fork) if '"role":"user"' in row[-1]]
        server("POST", f"/session/{fork}/revert", {"messageID": prompts[2]})
        assert reasons(opencode).get(fork, "") == ""
        request = server.turn(fork, printing("after the revert"))[0]
        assert check(request)
        assert 0 < len(taken(request)) < len(copied)
        ours(opencode, "restore", "--all", "--pristine")
        assert not TAKEN.search(json.dumps(opencode.parts(fork) + opencode.parts(session)))
        assert len(opencode.rows("part", session)) == len(before)
        assert not taken(server.turn(fork)[0])


def test_a_pruned_session_is_compacted_and_comes_back(opencode):
    """The compaction reads placeholders; what is before it counts as not sent afterwards."""
    with opencode.serving() as server:
        session = filled(opencode, server)
        before = opencode.rows("part", session)
        ours(opencode, "scan")
        server("POST", f"/session/{session}/summarize", {**MODEL, "auto": False})
        assert len(TAKEN.findall(json.dumps(opencode.model.summaries[-1]))) >= 7
        request = server.turn(session, printing("after it"))[0]
        assert check(request)
        assert len(check(request)) < 6
        report = json.loads(ours(opencode, "restore", "--all", "--pristine", "--json"))
        assert report["sessions"][0]["state"] == "restored"
        assert same(before, opencode.rows("part", session))
        assert check(server.turn(session)[0])[: len(check(request))] == check(request)


def test_exports_have_placeholders_and_imports_change_nothing(opencode, tmp_path):
    """An import over sessions that are there leaves restored values as they are."""
    with opencode.serving() as server:
        session = filled(opencode, server)
    before = opencode.rows("part", session)
    ours(opencode, "scan")
    opencode.run("export", session)
    text = opencode.printed[opencode.printed.index("{") :]
    assert len(TAKEN.findall(text)) >= 7
    (tmp_path / "export.json").write_text(text)
    ours(opencode, "restore", "--all", "--pristine")
    opencode.run("import", tmp_path / "export.json")
    assert opencode.rows("part", session) == before


def test_a_stopped_turn_is_pruned_and_a_killed_one_waits(opencode):
    """After a stop, the session goes on and is pruned; after a kill, only the next prompt does."""
    sleeping = "bash", {"command": "sleep 60", "description": "as asked"}
    running = 'SELECT 1 FROM part WHERE session_id = ? AND data LIKE \'%"status":"running"%\''
    with opencode.serving() as server:
        session = filled(opencode, server)
        requests = opencode.model.next_turn([[sleeping]], "done.")
        body = {"parts": [{"type": "text", "text": "go on"}], "model": MODEL}
        turn = threading.Thread(target=server, args=("POST", f"/session/{session}/message", body))
        turn.start()
        wait("the call", lambda: opencode.sql(running, session))
        assert reasons(opencode)[session].startswith("the last turn is open")
        server("POST", f"/session/{session}/abort", {})
        turn.join()
        assert len(requests) == 1
        ours(opencode, "scan")
        assert len(taken(server.turn(session)[0])) >= 7

    opencode.model.next_turn([[sleeping]], "done.")
    with subprocess.Popen(
        ["opencode", "run", "--session", session, "go on"], env=opencode.environment,
        cwd=opencode.workspace, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        wait("the call", lambda: opencode.sql(running, session))
        process.kill()
    assert reasons(opencode)[session].startswith("the last turn is open")
    opencode.run("run", "--session", session, "go on", calls=[printing("after the kill")])
    assert reasons(opencode).get(session, "") == ""
    request = opencode.run("run", "--session", session, "go on")[0]
    assert check(request)
    assert len(taken(request)) >= 8


def test_signed_thinking_leaves_as_a_whole(tmp_path):
    """A provider that checks its signatures accepts what is left, and what comes back."""
    with Messages() as model:
        opencode = Opencode(tmp_path, model, signing(model.port))
        configure(tmp_path, opencode.root, **KEYS)
        with opencode.serving() as server:
            session = server.begin()

            def turn(*calls):
                number, prompt = model.script(*([call] for call in calls))
                body = {"parts": [{"type": "text", "text": prompt}], "model": MODEL}
                server("POST", f"/session/{session}/message", body)
                assert not model.refused
                return model.of(number)

            for number in range(3):
                turn(printing(f"turn {number}"), printing(f"more of {number}"))
            before = opencode.rows("part", session)
            signed = sum('"signature"' in row[-1] for row in before)
            whole = turn()[0]
            ours(opencode, "scan")
            request = turn(printing("the next", 2))[0]
            assert len(taken(request)) >= 5
            assert json.dumps(request).count('"signature"') < json.dumps(whole).count('"signature"')
            now = opencode.rows("part", session)
            assert sum('"signature"' in row[-1] for row in now) < signed
            ours(opencode, "restore", "--all", "--pristine")
            assert same(before, opencode.rows("part", session))
            assert not taken(turn(printing("the last", 2))[0])


def test_a_restore_waits_while_a_signature_is_being_made(tmp_path):
    """A model binds its thinking to the request that it reads, so the value comes back later."""
    name = "claude-opus-5-5"
    with Binding() as model:
        opencode = Opencode(tmp_path, model, signing(model.port, name))
        configure(tmp_path, opencode.root, **KEYS)
        with opencode.serving() as server:
            session = server.begin()

            def turn(*calls):
                number, prompt = model.script(*([call] for call in calls))
                body = {"parts": [{"type": "text", "text": prompt}],
                        "model": {**MODEL, "modelID": name}}  # fmt: skip
                server("POST", f"/session/{session}/message", body)
                assert not model.refused
                return model.of(number)

            for number in range(3):
                turn(printing(f"turn {number}"))
            before = opencode.rows("part", session)
            ours(opencode, "scan")
            entry = next(row[0] for row in opencode.rows("part", session) if TAKEN.search(row[-1]))
            pending = []

            def during(_plan, request):
                if request == 1:
                    pending.append(json.loads(ours(opencode, "restore", entry, "--json")))

            model.during = during
            requests = turn(printing("the next", 2), printing("one more", 2))
            model.during = None
            assert [answer["pending"] for answer in pending] == [True]
            assert all(f"[[extracted-{entry}]]" in taken(request) for request in requests)
            ours(opencode, "scan")
            assert f"[[extracted-{entry}]]" not in taken(turn(printing("the last", 2))[0])
            ours(opencode, "restore", "--all", "--pristine")
            assert same(before, opencode.rows("part", session))


def test_the_tool_is_registered_restores_in_its_turn_and_is_removed(opencode):
    """`init` asks the real program, the value is in the next request, and `--undo` removes it."""
    configuration = opencode.config / "opencode.json"
    with opencode.serving() as server:
        session = filled(opencode, server)
    ours(opencode, "scan")
    written = json.loads(configuration.read_text())
    ours(opencode, "init", "--yes", "--mcp", "opencode")
    assert (opencode.config / "skills/brainsurgeon/SKILL.md").exists()
    entry = next(row[0] for row in opencode.rows("part", session) if TAKEN.search(row[-1]))
    call = "brainsurgeon_purge_control", {"action": "restore", "entry": entry}
    first, second = opencode.run("run", "--session", session, "go on", calls=[call])

    assert f"[[extracted-{entry}]]" in taken(first)
    assert f"[[extracted-{entry}]]" not in taken({"messages": second["messages"][:-1]})
    assert check(second)
    assert (
        "which says nothing" in second["messages"][-1]["content"]
        or "think about" in (second["messages"][-1]["content"])
    )
    ours(opencode, "scan")
    assert (
        '"_redacted"'
        in opencode.sql("SELECT data FROM part WHERE data LIKE '%purge_control%' ORDER BY id DESC")[
            0
        ][0]
    )
    ours(opencode, "init", "--undo", "--yes")
    assert json.loads(configuration.read_text()) == written
    assert not (opencode.config / "skills/brainsurgeon").exists()


def test_beside_an_open_terminal_the_next_prompt_is_smaller(opencode):
    """The screen of a pruned session is drawn, and its next request has the placeholders."""
    with opencode.serving() as server:
        session = filled(opencode, server)
        whole = server.turn(session)[0]
    requests = opencode.model.next_turn([], "done.")
    command = ["opencode", "--session", session]
    with Terminal(command, opencode.environment, opencode.workspace) as terminal:
        wait("the screen", lambda: b"done." in terminal.output)
        ours(opencode, "scan")
        terminal.type("go on")
        wait("the request", lambda: requests)
        wait("the end", lambda: not reasons(opencode).get(session, ""))
    assert len(taken(requests[0])) >= 7
    assert size(requests[0]) < size(whole) / 2
    with Terminal(command, opencode.environment, opencode.workspace) as terminal:
        wait("the screen", lambda: b"done." in terminal.output)


def test_opencodes_own_pruning_and_ours_share_a_session(opencode):
    """What it cleared is neither sent nor counted, and is as it was after everything comes back."""
    with opencode.serving() as server:
        session = server.begin()
        for number in range(18):
            server.turn(session, *(printing(f"{number} {part}", 250) for part in range(2)))
    opencode.configure(**scripted(opencode.model.port, compaction={"prune": True}))
    cleared = "SELECT * FROM part WHERE data LIKE '%\"compacted\":%' ORDER BY id"
    with opencode.serving() as server:
        server.turn(session)
        wait("its pruning", lambda: opencode.sql(cleared))
        server.turn(session)
        before, rows = opencode.sql(cleared), opencode.rows("part", session)
        text = "[Old tool result content cleared]"
        whole = json.dumps(server.turn(session)[0]).count(text)
        assert whole == len(before)
        [report] = json.loads(ours(opencode, "scan", "--json"))["sessions"]
        assert report["outcome"] == "changed"
        request = server.turn(session)[0]
        assert json.dumps(request).count(text) == whole
        assert check(request)
        ours(opencode, "restore", "--all", "--pristine")
        assert opencode.sql(cleared) == before
        assert same(rows, opencode.rows("part", session))
