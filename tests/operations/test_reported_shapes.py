"""Shapes of session files that people reported: each is pruned, read again, and restored.

`tests/samples/cases` holds the small ones. Large ones are built here. Tests of their rules hold the
rest (`ELSEWHERE`).

Some shapes are not read yet: values in sessions of goose and of nanobot and in dumps of LangGraph
are not found, and their files stay as they are. In lines of OpenAI's chat format, results are
extracted, but the arguments of calls are not found.
"""

import base64
import gzip
import itertools
import json
import os
import random
import shutil
import time

import pytest

from brainsurgeon.model.entries import PLACEHOLDER
from brainsurgeon.operations.relieve import relieve
from brainsurgeon.operations.sessions import context
from brainsurgeon.rewrite.relief import Wanted
from building.claude import ClaudeConversation, ClaudeWorld
from building.world import LONG_AGO, SAMPLES, TESTS, Conversation, World, dump

CASES = SAMPLES / "cases"
# From how many entries the defaults extract values; copies of an entry count once.
EXTRACTED = {
    "claude-code/01-hook-uuid-cycle": 5,
    "claude-code/04-snapshot-id-collision": 10,
    "claude-code/07-edit-original-null": 5,
    "claude-code/10-nul-in-output": 3,
    "claude-code/11-mcp-structured": 5,
    "claude-code/14-empty-text-block": 8,
    "claude-code/16-same-session-two-projects": 14,
    "claude-code/18-one-uuid-twice-in-file": 4,
    "claude-code/19-bridge-only": 6,
    "claude-code/20-workflow-subagents": 24,
    "claude-code/22-missing-parallel-result": 8,
    "claude-code/24-jsonb-rebuilt": 11,
    "claude-code/27-half-compaction": 11,
    "claude-code/28-microcompact": 12,
    "claude-code/44-non-object-lines": 10,
    "openclaw/03-orphan-calls": 5,
    "openclaw/05-attachment": 6,
    "openclaw/09-nul-line": 7,
    "openclaw/11-thinking-shapes": 12,
    "openclaw/14c-leaf-target-missing": 3,
    "generic/22-generic-malformed": 11,
}


# Tests of the shapes that are not tried here.
ELSEWHERE = {
    "claude-code/39-other-owner": (
        "operations/test_troubles.py::test_status_and_doctor_agree_about_leases",
        "operations/test_claude_code.py::test_session_keeps_its_name_if_its_file_becomes_unread",
    ),
    "claude-code/41-read-again": (
        "proofs/test_live_claude_unread.py::test_file_is_read_again_after_a_scan",
    ),
    "openclaw/15-mirror-is-the-model": (
        "operations/test_relieve.py::test_relieve_knows_the_model_behind_bookkeeping",
    ),
    "openclaw/20-damaged-database": (
        "operations/test_broken_databases.py::test_a_damaged_database_is_named_and_stops_no_c",
        "operations/test_broken_databases.py::test_a_damaged_leaf_hides_only_its_session",
    ),
}


def claude_turns(count, size=2000):
    talk = ClaudeConversation()
    for number in range(count):
        talk.turn(f"{number} " + "x" * size)
    return talk


def zero_filled(world):
    """Put ranges of NUL into a session, as a crash leaves them: behind, between and before lines.

    The last one has no newline.
    """
    lines = claude_turns(9).bytes().splitlines()
    lines[5] += bytes(9000)
    lines[14] = bytes(700) + lines[14]
    lines.insert(12, bytes(512))
    world.put("s.jsonl", b"\n".join(lines) + b"\n" + bytes(143_000))


def hook_events(world):
    """Put commands and outputs of hooks beside every call."""
    talk = ClaudeConversation()
    hook = {"type": "hook_success", "command": "sh -c '" + "c" * 2900 + "'", "stderr": ""}
    told = {"hookEvent": "SessionStart", "content": "Be brief.", "stdout": "Be brief."}
    talk.entry("attachment", attachment={**hook, **told})
    for number in range(20):
        talk.user()
        talk.call(f"toolu_{number}")
        for event in ("PreToolUse", "PostToolUse"):
            output = {"hookEvent": event, "content": "", "stdout": "o" * 775}
            talk.entry("attachment", attachment={**hook, **output})
        talk.result("x" * 300, f"toolu_{number}")
        talk.assistant()
    world.put("s.jsonl", talk.bytes())


def whole_outputs(world):
    """Put outputs behind the words that stand for an output in a file."""
    talk = ClaudeConversation()
    for number in range(3):
        talk.turn(f"<persisted-output>\nOutput too large. Preview:\n{number}" + "x" * 600_000)
    for _ in range(3):
        talk.turn("short")
    world.put("s.jsonl", talk.bytes())


def picture(number, size):
    data = base64.b64encode(random.Random(number).randbytes(size)).decode()
    return {
        "type": "image", "source": {"type": "base64", "data": data, "media_type": "image/png"},
    }  # fmt: skip


def screenshots(world):
    """Put pictures of an MCP server into results; each is stored for the screen, too."""
    talk = ClaudeConversation()
    for number in range(8):
        shown = [{"type": "text", "text": "Screenshot"}, picture(number, 43_000)]
        talk.user()
        talk.call(f"toolu_{number}", "mcp__browser__shot", {"url": "/"})
        talk.result(shown, f"toolu_{number}", shown)
        talk.assistant()
    world.put("s.jsonl", talk.bytes())


def pictures_as_text(world):
    """Put pictures into results as JSON text. They were sent as text, and the prompt refused."""
    talk = ClaudeConversation()
    for number in range(6):
        talk.user()
        talk.call(f"toolu_{number}", "Read", {"file_path": "/w/a.png"})
        talk.result(json.dumps([picture(number, 69_000)]), f"toolu_{number}")
        del talk.lines[-1]["toolUseResult"]
        talk.assistant()
    talk.user()
    talk.assistant({"type": "text", "text": "Prompt is too long"}, stop="stop_sequence",
                   isApiErrorMessage=True, error="invalid_request")  # fmt: skip
    world.put("s.jsonl", talk.bytes())


def put_conversation(world, number=0):
    talk = Conversation(f"{number:08}-0000-4000-8000-000000000001")
    talk._ids = itertools.count(100 * number + 1)
    for _ in range(4):
        talk.turn()
    return world.put(f"{number}.jsonl", talk.bytes())


def dead_locks(world):
    """Put locks of ended processes, of pids that now are of younger ones, and an empty one."""
    created = {"createdAt": "2020-01-01T10:00:00.000Z"}
    for number, pid in enumerate((2**22, os.getpid(), 1, None)):
        name = put_conversation(world, number).name
        world.put(f"{name}.lock", dump({"pid": pid, **created}) if pid else b"")


def empty_registry(world):
    put_conversation(world)
    world.put("sessions.json", b"")


def registry_with_odd_entries(world):
    put_conversation(world)
    good = {"sessionId": "00000000-0000-4000-8000-000000000001", "status": "done"}
    world.put("sessions.json", dump({"agent:main:old": None, "agent:main:main": good}))


# Shapes that are built, with the number of entries from which the defaults extract values.
BUILT = {
    "claude-code/05-nul-ranges": (zero_filled, 7),
    "claude-code/12-hook-success-bloat": (hook_events, 38),
    "claude-code/13-persisted-but-whole": (whole_outputs, 3),
    "claude-code/30-mcp-screenshots": (screenshots, 7),
    "claude-code/43-image-as-json-string": (pictures_as_text, 6),
    "openclaw/07-locks": (dead_locks, 4 * 3),
    "openclaw/17-registry-empty": (empty_registry, 3),
    "openclaw/17b-registry-null-entry": (registry_with_odd_entries, 3),
}


def put_case(world, case):
    if case in BUILT:
        BUILT[case][0](world)
        return BUILT[case][1]
    place = world.root if case.startswith("claude") else world.directory
    shutil.copytree(CASES / case, place, dirs_exist_ok=True)
    for path in place.rglob("*.jsonl"):
        os.utime(path, (time.time() - LONG_AGO,) * 2)
    return EXTRACTED[case]


def world_of(case, base):
    return ClaudeWorld(base) if case.startswith("claude") else World(base)


def files(root):
    return {
        path.relative_to(root): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(root.rglob("*.jsonl"))
    }


def skeleton(data):
    """Return each line's ids, calls and results; a line that is no object as it is."""
    lines = []
    for raw in data.split(b"\n"):
        try:
            entry = json.loads(raw)
        except ValueError:
            entry = raw
        if not isinstance(entry, dict):
            lines.append(raw)
            continue
        message = entry.get("message") if isinstance(entry.get("message"), dict) else {}
        content = message.get("content") if isinstance(message.get("content"), list) else []
        calls = [
            block.get("id") or block.get("tool_use_id") for block in content
            if isinstance(block, dict)
        ]  # fmt: skip
        keys = ("uuid", "parentUuid", "id", "parentId", "type")
        lines.append(([entry.get(key) for key in keys], message.get("toolCallId"), calls))
    return lines


@pytest.mark.parametrize("case", [*EXTRACTED, *BUILT])
def test_reported_shape_is_pruned_and_restored_to_the_byte(tmp_path, case):
    """A dry run writes nothing, a second scan changes nothing, ids and calls stay as they were."""
    world = world_of(case, tmp_path)
    entries = put_case(world, case)
    before = files(world.root)
    whole = b"".join(data for data, _ in before.values())
    keys = {"min_reclaim": "1%"}
    if case.startswith("generic"):
        keys["roots"] = [{"path": str(world.root), "format": "generic"}]
    try:
        dry = world.scan(dry_run=True, **keys)
        assert files(world.root) == before
        report = world.scan(**keys)
        after = files(world.root)

        assert report.files_failed == 0
        assert dry.values_extracted == report.values_extracted
        texts = (data for data, _ in after.values())
        placed = {name for text in texts for name in PLACEHOLDER.findall(text)}
        assert len(placed - set(PLACEHOLDER.findall(whole))) == entries
        assert world.scan(**keys).sessions_changed == 0
        assert files(world.root) == after
        assert {path: skeleton(data) for path, (data, _) in after.items()} == {
            path: skeleton(data) for path, (data, _) in before.items()
        }
        world.restore_all(pristine=True)
        assert files(world.root) == before
    finally:
        world.close()


def test_every_copied_case_is_tried():
    """No case lies beside the test unused."""
    assert {f"{path.parent.name}/{path.name}" for path in CASES.glob("*/*")} == set(EXTRACTED)


@pytest.mark.parametrize("case", ELSEWHERE)
def test_case_that_is_tried_elsewhere_has_its_test(case):
    """Each named test is in its file."""
    for named in ELSEWHERE[case]:
        path, _, test = named.partition("::")
        assert f"\ndef {test}" in (TESTS / path).read_text()


@pytest.fixture
def claude_world(tmp_path):
    """Yield a home of Claude Code."""
    world = ClaudeWorld(tmp_path)
    yield world
    world.close()


def relieved(world):
    return relieve(world.settings(), world.store, "s", Wanted(), clock=world.clock)


def sent_by_kind(world):
    shown = context(world.settings(), world.store, "s", world.clock())
    return {(row.kind, row.tool): (row.chars, row.live_chars) for row in shown.filling}


def test_texts_of_silent_hooks_are_not_shown_as_sent(claude_world):
    """Of all that hooks write, only what the first one told the model is in a request."""
    hook_events(claude_world)
    chars, sent = sent_by_kind(claude_world)["system", None]

    assert chars > 41 * 2900
    assert sent == len("Be brief.")


def test_whole_outputs_leave_the_prompt(claude_world):
    """Less than 15,000 characters of 1,800,000 are sent, and the session fits its model."""
    whole_outputs(claude_world)
    before = sum(sent for _, sent in sent_by_kind(claude_world).values())
    relief = relieved(claude_world)

    assert before > 1_800_000
    assert relief.fits
    assert sum(sent for _, sent in sent_by_kind(claude_world).values()) < 15_000


def test_pictures_that_became_text_leave_a_refused_prompt(claude_world):
    """The session fits again, and a scan leaves a thirtieth of it."""
    pictures_as_text(claude_world)
    path = claude_world.directory / "s.jsonl"
    size = path.stat().st_size
    relief = relieved(claude_world)
    claude_world.scan()

    assert (relief.before.refusal, relief.fits) == ("too long", True)
    assert path.stat().st_size < size / 30


@pytest.mark.parametrize("how", ["as it was", "edited", "another result", "pruned"])
def test_pruned_entry_that_is_written_again_has_its_value(claude_world, how):
    """Each copy is restored to what was written, a copied placeholder to its value."""
    talk = claude_turns(4)
    at = next(index for index, line in enumerate(talk.lines) if "toolUseResult" in line)
    original, ident = talk.lines[at], talk.lines[at]["uuid"]
    path = claude_world.put("s.jsonl", talk.bytes())
    claude_world.scan()
    pruned, written = path.read_bytes(), len(talk.lines)
    if how == "another result":
        talk.call("toolu_another")
        talk.result("y" * 3000, "toolu_another")
        talk.lines[-1]["uuid"] = talk.last = ident
        talk.assistant()
    elif how == "edited":
        talk.lines.append(json.loads(json.dumps(original).replace("x" * 2000, "y" * 2000)))
    else:
        talk.lines.append(original)
    for _ in range(4):
        talk.turn()
    added = [*map(dump, talk.lines[written:])]
    if how == "pruned":
        added[0] = pruned.splitlines(keepends=True)[at]
    claude_world.put("s.jsonl", pruned + b"".join(added))
    report = claude_world.scan()

    assert (report.files_failed, report.sessions_changed) == (0, 1)
    assert claude_world.scan().sessions_changed == 0
    claude_world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


def degenerate_files():
    """Return damaged files that are sessions still, and those that are none, by name."""
    whole = claude_turns(6).bytes()
    lines = whole.splitlines()
    changed = {
        "byte order mark": b"\xef\xbb\xbf" + whole,
        "byte order mark and CRLF": b"\xef\xbb\xbf" + whole.replace(b"\n", b"\r\n"),
        "no last newline": whole[:-1],
        "half a last line": whole[:-150],
        "blank lines": whole.replace(b"\n", b"\n\n"),
        "spaces": b"".join(b"  " + line + b" \t\n" for line in lines),
        "latin-1": whole.replace(b"done.", "Größe".encode("latin-1")),
        "control characters": whole.replace(b"done.", b"a\tb\x01c"),
    }
    left = {
        "empty": b"", "newline": b"\n", "zeros": bytes(5000), "lists": b"[1,2]\n[3]\n",
        "page": b"<html>502 Bad Gateway</html>\n",
        "one list": b"[" + b",\n".join(lines) + b"]\n", "compressed": gzip.compress(whole),
        "indented": b"".join(
            json.dumps(json.loads(line), indent=1).encode() + b"\n" for line in lines
        ),
        "UTF-16": whole.decode().encode("utf-16"),
    }  # fmt: skip
    return changed, left


def test_degenerate_files_are_pruned_or_left_with_a_reason(claude_world):
    """No file, pipe, directory or broken link stops the others; all bytes come back."""
    changed, left = degenerate_files()
    for name, data in (changed | left).items():
        claude_world.put(f"{name}.jsonl", data)
    directory = claude_world.directory
    title = {"type": "ai-title", "aiTitle": "x", "sessionId": "s"}
    claude_world.put("title.jsonl", dump(title))  # a session without a value
    (directory / "directory.jsonl").mkdir()
    os.mkfifo(directory / "pipe.jsonl")
    (directory / "link.jsonl").symlink_to("/nowhere")
    regular = sorted(directory / f"{name}.jsonl" for name in (*changed, *left, "title"))
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in regular}
    report = claude_world.scan()
    skipped = {
        one.session.partition("/")[2] for one in report.sessions
        if one.outcome == "skipped" and one.reason
    }  # fmt: skip
    pruned = {path.stem for path in regular if path.read_bytes() != before[path][0]}

    assert pruned == set(changed)
    assert report.files_failed == 0
    assert skipped == set(left)
    assert claude_world.scan().sessions_changed == 0
    claude_world.restore_all(pristine=True)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in regular} == before
