"""Finished turns are archived into their last answers, and come back to the byte."""

import json
import os
import re

import pytest

from brainsurgeon.errors import FailedError, UsageError
from brainsurgeon.model.records import Request
from brainsurgeon.operations.archive import ALREADY, archive, archives, would_archive
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.report import report
from brainsurgeon.operations.restore import How, restore
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.search import MOST, search
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.show import show_turn
from brainsurgeon.operations.status import metrics, status
from brainsurgeon.render.runs import did, event_text
from building.turns import (
    ARCHIVE_ON,
    active_branch,
    add_long_turn,
    branch_roles,
    conversation_of_turns,
    folding,
    text_blocks,
)
from building.world import SAMPLES, Conversation, append, copy_tree, dump, sql

# Turns archive, and nothing else goes.
NEVER = {"archive": {"enabled": True}, "trigger_types": []}


def lines(data):
    return [json.loads(line) for line in data.splitlines() if line]


def archived(report):
    """Name the closing entries of the turns that a run archived."""
    return [one.entry_id for outcome in report.sessions for one in outcome.plan.archives]


def reasons(report):
    """Give why each turn of a session is archived or stays."""
    return [one.reason for outcome in report.sessions for one in outcome.plan.turns]


@pytest.fixture
def three(world, clock):
    """Give a file of five turns of which three were archived, its first bytes.

    The turns' ends.
    """
    talk, ends = conversation_of_turns(5)
    path = world.put("s.jsonl", talk.bytes())
    assert archived(world.scan(**NEVER)) == [closing for _, closing in ends[:3]]
    return path, talk.bytes(), ends


def test_two_values_of_the_closing_line_change(three):
    """The closing entry continues the prompt and says what its turn came to; nothing else moves."""
    path, before, ends = three
    told = {closing: prompt for prompt, closing in ends[:3]}
    for was, now in zip(lines(before), lines(path.read_bytes()), strict=True):
        if was["id"] in told:
            assert now["parentId"] == told[was["id"]]
            said = now["message"]["content"][0]["text"]
            assert said.startswith(f"[archived turn]\narchive: {was['id']}\n\n")
            summary = json.loads(said.partition("\n\n")[2])
            assert summary["outcome"] == was["message"]["content"][0]["text"]
            assert summary["tools_used"] == {"exec": 5}
            now["parentId"] = was["parentId"]
            now["message"]["content"][0]["text"] = was["message"]["content"][0]["text"]
        assert now == was


def test_the_branch_has_a_question_and_an_answer_for_each(three):
    """What the model is sent of a archived turn is its prompt and its summary: roles alternate."""
    path, before, ends = three

    assert branch_roles(path.read_bytes())[:6] == ["user", "assistant"] * 3
    assert branch_roles(path.read_bytes())[6:] == branch_roles(before)[36:]
    assert [one["id"] for one in active_branch(path.read_bytes())[:6]] == [
        ident for pair in ends[:3] for ident in pair
    ]


def test_a_second_run_writes_nothing(world, three):
    """What archived stays as it is, also when every file is looked at anew."""
    path, _, _ = three
    now = path.read_bytes()
    os.utime(path, (1, 1))
    report = world.scan(**NEVER)

    assert report.sessions_changed == 0
    assert path.read_bytes() == now


@pytest.mark.parametrize("pristine", [False, True])
def test_everything_comes_back(world, three, pristine):
    """`restore --all` brings the turns back, and `--pristine` every byte."""
    path, before, ends = three
    world.restore_all(pristine=pristine)

    assert branch_roles(path.read_bytes()) == branch_roles(before)
    if pristine:
        assert path.read_bytes() == before
    for _, closing in ends:
        assert text_blocks(path.read_bytes(), closing) == text_blocks(before, closing)


def test_one_turn_comes_back_and_stays(world, three):
    """A restored turn is live again, and protected like any restore."""
    path, before, ends = three
    closing = ends[1][1]
    answer = world.restore(closing, **NEVER)

    assert not answer.pending
    assert text_blocks(path.read_bytes(), closing) == text_blocks(before, closing)
    assert branch_roles(path.read_bytes()).count("toolResult") == 15
    world.clock.now += 60
    os.utime(path, (1, 1))
    assert archived(world.scan(dry_run=True, **NEVER)) == []
    world.clock.now += 600
    assert archived(world.scan(**NEVER)) == [closing]


def test_a_turn_is_archived_with_the_cuts_of_the_same_run(world):
    """Values of the middle leave in the same rewrite, and everything comes back to the byte."""
    talk, ends = conversation_of_turns(4)
    path = world.put("s.jsonl", talk.bytes())
    report = world.scan(**ARCHIVE_ON)

    assert archived(report) == [closing for _, closing in ends[:2]]
    assert report.values_extracted == 19
    assert report.sessions_changed == 1
    assert sum(line.count(b"[[extracted-") for line in path.read_bytes().splitlines()) == 19
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


def test_cat_shows_archived_turns_unarchived(world, three):
    """The whole session is printed as the agent wrote it."""
    path, before, _ = three

    assert b"".join(cat(world.settings(), world.store, str(path), world.clock())) == before


def test_an_open_turn_and_an_unfinished_one_stay(world):
    """A turn whose call has no result, and one that did not stop, are never archived."""
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

    assert archived(report) == []
    assert [one.partition(":")[0] for one in reasons(report)] == ["open turn"] * 2 + ["recent"] * 2


def test_a_turn_that_ran_out_of_turns_archives(world):
    """`[Max turns reached]` archives a turn however small it is."""
    talk = Conversation()
    add_long_turn(talk, calls=4, text="y" * 300, answer="[Max turns reached]")
    for _ in range(2):
        add_long_turn(talk, calls=1)
    world.put("s.jsonl", talk.bytes())

    assert reasons(world.scan(**ARCHIVE_ON))[0] == "it was cut short"


@pytest.mark.parametrize("which", ["prompt", "middle", "closing"])
def test_a_pin_holds_its_turn(world, which):
    """A pinned entry keeps the turn it stands in."""
    talk, ends = conversation_of_turns(3)
    at = {"prompt": 1, "middle": 3, "closing": 12}[which]
    talk.lines[at]["_extractable"] = False
    world.put("s.jsonl", talk.bytes())

    assert reasons(world.scan(dry_run=True, **ARCHIVE_ON))[0].startswith("pinned")
    assert ends


def test_a_label_holds_the_turn_in_whose_middle_it_stands(world):
    """What the user marked stays on the branch."""
    talk, _ = conversation_of_turns(3)
    marked = talk.lines[3]["id"]
    talk.entry("label", targetId=marked, label="here")
    world.put("s.jsonl", talk.bytes())

    label = talk.lines[-1]["id"]
    assert reasons(world.scan(dry_run=True, **ARCHIVE_ON))[0] == f"referred to by {label}"


def end_turn(talk):
    """Make the open turn long enough for an archive, and old: two further turns follow it."""
    for number in range(4):
        talk.call(call=f"b{number}")
        talk.result("x", call=f"b{number}")
    talk.assistant()
    for _ in range(2):
        add_long_turn(talk)


def test_another_branch_holds_the_turn_in_whose_middle_it_begins(world):
    """The user may step back to it."""
    talk = Conversation()
    talk.user()
    talk.call(call="a")
    middle = talk.result("x" * 9000, call="a")
    other = talk.assistant("another way")
    talk.last = middle
    end_turn(talk)
    world.put("s.jsonl", talk.bytes())

    assert reasons(world.scan(dry_run=True, **ARCHIVE_ON))[0] == f"referred to by {other}"


def test_what_has_to_stay_on_the_branch_holds_its_turn(world):
    """A level of thinking, a compaction or the state of an extension is not left behind."""
    talk = Conversation()
    talk.user()
    talk.call(call="a")
    talk.result("x" * 9000, call="a")
    talk.entry("thinking_level_change", thinkingLevel="high")
    end_turn(talk)
    world.put("s.jsonl", talk.bytes())

    assert reasons(world.scan(dry_run=True, **ARCHIVE_ON))[0] == (
        "format: it contains a thinking_level_change"
    )


def test_a_fork_gets_the_text_back_and_keeps_its_branch(world, three):
    """A fork has the active branch alone: the link of an archive would lead nowhere there."""
    path, before, ends = three
    fork = active_branch(path.read_bytes())
    header = {**json.loads(before.splitlines()[0]), "id": "99999999-0000-4000-8000-000000000001",
              "parentSession": str(path)}  # fmt: skip
    copy = world.put("fork.jsonl", b"".join(map(dump, [header, *fork])))
    world.scan(**NEVER)
    world.restore_all(pristine=True)

    assert path.read_bytes() == before
    for _, closing in ends:
        assert text_blocks(copy.read_bytes(), closing) == text_blocks(before, closing)
    assert branch_roles(copy.read_bytes()) == [one["message"]["role"] for one in fork]


def test_a_fork_is_undone_though_its_parent_archived_on_unseen(world, three):
    """What the parent said of a turn is known where it stands, when it says something else now."""
    path, before, _ = three
    header, *rest = path.read_bytes().splitlines(keepends=True)
    header = {**json.loads(header), "id": "99999999-0000-4000-8000-000000000001",
              "parentSession": str(path)}  # fmt: skip
    with folding(2, depth=4):  # another setting: the session is looked at anew
        assert archived(world.scan(**NEVER, min_session_bytes=1)) != []
    fork = world.put("fork.jsonl", b"".join([dump(header), *rest]))
    whole = b"".join(cat(world.settings(), world.store, str(fork), 0.0))
    world.scan(**NEVER)
    world.restore_all(pristine=True)

    assert path.read_bytes() == before
    assert whole == fork.read_bytes() == dump(header) + before.partition(b"\n")[2]


def test_many_archives_in_a_row_become_one(world):
    """More than FOLD_AFTER archives in a row become one, as is said, and come back whole."""
    talk, ends = conversation_of_turns(8)
    path = world.put("s.jsonl", talk.bytes())
    with folding(4):
        report = world.scan(archive={"enabled": True}, trigger_types=[])
    (outcome,) = report.sessions

    assert [(one.prompt_id, one.entry_id, one.depth) for one in outcome.plan.archives] == [
        (ends[0][0], ends[2][1], 2), *((*pair, 1) for pair in ends[3:6]),
    ]  # fmt: skip
    assert branch_roles(path.read_bytes())[:8] == ["user", "assistant"] * 4
    assert "Number 0 is done." in text_blocks(path.read_bytes(), ends[2][1])[0]
    assert outcome.reason == "4 archives of 6 turns archived"
    assert did(world.store.runs.newest(1)[0]) == "4 archives of 6 turns archived"
    [told] = [one for one in world.store.events.after(0) if one.kind == "archive"]
    assert event_text(told) == "main/s: 4 archives of 6 turns"
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


def test_archives_that_stand_archive_once_more_and_all_come_back(world):
    """An archive that another takes in is undone with it, in one step."""
    talk, ends = conversation_of_turns(8)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(**NEVER)
    with folding(4):
        report = world.scan(**NEVER, min_session_bytes=1)

    assert archived(report) == [ends[2][1]]
    assert branch_roles(path.read_bytes())[:8] == ["user", "assistant"] * 4
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()


@pytest.mark.parametrize("sample", ["openclaw", "pi", "claude-code", "generic"])
def test_nothing_differs_while_it_is_off(world, sample):
    """Keys of `[archive]` change no byte and no outcome as long as it is not enabled."""
    results = []
    for name, keys in (("a", {}), ("b", {"archive": {"token_threshold": 0, "keep_turns": 0}})):
        root = world.base / name
        copy_tree(SAMPLES / sample, root)
        report = world.scan(roots=[{"path": str(root)}], state_dir=str(world.state), **keys)
        told = [(one.outcome, one.reason, one.bytes_after) for one in report.sessions]
        assert all(not one.plan.turns for one in report.sessions if one.plan)
        files = [path.read_bytes() for path in sorted(root.rglob("*.jsonl"))]
        results.append((told, files))
    assert results[0] == results[1]


def test_a_generic_turn_keeps_its_calls_and_loses_its_results(world):
    """Where nothing links the entries, the middle stays; its results go whatever their length."""
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

    assert archived(report) == ["a0", "a1"]
    now = lines(path.read_bytes())
    assert [one["arguments"] for one in now if one["type"] == "tool_call"] == [{"path": "/a"}] * 20
    gone = [one["__id"] for one in now if str(one.get("output", "")).startswith("[[extracted")]
    assert gone == [f"r{turn}{step}" for turn in range(2) for step in range(5)]
    assert now[11]["content"].startswith("[archived turn]\narchive: a0\n")
    os.utime(path, (1, 1))
    again = world.scan(roots=[{"path": str(world.root), "format": "generic"}], **ARCHIVE_ON)
    assert again.sessions_changed == 0
    world.restore_all(pristine=True, roots=[{"path": str(world.root), "format": "generic"}])
    assert path.read_bytes() == before


def test_a_turn_comes_back_with_its_values_where_that_is_asked(world):
    """What was extracted from a turn stays cut; with `--values` everything of it stands again."""
    talk, ends = conversation_of_turns(4)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(**ARCHIVE_ON)
    world.restore(ends[0][1])
    assert path.read_bytes().splitlines()[3].count(b"[[extracted-") == 1

    restore(world.settings(), world.store, ends[1][1], clock=world.clock, how=How(whole=True))

    now = re.sub(rb',"_restored":"[^"]*"', b"", path.read_bytes())
    assert now.splitlines()[13:25] == talk.bytes().splitlines()[13:25]


def test_what_an_archive_holds_stays_as_long_as_its_session(world, clock):
    """Nothing of a standing archive expires while its session does not."""
    talk, _ = conversation_of_turns(4)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(**ARCHIVE_ON)
    for _ in range(3):
        clock.now += 9 * 86_400
        world.scan(**ARCHIVE_ON)
        assert retention(world.settings(), world.store, clock=clock).values_deleted == 0
    world.restore_all(pristine=True)

    assert path.read_bytes() == talk.bytes()


@pytest.mark.parametrize("asked", [False, True], ids=["by the rules", "asked for"])
def test_what_archives_may_lie_far_in_front_of_what_was_appended(world, asked):
    """A large session that only grew is looked at whole, where some turn of it may be archived."""
    talk = Conversation()
    ends = [add_long_turn(talk, calls=1, text="w" * 60_000) for _ in range(6)]
    path = world.put("s.jsonl", talk.bytes())
    on = {} if asked else {"archive": {"enabled": True, "keep_turns": 6}}
    world.scan(**on, trigger_types=[])
    world.scan(**on, trigger_types=[])
    since = len(talk.lines)
    add_long_turn(talk, calls=1, text="w" * 60_000)
    append(path, talk.lines[since:])
    if asked:
        quiet = world.settings(quiet_seconds=10**6)
        assert archive(quiet, world.store, "main/s", clock=world.clock, turns=(1, 1)).pending
    os.utime(path, (1, 1))
    ids = archived(world.scan(**on, trigger_types=[]))

    assert ids[0] == ends[0][1]


# By hand.


def test_show_gives_a_turn_as_its_agent_wrote_it(world):
    """With its values extracted and its link changed, the turn is shown byte for byte."""
    talk, ends = conversation_of_turns(4)
    world.put("s.jsonl", talk.bytes())
    world.scan(**ARCHIVE_ON)
    turn = show_turn(world.settings(), world.store, ends[1][1], None, world.clock())

    assert list(turn.lines) == talk.bytes().splitlines()[13:25]
    assert turn.index[0].startswith("1. exec [")


def test_a_turn_is_archived_by_hand_whatever_its_size(world):
    """`archive` archives turns that are named, small ones too, and says why others stay."""
    talk = Conversation()
    ends = [add_long_turn(talk, calls=1, text="z" * 2000) for _ in range(5)]
    path = world.put("s.jsonl", talk.bytes())
    ask = lambda **keys: archive(  # noqa: E731
        world.settings(), world.store, "main/s", clock=world.clock, **keys
    )
    looked = would_archive(world.settings(), world.store, "main/s", world.clock())
    assert path.read_bytes() == talk.bytes()
    assert [one.reason for one in looked.kept] == ["recent", "recent"]
    assert len(looked.archived) == 3
    with pytest.raises(UsageError):
        ask(turns=(2, 9))

    done = ask(turns=(2, 2), note="so it was")
    assert not done.pending
    listed = archives(world.settings(), world.store, "main/s")
    assert [one.archive.entry_id for one in listed] == [ends[1][1]]
    (text,) = text_blocks(path.read_bytes(), ends[1][1])
    assert json.loads(text.partition("\n\n")[2])["outcome"] == "so it was"
    world.restore_all(pristine=True)
    assert path.read_bytes() == talk.bytes()
    assert archives(world.settings(), world.store, "main/s") == []


def test_a_turn_is_archived_by_hand_in_a_session_already_looked_at(world, clock):
    """Nothing changed in it since, and all the same what is asked for is done."""
    talk, ends = conversation_of_turns(4)
    world.put("s.jsonl", talk.bytes())
    keys = {"min_value_length": 1_000_000}
    assert world.scan(**keys).sessions_changed == 0
    clock.now += 60
    assert world.scan(**keys).files_unchanged == 1

    done = archive(world.settings(**keys), world.store, "main/s", clock=world.clock)

    assert not done.pending
    assert [one.closing_id for one in done.archived] == [closing for _, closing in ends[:2]]
    listed = archives(world.settings(), world.store, "main/s")
    assert [one.archive.entry_id for one in listed] == [closing for _, closing in ends[:2]]


def test_what_is_asked_of_a_busy_session_waits(world):
    """In a session that is not idle it is noted, and the next run that may does it."""
    talk, ends = conversation_of_turns(4)
    path = world.put("s.jsonl", talk.bytes())
    keys = {"quiet_seconds": 60}
    os.utime(path)
    answer = archive(world.settings(**keys), world.store, "main/s", clock=world.clock)

    assert answer.pending
    assert path.read_bytes() == talk.bytes()
    os.utime(path, (1, 1))
    assert archived(world.scan(**keys)) == [closing for _, closing in ends[:2]]


def test_turns_of_a_small_session_archive_where_that_was_asked_for(world):
    """`min_session_bytes` keeps no turn from what was asked for, now or later."""
    talk, ends = conversation_of_turns(4)
    path = world.put("s.jsonl", talk.bytes())
    small = {"min_session_bytes": 10**9, "trigger_types": []}
    ask = lambda turn, **keys: archive(  # noqa: E731
        world.settings(**keys), world.store, "main/s", clock=world.clock, turns=(turn, turn)
    )
    assert [one.closing_id for one in ask(1, **small).archived] == [ends[0][1]]
    assert ask(2, quiet_seconds=10**6, **small).pending
    os.utime(path, (1, 1))

    assert archived(world.scan(**small)) == [ends[1][1]]


def test_search_tells_at_most_so_many(world):
    """The first fifty places are told, each with its entry, its value and what stands there."""
    talk = Conversation()
    for number in range(MOST + 5):
        talk.user(f"{'ü' * 200} Needle {number}")
    talk.assistant()
    world.put("s.jsonl", talk.bytes())
    find = lambda text, **keys: search(world.settings(), world.store, text, **keys)  # noqa: E731

    found = find("needle")
    assert len(found) == MOST
    assert (found[0].path, found[0].offset) == ("message.content", 401)
    assert "Needle 0" in found[0].text
    assert len(found[0].text) <= 120
    assert find("needle 5[0-4]", regex=True)[0].entry_id == talk.lines[51]["id"]
    assert find("needle 5[0-4]") == []
    with pytest.raises(UsageError):
        find("(", regex=True)


def test_archived_turns_are_counted_apart_from_values_that_left(world, three, clock):
    """Status, sessions, figures and the page count turns, and values only where some left."""
    path, before, _ = three
    now = status(world.settings(), world.store, clock())
    figures = {one.name: one.value for one in metrics(world.settings(), world.store)}
    page = report(world.settings(), world.store, clock())

    assert (now.values_extracted, now.turns_archived) == (0, 3)
    assert now.bytes_saved == len(before) - path.stat().st_size
    assert {name: figures[name] for name in (
        "extractions_total", "extracted_values", "extracted_bytes", "archived_turns",
    )} == {
        "extractions_total": 0, "extracted_values": 0, "extracted_bytes": 0, "archived_turns": 3,
    }  # fmt: skip
    assert (page.days, page.kinds, page.tools) == ((), (), ())
    assert [one.values for one in page.sessions] == [()]


def test_values_come_back_also_after_a_turn_came_back_without_them(world):
    """`--values` brings what was extracted from a turn that was restored before, once."""
    talk, ends = conversation_of_turns(4)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(**ARCHIVE_ON)
    ask = lambda: restore(  # noqa: E731
        world.settings(), world.store, ends[0][1], clock=world.clock, how=How(whole=True)
    )
    world.restore(ends[0][1])
    assert path.read_bytes().splitlines()[3].count(b"[[extracted-") == 1

    done = ask()
    assert (done.already, done.others, done.missed) == (True, 5, ())
    now = re.sub(rb',"_restored":"[^"]*"', b"", path.read_bytes())
    assert now.splitlines()[1:13] == talk.bytes().splitlines()[1:13]
    assert ask().others == 0


def test_turns_that_archive_into_one_are_asked_for_no_more(world):
    """Of turns that were asked for and became one archive, none still waits."""
    talk, _ = conversation_of_turns(8)
    world.put("s.jsonl", talk.bytes())
    keys = {"archive": {}, "trigger_types": []}
    with folding(4):
        done = archive(world.settings(**keys), world.store, "main/s", clock=world.clock)
    listed = archives(world.settings(), world.store, "main/s")

    assert len(done.archived) == 6
    assert [one.archive.turns for one in listed] == [3, 1, 1, 1]
    assert [one.archive.calls for one in listed] == [15, 5, 5, 5]
    assert not world.store.requests.open_of(listed[0].archive.session_id)


def test_an_archive_counts_its_calls_and_those_that_failed(world):
    """What archived says how many calls it held; one that takes it in adds them up."""
    talk, ends = conversation_of_turns(8)
    talk.lines[3]["message"]["isError"] = True
    world.put("s.jsonl", talk.bytes())
    world.scan(**NEVER)
    counted = {one.archive.entry_id: one.archive for one in archives(
        world.settings(), world.store, "main/s")}  # fmt: skip
    assert (counted[ends[0][1]].calls, counted[ends[0][1]].failed) == (5, 1)

    with folding(4):
        world.scan(**NEVER, min_session_bytes=1)
    (taken_in,) = [one.archive for one in archives(world.settings(), world.store, "main/s")
                   if one.archive.depth == 2]  # fmt: skip
    assert (taken_in.turns, taken_in.calls, taken_in.failed) == (3, 15, 1)


def test_the_index_tells_what_is_known_of_each_result(world):
    """The exit code and the time, where the agent recorded them, the bytes, and a failure."""
    talk, ends = conversation_of_turns(4)
    talk.lines[3]["message"]["details"] = {"exitCode": 1, "durationMs": 1156}
    talk.lines[5]["message"]["content"] = [{"type": "text", "text": "ü" * 300}]
    world.put("s.jsonl", talk.bytes())
    world.scan(**ARCHIVE_ON)
    turn = show_turn(world.settings(), world.store, ends[0][1], None, world.clock())

    size = len(json.loads(turn.lines[2])["message"]["content"][0]["text"])
    assert turn.index[0] == f"1. exec [exit=1, 1,156 ms, {size} B] FAILED"
    assert turn.index[1] == "2. exec [600 B]"


def test_context_tells_what_the_next_run_would_archive(world):
    """Before a run the turns that it would archive are told, afterwards the archives."""
    talk, ends = conversation_of_turns(4)
    world.put("s.jsonl", talk.bytes())
    look = lambda: context(world.settings(**NEVER), world.store, "main/s", world.clock())  # noqa: E731
    before = look()
    world.scan(**NEVER)
    after = look()

    assert [one.closing_id for one in before.plan.turns if one.archived] == [
        closing for _, closing in ends[:2]
    ]
    assert (before.archives, [one.entry_id for one in after.archives]) == (
        (), [closing for _, closing in ends[:2]],
    )  # fmt: skip
    assert not any(one.archived for one in after.plan.turns)


@pytest.mark.parametrize("keys", [{"exclude": ["agent:main"]}, {"enabled": False}])
def test_what_is_left_alone_is_not_noted_to_archive_later(world, keys):
    """Where nothing may be archived that is said at once, and nothing waits for ever."""
    talk, _ = conversation_of_turns(4)
    path = world.put("s.jsonl", talk.bytes())
    world.scan(**NEVER, dry_run=True)
    with pytest.raises(FailedError):
        archive(world.settings(**keys), world.store, "main/s", clock=world.clock)

    assert sql(world, "SELECT count(*) FROM archives") == [(0,)]
    assert path.read_bytes() == talk.bytes()


def test_a_look_wants_no_store(world):
    """What would be archived is told without a store, and none is made for it."""
    talk, _ = conversation_of_turns(4)
    world.put("s.jsonl", talk.bytes())
    looked = would_archive(world.settings(), world.no_store, "main/s", world.clock())

    assert [one.reason for one in looked.archived] == ["asked for"] * 2
    assert not world.state.exists()


def test_a_turn_that_was_asked_for_and_never_archives_is_let_go_of(world):
    """A task that its agent closed in a turn too small to be archived does not wait for ever."""
    talk = Conversation()
    prompt = talk.user("hello")
    talk.assistant("hello yourself")
    for _ in range(2):
        add_long_turn(talk)
    path = world.put("s.jsonl", talk.bytes())
    world.scan()
    (ident,) = [row[0] for row in sql(world, "SELECT id FROM sessions")]
    with world.store.transaction():
        for turn, note in ((prompt, "said hello"), ("gone", "is gone")):
            asked = Request(ident, "archive", 1.0, turn, value=note)
            world.store.requests.add(asked)
    os.utime(path, (1, 1))
    world.scan()

    assert not world.store.requests.open_of(ident)
    told = [json.loads(facts) for (facts,) in sql(
        world, "SELECT facts FROM events WHERE kind = 'lapse' ORDER BY id")]  # fmt: skip
    assert {one["entry_id"]: one["reason"] for one in told} == {
        prompt: "no gain", "gone": "the turn is no longer in its session",
    }  # fmt: skip


def test_search_finds_what_a_block_of_thinking_said(world):
    """A block that left whole is looked through as well, and its signature is not."""
    path = world.copy("pi", "pi-1.5.2-tree.jsonl")
    before = {one["id"]: one for one in lines(path.read_bytes())}
    world.scan()
    now = {one["id"]: one for one in lines(path.read_bytes())}
    block = before["30867252"]["message"]["content"][0]
    assert now["30867252"]["message"]["content"][0] != block
    find = lambda text: search(world.settings(), world.store, text)  # noqa: E731

    found = find(block["thinking"][3:60])
    assert ("30867252", True, 3) in [(one.entry_id, one.held, one.offset) for one in found]
    assert find(block["thinkingSignature"][:60]) == []


def test_what_was_not_asked_for_says_why_also_when_others_archive(world):
    """A turn that stays is told why it does, and not what the thresholds of a run say of it."""
    talk = Conversation()
    for _ in range(5):
        add_long_turn(talk, calls=1, text="z" * 2000)
    world.put("s.jsonl", talk.bytes())
    ask = lambda: archive(  # noqa: E731
        world.settings(), world.store, "main/s", clock=world.clock
    )

    assert [one.reason for one in ask().kept] == ["recent", "recent"]
    assert [one.reason for one in ask().kept] == [*[ALREADY] * 3, "recent", "recent"]


def test_turns_are_named_from_the_earlier_to_the_later(world, three):
    """The other way round it is said what is wrong, and not that there are no such turns."""
    with pytest.raises(UsageError, match="the earlier turn first"):
        archive(world.settings(), world.store, "main/s", clock=world.clock, turns=(4, 2))
