"""The real Codex with pruned threads: turns, forks, a scan beside it, and the way back."""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from building.codex import CodexWorld
from proofs.agent_packages import CODEXES
from proofs.live.codex import Codex, CodexTerminal, printing
from proofs.live.program import configure, ours
from proofs.live.responses import Responses

pytestmark = pytest.mark.long(proves=("formats", "agents", "planning", "rewrite", "files"))

SCANNING = Path(__file__).parent / "live" / "scanning.py"
TAKEN = b"[[extracted-"
SETTLED = 2.5  # seconds without a new line after which lines may move
releases = pytest.mark.parametrize("release", CODEXES)
paginated = pytest.mark.parametrize("release", [*CODEXES][1:])


@pytest.fixture
def driven(tmp_path, release):
    """Return a Codex of the release with a thread of four turns."""
    with Responses() as model:
        codex = Codex(tmp_path, model, release)
        codex.environment["BRAINSURGEON_CONFIG"] = str(tmp_path / "config.toml")
        configure(tmp_path, codex.config / "sessions", when="always", keep_recent=1)
        for number in range(4):
            codex.turn(printing(f"turn {number}"), printing(f"more of turn {number}"))
        yield codex


def items(request):
    return [(item["type"], item.get("id"), item.get("call_id")) for item in request["input"]]


def length(request):
    return len(json.dumps(request["input"]))


def next_request(codex, base):
    """Return what the next turn would send; afterwards, the home is as before."""
    kept = base / "kept"
    shutil.copytree(codex.config, kept, symlinks=True)
    [request, _] = codex.turn(printing("one more", 2))
    shutil.rmtree(codex.config)
    kept.rename(codex.config)
    return request


@releases
def test_pruned_thread_has_the_same_items_and_comes_back(driven, tmp_path, release):
    """Requests have the same items and half the size; after a restore, every byte is back."""
    path, before = driven.path, driven.path.read_bytes()
    seen, whole = path.stat(), next_request(driven, tmp_path)
    ours(driven, "scan")
    pruned = path.read_bytes()

    assert TAKEN in pruned
    assert path.stat().st_mtime_ns == seen.st_mtime_ns
    assert (len(pruned) == len(before)) == (release != "0.145.0")
    [request, _] = driven.turn(printing("the next", 2))
    assert items(request)[:-1] == items(whole)[:-1]
    assert length(request) < length(whole) / 2

    ours(driven, "restore", "--all")
    assert driven.path.read_bytes()[: len(before)] == before
    [request, _] = driven.turn(printing("the last", 2))
    assert TAKEN.decode() not in json.dumps(request)


@paginated
def test_forks_before_and_after_a_scan_continue_the_same_thread(driven, tmp_path, release):
    """A fork begins at an offset in the file of its thread, and has what that thread has."""
    thread = driven.path.stem[-36:]
    fork = ["fork", thread]
    driven.turn(printing("first fork", 2), words=fork)
    first = driven.path.stem[-36:]
    ours(driven, "scan")
    [later, _] = driven.turn(printing("second fork", 2), words=fork)
    [again, _] = driven.turn(printing("the first again", 2), words=["resume", first])
    [own, _] = driven.turn(printing("the thread", 2), words=["resume", thread])
    shared = [one for one in items(own) if one[0] == "function_call_output"][:8]

    for request in (later, again, own):
        assert [one for one in items(request) if one in shared] == shared
        assert json.dumps(request).count(TAKEN.decode()) >= 6


@releases
def test_scans_beside_a_codex_lose_no_line_and_refuse_no_turn(driven, tmp_path, release):
    """While scans follow each other, each turn ends well, and its lines are all there."""
    command = [sys.executable, SCANNING, tmp_path / "config.toml"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=driven.environment) as scanning:
        assert scanning.stdout.readline() == b"scanning\n"
        for number in range(6):
            driven.turn(printing(f"beside {number}"))
        scanning.send_signal(signal.SIGTERM)
        counts = json.loads(scanning.stdout.read())
    lines = [json.loads(line) for line in driven.path.read_bytes().splitlines()]
    kinds = [line["payload"].get("type") for line in lines]

    assert counts["changed"] > 0
    assert "failed" not in counts
    assert kinds.count("task_started") == kinds.count("task_complete") == 10
    assert kinds.count("function_call") == kinds.count("function_call_output") == 14
    if release != "0.145.0":
        assert [line["ordinal"] for line in lines] == list(range(len(lines)))
    ours(driven, "restore", "--all")
    assert TAKEN not in driven.path.read_bytes()


@paginated
def test_a_loaded_thread_is_left_alone(driven, release):
    """A Codex that has a thread open keeps its lock: the scan changes nothing."""
    before = driven.path.read_bytes()
    with driven.serving() as loaded:
        loaded(driven.path.stem[-36:])
        ours(driven, "scan")
        assert driven.path.read_bytes() == before
    ours(driven, "scan")
    assert TAKEN in driven.path.read_bytes()


def mapped(codex):
    """Return which offsets into files are right: those of forks, and those in the index."""
    world = CodexWorld.__new__(CodexWorld)
    world.root = codex.config
    return world.offsets()


def shrink(codex, base):
    configure(
        base, codex.config / "sessions", "shrink = true\n", when="always", keep_recent=1,
        keep_after_restore_seconds=0,
    )  # fmt: skip


@paginated
def test_a_thread_that_became_smaller_and_its_forks_go_on(driven, tmp_path, release):
    """With `shrink`, threads and forks take less room, send the same items, and come back."""
    thread, path, before = driven.path.stem[-36:], driven.path, driven.path.read_bytes()
    whole = items(next_request(driven, tmp_path))
    driven.turn(printing("first fork", 2), words=["fork", thread])
    first = driven.path.stem[-36:]
    shrink(driven, tmp_path)
    time.sleep(SETTLED)
    ours(driven, "scan")

    assert len(path.read_bytes()) < 0.7 * len(before)
    assert mapped(driven)[0] == []
    [later, _] = driven.turn(printing("second fork", 2), words=["fork", thread])
    second = driven.path.stem[-36:]
    [again, _] = driven.turn(printing("the first again", 2), words=["resume", first])
    [own, _] = driven.turn(printing("the thread", 2), words=["resume", thread])
    shared = [one for one in whole if one[0] == "function_call_output"]
    for request in (later, again, own):
        assert [one for one in items(request) if one in shared] == shared
        assert json.dumps(request).count(TAKEN.decode()) >= 6
    with driven.serving() as ask:
        shown = ask(thread, method="thread/read", includeTurns=True)
    assert len(shown["thread"]["turns"]) == 5

    time.sleep(SETTLED)
    ours(driven, "restore", "--all")
    assert path.read_bytes()[: len(before)] == before
    assert mapped(driven)[0] == []
    for words in (["resume", first], ["resume", second], ["fork", first], ["resume", thread]):
        [request, _] = driven.turn(printing("at last", 2), words=words)
        assert [one for one in items(request) if one in shared] == shared
        assert TAKEN.decode() not in json.dumps(request)


@paginated
def test_a_rewound_thread_goes_on_when_lines_moved(driven, tmp_path, release):
    """A rewind begins another file at an offset in the first one, which moves with the lines."""
    path, before = driven.path, driven.path.read_bytes()
    thread = path.stem[-36:]
    with driven.serving() as ask:
        ask(thread)
        turns = ask(thread, method="thread/turns/list", limit=50)["data"]
        ask(thread, method="thread/revert", beforeTurnId=turns[0]["id"])
    driven.turn(printing("after the rewind"), words=["resume", thread])
    page = driven.path
    [whole, _] = driven.turn(printing("once more", 2), words=["resume", thread])
    shrink(driven, tmp_path)
    time.sleep(SETTLED)
    ours(driven, "scan")

    assert page != path
    assert len(path.read_bytes()) < 0.7 * len(before)
    assert mapped(driven)[0] == []
    [request, _] = driven.turn(printing("the next", 2), words=["resume", thread])
    assert items(request)[: len(items(whole)) - 1] == items(whole)[:-1]
    time.sleep(SETTLED)
    ours(driven, "restore", "--all")
    assert path.read_bytes() == before
    assert mapped(driven)[0] == []
    [request, _] = driven.turn(printing("the last", 2), words=["resume", thread])
    assert TAKEN.decode() not in json.dumps(request)


def picture(path):
    """Write a picture that cannot be compressed."""
    rows = b"".join(b"\0" + os.urandom(3 * 48) for _ in range(48))
    size = struct.pack(">IIBBBBB", 48, 48, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", size), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    ))  # fmt: skip
    return str(path)


def compactions(codex):
    """Return how many placeholders and pictures each compaction repeats."""
    paths = sorted(codex.config.rglob("rollout-*.jsonl"))
    lines = [line for path in paths for line in path.read_bytes().splitlines()]
    return [
        (line.count(TAKEN), line.count(b"input_image")) for line in lines
        if json.loads(line)["type"] == "compacted"
    ]  # fmt: skip


@paginated
def test_a_user_compacts_and_rewinds_a_thread_that_was_pruned(driven, tmp_path, release):
    """In a terminal: later compactions repeat a placeholder instead of a picture; all comes back.

    The provider compacts the thread itself, as OpenAI does, and repeats every picture of a user.
    """
    settings = driven.config / "config.toml"
    text = settings.read_text().replace('name = "loopback"', 'name = "OpenAI"')
    settings.write_text(f'{text}[projects."{driven.workspace}"]\ntrust_level = "trusted"\n')
    thread, path = driven.path.stem[-36:], driven.path
    shown = ["resume", thread, "-i", picture(tmp_path / "picture.png")]
    driven.turn(printing("a picture"), words=shown)
    shrink(driven, tmp_path)
    with CodexTerminal(driven, thread) as terminal:
        terminal.turn(printing("typed"))
        terminal.compact()
        terminal.turn(printing("compacted"))
        terminal.quit()
    before = path.read_bytes()
    time.sleep(SETTLED)
    ours(driven, "scan")
    assert compactions(driven) == [(1, 0)]

    with CodexTerminal(driven, thread) as terminal:
        terminal.turn(printing("pruned"))
        terminal.compact()
        terminal.turn(printing("compacted again"))
        terminal.rewind()
        request, *_ = terminal.turn(printing("rewound"))
        terminal.quit()
    assert driven.path != path
    assert compactions(driven) == [(1, 0)] * 2
    assert "input_image" not in json.dumps(request)
    time.sleep(SETTLED)
    ours(driven, "scan")
    assert mapped(driven)[0] == []
    [same, _] = driven.turn(printing("the next", 2), words=["resume", thread])
    assert items(same)[: len(request["input"])] == items(request)

    time.sleep(SETTLED)
    ours(driven, "restore", "--all")
    assert path.read_bytes()[: len(before)] == before
    assert mapped(driven)[0] == []
    assert compactions(driven) == [(0, 1)] * 2
    [request, _] = driven.turn(printing("the last", 2), words=["resume", thread])
    assert TAKEN.decode() not in json.dumps(request)
    assert json.dumps(request).count("input_image") == 1


@paginated
def test_forks_made_while_lines_move_fail_loudly_or_are_right(driven, tmp_path, release):
    """Of 30 forks made beside scans and restores, each says that it failed or has all items."""
    thread, whole = driven.path.stem[-36:], items(next_request(driven, tmp_path))
    shared = [one for one in whole if one[0] == "function_call_output"]
    shrink(driven, tmp_path)
    command = [sys.executable, SCANNING, tmp_path / "config.toml", "restore"]
    made, failed = [], 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=driven.environment) as scanning:
        assert scanning.stdout.readline() == b"scanning\n"
        for number in range(30):
            known = set(driven.config.rglob("rollout-*.jsonl"))
            time.sleep(SETTLED)  # no line moves while a fork is loaded, or just after
            try:
                driven.turn(printing(f"fork {number}", 2), words=["fork", thread])
            except AssertionError:
                failed += 1
            made += {*driven.config.rglob("rollout-*.jsonl")} - known
        scanning.send_signal(signal.SIGTERM)
        counts = json.loads(scanning.stdout.read())
    time.sleep(SETTLED)
    ours(driven, "scan")
    ours(driven, "restore", "--all")
    print(f"{release}: {failed} of 30 forks failed, beside {counts}")

    assert counts["changed"] > 10
    assert counts["restored"] > 10
    assert failed < 15
    assert mapped(driven)[0] == []
    for fork in made:
        [request, _] = driven.turn(printing("again", 2), words=["resume", fork.stem[-36:]])
        assert [one for one in items(request) if one in shared] == shared


@pytest.mark.parametrize("release", ["0.145.0"])
def test_a_migrated_thread_gets_its_values_back(driven, release):
    """`migrate-rollouts` numbers the lines of a legacy file; placeholders keep their values."""
    ours(driven, "scan")
    pruned = driven.path.read_bytes().count(TAKEN)
    driven.use("0.171.0")
    assert driven.run("migrate-rollouts", "--apply").returncode == 0
    time.sleep(SETTLED)
    assert driven.path.read_bytes().count(TAKEN) == pruned > 0
    ours(driven, "restore", "--all")

    assert TAKEN not in driven.path.read_bytes()
    assert mapped(driven)[0] == []
    [request, _] = driven.turn(printing("the next", 2))
    assert TAKEN.decode() not in json.dumps(request)
