"""Signed thinking in sessions of Claude Code: extracted, restored, and repaired after a refusal."""

import json

import pytest

from brainsurgeon.agents.claude_code.format import NO_CONTENT
from building.claude import ClaudeConversation, ClaudeWorld
from building.processes import json_output, run
from building.world import pin

WORLD = ClaudeWorld

REFUSED = (
    "API Error: 400 Invalid `signature` in `thinking` block: the block is bound to a different"
    " conversation"
)
RULES = {"keep_recent": 0, "trigger_types": ["tool_result"]}


def thought(tag):
    """Return a block of hidden thinking with its signature, or a redacted one."""
    if tag % 3 == 2:
        return {"type": "redacted_thinking", "data": f"sig-{tag}"}
    return {"type": "thinking", "thinking": "", "signature": f"sig-{tag}"}


def write_session(world, turns, refused=False):
    """Write a session with two thoughts a turn; return its path and the thoughts' ids."""
    talk, ids = ClaudeConversation(), []
    for number in range(turns):
        talk.user()
        ids.append(talk.assistant(thought(2 * number), stop="tool_use", message=f"a{number}"))
        talk.call(f"toolu_{number}", message=f"a{number}")
        talk.result(call=f"toolu_{number}")
        ids.append(talk.assistant(thought(2 * number + 1), message=f"b{number}"))
        talk.assistant(message=f"b{number}")
    if refused:
        talk.user()
        talk.assistant({"type": "text", "text": REFUSED}, isApiErrorMessage=True)
    return world.put(f"{talk.lines[0]['sessionId']}.jsonl", talk.bytes()), ids


def count_thoughts(path):
    """Return the numbers of signatures and of emptied blocks."""
    text = path.read_text()
    return text.count('"sig-'), text.count(f'"content":{NO_CONTENT.decode()}')


def test_thinking_behind_the_first_placeholder_is_extracted(world):
    """The thought before the first placeholder stays; the undo restores every byte."""
    path, _ = write_session(world, 4)
    before = path.read_bytes()
    world.scan(**RULES)

    assert count_thoughts(path) == (1, 7)
    assert world.scan(**RULES).sessions_changed == 0
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("pinned", [False, True])
def test_relieve_signatures_extracts_all_but_pinned_thoughts(world, pinned):
    """`relieve --signatures` exits with 1 while a pinned thought remains."""
    path, ids = write_session(world, 3, refused=True)
    if pinned:
        pin(world, ids[0], False)
    config = world.config_file(keep_recent=100)
    process = run("relieve", path.stem, "--signatures", "--json", "--config", config)
    report = json_output(process)

    assert process.returncode == pinned
    assert count_thoughts(path) == (pinned, 6 - pinned)
    assert report["refused"] == ids[:1] * pinned
    assert all(map(json.loads, path.read_text().splitlines()))
    again = run("relieve", path.stem, "--signatures", "--config", config)
    assert again.returncode == pinned
    assert (ids[0] in again.stdout.decode()) is pinned
