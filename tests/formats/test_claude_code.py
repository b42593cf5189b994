"""Claude Code's sessions: which lines are live, what may be extracted.

When a turn is closed.
"""

import json

import pytest

from brainsurgeon.formats import FORMATS
from brainsurgeon.formats.base import Thoughts
from brainsurgeon.formats.claude_code import LEFT_OUT, NO_CONTENT
from brainsurgeon.model.entries import OLD, parse
from brainsurgeon.model.sessions import BEFORE_COMPACTION, OFF_BRANCH
from building.claude import SESSION, ClaudeConversation
from building.format_reading import entries, survey
from building.world import SAMPLES

FORM = FORMATS["claude-code"]
CLAUDE = SAMPLES / "claude-code"
PROJECT = CLAUDE / "projects" / "-home-dev-demo-1-ws"
OLDER = sorted(CLAUDE.glob("entire-*.jsonl"))


@pytest.fixture
def conversation():
    return ClaudeConversation()


def sample(number):
    return (PROJECT / f"5a5a5a5a-000{number}-4000-8000-00000000000{number}.jsonl").read_bytes()


def dead(data):
    look = survey(FORM, data)
    said = {offset: entry.get("uuid") for offset, _, _, entry in entries(data)}
    return {said[offset]: why for offset, why in look.dead_entries.items()}


def parts(data, uuid=None, window=3):
    look = survey(FORM, data, window)
    return {
        ".".join(map(str, part.path)): part
        for offset, _, _, entry in entries(data)
        if uuid is None or entry.get("uuid") == uuid
        for part in FORM.parts(entry, look, offset)
    }


def places(data):
    look = survey(FORM, data, 10**9)
    return {entry.get("uuid"): look.position(offset) for offset, _, _, entry in entries(data)}


# Which lines the next request carries.


@pytest.mark.parametrize("number", [1, 3, 4])
def test_a_session_in_one_piece_is_live_as_a_whole(number):
    """Results of parallel calls hang beside the chain, and are sent all the same."""
    assert dead(sample(number)) == {}


def test_what_stands_before_a_compaction_is_dead(conversation):
    """Everything above the newest boundary is dead, and everything from it on is live."""
    conversation.turn()
    conversation.compaction()
    conversation.turn()
    before = {line["uuid"] for line in conversation.lines}
    conversation.compaction()
    conversation.turn()

    assert dead(conversation.bytes()) == dict.fromkeys(before, BEFORE_COMPACTION)


def test_what_a_compaction_preserved_is_live():
    """The messages that the boundary names are sent on, though they stand before it."""
    data = sample(2)
    said = [entry for _, _, _, entry in entries(data)]
    [boundary] = [entry for entry in said if entry.get("subtype") == "compact_boundary"]
    preserved = boundary["compactMetadata"]["preservedMessages"]["allUuids"]
    gone = dead(data)
    before = said[: said.index(boundary)]

    assert set(gone.values()) == {BEFORE_COMPACTION}
    assert {entry["uuid"] for entry in before if "uuid" in entry} - gone.keys() == set(preserved)


@pytest.mark.parametrize("odd", [["file"], {"file": 1}, 7])
def test_an_attachment_of_an_odd_type_is_read(conversation, odd):
    """A type that is no text is one that nobody knows."""
    conversation.entry("attachment", attachment={"type": odd, "content": "x"}, rendered=odd)

    assert {part.kind for part in parts(conversation.bytes()).values()} == {"system"}


@pytest.mark.parametrize("broken", [False, True])
def test_a_preserved_segment_may_be_named_by_its_ends(conversation, broken):
    """Older releases name the two ends; where they are not connected nothing is preserved."""
    conversation.turn()
    head = conversation.user()
    inner = [conversation.call(), conversation.result()]
    tail = conversation.assistant(**({"parent": "lost"} if broken else {}))
    conversation.compaction(preservedSegment={"headUuid": head, "tailUuid": tail})
    conversation.turn()
    gone = dead(conversation.bytes())

    assert len(gone) == (8 if broken else 4)
    assert ({head, *inner, tail} <= gone.keys()) is broken


def test_a_branch_left_behind_is_dead(conversation):
    """After a step back the lines of the other branch are dead, from the parting on."""
    conversation.turn()
    parting = conversation.last
    left = [conversation.user(), conversation.call("toolu_9"), conversation.result(call="toolu_9"),
            conversation.assistant()]  # fmt: skip
    conversation.user(parent=parting)
    conversation.assistant()

    assert dead(conversation.bytes()) == dict.fromkeys(left, OFF_BRANCH)


def test_where_two_leaves_compete_both_are_live(conversation):
    """The newest line and the newest `last-prompt` may name two branches: neither is dead."""
    parting = conversation.user()
    conversation.assistant()
    kept = conversation.last
    conversation.user(parent=parting)
    conversation.assistant()
    conversation.note("last-prompt", leafUuid=kept)

    assert dead(conversation.bytes()) == {}


def test_a_step_back_over_a_compaction_revives_what_stood_before(conversation):
    """A boundary that is off the branch cuts nothing off."""
    conversation.turn()
    parting = conversation.last
    conversation.compaction()
    after = {conversation.lines[-2]["uuid"], conversation.last}
    conversation.user(parent=parting)
    conversation.assistant()

    assert dead(conversation.bytes()) == dict.fromkeys(after, OFF_BRANCH)


def test_a_lost_parent_is_replaced_by_the_line_before(conversation):
    """A torn line must not make what stands above it look dead."""
    conversation.turn()
    conversation.user(parent="00000000-0000-4000-8000-00000000dead")
    conversation.assistant()

    assert dead(conversation.bytes()) == {}


def test_a_chain_that_bites_its_tail_ends(conversation):
    """A cycle of parents ends the walk."""
    first = conversation.user()
    second = conversation.assistant()
    conversation.lines[0]["parentUuid"] = second

    assert dead(conversation.bytes()) == {}
    assert places(conversation.bytes()) == {first: 1, second: 0}


def test_sidechains_are_live_only_in_files_of_their_own(conversation):
    """A sub-agent's lines in the main file are never sent; in its own file they are the chain."""
    conversation.turn()
    main = conversation.last
    aside = [conversation.user(parent=None, isSidechain=True),
             conversation.assistant(isSidechain=True)]  # fmt: skip
    conversation.user(parent=main)
    conversation.assistant()
    own = ClaudeConversation(side=True)
    own.turn()

    assert dead(conversation.bytes()) == dict.fromkeys(aside, OFF_BRANCH)
    assert dead(own.bytes()) == {}


def test_progress_lives_with_the_line_it_hangs_on(conversation):
    """Progress is off the chain as a rule; no window holds it, since no request carries it."""
    conversation.user()
    call = conversation.call()
    progress = conversation.entry("progress", parentToolUseID="toolu_1", data={"output": "y"})
    conversation.result(parent=call)
    conversation.assistant()
    data = conversation.bytes()

    assert dead(data) == {}
    assert places(data)[progress] == OLD
    assert parts(data)["data"].tool == "Bash"


# Positions, tools, the session it was forked from.


def test_a_reply_is_one_message_and_a_call_stands_with_its_result(conversation):
    """No window ends between a call and its result, and none inside a reply."""
    prompt = conversation.user()
    thought = conversation.assistant({"type": "thinking", "thinking": "t", "signature": "s"},
                                     message="m1", stop="tool_use")  # fmt: skip
    calls = [conversation.call(f"toolu_{name}", message="m1") for name in "ab"]
    results = [conversation.result(call=f"toolu_{name}", parent=call)
               for name, call in zip("ba", reversed(calls), strict=True)]  # fmt: skip
    reply = conversation.assistant()
    conversation.entry("attachment", attachment={"type": "date"})
    data = conversation.bytes()
    found = places(data)

    assert [found[one] for one in (reply, *reversed(results))] == [0, 1, 2]
    assert [found[one] for one in (*reversed(calls), thought, prompt)] == [2, 1, 3, 4]
    assert found[conversation.last] == 0


def test_what_the_agent_adds_does_not_count(conversation):
    """Notes of Claude Code itself, marked as meta, take no place in a window."""
    asked = conversation.user()
    conversation.user("<system-reminder>", isMeta=True)
    conversation.assistant()

    assert places(conversation.bytes())[asked] == 1


def test_the_tool_of_a_result_is_known_through_its_call(conversation):
    """A result names its call only; the survey knows whose call that was."""
    conversation.user()
    conversation.call("toolu_7", "Grep", {"pattern": "p"})
    ident = conversation.result(call="toolu_7")
    conversation.assistant()
    found = parts(conversation.bytes(), ident)

    assert {part.tool for part in found.values()} == {"Grep"}
    assert found.keys() == {"message.content.0.content", "toolUseResult.stdout"}


# When a turn is closed.

TEXT = {"type": "text", "text": "done."}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}


def ending(conversation, *blocks, **fields):
    """Give how a session is judged that ends in a reply."""
    conversation.user()
    conversation.assistant(*blocks, **fields)
    return survey(FORM, conversation.bytes())


@pytest.mark.parametrize("stop", ["end_turn", "stop_sequence", "max_tokens", "refusal"])
def test_a_reply_that_stopped_closes_its_turn(conversation, stop):
    """Nothing more of this turn follows."""
    look = ending(conversation, TEXT, stop=stop)

    assert (look.open_turn, look.quiet) == (None, 0)


@pytest.mark.parametrize(
    ("blocks", "fields", "reason"),
    [
        ([{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}], {}, "a tool call"),
        ([TEXT], {"stop": "tool_use"}, "has not stopped"),
        ([TEXT], {"stop": "pause_turn"}, "has not stopped"),
        ([TEXT], {"stop": []}, "has not stopped"),
        ([THOUGHT], {}, "thinking"),
    ],
)
def test_a_reply_that_goes_on_leaves_its_turn_open(conversation, blocks, fields, reason):
    """A call, thinking, or a pause is never the end."""
    assert reason in ending(conversation, *blocks, **fields).open_turn


def test_an_error_of_the_provider_ends_a_turn(conversation):
    """What Claude Code writes in the name of the assistant when a call failed for good."""
    assert ending(conversation, TEXT, stop=None, isApiErrorMessage=True).open_turn is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (lambda one: one.user(), "a user message"),
        (lambda one: one.user([TEXT]), "a user message"),
        (lambda one: one.result(), "a tool result"),
        (lambda one: one.compaction(), "a user message"),
        (lambda one: one.user("Stop hook feedback: no", isMeta=True), "a user message"),
        (lambda one: one.user("[Request interrupted by user for tool use]"), None),
        (lambda one: one.user([{"type": "text", "text": "[Request interrupted by user]"}]), None),
        (lambda one: one.user("<local-command-stdout>ok</local-command-stdout>"), None),
        (lambda one: one.user("<bash-stdout>ok</bash-stdout>"), None),
        (lambda one: one.user("<system-reminder>renamed</system-reminder>", isMeta=True), None),
        (lambda one: one.entry("attachment", attachment={"type": "date"}), None),
        (lambda one: one.entry("progress", data={}), None),
        (lambda one: one.entry("system", subtype="local_command", content="x"), None),
        (lambda one: one.entry("system", subtype="turn_duration"), None),
        (lambda one: one.entry("system", parent=None, subtype="compact_boundary"), "a compaction"),
        (lambda one: one.user(isSidechain=True, parent=None), None),
        (lambda one: one.note("queue-operation", operation="enqueue", content="x"), "the queue"),
        (lambda one: one.note("last-prompt", lastPrompt="x"), None),
    ],
)
def test_what_follows_a_reply_may_open_a_turn_again(conversation, line, reason):
    """A prompt opens a turn; what Claude Code notes for itself does not."""
    conversation.turn()
    line(conversation)
    found = survey(FORM, conversation.bytes()).open_turn

    assert (found is None) if reason is None else (reason in found)


def test_a_prompt_that_left_the_queue_waits_no_more(conversation):
    """Each `enqueue` has its `dequeue` or `remove`, or all were taken back at once."""
    for operation in ("dequeue", "remove", "popAll"):
        conversation.note("queue-operation", operation="enqueue")
        conversation.note("queue-operation", operation=operation)
    conversation.turn()

    assert survey(FORM, conversation.bytes()).open_turn is None


def test_a_torn_last_line_is_a_write_under_way(conversation):
    """Half a line is being written; a line without its newline is read like any other."""
    conversation.turn()
    data = conversation.bytes()

    assert survey(FORM, data[:-20]).open_turn == "the last line is torn: a write is under way"
    assert survey(FORM, data[:-1]).open_turn is None


def test_older_sessions_close_by_their_own_marks():
    """Sessions of 2.0.64 to 2.1.38 end in a text, or in a mark that the turn is over."""
    looks = {path.name[:12]: survey(FORM, path.read_bytes()) for path in OLDER}

    assert {name: look.open_turn for name, look in looks.items()} == dict.fromkeys(looks)
    assert {name for name, look in looks.items() if not look.quiet} == {"entire-60_61"}


# What may be extracted, and what stays whatever the rules say.


def kinds_of(found):
    return {path: (part.kind, part.dead) for path, part in found.items() if not part.locked}


def test_a_result_stands_in_two_places(conversation):
    """The model gets one, and the screen shows the other, which is never sent."""
    ident = conversation.turn()

    assert kinds_of(parts(conversation.bytes(), ident)) == {
        "message.content.0.content": ("tool_result", False),
        "toolUseResult.stdout": ("tool_result", True),
    }


@pytest.mark.parametrize(
    ("shown", "paths"),
    [
        ("Error: exit 1", ["toolUseResult"]),
        (
            {"type": "text", "file": {"filePath": "/w/a", "content": "x", "numLines": 1}},
            ["toolUseResult.file.content"],
        ),
        (
            {"type": "image", "file": {"base64": "aGk=", "type": "image/png", "originalSize": 2}},
            ["toolUseResult.file.base64"],
        ),
        (
            {
                "filePath": "/w/a",
                "oldString": "o",
                "newString": "n",
                "originalFile": "f",
                "structuredPatch": [{"lines": ["-o", "+n"]}],
                "userModified": False,
            },
            ["toolUseResult.oldString", "toolUseResult.newString", "toolUseResult.originalFile"],
        ),
        (
            {
                "status": "completed",
                "prompt": "p",
                "agentId": "a1",
                "outputFile": "/t/o",
                "content": [{"type": "text", "text": "t"}],
                "usage": {"service_tier": "standard"},
            },
            ["toolUseResult.prompt", "toolUseResult.content.0.text"],
        ),
        (
            {"stdout": "s", "stderr": "", "persistedOutputPath": "/t/o", "isImage": False},
            ["toolUseResult.stdout"],
        ),
        ([{"type": "text", "text": "t"}], ["toolUseResult.0.text"]),
        (None, []),
        (7, []),
    ],
)
def test_the_shape_of_what_the_screen_shows_stays(conversation, shown, paths):
    """Only strings may go, and never those that say what something is or where it lies."""
    conversation.user()
    conversation.call()
    ident = conversation.result("", shown=shown)

    found = parts(conversation.bytes(), ident)
    assert list(found) == paths
    assert all(part.dead for part in found.values())


def test_images_go_as_whole_blocks(conversation):
    """A placeholder inside an image would be refused: the block gives way to a text block."""
    picture = {"type": "image", "source": {"type": "base64", "data": "aGk=", "media_type": "x"}}
    paper = {"type": "document", "source": {"type": "base64", "data": "aGk=", "media_type": "x"}}
    prompt = conversation.user([TEXT, picture, paper])
    conversation.call()
    reference = {"type": "tool_reference", "tool_name": "WebFetch"}
    result = conversation.result([picture, TEXT, reference], shown=None)
    data = conversation.bytes()

    assert {path: part.block for path, part in parts(data, prompt).items()} == {
        "message.content.0.text": False, "message.content.1": True, "message.content.2": True,
    }  # fmt: skip
    assert {path: part.block for path, part in parts(data, result).items()} == {
        "message.content.0.content.0": True, "message.content.0.content.1.text": False,
    }  # fmt: skip


def test_arguments_go_string_by_string(conversation):
    """The object and its lists stay, and so does what the screen checks against a schema."""
    given = {"file_path": "/w/a", "content": "c", "edits": [{"old_string": "o", "new_string": "n"}],
             "todos": [{"content": "t", "status": "pending"}], "subagent_type": "x"}  # fmt: skip
    conversation.user()
    ident = conversation.call(given=given)

    assert kinds_of(parts(conversation.bytes(), ident)) == {
        f"message.content.0.input.{path}": ("tool_call", False)
        for path in ("content", "edits.0.old_string", "edits.0.new_string")
    }


def test_thinking_leaves_as_a_block_that_is_never_sent(conversation):
    """It goes whole, text and signature, before the last prompt; the blank text stays as it is."""
    blocks = [{"type": "thinking", "thinking": "t" * 900, "signature": "s" * 50},
              {"type": "redacted_thinking", "data": "r"}, json.loads(LEFT_OUT), TEXT]  # fmt: skip
    conversation.user()
    earlier = conversation.assistant(*blocks)
    conversation.user()
    last = conversation.assistant(*blocks)
    data = conversation.bytes()
    found = parts(data, earlier)

    assert {path: part.chars for path, part in found.items() if part.instead == LEFT_OUT} == {
        "message.content.0": 950, "message.content.1": 1,
    }  # fmt: skip
    assert kinds_of(found) == {
        "message.content.0": ("thinking", False), "message.content.1": ("thinking", False),
        "message.content.3.text": ("assistant", False),
    }  # fmt: skip
    assert kinds_of(parts(data, last)) == {"message.content.3.text": ("assistant", False)}


def test_every_signature_of_a_reply_is_known(conversation):
    """With its model, also on a line of its own; the note of an error has none."""
    signed = {"type": "thinking", "thinking": "", "signature": "s" * 50}
    conversation.assistant(signed, TEXT)
    conversation.assistant(signed)
    conversation.assistant(TEXT, isApiErrorMessage=True)
    conversation.user()
    thoughts = [FORM.thoughts(line) for line in conversation.lines]
    model = ("claude-opus-5-5",)

    assert thoughts == [
        Thoughts(model, ((("message", "content", 0), 50),), LEFT_OUT),
        Thoughts(model, ((("message", "content"), 50),), NO_CONTENT),
        None, None,
    ]  # fmt: skip


def test_an_attached_file_is_sent_as_it_was_rendered():
    """What is sent stands in `rendered`; the copy below `attachment` is the screen's."""
    data = sample(2)
    files = [entry["uuid"] for _, _, _, entry in entries(data)
             if entry.get("attachment", {}).get("type") == "file"]  # fmt: skip

    assert len(files) == 5
    for ident in files:
        assert kinds_of(parts(data, ident)) == {
            "rendered.0.content": ("tool_result", False),
            "rendered.1.content": ("tool_result", False),
            "attachment.content.file.content": ("tool_result", True),
        }


def test_an_attached_file_that_was_not_rendered_is_live(conversation):
    """Releases without `rendered` send what stands below `attachment`."""
    content = {"type": "text", "file": {"filePath": "/w/a", "content": "x"}}
    ident = conversation.entry("attachment", attachment={"type": "file", "content": content})

    assert kinds_of(parts(conversation.bytes(), ident)) == {
        "attachment.content.file.content": ("tool_result", False)
    }


@pytest.mark.parametrize(("kind", "rendered", "dead"), [
    ("skill_listing", [{"content": "x"}], True),
    ("skill_listing", [{"content": [{"type": "text", "text": "x"}]}], True),
    ("skill_listing", [], False),
    ("skill_listing", None, False),
    ("skill_listing", [{"content": ""}], False),
    ("skill_listing", [{"content": []}], False),
    ("deferred_tools_delta", [{"content": "x"}], False),
    ("project_doc_reads", [{"content": "x"}], False),
])  # fmt: skip
def test_an_attachment_that_is_rendered_anew_stays(conversation, kind, rendered, dead):
    """What was rendered is sent only if it is complete, and not for every kind (2.1.330)."""
    ident = conversation.entry(
        "attachment", attachment={"type": kind, "content": "x" * 900}, rendered=rendered
    )
    part = parts(conversation.bytes(), ident)["attachment.content"]

    assert (part.dead, part.locked is None) == (dead, dead)


@pytest.mark.parametrize("path", [*PROJECT.rglob("*.jsonl")], ids=lambda path: path.name[:16])
def test_what_is_never_read_again_goes_whatever_its_kind(path):
    """Recorded requests, what lies before a compaction, copies of what was rendered.

    The live system prompt and tools are locked, and of every other line no part is known.
    """
    data = path.read_bytes()
    look = survey(FORM, data)

    seen = set()
    for offset, _, _, entry in entries(data):
        kind, gone = entry["type"], look.dead(offset) == BEFORE_COMPACTION
        found = list(FORM.parts(entry, look, offset))
        if kind.startswith("api-request"):
            seen.add(kind)
            key = {"api-request-shape": "shape", "api-request": "params"}.get(kind, "message")
            assert [(part.path, part.block, part.dead) for part in found] == [((key,), True, True)]
        elif gone:
            assert all(part.dead for part in found)
        elif kind == "attachment":
            seen.add(entry["attachment"]["type"])
            unsent = [part for part in found if part.path[0] == "attachment"]
            copies = ("agent_listing_delta", "file", "skill_listing")
            copied = "rendered" in entry and entry["attachment"]["type"] in copies
            assert all(part.dead == copied for part in unsent)
            assert all(part.dead or part.locked for part in unsent)
        elif kind not in ("user", "assistant", "system"):
            assert found == []
    assert seen > {"api-request-shape", "prompt_snapshot", "skill_listing"}


def test_what_is_never_read_goes_whole_unless_some_went_before(conversation):
    """A placeholder is never extracted again inside its object; the screen's shape stays."""
    shown = {"stdout": "x" * 900, "stderr": "", "interrupted": False}
    cut = [conversation.result(shown=dict(shown)) for _ in range(2)]
    conversation.lines[0]["toolUseResult"]["stdout"] = f"[[extracted-{cut[0]}]]"
    live = parts(conversation.bytes(), cut[1])
    conversation.compaction()
    data = conversation.bytes()

    assert "toolUseResult.stdout" in live
    assert "toolUseResult.stdout" in parts(data, cut[0])
    assert parts(data, cut[1])["toolUseResult"].block


def test_what_a_compaction_kept_is_live(conversation):
    """The argument of a call goes only if nothing loads it any more."""
    conversation.user()
    given = {"command": "x" * 900}
    calls = [conversation.call(f"toolu_{number}", given=given) for number in range(2)]
    conversation.compaction(preservedMessages={"uuids": calls[1:]})
    conversation.assistant()
    data = conversation.bytes()
    found = [parts(data, call)["message.content.0.input.command"] for call in calls]

    assert [(part.kind, part.dead) for part in found] == [("tool_call", True), ("tool_call", False)]


def test_a_recorded_request_is_named_by_its_line_and_hash(conversation):
    """The same record stands after each compaction again; others have no id."""
    for _ in range(2):
        conversation.note("api-request-shape", shapeHash="ab" * 32, shape={"system": []})
    conversation.note("api-request", shapeHash="ab" * 32)
    found = [FORM.identity(line, b"", number) for number, line in enumerate(conversation.lines, 1)]

    assert found == ["L1-abababab", "L2-abababab", None]


def test_the_summary_of_a_compaction_is_the_context(conversation):
    """It stays, whatever its length."""
    conversation.turn()
    ident = conversation.compaction()
    conversation.assistant()

    assert parts(conversation.bytes(), ident) == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<persisted-output>\nOutput too large", "its agent keeps the output in a file"),
        ("[Old tool result content cleared]", "its agent cleared it"),
    ],
)
def test_what_is_small_already_stays(conversation, content, reason):
    """Claude Code put a note there; what the screen shows of it may still go."""
    conversation.user()
    conversation.call()
    ident = conversation.result(content, shown={"stdout": "x" * 30_000})
    found = parts(conversation.bytes(), ident)

    assert found["message.content.0.content"].locked == reason
    assert not found["toolUseResult.stdout"].locked


def test_what_its_agent_replaces_stays(conversation):
    """A result that is replaced by a short text when it is read is small for the model already."""
    ident = conversation.turn(call="toolu_5")
    conversation.note("content-replacement", replacements=[
        {"kind": "tool-result", "toolUseId": "toolu_5", "replacement": "short"}])  # fmt: skip
    found = parts(conversation.bytes(), ident)

    assert found["message.content.0.content"].locked == (
        "its agent sends a short text in its place"
    )
    assert not found["toolUseResult.stdout"].locked


@pytest.mark.parametrize("version", ["2.0.76", "2.1.37", "2.1.112", "2.1.330"])
def test_older_releases_refill_their_read_cache(version):
    """Before 2.1.112 what was read or written last stays, for the ten newest files."""
    conversation = ClaudeConversation(version=version)
    for number in range(12):
        conversation.user()
        tool, given = "Read", {"file_path": f"/w/{number}"}
        if number == 11:
            tool, given = "Write", {**given, "content": "c" * 900}
        conversation.call(f"toolu_{number}", tool, given)
        conversation.result(call=f"toolu_{number}")
        conversation.assistant()
    data = conversation.bytes()
    look = survey(FORM, data)
    locked = [
        FORM.anchor(entry, part.path)
        for offset, _, _, entry in entries(data)
        for part in FORM.parts(entry, look, offset)
        if part.locked == "its agent refills its read cache from it"
    ]
    ten = [f"toolu_{number}" for number in range(2, 12)]

    assert sorted(locked) == (sorted([*ten, "toolu_11"]) if version in ("2.0.76", "2.1.37") else [])


def test_what_background_work_reported_is_a_result_and_stays(conversation):
    """Nobody typed a task notification, and a resume looks in it for tasks that have ended."""
    told = conversation.user("<task-notification>", origin={"kind": "task-notification"})
    typed = conversation.user()
    noted = conversation.user(isMeta=True)
    data = conversation.bytes()

    assert [parts(data, one)["message.content"].kind for one in (told, typed, noted)] == [
        "tool_result", "user", "system",
    ]  # fmt: skip
    assert parts(data, told)["message.content"].locked


def test_the_plan_that_a_user_approved_stays(conversation):
    """Its call and its result, of which a resume and the model read the plan."""
    conversation.user()
    asked = conversation.call("toolu_1", "ExitPlanMode", {"plan": "p" * 900})
    approved = conversation.result("a" * 900, call="toolu_1", shown={"plan": "p" * 900})
    data = conversation.bytes()

    assert parts(data, asked)["message.content.0.input.plan"].locked
    shown = parts(data, approved)
    assert shown["message.content.0.content"].locked
    assert shown["toolUseResult.plan"].dead


# Calls and answers.


def test_the_session_of_the_builder_is_what_the_program_writes(conversation):
    """The builder's lines begin as the real ones do, which Claude Code looks for by bytes."""
    conversation.turn()
    built = conversation.bytes().split(b"\n")[0]
    real = next(raw for _, raw, _, entry in entries(sample(1)) if entry["type"] == "user")

    assert built.startswith(b'{"parentUuid":')
    assert real.startswith(b'{"parentUuid":')
    assert parse(built)["sessionId"] == SESSION


def test_unknown_lines_are_carried_along(conversation):
    """A type that nobody knows has no name, no parts and no place."""
    conversation.turn()
    conversation.lines.append({"type": "dream", "uuid": "u", "parentUuid": None, "content": "x"})
    data = conversation.bytes()
    *_, (offset, raw, number, entry) = entries(data)
    look = survey(FORM, data)

    assert FORM.identity(entry, raw, number) is None
    assert list(FORM.parts(entry, look, offset)) == []
    assert look.position(offset) == OLD
    assert look.open_turn is None
