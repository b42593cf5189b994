"""set-extractable: entries that are pinned, forced, or given a number of messages of their own."""

import json
import time

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.errors import ChangedError, FailedError, UsageError
from brainsurgeon.model.entries import Line
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.render.sessions import set_, set_json
from building.claude import SESSION, ClaudeConversation, read_entries
from building.file_moves import OTHER, THIRD, generic_log
from building.world import (
    close_turn,
    dump,
    entry_text,
    file_states,
    fork,
    kept_reasons,
    open_turn,
    pin,
    raw_line,
    read_entry,
    sql,
)


@pytest.fixture
def ident(world, conversation):
    """Write a session and return the id of an old result that no scan has extracted yet."""
    ident = conversation.turn()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    return ident


def test_pin_of_an_entry_with_an_unsafe_id(world, conversation, path):
    """An id that JSON escapes names its entry before any value of it was extracted."""
    hostile = "a]] ../x\n\x1b[31m"
    conversation.turn("x" * 2000, ident=hostile)
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())

    assert pin(world, hostile, False).entry_id == hostile
    assert read_entry(path, hostile)["_extractable"] is False
    assert world.scan().values_extracted == 0


def test_pin_survives_a_lost_extractable_field(world, conversation, ident, path, clock):
    """The pin in the store holds although the agent's rewrite dropped `_extractable`."""
    pin(world, ident, False)
    path.write_bytes(conversation.bytes())
    clock.now = int(time.time()) + 60

    assert world.scan().values_extracted == 0


@pytest.mark.parametrize("scans", [0, 1])
def test_pin_whose_field_was_lost_can_be_removed(world, conversation, ident, path, clock, scans):
    """Removing a pin ends it, even if the agent dropped `_extractable`, and after a scan, too."""
    pin(world, ident, False)
    path.write_bytes(conversation.bytes())
    clock.now = int(time.time()) + 60
    for _ in range(scans):
        clock.now += 3600
        world.scan()
    pin(world, ident, None)

    assert path.read_bytes() == conversation.bytes()
    assert world.scan().values_extracted == 1


def test_scan_ends_a_removed_pin_whose_field_was_lost(world, conversation, ident, path, clock):
    """A pin removed in an open turn ends with the turn, even without its field in the session."""
    pin(world, ident, False)
    path.write_bytes(conversation.bytes())
    open_turn(path, conversation, clock)
    assert pin(world, ident, None).pending
    close_turn(path, conversation, clock)

    assert world.scan(enabled=False).values_extracted == 0
    assert sql(world, "SELECT count(*) FROM fields WHERE state = 'standing'") == [(0,)]
    assert world.scan().values_extracted == 1


def test_lost_field_of_an_id_that_occurs_twice_stays_recorded(
    world, conversation, ident, path, clock
):
    """If only one of two entries with the same id lost its field, the pin is not ended."""
    pin(world, ident, False)
    path.write_bytes(path.read_bytes() + raw_line(conversation.bytes(), ident) + b"\n")
    close_turn(path, conversation, clock)
    with pytest.raises(ChangedError, match="occurs twice"):
        pin(world, ident, None)

    assert sql(world, "SELECT count(*) FROM fields WHERE state = 'standing'") == [(1,)]


def test_unpin_restores_the_original_line(world, conversation, ident, path, clock):
    """Removing a pin removes the field, byte for byte, and the rules apply again."""
    for value in (False, 7, True):
        pin(world, ident, value)
        assert read_entry(path, ident)["_extractable"] == value
        pin(world, ident, None)
        assert path.read_bytes() == conversation.bytes()
    clock.now = int(time.time()) + 60

    assert world.scan().values_extracted == 1


def test_removed_pin_of_a_restored_entry_is_forgotten(world, pruned, path, clock):
    """The rules apply again, although the entry still has the field `_restored`."""
    world.restore(pruned)
    pin(world, pruned, False)
    pin(world, pruned, None)

    assert "_restored" in read_entry(path, pruned)
    clock.now += 100_000
    assert world.scan().values_extracted == 1


def test_pristine_restore_after_a_removed_pin_misses_nothing(world, pruned, path):
    """A field that was undone before is not reported as changed by the agent."""
    world.restore(pruned)
    pin(world, pruned, False)
    pin(world, pruned, None)

    assert world.restore(pruned, pristine=True).missed == ()
    assert "_restored" not in read_entry(path, pruned)


def test_pristine_restore_keeps_an_unrecorded_mark(world, pruned, path, clock):
    """A `_restored` that no record of this store names stays: the file may have had it before."""
    world.restore(pruned)
    marked = path.read_bytes()
    clock.now += 86400
    world.scan()
    sql(world, "DELETE FROM fields")
    answer = world.restore(pruned, pristine=True)

    assert (answer.insertions_removed, answer.missed) == ((), ())
    assert path.read_bytes() == marked


def test_pristine_restore_removes_a_pin_that_a_copy_has(world, ident, path):
    """The record of an undone field is enough to remove the field from an older copy."""
    original = path.read_bytes()
    pin(world, ident, False)
    copy = path.read_bytes()
    pin(world, ident, None)
    path.write_bytes(copy)
    world.restore_all(pristine=True)

    assert path.read_bytes() == original


def test_pristine_keeps_what_a_user_wrote_after_a_removed_pin(world, ident, path):
    """The record of an undone field does not stand for the same value in other bytes."""
    pin(world, ident, False)
    pin(world, ident, None)
    start = b'{"type":"message",'
    own = path.read_bytes().replace(start, b'{"_extractable": false, "type":"message",')
    assert own != path.read_bytes()
    path.write_bytes(own)
    pin(world, ident, 5)
    world.restore_all(pristine=True)

    assert path.read_bytes() == own


def test_pristine_restore_removes_a_changed_pin_of_a_fork(world, ident, path):
    """If the pin was in the session before it was forked, no former pin comes back."""
    original = fork(path, OTHER).read_bytes()
    pin(world, ident, True, "s")
    copy = fork(path, OTHER)
    pin(world, ident, False, OTHER)
    world.restore_all(pristine=True)

    assert copy.read_bytes() == original


def test_pristine_restore_removes_changed_pins_of_two_forks(world, ident, path):
    """The value that a pin has in one fork does not matter in another."""
    names = OTHER, THIRD
    originals = [fork(path, name).read_bytes() for name in names]
    pin(world, ident, True, "s")
    copies = [fork(path, name) for name in names]
    pin(world, ident, False, OTHER)
    pin(world, ident, 5, THIRD)
    world.restore_all(pristine=True)

    assert [copy.read_bytes() for copy in copies] == originals


def test_pristine_restore_keeps_a_field_of_an_unrelated_entry(world):
    """A pin of an entry with the same id elsewhere does not make the field of the agent ours."""
    world.put("one.jsonl", generic_log("one", time="one"))
    other = world.put("two.jsonl", generic_log("two", time="two", _extractable=True))
    original = other.read_bytes()
    pin(world, "msg-3", True, "main/one")
    pin(world, "msg-3", False, "main/two")
    world.restore_all(pristine=True)

    assert other.read_bytes() == original


# --- fields --------------------------------------------------------------------------------------


def test_pin_in_an_idle_session_writes_the_field(world, conversation, ident, path, clock):
    """The field is the only change of the file, and the next scan keeps the entry as pinned."""
    answer = pin(world, ident, False)
    line = raw_line(conversation.bytes(), ident)

    assert not answer.pending
    assert path.read_bytes() == conversation.bytes().replace(
        line, line[:-1] + b',"_extractable":false}'
    )
    assert world.scan().values_extracted == 0
    assert kept_reasons(world)["pinned"] == 1


def test_pin_in_an_open_turn_applies_before_it_is_written(world, conversation, ident, path, clock):
    """A pending pin keeps its entry at once, and the next rewrite writes the field."""
    open_turn(path, conversation, clock)
    before = file_states(world.root)
    answer = pin(world, ident, False)

    assert answer.pending
    assert file_states(world.root) == before
    assert kept_reasons(world)["pinned"] == 1

    close_turn(path, conversation, clock)
    clock.now += 100_000
    report = world.scan()

    assert report.values_extracted == 0
    assert read_entry(path, ident)["_extractable"] is False
    assert world.scan().files_unchanged == 1


def test_newer_pin_replaces_a_pending_one(world, conversation, ident, path, clock):
    """Of two pending pins of an entry the newer one is written."""
    open_turn(path, conversation, clock)
    pin(world, ident, False)
    pin(world, ident, 1)
    close_turn(path, conversation, clock)
    report = world.scan()

    assert report.values_extracted == 1
    assert read_entry(path, ident)["_extractable"] == 1


def test_forced_entry_is_extracted_despite_its_protection(world, pruned, path, clock):
    """`set-extractable true` a minute after a restore lets the next scan extract the entry."""
    world.restore(pruned)
    clock.now += 60
    pin(world, pruned, True)

    assert world.scan().values_extracted == 1
    assert entry_text(path, pruned) == f"[[extracted-{pruned}]]"


@pytest.mark.parametrize("by", ["a field of the line", "the pin command"])
@pytest.mark.parametrize("form", ["generic", "openclaw"])
def test_forced_entry_of_an_unknown_type_is_extracted(world, conversation, form, by):
    """`_extractable: true` extracts an entry of any type, and a restore brings back its bytes."""
    value = "state of a plugin " * 100
    if form == "generic":
        lines = [
            {"type": "plugin_state", "__id": "p1", "data": {"text": value}},
            {"type": "user", "__id": "u1", "content": "hello"},
            {"type": "assistant", "__id": "a1", "content": "hello"},
        ]  # fmt: skip
        ident = "p1"
    else:
        ident = conversation.entry("custom", customType="plugin", data={"text": value})
        conversation.turn("short")
        lines = conversation.lines
    if by == "a field of the line":
        [line] = [line for line in lines if ident in (line.get("id"), line.get("__id"))]
        line["_extractable"] = True
    path = world.put("s.jsonl", b"".join(map(dump, lines)))
    if by == "the pin command":
        world.scan()
        assert value.encode() in path.read_bytes()
        pin(world, ident, True)
    report = world.scan()

    assert f"[[extracted-{ident}]]".encode() in path.read_bytes()
    assert value.encode() not in path.read_bytes()
    if by == "a field of the line":
        [removal] = report.sessions[0].plan.extracted
        assert removal.kind == "custom"
    world.restore_all(pristine=True)
    assert path.read_bytes() == b"".join(map(dump, lines))


@pytest.mark.parametrize("open_now", [False, True])
def test_pin_of_an_extracted_entry_suggests_a_restore(world, pruned, path, conversation, clock,
                                                        open_now):  # fmt: skip
    """The answer counts the values that stay extracted and names the command that restores them."""
    if open_now:
        open_turn(path, conversation, clock)
    pinned = pin(world, pruned, False)

    assert pinned.pending is open_now
    assert set_json(pinned)["still_extracted"] == pinned.still_extracted == 1
    assert "call restore" in set_json(pinned)["suggestion"]
    assert f"`brainsurgeon restore {pruned}`" in set_(pinned)
    if not open_now:
        world.restore(pruned)
        assert "still_extracted" not in set_json(pin(world, pruned, False))
        assert pin(world, pruned, True).still_extracted == 0


def test_only_a_pin_is_said_to_keep_the_entry(world, pruned):
    """Removing a pin keeps nothing: the answer only says that values stay extracted."""
    kept = "This keeps what is in the entry now."
    assert set_json(pin(world, pruned, False))["suggestion"].startswith(kept)
    unpinned = set_json(pin(world, pruned, None))["suggestion"]
    assert unpinned.startswith("Values that were extracted from this entry stay")


@pytest.mark.parametrize("value", [-1, 2.5, "x", 2**53 + 1])
def test_pin_refuses_values_that_scans_would_ignore(world, ident, path, value):
    """Only true, false and whole numbers from 0 to 2**53 are accepted; nothing else is recorded."""
    before = path.read_bytes()
    with pytest.raises(UsageError):
        pin(world, ident, value)

    assert path.read_bytes() == before
    assert world.store.requests.count_open() == 0


@pytest.mark.parametrize("settings", [
    {"enabled": False}, {"exclude": ["session:s"]},
])  # fmt: skip
def test_extract_fails_in_a_session_that_no_scan_prunes(world, conversation, path, settings):
    """It would promise an extraction by the next scan. A pin is accepted there."""
    ident = conversation.turn()
    path.write_bytes(conversation.bytes())
    with pytest.raises(FailedError, match="its file was left as it is"):
        set_extractable(world.settings(**settings), world.store, ident, True, clock=world.clock)

    assert path.read_bytes() == conversation.bytes()
    set_extractable(world.settings(**settings), world.store, ident, False, clock=world.clock)


@pytest.mark.parametrize("is_open", [False, True])
def test_extract_fails_for_an_entry_without_a_value(world, conversation, path, clock, is_open):
    """An entry that no scan could extract from is refused. It can be pinned."""
    ident = conversation.entry("model_change", provider="mock", modelId="mock-1")
    conversation.turn()
    world.put("s.jsonl", conversation.bytes())
    if is_open:
        open_turn(path, conversation, clock)
    before = path.read_bytes()
    with pytest.raises(ChangedError, match="the entry has no value that could be extracted"):
        pin(world, ident, True)

    assert path.read_bytes() == before
    assert pin(world, ident, False).pending is is_open


@pytest.mark.parametrize("why", ["excluded", "redacted"])
def test_extract_fails_for_an_excluded_or_redacted_value(world, conversation, why):
    """No scan extracts the value of a tool that `exclude` names, or a redacted answer."""
    ident = conversation.turn(**{"_redacted": True} if why == "redacted" else {})
    conversation.turn("short")
    path = world.put("s.jsonl", conversation.bytes())
    settings = world.settings(exclude=["tool:ex*"] if why == "excluded" else [])
    with pytest.raises(ChangedError, match="the entry has no value that could be extracted"):
        set_extractable(settings, world.store, ident, True, clock=world.clock)

    assert path.read_bytes() == conversation.bytes()


def test_extract_accepts_a_value_before_a_compaction(world):
    """Claude Code no longer reads an attachment before the last compaction."""
    talk = ClaudeConversation()
    ident = talk.entry("attachment", attachment={"type": "todo_reminder", "content": "z" * 3000})
    talk.compaction()
    for _ in range(4):
        talk.turn("short")
    path = world.put(f"{SESSION}.jsonl", talk.bytes())
    pin(world, ident, True)

    assert world.scan().values_extracted == 1
    assert f"[[extracted-{ident}]]" in str(read_entries(path)[ident])


def test_extract_replaces_the_pin_of_extracted_thinking(world):
    """Extracted signed thinking leaves no placeholder. Its entry still counts as extracted."""
    talk = ClaudeConversation()
    talk.user()
    thinking = {"type": "thinking", "thinking": "", "signature": "signed"}
    ident = talk.assistant(thinking, message="a")
    talk.assistant(message="a")
    talk.turn("short")
    path = world.put(f"{SESSION}.jsonl", talk.bytes())
    pin(world, ident, True)
    assert world.scan().values_extracted == 1
    assert "signed" not in path.read_text()
    pin(world, ident, False)
    pin(world, ident, True)

    assert read_entries(path)[ident]["_extractable"] is True


@pytest.mark.parametrize("replaced", [False, True])
def test_extract_fails_for_a_result_that_is_locked(world, replaced):
    """The result of ExitPlanMode, and results in whose place a short text is sent, are refused."""
    talk = ClaudeConversation()
    talk.user()
    talk.call("toolu_1", tool="Bash" if replaced else "ExitPlanMode")
    ident = talk.result(shown=None)
    if replaced:
        talk.note("content-replacement", replacements=[{"toolUseId": "toolu_1"}])
    for _ in range(4):
        talk.turn("short")
    world.put(f"{SESSION}.jsonl", talk.bytes())

    with pytest.raises(ChangedError, match="the entry has no value that could be extracted"):
        pin(world, ident, True)


def test_pin_fails_for_a_duplicate_extractable_field(world, conversation, ident, path):
    """An entry with two `_extractable` fields is left alone, and the pin fails."""
    line = raw_line(conversation.bytes(), ident)
    twice = line[:-1] + b',"_extractable":1,"_extractable":1}'
    data = conversation.bytes().replace(line, twice)
    world.put("s.jsonl", data)
    with pytest.raises(ChangedError, match="duplicate key _extractable"):
        pin(world, ident, False)

    assert path.read_bytes() == data


def test_pin_fails_for_an_object_without_fields(world, path):
    """No field is added to the line `{}`: the pin fails, and the next scan prunes the session."""
    result = {"type": "tool_result", "__id": "a", "output": "x" * 2000}
    answer = {"type": "assistant", "__id": "b", "content": "done"}
    lines = [dump(each) for each in (result, *[answer] * 4)]
    world.put("s.jsonl", b"".join([lines[0], b"{}\n", *lines[1:]]))
    with pytest.raises(ChangedError, match="object without fields"):
        pin(world, FORMATS["generic"].entries(Line(2, 0, b"{}"), 0)[0].ident, False)

    assert [outcome.outcome for outcome in world.scan().sessions] == ["changed"]


def test_pin_fails_for_a_duplicate_id(world, conversation, path, clock):
    """If two entries have the id, neither is changed and the pin fails."""
    conversation.turn()
    ident = conversation.user(ident="twice")
    conversation.user(ident="twice")
    conversation.assistant()
    world.put("s.jsonl", conversation.bytes())
    with pytest.raises(ChangedError, match="occurs twice"):
        pin(world, ident, False)

    assert path.read_bytes() == conversation.bytes()


def test_restore_fails_for_a_duplicate_restored_field(world, conversation, ident, path, clock):
    """An entry with two `_restored` fields is extracted but not restored, with the reason."""
    line = raw_line(conversation.bytes(), ident)
    twice = b',"_restored":"2026-02-20T10:00:00Z"'
    data = conversation.bytes().replace(line, line[:-1] + twice + twice + b"}")
    world.put("s.jsonl", data)
    world.scan()
    before = file_states(world.root)

    with pytest.raises(ChangedError, match="duplicate key _restored"):
        world.restore(ident)
    [outcome] = world.restore_all()

    assert outcome.missed == (f"{ident}: duplicate key _restored",)
    assert file_states(world.root) == before

    world.restore_all(pristine=True)

    assert path.read_bytes() == data


def prune_without_ids(world, *values):
    """Write and prune a session whose entries with these values have no ids; return its bytes."""
    lines = [
        {"type": "tool_result", "__id": "first", "output": "short"},
        *({"type": "tool_result", "output": value} for value in values),
        *({"type": "message", "role": "assistant", "content": "ok"} for _ in range(4)),
    ]
    original = b"".join(map(dump, lines))
    world.put("s.jsonl", original)
    world.scan()
    return original


def test_entries_without_ids_have_separate_fields(world, path):
    """Two entries named by their positions get a field each, and both fields are removed again."""
    original = prune_without_ids(world, "x" * 2000, "y" * 2000)
    [restored] = world.restore_all()
    [undone] = world.restore_all(pristine=True)

    assert (restored.values_restored, restored.missed) == (2, ())
    assert path.read_bytes() == original
    assert (len(undone.insertions_removed), undone.missed) == (2, ())
    assert len(set(undone.insertions_removed)) == 2
    assert sql(world, "SELECT count(*) FROM fields WHERE state = 'standing'") == [(0,)]


def test_entry_without_an_id_keeps_its_name_through_edits(world, path, clock):
    """An entry named by its position is pinned, restored and undone under the same name."""
    original = prune_without_ids(world, "x" * 2000)
    placeholder = json.loads(path.read_bytes().splitlines()[1])["output"]
    world.restore(placeholder)
    pin(world, placeholder, False)
    clock.now += 700

    assert placeholder.startswith("[[extracted-L2-")
    assert world.scan().values_extracted == 0

    [outcome] = world.restore_all(pristine=True)

    assert path.read_bytes() == original
    assert len(outcome.insertions_removed) == 2


def test_entry_without_an_id_is_found_by_a_part_of_its_name(world):
    """The beginning of a generated name pins the entry, even if nothing of it was extracted."""
    prune_without_ids(world, "short")

    assert pin(world, "L2-", False).entry_id.startswith("L2-")
