"""Live: `show` and `restore` in a fork, a sub-agent and other places of the real Claude Code."""

import itertools
import json
import re

import pytest

from proofs.agent_packages import CLAUDE_CODES
from proofs.live.claude import ClaudeCode, printing, sent, started_by, text_of
from proofs.live.messages import Messages
from proofs.live.program import configure, ours

pytestmark = pytest.mark.long(proves=("formats", "hosts", "lookup", "operations", "mcp_server"))

TOOL = "mcp__brainsurgeon__purge_control"
PLACEHOLDER = re.compile(r"\[\[extracted-([0-9a-f-]{36})\]\]")
VALUES = [
    "\n".join([f"this is a line of turn {number}, which says nothing"] * 80) for number in range(3)
]


def results(path):
    texts = {}
    for line in map(json.loads, path.read_bytes().splitlines()):
        content = line.get("message", {}).get("content")
        for block in content if isinstance(content, list) else []:
            if block["type"] == "tool_result":
                texts[line["uuid"]] = text_of(block["content"])
    return texts


def answers(requests):
    """Return the answers of each round: the results that the request before did not have."""
    results_of = map(sent, requests)
    return [
        "".join(text for call, text in after.items() if call not in before)
        for before, after in itertools.pairwise(results_of)
    ]


def fork(claude, rounds):
    """Ask in a fork; return its requests, and its file, which holds copies of the values."""
    session, requests = claude.fork(*rounds)
    path = claude.file(session)
    assert path != claude.path
    return requests, path


def sub_agent(claude, rounds):
    """Ask in a sub-agent; its parent's session holds the values."""
    number, prompt = claude.model.script(*rounds)
    arguments = {"description": "ask", "subagent_type": "general-purpose", "prompt": prompt}
    native = claude.words[-1].endswith("claude")
    claude.turn(
        [("Agent", {**arguments, "run_in_background": False}) if native else ("Task", arguments)]
    )
    [path] = claude.project.glob(f"{claude.session}/subagents/agent-*.jsonl")
    assert path.stat().st_size
    return claude.model.of(number), claude.path


def clear(claude, rounds):
    requests = claude.types(["/clear", "\r"], *rounds)
    assert "[plan 1]" not in json.dumps(requests[0])
    assert len(list(claude.project.glob("*.jsonl"))) == 2
    return requests, claude.path


def rewind(claude, rounds):
    """Ask after rewinding to the second prompt: the last value is on a dead branch."""
    up, empty = "\x1b[A", "\x15"
    requests = claude.types(["/rewind", "\r", up, up, "\r", "\r", empty], *rounds)
    assert "[plan 1]" in json.dumps(requests[0])
    assert "[plan 2]" not in json.dumps(requests[0])
    return requests, claude.path


@pytest.mark.parametrize("place", [fork, sub_agent, clear, rewind])
@pytest.mark.parametrize("release", CLAUDE_CODES)
def test_show_and_restore_work_in_a(tmp_path, release, place):
    """Shell and tool return each value whole, and after a scan it is in its session."""
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        configure(tmp_path, claude.config / "projects", keep_recent=0)
        for number in range(3):
            claude.turn([printing(f"turn {number}")])
        ours(claude, "scan", "--once")
        idents = list(results(claude.path))
        assert [PLACEHOLDER.findall(text) for text in results(claude.path).values()] == [
            [ident] for ident in idents
        ]
        first, _, last = idents
        values = {first: VALUES[0], last: VALUES[2]}

        typed = [f"show {first} --key content", f"show {last} --key content", f"restore {first}"]
        shows = [{"action": "show", "entry": ident} for ident in (first, last)]
        requests, holder = place(claude, [
            *([("Bash", {"command": f"brainsurgeon {line}", "description": "ask"})]
              for line in typed),
            *([(TOOL, answer)] for answer in (*shows, {"action": "restore", "entry": last})),
        ])  # fmt: skip
        assert model.refused == []
        *replies, restored = answers(requests)
        answer = json.loads(restored)
        contents = [json.loads(reply)["content"] for reply in replies[3:]] + [answer["content"]]
        replies[3:] = ["".join(content.values()) for content in contents]
        for ident, text in zip((first, last, first, first, last, last), replies, strict=True):
            assert values[ident] in text
        assert answer["session"].endswith(holder.stem)
        if not answer["pending"]:
            assert results(holder)[last] == values[last]
        ours(claude, "scan", "--once")
        assert {ident: results(holder)[ident] for ident in values} == values
        print(f"{release}, {place.__name__}: {'pending' if answer['pending'] else 'at once'}")
