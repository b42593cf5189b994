"""Codex's session files, which are read and never changed."""

import pytest

from brainsurgeon.agents import FORMATS, only_read
from building.format_reading import Reading
from building.world import dump

CODEX = FORMATS["codex"]
META = {"type": "session_meta", "payload": {"id": "thread", "cwd": "/w"}}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "[[extracted-a]]" * 99}


@pytest.mark.parametrize("line", [
    dump({"type": "response_item", "payload": OUTPUT}),
    dump({"type": "compacted", "payload": {"replacement_history": [OUTPUT, 7, None]}}),
    dump({"type": "response_item", "payload": {"type": [], "role": {}, "content": 5}}),
    dump({"type": {}, "payload": "x", "timestamp": 5}),
    b"\xef\xbb\xbf" + dump(META), b"no JSON", b"",
])  # fmt: skip
def test_nothing_in_a_codex_session_can_be_edited(line):
    """No entry has a value or an id, whatever the line is, and none has left the conversation."""
    transcript = Reading(CODEX, dump(META) + line.strip() + b"\n" + dump(META)).transcript
    values = [value for at in range(len(transcript.entries)) for value in transcript.values(at)]

    assert only_read("codex")
    assert CODEX.session([META]) == "thread"
    assert len(transcript.entries) == 3
    assert [entry.ident for entry in transcript.entries] == [None] * 3
    assert values == []
    assert transcript.chain.dead == {}
    assert all(not CODEX.read(entry).step.role for entry in (META, {"payload": OUTPUT}))
