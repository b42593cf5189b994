"""Live: the real Claude Code on a strict scripted model, beside the daemon."""

import itertools
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from brainsurgeon.agents import FORMATS
from building import uninstall
from building.format_reading import entries, survey
from building.world import TOP
from proofs.live.claude import (
    NEWEST,
    ClaudeCode,
    printing,
    reading,
    sent,
    started_by,
    text_of,
    writing,
)
from proofs.live.messages import Messages
from proofs.live.program import configure, ours, wait
from proofs.live.witness import Witness

pytestmark = pytest.mark.long(
    proves=("formats", "agents", "sessions", "rewrite", "operations", "mcp_server", "daemon")
)

QUIET = 2
PROTECTION = 30
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f-]{36})\]\]")
VALUE = "\n".join(["this is a line of turn 0, which says nothing"] * 80)
FORM = FORMATS["claude-code"]
PAGE = (TOP / "deploy" / "claude-code" / "README.md").read_text()
SKILL = TOP / "deploy/claude-code/skills/brainsurgeon/SKILL.md"


def chained(path):
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    return {line["uuid"]: line for line in lines if "uuid" in line}


def results(path):
    """Return the text of each result of a session by uuid, in order."""
    texts = {}
    for ident, line in chained(path).items():
        content = line.get("message", {}).get("content")
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_result":
                texts[ident] = text_of(block["content"])
    return texts


def answers(request):
    """Return the texts of the results in the newest message of a request."""
    blocks = request["messages"][-1]["content"]
    return [text_of(block["content"]) for block in blocks if block["type"] == "tool_result"]


def fresh(before, after):
    """Return the results of a request that the one before it did not have."""
    return [text for call, text in sent(after).items() if call not in sent(before)]


def refused(request):
    blocks = [
        block for message in request["messages"] if isinstance(message["content"], list)
        for block in message["content"] if block["type"] == "tool_result"
    ]  # fmt: skip
    return [text_of(block["content"]) for block in blocks if block.get("is_error")]


def placeholders(request):
    return set(PLACEHOLDER.findall(json.dumps(list(sent(request).values()))))


def pruned(path):
    return {
        placeholder for text in results(path).values() for placeholder in PLACEHOLDER.findall(text)
    }


def live(path):
    """Return the texts of a session's live results by call id, as a resume sends them."""
    data = path.read_bytes()
    look = survey(FORM, data)
    return {
        answer.call_id: answer.text
        for offset, _, _, entry in entries(data) if look.dead(offset) is None
        for answer in FORM.read(entry).result_texts
    }  # fmt: skip


def check(path):
    """Check that each line is JSON, each parent comes first, and each call has one result."""
    ids, calls, answered = set(), [], []
    for line in path.read_bytes().splitlines():
        entry = json.loads(line)
        if "uuid" in entry:
            assert entry["parentUuid"] is None or entry["parentUuid"] in ids
            assert entry["uuid"] not in ids
            ids.add(entry["uuid"])
        calls += [call.call_id for call in FORM.read(entry).calls]
        content = entry.get("message", {}).get("content") if entry["type"] == "user" else None
        answered += [block["tool_use_id"] for block in content or ()
                     if isinstance(block, dict) and block["type"] == "tool_result"]  # fmt: skip
    assert sorted(calls) == sorted(answered)


@pytest.mark.parametrize("release", ["2.1.332", "2.1.112"])
def test_claude_code_works_with_placeholders_and_is_restored(tmp_path, start, release):
    """No turn fails over restores, a fork and a compaction; the undo restores every byte."""
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        configure(
            tmp_path, claude.config / "projects", quiet_seconds=QUIET, keep_recent=0,
            scan_interval_seconds=1, keep_after_restore_seconds=PROTECTION,
        )  # fmt: skip
        daemon = start(
            [sys.executable, "-m", "brainsurgeon", "run"], claude.environment, "daemon.log"
        )
        claude.turn([printing("turn 0")])
        with Witness(claude.path) as witness:
            _several_turns(claude)
            _restore_by_the_shell(claude)
            _restore_by_the_tool(claude)
            _one_process_for_several_turns(claude)
            agent = _sub_agent(claude)
            fork = _fork(claude)
            _compaction(claude)
            wait("the last turn is pruned", lambda: _all_extracted(claude.path))
            for path in (claude.path, agent, fork):
                check(path)
            daemon.terminate()
            assert daemon.wait(20) == 0
            wait("it is at rest", lambda: time.time() - claude.path.stat().st_mtime > QUIET)
            small = claude.path.stat().st_size
            ours(claude, "restore", "--all", "--pristine")
        original = b"".join(witness.lines)
        assert claude.path.read_bytes() == original
        assert pruned(agent) == pruned(fork) == set()
        requests = claude.turn([printing("after all")])
        assert placeholders(requests[0]) == set()
        print(
            f"{claude.turns} turns of {min(claude.seconds):.1f} to {max(claude.seconds):.1f} s, "
            f"all ok; {witness.states} states of the file seen; {len(original):,} bytes written "
            f"by Claude Code, {small:,} when pruned, {len(original):,} after the undo"
        )


def _all_extracted(path):
    long = [text for text in results(path).values() if len(text) > 500]
    return not [text for text in long if not text.startswith("<persisted-output>")]


def _several_turns(claude):
    """Do five turns, each pruned before the next; each shows the model more placeholders."""
    shown = [set()]
    for number in range(1, 6):
        wait("the turn is pruned", lambda: _all_extracted(claude.path))
        expected = live(claude.path)
        report = claude.workspace / f"{number}.txt"
        requests = claude.turn(
            [printing(f"turn {number}"), writing(report, f"turn {number}")],
            [reading(report), printing(f"turn {number}, more", lines=200)],
        )
        shown_texts = sent(
            requests[0]
        )  # to the last of them Claude Code may add a reminder of its own
        assert shown_texts.keys() == expected.keys()
        assert all(shown_texts[call].startswith(text) for call, text in expected.items())
        assert shown[-1] < placeholders(requests[0])
        shown.append(placeholders(requests[0]))
    assert len(shown[-1]) >= 9


def _first(claude):
    return next(iter(results(claude.path)))


def _restore_by_the_shell(claude):
    wait("the turn is pruned", lambda: _all_extracted(claude.path))
    ident = _first(claude)
    look = f"stat -c '%i %s %y %z' {claude.path}"
    command = f"{look} > before; brainsurgeon restore '[[extracted-{ident}]]'; {look} > after"
    requests = claude.turn(
        [("Bash", {"command": command, "description": "restore"})],
        [printing("something else", lines=5)],
    )  # fmt: skip
    [answer] = answers(requests[1])
    assert VALUE in answer
    wait("it is back and its call redacted", lambda: _is_restored(claude.path, ident, answer))
    requests = claude.turn([printing("the turn after")])
    assert ident not in placeholders(requests[0])
    assert VALUE in sent(requests[0]).values()
    wait("it is extracted again", lambda: ident in pruned(claude.path))


def _is_restored(path, ident, answer):
    """Check whether a value is restored and the answer that returned it is redacted."""
    lines, texts = chained(path), results(path)
    if "_restored" not in lines[ident] or texts[ident] != VALUE:
        return False
    redacted = [entry for entry in lines.values() if entry.get("_redacted")]
    is_redacted = answer not in texts.values() and f"Restored {ident}." in texts.values()
    assert is_redacted
    assert len({entry["type"] for entry in redacted}) == 2
    shown = json.dumps([entry.get("toolUseResult") for entry in redacted])
    assert "this is a line of turn 0" not in shown
    return True


def _restore_by_the_tool(claude):
    """Restore by a model's call of `purge_control`, whose server Claude Code started."""
    ident = _first(claude)
    tool = "mcp__brainsurgeon__purge_control"
    requests = claude.turn(
        [(tool, {"action": "get_context"})],
        [(tool, {"action": "show", "entry": ident, "keys": "content"})],
        [(tool, {"action": "restore", "entry": f"[[extracted-{ident}]]"})],
    )
    listed = json.loads(answers(requests[1])[0])
    assert claude.session in listed["session"]
    assert ident in {row["entry_id"] for row in listed["extracted"]}
    assert VALUE in json.loads(answers(requests[2])[0])["content"].values()
    [text] = answers(requests[3])
    answer = json.loads(text)
    assert answer["pending"] is True
    assert VALUE in answer["content"].values()
    wait("it is back and its call redacted", lambda: _is_restored(claude.path, ident, text))
    wait("it is extracted again", lambda: ident in pruned(claude.path))


def _one_process_for_several_turns(claude):
    """Prune beside an idle process, and try in the middle of its turn, which is deferred."""
    reports = []

    def scan_in_the_middle(_plan, round_):
        if round_ == 2:
            printed = ours(claude, "scan", "--once", "--json", "--session", claude.session)
            reports.append(json.loads(printed)["sessions"][0])

    with claude.stay() as say:
        before = pruned(claude.path)
        say([printing("one process")], [printing("one process, more")])
        time.sleep(QUIET + 3)
        assert pruned(claude.path) == before
        ours(claude, "scan", "--once", "--session", claude.session)
        beside = pruned(claude.path) - before
        assert len(beside) == 2
        claude.model.during = scan_in_the_middle
        requests = say([printing("one process again")], [printing("and again")])
        claude.model.during = None
        assert [report["outcome"] for report in reports] == ["deferred"]
        assert not beside & placeholders(requests[0])
        say([printing("the last of one process")])
    wait("all is pruned when it has gone", lambda: _all_extracted(claude.path))
    requests = claude.turn([printing("another process")])
    assert beside < placeholders(requests[0])


def _sub_agent(claude):
    number, prompt = claude.model.script([printing("the sub-agent")])
    del number
    tools = {"description": "sub work", "subagent_type": "general-purpose", "prompt": prompt}
    name = "Agent" if claude.words[-1].endswith("claude") else "Task"
    claude.turn([(name, {**tools, "run_in_background": False} if name == "Agent" else tools)])
    [path] = claude.project.glob(f"{claude.session}/subagents/agent-*.jsonl")
    wait("the sub-agent's session is pruned", lambda: pruned(path))
    title = f"claude-code:{claude.project.name}/{path.stem}"
    assert title in ours(claude, "sessions", "--json")
    return path


def _fork(claude):
    """Restore in a fork a value extracted in its parent; return the fork's file."""
    wait("the turn is pruned", lambda: _all_extracted(claude.path))
    ident = _first(claude)
    before = claude.path.read_bytes()
    session, requests = claude.fork(
        [("mcp__brainsurgeon__purge_control", {"action": "restore", "entry": ident})]
    )
    answer = json.loads(answers(requests[1])[0])
    assert session in answer["session"]
    assert VALUE in answer["content"].values()
    fork = claude.file(session)
    assert fork != claude.path
    wait("it is back in the fork", lambda: results(fork)[ident] == VALUE)
    assert claude.path.read_bytes() == before
    return fork


def _compaction(claude):
    """Compact by Claude Code, then restore a value from before."""
    wait("the turn is pruned", lambda: _all_extracted(claude.path))
    claude.compact()
    ident = _first(claude)
    look = f"grep -o 'extracted-{ident}' {claude.path} | head -1; brainsurgeon show {ident}"
    requests = claude.turn(
        [("Bash", {"command": f"{look} --key content", "description": "look"})],
        [("Bash", {"command": f"brainsurgeon restore {ident}", "description": "restore"})],
    )
    assert ident not in placeholders(requests[0])
    assert f"extracted-{ident}" in answers(requests[1])[0]
    assert VALUE in answers(requests[1])[0]
    [answer] = answers(requests[2])
    wait("it is back", lambda: _is_restored(claude.path, ident, answer))
    assert os.path.exists(claude.path)


def test_removal_right_after_a_turn_restores_the_session(tmp_path):
    """Typed a second after a turn, the removal commands wait for its end and exit with 0."""
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(NEWEST), model)
        configure(tmp_path, claude.config / "projects", quiet_seconds=QUIET, keep_recent=0)
        claude.turn([printing("turn 0")])
        wait("it is at rest", lambda: time.time() - claude.path.stat().st_mtime > QUIET)
        ours(claude, "scan", "--once")
        assert pruned(claude.path)
        claude.turn([printing("turn 1")])
        time.sleep(1)
        uninstall.run_documented_commands(claude.environment)

        assert pruned(claude.path) == set()
        assert not (tmp_path / "state").exists()
        claude.turn([printing("turn 2")])


def test_commands_of_page_skill_and_example_work_as_written(tmp_path):
    """Each command line is typed, each tool call made, and no answer is an error."""
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(NEWEST), model)
        (claude.config / "skills").mkdir()
        tools = tmp_path / "tools"
        tools.mkdir()
        (tools / "claude").symlink_to(claude.words[0])
        place = claude.home / ".local" / "bin"
        place.mkdir(parents=True)
        (place / "brainsurgeon").symlink_to(Path(sys.executable).parent / "brainsurgeon")
        del claude.environment["BRAINSURGEON_CONFIG"], claude.environment["CLAUDE_CONFIG_DIR"]
        (claude.home / ".claude.json").symlink_to(claude.config / ".claude.json")
        claude.environment["PATH"] = f"{place}:{tools}:{os.environ['PATH']}"
        for number in range(4):
            claude.turn([printing(f"turn {number}")])
        wait("it is quiet", lambda: time.time() - claude.path.stat().st_mtime > 31)

        lines = _typed("Prune its sessions")
        _type(claude, lines[:2])
        ours(claude, "archive", claude.session, "--turns", "1..1")
        _type(claude, lines[2:])
        assert len(pruned(claude.path)) == 3
        _type(claude, _typed("Give it the tool"))
        [archived] = json.loads(ours(claude, "archive", "--list", claude.session, "--json"))[
            "archives"
        ]
        ident = list(results(claude.path))[1]
        claude.with_server = []
        _follow_the_skill(claude, ident, archived["entry_id"])
        _uncomment_the_example(claude)


def _follow_the_skill(claude, ident, archived):
    """Load the skill, make each of its calls and type each of its lines."""
    text = SKILL.read_text().replace("3e7c9d52-8a41-4b6f-9c07-1d2e5f60a8b3", ident)
    text = text.replace("0f3c5d1e", claude.session[:8]).replace("7c01b9e2", archived)
    value = VALUE.replace("turn 0", "turn 1")
    calls = [json.loads(call) for call in re.findall(r'\{"action".*?\}', text)]
    lines = re.search(r"```sh\n(.*?)```", text, re.DOTALL)[1].splitlines()
    [tool] = set(re.findall(r"`(\w*purge_control)`", text))
    requests = claude.turn(
        [("Skill", {"skill": "brainsurgeon"})],
        *([(tool, call)] for call in calls),
        [("Bash", {"command": line, "description": "as the skill says"}) for line in lines],
    )
    assert "Read, restore or pin values" in json.dumps(requests[0]["messages"])
    assert "After a compaction" in json.dumps(requests[1]["messages"])
    assert refused(requests[-1]) == []
    replies = [fresh(*pair)[0] for pair in itertools.pairwise(requests[1:-1])]
    for call, reply in zip(calls, replies, strict=True):
        if call.get("entry") == archived:
            assert "turn 0" in reply or "Full output saved to" in reply  # as Claude Code sees fit
        elif call["action"] in ("show", "restore") and "offset" not in call:
            assert value in json.loads(reply)["content"].values()
    typed = fresh(*requests[-2:])
    assert len(typed) == len(lines)
    assert all(value in reply for reply in typed[:2])

    wait("it is quiet", lambda: time.time() - claude.path.stat().st_mtime > 31)
    ours(claude, "scan", "--once", "--session", claude.session)
    entry, reply = chained(claude.path)[ident], results(claude.path)
    assert reply[ident] == value
    assert (entry["_extractable"], "_restored" in entry) == (False, True)
    assert list(reply.values()).count(f"Restored {ident}.") == 2


def _uncomment_the_example(claude):
    text = (TOP / "config.toml.example").read_text()
    lines = '[[roots]]\npath = "~/.claude/projects"'
    commented = "\n".join(f"# {line}" for line in lines.splitlines())
    assert text.count(commented) == 1
    place = claude.base / "config.toml"
    place.write_text(text.replace(commented, lines))
    assert claude.session in ours(claude, "sessions", "--json", "--config", str(place))


def _typed(title):
    section = re.search(rf"\n## {title}\n(.*?)\n## ", PAGE, re.DOTALL)[1]
    return re.findall(r"^\$ (.*)$", section, re.MULTILINE)


def _type(claude, lines):
    process = subprocess.run(
        ["sh", "-e"], input="\n".join(lines), text=True, capture_output=True, cwd=TOP, timeout=120,
        env=claude.environment, check=False,
    )  # fmt: skip
    assert process.returncode == 0, (process.stdout, process.stderr)
