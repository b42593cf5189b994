"""The contract of every format, on real sessions, traps and random entries."""

import hashlib
import itertools
import json
import tempfile
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.openclaw.format import OpenClawRows
from brainsurgeon.config.loading import load
from brainsurgeon.formats.base import NO_STEP
from brainsurgeon.formats.recognition import HEAD_LINES, recognise
from brainsurgeon.formats.splice import locate, splice
from brainsurgeon.model.entries import (
    KINDS,
    OLD,
    placeholder_id,
    placeholder_named,
    placeholder_token,
    value_at,
)
from brainsurgeon.model.session_files import ANY, AUTO
from building.claw import GATEWAY, LOCAL, VERSIONS, Claw
from building.format_reading import WINDOW, entries, parts_in, record, survey
from building.opencode import FORK, KILO, KILO_SESSION, OPENCODE, WHOLE, Lines
from building.quill import QUILL
from building.talk import Talk
from building.world import SAMPLES, dump

CLAUDE_CODE = FORMATS["claude-code"]
OPENCLAW = FORMATS["openclaw"]
GENERIC = FORMATS["generic"]
TRAPS = sorted((SAMPLES / "traps").glob("*.jsonl"))
STEPS = ("prompt", "reply", "result")
# The roles in which values of a kind occur. A user's own command is an aside. An entry may have
# both a call and its result.
ROLES = {
    "assistant": ("reply",), "thinking": ("reply", "note"), "tool_call": ("reply", "result"),
    "user": ("prompt", "aside"), "tool_result": ("result", "prompt", "aside", "note"),
}  # fmt: skip


class Pages:
    """A talk with quill, the small agent of the tests."""

    name = "talk.jsonl"

    def read_bytes(self):
        talk = Talk()
        for number in range(8):
            talk.turn(f"page {number} " * 99)
        return talk.bytes()


class Events:
    """The events of one session in an OpenClaw database, as lines."""

    def __init__(self, version, session):
        self.name = f"{version}-{session[-1]}"
        self._version, self._session = version, session

    def read_bytes(self):
        with tempfile.TemporaryDirectory() as place:
            texts = Claw(place, self._version).texts(self._session)
        return b"".join(text + b"\n" for text in texts)


def extract_all(form, data):
    """Extract every part that is not locked.

    Return the new file and, by line number, the placeholder and the extracted parts.
    """
    look = survey(form, data)
    edits, extracted = [], {}
    for offset, raw, number, entry in entries(data):
        ident = record(form, entry, number).ident
        extractable = [part for part in parts_in(form, entry, look, offset) if not part.locked]
        if ident is None or not extractable:
            continue
        places = locate(raw, [part.path for part in extractable])
        for part in extractable:
            start, end = places[part.path]
            token = part.instead or placeholder_token(
                placeholder_named(placeholder_id(ident)), block=part.block
            )
            edits.append((offset + start, offset + end, token))
        extracted[number] = (placeholder_named(placeholder_id(ident)), extractable)
    return splice(data, edits), extracted


def without(entry, extracted):
    """Return the entry as JSON with None in place of the extracted parts."""
    entry = json.loads(json.dumps(entry))
    for part in extracted:
        value_at(entry, part.path[:-1])[part.path[-1]] = None
    return json.dumps(entry)


def links(form, entry):
    """Return what tells an entry apart from others, and its place in the conversation."""
    content = form.read(entry)
    calls, step = [call.call_id for call in content.calls], content.step
    if step.role is None:
        return record(form, entry).rest, calls
    # Claude Code recognises the output of a user's own command, an aside, by its text.
    role = step.role if step.role in ("reply", "result") else "other"
    results = [result.call_id for result in step.results]
    return record(form, entry).rest, calls, role, step.parent, step.names, results


class FormatContract:
    """The promises of every format; a subclass names its format, samples and words."""

    form = None
    # The formats among which its samples are recognised, below a root with this hint.
    known, hint = FORMATS, AUTO
    samples = ()
    # Keys that never end a path outside a tool's arguments or results.
    never = frozenset()
    # Keys of a tool's arguments and results.
    free = frozenset()
    # Keys and values of the format, for random entries.
    words = ()
    # Ids that occur twice in a sample on purpose; the planner leaves such entries alone.
    twice = frozenset()
    # Beginnings of the names of samples without turns.
    turnless = ()
    end_line = b""  # what the line behind an answer contains if only it ends the turn
    # The version, and a digest of what the format then finds in its samples.
    results = (0, "")

    def test_changed_results_have_a_new_version(self):
        """If a format finds other parts in the same bytes, its version must be increased."""
        digest = hashlib.blake2b(digest_size=4)
        for sample in self.samples:
            data = sample.read_bytes()
            look = survey(self.form, data)
            digest.update(repr((look.open_turn, look.last_user)).encode())
            for offset, _, number, entry in entries(data):
                ident = record(self.form, entry, number).ident
                found = ident, look.position(offset), look.dead(offset)
                values = map(astuple, parts_in(self.form, entry, look, offset))
                digest.update(repr((*found, *values)).encode())

        assert (self.form.version, digest.hexdigest()) == self.results

    def test_format_recognises_its_samples(self, sample):
        """The first lines of a sample identify this format."""
        head = sample.read_bytes().split(b"\n")[:HEAD_LINES]

        recognition = recognise(head, self.known, self.hint)

        assert (recognition.form, recognition.reason, recognition.name) == (
            self.form,
            "",
            self.form.name,
        )

    def test_parts_name_nonempty_values_with_their_length(self, sample):
        """Each part's path leads to a value in the line, and its length is the value's."""
        data = sample.read_bytes()
        look = survey(self.form, data)
        count = 0
        for offset, raw, _, entry in entries(data):
            listed = parts_in(self.form, entry, look, offset)
            places = locate(raw, [part.path for part in listed])
            for part in listed:
                value = value_at(entry, part.path)
                count += 1

                assert part.kind in KINDS
                assert part.chars > 0
                assert part.path in places
                assert part.instead is None or part.kind == "thinking"
                if part.block:
                    assert isinstance(value, dict | list)
                elif not part.locked:
                    assert isinstance(value, str)
                    assert len(value) == part.chars
        assert count

    def test_parts_avoid_keys_that_the_agent_needs(self, sample):
        """The path of a part never ends in a key that the agent needs to read its own file."""
        data = sample.read_bytes()
        look = survey(self.form, data)

        for offset, _, _, entry in entries(data):
            for part in parts_in(self.form, entry, look, offset):
                assert self.free & set(part.path) or part.path[-1] not in self.never

    def test_parts_of_an_entry_do_not_overlap(self, sample):
        """The parts of an entry share no byte, so that all can be extracted at once."""
        data = sample.read_bytes()
        look = survey(self.form, data)

        for offset, raw, _, entry in entries(data):
            listed = [part.path for part in parts_in(self.form, entry, look, offset)]
            spans = sorted(locate(raw, listed).values())

            assert len(spans) == len(listed)
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))

    def test_entries_with_parts_have_unique_ids(self, sample):
        """The placeholder of each entry id is valid inside a JSON string."""
        data = sample.read_bytes()
        look = survey(self.form, data)
        names = [
            record(self.form, entry, number).ident
            for offset, _, number, entry in entries(data)
            if parts_in(self.form, entry, look, offset)
        ]

        assert None not in names
        assert {name for name in names if names.count(name) > 1} <= self.twice
        assert all(
            json.loads(placeholder_token(placeholder_named(placeholder_id(name)), block=False))
            for name in names
        )

    def test_positions_count_back_from_the_end(self, sample):
        """Messages count back from the last line; other lines share the next message's position."""
        data = sample.read_bytes()
        by_offset = {offset: entry for offset, _, _, entry in entries(data)}
        look = survey(self.form, data)
        messages = 0
        for offset in sorted(look.positions, reverse=True):
            counts = record(self.form, by_offset[offset]).is_message

            assert look.position(offset) == (messages if counts else max(messages - 1, 0))
            messages += counts

        assert messages > WINDOW
        assert look.position(min(by_offset)) == OLD

    @pytest.mark.parametrize("window", [0, 1, 10])
    def test_surveys_with_any_window_agree(self, sample, window):
        """A survey with a small window agrees with one with a large window on its positions."""
        data = sample.read_bytes()
        large = survey(self.form, data, 10**9)
        small = survey(self.form, data, window)

        assert small.positions.items() <= large.positions.items()
        assert max(small.positions.values()) <= window
        assert {at for at, position in large.positions.items() if position < window} <= (
            small.positions.keys()
        )
        assert (small.open_turn, small.last_user) == (large.open_turn, large.last_user)

    def test_torn_last_line_keeps_the_turn_open(self, sample):
        """A last line that only lacks its newline is read like any other."""
        data = sample.read_bytes().rstrip(b"\n")
        torn = survey(self.form, data[:-1])

        assert torn.open_turn == "the last line is still being written"
        assert survey(self.form, data).open_turn == survey(self.form, data + b"\n").open_turn

    def test_extraction_changes_nothing_else_that_the_format_reads(self, sample):
        """With every part extracted, entries, ids, links, positions and the open turn remain."""
        before = sample.read_bytes()
        after, extracted = extract_all(self.form, before)
        old, new = entries(before), entries(after)
        was, now = survey(self.form, before, 10), survey(self.form, after, 10)

        assert extracted
        assert len(after) < len(before)
        assert now.open_turn == was.open_turn
        for (old_at, _, number, entry), (new_at, _, _, fresh) in zip(old, new, strict=True):
            line_parts = extracted.get(number, ("", ()))[1]

            assert without(fresh, line_parts) == without(entry, line_parts)
            assert links(self.form, fresh) == links(self.form, entry)
            calls = {value.path: value.call for value in self.form.read(fresh).values}
            for part in line_parts:
                assert calls.get((*part.path, "text") if part.block else part.path) == part.call
            assert record(self.form, fresh).is_message == record(self.form, entry).is_message
            was_named = record(self.form, entry, number).ident
            assert record(self.form, fresh, number).ident == was_named
            assert now.position(new_at) == was.position(old_at)

    def test_extracted_parts_are_not_extracted_again(self, sample):
        """With every part extracted, each remaining part is a placeholder or locked."""
        after, extracted = extract_all(self.form, sample.read_bytes())
        look = survey(self.form, after)

        for offset, _, number, entry in entries(after):
            for part in parts_in(self.form, entry, look, offset):
                value = value_at(entry, part.path)
                assert part.locked or value == extracted[number][0]

    def test_calls_and_answers_have_their_values_and_call_id(self, sample):
        """Calls give their arguments and answers their text; each answer belongs to a call."""
        called, answered = set(), set()
        for _, _, _, entry in entries(sample.read_bytes()):
            content = self.form.read(entry)
            values = list(content.values)
            for call in content.calls:
                called.add(call.call_id)

                given = value_at(entry, call.path)
                assert (json.loads(given) if call.as_text else given) == call.arguments
                below = [one for one in values if one.path[: len(call.path)] == call.path]
                assert {one.call for one in below} <= {call.call_id}
            for answer in content.result_texts:
                answered.add(answer.call_id)

                assert value_at(entry, answer.path) == answer.text
                assert answer.call_id in [one.call for one in values if one.path == answer.path]

        assert called
        assert answered <= called

    def test_steps_of_turns_are_messages_with_their_values(self, sample):
        """Prompts, replies and results are messages, contain their values, and are sent."""
        data = sample.read_bytes()
        if sample.name.startswith(self.turnless):
            assert not any(self.form.read(entry).step.role for *_, entry in entries(data))
            return
        look = survey(self.form, data)
        sent = dict.fromkeys(STEPS, 0)
        for offset, _, _, entry in entries(data):
            content = self.form.read(entry)
            step, answers = content.step, list(content.result_texts)
            parts = parts_in(self.form, entry, look, offset)
            if step.role is None:
                assert step == NO_STEP
                assert not record(self.form, entry).is_message
                assert not ROLES.keys() & {part.kind for part in parts}
                continue

            assert step.text == (value_at(entry, step.text_path) if step.text_path else "")
            assert step.calls == content.calls
            assert {answer.call_id for answer in answers} <= {one.call_id for one in step.results}
            for part in parts:
                assert step.role in ROLES.get(part.kind, (step.role,))
            if step.role in STEPS:
                assert record(self.form, entry).is_message
                sent[step.role] += content.sent.tokens()
        assert all(sent.values())

    def test_turn_is_open_from_its_prompt_to_its_last_reply(self, sample):
        """A file that ends with a prompt or a call is open, one that ends with an answer is not."""
        data = sample.read_bytes()
        ends = {}
        for offset, raw, _, entry in entries(data):
            if (step := self.form.read(entry).step).role:
                kind = "call" if step.calls else "answer" if step.closes else step.role
                ends[kind] = offset + len(raw) + 1
        if self.end_line:
            ends["answer"] = data.index(b"\n", data.index(self.end_line, ends["answer"])) + 1
        is_open = {
            kind: survey(self.form, data[: ends[kind]]).open_turn is not None
            for kind in ("prompt", "call", "answer") if kind in ends
        }  # fmt: skip

        whole = {"prompt": True, "call": True, "answer": False}
        assert is_open == ({} if sample.name.startswith(self.turnless) else whole)

    def test_trap_lines_never_raise(self):
        """The format can read every line of the trap samples."""
        for trap in TRAPS:
            data = trap.read_bytes()
            look = survey(self.form, data)
            for offset, _, number, entry in entries(data):
                record(self.form, entry, number)
                parts_in(self.form, entry, look, offset)

    def test_random_entries_never_raise(self):
        """For any JSON object, calls, answers and parts lead to values that the entry holds."""

        @settings(max_examples=100, deadline=None)
        @given(st.lists(random_entries(self.words), min_size=1, max_size=3))
        def check(lines):
            data = b"".join(dump(line) for line in lines)
            look = survey(self.form, data)
            recognise(data.split(b"\n"), FORMATS)
            self.form.refuses(lines[0])
            for offset, _, number, entry in entries(data):
                record(self.form, entry, number)
                content = self.form.read(entry)
                for call in content.calls:
                    given = value_at(entry, call.path)
                    assert given is call.arguments or json.loads(given) == call.arguments
                for answer in content.result_texts:
                    assert value_at(entry, answer.path) is answer.text
                for part in parts_in(self.form, entry, look, offset):
                    value = value_at(entry, part.path)
                    assert value
                    assert part.locked or isinstance(value, dict if part.block else str)
                    assert self.free & set(part.path) or part.path[-1] not in self.never

        check()


def random_entries(words):
    """Return a strategy for entries of a format's own words in unusual places."""
    word = st.sampled_from(words)
    value = st.recursive(
        st.one_of(word, st.none(), st.booleans(), st.integers(-1, 3), st.just("x" * 9)),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(word, inner, max_size=4)
        ),
        max_leaves=12,
    )
    block = st.dictionaries(st.sampled_from(("type", *words)), value, max_size=5)
    message = st.dictionaries(word, st.one_of(value, st.lists(block, max_size=3)), max_size=5)
    return st.dictionaries(
        st.sampled_from(("type", "message", *words)), st.one_of(value, message), max_size=6
    )


def pytest_generate_tests(metafunc):
    """Parametrize the contract's tests over the samples of each format."""
    if "sample" in metafunc.fixturenames:
        samples = metafunc.cls.samples
        metafunc.parametrize("sample", samples, ids=[sample.name[:24] for sample in samples])


class TestOpenClawContract(FormatContract):
    """OpenClaw of two versions, and pi."""

    form = OPENCLAW
    results = (9, "c2f84dff")
    samples = (
        *sorted((SAMPLES / "openclaw").rglob("[0-9a-f]*[0-9].jsonl")),
        *sorted((SAMPLES / "pi").glob("*v3.jsonl")),
        *sorted((SAMPLES / "pi").glob("pi-*.jsonl")),
    )
    never = frozenset({
        "id", "parentId", "timestamp", "firstKeptEntryId", "targetId", "fromId", "summary", "role",
        "type", "toolCallId", "toolName", "name", "stopReason", "api", "provider", "model",
        "thinkingSignature", "textSignature", "thoughtSignature", "partialJson", "partialArgs",
        "label", "data", "mimeType", "isError",
    })  # fmt: skip
    free = frozenset({"details", "arguments"})
    words = (
        "type", "message", "role", "content", "text", "thinking", "thinkingSignature", "toolCall",
        "toolResult", "arguments", "partialArgs", "image", "data", "details", "assistant", "user",
        "custom_message", "custom", "leaf", "targetId", "appendMode", "side", "parentId", "id",
        "appendParentId", "session", "version", "stopReason", "stop", "api", "anthropic-messages",
        "redacted", "output", "bashExecution", "parentSession", "summary", "label", "toolName",
    )  # fmt: skip


class TestOpenClawRowsContract(TestOpenClawContract):
    """Events from OpenClaw's databases of each layout, and the session files it wrote before."""

    form = OpenClawRows()
    results = (9, "8eab6eda")
    known = types.MappingProxyType({"openclaw": form})
    samples = (
        *(Events(version, session) for version in VERSIONS for session in (GATEWAY, LOCAL)),
        *TestOpenClawContract.samples,
    )

    def test_indexed_texts_are_locked(self, sample):
        """OpenClaw indexes user and assistant texts; a block is a part only in tool results."""
        data = sample.read_bytes()
        look = survey(self.form, data)
        for offset, _, _, entry in entries(data):
            for part in parts_in(self.form, entry, look, offset):
                indexed = part.kind in ("user", "assistant")
                assert part.locked or not indexed
                assert part.locked or not part.block or part.kind == "tool_result"


class TestGenericContract(FormatContract):
    """Entries of no particular agent."""

    form = GENERIC
    results = (10, "9986022b")
    samples = (SAMPLES / "generic" / "spec-mix.jsonl",)
    never = frozenset({
        "__id", "id", "type", "role", "name", "tool", "tool_name", "toolName", "tool_use_id",
        "signature", "thinkingSignature", "_restored",
    })  # fmt: skip
    free = frozenset({"arguments", "input", "output", "result", "data"})
    words = (
        "type", "__id", "id", "message", "role", "user", "assistant", "system", "tool", "content",
        "text", "thinking", "signature", "tool_use", "toolCall", "tool_call", "tool_result",
        "input", "arguments", "output", "result", "data", "image", "source", "base64", "name",
    )  # fmt: skip


# What the descriptions of other agents have in common.
KEYS = frozenset({
    "id", "type", "role", "uuid", "parentUuid", "sessionId", "name", "tool_call_id", "status",
    "toolCallId", "callId", "timestamp", "time", "model", "created", "origin", "finishReason",
})  # fmt: skip
WORDS = (
    "type", "id", "role", "message", "content", "text", "user", "assistant", "system", "tool",
    "tool_calls", "function", "arguments", "name", "tool_call_id", "thinking", "signature",
)  # fmt: skip


class TestGooseContract(FormatContract):
    """goose, whose results are in messages of the user."""

    form, hint = FORMATS["goose"], ANY
    results = (4, "0199cce6")
    samples = (SAMPLES / "described" / "goose.jsonl",)
    never, free = KEYS, frozenset({"arguments"})
    words = (*WORDS, "created", "toolRequest", "toolResponse", "toolCall", "toolResult", "value")


class TestLangChainContract(FormatContract):
    """Messages of LangChain."""

    form, hint = FORMATS["langchain"], ANY
    results = (4, "508272f3")
    samples = (SAMPLES / "described" / "langchain.jsonl",)
    never, free = KEYS, frozenset({"args", "artifact"})
    words = (*WORDS, "human", "ai", "data", "kwargs", "args", "artifact", "usage_metadata")


class TestKimiCliContract(FormatContract):
    """The context of kimi-cli."""

    form, hint = FORMATS["kimi-cli"], ANY
    results = (4, "c6f26fa4")
    samples = (SAMPLES / "described" / "kimi-cli.jsonl",)
    never = KEYS
    words = (*WORDS, "_checkpoint", "_usage", "think", "encrypted")


class TestKimiCodeContract(FormatContract):
    """The wire of Kimi Code, which has a second copy of each message."""

    form, hint = FORMATS["kimi-code"], ANY
    results = (4, "caac35df")
    samples = (SAMPLES / "described" / "kimi-code.jsonl",)
    never, free = KEYS, frozenset({"args"})
    words = (
        *WORDS, "context.append_message", "agent.message.appended", "event", "tool.call", "args",
        "tool.result", "content.part", "part", "think", "result", "output", "origin", "kind",
        "turn.ended", "toolCallId",
    )  # fmt: skip


class TestQwenCodeContract(FormatContract):
    """Qwen Code, which has two copies of results that are never sent."""

    form, hint = FORMATS["qwen-code"], ANY
    results = (4, "efc7103b")
    samples = (SAMPLES / "described" / "qwen-code.jsonl",)
    never, free = KEYS, frozenset({"args", "resultDisplay"})
    words = (
        *WORDS, "parts", "functionCall", "functionResponse", "response", "output", "thought",
        "toolCallResult", "resultDisplay", "tool_result", "uuid", "args", "thoughtSignature",
    )  # fmt: skip


class TestOhMyPiContract(FormatContract):
    """oh-my-pi, whose first line is a title."""

    form, hint = FORMATS["oh-my-pi"], ANY
    results = (4, "a7526269")
    samples = (SAMPLES / "described" / "oh-my-pi.jsonl",)
    never, free = KEYS, frozenset({"arguments", "details"})
    words = (*WORDS, "title", "toolCall", "toolResult", "toolCallId", "details", "stopReason")


class TestOpenAIChatContract(FormatContract):
    """Messages of OpenAI's chat, one a line."""

    form, hint = FORMATS["openai-chat"], ANY
    results = (4, "85ab1c56")
    samples = (SAMPLES / "described" / "openai-chat-nanobot.jsonl",)
    never = KEYS
    words = (*WORDS, "reasoning_content", "developer", "timestamp")


class TestCopilotContract(FormatContract):
    """Copilot CLI, with sub-agents, errors and compactions in the same file."""

    form = FORMATS["copilot"]
    results = (3, "821ffbed")
    end_line = b'"assistant.turn_end"'
    samples = tuple(sorted((SAMPLES / "copilot").glob("*.jsonl")))
    never = frozenset({
        "id", "parentId", "agentId", "type", "timestamp", "toolCallId", "toolName", "name", "role",
        "messageId", "assetId", "data", "byteLength", "turnId", "arguments", "reasoningOpaque",
        "message", "model", "tool_call_id", "apiCallId", "summaryContent", "transformedContent",
    })  # fmt: skip
    free = frozenset({"messages"})
    words = (
        "type", "id", "agentId", "data", "user.message", "assistant.message", "content", "result",
        "assistant.turn_start", "tool.execution_start", "tool.execution_complete", "toolRequests",
        "toolCallId", "toolName", "name", "arguments", "detailedContent", "reasoningText",
        "reasoningOpaque", "binaryResultsForLlm", "attachments", "assetId", "byteLength", "error",
        "message", "success", "shellExecution", "exitCode", "session.start", "copilotVersion",
        "session.compaction_start", "session.compaction_complete", "compactionAttemptId",
        "summaryContent", "session.usage_record", "usage", "inputTokens", "session.error", "abort",
        "model.model_call_success", "requestMessages", "model.messages_snapshot", "messages",
        "role", "text", "system.message", "session.binary_asset", "model", "version",
    )  # fmt: skip


class TestQuillContract(FormatContract):
    """quill, the small agent of the tests."""

    form = QUILL.form
    known = types.MappingProxyType({**FORMATS, "quill": form})
    results = (1, "802de38a")
    samples = (Pages(),)
    never, free = frozenset({"id", "who", "call", "tool"}), frozenset({"use"})
    words = ("id", "who", "say", "user", "tool", "quill", "call", "use", "talk", "type")


class TestOpencodeContract(FormatContract):
    """Rows of opencode 1.18.33 and Kilo CLI 7.7.9."""

    form = FORMATS["opencode"]
    results = (2, "bf2449a3")
    samples = (Lines(OPENCODE, WHOLE), Lines(OPENCODE, FORK), Lines(KILO, KILO_SESSION))
    never = frozenset({
        "id", "session", "message", "role", "parent", "model", "type", "tool", "callID", "status",
        "title", "mime", "filename", "sessionID", "messageID", "sessionId", "snapshot",
    })  # fmt: skip
    free = frozenset({"input", "metadata"})
    words = (
        "row", "part", "id", "session", "message", "created", "role", "user", "parent", "finish",
        "type", "text", "reasoning", "tool", "file", "state", "status", "completed", "error",
        "running", "input", "output", "attachments", "url", "data:x", "mime", "image/png", "time",
        "compacted", "metadata", "anthropic", "signature", "interrupted", "synthetic", "ignored",
        "compaction", "tail_start_id", "step-finish", "tokens", "cache", "callID", "beside",
    )  # fmt: skip

    def test_positions_count_back_from_the_end(self, sample):
        """All parts of a message share its position."""
        data = sample.read_bytes()
        look, later = survey(self.form, data, 10**9), set()
        listed = [(at, entry) for at, _, _, entry in reversed(entries(data)) if not look.dead(at)]
        for offset, entry in listed:
            message = entry["row"]["message"]
            assert look.position(offset) == len(later - {message})
            later |= {message} if record(self.form, entry).is_message else set()

        assert len(later) > WINDOW


class TestClaudeCodeContract(FormatContract):
    """Claude Code 1.0 to 2.1.330, main and sub-agent sessions."""

    form = CLAUDE_CODE
    results = (11, "61494e98")
    twice = frozenset({"edge_010", "edge_011"})
    turnless = ("agent-",)  # the files of sub-agents: a turn belongs to the main session
    samples = (
        *sorted((SAMPLES / "claude-code").glob("*.jsonl")),
        *sorted((SAMPLES / "claude-code" / "projects").rglob("*.jsonl")),
    )
    never = frozenset({
        "uuid", "parentUuid", "logicalParentUuid", "sessionId", "session_id", "requestId", "id",
        "requestSessionId", "tool_use_id", "toolUseID", "parentToolUseID", "name", "role", "type",
        "stop_reason", "signature", "media_type", "agentId", "sourceToolAssistantUUID",
        "version", "cwd", "gitBranch", "filePath", "file_path", "persistedOutputPath", "status",
        "mode", "leafUuid", "lastPrompt", "timestamp",
    })  # fmt: skip
    free = frozenset()
    words = (
        "type", "uuid", "parentUuid", "message", "role", "content", "text", "user", "assistant",
        "tool_use", "tool_result", "tool_use_id", "id", "input", "name", "toolUseResult", "file",
        "attachment", "rendered", "progress", "data", "system", "subtype", "compact_boundary",
        "compactMetadata", "preservedSegment", "headUuid", "tailUuid", "preservedMessages",
        "uuids", "thinking", "signature", "redacted_thinking", "image", "source", "base64",
        "stop_reason", "end_turn", "isSidechain", "isMeta", "last-prompt", "leafUuid",
        "queue-operation", "operation", "enqueue", "content-replacement", "replacements",
        "toolUseId", "version", "2.0.76", "Read", "file_path", "structuredPatch", "origin", "kind",
        "task-notification", "forkedFrom", "sessionId", "requestSessionId", "isCompactSummary",
        "<persisted-output>\n\nPreview\nx", "x",
    )  # fmt: skip

    def test_positions_count_back_from_the_end(self, sample):
        """A call has the position of its result; the other lines of a reply share one position."""
        data = sample.read_bytes()
        look = survey(self.form, data, 10**9)
        by_offset = {offset: entry for offset, _, _, entry in entries(data)}
        replies, results, messages = {}, {}, 0
        for offset in sorted(look.positions, reverse=True):
            entry, at = by_offset[offset], look.position(offset)
            answered_calls = {call.call_id for call in self.form.read(entry).calls} & results.keys()
            blocks = entry.get("message", {}).get("content") or []
            reply = entry["type"] == "assistant" and entry["message"].get("id", entry["uuid"])
            if answered_calls:
                assert at == min(results[call] for call in answered_calls)
                messages += reply not in replies
                replies.setdefault(reply, messages - 1)
            elif reply:
                assert at == replies.setdefault(reply, messages)
                messages = max(messages, at + 1)
            else:
                counts = record(self.form, entry).is_message
                assert at == (messages if counts else max(messages - 1, 0))
                messages += counts
                results |= {block.get("tool_use_id"): at for block in blocks if "type" in block}

        assert messages
        assert messages <= WINDOW or survey(self.form, data).position(min(by_offset)) == OLD


def test_every_registered_format_has_a_contract_class():
    """Each format has a subclass of FormatContract, but for those with several entries a line."""
    changed = {name for name, form in FORMATS.items() if not form.repeats}
    without = changed - {contract.form.name for contract in FormatContract.__subclasses__()}

    assert not without, f"write a subclass of FormatContract for {sorted(without)}"
    assert {form.name: form for form in FORMATS.values()} == FORMATS


def test_configuration_accepts_every_format(tmp_path):
    """The key `format` of a root accepts every format."""
    file = tmp_path / "config.toml"
    for form in ("auto", *FORMATS):
        file.write_text(f'[[roots]]\npath = "/logs"\nformat = "{form}"\n')

        (root,) = load(str(file))[0].roots

        assert root.format == form
