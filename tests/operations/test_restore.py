"""Values restored: at once, later, into forks and rewritten histories, and never by forgery."""

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
from brainsurgeon.model.text import iso
from brainsurgeon.operations.show import show as operation
from brainsurgeon.render.sessions import SUGGESTION, restored_json
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


def test_an_idle_session_gets_its_value_and_a_mark_back(world, conversation, pruned, path, clock):
    """The value stands where it stood, and `_restored` is the only other thing that changed."""
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
        "redacted": False,
    }
    assert answer.content == {PATH: "x" * 2000}
    assert world.leftovers() == []


def test_a_second_restore_tells_of_the_first_and_advises_a_pin(world, pruned, path, clock):
    """The entry cut again after its protection keeps `_restored`; restoring it anew reports it."""
    first = iso(clock.now)
    world.restore(pruned)
    clock.now += 600
    world.scan()

    assert read_entry(path, pruned)["_restored"] == first
    assert entry_text(path, pruned) == f"[[extracted-{pruned}]]"

    clock.now += 60
    answer = restored_json(world.restore(pruned))

    assert answer["previous_restored_at"] == first
    assert answer["suggestion"] == SUGGESTION
    assert read_entry(path, pruned)["_restored"] == answer["restored_at"] == iso(clock.now)
    assert path.read_bytes().count(b"_restored") == 1


def test_a_whole_pasted_placeholder_names_the_entry(world, pruned, path):
    """`[[extracted-<id>]]`, white space around it or not, will do wherever an entry is named."""
    pasted = f" [[extracted-{pruned}]]\n"

    assert show(world, pasted) == {PATH: "x" * 2000}
    assert pin(world, pasted, 7).entry_id == pruned
    assert world.restore(pasted).entry_id == pruned
    assert entry_text(path, pruned) == "x" * 2000


def test_an_entry_with_a_hostile_id_has_two_names(world, conversation, path):
    """An id that cannot stand in a placeholder names its entry, as does the safe one."""
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
def test_keys_narrow_a_restore(world, conversation, path, clock, keys, paths):
    """A whole path, or any name in it, chooses the values; the others stay cut."""
    ident = add_two_values(conversation)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    answer = world.restore(ident, keys=keys)
    placeholders = len(replaced_values(conversation.bytes(), strip(path)))

    assert set(answer.sizes) == paths
    assert placeholders == 3 - len(paths)
    assert read_entry(path, ident)["_restored"] == iso(clock.now)
    assert world.scan().sessions_changed == 0


def strip(path):
    return b"\n".join(
        line.split(b',"_restored"')[0] + b"}" if b',"_restored"' in line else line
        for line in path.read_bytes().split(b"\n")
    )


def test_a_key_that_names_nothing_is_an_error(world, pruned, path):
    """Only when no key matches a restore fails; it says which there are and changes nothing."""
    before = file_states(world.root)
    with pytest.raises(NotFoundError, match=PATH):
        world.restore(pruned, keys=["arguments", "0"])

    assert file_states(world.root) == before


def test_what_a_run_puts_back_it_does_not_cut(world, conversation, path, clock):
    """A forced entry that was asked for comes back in one run and goes again in the next."""
    ident = conversation.turn("x" * 2000, _extractable=True)
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    open_turn(path, conversation, clock)
    world.restore(ident)
    close_turn(path, conversation, clock)
    first = world.scan()

    assert (len(first.sessions[0].made.restorations), first.values_extracted) == (1, 0)
    assert entry_text(path, ident) == "x" * 2000

    clock.now += 1

    assert world.scan().values_extracted == 1


# --- not idle ---------------------------------------------------------------------------------


def test_of_a_busy_session_the_value_is_delivered(world, conversation, pruned, path, clock):
    """In the middle of a turn the caller gets the values, the file nothing, the store a request."""
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

    assert len(report.sessions[0].made.restorations) == 1
    assert entry_text(path, pruned) == "x" * 2000
    assert read_entry(path, pruned)["_restored"] == iso(clock.now)


def test_a_request_that_was_carried_out_protects_from_that_moment(
    world, conversation, pruned, path, clock
):
    """The protection begins with the put-back, not with the asking, and ends on time."""
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
    ("protection", "waited", "lapsed"),
    [(600, 599, False), (600, 600, True), (30, 600, True), (1200, 1200, True)],
)
def test_a_put_back_lapses_when_no_idle_moment_comes_in_time(
    world, conversation, pruned, path, clock, protection, waited, lapsed
):
    """After the larger of the protection and ten minutes the request is over, with its reason."""
    settings = {"keep_after_restore_seconds": protection}
    open_turn(path, conversation, clock)
    asked = clock.now
    world.restore(pruned, **settings)
    close_turn(path, conversation, clock)
    clock.now = asked + waited
    world.scan(**settings)
    reasons = [event.facts["reason"] for event in world.store.events.after(0, kinds=("lapse",))]

    assert entry_text(path, pruned) == (f"[[extracted-{pruned}]]" if lapsed else "x" * 2000)
    assert world.store.requests.count_open() == 0
    assert reasons == ["its session was not idle in time, or is excluded or gone"] * lapsed


def test_asking_twice_while_the_turn_is_open_puts_back_once(
    world, conversation, pruned, path, clock
):
    """Two asks for the same value are one put-back, and both are over then."""
    open_turn(path, conversation, clock)
    for _ in range(2):
        assert restored_json(world.restore(pruned))["content"] == {PATH: "x" * 2000}
    close_turn(path, conversation, clock)

    assert len(world.scan().sessions[0].made.restorations) == 1
    assert world.store.requests.count_open() == 0
    assert path.read_bytes().count(b"_restored") == 1


def test_a_pending_restore_of_some_keys_is_of_those_only(world, conversation, path, clock):
    """The request remembers the keys that were asked for."""
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


def test_a_pending_pristine_restore_leaves_no_trace(world, conversation, pruned, path, clock):
    """A request for the file as it was adds no mark, and the next scan does not cut at once."""
    open_turn(path, conversation, clock)
    world.restore(pruned, pristine=True)
    close_turn(path, conversation, clock)
    world.scan()

    assert raw_line(path.read_bytes(), pruned) == raw_line(conversation.bytes(), pruned)
    assert world.scan().values_extracted == 0


def test_waiting_puts_back_as_soon_as_the_session_is_idle(world, pruned, path):
    """`--wait` returns when the value stands in the file again, and says when that was."""
    world.clock = time.time
    path.touch()
    begun = time.monotonic()
    answer = world.restore(pruned, wait=True, quiet_seconds=1)

    assert time.monotonic() - begun > 0.5
    assert not answer.pending
    assert entry_text(path, pruned) == "x" * 2000
    assert read_entry(path, pruned)["_restored"] == iso(answer.at)


def test_waiting_ends_when_the_turn_does(world, conversation, pruned, path):
    """`--wait` outlasts an open turn of the agent."""
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


# --- naming --------------------------------------------------------------------------------------


def test_an_entry_of_two_sessions_wants_its_session_named(world, conversation, pruned, path):
    """The same id in two sessions lists both and changes neither; `--session` decides."""
    world.put("t.jsonl", conversation.bytes())
    world.scan()
    before = file_states(world.root)
    with pytest.raises(AmbiguousError) as told:
        world.restore(pruned)

    assert told.value.candidates == ("main/s", "main/t")
    assert file_states(world.root) == before
    assert world.restore(pruned, session="main/t").session == "main/t"
    assert entry_text(world.directory / "t.jsonl", pruned) == "x" * 2000
    assert entry_text(path, pruned) == f"[[extracted-{pruned}]]"


def test_the_beginning_of_an_id_names_its_entry(world):
    """A beginning that one entry has will do; one of several lists them and changes nothing."""
    for name, ids in {"s": ("abc1", "abd2", "x"), "t": ("abc9",)}.items():
        talk = Conversation(name)
        for ident in ids:
            talk.turn(f"of {ident} " * 300, ident=ident)
        talk.turn("short")
        talk.turn("short")
        world.put(f"{name}.jsonl", talk.bytes())
    world.scan()
    before = file_states(world.root)
    with pytest.raises(AmbiguousError) as told:
        world.restore("ab")
    with pytest.raises(AmbiguousError) as of_one:
        show(world, "ab", "main/s")
    with pytest.raises(AmbiguousError):
        pin(world, "ab", False)
    with pytest.raises(NotFoundError):
        world.restore("zz")
    for short in ("", "[[extracted-abd]]"):
        with pytest.raises(NotFoundError):
            world.restore(short)

    assert told.value.candidates == ("abc1", "abc9", "abd2")
    assert of_one.value.candidates == ("abc1", "abd2")
    assert file_states(world.root) == before
    assert "of abc9" in show(world, "abc", "main/t")[PATH]
    assert world.restore("abd").entry_id == "abd2"
    assert pin(world, "abc9"[:3], False, "main/s").entry_id == "abc1"
    assert pin(world, "x", False).entry_id == "x"


def test_the_id_of_an_entry_is_no_beginning_of_another(world):
    """Where the entry itself stands with nothing extracted, none whose id is longer is meant."""
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


def test_equal_sessions_of_two_agents_are_restored_one_by_one(world, conversation, pruned, path):
    """They share placeholder and value, and each has a record and a file of its own."""
    other = world.root / "other" / "sessions"
    other.mkdir(parents=True)
    twin = world.put("../../other/sessions/s.jsonl", conversation.bytes())
    world.scan()

    assert sql(world, "SELECT count(*) FROM blobs") == [(1,)]
    assert sql(world, "SELECT count(*), count(DISTINCT name) FROM extractions") == [(2, 1)]
    with pytest.raises(AmbiguousError) as told:
        world.restore(pruned)
    assert told.value.candidates == ("main/s", "other/s")

    world.restore(pruned, session="other/s")

    assert entry_text(twin, pruned) == "x" * 2000
    assert entry_text(path, pruned) == f"[[extracted-{pruned}]]"


@pytest.mark.parametrize("session", [None, "main/s"])
def test_an_unknown_entry_is_an_error(world, pruned, session):
    """Of an entry that nobody knows it is said where ids are, and nothing changes."""
    before = file_states(world.root)
    with pytest.raises(NotFoundError, match=r"deadbeef.*; `brainsurgeon sessions SESSION`"):
        world.restore("deadbeef", session=session)

    assert file_states(world.root) == before


@pytest.mark.parametrize("scanned", [False, True])
def test_a_fork_gets_the_values_of_its_parent(world, pruned, path, clock, scanned):
    """Placeholders that a fork carried along are shown and restored there, and only there."""
    copy = fork(path, OTHER)
    clock.now = int(time.time()) + 1
    if scanned:
        world.scan()
    before = path.read_bytes()

    assert show(world, pruned, OTHER) == {PATH: "x" * 2000}
    assert world.restore(pruned, session=OTHER).sizes.keys() == {PATH}
    assert entry_text(copy, pruned) == "x" * 2000
    assert path.read_bytes() == before


def test_what_cannot_be_given_is_not_asked_for(world, pruned, path, clock):
    """A restore that names no value of the entry writes nothing, not even that there is a fork."""
    fork(path, OTHER)
    with pytest.raises(NoSuchKeyError):
        world.restore(pruned, session=OTHER, keys=["nothing"])

    assert [one.name for one in world.store.sessions.all()] == ["s"]


def test_a_fork_that_was_pinned_first_gets_its_values(world, conversation, pruned, path, clock):
    """A field set in a fork before any scan saw it costs the fork nothing."""
    copy = fork(path, OTHER)
    clock.now = int(time.time()) + 1
    pin(world, conversation.last, 5, OTHER)
    rows = sql(world, "SELECT name, format FROM sessions ORDER BY name DESC")

    assert rows == [("s", "openclaw"), (OTHER, "openclaw")]
    assert world.restore(pruned, session=OTHER).sizes.keys() == {PATH}
    assert entry_text(copy, pruned) == "x" * 2000


# --- forgeries -----------------------------------------------------------------------------------


def forged(conversation, placeholder, how):
    """Add an entry in which somebody wrote a placeholder; give its id."""
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
def test_a_placeholder_that_somebody_wrote_is_never_expanded(
    world, conversation, pruned, path, clock, how
):
    """In another entry of the same session a placeholder from elsewhere stays as it is."""
    ident = forged(conversation, f"[[extracted-{pruned}]]", how)
    append(path, conversation.lines[9:])
    clock.now = int(time.time()) + 1
    forgery = raw_line(path.read_bytes(), ident)
    world.restore_all(pristine=True)

    assert entry_text(path, pruned) == "x" * 2000
    assert raw_line(path.read_bytes(), ident) == forgery


def test_a_placeholder_older_than_the_cut_is_never_expanded(world, conversation, path):
    """A tool that printed the marker of an earlier entry word for word keeps its output."""
    ident = conversation.turn()
    forged(conversation, f"[[extracted-{ident}]]", "printed by a tool")
    conversation.turn("short")
    original = conversation.bytes()
    world.put("s.jsonl", original)
    world.scan()
    world.restore_all(pristine=True)

    assert path.read_bytes() == original


# --- rewritten histories -------------------------------------------------------------------------


def with_new_ids(lines, prefix):
    """Give entries as an agent writes its history anew: other ids and times, no fields of ours."""
    fresh = []
    for line in lines:
        known = {k: v for k, v in line.items() if not k.startswith("_")}
        known["timestamp"] = "2026-11-02T10:00:00.000Z"
        for key in ("id", "parentId"):
            if known.get(key):
                known[key] = prefix + known[key][len(prefix) :]
        fresh.append(known)
    return fresh


def entries(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_of_two_messages_with_new_ids_the_first_is_the_recorded_one(
    world, conversation, path, clock
):
    """A placeholder typed later stays, though its message reads like the extracted one."""
    said = conversation.user("y" * 2000)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan(trigger_types=["user"])
    typed = conversation.user(f"[[extracted-{said}]]")
    conversation.assistant()
    append(path, conversation.lines[-2:])
    header, *lines = entries(path)
    path.write_bytes(b"".join(map(dump, [header, *with_new_ids(lines, "eeee")])))
    clock.now = int(time.time()) + 1
    world.restore_all(pristine=True)

    said_now, typed_now = (
        read_entry(path, "eeee" + ident[4:])["message"] for ident in (said, typed)
    )
    assert said_now["content"] == "y" * 2000
    assert typed_now["content"] == f"[[extracted-{said}]]"


def test_a_placeholder_that_a_user_typed_does_not_count_as_standing(
    world, conversation, path, clock
):
    """Restored and then typed into another message, the value stands nowhere for retention."""
    said = conversation.user("y" * 2000)
    conversation.assistant()
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan(trigger_types=["user"])
    world.restore(said)
    conversation.user(f"[[extracted-{said}]]")
    conversation.assistant()
    append(path, conversation.lines[-2:])
    clock.now = int(time.time()) + 10**6
    world.scan()

    assert sql(world, "SELECT count(*) FROM placements") == [(0,)]
    assert sql(world, "SELECT unplaced_at IS NULL FROM extractions") == [(0,)]


def test_a_placeholder_that_stands_twice_is_restored_twice(
    world, conversation, pruned, path, clock
):
    """Where the agent branched, the placeholders of both branches come back."""
    lines = entries(path)[1:]
    append(path, with_new_ids(lines, "eeee"))
    clock.now = int(time.time()) + 1
    new = "eeee" + pruned[4:]
    world.restore_all(pristine=True)

    assert (entry_text(path, pruned), entry_text(path, new)) == ("x" * 2000, "x" * 2000)
    assert path.read_bytes().startswith(conversation.bytes())


def test_an_original_that_is_back_is_not_touched(world, conversation, pruned, path, clock):
    """Where the agent wrote the original back from memory, that is said and nothing changes."""
    path.write_bytes(conversation.bytes())
    clock.now = int(time.time()) + 1
    before = file_states(world.root)
    told = restored_json(world.restore(pruned))

    assert (told["restored"], told["already"], told["pending"]) == (True, True, False)
    assert "previous_restored_at" not in told
    assert file_states(world.root) == before
    assert show(world, pruned) == {PATH: "x" * 2000}
    assert world.scan().values_extracted == 1


def test_the_put_back_of_another_entry_is_not_taken_for_this_one(world, conversation, path, clock):
    """A placeholder that is gone is told though another request is carried out at once."""
    first, second = conversation.turn(), conversation.turn("y" * 2000)
    conversation.turn("short")
    world.put("s.jsonl", conversation.bytes())
    world.scan()
    open_turn(path, conversation, clock)
    world.restore(second)
    path.write_bytes(path.read_bytes().replace(f"[[extracted-{first}]]".encode(), b"else"))
    close_turn(path, conversation, clock)
    with pytest.raises(ChangedError, match="no longer there") as told:
        world.restore(first)

    assert told.value.exit_code == 3
    assert entry_text(path, second) == "y" * 2000
    assert "_restored" not in read_entry(path, first)


def test_the_store_remembers_a_restore_that_the_file_lost(world, conversation, pruned, path, clock):
    """The protection holds although the agent's rewrite dropped `_restored`."""
    world.restore(pruned)
    path.write_bytes(conversation.bytes())
    clock.now += 60

    assert world.scan().values_extracted == 0
    assert kept_reasons(world)["restored 60 s ago"] == 1


# --- expired and gone ----------------------------------------------------------------------------


def test_a_value_outlives_its_session_file(world, pruned, path):
    """With the file gone the value is still shown; a restore says that it has nowhere to go."""
    path.unlink()

    assert show(world, pruned) == {PATH: "x" * 2000}
    assert show(world, pruned, "main/s") == {PATH: "x" * 2000}
    with pytest.raises(GoneError, match=r"gone.*`brainsurgeon show` prints them") as told:
        world.restore(pruned)
    assert told.value.exit_code == 3
    assert not path.exists()
    assert [one.state for one in world.restore_all()] == ["gone"]


# --- whole blocks --------------------------------------------------------------------------------


def blocks(conversation):
    """Add an image of a user, one of a tool, and signed thinking of a turn that is over."""
    image = {"type": "image", "data": "iVBOR" * 400, "mimeType": "image/png"}
    asked = conversation.user([{"type": "text", "text": "look"}, image])
    thought = conversation.assistant(
        [
            {"type": "thinking", "thinking": "t" * 900, "thinkingSignature": "S" * 300},
            {"type": "toolCall", "id": "call_1", "name": "shot", "arguments": {}},
        ],
        stop="toolUse",
        api="anthropic-messages",
    )
    seen = conversation.result("short", tool="shot")
    conversation.lines[-1]["message"]["content"].append(image)
    conversation.assistant()
    conversation.user()
    conversation.assistant(
        [{"type": "thinking", "thinking": "u" * 900, "thinkingSignature": "S" * 300}],
        api="anthropic-messages",
    )
    return {asked: 1, thought: 0, seen: 1}


def test_whole_blocks_go_and_come_back(world, conversation, path, clock):
    """An image gives way to a text block, signed thinking to an empty one; both come back whole."""
    places = blocks(conversation)
    original = conversation.bytes()
    world.put("s.jsonl", original)
    report = world.scan(keep_recent=0, trigger_types=list(KINDS))
    cut = {
        placeholder: json.loads(token)
        for placeholder, token in replaced_values(original, path.read_bytes())
    }

    assert report.values_extracted == len(places)
    for ident, index in places.items():
        whole = next(line for line in conversation.lines if line["id"] == ident)
        thinks = whole["message"]["content"][index]["type"] == "thinking"
        placeholder = (
            json.loads(EMPTY_THINKING)
            if thinks
            else {"type": "text", "text": f"[[extracted-{ident}]]"}
        )
        assert read_entry(path, ident)["message"]["content"][index] == placeholder
        assert cut[placeholder.get("text", "")] == whole["message"]["content"][index]
        assert show(world, ident) == {
            f"message.content.{index}": whole["message"]["content"][index]
        }
    assert b"u" * 900 in path.read_bytes()

    one = next(iter(places))
    world.restore(one)

    assert read_entry(path, one)["message"]["content"][1]["type"] == "image"
    assert world.restore_all(pristine=True)[0].values == 2
    assert path.read_bytes() == original


def test_restoring_what_is_back_says_since_when(world, conversation, pruned, path, clock):
    """A second restore changes nothing and names the moment of the first, in a turn, too."""
    world.restore(pruned)
    first = clock.now
    clock.now += 60
    again = restored_json(world.restore(pruned))
    open_turn(path, conversation, clock)
    in_turn = restored_json(world.restore(pruned))

    for told in (again, in_turn):
        assert (told["restored"], told["already"], told["pending"]) == (True, True, False)
        assert told["restored_at"] == told["previous_restored_at"] == iso(first)
        assert "_extractable: false" in told["suggestion"]
        assert told["keys_restored"] == [PATH]
    assert in_turn["content"] == {PATH: "x" * 2000}
    assert "content" not in again
    assert world.store.requests.count_open() == 0
