"""Scans and restores of Codex's sessions: what is taken, what stays in place, what comes back."""

import fcntl
import json
import os
import re
import shutil

import pytest
import zstandard

from brainsurgeon.agents import calling_session
from brainsurgeon.agents.codex.locks import BUSY, COORDINATION, LOCKS, writer_locks
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.mcp_server.answering import answer
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.status import status
from brainsurgeon.render import runs
from brainsurgeon.render import sessions as rendered
from building.world import SAMPLES, World, append, dump, pin

THREAD = "01a22365-f7dc-74e3-8c6f-0d1f3a61e424"
NAME = f"rollout-2026-11-28T18-23-34-{THREAD}.jsonl"
TAKEN = re.compile(rb"\[\[extracted-[^]]*\]\]")
LEAN = {"rules": [{"kind": "tool_result", "keep_recent": 0, "min_value_length": 300}]}


class CodexWorld(World):
    """A home of Codex with one session."""

    def __init__(self, base):
        super().__init__(base)
        self.directory = self.root / "sessions" / "2026" / "11" / "28"
        self.directory.mkdir(parents=True)
        self.locks = self.root / LOCKS

    def sample(self, name, to=NAME):
        return self.put(to, (SAMPLES / "codex" / f"{name}.jsonl").read_bytes())


@pytest.fixture
def codex(tmp_path):
    world = CodexWorld(tmp_path)
    yield world
    world.close()


def borders(data):
    return [match.end() for match in re.finditer(rb"\n", data)]


def reasons(codex, path):
    found = context(codex.settings(**LEAN), codex.store, path.stem, codex.clock())
    return {decision.reason for decision in found.plan.decisions if not decision.extracts}


@pytest.mark.parametrize("name", ["paginated-0.171.0", "remote-compacted-0.171.0",
                                  "ide-image-0.171.0"])  # fmt: skip
def test_lines_of_a_paginated_file_keep_their_places(codex, name):
    """Values leave, each line begins where it began, and a restore brings back every byte."""
    path = codex.sample(name)
    before, seen = path.read_bytes(), path.stat()
    result = codex.scan(**LEAN)
    after = path.read_bytes()

    assert result.sessions[0].outcome == "changed"
    assert len(TAKEN.findall(after)) > len(TAKEN.findall(before))
    assert borders(after) == borders(before)
    assert path.stat().st_mtime_ns == seen.st_mtime_ns
    assert [line.keys() for line in map(json.loads, after.splitlines())] == [
        line.keys() for line in map(json.loads, before.splitlines())
    ]
    assert codex.scan(**LEAN).sessions == []

    codex.restore_all()
    assert path.read_bytes() == before


def test_a_paginated_file_keeps_what_no_request_contains(codex):
    """There, only what is sent saves anything; pictures in the newest compaction are sent."""
    path = codex.sample("remote-compacted-0.171.0")
    codex.scan(**LEAN)
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    newest = max(at for at, line in enumerate(lines) if line["type"] == "compacted")
    taken = [at for at, line in enumerate(lines) if TAKEN.search(dump(line))]

    assert taken == [newest]
    picture = lines[newest]["payload"]["replacement_history"][0]["content"][1]
    assert picture["type"] == "input_text"
    assert "no request contains it, and the file would not become smaller" in reasons(codex, path)


def test_spaces_do_not_count_as_saved_bytes(codex):
    """What keeps the size of a file saves tokens, but no disk space: that is said."""
    codex.sample("paginated-0.171.0")
    scanned = "\n".join(runs.report(codex.scan(**LEAN), "config.toml"))
    [page] = sessions(codex.settings(**LEAN), codex.store, codex.clock())
    seen = status(codex.settings(**LEAN), codex.store, codex.clock())

    assert (page.bytes_saved, seen.store.bytes_saved) == (0, 0)
    assert page.bytes_padded == seen.store.bytes_padded > 5000
    assert "saves tokens, no disk space" in scanned
    assert "saves tokens, no disk space" in rendered.sessions([page], codex.clock())
    assert "saves tokens, no disk space" in runs.status(seen, codex.clock(), "config.toml")


def test_a_scan_names_what_earlier_ones_left(codex):
    """So do sessions of an agent that an earlier program only listed."""
    path = codex.sample("legacy-0.145.0")
    codex.scan(exclude=[str(path)], **LEAN)
    report = codex.scan(**LEAN)

    assert report.files_skipped_before == 1
    assert "earlier scans left 1 session of these alone" in "\n".join(
        runs.report(report, "config.toml")
    )
    os.utime(path, (0, 0))
    assert codex.scan(**LEAN).files_skipped_before == 0


def test_a_legacy_file_becomes_smaller(codex):
    """What is shown of tools leaves, too, and a restore brings back every byte."""
    path = codex.sample("legacy-0.145.0")
    before = path.read_bytes()
    codex.scan(**LEAN)
    after = path.read_bytes()
    lines = [json.loads(line) for line in after.splitlines()]
    kinds = {line["payload"]["type"] for line in lines if TAKEN.search(dump(line))}

    assert len(after) < 0.8 * len(before)
    assert {"patch_apply_end", "function_call_output", "message"} <= kinds
    assert after.count(b'"encrypted_content"') == before.count(b'"encrypted_content"')

    codex.restore_all()
    assert path.read_bytes() == before


def test_copies_of_placeholders_by_codex_can_be_restored(codex):
    """A fork of a legacy thread repeats all lines; its placeholders name the same values."""
    path = codex.sample("legacy-0.145.0")
    before = path.read_bytes()
    codex.scan(**LEAN)
    other = THREAD.replace("f7dc", "f7dd")
    header, *lines = path.read_bytes().splitlines(keepends=True)
    fork = codex.put(NAME.replace(THREAD, other), b"".join(
        [header.replace(THREAD.encode(), other.encode()), *map(with_id, lines)]
    ))  # fmt: skip
    codex.restore_all(fork.stem)

    assert not TAKEN.search(fork.read_bytes())
    assert [without_id(line) for line in fork.read_bytes().splitlines()[1:]] == [
        without_id(line) for line in before.splitlines()[1:]
    ]


def with_id(line):
    """Add the id to an item that 0.171.0 adds in a fork."""
    entry = json.loads(line)
    if entry["type"] == "response_item":
        entry["payload"].setdefault("id", f"x_{hash(line)}")
    return dump(entry)


def without_id(line):
    entry = json.loads(line)
    entry["payload"].pop("id", None)
    return entry


def test_copies_in_a_compaction_share_the_value_and_come_back(codex):
    """The same item in two lists has one placeholder; both copies are restored."""
    picture = {"type": "input_image", "image_url": "data:image/png;base64," + "A" * 2000}
    item = {"type": "message", "role": "user", "id": "msg_1",
            "content": [{"type": "input_text", "text": "look"}, picture]}  # fmt: skip
    lines = [
        {"type": "session_meta", "payload": {"id": THREAD, "cwd": "/w"}},
        {"type": "response_item", "payload": item},
        {"type": "compacted", "payload": {
            "message": "", "replacement_history": [item], "guardian_history": [item]}},
    ]  # fmt: skip
    path = codex.put(NAME, b"".join(map(dump, lines)))
    before = path.read_bytes()
    codex.scan(**LEAN)

    assert TAKEN.findall(path.read_bytes()) == [b"[[extracted-msg_1]]"] * 3
    codex.restore("msg_1")
    assert json.loads(path.read_bytes().splitlines()[1])["payload"] == item
    assert path.read_bytes() == before


def test_a_placeholder_without_its_spaces_stays_and_is_named(codex):
    """If Codex wrote the line anew, its value has no room; the others come back."""
    path = codex.sample("paginated-0.171.0")
    before = path.read_bytes()
    codex.scan(**LEAN)
    pruned = path.read_bytes()
    spaces = re.search(rb"\]\]\" {300,}", pruned)
    path.write_bytes(pruned[: spaces.end() - 200] + pruned[spaces.end() :])
    os.utime(path, (0, 0))
    result = codex.restore_all()

    assert len(TAKEN.findall(path.read_bytes())) == len(TAKEN.findall(before)) + 1
    assert "the length of the line would change" in str(result)


@pytest.mark.parametrize("end", ["task_complete", "turn_aborted"])
def test_a_thread_at_work_waits_for_the_end_of_its_turn(codex, end):
    """Nothing changes between the beginning and the end of a turn."""
    path = codex.sample("legacy-0.145.0")
    append(path, [{"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}}])
    os.utime(path, (0, 0))
    waiting = codex.scan(**LEAN, abandoned_after="30000d").sessions[0]
    append(path, [{"type": "event_msg", "payload": {"type": end, "turn_id": "t"}}])
    os.utime(path, (0, 0))

    assert (waiting.outcome, waiting.reason) == ("deferred", "the last turn is open")
    assert codex.scan(**LEAN).sessions[0].outcome == "changed"


@pytest.mark.parametrize("directory", ["sessions/2026/11/28", "sessions", "archived_sessions"])
def test_a_thread_whose_lock_is_held_is_left_alone(codex, directory):
    """Codex holds the lock of every thread that it has loaded, also through another page."""
    codex.directory = codex.root / directory
    codex.directory.mkdir(exist_ok=True)
    path = codex.sample("paginated-0.171.0")
    before = path.read_bytes()
    codex.locks.mkdir()
    with open(codex.locks / f"{THREAD}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = codex.scan(**LEAN).sessions[0]
    after = path.read_bytes()

    assert (held.outcome, held.reason) == ("deferred", BUSY)
    assert after == before
    assert codex.scan(**LEAN).sessions[0].outcome == "changed"
    assert sorted(os.listdir(codex.locks)) == [COORDINATION]
    assert codex.leftovers() == []


def test_both_locks_are_held_together_and_given_back(tmp_path):
    """A Codex that wants the thread's lock first waits for the other one, and is not refused."""
    place = tmp_path / LOCKS
    with writer_locks(str(place), lambda: "x") as without:
        assert without is None
    place.mkdir()
    with writer_locks(str(place), lambda: "x") as why, open(place / COORDINATION) as other:
        assert why is None
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with writer_locks(str(place), lambda: "y") as busy:
            assert busy == BUSY
    with open(place / COORDINATION) as other:
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert sorted(os.listdir(place)) == [COORDINATION]


def test_archived_threads_belong_to_the_same_home(codex):
    """`archive` moves a file to another directory; its values stay its own."""
    path = codex.sample("legacy-0.145.0")
    before = path.read_bytes()
    codex.scan(**LEAN)
    archived = codex.root / "archived_sessions"
    archived.mkdir()
    shutil.move(path, archived / NAME)

    codex.restore_all()
    assert (archived / NAME).read_bytes() == before


def test_pinned_items_stay_although_they_have_no_field(codex):
    """The store remembers what is pinned until that is undone; no line gets a field."""
    path = codex.sample("paginated-0.171.0")
    found = context(codex.settings(**LEAN), codex.store, path.stem, codex.clock())
    first, *others = [one.entry_id for one in found.plan.decisions if one.extracts]
    answer = pin(codex, first, False, path.stem)
    codex.scan(**LEAN)
    pruned = path.read_bytes()
    again = codex.scan(**LEAN)
    pin(codex, first, None, path.stem)
    codex.scan(**LEAN)

    assert (answer.pending, again.sessions, codex.store.requests.count_open()) == (False, [], 0)
    assert f"[[extracted-{first}]]".encode() not in pruned
    assert f"[[extracted-{others[-1]}]]".encode() in pruned
    assert f"[[extracted-{first}]]".encode() in path.read_bytes()
    assert b"_extractable" not in path.read_bytes()


def test_the_next_scan_extracts_an_item_that_was_named(codex):
    """No rule would take it; the request is answered, and ends with a pristine restore."""
    path = codex.sample("legacy-0.145.0")
    before = path.read_bytes()
    found = context(codex.settings(keep_recent=99), codex.store, path.stem, codex.clock())
    entry = next(one.entry_id for one in found.plan.decisions if one.chars > 300)
    codex.scan(keep_recent=99)
    whole = path.read_bytes()
    assert not pin(codex, entry, True, path.stem).pending
    codex.scan(keep_recent=99)

    assert f"[[extracted-{entry}]]".encode() in path.read_bytes()
    assert f"[[extracted-{entry}]]".encode() not in whole
    assert codex.scan(keep_recent=99).sessions == []
    codex.restore_all(pristine=True)
    codex.scan(keep_recent=99)
    assert path.read_bytes() in (whole, before)


def test_the_tool_knows_the_thread_that_calls_it(codex, monkeypatch):
    """Codex names the thread in each call, and in the environment of its shell."""
    path, other = codex.sample("legacy-0.145.0"), THREAD.replace("f7dc", "f7dd")
    codex.put(NAME.replace(THREAD, other), path.read_bytes())
    codex.scan(**LEAN)
    asked = codex.settings(**LEAN), Scope(), {"action": "get_context"}, codex.clock
    text, failed = answer(*asked, {"threadId": THREAD, "callId": "call_1"})

    assert (json.loads(text)["session"], failed) == (context_title(codex, path), False)
    assert answer(*asked, {"threadId": "../" + THREAD})[1]
    assert answer(*asked)[1]

    monkeypatch.setenv("CODEX_HOME", str(codex.root))
    monkeypatch.setenv("CODEX_THREAD_ID", THREAD)
    assert calling_session() == str(path)
    page = codex.put(NAME.replace(".jsonl", f"_{other}.jsonl"), path.read_bytes(), age=1)
    assert calling_session() == str(page)


def test_results_that_a_release_writes_elsewhere_come_back(codex):
    """A newer Codex migrates the result of a tool to another event, without its key `Ok`."""
    found = {"content": [{"type": "text", "text": "r" * 2000}]}
    old = {"type": "mcp_tool_call_end", "call_id": "call_1", "invocation": {"tool": "big"},
           "result": {"Ok": found}}  # fmt: skip
    new = {"type": "item_completed", "item": {
        "type": "McpToolCall", "id": "call_1", "tool": "big", "result": found}}  # fmt: skip
    meta = {"type": "session_meta", "payload": {"id": THREAD, "cwd": "/w"}}
    path = codex.put(NAME, dump(meta) + dump({"type": "event_msg", "payload": old}))
    codex.scan(**LEAN)
    placeholder = json.loads(path.read_bytes().splitlines()[1])["payload"]["result"]["Ok"]
    moved = {**new, "item": {**new["item"], "result": placeholder}}
    path.write_bytes(dump(meta) + dump({"type": "event_msg", "payload": moved}))
    os.utime(path, (0, 0))
    codex.restore_all()

    assert json.loads(path.read_bytes().splitlines()[1])["payload"] == new


def context_title(codex, path):
    return context(codex.settings(**LEAN), codex.store, str(path), codex.clock()).session


def test_compressed_archives_are_named_and_stay_as_they_are(codex):
    """Codex may compress old archived threads; `restore --all` names their placeholders."""
    path = codex.sample("legacy-0.145.0")
    codex.scan(**LEAN)
    archived = codex.root / "archived_sessions" / f"{NAME}.zst"
    archived.parent.mkdir()
    archived.write_bytes(zstandard.compress(path.read_bytes()))
    taken = {one.decode() for one in TAKEN.findall(path.read_bytes())}
    path.unlink()
    before = archived.read_bytes()
    [gone, named] = codex.restore_all()

    assert (gone.state, named.session) == ("gone", str(archived))
    assert {one.partition(":")[0] for one in named.left} == taken
    assert archived.read_bytes() == before
