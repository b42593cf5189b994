"""The live scenario: from everywhere in the real Claude Code, values are shown and restored."""

import itertools
import json
import re

import pytest

from proofs.agent_packages import CLAUDE_CODES
from proofs.live.claude import ClaudeCode, printing, started_by
from proofs.live.messages import Messages
from proofs.live.program import ours

pytestmark = pytest.mark.long(proves=("formats", "hosts", "lookup", "operations", "mcp_server"))

TOOL = "mcp__brainsurgeon__purge_control"
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f-]{36})\]\]")
VALUES = [
    "\n".join([f"this is a line of turn {number}, which says nothing"] * 80) for number in range(3)
]


def text_of(content):
    if isinstance(content, str):
        return content
    return "".join(block.get("text", "") for block in content)


def results(path):
    said = {}
    for line in map(json.loads, path.read_bytes().splitlines()):
        content = line.get("message", {}).get("content")
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_result":
                said[line["uuid"]] = text_of(block["content"])
    return said


def answers(requests):
    """Give what is answered in each round: what a request says and the one before did not."""
    told = [
        {
            block["tool_use_id"]: text_of(block["content"])
            for message in request["messages"] if isinstance(message["content"], list)
            for block in message["content"] if block["type"] == "tool_result"
        }
        for request in requests
    ]  # fmt: skip
    return [
        "".join(text for call, text in after.items() if call not in before)
        for before, after in itertools.pairwise(told)
    ]


def fork(claude, rounds):
    """Ask in a fork; give its requests, and its file, which holds copies of the values."""
    session, requests = claude.fork(*rounds)
    path = claude.file(session)
    assert path != claude.path
    return requests, path


def sub_agent(claude, rounds):
    """Ask in a sub-agent, which holds no value: its session does."""
    number, prompt = claude.model.script(*rounds)
    given = {"description": "ask", "subagent_type": "general-purpose", "prompt": prompt}
    native = claude.words[-1].endswith("claude")
    claude.turn([("Agent", {**given, "run_in_background": False}) if native else ("Task", given)])
    [path] = claude.project.glob(f"{claude.session}/subagents/agent-*.jsonl")
    assert path.stat().st_size
    return claude.model.of(number), claude.path


def clear(claude, rounds):
    requests = claude.types(["/clear", "\r"], *rounds)
    assert "[plan 1]" not in json.dumps(requests[0])
    assert len(list(claude.project.glob("*.jsonl"))) == 2
    return requests, claude.path


def rewind(claude, rounds):
    """Ask after a step back to the second prompt: the last value stands on a dead branch."""
    up, empty = "\x1b[A", "\x15"
    requests = claude.types(["/rewind", "\r", up, up, "\r", "\r", empty], *rounds)
    assert "[plan 1]" in json.dumps(requests[0])
    assert "[plan 2]" not in json.dumps(requests[0])
    return requests, claude.path


@pytest.mark.parametrize("place", [fork, sub_agent, clear, rewind])
@pytest.mark.parametrize("release", CLAUDE_CODES)
def test_values_are_shown_and_restored_from(tmp_path, release, place):
    """By shell and by tool each value is answered whole, and stands in its session after a scan."""
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        (tmp_path / "config.toml").write_text(
            f'state_dir = "{tmp_path}/state"\nquiet_seconds = 0\nkeep_recent = 0\n'
            f'min_reclaim = 0\n[[roots]]\npath = "{claude.config}/projects"\n'
        )
        for number in range(3):
            claude.turn([printing(f"turn {number}")])
        ours(claude, "scan", "--once")
        idents = list(results(claude.path))
        assert [PLACEHOLDER.findall(said) for said in results(claude.path).values()] == [
            [ident] for ident in idents
        ]
        first, _, last = idents
        values = {first: VALUES[0], last: VALUES[2]}

        typed = [f"show {first} --key content", f"show {last} --key content", f"restore {first}"]
        shows = [{"action": "show", "entry": ident} for ident in (first, last)]
        requests, holder = place(claude, [
            *([("Bash", {"command": f"brainsurgeon {line}", "description": "ask"})]
              for line in typed),
            *([(TOOL, given)] for given in (*shows, {"action": "restore", "entry": last})),
        ])  # fmt: skip
        assert model.refused == []
        *told, restored = answers(requests)
        given = json.loads(restored)
        told = [*told[:3], *("".join(json.loads(one)["content"].values()) for one in told[3:]),
                "".join(given["content"].values())]  # fmt: skip
        for ident, text in zip((first, last, first, first, last, last), told, strict=True):
            assert values[ident] in text
        assert given["session"].endswith(holder.stem)
        if not given["pending"]:
            assert results(holder)[last] == values[last]
        ours(claude, "scan", "--once")
        assert {ident: results(holder)[ident] for ident in values} == values
        print(f"{release}, {place.__name__}: {'pending' if given['pending'] else 'at once'}")
