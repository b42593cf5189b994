"""What every format promises, tried on real sessions, on traps and on made-up lines."""

import itertools
import json
import tempfile
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.formats import FORMATS, HEAD_LINES, recognise
from brainsurgeon.formats.openclaw import OpenClawRows
from brainsurgeon.formats.splice import locate, splice
from brainsurgeon.model.entries import (
    KINDS,
    OLD,
    placeholder_id,
    placeholder_named,
    placeholder_token,
    value_at,
)
from building.claw import GATEWAY, LOCAL, VERSIONS, Claw
from building.format_reading import WINDOW, entries, survey
from building.world import SAMPLES, dump

CLAUDE_CODE = FORMATS["claude-code"]
OPENCLAW = FORMATS["openclaw"]
GENERIC = FORMATS["generic"]
TRAPS = sorted((SAMPLES / "traps").glob("*.jsonl"))


class Events:
    """The events of one session, which OpenClaw wrote into a database, as lines."""

    def __init__(self, version, session):
        self.name = f"{version}-{session[-1]}"
        self._version, self._session = version, session

    def read_bytes(self):
        with tempfile.TemporaryDirectory() as place:
            texts = Claw(place, self._version).texts(self._session)
        return b"".join(text + b"\n" for text in texts)


def cut_everything(form, data):
    """Extract every part that is not locked, in every line.

    Give the new file and what was extracted.
    """
    look = survey(form, data)
    edits, cut = [], {}
    for offset, raw, number, entry in entries(data):
        ident = form.identity(entry, raw, number)
        going = [part for part in form.parts(entry, look, offset) if not part.locked]
        if ident is None or not going:
            continue
        places = locate(raw, [part.path for part in going])
        for part in going:
            start, end = places[part.path]
            token = part.instead or placeholder_token(
                placeholder_named(placeholder_id(ident)), block=part.block
            )
            edits.append((offset + start, offset + end, token))
        cut[number] = (placeholder_named(placeholder_id(ident)), going)
    return splice(data, edits), cut


def without(entry, taken):
    """Give the entry as text with None in the places that were extracted."""
    entry = json.loads(json.dumps(entry))
    for part in taken:
        value_at(entry, part.path[:-1])[part.path[-1]] = None
    return json.dumps(entry)


class FormatContract:
    """What every format owes. An adapter joins by naming itself, its samples and its words."""

    form = None
    # The formats among which it is recognised.
    known = FORMATS
    samples = ()
    # Keys that are never the end of a path, outside what a tool was given or gave.
    never = frozenset()
    # Keys below which a tool's own words begin.
    free = frozenset()
    # The format's keys and values, of which random entries are made.
    words = ()
    # Names that stand twice in a sample on purpose; the planner leaves such entries alone.
    twice = frozenset()

    def test_it_recognises_its_own_files(self, sample):
        """The first lines of a sample name this format."""
        head = sample.read_bytes().split(b"\n")[:HEAD_LINES]

        said = recognise(head, known=self.known)

        assert (said.form, said.reason, said.name) == (self.form, "", self.form.name)

    def test_a_part_is_a_real_value(self, sample):
        """Each part names a value that stands in the line, is not empty, and is as long as said."""
        data = sample.read_bytes()
        look = survey(self.form, data)
        seen = 0
        for offset, raw, _, entry in entries(data):
            found = list(self.form.parts(entry, look, offset))
            places = locate(raw, [part.path for part in found])
            for part in found:
                value = value_at(entry, part.path)
                seen += 1

                assert part.kind in KINDS
                assert part.chars > 0
                assert part.path in places
                if part.block:
                    assert isinstance(value, dict | list)
                elif not part.locked:
                    assert isinstance(value, str)
                    assert len(value) == part.chars
        assert seen

    def test_no_part_is_on_the_list_of_what_is_never_touched(self, sample):
        """No path ends in a key that the agent needs to read its own file."""
        data = sample.read_bytes()
        look = survey(self.form, data)

        for offset, _, _, entry in entries(data):
            for part in self.form.parts(entry, look, offset):
                assert self.free & set(part.path) or part.path[-1] not in self.never

    def test_parts_do_not_overlap(self, sample):
        """No two parts of an entry share a byte, so that all can be cut at once."""
        data = sample.read_bytes()
        look = survey(self.form, data)

        for offset, raw, _, entry in entries(data):
            found = [part.path for part in self.form.parts(entry, look, offset)]
            spans = sorted(locate(raw, found).values())

            assert len(spans) == len(found)
            assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))

    def test_identities_are_unique_and_usable(self, sample):
        """Each entry with parts has a name of its own, whose placeholder fits into the line."""
        data = sample.read_bytes()
        look = survey(self.form, data)
        names = [
            self.form.identity(entry, raw, number)
            for offset, raw, number, entry in entries(data)
            if list(self.form.parts(entry, look, offset))
        ]

        assert None not in names
        assert {name for name in names if names.count(name) > 1} <= self.twice
        assert all(
            json.loads(placeholder_token(placeholder_named(placeholder_id(name)), block=False))
            for name in names
        )

    def test_positions_count_back_from_the_end(self, sample):
        """From the last line back each message is one further away; others stand with the next."""
        data = sample.read_bytes()
        said = {offset: entry for offset, _, _, entry in entries(data)}
        look = survey(self.form, data)
        messages = 0
        for offset in sorted(look.positions, reverse=True):
            counts = self.form.counts(said[offset])

            assert look.position(offset) == (messages if counts else max(messages - 1, 0))
            messages += counts

        assert messages > WINDOW
        assert look.position(min(said)) == OLD

    @pytest.mark.parametrize("window", [0, 1, 10])
    def test_windows_agree(self, sample, window):
        """What a small window knows, a large one knows too, and says the same of it."""
        data = sample.read_bytes()
        large = survey(self.form, data, 10**9)
        small = survey(self.form, data, window)

        assert small.positions.items() <= large.positions.items()
        assert max(small.positions.values()) <= window
        assert {at for at, position in large.positions.items() if position < window} <= (
            small.positions.keys()
        )
        assert (small.open_turn, small.last_user) == (large.open_turn, large.last_user)

    def test_what_is_cut_passes_its_own_reading(self, sample):
        """With every part cut, the format reads the same entries, turn and positions as before."""
        before = sample.read_bytes()
        after, cut = cut_everything(self.form, before)
        old, new = entries(before), entries(after)
        was, now = survey(self.form, before, 10), survey(self.form, after, 10)

        assert cut
        assert len(after) < len(before)
        assert now.open_turn == was.open_turn
        for (old_at, old_raw, number, entry), (new_at, new_raw, _, fresh) in zip(
            old, new, strict=True
        ):
            taken = cut.get(number, ("", ()))[1]

            assert without(fresh, taken) == without(entry, taken)
            assert self.form.counts(fresh) == self.form.counts(entry)
            assert self.form.identity(fresh, new_raw, number) == self.form.identity(
                entry, old_raw, number
            )
            assert now.position(new_at) == was.position(old_at)

    def test_what_is_cut_is_never_cut_again(self, sample):
        """With every part cut, each part that the format still sees is a placeholder, or locked."""
        after, cut = cut_everything(self.form, sample.read_bytes())
        look = survey(self.form, after)

        for offset, _, number, entry in entries(after):
            for part in self.form.parts(entry, look, offset):
                value = value_at(entry, part.path)
                assert part.locked or value == cut[number][0]

    def test_calls_and_answers_are_what_stands_there(self, sample):
        """A call holds its arguments, an answer its text, both their call's id."""
        called, answered = set(), set()
        for _, _, _, entry in entries(sample.read_bytes()):
            for call in self.form.calls(entry):
                called.add(call.call_id)

                assert value_at(entry, call.path) == call.arguments
                assert self.form.anchor(entry, call.path) == call.call_id
            for answer in self.form.answers(entry):
                answered.add(answer.call_id)

                assert value_at(entry, answer.path) == answer.text
                assert self.form.anchor(entry, answer.path) == answer.call_id

        assert called
        assert answered <= called

    def test_no_line_of_a_trap_raises(self):
        """Whatever a line holds, the format has an answer."""
        for trap in TRAPS:
            data = trap.read_bytes()
            look = survey(self.form, data)
            for offset, raw, number, entry in entries(data):
                self.form.identity(entry, raw, number)
                self.form.counts(entry)
                list(self.form.parts(entry, look, offset))

    def test_no_entry_raises(self):
        """Whatever JSON an entry is made of, the format has an answer, and its parts are real."""

        @settings(max_examples=100, deadline=None)
        @given(st.lists(made_of(self.words), min_size=1, max_size=3))
        def check(lines):
            data = b"".join(dump(line) for line in lines)
            look = survey(self.form, data)
            recognise(data.split(b"\n"))
            self.form.refuses(lines[0])
            for offset, raw, number, entry in entries(data):
                self.form.identity(entry, raw, number)
                self.form.counts(entry)
                for call in self.form.calls(entry):
                    assert value_at(entry, call.path) is call.arguments
                for answer in self.form.answers(entry):
                    assert value_at(entry, answer.path) is answer.text
                for part in self.form.parts(entry, look, offset):
                    value = value_at(entry, part.path)
                    self.form.anchor(entry, part.path)
                    assert value
                    assert part.locked or isinstance(value, dict if part.block else str)
                    assert self.free & set(part.path) or part.path[-1] not in self.never

        check()


def made_of(words):
    """Give entries made of a format's own words, in places where nobody would write them."""
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
    """Hand each sample of a format to each promise of the contract."""
    if "sample" in metafunc.fixturenames:
        samples = metafunc.cls.samples
        metafunc.parametrize("sample", samples, ids=[sample.name[:24] for sample in samples])


class TestOpenClawContract(FormatContract):
    """OpenClaw of two versions, and pi."""

    form = OPENCLAW
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
    """OpenClaw's events as its databases hold them, of each layout, and what it wrote before."""

    form = OpenClawRows()
    known = types.MappingProxyType({"openclaw": form})
    samples = (
        *(Events(version, session) for version in VERSIONS for session in (GATEWAY, LOCAL)),
        *TestOpenClawContract.samples,
    )

    def test_what_an_index_holds_is_locked(self, sample):
        """No word of a user or an assistant may go, nor a block that would become one."""
        data = sample.read_bytes()
        look = survey(self.form, data)
        for offset, _, _, entry in entries(data):
            for part in self.form.parts(entry, look, offset):
                said = part.kind in ("user", "assistant")
                assert part.locked or not said
                assert part.locked or not part.block or part.kind == "tool_result"


class TestGenericContract(FormatContract):
    """Entries of no agent in particular."""

    form = GENERIC
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


class TestClaudeCodeContract(FormatContract):
    """Claude Code 1.0 to 2.1.330, sessions and sub-agents' files."""

    form = CLAUDE_CODE
    twice = frozenset({"edge_010", "edge_011"})
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
        """A reply is one message whatever its lines, and a call stands where its result stands."""
        data = sample.read_bytes()
        look = survey(self.form, data, 10**9)
        said = {offset: entry for offset, _, _, entry in entries(data)}
        replies, results, messages = {}, {}, 0
        for offset in sorted(look.positions, reverse=True):
            entry, at = said[offset], look.position(offset)
            asked = {call.call_id for call in self.form.calls(entry)} & results.keys()
            blocks = entry.get("message", {}).get("content") or []
            reply = entry["type"] == "assistant" and entry["message"].get("id", entry["uuid"])
            if asked:
                assert at == min(results[call] for call in asked)
                messages += reply not in replies
                replies.setdefault(reply, messages - 1)
            elif reply:
                assert at == replies.setdefault(reply, messages)
                messages = max(messages, at + 1)
            else:
                counts = self.form.counts(entry)
                assert at == (messages if counts else max(messages - 1, 0))
                messages += counts
                results |= {block.get("tool_use_id"): at for block in blocks if "type" in block}

        assert messages
        assert messages <= WINDOW or survey(self.form, data).position(min(said)) == OLD


def test_every_format_has_joined_the_contract():
    """A format in the registry is held to the contract: a class of a few lines above this test."""
    joined = {contract.form.name for contract in FormatContract.__subclasses__()}

    assert {form.name for form in FORMATS.values()} == joined
    assert {form.name: form for form in FORMATS.values()} == FORMATS
