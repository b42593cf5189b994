"""Archive: finished turns are archived into their last answers, and restored byte for byte."""

import json
import os
import re

import pytest

from brainsurgeon.errors import FailedError, UsageError
from brainsurgeon.lookup.sessions import walk
from brainsurgeon.model.records import Request
from brainsurgeon.model.turns import ALREADY
from brainsurgeon.operations.archive import archive, archives, would_archive
from brainsurgeon.operations.report import report
from brainsurgeon.operations.restore import How, restore
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.show import MOST_HITS, cat, search, show_turn
from brainsurgeon.operations.status import metrics, status
from brainsurgeon.operations.store import purge
from brainsurgeon.render.runs import changes, event_text
from brainsurgeon.render.turns import turns
from building.claude import ClaudeConversation
from building.turns import (
    ARCHIVE_ON,
    active_branch,
    add_long_turn,
    branch_roles,
    conversation_of_turns,
    folding,
    text_blocks,
)
from building.world import SAMPLES, Conversation, appending, copy_tree, dump, sql

# Turns are archived, and no single value is extracted.
ARCHIVE_ONLY = {"archive": {"enabled": True}, "trigger_types": []}


def entries_of(data):
    return [json.loads(line) for line in data.splitlines() if line]


def archived_ids(report):
    """Return the closing entries of the turns that a run archived."""
    return [archive.entry_id for outcome in report.sessions for archive in outcome.plan.archives]


def turn_reasons(report):
    """Return the reason why each turn is archived or stays."""
    return [turn.reason for outcome in report.sessions for turn in outcome.plan.turns]


def write_turns(world, count):
    """Write a session of turns; return its path, its conversation and the ends of its turns."""
    talk, ends = conversation_of_turns(count)
    return world.put("s.jsonl", talk.bytes()), talk, ends


def archive_now(world, numbers=None, note=None, **settings):
    return archive(
        world.settings(**settings), world.store, "main/s", clock=world.clock, turns=numbers,
        note=note,
    )  # fmt: skip


def records(world):
    """Return the records of the archives that stand in the session."""
    return [row.archive for row in archives(world.settings(), world.store, "main/s")]


@pytest.fixture
def archived_session(world, clock):
    """Return a session with three of its five turns archived, its bytes before, its turns' ends."""
    path, talk, ends = write_turns(world, 5)
    assert archived_ids(world.scan(**ARCHIVE_ONLY)) == [closing for _, closing in ends[:3]]
    return path, talk.bytes(), ends


def test_archive_changes_only_parent_and_text_of_the_answer(world, archived_session):
    """The closing entry gets the prompt as parent and a summary as text; no other line changes.

    On the active branch an archived turn is a prompt and an answer. A second scan changes nothing.
    """
    path, before, ends = archived_session
    prompts = {closing: prompt for prompt, closing in ends[:3]}
    for was, now in zip(entries_of(before), entries_of(path.read_bytes()), strict=True):
        if was["id"] in prompts:
            assert now["parentId"] == prompts[was["id"]]
            text = now["message"]["content"][0]["text"]
            assert text.startswith(f"[archived turn]\narchive: {was['id']}\n\n")
            summary = json.loads(text.partition("\n\n")[2])
            assert summary["outcome"] == was["message"]["content"][0]["text"]
            assert summary["tools_used"] == {"exec": 5}
            now["parentId"] = was["parentId"]
            now["message"]["content"][0]["text"] = was["message"]["content"][0]["text"]
        assert now == was
    assert branch_roles(path.read_bytes())[:6] == ["user", "assistant"] * 3
    assert branch_roles(path.read_bytes())[6:] == branch_roles(before)[36:]
    assert [entry["id"] for entry in active_branch(path.read_bytes())[:6]] == [
        ident for pair in ends[:3] for ident in pair
    ]
    data = path.read_bytes()
    os.utime(path, (1, 1))  # or the file would not be read again
    assert world.scan(**ARCHIVE_ONLY).sessions_changed == 0
    assert path.read_bytes() == data


def test_restore_all_unarchives_every_turn(world, archived_session):
    """The turns are live again. Before that, `store purge` keeps the store."""
    path, before, ends = archived_session
    world.close()
    [left] = purge(world.settings()).in_the_way
    world.restore_all()
    world.close()

    assert left.placeholders == 3
    assert purge(world.settings()).removed

    assert branch_roles(path.read_bytes()) == branch_roles(before)
    for _, closing in ends:
        assert text_blocks(path.read_bytes(), closing) == text_blocks(before, closing)


def test_a_restored_turn_is_not_archived_again_at_once(world, archived_session):
    """A restored turn is protected for a time like every restored value."""
    path, before, ends = archived_session
    closing = ends[1][1]
    answer = world.restore(closing, **ARCHIVE_ONLY)

    assert not answer.pending
    assert text_blocks(path.read_bytes(), closing) == text_blocks(before, closing)
    assert branch_roles(path.read_bytes()).count("toolResult") == 15
    world.clock.now += 60
    os.utime(path, (1, 1))
    assert archived_ids(world.scan(dry_run=True, **ARCHIVE_ONLY)) == []
    world.clock.now += 600
    assert archived_ids(world.scan(**ARCHIVE_ONLY)) == [closing]


def test_a_run_extracts_and_archives_in_one_rewrite(world):
    """Values inside a turn are extracted in the same rewrite, and all of it can be restored."""
    path, talk, ends = write_turns(world, 4)
    report = world.scan(**ARCHIVE_ON)

    assert archived_ids(report) == [closing for _, closing in ends[:2]]
    assert report.values_extracted == 19
    assert report.sessions_changed == 1
    assert sum(line.count(b"[[extracted-") for line in path.read_bytes().splitlines()) == 19
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


def test_open_and_unfinished_turns_are_not_archived(world):
    """A turn whose call has no result, or that did not stop, is not archived."""
    talk = Conversation()
    talk.user()
    talk.call(call="lost")
    talk.assistant("so be it")
    talk.user()
    talk.call(call="a")
    talk.result("x", call="a")
    talk.assistant("and now", stop="toolUse")
    for _ in range(2):
        add_long_turn(talk)
    world.put("s.jsonl", talk.bytes())
    report = world.scan(archive={"enabled": True, "token_threshold": 0, "tool_call_threshold": 0},
                        dry_run=True)  # fmt: skip

    assert archived_ids(report) == []
    assert [reason.partition(":")[0] for reason in turn_reasons(report)] == ["open turn"] * 2 + [
        "recent"
    ] * 2


def test_a_turn_cut_short_is_archived_at_any_size(world):
    """`[Max turns reached]` archives a turn below the thresholds."""
    talk = Conversation()
    add_long_turn(talk, calls=4, text="y" * 300, answer="[Max turns reached]")
    for _ in range(2):
        add_long_turn(talk, calls=1)
    world.put("s.jsonl", talk.bytes())

    assert turn_reasons(world.scan(**ARCHIVE_ON))[0] == "it was cut short"


@pytest.mark.parametrize("stop", ["error", "aborted"])
def test_a_turn_whose_last_answer_is_never_sent_is_not_archived(world, stop):
    """The summary would never be sent either, and the model would miss the calls and results."""
    talk, ends = conversation_of_turns(4)
    talk.lines[12]["message"]["stopReason"] = stop
    path = world.put("s.jsonl", talk.bytes())
    report = world.scan(**ARCHIVE_ONLY)

    assert archived_ids(report) == [ends[1][1]]
    assert turn_reasons(report)[0] == "open turn: its last reply does not close it"
    assert branch_roles(path.read_bytes())[:12] == branch_roles(talk.bytes())[:12]


@pytest.mark.parametrize("position", ["prompt", "middle", "closing"])
def test_a_turn_with_a_pinned_entry_is_not_archived(world, position):
    """A pin on any entry of a turn keeps the turn."""
    talk, _ = conversation_of_turns(3)
    at = {"prompt": 1, "middle": 3, "closing": 12}[position]
    talk.lines[at]["_extractable"] = False
    world.put("s.jsonl", talk.bytes())

    assert turn_reasons(world.scan(dry_run=True, **ARCHIVE_ON))[0].startswith("pinned")


def test_a_turn_with_a_label_is_not_archived(world):
    """An entry that the user labelled stays on the branch."""
    talk, _ = conversation_of_turns(3)
    marked = talk.lines[3]["id"]
    talk.entry("label", targetId=marked, label="here")
    world.put("s.jsonl", talk.bytes())
    label = talk.lines[-1]["id"]

    assert turn_reasons(world.scan(dry_run=True, **ARCHIVE_ON))[0] == f"referred to by {label}"


def end_turn(talk):
    """Finish the open turn with enough calls for an archive, and add two turns after it."""
    for number in range(4):
        talk.call(call=f"b{number}")
        talk.result("x", call=f"b{number}")
    talk.assistant()
    for _ in range(2):
        add_long_turn(talk)


def test_a_turn_where_a_branch_begins_is_not_archived(world):
    """The user may return to the entry where another branch begins."""
    talk = Conversation()
    talk.user()
    talk.call(call="a")
    middle = talk.result("x" * 9000, call="a")
    other = talk.assistant("another way")
    talk.last = middle
    end_turn(talk)
    world.put("s.jsonl", talk.bytes())

    assert turn_reasons(world.scan(dry_run=True, **ARCHIVE_ON))[0] == f"referred to by {other}"


def test_a_turn_with_a_settings_change_is_not_archived(world):
    """A change of the thinking level has to stay on the active branch."""
    talk = Conversation()
    talk.user()
    talk.call(call="a")
    talk.result("x" * 9000, call="a")
    talk.entry("thinking_level_change", thinkingLevel="high")
    end_turn(talk)
    world.put("s.jsonl", talk.bytes())

    assert turn_reasons(world.scan(dry_run=True, **ARCHIVE_ON))[0] == (
        "format: it contains a thinking_level_change"
    )


def test_restore_in_a_fork_keeps_the_branch_of_the_fork(world, archived_session):
    """A fork gets the text of an answer, not the parent link, which would lead nowhere there."""
    path, before, ends = archived_session
    fork = active_branch(path.read_bytes())
    header = {**json.loads(before.splitlines()[0]), "id": "99999999-0000-4000-8000-000000000001",
              "parentSession": str(path)}  # fmt: skip
    copy = world.put("fork.jsonl", b"".join(map(dump, [header, *fork])))
    world.scan(**ARCHIVE_ONLY)
    world.restore_all(pristine=True)

    assert path.read_bytes() == before
    for _, closing in ends:
        assert text_blocks(copy.read_bytes(), closing) == text_blocks(before, closing)
    assert branch_roles(copy.read_bytes()) == [entry["message"]["role"] for entry in fork]


def test_a_fork_made_before_a_second_archive_is_restored(world, archived_session):
    """A fork's summary is known even if its parent has replaced it by another one since."""
    path, before, _ = archived_session
    header, *rest = path.read_bytes().splitlines(keepends=True)
    header = {**json.loads(header), "id": "99999999-0000-4000-8000-000000000001",
              "parentSession": str(path)}  # fmt: skip
    with folding(2, depth=4):  # another setting: the session is looked at anew
        assert archived_ids(world.scan(**ARCHIVE_ONLY, exclude=["tool:none"])) != []
    fork = world.put("fork.jsonl", b"".join([dump(header), *rest]))
    whole = b"".join(cat(world.settings(), world.store, str(fork), 0.0))
    world.scan(**ARCHIVE_ONLY)
    world.restore_all(pristine=True)

    assert path.read_bytes() == before
    assert whole == fork.read_bytes() == dump(header) + before.partition(b"\n")[2]


def test_a_fork_that_its_agent_rewrote_with_new_ids_is_restored(world, archived_session):
    """An archive that a scan saw in a fork is known there under a new id, too."""
    path, before, ends = archived_session
    header, *rest = path.read_bytes().splitlines(keepends=True)
    header = {**json.loads(header), "id": "99999999-0000-4000-8000-000000000001"}
    fork = world.put("fork.jsonl", b"".join([dump(header), *rest]))
    world.scan(**ARCHIVE_ONLY)
    ids = {entry["id"]: f"new-{entry['id']}" for entry in map(json.loads, rest)}
    renamed = [json.loads(line) for line in rest]
    for entry in renamed:
        entry["id"] = ids[entry["id"]]
        entry["parentId"] = ids.get(entry["parentId"])
    world.put("fork.jsonl", b"".join(map(dump, [header, *renamed])))
    world.scan(**ARCHIVE_ONLY)
    world.restore_all(pristine=True)

    for _, closing in ends:
        assert text_blocks(fork.read_bytes(), ids[closing]) == text_blocks(before, closing)


def test_a_row_of_archives_is_combined_into_one(world):
    """More than FOLD_AFTER archives in a row become one, which is reported and can be restored."""
    path, talk, ends = write_turns(world, 8)
    with folding(4):
        report = world.scan(archive={"enabled": True}, trigger_types=[])
    (outcome,) = report.sessions

    planned = [(row.prompt_id, row.entry_id, row.depth) for row in outcome.plan.archives]
    assert planned == [(ends[0][0], ends[2][1], 2), *((*pair, 1) for pair in ends[3:6])]
    assert branch_roles(path.read_bytes())[:8] == ["user", "assistant"] * 4
    assert "Number 0 is done." in text_blocks(path.read_bytes(), ends[2][1])[0]
    assert outcome.reason == "4 archives of 6 turns archived"
    assert changes(world.store.runs.newest(1)[0]) == "4 archives of 6 turns archived"
    [event] = world.store.events.after(0, kinds=["archive"])
    assert event_text(event) == "main/s: 4 archives of 6 turns"
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


def test_existing_archives_are_combined_and_restored(world):
    """A combined archive sums the calls of those inside it, and is restored with them."""
    talk, ends = conversation_of_turns(8)
    talk.lines[3]["message"]["isError"] = True
    path = world.put("s.jsonl", talk.bytes())
    world.scan(**ARCHIVE_ONLY)
    [first] = [record for record in records(world) if record.entry_id == ends[0][1]]
    with folding(4):
        report = world.scan(**ARCHIVE_ONLY, exclude=["tool:none"])
    [combined] = [record for record in records(world) if record.depth == 2]

    assert (first.calls, first.failed) == (5, 1)
    assert (combined.turns, combined.calls, combined.failed) == (3, 15, 1)
    assert archived_ids(report) == [ends[2][1]]
    assert branch_roles(path.read_bytes())[:8] == ["user", "assistant"] * 4
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


def test_archive_command_says_that_a_format_cannot_be_archived(world):
    """It names the format: a file of Codex is in no database."""
    copy_tree(SAMPLES / "codex", world.base / "codex")
    settings = world.settings(roots=[{"path": str(world.base / "codex")}])
    session = walk(settings, world.store).sessions[0]
    with pytest.raises(FailedError, match="turns of the format codex cannot be archived"):
        would_archive(settings, world.store, session, world.clock())


@pytest.mark.parametrize("sample", ["openclaw", "pi", "claude-code", "generic"])
def test_archive_settings_have_no_effect_unless_enabled(world, sample):
    """Keys of `[archive]` change no byte and no outcome unless `enabled` is set."""
    results = []
    for name, keys in (("a", {}), ("b", {"archive": {"token_threshold": 0, "keep_turns": 0}})):
        root = world.base / name
        copy_tree(SAMPLES / sample, root)
        report = world.scan(roots=[{"path": str(root)}], state_dir=str(world.state), **keys)
        outcomes = [
            (session.outcome, session.reason, session.bytes_after) for session in report.sessions
        ]
        assert all(not session.plan.turns for session in report.sessions if session.plan)
        files = [path.read_bytes() for path in sorted(root.rglob("*.jsonl"))]
        results.append((outcomes, files))
    assert results[0] == results[1]


def test_a_generic_turn_keeps_its_calls_without_results(world):
    """A format without parent links keeps the calls of an archived turn, and loses the results."""
    entries = []
    for turn in range(4):
        entries.append({"type": "message", "__id": f"u{turn}", "role": "user", "content": "go"})
        for step in range(5):
            entries.append({"type": "tool_call", "__id": f"c{turn}{step}", "name": "exec",
                            "call_id": f"{turn}{step}", "arguments": {"path": "/a"}})  # fmt: skip
            entries.append({"type": "tool_result", "__id": f"r{turn}{step}", "name": "exec",
                            "call_id": f"{turn}{step}", "output": "z" * 120})  # fmt: skip
        entries.append({"type": "message", "__id": f"a{turn}", "role": "assistant",
                        "content": "Done. " + "words " * 20})  # fmt: skip
    before = b"".join(map(dump, entries))
    path = world.put("g.jsonl", before)
    report = world.scan(roots=[{"path": str(world.root), "format": "generic"}], **ARCHIVE_ON)

    assert archived_ids(report) == ["a0", "a1"]
    now = entries_of(path.read_bytes())
    assert [entry["arguments"] for entry in now if entry["type"] == "tool_call"] == [
        {"path": "/a"}
    ] * 20
    extracted = [
        entry["__id"] for entry in now if str(entry.get("output", "")).startswith("[[extracted")
    ]
    assert extracted == [f"r{turn}{step}" for turn in range(2) for step in range(5)]
    assert now[11]["content"].startswith("[archived turn]\narchive: a0\n")
    os.utime(path, (1, 1))
    second = world.scan(roots=[{"path": str(world.root), "format": "generic"}], **ARCHIVE_ON)
    assert second.sessions_changed == 0
    world.restore_all(pristine=True, roots=[{"path": str(world.root), "format": "generic"}])
    assert path.read_bytes() == before


def test_archived_values_are_kept_as_long_as_their_session(world, clock):
    """The content of an archive is kept as long as its session is in use."""
    path, talk, _ = write_turns(world, 4)
    world.scan(**ARCHIVE_ON)
    retention(world.settings(), world.store, clock=clock)
    for _ in range(20):
        clock.now += 2 * 86_400
        os.utime(path, (clock.now,) * 2)
        world.scan(**ARCHIVE_ON)
        report = retention(world.settings(), world.store, clock=clock)
        assert (report.held_back, report.values_deleted) == ({}, 0)
    world.restore_all(pristine=True)

    assert path.read_bytes() == talk.bytes()


@pytest.mark.parametrize("requested", [False, True], ids=["by the rules", "requested"])
def test_an_appended_session_is_read_whole_for_an_archive(world, requested):
    """A large session that grew is read from its start if one of its turns may be archived."""
    talk = Conversation()
    ends = [add_long_turn(talk, calls=1, text="w" * 60_000) for _ in range(6)]
    path = world.put("s.jsonl", talk.bytes())
    on = {} if requested else {"archive": {"enabled": True, "keep_turns": 6}}
    world.scan(**on, trigger_types=[])
    world.scan(**on, trigger_types=[])
    with appending(path, talk):
        add_long_turn(talk, calls=1, text="w" * 60_000)
    if requested:
        assert archive_now(world, (1, 1), quiet_seconds=10**6).pending
    os.utime(path, (1, 1))
    ids = archived_ids(world.scan(**on, trigger_types=[]))

    assert ids[0] == ends[0][1]


def test_archive_command_refuses_numbers_in_a_session_without_turns(world):
    """It names no turns that could be chosen, since there are none."""
    world.put("s.jsonl", Conversation().bytes())

    with pytest.raises(UsageError, match="this session has no turns"):
        archive_now(world, (1, 1))


def test_archive_command_ignores_the_thresholds(world):
    """`archive` archives the named turns, with a note as outcome, and says why others stay."""
    talk = Conversation()
    ends = [add_long_turn(talk, calls=1, text="z" * 2000) for _ in range(5)]
    path = world.put("s.jsonl", talk.bytes())
    preview = would_archive(world.settings(), world.store, "main/s", world.clock())
    assert path.read_bytes() == talk.bytes()
    assert [turn.reason for turn in preview.kept] == ["recent", "recent"]
    assert len(preview.archived) == 3
    with pytest.raises(UsageError):
        archive_now(world, (2, 9))

    assert not archive_now(world, (2, 2), "so it was").pending
    assert [record.entry_id for record in records(world)] == [ends[1][1]]
    (text,) = text_blocks(path.read_bytes(), ends[1][1])
    assert json.loads(text.partition("\n\n")[2])["outcome"] == "so it was"
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()
    assert records(world) == []


def test_archive_command_works_on_an_unchanged_session(world, clock):
    """A session that the last scan found unchanged is archived on request."""
    _, _, ends = write_turns(world, 4)
    keys = {"min_value_length": 1_000_000}
    assert world.scan(**keys).sessions_changed == 0
    clock.now += 60
    assert world.scan(**keys).files_unchanged == 1

    answer = archive_now(world, **keys)

    assert not answer.pending
    assert [turn.closing_id for turn in answer.archived] == [closing for _, closing in ends[:2]]
    assert [record.entry_id for record in records(world)] == [closing for _, closing in ends[:2]]


def test_archive_of_a_busy_session_is_a_pending_request(world):
    """The request is recorded, and carried out by the first run that finds the session idle."""
    path, talk, ends = write_turns(world, 4)
    os.utime(path)

    assert archive_now(world, quiet_seconds=60).pending
    assert path.read_bytes() == talk.bytes()
    os.utime(path, (1, 1))
    assert archived_ids(world.scan(quiet_seconds=60)) == [closing for _, closing in ends[:2]]


def test_search_returns_the_first_fifty_matches(world):
    """Each match has its entry, path, offset and a short text; a bad expression is an error."""
    talk = Conversation()
    for number in range(MOST_HITS + 5):
        talk.user(f"{'ü' * 200} Needle {number}")
    talk.assistant()
    world.put("s.jsonl", talk.bytes())
    find = lambda text, **keys: search(world.settings(), world.store, text, **keys).hits  # noqa: E731

    found = search(world.settings(), world.store, "needle")
    matches = found.hits
    assert (len(matches), found.more) == (MOST_HITS, True)
    assert (matches[0].path, matches[0].offset) == ("message.content", 401)
    assert "Needle 0" in matches[0].preview
    assert len(matches[0].preview) <= 120
    assert find("needle 5[0-4]", regex=True)[0].entry_id == talk.lines[51]["id"]
    assert find("needle 5[0-4]") == []
    with pytest.raises(UsageError):
        find("(", regex=True)
    with pytest.raises(UsageError, match="not a regular expression"):
        find("a{9999999999}", regex=True)


def test_archived_turns_are_not_counted_as_values(world, archived_session, clock):
    """Status, metrics and report count archived turns apart from extracted values."""
    path, before, _ = archived_session
    now = status(world.settings(), world.store, clock())
    figures = {metric.name: metric.value for metric in metrics(world.settings(), world.store)}
    page = report(world.settings(), world.store, clock())

    assert (now.store.values_extracted, now.tokens.turns_archived) == (0, 3)
    assert now.store.bytes_saved == len(before) - path.stat().st_size
    assert {name: figures[name] for name in (
        "extractions_total", "extracted_values", "extracted_bytes", "archived_turns",
    )} == {
        "extractions_total": 0, "extracted_values": 0, "extracted_bytes": 0, "archived_turns": 3,
    }  # fmt: skip
    assert (page.days, page.kinds, page.tools) == ((), (), ())
    assert [row.values for row in page.sessions] == [()]


@pytest.mark.parametrize("restored", [False, True], ids=["archived", "restored before"])
def test_restore_with_values_restores_a_whole_turn(world, restored):
    """The values of an archived or restored turn are restored with `whole`, and only once."""
    path, talk, ends = write_turns(world, 4)
    world.scan(**ARCHIVE_ON)
    if restored:
        world.restore(ends[0][1])
        assert path.read_bytes().splitlines()[3].count(b"[[extracted-") == 1
    answers = [
        restore(world.settings(), world.store, ends[0][1], clock=world.clock, how=How(whole=True))
        for _ in range(2)
    ]

    assert [(answer.already, answer.missed) for answer in answers] == [(restored, ()), (True, ())]
    assert [answer.others for answer in answers] == [5, 0]
    now = re.sub(rb',"_restored":"[^"]*"', b"", path.read_bytes())
    assert now.splitlines()[1:13] == talk.bytes().splitlines()[1:13]


def generic_turns():
    """Return the lines of four generic turns: entries with `__id`, with `id`, and without an id."""
    entries = []
    for turn in range(4):
        entries.append({"type": "message", "__id": f"u{turn}", "role": "user", "content": "go"})
        for step, key in enumerate(("__id", "id", "n", "__id", "id")):
            name = {key: f"r{turn}{step}"}
            entries.append({"type": "tool_call", "__id": f"c{turn}{step}", "name": "exec",
                            "call_id": f"{turn}{step}", "arguments": {"path": "/a"}})  # fmt: skip
            entries.append({"type": "tool_result", **name, "name": "exec",
                            "call_id": f"{turn}{step}",
                            "output": f"{turn}{step}" * 600})  # fmt: skip
        entries.append({"type": "message", "__id": f"a{turn}", "role": "assistant",
                        "content": "Done. " + "words " * 20})  # fmt: skip
    return entries, "a0", slice(0, 12)


def claude_turns():
    talk = ClaudeConversation()
    closings = []
    for turn in range(4):
        talk.user(f"fix number {turn}")
        for step in range(5):
            talk.call(f"toolu_{turn}{step}")
            talk.result(f"{turn}{step}" * 600, f"toolu_{turn}{step}", shown=None)
        closings.append(talk.assistant())
    return talk.lines, closings[0], slice(0, 12)


@pytest.mark.parametrize("turns_of", [generic_turns, claude_turns])
def test_restore_with_values_finds_the_entries_of_each_agent(world, turns_of):
    """Each agent names its entries in its own way; all values of the turn are restored."""
    entries, closing, of_turn = turns_of()
    path = world.put("g.jsonl", b"".join(map(dump, entries)))
    before = path.read_bytes().splitlines()
    report = world.scan(**ARCHIVE_ON, keep_recent=0)
    answer = restore(
        world.settings(keep_recent=0), world.store, closing, clock=world.clock, how=How(whole=True)
    )
    now = re.sub(rb',"_restored":"[^"]*"', b"", path.read_bytes()).splitlines()

    assert closing in archived_ids(report)
    assert (answer.others, answer.missed) == (5, ())
    assert now[of_turn] == before[of_turn]
    assert b"[[extracted-" in b"".join(now)


def test_combined_archives_leave_no_pending_request(world):
    """Requests for turns that became one archive are closed."""
    write_turns(world, 8)
    with folding(4):
        answer = archive_now(world, archive={}, trigger_types=[])
    standing = records(world)

    assert len(answer.archived) == 6
    assert [record.turns for record in standing] == [3, 1, 1, 1]
    assert [record.calls for record in standing] == [15, 5, 5, 5]
    assert not world.store.requests.of_session(standing[0].session_id)


def test_show_turn_returns_its_lines_and_an_index_of_calls(world):
    """An archived turn is shown byte for byte, with exit code, time, bytes and failure of calls."""
    talk, ends = conversation_of_turns(4)
    talk.lines[15]["message"]["details"] = {"exitCode": 1, "durationMs": 1156}
    talk.lines[17]["message"]["content"] = [{"type": "text", "text": "ü" * 300}]
    world.put("s.jsonl", talk.bytes())
    world.scan(**ARCHIVE_ON)
    turn = show_turn(world.settings(), world.store, ends[1][1], None, world.clock())

    assert list(turn.lines) == talk.bytes().splitlines()[13:25]
    size = len(json.loads(turn.lines[2])["message"]["content"][0]["text"])
    assert turn.index[0] == f"1. exec [exit=1, 1,156 ms, {size} B] FAILED"
    assert turn.index[1] == "2. exec [600 B]"


def test_context_lists_turns_that_will_be_archived(world):
    """Before a run the context lists the turns due for an archive, afterwards the archives."""
    _, _, ends = write_turns(world, 4)
    settings = world.settings(**ARCHIVE_ONLY)
    before = context(settings, world.store, "main/s", world.clock())
    world.scan(**ARCHIVE_ONLY)
    after = context(settings, world.store, "main/s", world.clock())

    assert [turn.closing_id for turn in before.plan.turns if turn.archived] == [
        closing for _, closing in ends[:2]
    ]
    assert (before.archives, [record.entry_id for record in after.archives]) == (
        (), [closing for _, closing in ends[:2]],
    )  # fmt: skip
    assert not any(turn.archived for turn in after.plan.turns)


@pytest.mark.parametrize(
    "keys", [{"exclude": ["agent:main"]}, {"enabled": False}], ids=["excluded", "disabled"]
)
def test_archive_of_an_excluded_session_is_refused(world, keys):
    """If extraction is off or the session excluded, the command fails and records no request."""
    path, talk, _ = write_turns(world, 4)
    world.scan(**ARCHIVE_ONLY, dry_run=True)
    with pytest.raises(FailedError):
        archive_now(world, **keys)

    assert sql(world, "SELECT count(*) FROM archives") == [(0,)]
    assert path.read_bytes() == talk.bytes()


def test_archive_preview_needs_no_store(world):
    """A preview works without a store and creates none."""
    write_turns(world, 4)
    preview = would_archive(world.settings(), world.no_store, "main/s", world.clock())

    assert [turn.reason for turn in preview.archived] == ["requested"] * 2
    assert not world.state.exists()


def test_archive_requests_that_cannot_succeed_are_cancelled(world):
    """A request lapses with a reason if its turn is too small, left open before others, or gone."""
    talk = Conversation()
    prompt = talk.user("hello")
    talk.assistant("hello yourself")
    aborted = talk.user("go on")
    talk.assistant("I have only", stop="aborted")
    for _ in range(2):
        add_long_turn(talk)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    (ident,) = [row[0] for row in sql(world, "SELECT id FROM sessions")]
    with world.store.transaction():
        for turn, note in ((prompt, "said hello"), (aborted, "went on"), ("gone", "is gone")):
            request = Request(ident, "archive", 1.0, turn, value=note)
            world.store.requests.add(request)
    os.utime(path, (1, 1))
    world.scan()

    assert not world.store.requests.of_session(ident)
    lapses = [event.facts for event in world.store.events.after(0, kinds=["lapse"])]
    assert {facts["entry_id"]: facts["reason"] for facts in lapses} == {
        prompt: "no gain", "gone": "the turn is no longer in its session",
        aborted: "open turn: its last reply does not close it",
    }  # fmt: skip


def test_search_reports_a_named_file_of_an_unknown_format(world):
    """A file that is no session is reported if the user named it, and left out otherwise."""
    path = world.put("s.jsonl", b'{"a":"needle"}\n' * 3)
    find = lambda *named: search(world.settings(), world.store, "needle", *named)  # noqa: E731

    assert find().not_searched == []
    assert [item.reason for item in find(str(path)).not_searched] == ["not a known session format"]


def test_search_finds_extracted_thinking(world):
    """The text of extracted thinking is searched, its signature is not."""
    path = world.copy("pi", "pi-1.5.2-tree.jsonl")
    before = {entry["id"]: entry for entry in entries_of(path.read_bytes())}
    world.scan()
    now = {entry["id"]: entry for entry in entries_of(path.read_bytes())}
    block = before["30867252"]["message"]["content"][0]
    assert now["30867252"]["message"]["content"][0] != block
    find = lambda text: search(world.settings(), world.store, text).hits  # noqa: E731

    matches = find(block["thinking"][3:60])
    assert ("30867252", True, 3) in [
        (entry.entry_id, entry.held, entry.offset) for entry in matches
    ]
    assert find(block["thinkingSignature"][:60]) == []


def test_archive_command_gives_a_reason_for_each_kept_turn(world):
    """The reason is recent or already archived, never a threshold of the rules."""
    talk = Conversation()
    for _ in range(5):
        add_long_turn(talk, calls=1, text="z" * 2000)
    world.put("s.jsonl", talk.bytes())

    assert [turn.reason for turn in archive_now(world).kept] == ["recent", "recent"]
    assert [turn.reason for turn in archive_now(world).kept] == [
        *[ALREADY] * 3, "recent", "recent",
    ]  # fmt: skip


def test_session_context_says_which_turns_are_already_archived(world, archived_session):
    """The description of a session counts archives apart from turns that stay for other reasons."""
    settings = world.settings(**ARCHIVE_ONLY)
    verdicts = context(settings, world.store, "main/s", world.clock()).plan.turns

    assert turns(verdicts) == [
        "  = 3 turns kept: already archived", "  = 2 turns kept: recent",
    ]  # fmt: skip


def test_archive_refuses_a_reversed_range_of_turns(world, archived_session):
    """The error says to name the earlier turn first."""
    with pytest.raises(UsageError, match="the earlier turn first"):
        archive_now(world, (4, 2))
