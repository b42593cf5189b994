"""Scans and restores of Gemini CLI's sessions: what is taken, who waits, what comes back."""

import json
import re
import time

import pytest

from brainsurgeon import api
from brainsurgeon.lookup.sessions import session_named
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.sessions.placeholders import placeholders_in, sessions_and_archives
from building.gemini import LONG, PICTURE, Chat, running
from building.world import SAMPLES, World, append

NAME = "session-2026-11-28T18-19-9857cc9b"
TAKEN = re.compile(rb"\[\[extracted-([^]]*)\]\]")
LEAN = {"rules": [{"kind": "tool_result", "keep_recent": 0, "min_value_length": 300}]}
samples = pytest.mark.parametrize("name", ["resumed-0.61.0", "subagent-0.61.0"])


class GeminiWorld(World):
    """A home of Gemini CLI with one project."""

    def __init__(self, base):
        super().__init__(base)
        self.place = self.root / ".gemini" / "tmp" / "demo"
        self.directory = self.place / "chats"
        self.directory.mkdir(parents=True)
        self.project = base / "project"
        self.project.mkdir()
        (self.place / ".project_root").write_text(str(self.project))

    def chat(self, chat, **how):
        return self.put(f"{NAME}.jsonl", chat.bytes(), **how)

    def sample(self, name, **how):
        data = (SAMPLES / "gemini" / f"{name}.jsonl").read_bytes()
        return self.put(f"{NAME}.jsonl", data, **how)


@pytest.fixture
def gemini(tmp_path):
    world = GeminiWorld(tmp_path)
    yield world
    world.close()


@samples
def test_values_leave_and_every_byte_comes_back(gemini, name):
    """Each line keeps its keys, the first its bytes; a restore is the file as it was."""
    path = gemini.sample(name)
    before, seen = path.read_bytes(), path.stat()
    result = gemini.scan(**LEAN)
    after = path.read_bytes()

    assert result.sessions[0].outcome == "changed"
    assert len(after) < 0.7 * len(before)
    assert path.stat().st_mtime_ns == seen.st_mtime_ns
    assert after.splitlines()[0] == before.splitlines()[0]
    kept = [json.loads(line) for line in after.splitlines()]
    for old, new in zip(map(json.loads, before.splitlines()), kept, strict=True):
        assert old.keys() == new.keys()
    assert gemini.scan(**LEAN).sessions == []
    assert gemini.leftovers() == []

    gemini.restore_all(pristine=True)
    assert path.read_bytes() == before


def chat_with_everything():
    chat = Chat()
    chat.turn("read_file__1")
    chat.user({"text": "look"}, PICTURE)
    chat.call("read_file__2", {"output": LONG + "!"}, PICTURE)
    chat.answer()
    chat.resume()
    chat.turn("read_file__3", LONG + "?")
    return chat


def parts_of(path):
    """Return the parts that the next resume sends, by what Gemini CLI reads."""
    messages = {}
    for line in map(json.loads, path.read_bytes().splitlines()):
        if "messages" in line.get("$set", {}):
            messages = {one["id"]: one for one in line["$set"]["messages"]}
        elif "id" in line:
            messages[line["id"]] = line
    return [
        part for one in messages.values()
        for listed in (one["content"], *(call["result"] for call in one.get("toolCalls", ())))
        for part in (listed if isinstance(listed, list) else [])
    ]  # fmt: skip


def test_one_placeholder_stands_wherever_a_result_is(gemini):
    """Each part with a value becomes a valid part: a result stays one, a picture is a text."""
    path = gemini.chat(chat_with_everything())
    gemini.scan(**LEAN)
    parts = parts_of(path)
    answers = {
        part["functionResponse"]["id"]: part["functionResponse"]["response"]["output"]
        for part in parts if "functionResponse" in part
    }  # fmt: skip

    assert answers == {
        f"read_file__{number}": f"[[extracted-read_file__{number}]]" for number in (1, 2, 3)
    }
    texts = [part for part in parts if "[[extracted-" in part.get("text", "")]
    assert all(part.keys() == {"text"} for part in texts)
    assert {part["text"] for part in texts} >= {"[[extracted-read_file__2.1]]"}
    assert not any("inlineData" in part for part in parts)


@pytest.mark.parametrize("resumes", [0, 2])
def test_all_copies_of_a_result_leave_together(gemini, resumes):
    """Whatever the boundary of the recent messages is: the newest copy decides.

    Another result whose call has the same id is no copy.
    """
    chat = Chat()
    chat.turn("read_file__1", LONG[::-1])
    chat.turn("read_file__1")
    for _ in range(resumes):
        chat.resume()
    chat.turn("read_file__2")
    path = gemini.chat(chat)
    copies = {LONG: [], LONG[::-1]: []}
    for recent in range(20, -1, -1):
        gemini.scan(rules=[{**LEAN["rules"][0], "keep_recent": recent}])
        parts = [json.dumps(part) for part in parts_of(path) if '_1"' in json.dumps(part)]
        for text, counts in copies.items():
            counts.append(sum(text in part for part in parts))
    assert all(len({*counts}) == 2 for counts in copies.values())
    assert copies[LONG[::-1]].count(0) > copies[LONG].count(0) > 0


def test_one_restore_fills_every_copy(gemini):
    """The value comes back where a later resume copied its placeholder, too."""
    path = gemini.chat(chat_with_everything())
    gemini.scan(**LEAN)
    pruned = Chat()
    pruned.lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    for line in pruned.lines:
        if "messages" in line.get("$set", {}):
            pruned.history = {one["id"]: one for one in line["$set"]["messages"]}
        elif "id" in line:
            pruned.history[line["id"]] = line
    pruned.resume()
    gemini.chat(pruned)
    assert len(TAKEN.findall(path.read_bytes())) > 15
    for entry in ("read_file__2", "read_file__2.1"):
        gemini.restore(entry)
        assert entry.encode() not in TAKEN.findall(path.read_bytes())
    gemini.restore_all()
    assert not TAKEN.search(path.read_bytes())
    assert [part for part in parts_of(path) if "inlineData" in part]


def test_later_lines_stay_behind_what_comes_back(gemini):
    """What Gemini CLI appends to a pruned session is kept, and the old bytes return before it.

    Also after an interruption, when it writes the whole conversation anew from its memory: these
    copies are values like others.
    """
    chat = chat_with_everything()
    path = gemini.chat(chat)
    before = path.read_bytes()
    gemini.scan(**LEAN)
    chat.resume()
    anew = chat.lines[-1]
    append(path, [anew])
    gemini.scan(**LEAN)
    assert len(path.read_bytes().splitlines()[-1]) < 0.5 * len(json.dumps(anew))

    gemini.restore_all(pristine=True)
    assert path.read_bytes().startswith(before)
    assert json.loads(path.read_bytes()[len(before) :]) == anew


def test_a_call_id_that_comes_again_gets_a_number(gemini):
    """Two results with the same id and other bytes both come back."""
    chat = Chat()
    chat.turn("read_file__1")
    chat.turn("read_file__1", LONG[::-1])
    path = gemini.chat(chat)
    before = path.read_bytes()
    gemini.scan(**LEAN)

    assert set(TAKEN.findall(path.read_bytes())) == {b"read_file__1", b"read_file__1~2"}
    gemini.restore_all(pristine=True)
    assert path.read_bytes() == before


def test_an_open_project_waits_and_can_be_restored(gemini):
    """A scan leaves it alone unless the user names it; a restore does not wait."""
    path = gemini.sample("resumed-0.61.0", age=600)
    before = path.read_bytes()
    with running(gemini.project / "gemini"):
        [waiting] = gemini.scan(**LEAN).sessions
        assert waiting.reason.startswith("an open Gemini CLI has it in memory")
        assert path.read_bytes() == before
        gemini.scan(only=[str(path)], named=True, **LEAN)
        assert TAKEN.search(path.read_bytes())
        gemini.restore_all(pristine=True)
    assert path.read_bytes() == before


def test_an_answer_as_it_came_waits_for_a_call(gemini):
    """Its line gets the call with the result, so for five minutes the turn may go on.

    Also for a scan of the session that is named. What a resume wrote has all calls.
    """
    chat = Chat()
    chat.turn("read_file__1")
    path = gemini.chat(chat, age=200)
    [waiting] = gemini.scan(only=[str(path)], named=True, **LEAN).sessions
    assert re.fullmatch(r"changed 20. s ago; it must be unchanged for 300 s", waiting.reason)
    gemini.chat(chat, age=400)
    assert gemini.scan(**LEAN).sessions[0].outcome == "changed"

    other = Chat()
    other.turn("read_file__2")
    gemini.chat(other, age=200)
    assert gemini.scan(abandoned_after=100, **LEAN).sessions[0].outcome == "changed"
    other.resume()
    gemini.chat(other, age=200)
    assert gemini.scan(**LEAN).sessions[0].outcome == "changed"


def test_names_have_the_project_and_the_beginning_of_the_id(gemini):
    """Sub-agents are listed, too; older files and saved conversations are only searched."""
    path = gemini.sample("resumed-0.61.0")
    gemini.put("9857cc9b-bb3e-4210-8522-420251a5c81d/one.jsonl", path.read_bytes())
    old = json.dumps({"sessionId": "s", "messages": [{"text": "[[extracted-x]]"}]}, indent=2)
    for place in (f"chats/{NAME}.json", "checkpoint-one.json"):
        (gemini.place / place).write_text(old)
    listed = sessions(gemini.settings(), gemini.store, time.time())

    assert {one.session for one in listed} == {f"gemini:demo/{NAME}", "gemini:demo/one"}
    named = session_named(gemini.settings(), gemini.store, "9857cc9b")
    assert named.title == f"gemini:demo/{NAME}"
    gemini.scan(**LEAN)
    assert (gemini.place / "checkpoint-one.json").read_text() == old


def test_older_files_are_archives_in_this_home_only(gemini):
    """A placeholder in them holds its value, and a restore names it; elsewhere, none is read."""
    text = json.dumps({"sessionId": "s", "messages": [{"text": "[[extracted-x]]"}]}, indent=2)
    paths = [
        place / name for place, name in (
            (gemini.directory, f"{NAME}.json"), (gemini.place, "checkpoint-one.json"),
            (gemini.root, "session-one.json"), (gemini.root, "checkpoint-one.json"),
        )
    ]  # fmt: skip
    for path in paths:
        path.write_text(text)
    found = {
        file.path: file for file in sessions_and_archives(gemini.settings().root_directories())
    }

    assert found.keys() == {str(path) for path in paths[:2]}
    for file in found.values():
        assert placeholders_in(file, bool) == {"[[extracted-x]]"}
    answers = {one.session: one.left[0] for one in gemini.restore_all()}
    assert answers.keys() == found.keys()
    assert all(left.startswith("[[extracted-x]]: this archive is not") for left in answers.values())


def test_evidence_lists_a_call_once_however_often_it_stands(gemini):
    """With a result that was extracted, and beside a picture."""
    path = gemini.chat(chat_with_everything())
    before = api.evidence(gemini.settings(), gemini.store, path.stem, gemini.clock())
    gemini.scan(**LEAN)
    report = api.evidence(gemini.settings(), gemini.store, path.stem, gemini.clock())

    assert [line.split(" [")[0] for line in report.index] == [
        f"{number}. read_file" for number in (1, 2, 3)
    ]
    assert report == before


@pytest.mark.parametrize(
    ("call", "comes_back"),
    [("read_file__read_file_1795889943972_0", True), ("read_file__fc_1_0", False)],
)
def test_a_copy_in_another_project_needs_unique_ids(gemini, call, comes_back):
    """`--session-file` copies a session; an id that another model may give again is not enough."""
    chat = Chat()
    chat.turn(call)
    path = gemini.chat(chat)
    gemini.scan(**LEAN)
    copy = gemini.root / ".gemini" / "tmp" / "other" / "chats" / f"{NAME}.jsonl"
    copy.parent.mkdir(parents=True)
    gemini.put(copy, path.read_bytes().replace(b"33333333", b"55555555"))
    gemini.restore_all()

    assert not TAKEN.search(path.read_bytes())
    assert bool(TAKEN.search(copy.read_bytes())) is not comes_back


@pytest.mark.parametrize(("project", "comes_back"), [("demo", True), ("other", False)])
def test_numbered_ids_in_a_copy_come_back_unscanned(gemini, project, comes_back):
    """In the same project, each result gets its own bytes back, and not those of another session.

    In another project, where other calls may have the ids, none gets any.
    """
    texts = LONG, LONG[::-1], LONG.upper()
    chat, other = Chat(), Chat()
    for text in texts[:2]:
        chat.turn("read_file__fc_1_0", text)
    other.turn("read_file__fc_1_0", texts[2])
    path = gemini.chat(chat)
    gemini.put(path.name.replace("9857", "0000"), other.bytes().replace(b"33333333", b"44444444"))
    before = path.read_bytes().replace(b"33333333", b"55555555")
    gemini.scan(**LEAN)
    pruned = path.read_bytes().replace(b"33333333", b"55555555")
    assert {*TAKEN.findall(pruned)} < {b"read_file__fc_1_0" + end for end in (b"", b"~2", b"~3")}
    copy = gemini.place.with_name(project) / "chats" / path.name.replace("9857", "5555")
    gemini.put(copy, pruned)
    gemini.restore_all(pristine=True)

    assert copy.read_bytes() == (before if comes_back else pruned)


def test_a_value_counts_once_however_often_it_stands(gemini):
    """In the scan, its run, the session and the sum, also after the next look, and in a restore."""
    path = gemini.chat(chat_with_everything())
    before = path.read_bytes()
    report = gemini.scan(dry_run=True, **LEAN)
    assert len(report.sessions[0].plan.values) == 5
    report = gemini.scan(**LEAN)
    assert len(TAKEN.findall(path.read_bytes())) > 15

    def counted():
        [listed] = sessions(gemini.settings(), gemini.store, gemini.clock())
        shown = context(gemini.settings(), gemini.store, path.stem, gemini.clock())
        return listed.values_extracted, len(shown.extracted)

    assert report.values_extracted == gemini.store.runs.newest(1)[0].facts["extracted"] == 5
    assert counted() == (5, 5)
    gemini.put(path, path.read_bytes(), age=5000)
    gemini.scan(**LEAN)
    assert counted() == (5, 5)
    assert [one.values_restored for one in gemini.restore_all(pristine=True)] == [5]
    assert path.read_bytes() == before
    assert gemini.store.runs.newest(1)[0].facts["restored"] == 5


def test_saved_bytes_count_every_place_of_a_value(gemini):
    """They are what the file lost, also after the next look and after a restore."""
    path = gemini.chat(chat_with_everything())
    before = path.stat().st_size
    for age in (5000, 4000):
        gemini.scan(**LEAN)
        [listed] = sessions(gemini.settings(), gemini.store, gemini.clock())
        assert listed.bytes_saved == pytest.approx(before - path.stat().st_size, rel=0.01)
        gemini.put(path, path.read_bytes(), age=age)
    gemini.restore_all(pristine=True)
    [listed] = sessions(gemini.settings(), gemini.store, gemini.clock())
    assert listed.bytes_saved == 0


def test_values_of_calls_with_one_id_are_counted_apart(gemini):
    """A model that numbers its calls begins anew in each turn: equal lengths prove no copy."""
    chat = Chat()
    for text in (LONG, LONG[::-1], LONG.upper(), LONG):
        chat.turn("read_file__fc_1_0", text)
    chat.resume()
    gemini.chat(chat)
    planned = gemini.scan(dry_run=True, **LEAN).sessions[0].plan.values
    report = gemini.scan(**LEAN)

    assert len(planned) == report.values_extracted == 3
    assert gemini.store.runs.newest(1)[0].facts["extracted"] == 3


def test_a_rollback_fills_every_copy(gemini):
    """Nothing of the run is left, and no value counts as changed since."""
    path = gemini.chat(chat_with_everything())
    before = path.read_bytes()
    gemini.scan(**LEAN)
    [answer] = gemini.rollback(gemini.store.runs.newest(1)[0].id).sessions

    assert path.read_bytes() == before
    assert (answer.values_restored, answer.reasons) == (5, {})
