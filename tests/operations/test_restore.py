"""restore: values in idle and busy sessions, in forks and rewritten histories, and forgeries."""

import json
import threading
import time

import pytest

from brainsurgeon.errors import (
    AmbiguousError,
    ChangedError,
    GoneError,
    NoSuchKeyError,
    NotFoundError,
)
from brainsurgeon.model.entries import KINDS
from brainsurgeon.model.text import iso, minute
from brainsurgeon.operations.sessions import context
from brainsurgeon.operations.show import show as operation
from brainsurgeon.render.sessions import SUGGESTION, restored, restored_json
from brainsurgeon.render.turns import context as context_text
from building.version_diff import EMPTY_THINKING, replaced_values
from building.world import (
    Conversation,
    add_two_values,
    append,
    close_turn,
    dump,
    entry_text,
    file_states,
    fork,
    kept_reasons,
    note_answered,
    open_turn,
    pin,
    raw_line,
    read_entry,
    sql,
)

PATH = "message.content.0.text"
OTHER = "22222222-0000-4000-8000-000000000002"


def show(world, reference, session=None):
    return operation(world.settings(), world.store, reference, session).content


# --- idle -------------------------------------------------------------------------------------


def test_restore_in_an_idle_session_sets_restored(world, conversation, pruned, path, clock):
    """The value is back in its place, and `_restored` is the only other change of the file."""
    answer = world.restore(pruned)
    stamp = iso(clock.now)
    line = raw_line(conversation.bytes(), pruned)
    marked = line[:-1] + f',"_restored":"{stamp}"}}'.encode()

    assert path.read_bytes() == conversation.bytes().replace(line, marked)
    assert stamp.endswith("Z")
    assert restored_json(answer) == {
        "answer_id": answer.answer_id,
        "restored": True,
        "pending": False,
        "entry_id": pruned,
        "session": "main/s",
        "keys_restored": [PATH],
        "sizes_bytes": {PATH: 2002},
        "restored_at": stamp,
        "kept_until": iso(clock.now + world.settings().keep_after_restore),
        "redacted": False,
    }
    assert answer.content == {PATH: "x" * 2000}
    assert world.leftovers() == []


def test_second_restore_reports_the_first_and_suggests_a_pin(world, pruned, path, clock):
    """An entry extracted again keeps `_restored`; its next restore reports it and updates it."""
    first = iso(clock.now)
    world.restore(pruned)
    clock.now += 600
    world.scan()

    assert read_entry(path, pruned)["_restored"] == first
    assert entry_text(path, pruned) == f"[[extracted-{pruned}]]"

    clock.now += 60
    result = world.restore(pruned)
    answer = restored_json(result)

    assert answer["previous_restored_at"] == first
    assert answer["suggestion"] == SUGGESTION
    assert "consider setting _extractable: false on the entry" in SUGGESTION
    assert SUGGESTION in restored(result)
    assert read_entry(path, pruned)["_restored"] == answer["restored_at"] == iso(clock.now)
    assert path.read_bytes().count(b"_restored") == 1


def test_restore_of_a_restored_value_names_the_earlier_time(
    world, conversation, pruned, path, clock
):
    """A second restore, also in an open turn, changes nothing and names the time of the first."""
    world.restore(pruned)
    first = clock.now
    clock.now += 60
    second = restored_json(world.restore(pruned))
    open_turn(path, conversation, clock)
    in_turn = restored_json(world.restore(pruned))

    for answer in (second, in_turn):
        assert (answer["restored"], answer["already"], answer["pending"]) == (True, True, False)
        assert answer["restored_at"] == answer["previous_restored_at"] == iso(first)
        assert "_extractable: false" in answer["suggestion"]
        assert answer["keys_restored"] == [PATH]
    assert in_turn["content"] == {PATH: "x" * 2000}
    assert "content" not in second
    assert world.store.requests.count_open() == 0


def test_placeholder_text_is_accepted_as_an_entry_id(world, pruned, path):
    """`[[extracted-<id>]]`, with white space around it or not, names an entry in every command."""
    pasted = f" [[extracted-{pruned}]]\n"

    assert show(world, pasted) == {PATH: "x" * 2000}
    assert pin(world, pasted, 7).entry_id == pruned
    assert world.restore(pasted).entry_id == pruned
    assert entry_text(path, pruned) == "x" * 2000


def test_entry_with_an_unsafe_id_is_named_by_either_id(world, conversation, path):
    """An id that cannot be part of a placeholder names its entry, and so does its replacement."""
    hostile = "a]] ../x\n\x1b[31m"
    conversation.turn("x" * 2000, ident=hostile)
    conversation.turn()
    original = conversation.bytes()
    world.put("s.jsonl", original)
    world.scan()
    placeholder = entry_text(path, hostile)
    named = placeholder.removeprefix("[[extracted-").removesuffix("]]")

    assert named.startswith("~")
    for reference in (hostile, named, placeholder):
        assert show(world, reference) == {PATH: "x" * 2000}

    assert world.restore(placeholder, pristine=True).entry_id == hostile
    assert path.read_bytes() == original


def without_restored_field(path):
    return b"\n".join(
        line.split(b',"_restored"')[0] + b"}" if b',"_restored"' in line else line
        for line in path.read_bytes().split(b"\n")
    )


@pytest.mark.parametrize(
    ("keys", "paths"),
    [
        ([PATH], {PATH}),
        (["content"], {PATH, "message.details.content"}),
        (["aggregated"], {"message.details.aggregated"}),
        (["details", "nothing"], {"message.details.aggregated", "message.details.content"}),
        ([], {PATH, "message.details.aggregated", "message.details.content"}),
    ],
)
def test_restore_keys_select_the_values(world, conversation, path, clock, keys, paths):
    """A whole path, or any name in it, selects values; the others remain extracted."""
    ident = add_two_values(conversation)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    answer = world.restore(ident, keys=keys)
    placeholders = len(replaced_values(conversation.bytes(), without_restored_field(path)))

    assert set(answer.sizes) == paths
    assert placeholders == 3 - len(paths)
    assert read_entry(path, ident)["_restored"] == iso(clock.now)
    assert world.scan().sessions_changed == 0


def test_restore_with_unknown_keys_fails_and_lists_the_paths(world, pruned):
    """A restore whose keys all match nothing names the existing paths and changes nothing."""
    before = file_states(world.root)
    with pytest.raises(NotFoundError, match=PATH):
        world.restore(pruned, keys=["arguments", "0"])

    assert file_states(world.root) == before


def test_scan_does_not_extract_a_value_that_it_restored(world, conversation, path, clock):
    """A forced entry is restored on request by one scan and extracted again by the next."""
    ident = conversation.turn("x" * 2000, _extractable=True)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    open_turn(path, conversation, clock)
    world.restore(ident)
    close_turn(path, conversation, clock)
    first = world.scan()

    assert (len(first.sessions[0].executed.restorations), first.values_extracted) == (1, 0)
    assert entry_text(path, ident) == "x" * 2000

    clock.now += 1

    assert world.scan().values_extracted == 1


# --- not idle ---------------------------------------------------------------------------------


def test_restore_in_an_open_turn_returns_the_values(world, conversation, pruned, path, clock):
    """In an open turn the values are returned, no file changes and the request stays pending."""
    open_turn(path, conversation, clock)
    before = file_states(world.root, directories=True)
    answer = restored_json(world.restore(pruned))

    assert (answer["restored"], answer["pending"]) == (True, True)
    assert answer["content"] == {PATH: "x" * 2000}
    assert answer["redacted"] is True
    assert "a user message" in answer["reason"]
    assert file_states(world.root, directories=True) == before

    assert world.scan().files_deferred == 1
    assert file_states(world.root, directories=True) == before

    close_turn(path, conversation, clock)
    clock.now += 40
    report = world.scan()

    assert len(report.sessions[0].executed.restorations) == 1
    assert entry_text(path, pruned) == "x" * 2000
    assert read_entry(path, pruned)["_restored"] == iso(clock.now)


def test_protection_begins_when_a_request_is_carried_out(world, conversation, pruned, path, clock):
    """The protection of a restored entry begins with the restore, not with the request."""
    open_turn(path, conversation, clock)
    world.restore(pruned)
    close_turn(path, conversation, clock)
    clock.now += 300
    world.scan()
    clock.now += 599

    assert world.scan().values_extracted == 0
    assert entry_text(path, pruned) == "x" * 2000

    clock.now += 1

    assert world.scan().values_extracted >= 1
    assert entry_text(path, pruned) == f"[[extracted-{pruned}]]"


@pytest.mark.parametrize(
    ("protection", "seconds", "lapsed"),
    [(600, 599, False), (600, 600, True), (30, 600, True), (1200, 1200, True)],
)
def test_restore_request_lapses_if_the_session_stays_busy(
    world, conversation, pruned, path, clock, protection, seconds, lapsed
):
    """A request lapses after ten minutes or `keep_after_restore_seconds`, whichever is longer."""
    settings = {"keep_after_restore_seconds": protection}
    open_turn(path, conversation, clock)
    requested_at = clock.now
    world.restore(pruned, **settings)
    close_turn(path, conversation, clock)
    clock.now = requested_at + seconds
    world.scan(**settings)
    reasons = [event.facts["reason"] for event in world.store.events.after(0, kinds=("lapse",))]

    assert entry_text(path, pruned) == (f"[[extracted-{pruned}]]" if lapsed else "x" * 2000)
    assert world.store.requests.count_open() == 0
    assert reasons == ["its session was not idle in time, or is excluded or gone"] * lapsed


def test_two_requests_for_an_entry_are_one_restore(world, conversation, pruned, path, clock):
    """The second of two requests for the same value replaces the first, here and in all lists."""
    open_turn(path, conversation, clock)
    for _ in range(2):
        answer = world.restore(pruned)
        assert restored_json(answer)["content"] == {PATH: "x" * 2000}
        note_answered(world, answer)
    assert world.store.requests.count_open() == 1
    session = context(world.settings(), world.store, "main/s", clock.now)
    assert "the next scan would carry out 1 request\n" in context_text(session, [])
    for _ in range(2):
        assert [one.state for one in world.restore_all("main/s")] == ["pending"]
    assert world.store.requests.count_open() == 2
    close_turn(path, conversation, clock)

    assert len(world.scan().sessions[0].executed.restorations) == 1
    assert world.store.requests.count_open() == 0
    assert path.read_bytes().count(b"_restored") == 1


def test_request_to_shorten_a_call_ends_without_its_session(
    world, conversation, pruned, path, clock
):
    """If its session is deleted, the request lapses after a day."""
    open_turn(path, conversation, clock)
    note_answered(world, world.restore(pruned))
    path.unlink()
    clock.now += 86_400
    world.scan()
    assert sql(world, "SELECT * FROM requests") == []


def test_pending_restore_is_limited_to_its_keys(world, conversation, path, clock):
    """A scan restores only the keys that the pending request names."""
    ident = add_two_values(conversation)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    open_turn(path, conversation, clock)
    answer = restored_json(world.restore(ident, keys=["aggregated"]))
    close_turn(path, conversation, clock)
    world.scan()

    assert answer["content"] == {"message.details.aggregated": "a" * 3000}
    assert read_entry(path, ident)["message"]["details"]["aggregated"] == "a" * 3000
    assert entry_text(path, ident) == f"[[extracted-{ident}]]"


def test_pending_pristine_restore_sets_no_field(world, conversation, pruned, path, clock):
    """A pristine request restores the original bytes, and the next scan extracts nothing."""
    open_turn(path, conversation, clock)
    world.restore(pruned, pristine=True)
    close_turn(path, conversation, clock)
    world.scan()

    assert raw_line(path.read_bytes(), pruned) == raw_line(conversation.bytes(), pruned)
    assert world.scan().values_extracted == 0


def test_restore_wait_returns_once_the_session_is_idle(world, pruned, path):
    """`--wait` returns when the value is back in the file, with the time of the restore."""
    world.clock = time.time
    path.touch()
    start_time = time.monotonic()
    answer = world.restore(pruned, wait=True, quiet_seconds=1)

    assert time.monotonic() - start_time > 0.5
    assert not answer.pending
    assert entry_text(path, pruned) == "x" * 2000
    assert read_entry(path, pruned)["_restored"] == iso(answer.at)


def test_restore_wait_lasts_until_the_turn_ends(world, conversation, pruned, path):
    """`--wait` waits for the end of an open turn and keeps the agent's last line."""
    world.clock = time.time
    conversation.user()
    append(path, conversation.lines[-1:])
    conversation.assistant()
    agent = threading.Timer(0.3, append, (path, conversation.lines[-1:]))
    agent.start()
    answer = world.restore(pruned, wait=True)
    agent.join()

    assert not answer.pending
    assert path.read_bytes().endswith(dump(conversation.lines[-1]))


def test_request_after_a_wait_in_vain_lasts_as_long_as_any(
    world, clock, monkeypatch, conversation, pruned, path
):
    """If the session stays busy during `--wait`, a later scan restores the value, as announced."""
    open_turn(path, conversation, clock)
    monkeypatch.setattr(time, "sleep", lambda _: setattr(clock, "now", clock.now + 60))
    answer = world.restore(pruned, wait=True)
    close_turn(path, conversation, clock)
    world.scan()

    assert answer.pending
    assert entry_text(path, pruned) == "x" * 2000


# --- naming --------------------------------------------------------------------------------------


@pytest.mark.parametrize("twin", ["main/t", "other/s"])
def test_restore_of_an_entry_in_two_sessions_is_ambiguous(world, conversation, pruned, path, twin):
    """An id in two equal sessions, which share a blob, is refused; `--session` selects one."""
    agent, name = twin.split("/")
    copy = world.put(f"../../{agent}/sessions/{name}.jsonl", conversation.bytes())
    world.scan()
    before = file_states(world.root)
    with pytest.raises(AmbiguousError) as error:
        world.restore(pruned)

    assert sql(world, "SELECT count(*) FROM blobs") == [(1,)]
    assert sql(world, "SELECT count(*), count(DISTINCT name) FROM extractions") == [(2, 1)]
    assert error.value.candidates == ("main/s", twin)
    assert file_states(world.root) == before
    assert world.restore(pruned, session=twin).session == twin
    assert entry_text(copy, pruned) == "x" * 2000
    assert entry_text(path, pruned) == f"[[extracted-{pruned}]]"


def test_unique_prefix_of_an_id_names_its_entry(world):
    """A unique prefix names an entry; an ambiguous one is refused with the matches."""
    for name, ids in {"s": ("abc1", "abd2", "x"), "t": ("abc9",)}.items():
        talk = Conversation(name)
        for ident in ids:
            talk.turn(f"of {ident} " * 300, ident=ident)
        talk.turn("short")
        talk.turn("short")
        world.put(f"{name}.jsonl", talk.bytes())
    world.scan()
    before = file_states(world.root)
    with pytest.raises(AmbiguousError) as error:
        world.restore("ab")
    with pytest.raises(AmbiguousError) as session_error:
        show(world, "ab", "main/s")
    with pytest.raises(AmbiguousError):
        pin(world, "ab", False)
    with pytest.raises(NotFoundError):
        world.restore("zz")
    for reference in ("", "[[extracted-abd]]"):
        with pytest.raises(NotFoundError):
            world.restore(reference)

    assert error.value.candidates == ("abc1", "abc9", "abd2")
    assert session_error.value.candidates == ("abc1", "abd2")
    assert file_states(world.root) == before
    assert "of abc9" in show(world, "abc", "main/t")[PATH]
    assert world.restore("abd").entry_id == "abd2"
    assert pin(world, "abc", False, "main/s").entry_id == "abc1"
    assert pin(world, "x", False).entry_id == "x"


def test_complete_id_is_not_taken_for_a_prefix(world):
    """The id of an entry without extracted values does not match longer ids that begin with it."""
    talk = Conversation()
    talk.user(ident="msg-1")
    talk.call()
    talk.result("a value " * 300, ident="msg-12")
    talk.assistant()
    talk.turn("short")
    talk.turn("short")
    world.put("s.jsonl", talk.bytes())
    world.scan()

    with pytest.raises(NotFoundError):
        world.restore("msg-1")
    assert pin(world, "msg-1", False).entry_id == "msg-1"


@pytest.mark.parametrize("session", [None, "main/s"])
def test_restore_of_an_unknown_entry_is_an_error(world, pruned, session):
    """The error names the command that lists the ids, and nothing changes."""
    before = file_states(world.root)
    with pytest.raises(NotFoundError, match=r"deadbeef.*; `brainsurgeon sessions SESSION`"):
        world.restore("deadbeef", session=session)

    assert file_states(world.root) == before


@pytest.mark.parametrize("scanned", [False, True])
def test_fork_restores_the_values_of_its_parent(world, pruned, path, clock, scanned):
    """Placeholders in a fork are shown and restored there, and the parent stays unchanged."""
    copy = fork(path, OTHER)
    clock.now = int(time.time()) + 1
    if scanned:
        world.scan()
    before = path.read_bytes()

    assert show(world, pruned, OTHER) == {PATH: "x" * 2000}
    assert world.restore(pruned, session=OTHER).sizes.keys() == {PATH}
    assert entry_text(copy, pruned) == "x" * 2000
    assert path.read_bytes() == before


def test_copied_placeholder_does_not_hide_the_original_in_a_fork(
    world, conversation, pruned, path, clock
):
    """A fork that no scan has read shows and restores an entry that is copied further down."""
    copied = {**read_entry(path, pruned), "id": "0000c0b1", "parentId": conversation.last}
    answer = {**read_entry(path, conversation.last), "id": "0000c0b2", "parentId": "0000c0b1"}
    fork_path = fork(path, OTHER, ending=[copied, answer])
    clock.now = int(time.time()) + 1

    assert show(world, pruned, OTHER) == {PATH: "x" * 2000}
    assert world.restore(pruned, session=OTHER).sizes.keys() == {PATH}
    assert entry_text(fork_path, pruned) == "x" * 2000


def test_failed_restore_in_a_fork_records_no_session(world, pruned, path):
    """A restore with unknown keys writes nothing to the store, not even the new fork."""
    fork(path, OTHER)
    with pytest.raises(NoSuchKeyError):
        world.restore(pruned, session=OTHER, keys=["nothing"])

    assert [session.name for session in world.store.sessions.all()] == ["s"]


@pytest.mark.parametrize(
    ("keys", "unknown"),
    [
        (["details", "nothing"], ["nothing"]), (["details,nothing , more"], ["nothing", "more"]),
        (["nothing", "details", "else", ""], ["nothing", "else", ""]), (["details"], []),
    ],
)  # fmt: skip
def test_every_unknown_key_is_named_beside_a_known_one(world, conversation, keys, unknown):
    """The values of the known keys are shown and restored, and the answer names each other key."""
    ident = conversation.turn("x" * 2000, details={"aggregated": "y" * 2000})
    world.put("s.jsonl", conversation.bytes())
    world.scan(keep_recent=0)
    shown = operation(world.settings(), world.store, ident, None, keys)
    answers = [world.restore(ident, keys=keys) for _ in range(2)]

    for answer in (shown, *answers):
        assert answer.content == {"message.details.aggregated": "y" * 2000}
        assert answer.missed == tuple(f"{key}: no extracted value has this key" for key in unknown)
    assert [answer.already for answer in answers] == [False, True]


@pytest.mark.parametrize("keys", [["nothing", "else"], [""], [","]])
def test_only_unknown_keys_are_an_error(world, pruned, keys):
    """Nothing is restored; an empty key is no way to name every value."""
    with pytest.raises(NoSuchKeyError, match=PATH):
        world.restore(pruned, keys=keys)


def test_fork_pinned_before_its_first_scan_restores_its_values(
    world, conversation, pruned, path, clock
):
    """A pin in a fork that no scan has read records the fork, which can then be restored."""
    copy = fork(path, OTHER)
    clock.now = int(time.time()) + 1
    pin(world, conversation.last, 5, OTHER)
    rows = sql(world, "SELECT name, format FROM sessions ORDER BY name DESC")

    assert rows == [("s", "openclaw"), (OTHER, "openclaw")]
    assert world.restore(pruned, session=OTHER).sizes.keys() == {PATH}
    assert entry_text(copy, pruned) == "x" * 2000


# --- forgeries -----------------------------------------------------------------------------------


def forge(conversation, placeholder, how):
    """Add an entry with a placeholder that the program did not write and return its id."""
    block = [{"type": "text", "text": placeholder}]
    if how == "typed by a user":
        ident = conversation.user(block)
        conversation.assistant()
    elif how == "pasted by a model":
        ident = conversation.assistant(placeholder)
    elif how == "printed by a tool":
        ident = conversation.turn(placeholder, call="call_9")
    elif how == "in another place":
        ident = conversation.turn("short", call="call_9", details={"aggregated": placeholder})
    else:
        ident = conversation.user(f"what is {placeholder}?")
        conversation.assistant()
    return ident


@pytest.mark.parametrize(
    "how",
    [
        "typed by a user", "pasted by a model", "printed by a tool", "in another place",
        "within a sentence",
    ],
)  # fmt: skip
def test_restore_leaves_a_forged_placeholder(world, conversation, pruned, path, clock, how):
    """A placeholder copied into another entry of the session is not replaced."""
    ident = forge(conversation, f"[[extracted-{pruned}]]", how)
    append(path, conversation.lines[9:])
    clock.now = int(time.time()) + 1
    forgery = raw_line(path.read_bytes(), ident)
    world.restore_all(pristine=True)

    assert entry_text(path, pruned) == "x" * 2000
    assert raw_line(path.read_bytes(), ident) == forgery


def test_restore_leaves_a_placeholder_older_than_the_extraction(world, conversation, path):
    """A tool result that already read like a placeholder before the first scan stays unchanged."""
    ident = conversation.turn()
    forge(conversation, f"[[extracted-{ident}]]", "printed by a tool")
    conversation.turn("short")
    original = conversation.bytes()
    world.put("s.jsonl", original)
    world.scan()
    world.restore_all(pristine=True)

    assert path.read_bytes() == original


# --- rewritten histories -------------------------------------------------------------------------


def with_new_ids(lines, prefix):
    """Return entries as an agent rewrites them: new ids and times, no fields of the program."""
    fresh = []
    for line in lines:
        entry = {k: v for k, v in line.items() if not k.startswith("_")}
        entry["timestamp"] = "2026-11-02T10:00:00.000Z"
        for key in ("id", "parentId"):
            if entry.get(key):
                entry[key] = prefix + entry[key][len(prefix) :]
        fresh.append(entry)
    return fresh


def entries(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_restore_after_new_ids_fills_the_first_match_only(world, conversation, path, clock):
    """If ids changed, the first message with the placeholder is restored and a typed copy stays."""
    extracted = conversation.user("y" * 2000)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan(trigger_types=["user"])
    typed = conversation.user(f"[[extracted-{extracted}]]")
    conversation.assistant()
    append(path, conversation.lines[-2:])
    header, *lines = entries(path)
    path.write_bytes(b"".join(map(dump, [header, *with_new_ids(lines, "eeee")])))
    clock.now = int(time.time()) + 1
    world.restore_all(pristine=True)

    extracted_message, typed_message = (
        read_entry(path, "eeee" + ident[4:])["message"] for ident in (extracted, typed)
    )
    assert extracted_message["content"] == "y" * 2000
    assert typed_message["content"] == f"[[extracted-{extracted}]]"


def test_typed_placeholder_is_no_placement(world, conversation, path, clock):
    """A placeholder typed by the user after a restore does not delay retention."""
    extracted = conversation.user("y" * 2000)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan(trigger_types=["user"])
    world.restore(extracted)
    conversation.user(f"[[extracted-{extracted}]]")
    conversation.assistant()
    append(path, conversation.lines[-2:])
    clock.now = int(time.time()) + 10**6
    world.scan()

    assert sql(world, "SELECT count(*) FROM placements") == [(0,)]
    assert sql(world, "SELECT unplaced_at IS NULL FROM extractions") == [(0,)]


def test_restore_fills_both_copies_of_a_branched_history(world, conversation, pruned, path, clock):
    """If an agent copied entries to a branch with new ids, both placeholders are restored."""
    lines = entries(path)[1:]
    append(path, with_new_ids(lines, "eeee"))
    clock.now = int(time.time()) + 1
    new = "eeee" + pruned[4:]
    world.restore_all(pristine=True)

    assert (entry_text(path, pruned), entry_text(path, new)) == ("x" * 2000, "x" * 2000)
    assert path.read_bytes().startswith(conversation.bytes())


def test_restore_of_a_value_the_agent_wrote_back_changes_nothing(
    world, conversation, pruned, path, clock
):
    """If the agent wrote the original back, the restore reports that and changes no file."""
    path.write_bytes(conversation.bytes())
    clock.now = int(time.time()) + 1
    before = file_states(world.root)
    done = world.restore(pruned)
    answer = restored_json(done)

    assert (answer["restored"], answer["already"], answer["pending"]) == (True, True, False)
    assert "previous_restored_at" not in answer
    assert restored(done, to_person=True) == f"main/s {pruned}: restored already"
    assert file_states(world.root) == before
    assert show(world, pruned) == {PATH: "x" * 2000}
    assert world.scan().values_extracted == 1


def test_restore_of_a_lost_placeholder_fails(world, conversation, path, clock):
    """A missing placeholder is an error, even if the same run carries out another request."""
    first, second = conversation.turn(), conversation.turn("y" * 2000)
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    open_turn(path, conversation, clock)
    world.restore(second)
    path.write_bytes(path.read_bytes().replace(f"[[extracted-{first}]]".encode(), b"else"))
    close_turn(path, conversation, clock)
    with pytest.raises(ChangedError, match="no longer there") as error:
        world.restore(first)

    assert error.value.exit_code == 3
    assert entry_text(path, second) == "y" * 2000
    assert "_restored" not in read_entry(path, first)


def test_protection_survives_a_lost_restored_field(world, conversation, pruned, path, clock):
    """A restored entry stays protected although the agent's rewrite dropped `_restored`."""
    world.restore(pruned)
    path.write_bytes(conversation.bytes())
    clock.now += 60

    assert world.scan().values_extracted == 0
    assert kept_reasons(world)[f"restored, and kept until {minute(clock() + 540)}"] == 1


# --- deleted sessions ----------------------------------------------------------------------------


def test_value_is_shown_after_its_session_was_deleted(world, pruned, path):
    """After a session is deleted `show` prints its values, and `restore` fails with exit code 3."""
    path.unlink()

    assert show(world, pruned) == {PATH: "x" * 2000}
    assert show(world, pruned, "main/s") == {PATH: "x" * 2000}
    with pytest.raises(GoneError, match=r"gone.*`brainsurgeon show` prints them") as error:
        world.restore(pruned)
    assert error.value.exit_code == 3
    assert not path.exists()
    assert [outcome.state for outcome in world.restore_all()] == ["gone"]


# --- whole blocks --------------------------------------------------------------------------------


def add_blocks(conversation):
    """Add two images and closed signed thinking; return the index of each block in its entry."""
    image = {"type": "image", "data": "iVBOR" * 400, "mimeType": "image/png"}
    prompt = conversation.user([{"type": "text", "text": "look"}, image])
    thinking = conversation.assistant(
        [
            {"type": "thinking", "thinking": "t" * 900, "thinkingSignature": "S" * 300},
            {"type": "toolCall", "id": "call_1", "name": "shot", "arguments": {}},
        ],
        stop="toolUse",
        api="anthropic-messages",
    )
    result = conversation.result("short", tool="shot")
    conversation.lines[-1]["message"]["content"].append(image)
    conversation.assistant()
    conversation.user()
    conversation.assistant(
        [{"type": "thinking", "thinking": "u" * 900, "thinkingSignature": "S" * 300}],
        api="anthropic-messages",
    )
    return {prompt: 1, thinking: 0, result: 1}


def test_images_and_thinking_blocks_are_extracted_and_restored(world, conversation, path, clock):
    """An image becomes a text block, signed thinking an empty block, and both are restored."""
    places = add_blocks(conversation)
    original = conversation.bytes()
    world.put("s.jsonl", original)
    report = world.scan(keep_recent=0, trigger_types=list(KINDS))
    values = {
        placeholder: json.loads(token)
        for placeholder, token in replaced_values(original, path.read_bytes())
    }

    assert report.values_extracted == len(places)
    for ident, index in places.items():
        line = next(line for line in conversation.lines if line["id"] == ident)
        thinks = line["message"]["content"][index]["type"] == "thinking"
        placeholder = (
            json.loads(EMPTY_THINKING)
            if thinks
            else {"type": "text", "text": f"[[extracted-{ident}]]"}
        )
        assert read_entry(path, ident)["message"]["content"][index] == placeholder
        assert values[placeholder.get("text", "")] == line["message"]["content"][index]
        assert show(world, ident) == {f"message.content.{index}": line["message"]["content"][index]}
    assert b"u" * 900 in path.read_bytes()

    ident = next(iter(places))
    world.restore(ident)

    assert read_entry(path, ident)["message"]["content"][1]["type"] == "image"
    assert world.restore_all(pristine=True)[0].values_restored == 2
    assert path.read_bytes() == original
