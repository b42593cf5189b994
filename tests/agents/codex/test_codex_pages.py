"""Threads with several files: a rewind continues a thread in another one, a page."""

import json
import os
import time

import pytest

from brainsurgeon.agents.codex.home import files_of
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.lookup.sessions import all_sessions, session_named
from brainsurgeon.mcp_server.answering import answer
from brainsurgeon.operations.history import events, follow
from brainsurgeon.operations.pause import end, pause
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.show import cat, show
from brainsurgeon.operations.status import status
from brainsurgeon.render import sessions as rendered
from building.codex import CodexWorld, edges, thread_id
from building.world import append, pin

LEAN = {"rules": [{"kind": "tool_result", "keep_recent": 0, "min_value_length": 300}]}
TAKEN = b"[[extracted-"


@pytest.fixture
def codex(tmp_path):
    world = CodexWorld(tmp_path)
    yield world
    world.close()


@pytest.fixture
def files(codex):
    """Return the files of a thread that was rewound twice; the last file goes on."""
    first = codex.thread(1)
    second = codex.thread(1, 3, base=(first, max(edges(first)) - 7), page=2)
    third = codex.thread(1, 2, base=(second, max(edges(second)) - 7), page=3)
    codex.index(first, second, third, codex.thread(4))
    return first, second, third


def call(codex, **arguments):
    asked = codex.settings(**LEAN), Scope(), arguments, codex.clock
    text, failed = answer(*asked, {"threadId": thread_id(1)})
    assert not failed, text
    return json.loads(text)


def taken(paths):
    return [TAKEN in path.read_bytes() for path in paths]


def entry_of(codex, path):
    """Return an entry with an extracted value in one file."""
    found = path.read_bytes().partition(TAKEN)[2]
    return found.partition(b"]]")[0].decode()


def test_a_thread_with_pages_is_listed_once(codex, files):
    """Its sizes and values are summed, by one name, in the lists and in the status."""
    codex.scan(**LEAN)
    settings = codex.settings(**LEAN)
    listed = sessions(settings, codex.store, codex.clock(), sort="name")
    thread, other = listed
    seen = status(settings, codex.store, codex.clock())

    assert thread.session == f"codex:-w/{files[0].stem}"
    assert (thread.path, other.path[-42:-6]) == (str(files[2]), thread_id(4))
    assert thread.size_bytes == sum(path.stat().st_size for path in files)
    assert thread.values_extracted == sum(path.read_bytes().count(TAKEN) for path in files)
    assert thread.bytes_padded > other.bytes_padded > 0
    assert seen.sessions_by_state == {"idle": 2}
    assert [root.sessions_seen for root in seen.places.roots] == [2]
    assert "2 sessions" in rendered.sessions(listed, codex.clock())


@pytest.mark.parametrize("name", [
    thread_id(1), thread_id(1)[:20], f"w/{thread_id(1)[:13]}", f"codex:-w/{thread_id(1)}",
    "title", "stem", "path",
])  # fmt: skip
def test_each_name_of_a_thread_means_all_its_pages(codex, files, name):
    """Also the name or path of one of its files; the newest is the one that goes on."""
    name = {"title": f"codex:-w/{files[0].stem}", "stem": files[1].stem,
            "path": str(files[1])}.get(name, name)  # fmt: skip
    found = session_named(codex.settings(), codex.store, name)

    assert [part.path for part in found.parts] == [str(path) for path in reversed(files)]


def test_pages_are_scanned_and_restored_with_their_thread(codex, files):
    """A restore of the thread brings back every file, and its history names all changes."""
    before = [path.read_bytes() for path in files]
    codex.scan(**LEAN)
    pruned = taken(files)
    changes = events(codex.settings(), codex.store, session=thread_id(1), kinds=["extraction"])
    whole = b"".join(cat(codex.settings(), codex.store, thread_id(1), codex.clock()))
    codex.restore_all(thread_id(1))

    assert pruned == [True] * 3
    assert len(changes) == 3
    assert [path.read_bytes() for path in files] == before
    assert whole == b"".join(before)
    assert taken([codex.directory / f"rollout-2026-11-28T18-23-34-{thread_id(4)}.jsonl"]) == [True]


def test_an_open_turn_in_the_newest_page_defers_all(codex, files):
    """Its older files wait as well, until the turn ends."""
    started = {"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}}
    append(files[2], [started])
    os.utime(files[2], (time.time() - 3600,) * 2)
    before = [path.read_bytes() for path in files]
    report = codex.scan(**LEAN, abandoned_after="2h")
    waiting = {one.path: one.reason for one in report.sessions if one.outcome == "deferred"}
    listed = sessions(codex.settings(**LEAN, abandoned_after="2h"), codex.store, codex.clock())

    assert waiting == {str(path): "the last turn is open" for path in files}
    assert [path.read_bytes() for path in files] == before
    assert sorted(one.state for one in listed) == ["busy", "idle"]
    codex.scan(**LEAN, abandoned_after="30m")
    assert taken(files) == [True] * 3


def test_a_thread_with_an_id_without_a_time_goes_on_in_its_page(codex, files):
    """Threads of 2025 had random ids, which may be above those of all pages."""
    own, old = thread_id(1), "f7c2d0aa-3d1c-4f5e-9a77-0d1f3a61e424"
    moved = [path.with_name(path.name.replace(own, old, 1)) for path in files]
    for path, to in zip(files, moved, strict=True):
        path.rename(to)
    append(moved[2], [{"type": "event_msg", "payload": {"type": "task_started", "turn_id": "t"}}])
    os.utime(moved[2], (time.time() - 3600,) * 2)
    parts = session_named(codex.settings(), codex.store, old).parts
    codex.scan(**LEAN, abandoned_after="2h")

    assert [part.path for part in parts] == [str(path) for path in reversed(moved)]
    assert taken(moved) == [False] * 3


def test_followed_events_of_a_thread_are_those_of_all_its_pages(codex, files):
    """Also of a page that gets its record only while they are followed."""
    codex.scan(**LEAN, only=[str(files[0])], named=True)
    assert taken(files) == [True, False, False]

    def scan_rest():
        if taken(files)[2]:
            return False
        codex.scan(**LEAN)
        return True

    kinds, settings = ["extraction"], codex.settings()
    lists = follow(settings, since="0", session=thread_id(1), kinds=kinds, wait=scan_rest)
    assert [len(found) for found in lists] == [1, 2]


def test_a_page_that_changed_just_now_defers_all(codex, files):
    """The thread is quiet only if each of its files is."""
    os.utime(files[2])
    report = codex.scan(**LEAN, quiet_seconds=600)

    assert {one.path for one in report.sessions if one.outcome == "deferred"} == {*map(str, files)}
    assert "changed just now" in str(report.sessions)


def test_the_tool_finds_what_an_older_page_holds(codex, files):
    """The caller is the thread: it sees, shows, pins and restores values of all its files."""
    before = files[0].read_bytes()
    codex.scan(**LEAN)
    entry = entry_of(codex, files[0])
    seen = call(codex, action="get_context")
    shown = call(codex, action="show", entry=entry)
    named = call(codex, action="show", entry=entry, session=thread_id(1))

    assert seen["session"] == shown["session"] == f"codex:-w/{files[0].stem}"
    assert seen["extracted_total"] == sum(path.read_bytes().count(TAKEN) for path in files)
    assert shown["content"] == named["content"] != {}
    call(codex, action="set_extractable", entry=entry, value=False)
    restored = call(codex, action="restore", entry=entry)
    assert not restored["pending"]
    assert entry_of(codex, files[0]) != entry
    codex.restore_all(thread_id(1))
    assert files[0].read_bytes() == before


def test_values_of_a_thread_are_shown_by_its_id(codex, files):
    """`show` and `pin` with --session find the file that has the entry."""
    codex.scan(**LEAN)
    entry = entry_of(codex, files[1])
    shown = show(codex.settings(), codex.store, entry, thread_id(1))

    assert shown.content
    assert pin(codex, entry, False, thread_id(1)).entry_id == entry
    assert len(context(codex.settings(), codex.store, thread_id(1), codex.clock()).extracted) > 6


def test_what_protects_a_thread_protects_its_pages(codex, files):
    """Its id in `exclude`, and a pause, also one that began before the page."""
    codex.scan(**LEAN, exclude=[f"session:{thread_id(1)}"])
    excluded = taken(files)
    settings = codex.settings()
    paused = pause(settings, codex.store, codex.clock(), sessions=[thread_id(1)])
    page = codex.thread(1, 2, base=(files[2], max(edges(files[2]))), page=5)
    files_of.cache_clear()
    codex.scan(**LEAN)

    assert [one.session for one in paused] == [f"codex:-w/{files[0].stem}"]
    assert excluded == taken(files) == [False] * 3
    assert taken([page]) == [False]
    assert end(settings, codex.store, codex.clock(), sessions=[str(page)]) == ()
    codex.scan(**LEAN)
    assert taken([*files, page]) == [True] * 4


def test_a_page_without_its_thread_is_a_session(codex, files):
    """If the first file is gone, its values stay listed, beside the rest of the thread."""
    codex.scan(**LEAN)
    files[0].unlink()
    found = all_sessions(codex.settings(), codex.store)
    whole = [one for one in found if one.file and not one.goes_on]

    assert sorted(len(one.parts) for one in whole) == [1, 2]
    assert [one.path for one in found if not one.file] == [str(files[0])]
