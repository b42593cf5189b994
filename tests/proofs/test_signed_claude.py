"""Signed thinking in Claude Code's sessions: removed, brought back, mended after a refusal."""

import json

import pytest

from brainsurgeon.formats.claude_code import NO_CONTENT
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
    """Give a block of hidden thinking with its signature, or a redacted one."""
    if tag % 3 == 2:
        return {"type": "redacted_thinking", "data": f"sig-{tag}"}
    return {"type": "thinking", "thinking": "", "signature": f"sig-{tag}"}


def put(world, turns, refused=False):
    """Write a session, two thoughts a turn, on lines of their own; give its path and their ids."""
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


def standing(path):
    text = path.read_text()
    return text.count('"sig-'), text.count(f'"content":{NO_CONTENT.decode()}')


def test_signed_thinking_behind_the_first_cut_leaves_with_it(world):
    """The first thought stays, the six behind the first result leave, and all comes back."""
    path, _ = put(world, 4)
    before = path.read_bytes()
    world.scan(**RULES)

    assert standing(path) == (1, 7)
    assert world.scan(**RULES).sessions_changed == 0
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


def test_where_a_thought_is_pinned_the_session_stays_as_it_is(world):
    """Any change before it would have the next prompt refused."""
    path, ids = put(world, 2)
    pin(world, ids[-1], False)
    before = path.read_bytes()
    [told] = world.scan(**RULES).sessions

    assert path.read_bytes() == before
    assert told.reason == f"signatures: the thinking of {ids[-1]} would break: it is pinned"


@pytest.mark.parametrize("pinned", [False, True])
def test_a_refused_session_is_mended_or_named(world, pinned):
    """`relieve --signatures` takes all out, and ends with 1 while the next prompt is refused."""
    path, ids = put(world, 3, refused=True)
    if pinned:
        pin(world, ids[0], False)
    config = world.config_file(keep_recent=100)
    done = run("relieve", path.stem, "--signatures", "--json", "--config", config)
    told = json_output(done)

    assert done.returncode == pinned
    assert standing(path) == (pinned, 6 - pinned)
    assert told["refused"] == ids[:1] * pinned
    assert all(map(json.loads, path.read_text().splitlines()))
    again = run("relieve", path.stem, "--signatures", "--config", config)
    assert again.returncode == pinned
    assert (ids[0] in again.stdout.decode()) is pinned
