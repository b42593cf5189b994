"""A chain that took in new entries says the same as a chain of all entries."""

import json
import random

import pytest

from brainsurgeon.formats import FORMATS, HEAD_LINES, recognise
from brainsurgeon.formats.openclaw import OpenClawRows
from building.claw import GATEWAY, LOCAL, VERSIONS, Claw
from building.format_reading import open_lines
from building.world import SAMPLES

FILES = sorted(path for path in SAMPLES.rglob("*.jsonl") if "traps" not in path.parts)
TRAPS = sorted((SAMPLES / "traps").glob("*.jsonl"))
EVENTS = [(version, session) for version in VERSIONS for session in (GATEWAY, LOCAL)]
COMPARED_IN_FULL = 300  # entries; in a longer session, a random tenth of the steps is compared


def answers(chain, entries):
    positions = [chain.position(index, entry) for index, entry in enumerate(entries)]
    return (
        positions, chain.dead, chain.open_turn, chain.quiet, chain.last_user, dict(chain.tools),
        dict(chain.beside), chain.replaced,
    )  # fmt: skip


def lines_of(data):
    with open_lines(data) as lines:
        return list(lines)


def form_of(data):
    head = [line.raw for line in lines_of(data)[:HEAD_LINES] if line.raw is not None]
    return recognise(head).form or FORMATS["openclaw"]


def grow(form, groups, chance=None):
    """Add groups of entries to a chain. Return how often it was extended, and the groups."""
    entries, extended = [], 0
    chain = form.chain(entries)
    for group in groups:
        entries += group
        if chain.extended(entries):
            extended += 1
            if chance is None or chance.random() < 0.1:
                assert answers(chain, entries) == answers(form.chain(entries), entries)
        else:
            chain = form.chain(entries)
    assert answers(chain, entries) == answers(form.chain(entries), entries)
    return extended, len(groups)


def grown_by_line(form, data):
    groups = [form.entries(line, index) for index, line in enumerate(lines_of(data))]
    return grow(form, groups, random.Random(1) if len(groups) > COMPARED_IN_FULL else None)


@pytest.mark.parametrize("path", FILES + TRAPS, ids=lambda path: path.name)
def test_a_session_that_grows_by_lines_is_understood_as_if_read_once(path):
    """After each line, the extended chain gives the same answers as a new one."""
    grown_by_line(form_of(path.read_bytes()), path.read_bytes())


@pytest.mark.parametrize(("version", "session"), EVENTS)
def test_events_added_to_a_database_are_understood_as_if_read_once(tmp_path, version, session):
    """The same is true of the events of a session in a database."""
    texts = Claw(tmp_path, version).texts(session)
    grown_by_line(OpenClawRows(), b"".join(text + b"\n" for text in texts))


# Of the reported shapes, those with odd parents begin a new chain at most lines.
@pytest.mark.parametrize(
    "path", [path for path in FILES if "cases" not in path.parts], ids=lambda path: path.name
)
def test_almost_every_line_of_a_real_session_extends_the_chain(path):
    """A turn costs as much as its lines: only compactions and new branches cost a whole chain."""
    data = path.read_bytes()
    extended, lines = grown_by_line(form_of(data), data)
    if path.name != "daaain-edge_cases.jsonl":  # nearly every line of it begins a new chain
        assert lines - extended <= max(5, lines // 100)


def claude_message(chance, number, parent, calls, kind):
    if kind == "assistant":
        return {"message": claude_reply(chance, number, calls)}
    if kind == "user" and calls and chance.random() < 0.5:
        call = chance.choice(calls[-3:])
        return {"message": {"content": [{"type": "tool_result", "tool_use_id": call}]}}
    if kind == "user":
        meta = {"isMeta": True} if chance.randint(0, 4) == 0 else {}
        return {"message": {"content": "text"}, **meta}
    if kind == "system" and chance.randint(0, 2) == 0:
        near = [f"u{number + chance.randint(-4, 3)}" for _ in range(2)]
        preserved = {
            "preservedMessages": {"uuids": near},
            "preservedSegment": {"headUuid": near[0], "tailUuid": near[1]},
        }
        parent = chance.choice([None, parent])
        return {
            "subtype": "compact_boundary", "compactMetadata": preserved, "parentUuid": parent,
        }  # fmt: skip
    return {}


def claude_reply(chance, number, calls):
    content = {"type": "text", "text": "t"}
    if chance.random() < 0.5:
        calls.append(f"c{number if chance.randint(0, 9) else 2}")
        content = {"type": "tool_use", "id": calls[-1], "name": f"t{number}", "input": {}}
    message = {
        "id": f"m{number // chance.choice([1, 3, 3, 8])}", "content": [content],
        "stop_reason": chance.choice([None, "end_turn"]),
    }  # fmt: skip
    if chance.randint(0, 9) == 0:
        edits = [{"cleared_tool_uses": chance.randint(0, 3)}]
        message["context_management"] = {"applied_edits": edits}
    return message


def claude_line(chance, number, uuids, calls):
    kinds = ["user"] * 3 + ["assistant"] * 4 + ["system", "attachment", "progress", "other"]
    kind = chance.choice(kinds)
    uuid = f"u{number}" if chance.randint(0, 30) else chance.choice(["u1", "u9"])
    if kind == "other":
        return chance.choice([
            {"type": "queue-operation", "operation": chance.choice(["enqueue", "dequeue"])},
            {"type": "content-replacement", "replacements": [{"toolUseId": "c2"}]},
            {"type": "last-prompt", "leafUuid": f"u{chance.randint(0, number + 2)}"},
            None,
        ])  # fmt: skip
    back = chance.choice([1, 1, 1, 1, 1, 2, 3, 5, 0, -2])
    parent = None
    if back > 0 and uuids:
        parent = uuids[-min(back, len(uuids))]
    elif back < 0:
        parent = f"u{number + chance.randint(1, 3)}"  # of a later line, or missing
    seconds = number + chance.choice([0, 0, 0, 0, -3, 2])
    line = {
        "type": kind, "uuid": uuid, "parentUuid": parent,
        "timestamp": f"2026-01-01T00:{seconds // 60 % 60:02}:{max(0, seconds) % 60:02}Z",
    }  # fmt: skip
    if chance.randint(0, 19) == 0:
        line["isSidechain"] = True
    uuids.append(uuid)
    return line | claude_message(chance, number, parent, calls, kind)


def openclaw_line(chance, number, ids, _calls):
    kinds = ["message"] * 12 + ["leaf", "reset", "compaction", "context_edit", "new", "label", "?"]
    kind = chance.choice(kinds)
    if kind == "?":
        name = chance.choice([*ids[-2:], "e5"])
        return chance.choice([None, f'{{"id": "{name}"', "[]", {"type": "session"}])
    back = chance.choice([1, 1, 1, 1, 1, 1, 2, 4, 0])
    ident = f"e{number}" if chance.randint(0, 30) else chance.choice(["e1", "e9"])
    near = chance.choice([*ids[-5:], f"e{number + 2}"])
    parent = ids[-min(back, len(ids))] if back and ids else None
    line = {"type": kind, "id": ident, "parentId": parent}
    if chance.randint(0, 9) == 0:
        del line["parentId"]
    if chance.randint(0, 9) == 0:
        line["appendMode"] = "side"
    if kind == "message":
        role = chance.choice(["user", "assistant", "assistant", "toolResult"])
        stop = chance.choice(["stop", "stop", "error"])
        line["message"] = {"role": role, "content": "text", "stopReason": stop}
    elif kind == "leaf":
        line["targetId"] = near
        if chance.random() < 0.5:
            line["appendParentId"] = chance.choice([*ids[-5:], near])
    elif kind == "compaction":
        line["firstKeptEntryId"] = near
    elif kind == "context_edit":
        line["targetId"] = near
    ids.append(ident)
    return line


def generic_line(chance, number, _ids, _calls):
    kind = chance.choice(["user", "assistant", "tool_call", "tool_result", "note", "?"])
    return None if kind == "?" else {"type": kind, "__id": f"g{number}", "content": "text"}


def session(line_of, seed):
    chance, ids, calls = random.Random(seed), [], []
    lines = [line_of(chance, number, ids, calls) for number in range(chance.randint(2, 40))]
    texts = ["{" if line is None else line if isinstance(line, str) else json.dumps(line)
             for line in lines]  # fmt: skip
    return "".join(text + "\n" for text in texts).encode()


LINES = {"claude-code": claude_line, "openclaw": openclaw_line, "generic": generic_line}


@pytest.mark.parametrize("name", LINES)
def test_any_session_that_grows_is_understood_as_if_read_once(name):
    """Missing and repeated parents, branches, compactions, leaves, edits: answers are equal."""
    extended = 0
    for seed in range(150):
        extended += grown_by_line(FORMATS[name], session(LINES[name], seed))[0]
    assert extended > 150
