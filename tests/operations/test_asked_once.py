"""A run over many sessions asks each question once, not once for every session."""

import json
import os
import sys
import time
from contextlib import contextmanager

import pytest

from brainsurgeon.errors import AmbiguousError
from brainsurgeon.formats import splice
from brainsurgeon.lookup import sessions as lookup_sessions
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.model.records import Extraction
from brainsurgeon.operations.evidence import mount
from brainsurgeon.operations.show import show
from building.claude import ClaudeConversation, ClaudeWorld
from building.world import Conversation

_collecting = []


def _note_opening(event, arguments):
    # `open` with an opener reports the file twice, the second time without a mode.
    for names in _collecting if event == "open" and arguments[1] is None else ():
        names.append(os.path.basename(str(arguments[0])))


sys.addaudithook(_note_opening)


@contextmanager
def opened_names():
    """Collect the names of the files that `os.open` opens within a block."""
    _collecting.append(names := [])
    try:
        yield names
    finally:
        _collecting.pop()


def wait_for_another_time():
    """Wait until a change of a file would change its times: what is younger is read again."""
    time.sleep(0.1)


def put_sessions(world, number):
    """Write idle sessions, each with one long result."""
    for at in range(number):
        conversation = Conversation(f"{at:08x}-0000-4000-8000-000000000000")
        conversation.turn("x" * 4000)
        for _ in range(3):
            conversation.turn("short")
        world.put(f"s{at}.jsonl", conversation.bytes())


def test_registry_is_read_once_for_all_its_sessions(world):
    """A scan of many sessions reads the `sessions.json` beside them once."""
    put_sessions(world, 12)
    entries = {f"agent:main:{at}": {"sessionId": f"s{at}", "status": "done"} for at in range(12)}
    world.put("sessions.json", json.dumps(entries).encode())
    wait_for_another_time()
    with opened_names() as names:
        report = world.scan(use=[{"sessions": ["agent:other:*"], "profile": "lean"}])
    assert report.sessions_changed == 12
    assert names.count("sessions.json") == 1


def test_process_records_are_read_once_for_all_sessions(tmp_path, other_process):
    """A scan of many sessions of Claude Code reads each process record once."""
    world = ClaudeWorld(tmp_path)
    for at in range(12):
        session = f"{at:08x}-0000-4000-8000-000000000000"
        conversation = ClaudeConversation(session)
        for _ in range(5):
            conversation.turn()
        world.put(f"{session}.jsonl", conversation.bytes())
    world.record(other_process.pid, status="idle")
    wait_for_another_time()
    with opened_names() as names:
        assert world.scan().sessions_changed == 12
    assert names.count(f"{other_process.pid}.json") == 1


@contextmanager
def statements(world):
    """Collect the statements that the store executes within a block."""
    listed = []
    world.store._connection.set_trace_callback(listed.append)
    try:
        yield listed
    finally:
        world.store._connection.set_trace_callback(None)


def test_counting_calls_asks_the_store_once_for_a_session(world, conversation):
    """However many calls a session has, a scan asks the store once which of them are counted."""
    usage = {"input": 100, "output": 10, "cacheRead": 5, "cacheWrite": 0, "totalTokens": 115}
    for at in range(50):
        conversation.user()
        conversation.assistant()
        conversation.lines[-1]["message"] |= {"usage": usage, "responseId": f"r{at}"}
    world.put("s.jsonl", conversation.bytes())
    with statements(world) as listed:
        world.scan()
    assert world.store.spending.total()[0].calls == 50
    assert sum("counted_calls" in text for text in listed) <= 3


def test_restore_of_an_entry_compares_each_value_with_few_others(world, conversation, monkeypatch):
    """The comparisons of a restore grow with the values of the entry, not with their square."""
    conversation.user()
    conversation.call()
    texts = [{"type": "text", "text": f"{at} " * 300} for at in range(60)]
    message = {"role": "toolResult", "toolCallId": "call_1", "toolName": "exec", "content": texts}
    ident = conversation.entry(message=message)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    compared, equal = [], Extraction.__eq__

    def compare(one, other):
        compared.append(one)
        return equal(one, other)

    monkeypatch.setattr(Extraction, "__eq__", compare)
    assert len(world.restore(ident).sizes) == 60
    assert len(compared) <= 60


def test_mount_walks_a_document_once(world, conversation, monkeypatch):
    """Placeholders in JSON are located in one walk over the document, and looked up once each."""
    idents = [conversation.turn(f"{at} " * 1000) for at in range(30)]
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    content = [{"text": f"[[extracted-{ident}]]"} for ident in idents]
    data = json.dumps({"messages": [{"content": [part]} for part in content]}).encode()
    walks, walk = [], splice._walk
    monkeypatch.setattr(splice, "_walk", lambda *given: walks.append(given[1]) or walk(*given))
    with statements(world) as listed:
        filled = mount(world.settings(), world.store, data, Scope(), budget=10**6)
    assert filled.count(b"extracted-") == 0
    assert walks.count(0) == 1
    assert len(listed) <= 6 * len(idents)


def test_beginning_of_many_ids_is_looked_up_once(world, conversation):
    """A short id that many entries begin with costs as many queries as one that few begin with."""
    for at in range(40):
        conversation.turn(f"{at} " * 1000)
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    counts = []
    for short in ("0000000", "00000"):  # of entries 1 to 15, and of all
        with statements(world) as listed, pytest.raises(AmbiguousError):
            show(world.settings(), world.store, short, "main/s")
        counts.append(len(listed))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("moved", [False, True])
def test_copies_of_a_session_are_looked_for_once(world, conversation, monkeypatch, moved):
    """Whether a recorded session is still at its path is looked up once, whatever its copies."""
    conversation.turn("x" * 4000)
    for _ in range(3):
        conversation.turn("short")
    for at in range(12):
        world.put(f"copy{at}.jsonl", conversation.bytes())
    if moved:
        world.scan()
        os.rename(world.root / "main", world.root / "other")
    looked, has_left = [], lookup_sessions._has_left
    monkeypatch.setattr(
        lookup_sessions, "_has_left", lambda record: looked.append(record.id) or has_left(record)
    )
    world.scan()
    assert len(looked) <= 5 * 12


def test_restore_of_a_copy_checks_each_stored_value_once(world, conversation):
    """Copies of a session share their values: a restore reads each once to check it."""
    for at in range(10):
        conversation.turn(f"{at} " * 1000)
    conversation.turn("short")
    counts = []
    for at in range(6):
        world.put(f"copy{at}.jsonl", conversation.bytes())
    world.scan()
    for at in (0, 5):  # the last restore finds the records of all copies
        with statements(world) as listed:
            assert world.restore_all(f"main/copy{at}")[0].values_restored > 5
        counts.append(sum("FROM blobs" in text for text in listed))
    assert counts[0] == counts[1] <= 4 * 11
