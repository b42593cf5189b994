"""Live: `show` and `restore` in a fork, a sub-agent and other places of the real Claude Code."""

import itertools
import json
import re

import pytest

from proofs.agent_packages import CLAUDE_CODES
from proofs.live.claude import NEWEST, ClaudeCode, printing, sent, started_by, text_of
from proofs.live.messages import Messages
from proofs.live.program import configure, ours

pytestmark = pytest.mark.long(proves=("formats", "agents", "lookup", "operations", "mcp_server"))

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


def move_behind_link(claude, linked):
    """Let `~/.claude`, or a directory in it, be a link, and the program find it by its default."""
    del claude.environment["CLAUDE_CONFIG_DIR"]
    (claude.config / ".claude.json").rename(claude.home / ".claude.json")
    place, real = claude.home / linked, claude.base / "elsewhere"
    place.mkdir(exist_ok=True)
    place.rename(real)
    place.symlink_to(real)


def run_workflow(claude, agents=2):
    """Start a workflow by the model, and wait until its sub-agents have ended."""
    settings = claude.config / "settings.json"
    allowed = json.loads(settings.read_text())
    allowed["permissions"]["allow"].append("Workflow")
    settings.write_text(json.dumps(allowed))
    scripts = [
        claude.model.script(*([printing(f"{agent} {step}")] for step in range(3)))
        for agent in range(agents)
    ]
    called = ", ".join(f"() => agent({json.dumps(prompt)})" for _, prompt in scripts)
    meta = "export const meta = {name: 'both', description: 'two sub-agents'}"
    workflow = {"script": f"{meta}\nreturn await parallel([{called}])"}
    _, prompt = claude.model.script([("Workflow", workflow)])
    claude.runs(prompt, claude._session(claude.session))
    assert [len(claude.model.of(number)) for number, _ in scripts] == agents * [4]
    paths = sorted(claude.project.glob(f"{claude.session}/subagents/workflows/*/agent-*.jsonl"))
    assert len(paths) == agents
    return paths


@pytest.mark.parametrize("linked", [".claude", ".claude/projects"])
def test_session_behind_a_link_is_pruned_with_its_workflow(tmp_path, linked):
    """An open process is respected; later requests have placeholders, and all bytes come back."""
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(NEWEST), model)
        claude.with_server = []
        move_behind_link(claude, linked)
        configure(tmp_path, claude.config / "projects", keep_recent=0)
        agents = run_workflow(claude)
        with claude.stay() as turn:
            turn([printing("turn 0")])
            before = claude.path.read_bytes()
            ours(claude, "scan", "--once")
            listed = json.loads(ours(claude, "sessions", "--json"))["sessions"]
            [reason] = {row["reason"] for row in listed}
            assert reason.startswith("an open Claude Code has it in memory")
            assert claude.path.read_bytes() == before
            turn([printing("turn 1")])
        paths = [claude.path, *agents]
        whole = {path: path.read_bytes() for path in paths}
        journal = agents[0].with_name("journal.jsonl").read_bytes()
        ours(claude, "scan", "--once")
        extracted = {path: set(PLACEHOLDER.findall(path.read_text())) for path in paths}
        listed = json.loads(ours(claude, "sessions", "--json"))["sessions"]
        _, [request] = claude.fork()

        assert all(extracted.values())
        assert {row["started_by"] for row in listed} == {
            None, f"claude-code:{claude.project.name}/{claude.session}",
        }  # fmt: skip
        placeholders = set(PLACEHOLDER.findall(json.dumps(request["messages"])))
        assert placeholders == extracted[claude.path] & results(claude.path).keys()
        assert len(placeholders) >= 2
        assert model.refused == []
        ours(claude, "restore", "--all", "--pristine")
        assert {path: path.read_bytes() for path in paths} == whole
        assert agents[0].with_name("journal.jsonl").read_bytes() == journal
