"""Claude Code's sessions: live and dead lines, extractable parts, and closed turns."""

import json

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.claude_code.format import LEFT_OUT, NO_CONTENT
from brainsurgeon.model.entries import BOM, OLD, parse
from brainsurgeon.model.session_files import BEFORE_COMPACTION, OFF_BRANCH
from brainsurgeon.model.transcript import Thoughts
from building.claude import SESSION, ClaudeConversation
from building.format_reading import entries, parts_in, record, sizes_in, survey
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
    uuids = {offset: entry.get("uuid") for offset, _, _, entry in entries(data)}
    return {uuids[offset]: why for offset, why in look.dead_entries.items()}


def parts(data, uuid=None, window=3):
    look = survey(FORM, data, window)
    return {
        ".".join(map(str, part.path)): part
        for offset, _, _, entry in entries(data)
        if uuid is None or entry.get("uuid") == uuid
        for part in parts_in(FORM, entry, look, offset)
    }


def places(data):
    look = survey(FORM, data, 10**9)
    return {entry.get("uuid"): look.position(offset) for offset, _, _, entry in entries(data)}


# Live and dead lines.


@pytest.mark.parametrize("number", [1, 3, 4])
def test_session_without_branches_or_compactions_is_live(number):
    """Results of parallel calls are off the parent chain and are sent all the same."""
    assert dead(sample(number)) == {}


def test_lines_before_the_newest_compaction_are_dead(conversation):
    """The newest boundary and every line after it are live."""
    conversation.turn()
    conversation.compaction()
    conversation.turn()
    before = {line["uuid"] for line in conversation.lines}
    conversation.compaction()
    conversation.turn()

    assert dead(conversation.bytes()) == dict.fromkeys(before, BEFORE_COMPACTION)


def test_messages_that_a_compaction_preserves_are_live():
    """Messages that the boundary names are sent on, although they precede it."""
    data = sample(2)
    lines = [entry for *_, entry in entries(data)]
    [boundary] = [entry for entry in lines if entry.get("subtype") == "compact_boundary"]
    preserved = boundary["compactMetadata"]["preservedMessages"]["allUuids"]
    dead_lines = dead(data)
    before = {entry["uuid"] for entry in lines[: lines.index(boundary)] if "uuid" in entry}

    assert set(dead_lines.values()) == {BEFORE_COMPACTION}
    assert before - dead_lines.keys() == set(preserved)


@pytest.mark.parametrize("odd", [["file"], {"file": 1}, 7])
def test_attachment_with_a_malformed_type_is_a_system_part(conversation, odd):
    """A type that is not text is treated as an unknown type."""
    conversation.entry("attachment", attachment={"type": odd, "content": "x"}, rendered=odd)

    assert {part.kind for part in parts(conversation.bytes()).values()} == {"system"}


@pytest.mark.parametrize("broken", [False, True])
def test_compaction_preserves_a_segment_named_by_its_ends(conversation, broken):
    """Older releases name only the two ends; nothing is preserved if the ends are not connected."""
    conversation.turn()
    head = conversation.user()
    inner = [conversation.call(), conversation.result()]
    tail = conversation.assistant(**({"parent": "lost"} if broken else {}))
    conversation.compaction(preservedSegment={"headUuid": head, "tailUuid": tail})
    conversation.turn()
    dead_lines = dead(conversation.bytes())

    assert len(dead_lines) == (8 if broken else 4)
    assert ({head, *inner, tail} <= dead_lines.keys()) is broken


def test_abandoned_branch_is_dead(conversation):
    """After a step back, lines of the abandoned branch are dead from the fork on."""
    conversation.turn()
    fork = conversation.last
    abandoned = [conversation.user(), conversation.call(), conversation.result(),
                 conversation.assistant()]  # fmt: skip
    conversation.user(parent=fork)
    conversation.assistant()

    assert dead(conversation.bytes()) == dict.fromkeys(abandoned, OFF_BRANCH)


def test_branches_of_competing_leaves_are_live(conversation):
    """If the newest line and the newest `last-prompt` name two branches, neither is dead."""
    fork = conversation.user()
    conversation.assistant()
    other_leaf = conversation.last
    conversation.user(parent=fork)
    conversation.assistant()
    conversation.note("last-prompt", leafUuid=other_leaf)

    assert dead(conversation.bytes()) == {}


def test_step_back_over_a_compaction_revives_older_lines(conversation):
    """A compaction boundary off the active branch makes no line dead but its own branch."""
    conversation.turn()
    fork = conversation.last
    conversation.compaction()
    after = {conversation.lines[-2]["uuid"], conversation.last}
    conversation.user(parent=fork)
    conversation.assistant()

    assert dead(conversation.bytes()) == dict.fromkeys(after, OFF_BRANCH)


def test_line_with_a_missing_parent_continues_the_line_before(conversation):
    """A line whose parent is missing follows the line before it, so no older line is dead."""
    conversation.turn()
    conversation.user(parent="00000000-0000-4000-8000-00000000dead")
    conversation.assistant()

    assert dead(conversation.bytes()) == {}


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("seconds", [5.0, 5.001])
def test_cycle_of_parents_ends_where_claude_code_ends(conversation, size, seconds):
    """The walk continues with the line of the closest earlier time, within five seconds.

    Claude Code 2.1.112 `cli.js` and 2.1.330: `tengu_chain_timestamp_fallback`.
    """
    before = conversation.user(), conversation.assistant()
    cycle = [conversation.user() for _ in range(size)]
    conversation.lines[2]["parentUuid"] = cycle[-1]
    for line, time in zip(conversation.lines, (0, 1, 1 + seconds, 20, 30), strict=False):
        line["timestamp"] = f"2026-11-20T10:00:{time:06.3f}Z"
    reached = seconds <= 5

    assert dead(conversation.bytes()) == ({} if reached else dict.fromkeys(before, OFF_BRANCH))
    assert places(conversation.bytes())[cycle[-1]] == 0


def test_ids_of_lines_outside_of_the_chain_break_no_chain(conversation):
    """Hook contexts with one id for all, and snapshots with ids of messages, leave it whole.

    After anthropics/claude-code issues 22178, 22245 and 36583.
    """
    for number in range(4):
        conversation.turn()
        hook = conversation.entry("saved_hook_context", content=[f"hook context {number}"])
        conversation.lines[-1]["uuid"] = conversation.last = conversation.lines[0]["uuid"][::-1]
        conversation.note("file-history-snapshot", messageId=conversation.lines[1]["uuid"],
                          snapshot={"messageId": hook, "trackedFileBackups": {}})  # fmt: skip
    conversation.user()

    assert dead(conversation.bytes()) == {}


def test_line_after_a_byte_order_mark_is_in_the_chain(conversation):
    """Claude Code removes a byte order mark, so the first line may be the last prompt."""
    conversation.turn()
    data = conversation.bytes()

    assert survey(FORM, BOM + data).last_user == survey(FORM, data).last_user == 0


def test_sidechain_is_live_only_in_its_own_file(conversation):
    """A sub-agent's lines are dead in the main file and live in the sub-agent's file."""
    conversation.turn()
    main = conversation.last
    sidechain = [conversation.user(parent=None, isSidechain=True),
             conversation.assistant(isSidechain=True)]  # fmt: skip
    conversation.user(parent=main)
    conversation.assistant()
    own = ClaudeConversation(side=True)
    own.turn()

    assert dead(conversation.bytes()) == dict.fromkeys(sidechain, OFF_BRANCH)
    assert dead(own.bytes()) == {}


def test_progress_is_live_with_its_call_and_outside_the_window(conversation):
    """Progress is live and always old: no request carries it."""
    conversation.user()
    call = conversation.call()
    progress = conversation.entry("progress", parentToolUseID="toolu_1", data={"output": "y"})
    conversation.result(parent=call)
    conversation.assistant()
    data = conversation.bytes()

    assert dead(data) == {}
    assert places(data)[progress] == OLD
    assert parts(data)["data"].tool == "Bash"


# Positions and tools.


def test_parallel_calls_have_the_positions_of_their_results(conversation):
    """A call has the position of its result, so that no window ends between the two."""
    prompt = conversation.user()
    thought = conversation.assistant({"type": "thinking", "thinking": "t", "signature": "s"},
                                     message="m1", stop="tool_use")  # fmt: skip
    calls = [conversation.call(f"toolu_{name}", message="m1") for name in "ab"]
    results = [conversation.result(call=f"toolu_{name}", parent=call)
               for name, call in zip("ba", reversed(calls), strict=True)]  # fmt: skip
    reply = conversation.assistant()
    conversation.entry("attachment", attachment={"type": "date"})
    data = conversation.bytes()
    position_of = places(data)

    assert [position_of[ident] for ident in (reply, *reversed(results))] == [0, 1, 2]
    assert [position_of[ident] for ident in (*reversed(calls), thought, prompt)] == [2, 1, 3, 4]
    assert position_of[conversation.last] == 0


def test_meta_messages_take_no_position(conversation):
    """User lines that Claude Code itself marks as meta do not count as messages."""
    prompt = conversation.user()
    conversation.user("<system-reminder>", isMeta=True)
    conversation.assistant()

    assert places(conversation.bytes())[prompt] == 1


def test_result_parts_have_the_tool_of_their_call(conversation):
    """A result names only its call id; the survey finds the call's tool."""
    conversation.user()
    conversation.call("toolu_7", "Grep", {"pattern": "p"})
    ident = conversation.result(call="toolu_7")
    conversation.assistant()
    result_parts = parts(conversation.bytes(), ident)

    assert {part.tool for part in result_parts.values()} == {"Grep"}
    assert result_parts.keys() == {"message.content.0.content", "toolUseResult.stdout"}


# Closed and open turns.

TEXT = {"type": "text", "text": "done."}
THOUGHT = {"type": "thinking", "thinking": "", "signature": "s"}


def survey_of_reply(conversation, *blocks, **fields):
    conversation.user()
    conversation.assistant(*blocks, **fields)
    return survey(FORM, conversation.bytes())


@pytest.mark.parametrize("stop", ["end_turn", "stop_sequence", "max_tokens", "refusal"])
def test_reply_with_a_final_stop_reason_closes_its_turn(conversation, stop):
    """A reply with a final stop reason closes its turn without any quiet time."""
    look = survey_of_reply(conversation, TEXT, stop=stop)

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
def test_reply_that_continues_leaves_its_turn_open(conversation, blocks, fields, reason):
    """A reply that calls a tool, ends in thinking or has no final stop reason is not the end."""
    assert reason in survey_of_reply(conversation, *blocks, **fields).open_turn


def test_api_error_message_closes_the_turn(conversation):
    """Claude Code writes this reply itself when a request has failed for good."""
    assert survey_of_reply(conversation, TEXT, stop=None, isApiErrorMessage=True).open_turn is None


# Lines after a closed turn, and what part of the reason for an open turn they give.
AFTER_A_REPLY = {
    "prompt": (lambda talk: talk.user(), "a user message"),
    "prompt in blocks": (lambda talk: talk.user([TEXT]), "a user message"),
    "result": (lambda talk: talk.result(), "a tool result"),
    "compaction": (lambda talk: talk.compaction(), "a user message"),
    "hook feedback": (
        lambda talk: talk.user("Stop hook feedback: no", isMeta=True), "a user message"),
    "interruption of a call": (
        lambda talk: talk.user("[Request interrupted by user for tool use]"), None),
    "interruption": (
        lambda talk: talk.user([{"type": "text", "text": "[Request interrupted by user]"}]), None),
    "command output": (
        lambda talk: talk.user("<local-command-stdout>ok</local-command-stdout>"), None),
    "shell output": (lambda talk: talk.user("<bash-stdout>ok</bash-stdout>"), None),
    "reminder": (
        lambda talk: talk.user("<system-reminder>renamed</system-reminder>", isMeta=True), None),
    "attachment": (lambda talk: talk.entry("attachment", attachment={"type": "date"}), None),
    "progress": (lambda talk: talk.entry("progress", data={}), None),
    "local command": (
        lambda talk: talk.entry("system", subtype="local_command", content="x"), None),
    "turn duration": (lambda talk: talk.entry("system", subtype="turn_duration"), None),
    "compaction boundary": (
        lambda talk: talk.entry("system", parent=None, subtype="compact_boundary"),
        "a compaction"),
    "sidechain": (lambda talk: talk.user(isSidechain=True, parent=None), None),
    "queued prompt": (
        lambda talk: talk.note("queue-operation", operation="enqueue", content="x"), "the queue"),
    "last prompt": (lambda talk: talk.note("last-prompt", lastPrompt="x"), None),
}  # fmt: skip


@pytest.mark.parametrize("case", AFTER_A_REPLY)
def test_line_after_a_closed_turn_opens_one_only_if_sent(conversation, case):
    """A prompt, result or compaction opens a turn; Claude Code's own notes do not."""
    add_line, reason = AFTER_A_REPLY[case]
    conversation.turn()
    add_line(conversation)
    open_turn = survey(FORM, conversation.bytes()).open_turn

    assert (open_turn is None) if reason is None else (reason in open_turn)


def test_dequeued_prompt_leaves_the_turn_closed(conversation):
    """An `enqueue` followed by `dequeue`, `remove` or `popAll` leaves no prompt waiting."""
    for operation in ("dequeue", "remove", "popAll"):
        conversation.note("queue-operation", operation="enqueue")
        conversation.note("queue-operation", operation=operation)
    conversation.turn()

    assert survey(FORM, conversation.bytes()).open_turn is None


def test_sessions_of_older_releases_close_their_turns():
    """Sessions of 2.0.64 to 2.1.38 end in a text or in a mark that the turn is over."""
    looks = {path.name[:12]: survey(FORM, path.read_bytes()) for path in OLDER}

    assert {name: look.open_turn for name, look in looks.items()} == dict.fromkeys(looks)
    assert {name for name, look in looks.items() if not look.quiet} == {"entire-60_61"}


# Extractable and locked parts.


def kinds_and_deadness(parts_by_path):
    return {path: (part.kind, part.dead) for path, part in parts_by_path.items() if not part.locked}


def test_screen_copy_of_a_result_is_dead(conversation):
    """The copy in `message` is sent to the model; the copy in `toolUseResult` never is."""
    ident = conversation.turn()

    assert kinds_and_deadness(parts(conversation.bytes(), ident)) == {
        "message.content.0.content": ("tool_result", False),
        "toolUseResult.stdout": ("tool_result", True),
    }


@pytest.mark.parametrize(
    ("shown", "paths"),
    [
        ("Error: exit 1", ["toolUseResult"]),
        ({"type": "text", "file": {"filePath": "/w/a", "content": "x", "numLines": 1}},
         ["toolUseResult.file.content"]),
        ({"type": "image", "file": {"base64": "aGk=", "type": "image/png", "originalSize": 2}},
         ["toolUseResult.file.base64"]),
        ({"filePath": "/w/a", "oldString": "o", "newString": "n", "originalFile": "f",
          "structuredPatch": [{"lines": ["-o", "+n"]}], "userModified": False},
         ["toolUseResult.oldString", "toolUseResult.newString", "toolUseResult.originalFile"]),
        ({"status": "completed", "prompt": "p", "agentId": "a1", "outputFile": "/t/o",
          "content": [{"type": "text", "text": "t"}], "usage": {"service_tier": "standard"}},
         ["toolUseResult.prompt", "toolUseResult.content.0.text"]),
        ({"stdout": "s", "stderr": "", "persistedOutputPath": "/t/o", "isImage": False},
         ["toolUseResult.stdout"]),
        ([{"type": "text", "text": "t"}], ["toolUseResult.0.text"]),
        (None, []),
        (7, []),
    ],
)  # fmt: skip
def test_screen_copy_parts_are_strings_without_paths_and_types(conversation, shown, paths):
    """Strings that name a type or a place are no parts, and every part is dead."""
    conversation.user()
    conversation.call()
    ident = conversation.result("", shown=shown)

    result_parts = parts(conversation.bytes(), ident)
    assert list(result_parts) == paths
    assert all(part.dead for part in result_parts.values())


def test_images_and_documents_are_block_parts(conversation):
    """The API rejects a placeholder in base64, so a text block replaces the whole block."""
    image = {"type": "image", "source": {"type": "base64", "data": "aGk=", "media_type": "x"}}
    document = {"type": "document", "source": {"type": "base64", "data": "aGk=", "media_type": "x"}}
    prompt = conversation.user([TEXT, image, document])
    conversation.call()
    reference = {"type": "tool_reference", "tool_name": "WebFetch"}
    result = conversation.result([image, TEXT, reference], shown=None)
    data = conversation.bytes()

    assert {path: part.block for path, part in parts(data, prompt).items()} == {
        "message.content.0.text": False, "message.content.1": True, "message.content.2": True,
    }  # fmt: skip
    assert {path: part.block for path, part in parts(data, result).items()} == {
        "message.content.0.content.0": True, "message.content.0.content.1.text": False,
    }  # fmt: skip


def test_call_arguments_are_string_parts(conversation):
    """Objects and lists stay, and so do strings that the screen checks against a schema."""
    conversation.user()
    ident = conversation.call(arguments={
        "file_path": "/w/a", "content": "c", "edits": [{"old_string": "o", "new_string": "n"}],
        "todos": [{"content": "t", "status": "pending"}], "subagent_type": "x",
    })  # fmt: skip

    assert kinds_and_deadness(parts(conversation.bytes(), ident)) == {
        f"message.content.0.input.{path}": ("tool_call", False)
        for path in ("content", "edits.0.old_string", "edits.0.new_string")
    }


def test_thinking_before_the_last_prompt_is_a_block_part(conversation):
    """A block that is not sent replaces text and signature together; later thinking stays."""
    blocks = [{"type": "thinking", "thinking": "t" * 900, "signature": "s" * 50},
              {"type": "redacted_thinking", "data": "r"}, json.loads(LEFT_OUT), TEXT]  # fmt: skip
    conversation.user()
    earlier = conversation.assistant(*blocks)
    conversation.user()
    last = conversation.assistant(*blocks)
    data = conversation.bytes()
    earlier_parts = parts(data, earlier)

    replaced = {path: part.chars for path, part in earlier_parts.items()
                if part.instead == LEFT_OUT}  # fmt: skip
    assert replaced == {"message.content.0": 900, "message.content.1": 1}
    assert kinds_and_deadness(earlier_parts) == {
        "message.content.0": ("thinking", False), "message.content.1": ("thinking", False),
        "message.content.3.text": ("assistant", False),
    }  # fmt: skip
    assert kinds_and_deadness(parts(data, last)) == {"message.content.3.text": ("assistant", False)}


def test_thoughts_lists_every_signature_of_a_reply(conversation):
    """A signature on a line of its own is listed with its model and form; an API error has none."""
    signed = {"type": "thinking", "thinking": "", "signature": "s" * 50}
    conversation.assistant(signed, TEXT)
    conversation.assistant(signed | {"signature": "CAQS" * 10})
    conversation.assistant(TEXT, isApiErrorMessage=True)
    conversation.user()
    thoughts = [record(FORM, line).thoughts for line in conversation.lines]
    model = ("claude-opus-5-5",)

    assert thoughts == [
        Thoughts(model, ((("message", "content", 0), 50),), LEFT_OUT),
        Thoughts(model, ((("message", "content"), 40),), NO_CONTENT, bound=True),
        None, None,
    ]  # fmt: skip


def test_attached_file_is_live_only_as_rendered():
    """The copy in `rendered` is sent; the copy below `attachment` is shown on the screen only."""
    data = sample(2)
    files = [entry["uuid"] for _, _, _, entry in entries(data)
             if entry.get("attachment", {}).get("type") == "file"]  # fmt: skip

    assert len(files) == 5
    for ident in files:
        assert kinds_and_deadness(parts(data, ident)) == {
            "rendered.0.content": ("tool_result", False),
            "rendered.1.content": ("tool_result", False),
            "attachment.content.file.content": ("tool_result", True),
        }


def test_attached_file_without_a_rendering_is_live(conversation):
    """Releases without `rendered` send the content below `attachment`."""
    content = {"type": "text", "file": {"filePath": "/w/a", "content": "x"}}
    ident = conversation.entry("attachment", attachment={"type": "file", "content": content})

    assert kinds_and_deadness(parts(conversation.bytes(), ident)) == {
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
def test_attachment_is_dead_only_if_its_rendering_is_sent(conversation, kind, rendered, dead):
    """A complete `rendered` is sent in place of the content, but not for every type (2.1.330)."""
    ident = conversation.entry(
        "attachment", attachment={"type": kind, "content": "x" * 900}, rendered=rendered
    )
    part = parts(conversation.bytes(), ident)["attachment.content"]

    assert (part.dead, part.locked is None) == (dead, dead)


def test_role_and_block_types_of_rendered_messages_are_no_parts(conversation):
    """Even a forced extraction leaves the role and the types in `rendered` as they are."""
    rendered = [{"role": "user", "content": [{"type": "text", "text": "x" * 900}]}]
    ident = conversation.entry("attachment", attachment={"type": "file"}, rendered=rendered)

    assert set(parts(conversation.bytes(), ident)) == {"rendered.0.content.0.text"}


@pytest.mark.parametrize("path", [*PROJECT.rglob("*.jsonl")], ids=lambda path: path.name[:16])
def test_sample_lines_that_are_never_sent_have_dead_parts(path):
    """Recorded requests, lines before a compaction and copies of rendered content are dead.

    Live attachments are dead or locked, and lines of other types have no parts.
    """
    data = path.read_bytes()
    look = survey(FORM, data)

    kinds = set()
    for offset, _, _, entry in entries(data):
        kind, compacted = entry["type"], look.dead(offset) == BEFORE_COMPACTION
        line_parts = parts_in(FORM, entry, look, offset)
        if kind.startswith("api-request"):
            kinds.add(kind)
            key = {"api-request-shape": "shape", "api-request": "params"}.get(kind, "message")
            (part,) = line_parts
            assert (part.path, part.block, part.dead) == ((key,), True, True)
        elif compacted:
            assert all(part.dead for part in line_parts)
        elif kind == "attachment":
            kinds.add(entry["attachment"]["type"])
            unsent = [part for part in line_parts if part.path[0] == "attachment"]
            copies = ("agent_listing_delta", "file", "skill_listing")
            copied = "rendered" in entry and entry["attachment"]["type"] in copies
            assert all(part.dead == copied for part in unsent)
            assert all(part.dead or part.locked for part in unsent)
        elif kind not in ("user", "assistant", "system"):
            assert line_parts == []
    assert kinds > {"api-request-shape", "prompt_snapshot", "skill_listing"}


def test_dead_screen_copy_is_one_block_unless_partly_extracted(conversation):
    """A dead object is one block, unless it holds a placeholder: then its strings are parts."""
    shown = {"stdout": "x" * 900, "stderr": "", "interrupted": False}
    results = [conversation.result(shown=dict(shown)) for _ in range(2)]
    conversation.lines[0]["toolUseResult"]["stdout"] = f"[[extracted-{results[0]}]]"
    live = parts(conversation.bytes(), results[1])
    conversation.compaction()
    data = conversation.bytes()

    assert "toolUseResult.stdout" in live
    assert "toolUseResult.stdout" in parts(data, results[0])
    assert parts(data, results[1])["toolUseResult"].block


def test_call_preserved_by_a_compaction_is_live(conversation):
    """Of two calls before a compaction, only the one that it preserves has a live argument."""
    conversation.user()
    arguments = {"command": "x" * 900}
    calls = [conversation.call(f"toolu_{number}", arguments=arguments) for number in range(2)]
    conversation.compaction(preservedMessages={"uuids": calls[1:]})
    conversation.assistant()
    data = conversation.bytes()
    commands = [parts(data, call)["message.content.0.input.command"] for call in calls]

    assert [part.kind for part in commands] == ["tool_call", "tool_call"]
    assert [part.dead for part in commands] == [True, False]


def test_recorded_request_id_is_its_line_number_and_hash(conversation):
    """A recorded request has its line number in its id, since compactions repeat its hash."""
    for _ in range(2):
        conversation.note("api-request-shape", shapeHash="ab" * 32, shape={"system": []})
    conversation.note("api-request", shapeHash="ab" * 32)
    numbered = enumerate(conversation.lines, 1)

    assert [record(FORM, line, number).ident for number, line in numbered] == [
        "L1-abababab", "L2-abababab", None,
    ]  # fmt: skip


def test_compaction_summary_has_no_parts(conversation):
    """The summary of a compaction stays, since it is the context of all later requests."""
    conversation.turn()
    ident = conversation.compaction()
    conversation.assistant()

    assert parts(conversation.bytes(), ident) == {}


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<persisted-output>\nOutput too large", "the agent keeps the output in a file"),
        ("<persisted-output>\n" + "x" * 4077, "the agent keeps the output in a file"),
        ("<persisted-output>\n" + "x" * 4078, None),
        ("[Old tool result content cleared]", "the agent cleared it"),
    ],
)
def test_result_that_the_agent_shortened_is_locked(conversation, content, reason):
    """Claude Code has written a short note as the result; the long screen copy can still go."""
    conversation.user()
    conversation.call()
    ident = conversation.result(content, shown={"stdout": "x" * 30_000})
    result_parts = parts(conversation.bytes(), ident)

    assert result_parts["message.content.0.content"].locked == reason
    assert not result_parts["toolUseResult.stdout"].locked


@pytest.mark.parametrize(
    ("event", "locked"),
    [("SessionStart", "the agent still reads it"), ("PreToolUse", None), ("Stop", None)],
)
def test_command_and_output_of_a_silent_hook_are_never_sent(conversation, event, locked):
    """Only hooks of a session's start and of prompts speak to the model."""
    attachment = {"type": "hook_success", "hookEvent": event, "content": "c", "command": "x" * 900,
                  "stdout": "o" * 900, "stderr": "e"}  # fmt: skip
    conversation.entry("attachment", attachment=attachment)
    hook = parts(conversation.bytes())

    for key in ("command", "stdout", "stderr"):
        part = hook[f"attachment.{key}"]
        assert (part.dead, part.locked) == (locked is None, locked)
    assert hook["attachment.content"].locked


def test_structured_copy_of_an_mcp_result_is_never_sent(conversation):
    """`mcpMeta.structuredContent` goes as a whole; the text of the result is sent."""
    conversation.user()
    conversation.call()
    meta = {"structuredContent": {"rows": [{"id": 1, "text": "x" * 900}]}, "_meta": {"k": "v"}}
    conversation.result("x" * 900, mcpMeta=meta)
    result_parts = parts(conversation.bytes())

    copy = result_parts["mcpMeta.structuredContent"]
    assert (copy.dead, copy.block, copy.chars) == (True, True, 900)
    assert not result_parts["message.content.0.content"].dead


def test_result_that_the_agent_replaces_when_sent_is_locked(conversation):
    """A `content-replacement` sends a short text for the result; its screen copy can still go."""
    ident = conversation.turn(call="toolu_5")
    conversation.note("content-replacement", replacements=[
        {"kind": "tool-result", "toolUseId": "toolu_5", "replacement": "short"}])  # fmt: skip
    result_parts = parts(conversation.bytes(), ident)

    assert result_parts["message.content.0.content"].locked == (
        "the prompt contains a short text in its place"
    )
    assert not result_parts["toolUseResult.stdout"].locked


def test_results_that_the_provider_cleared_are_kept(conversation):
    """The newest answer says how many, oldest first; those before a compaction do not count."""
    conversation.turn()
    conversation.compaction()
    cleared, kept = conversation.turn(), conversation.turn()
    edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 1}]
    conversation.lines[-1]["message"]["context_management"] = {"applied_edits": edits}
    data = conversation.bytes()
    sizes = sizes_in(FORM, data)

    locked = [parts(data, one)["message.content.0.content"].locked for one in (cleared, kept)]
    assert (sizes[cleared], sizes[kept]) == (0, 2000)
    assert locked == ["the prompt contains a short text in its place", None]
    conversation.turn()  # this answer clears nothing
    assert not parts(conversation.bytes(), cleared)["message.content.0.content"].locked


def thinks(conversation, model, message=None):
    """Add a line of thinking of a model; return its id."""
    block = {"type": "thinking", "thinking": "t" * 900, "signature": "s" * 40}
    ident = conversation.assistant(block, message=message)
    conversation.lines[-1]["message"]["model"] = model
    return ident


def test_thinking_of_a_former_model_is_not_sent(conversation):
    """It is sent again after a return to that model, so it is not dead."""
    conversation.user()
    opus = thinks(conversation, "claude-opus-5-5")
    sonnet = thinks(conversation, "claude-sonnet-5")
    data = conversation.bytes()
    sizes = sizes_in(FORM, data)
    thinking = parts(data, opus)["message.content"]
    assert (sizes[opus], sizes[sonnet]) == (0, 900)
    assert (thinking.sent, thinking.dead, thinking.chars) == (0, False, 900)

    conversation.assistant()  # of Opus
    sizes = sizes_in(FORM, conversation.bytes())
    assert (sizes[opus], sizes[sonnet]) == (900, 0)


@pytest.mark.parametrize(
    ("attachment", "sent"),
    [
        ({"scope": "all"}, [0, 0, 0, 900]),
        ({"from": {"messageId": "msg_2", "thinkingIndex": 1}}, [900, 900, 0, 900]),
        ({"from": {"messageId": "msg_2", "thinkingIndex": 0}}, [900, 0, 0, 900]),
        ({"from": {"messageId": "gone", "thinkingIndex": 0}}, [0, 0, 0, 900]),
        (None, [900] * 4),
    ],
    ids=["all", "a later block", "a message", "a missing message", "of a dead branch"],
)
def test_thinking_that_claude_code_left_out_is_not_sent(conversation, attachment, sent):
    """It notes what it leaves out once a provider refuses thinking, such as that of an account."""
    conversation.user()
    model = "claude-opus-5-5"
    idents = [thinks(conversation, model, name) for name in ("msg_1", "msg_2", "msg_2")]
    before = conversation.last
    stripped = {"type": "thinking_stripped", "scope": "partial", **(attachment or {"scope": "all"})}
    conversation.entry("attachment", attachment=stripped)
    if attachment is None:
        conversation.last = before
    idents.append(thinks(conversation, model))
    sizes = sizes_in(FORM, conversation.bytes())

    assert [sizes[ident] for ident in idents] == sent


@pytest.mark.parametrize(
    ("notes", "sent"),  # behind which message, and from which on
    [
        ([], [900, 900, 900, 900, 900]),
        ([(2, 2), (4, 4)], [900, 0, 900, 0, 900]),
        ([(2, 2), (4, 3)], [900, 0, 0, 0, 900]),
        ([(2, 2), (4, 1)], [0, 0, 0, 0, 900]),
        ([(3, 1), (4, 2)], [0, 0, 0, 0, 900]),
        ([(1, 1), (3, 3), (4, 2)], [0, 0, 0, 0, 900]),
        ([(4, 4), (4, 3), (4, 4)], [900, 900, 0, 0, 900]),
    ],
)
def test_each_note_of_left_out_thinking_counts(conversation, notes, sent):
    """Each note leaves out the thinking from one message up to the note."""
    conversation.user()
    idents = []
    for number in range(1, 6):
        idents.append(thinks(conversation, "claude-opus-5-5", f"msg_{number}"))
        for name in (name for behind, name in notes if behind == number):
            first = {"messageId": f"msg_{name}", "thinkingIndex": 0}
            note = {"type": "thinking_stripped", "scope": "partial", "from": first}
            conversation.entry("attachment", attachment=note)
    sizes = sizes_in(FORM, conversation.bytes())

    assert [sizes[ident] for ident in idents] == sent


def test_document_beside_a_result_belongs_to_it(conversation):
    """Up to 2.1.220, Read writes a PDF into a meta line of its own behind the result.

    Other meta lines are no results.
    """
    conversation.user()
    conversation.call("toolu_1", "Read", {"file_path": "a.pdf"})
    conversation.result("PDF file read", call="toolu_1")
    document = {"type": "document", "source": {"type": "base64", "data": "A" * 900}}
    ident = conversation.user([document, {"type": "text", "text": "page 1"}], isMeta=True)
    conversation.assistant()
    other = conversation.user([document], isMeta=True)
    data = conversation.bytes()

    found = parts(data, ident)
    assert found["message.content.0"].block
    kinds = {path: (part.kind, part.tool, part.chars) for path, part in found.items()}
    assert kinds == {
        "message.content.0": ("tool_result", "Read", 900),
        "message.content.1.text": ("system", None, 6),
    }
    assert parts(data, other)["message.content.0"].tool is None


def test_task_notification_is_a_locked_tool_result(conversation):
    """A task notification is locked, since a resume searches it for tasks that have ended."""
    notification = conversation.user("<task-notification>", origin={"kind": "task-notification"})
    prompt = conversation.user()
    meta = conversation.user(isMeta=True)
    data = conversation.bytes()

    kinds = [parts(data, ident)["message.content"].kind for ident in (notification, prompt, meta)]
    assert kinds == ["tool_result", "user", "system"]
    assert parts(data, notification)["message.content"].locked


def test_approved_plan_is_locked(conversation):
    """A resume and the model read the plan from its call and its result."""
    conversation.user()
    call = conversation.call("toolu_1", "ExitPlanMode", {"plan": "p" * 900})
    result = conversation.result("a" * 900, call="toolu_1", shown={"plan": "p" * 900})
    data = conversation.bytes()

    assert parts(data, call)["message.content.0.input.plan"].locked
    result_parts = parts(data, result)
    assert result_parts["message.content.0.content"].locked
    assert result_parts["toolUseResult.plan"].dead


# Other lines.


def test_built_lines_begin_as_claude_code_writes_them(conversation):
    """Claude Code searches for the first bytes of a line, so that the builder must write them."""
    conversation.turn()
    built = conversation.bytes().split(b"\n")[0]
    real = next(raw for _, raw, _, entry in entries(sample(1)) if entry["type"] == "user")

    assert built.startswith(b'{"parentUuid":')
    assert real.startswith(b'{"parentUuid":')
    assert parse(built)["sessionId"] == SESSION


def test_unknown_line_has_no_id_parts_or_position(conversation):
    """A line of an unknown type is old and does not open a turn."""
    conversation.turn()
    conversation.lines.append({"type": "dream", "uuid": "u", "parentUuid": None, "content": "x"})
    data = conversation.bytes()
    *_, (offset, _, number, entry) = entries(data)
    look = survey(FORM, data)

    assert record(FORM, entry, number).ident is None
    assert parts_in(FORM, entry, look, offset) == []
    assert look.position(offset) == OLD
    assert look.open_turn is None
