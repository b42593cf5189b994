"""Conversations whose turns are large enough to archive, and readers of their files."""

import json
from contextlib import contextmanager

import pytest

from brainsurgeon.planning import archiving
from building.world import Conversation

ARCHIVE_ON = {"archive": {"enabled": True}}


@contextmanager
def folding(after, depth=3):
    """Set when archives are archived again: more than `after` in a row, up to `depth` levels."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archiving, "FOLD_AFTER", after)
        patch.setattr(archiving, "DEPTH_CAP", depth)
        yield


def add_long_turn(conversation, question="fix it", answer="It is fixed.", calls=5, text="x" * 900):
    """Add a turn with several calls; return the ids of its prompt and its last answer."""
    prompt = conversation.user(question)
    for number in range(calls):
        call = f"{prompt}-{number}"
        conversation.call(call=call, arguments={"path": f"/w/{number}.py"})
        conversation.result(f"{text}{call}", call=call)
    return prompt, conversation.assistant(answer)


def conversation_of_turns(count, **fields):
    conversation = Conversation(**fields)
    return conversation, [
        add_long_turn(conversation, answer=f"Number {number} is done.") for number in range(count)
    ]


def active_branch(data):
    """Return the entries of the active branch as pi walks it, from root to leaf."""
    entries = [json.loads(line) for line in data.splitlines() if line][1:]
    known = {entry["id"]: entry for entry in entries}
    path, at = [], entries[-1]
    while at is not None:
        path.insert(0, at)
        at = known.get(at["parentId"])
    return path


def branch_roles(data):
    return [entry["message"]["role"] for entry in active_branch(data) if entry["type"] == "message"]


def text_blocks(data, ident):
    entries = [json.loads(line) for line in data.splitlines() if line]
    content = next(entry for entry in entries if entry.get("id") == ident)["message"]["content"]
    return [content] if isinstance(content, str) else [block["text"] for block in content
                                                       if block["type"] == "text"]  # fmt: skip
