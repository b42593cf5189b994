"""Conversations whose turns are large enough to be archived.

What agents make of their files.
"""

import json
from contextlib import contextmanager

import pytest

from brainsurgeon.planning import archive
from building.world import Conversation

# Settings under which turns are archived.
ARCHIVE_ON = {"archive": {"enabled": True}}


@contextmanager
def folding(after, depth=3):
    """Archive more than `after` archives in a row once more, up to a depth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "FOLD_AFTER", after)
        patch.setattr(archive, "DEPTH_CAP", depth)
        yield


def add_long_turn(talk, question="fix it", answer="It is fixed.", calls=5, text="x" * 900):
    """Add a turn with several calls; give the ids of its prompt and of its last answer."""
    prompt = talk.user(question)
    for number in range(calls):
        call = f"{prompt}-{number}"
        talk.call(call=call, arguments={"path": f"/w/{number}.py"})
        talk.result(f"{text}{call}", call=call)
    return prompt, talk.assistant(answer)


def conversation_of_turns(count, **fields):
    talk = Conversation(**fields)
    return talk, [
        add_long_turn(talk, answer=f"Number {number} is done.") for number in range(count)
    ]


def active_branch(data):
    """Give the entries of the active branch as pi walks it, from the root to the leaf."""
    entries = [json.loads(line) for line in data.splitlines() if line][1:]
    known = {entry["id"]: entry for entry in entries}
    path, at = [], entries[-1]
    while at is not None:
        path.insert(0, at)
        at = known.get(at["parentId"])
    return path


def branch_roles(data):
    return [one["message"]["role"] for one in active_branch(data) if one["type"] == "message"]


def text_blocks(data, ident):
    entries = [json.loads(line) for line in data.splitlines() if line]
    content = next(one for one in entries if one.get("id") == ident)["message"]["content"]
    return [content] if isinstance(content, str) else [block["text"] for block in content
                                                       if block["type"] == "text"]  # fmt: skip
