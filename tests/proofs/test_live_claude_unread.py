"""Live: entries that releases of the real Claude Code never read again, extracted."""

import json
import re
import uuid

import pytest

from proofs.agent_packages import CLAUDE_CODES
from proofs.live.claude import ClaudeCode, printing, reading, sent, started_by, writing
from proofs.live.messages import Messages
from proofs.live.program import configure, ours

pytestmark = pytest.mark.long(proves=("formats", "planning", "rewrite"))


def contents(request):
    """Return the content of a request without the numbers of its plan and calls."""
    known = [request["system"], request["messages"], [tool["name"] for tool in request["tools"]]]
    return re.sub(r"\[plan [0-9]+\]|cc_version=[^;]*;", "", json.dumps(known, sort_keys=True))


def scanned(claude):
    """Scan, and return the number of bytes that were removed."""
    before = claude.path.stat().st_size
    ours(claude, "scan", "--once")
    return before - claude.path.stat().st_size


@pytest.mark.parametrize("release", CLAUDE_CODES)
def test_extracting_unread_entries_changes_no_request(tmp_path, release):
    """Resume, fork, `--continue` and a step back send the same as without a scan.

    No step back reaches beyond a compaction, so all values before it are extracted.
    """
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        claude.with_server = []
        configure(
            tmp_path, claude.config / "projects", abandoned_after_seconds=0, trigger_types=[],
            min_value_length=0, keep_recent=0,
        )  # fmt: skip
        text = claude.workspace / "a.txt"
        text.write_text("a line of a file\n" * 400)
        claude.turn([printing(0)])
        early = last_reply(claude)
        add_unread(claude)
        claude.turn([reading(text), printing(0)], [writing(claude.workspace / "b.txt", "b")])
        claude.compact()
        claude.turn([reading(text), printing(1)])
        claude.turn([printing(2)])
        late = last_reply(claude)
        add_unread(claude)
        whole, ways = claude.path.read_bytes(), (
            [], ["--fork-session"], ["--continue"], ["--resume-session-at", late],
        )  # fmt: skip
        expected = [first_request(claude, whole, way) for way in ways]
        claude.path.write_bytes(whole)
        removed = scanned(claude)
        small = claude.path.read_bytes()

        assert [first_request(claude, small, way) for way in ways] == expected
        assert first_request(claude, small, ["--resume-session-at", early]) is None
        assert removed > len(whole) / 4
        print(f"{release}: {len(whole):,} bytes, {removed:,} of them never read again")


@pytest.mark.parametrize("release", CLAUDE_CODES)
def test_file_is_read_again_after_a_scan(tmp_path, release):
    """A file whose text was extracted is sent whole, not as unchanged since the last look at it."""
    with Messages() as model:
        claude = ClaudeCode(tmp_path, started_by(release), model)
        claude.with_server = []
        configure(tmp_path, claude.config / "projects", abandoned_after_seconds=0)
        text = claude.workspace / "a.txt"
        text.write_text("a line of a file\n" * 400)
        claude.turn([reading(text)])
        for number in range(3):
            claude.turn([printing(number)])
        ours(claude, "scan", "--once")
        requests = claude.turn([reading(text)])
        results = list(sent(requests[1]).values())

        assert "[[extracted-" in results[0]
        assert results[-1].count("a line of a file") == 400


def add_unread(claude):
    """Add a hook's output, and the structured copy of an MCP result, as 2.1.330 writes them."""
    lines = [json.loads(line) for line in claude.path.read_bytes().splitlines()]
    newest = [line for line in lines if line.get("uuid") and line["type"] == "assistant"][-1]
    result = [line for line in lines if line.get("toolUseResult")][-1]
    result["mcpMeta"] = {"structuredContent": {"rows": [{"text": "copy " * 900}]}}
    hook = {"type": "hook_success", "hookName": "PostToolUse:Bash", "hookEvent": "PostToolUse",
            "toolUseID": "toolu_x", "content": "", "stdout": "out " * 900, "stderr": "",
            "exitCode": 0, "command": "true " * 900}  # fmt: skip
    keys = ("isSidechain", "sessionId", "timestamp", "cwd", "version", "userType", "gitBranch")
    lines.append({
        "type": "attachment", "attachment": hook, "uuid": str(uuid.uuid4()),
        "parentUuid": newest["uuid"], **{key: newest[key] for key in keys if key in newest},
    })  # fmt: skip
    claude.path.write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


def last_reply(claude):
    lines = map(json.loads, claude.path.read_bytes().splitlines())
    return [line["uuid"] for line in lines if line["type"] == "assistant"][-1]


def first_request(claude, data, way):
    """Resume a session with this content; return its first request, or None without one."""
    claude.path.write_bytes(data)
    number, prompt = claude.model.script(closing="more")
    continued = way == ["--continue"]
    for other in claude.project.glob("*.jsonl") if continued else ():
        if other != claude.path:
            other.unlink()
    options = way if continued else [*way, "--resume", claude.session]
    claude.runs(prompt, options)
    requests = claude.model.of(number)
    assert claude.model.refused == []
    return contents(requests[0]) if requests else None
