"""What each format says of its files: one contract for all, then each dialect by itself."""

import contextlib
import itertools
import json
import tempfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.formats import FORMATS, HEAD_LINES, recognise
from brainsurgeon.formats.base import (
    image,
    leaves,
    parse,
    stands,
    stub_id,
    stub_text,
    stub_token,
    usable_id,
    value_at,
)
from brainsurgeon.formats.spans import locate, splice
from brainsurgeon.model import KINDS, OLD, Survey
from brainsurgeon.sessions.reading import FileLines
from conftest import SAMPLES, Conversation, dump

OPENCLAW = FORMATS["openclaw"]
GENERIC = FORMATS["generic"]
TRAPS = sorted((SAMPLES / "traps").glob("*.jsonl"))
WINDOW = 3
NOTHING_SEEN = Survey(WINDOW, {}, None)


@contextlib.contextmanager
def opened(data):
    """Open a real file that holds these bytes, and give its lines."""
    with tempfile.TemporaryFile() as handle:
        handle.write(data)
        handle.flush()
        yield FileLines(handle.fileno(), len(data))


def survey(form, data, window=WINDOW):
    """Look over a file that holds these bytes."""
    with opened(data) as lines:
        return form.survey(lines, window)


def entries(data):
    """Give every line that is an entry: its offset, its bytes, its number, and what it says."""
    with opened(data) as lines:
        return [
            (line.offset, line.raw, line.number, entry)
            for line in lines
            if line.raw and (entry := parse(line.raw)) is not None
        ]


def parts(form, entry, before_last_user=True):
    """Give the parts of an entry that stands before, or after, the last user message."""
    look = Survey(WINDOW, {}, None, last_user=1 if before_last_user else -1)
    return list(form.parts(entry, look, 0))


def paths(form, entry):
    """Give the paths of the parts that may be cut."""
    return {".".join(map(str, part.path)) for part in parts(form, entry) if not part.locked}


def cut_everything(form, data):
    """Cut every part that is not locked, in every line; give the new file and what was cut."""
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
            token = stub_token(stub_text(ident), block=part.block)
            edits.append((offset + start, offset + end, token))
        cut[number] = (stub_text(ident), going)
    return splice(data, edits), cut


def without(entry, taken):
    """Give the entry as text with None in the places that were cut."""
    entry = json.loads(json.dumps(entry))
    for part in taken:
        value_at(entry, part.path[:-1])[part.path[-1]] = None
    return json.dumps(entry)


class FormatContract:
    """What every format owes. An adapter joins by naming itself, its samples and its words."""

    form = None
    samples = ()
    never = frozenset()
    """Keys that are never the end of a path, outside what a tool was given or gave."""
    free = frozenset()
    """Keys below which a tool's own words begin."""
    words = ()
    """The format's keys and values, of which random entries are made."""

    def test_it_recognises_its_own_files(self, sample):
        """The first lines of a sample name this format."""
        head = sample.read_bytes().split(b"\n")[:HEAD_LINES]

        assert recognise(head) == (self.form, "")

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
                    assert isinstance(value, dict)
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
        """Every entry that has parts has a name of its own, and a stub that fits into the line."""
        data = sample.read_bytes()
        look = survey(self.form, data)
        names = [
            self.form.identity(entry, raw, number)
            for offset, raw, number, entry in entries(data)
            if list(self.form.parts(entry, look, offset))
        ]

        assert None not in names
        assert len(names) == len(set(names))
        assert all(json.loads(stub_token(stub_text(name), block=False)) for name in names)

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
        assert (small.open_turn, small.last_user, small.parent) == (
            large.open_turn, large.last_user, large.parent,
        )  # fmt: skip

    def test_what_is_cut_passes_its_own_reading(self, sample):
        """With every part cut, the format reads the same entries, turn and positions as before."""
        before = sample.read_bytes()
        after, cut = cut_everything(self.form, before)
        old, new = entries(before), entries(after)
        was, now = survey(self.form, before, 10), survey(self.form, after, 10)

        assert cut
        assert len(after) < len(before)
        assert now.open_turn == was.open_turn
        assert now.parent == was.parent
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
        """With every part cut, each part that the format still sees is a stub, or locked."""
        after, cut = cut_everything(self.form, sample.read_bytes())
        look = survey(self.form, after)

        for offset, _, number, entry in entries(after):
            for part in self.form.parts(entry, look, offset):
                value = value_at(entry, part.path)
                assert part.locked or stands(value, cut[number][0], block=False)

    def test_calls_and_answers_are_what_stands_there(self, sample):
        """A call holds its arguments, an answer its text and equal copies, both their call's id."""
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
                assert {value_at(entry, path).strip() for path in answer.copies} <= {
                    answer.text.strip()
                }

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
        SAMPLES / "pi" / "large-session.derived-v3.jsonl",
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


def test_every_format_has_joined_the_contract():
    """A format in the registry is held to the contract: a class of a few lines above this test."""
    joined = {contract.form.name for contract in FormatContract.__subclasses__()}

    assert {form.name for form in FORMATS.values()} == joined
    assert {form.name: form for form in FORMATS.values()} == FORMATS


# Recognition: the first parseable lines decide.

HEADER = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-01-01T00:00:00.000Z",
          "cwd": "/w"}  # fmt: skip
RESULT = {"type": "tool_result", "__id": "msg-1", "output": "x"}
META = {"timestamp": "t", "type": "session_meta", "payload": {"id": "thread"}}
CLAUDE = {"parentUuid": None, "sessionId": "s", "type": "user", "uuid": "u",
          "message": {"role": "user", "content": "hi"}}  # fmt: skip


@pytest.mark.parametrize(
    ("head", "hint", "form"),
    [
        ([HEADER], "auto", OPENCLAW),
        ([{**HEADER, "version": 2}], "auto", OPENCLAW),
        ([HEADER, RESULT], "openclaw", OPENCLAW),
        ([HEADER, CLAUDE], "auto", OPENCLAW),
        ([RESULT], "auto", GENERIC),
        ([RESULT], "generic", GENERIC),
        ([{"note": 1}, {"type": "message", "__id": 7, "role": "user", "text": "x"}],
         "auto", GENERIC),
        ([{"type": "tool_result", "id": "1", "output": "x"}], "generic", GENERIC),
    ],
)  # fmt: skip
def test_a_file_is_known_by_its_first_entries(head, hint, form):
    """Entries of a format that is supported name its adapter; a hint can only help."""
    assert recognise([dump(entry) for entry in head], hint) == (form, "")


@pytest.mark.parametrize(
    ("head", "hint", "reason"),
    [
        ([{key: HEADER[key] for key in ("type", "id", "cwd")}], "auto",
         "version 1: pi migrates it"),
        ([{**HEADER, "version": 1}], "auto", "version 1: pi migrates it"),
        ([{**HEADER, "version": 4}], "auto", "version 4 is not known"),
        ([{**HEADER, "version": "3"}], "auto", "version of an unknown kind is not known"),
        ([{**HEADER, "version": None}], "auto", "version of an unknown kind is not known"),
        ([{**HEADER, "version": [3]}], "auto", "version of an unknown kind is not known"),
        ([{**HEADER, "id": 7}], "auto", "not a session format that is known"),
        ([{"id": "s", "timestamp": "t", "instructions": None}, {"record_type": "state"}],
         "auto", "not a session format that is known"),
        ([{"type": []}, {"type": {}}], "auto", "not a session format that is known"),
        ([RESULT], "openclaw", "configured as openclaw, but the file is not"),
        ([HEADER], "codex", "configured as codex, but the file is not"),
    ],
)  # fmt: skip
def test_a_file_that_is_left_alone_says_why(head, hint, reason):
    """A version or a format that nobody here understands is left alone, with the reason."""
    form, why = recognise([dump(entry) for entry in head], hint)

    assert form is None
    assert reason in why


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        ([], "empty"),
        ([b"", b"  ", b"\r"], "empty"),
        ([b"{", b'  "sessionId": "x",'], "pretty-printed JSON"),
        ([b"[", b"  1"], "pretty-printed JSON"),
        ([b"hello", b"[1]", b'"text"', b"null", b'{"torn":'], "no JSON objects"),
        ([b'{"type":"session","version":3,"id":"\xff"}'], "no JSON objects"),
    ],
)
def test_lines_that_are_no_entries_are_no_session(head, reason):
    """What is not JSON lines is left alone, with the reason."""
    form, why = recognise(head)

    assert form is None
    assert reason in why


@pytest.mark.parametrize(
    ("head", "name"),
    [
        ([META], "codex"),
        ([CLAUDE], "claude-code"),
        ([{"type": "summary", "summary": "s", "leafUuid": "u"}], "claude-code"),
        ([{"type": "file-history-snapshot", "messageId": "m"}, CLAUDE], "claude-code"),
        ([{"type": "queue-operation", "operation": "enqueue"}], "claude-code"),
        ([{"type": "progress"}, RESULT], "claude-code"),
    ],
)
def test_files_of_other_agents_are_named(head, name):
    """Claude Code and Codex are known by their entries, and never taken for a generic file."""
    form, why = recognise([dump(entry) for entry in head])

    if name in FORMATS:
        assert form is FORMATS[name] or why
    else:
        assert (form, why) == (None, f"format {name} is not supported yet")


def test_a_mark_of_byte_order_and_lines_that_do_not_parse_are_passed_over():
    """The first entry that parses decides, as it does for pi."""
    form, _ = recognise([b"\xef\xbb\xbf" + dump(HEADER)])
    other, _ = recognise([b"", b'{"torn', b"7", dump(HEADER)])

    assert form is OPENCLAW
    assert other is OPENCLAW


# Parsing a line and naming its entry.


@pytest.mark.parametrize(
    ("raw", "entry"),
    [
        (b'{"a":"\\ud83d"}', {"a": "\ud83d"}),
        (b'{"a":1}\r', {"a": 1}),
        (b'{"a":' + b"9" * 5000 + b"}", {"a": float("inf")}),
        (b'{"a":1e400}', {"a": float("inf")}),
        (b'{"a":1,"a":2}', {"a": 2}),
        ('{"a":"\u2028"}'.encode(), {"a": "\u2028"}),
        (b'{"a":"\xff"}', None),
        (b'{"a":"\xed\xa0\xbd"}', None),
        (b'{"a":NaN}', None),
        (b'{"a":-Infinity}', None),
        (b'{"a":"\x00"}', None),
        (b'{"a":1}{"b":2}', None),
        (b"[1]", None),
        (b'"text"', None),
        (b"null", None),
        (b"", None),
        (b'{"a":', None),
        (b'{"a":' + b"[" * 100_000, None),
        (b"\xef\xbb\xbf{}", None),
    ],
)
def test_a_line_is_one_object_or_it_is_left_alone(raw, entry):
    """What agents do write is read; what is not one JSON object is nobody's entry."""
    assert parse(raw) == entry


def test_no_line_of_a_trap_stops_the_reader():
    """Every line of every trap parses to an entry or to nothing."""
    seen = 0
    for trap in TRAPS:
        for raw in trap.read_bytes().split(b"\n"):
            entry = parse(raw)
            seen += 1
            assert entry is None or isinstance(entry, dict)

    assert seen > 100


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("4f9d2a11", "4f9d2a11"), (7, "7"), (0, "0"), ("", None), (None, None), (True, None),
        (1.5, None), ([], None), ("\ud83d", None), ("x" * 1024, "x" * 1024), ("x" * 1025, None),
    ],
)  # fmt: skip
def test_a_name_is_text_that_can_be_kept(value, name):
    """An id that cannot be stored, or is no id, names nothing."""
    assert usable_id(value) == name


@pytest.mark.parametrize(
    "ident", ["]] ../x\n", "~tilde", "a b", "é", "", "x" * 129, "[[extracted-x]]", "a/b"]
)
def test_an_odd_id_stands_under_another_name(ident):
    """What is not URL-safe is replaced by a stable id that starts with ~, unlike any real one."""
    name = stub_id(ident)

    assert name == stub_id(ident)
    assert name[0] == "~"
    assert name[1:].isalnum()
    assert name not in {stub_id(f"{ident}."), stub_id(f"{ident}x")}


def test_a_plain_id_stands_as_it_is():
    """A URL-safe id of at most 128 characters is the stub's own."""
    assert stub_text("4f9d2a11") == "[[extracted-4f9d2a11]]"
    assert stub_id("A.b_c-9" + "x" * 121) == "A.b_c-9" + "x" * 121
    assert stub_token("[[extracted-a]]", block=True) == b'{"type":"text","text":"[[extracted-a]]"}'


def test_strings_below_a_value_are_found_down_to_a_depth():
    """Empty strings, numbers and what lies deeper than 32 steps are no parts."""
    deep = "deep"
    for _ in range(40):
        deep = [deep]
    value = {"a": "x", "b": ["", {"c": "yy"}], "n": 7, "none": None, "deep": deep}

    found = [(part.path, part.chars) for part in leaves(value, ("top",), "tool_result", "exec")]

    assert found == [(("top", "a"), 1), (("top", "b", 1, "c"), 2)]


@pytest.mark.parametrize(
    ("block", "chars"),
    [
        ({"type": "image", "data": "aGk=", "mimeType": "image/png"}, 4),
        ({"type": "image", "source": {"type": "base64", "data": "aGk="}}, 4),
        ({"type": "image", "data": ""}, None),
        ({"type": "image", "source": {"type": "url", "url": "https://example.org"}}, None),
        ({"type": "image", "source": None}, None),
    ],
)
def test_an_image_goes_as_a_whole_block(block, chars):
    """A stub inside base64 is refused by every provider, so that the block gives way to a text."""
    found = list(image(block, ("content", 0), "user", None))

    assert [(part.path, part.chars, part.block) for part in found] == (
        [(("content", 0), chars, True)] if chars else []
    )


# OpenClaw and pi: the parts.


def message(role, content=None, **fields):
    """Give an OpenClaw entry."""
    body = {"role": role, **fields} if content is None else {"role": role, "content": content}
    return {"type": "message", "id": "a1", "parentId": None, "message": {**body, **fields}}


def thinking(api, signature=None, **fields):
    """Give an assistant message that thinks."""
    block = {"type": "thinking", "thinking": "hm" * 300, **fields}
    if signature is not None:
        block["thinkingSignature"] = signature
    return message("assistant", [block], api=api, stopReason="stop")


TEXT = {"type": "text", "text": "words"}
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


@pytest.mark.parametrize(
    ("entry", "kind", "tool", "found"),
    [
        (message("user", "a plain string"), "user", None, {"message.content"}),
        (message("user", [TEXT]), "user", None, {"message.content.0.text"}),
        (message("user", [TEXT, IMAGE]), "user", None,
         {"message.content.0.text", "message.content.1"}),
        (message("assistant", [TEXT]), "assistant", None, {"message.content.0.text"}),
        (message("assistant", "a plain string"), "assistant", None, {"message.content"}),
        (message("custom", "words"), "custom", None, {"message.content"}),
        (message("bashExecution", command="ls", output="words"), "tool_result", "bash",
         {"message.output"}),
        (message("toolResult", [TEXT, IMAGE], toolName="read"), "tool_result", "read",
         {"message.content.0.text", "message.content.1"}),
        (message("toolResult", [TEXT], toolName="exec", details={
            "status": "completed", "exitCode": 0, "aggregated": "words", "cwd": "/w",
            "truncation": {"content": "words", "truncated": True}}), "tool_result", "exec",
         {"message.content.0.text", "message.details.status", "message.details.aggregated",
          "message.details.cwd", "message.details.truncation.content"}),
        ({"type": "custom_message", "id": "a1", "content": "words"}, "custom", None, {"content"}),
        ({"type": "custom_message", "id": "a1", "content": [TEXT]}, "custom", None,
         {"content.0.text"}),
    ],
)  # fmt: skip
def test_openclaw_names_what_may_be_cut(entry, kind, tool, found):
    """Content of either shape, details with their copies, and images are parts of their kind."""
    listed = parts(OPENCLAW, entry)

    assert {".".join(map(str, part.path)) for part in listed} == found
    assert {(part.kind, part.tool, part.locked) for part in listed} == {(kind, tool, None)}
    assert {part.path[-1] for part in listed if part.block} <= {1}


def test_openclaw_never_touches_the_copies_of_a_call_that_it_parses():
    """The strings of `arguments` may go; `partialArgs`, `partialJson`, id and name stay."""
    call = {"type": "toolCall", "id": "call_1|fc_1", "name": "write",
            "arguments": {"path": "/w/a", "edits": [{"newText": "words"}], "n": 1},
            "partialArgs": '{"path":"/w/a"}', "partialJson": '{"path":"/w/a"}'}  # fmt: skip
    entry = message("assistant", [call], stopReason="toolUse")

    assert {(part.kind, part.tool) for part in parts(OPENCLAW, entry)} == {("tool_call", "write")}
    assert paths(OPENCLAW, entry) == {
        "message.content.0.arguments.path", "message.content.0.arguments.edits.0.newText",
    }  # fmt: skip


def test_openclaw_leaves_the_arguments_of_a_call_that_its_provider_signed():
    """Gemini may verify what its `thoughtSignature` signed, so that such a call stays whole."""
    call = {"type": "toolCall", "id": "call_1", "name": "write", "thoughtSignature": "c2ln",
            "arguments": {"path": "/w/a"}}  # fmt: skip
    (part,) = parts(OPENCLAW, message("assistant", [call], stopReason="toolUse"))

    assert part.locked == "call signed by its provider"


@pytest.mark.parametrize("arguments", ['{"path":"/w/a"}', None, ["words"], 7])
def test_openclaw_leaves_arguments_that_are_no_object(arguments):
    """Arguments kept as text are JSON to somebody; a bare stub would not be."""
    call = {"type": "toolCall", "id": "call_1", "name": "write", "arguments": arguments}

    assert parts(OPENCLAW, message("assistant", [call])) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "session", "version": 3, "id": "s", "cwd": "words" * 200},
        {"type": "compaction", "id": "c", "summary": "words", "details": {"readFiles": ["words"]}},
        {"type": "branch_summary", "id": "b", "fromId": "a", "summary": "words"},
        {"type": "custom", "id": "c", "customType": "model-snapshot", "data": {"text": "words"}},
        {"type": "label", "id": "l", "targetId": "a", "label": "words"},
        {"type": "model_change", "id": "m", "provider": "words", "modelId": "words"},
        {"type": "session_info", "id": "i", "name": "words"},
        {"type": "leaf", "id": "l", "targetId": "a", "message": {"role": "user", "content": "x"}},
        {"type": "metadata", "id": "x", "message": {"role": "user", "content": "words"}},
        {"type": "message", "id": "m", "message": "words"},
        {"type": "message", "id": "m", "message": {"role": "hookMessage", "content": "words"}},
        {"type": "message", "id": "m", "message": {"content": "words"}},
        {"message": {"role": "user", "content": "words"}},
    ],
)
def test_openclaw_has_no_parts_in_anything_else(entry):
    """Headers, summaries, labels, state and unknown types are carried along whole."""
    assert parts(OPENCLAW, entry) == []


@pytest.mark.parametrize(
    "api",
    ["anthropic-messages", "bedrock-converse-stream", "openai-responses", "openai-completions",
     "google-generative-ai", "somebody-else", None],
)  # fmt: skip
def test_unsigned_thinking_is_cut_in_place(api):
    """Thinking without a signature is plain text to every provider, before and after a prompt."""
    for before in (True, False):
        (part,) = parts(OPENCLAW, thinking(api), before_last_user=before)

        assert part.path == ("message", "content", 0, "thinking")
        assert (part.kind, part.chars, part.block, part.locked) == ("thinking", 600, False, None)


@pytest.mark.parametrize("api", ["anthropic-messages", "bedrock-converse-stream"])
def test_thinking_that_anthropic_signed_leaves_as_a_block_or_not_at_all(api):
    """Text and signature leave together, and only in turns before the last user message.

    pi-ai providers/anthropic.js sends the pair as it is; a changed text is refused with 400.
    """
    entry = thinking(api, "EqQBCkYIBRgC")

    (before,) = parts(OPENCLAW, entry, before_last_user=True)
    (after,) = parts(OPENCLAW, entry, before_last_user=False)

    assert (before.path, before.block, before.locked) == (("message", "content", 0), True, None)
    assert after.locked == "signed thinking of the last turn"


@pytest.mark.parametrize(
    ("api", "signature"),
    [
        ("openai-responses", '{"type":"reasoning","id":"rs_1","encrypted_content":"x"}'),
        ("openai-codex-responses", '{"type":"reasoning","id":"rs_1"}'),
        ("azure-openai-responses", "rs_1"),
        ("google-generative-ai", "c2lnbmVk"),
        ("google-vertex", "c2lnbmVk"),
        ("google-vertex", "reasoning_content"),
        ("openai-completions", '[{"type":"reasoning.encrypted"}]'),
        ("openai-completions", {"id": "rs_1"}),
        ("somebody-else", "c2lnbmVk"),
        (None, "c2lnbmVk"),
    ],
)  # fmt: skip
def test_thinking_that_others_signed_stays(api, signature):
    """Whoever else verifies or pairs a signature gets it back with its text (pi-ai providers)."""
    (part,) = parts(OPENCLAW, thinking(api, signature))

    assert part.locked == "thinking signed by its provider"


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning", "reasoning_text"])
def test_the_name_of_a_field_is_no_signature(name):
    """openai-completions keeps the name of the provider's field there: the text may go.

    The name stays (pi-ai providers/openai-completions.js writes the text under it).
    """
    assert paths(OPENCLAW, thinking("openai-completions", name)) == {"message.content.0.thinking"}


@pytest.mark.parametrize("api", ["anthropic-messages", "openai-completions", None])
def test_redacted_thinking_stays(api):
    """A block that the provider redacted is opaque and stays whole."""
    (part,) = parts(OPENCLAW, thinking(api, "c2lnbmVk", redacted=True))

    assert part.locked == "redacted thinking"


def test_thinking_without_text_is_no_part():
    """An empty thought has nothing to cut, whoever signed it."""
    assert parts(OPENCLAW, thinking("anthropic-messages", "c2lnbmVk", thinking="")) == []
    assert parts(OPENCLAW, thinking("anthropic-messages", "c2lnbmVk", thinking=7)) == []


@pytest.mark.parametrize(
    ("entry", "counts"),
    [
        (message("user", "x"), True),
        (message("assistant", []), True),
        (message("toolResult", []), True),
        (message("bashExecution"), True),
        (message("custom", "x"), True),
        ({"type": "custom_message", "content": "x"}, True),
        ({"type": "compaction", "summary": "x"}, False),
        ({"type": "custom", "data": {}}, False),
        ({"type": "label"}, False),
        ({"type": "session"}, False),
        ({"type": "leaf"}, False),
        ({"type": "message", "message": {"role": "other"}}, False),
        ({"type": "message"}, False),
    ],
)
def test_openclaw_counts_what_is_a_step_of_the_conversation(entry, counts):
    """Messages of every role and custom messages count; control entries do not."""
    assert OPENCLAW.counts(entry) is counts


def test_openclaw_names_entries_by_their_id_and_the_header_not_at_all():
    """The header's id is the session's; an entry without an id cannot be named."""
    assert OPENCLAW.identity(message("user", "x"), b"", 2) == "a1"
    assert OPENCLAW.identity(HEADER, b"", 1) is None
    assert OPENCLAW.identity({"type": "message"}, b"", 2) is None


def test_openclaw_pairs_calls_with_their_answers_and_copies():
    """A call and its answer name the same call; `details.aggregated` is found as the copy it is."""
    call = {"type": "toolCall", "id": "call_1", "name": "exec", "arguments": {"command": "ls"}}
    asked = message("assistant", [TEXT, call, {**call, "id": "call_2", "arguments": "text"}])
    told = message("toolResult", [{"type": "text", "text": "a\n"}, IMAGE], toolCallId="call_1",
                   details={"aggregated": "a", "cwd": "b"})  # fmt: skip

    (made,) = OPENCLAW.calls(asked)
    (answer,) = OPENCLAW.answers(told)

    assert (made.path, made.call_id) == (("message", "content", 1, "arguments"), "call_1")
    assert (answer.path, answer.call_id) == (("message", "content", 0, "text"), "call_1")
    assert answer.copies == (("message", "details", "aggregated"),)
    assert list(OPENCLAW.answers(asked)) == list(OPENCLAW.calls(told)) == []
    assert OPENCLAW.anchor(asked, made.path) == OPENCLAW.anchor(told, answer.path) == "call_1"
    assert OPENCLAW.anchor(asked, ("message", "content", 0, "text")) is None


# OpenClaw and pi: is the last turn closed?


def last_turn(*steps):
    """Build a session that ends as `steps` do it, and say what keeps its last turn open."""
    conversation = Conversation()
    conversation.turn()
    for step in steps:
        step(conversation)
    return survey(OPENCLAW, conversation.bytes()).open_turn


def says(role, **fields):
    """Give a step that adds a message of this role."""
    return lambda conversation: conversation.entry(message={"role": role, **fields})


def adds(kind, **fields):
    """Give a step that adds an entry of another type."""
    return lambda conversation: conversation.entry(kind, **fields)


def stops(reason, content="done."):
    """Give a step in which the assistant stops for this reason."""
    return lambda conversation: conversation.assistant(content, stop=reason)


def calls(stop="toolUse"):
    """Give a step in which the assistant calls a tool."""
    return lambda conversation: conversation.assistant(
        [{"type": "toolCall", "id": "call_1", "name": "exec", "arguments": {}}], stop=stop
    )


@pytest.mark.parametrize("reason", ["stop", "length", "error", "aborted"])
def test_a_turn_that_stopped_is_closed(reason):
    """An assistant that stopped, however, without calling a tool closes the turn."""
    assert last_turn(stops(reason)) is None
    assert last_turn(stops(reason, [])) is None


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ([says("user", content="go on")], "a user message"),
        ([says("toolResult", toolCallId="c", toolName="exec", content=[], isError=False)],
         "a tool result"),
        ([calls()], "a tool call"),
        ([calls("aborted")], "a tool call"),
        ([stops("toolUse")], "has not stopped"),
        ([stops(None)], "has not stopped"),
        ([stops([])], "has not stopped"),
        ([stops("something new")], "has not stopped"),
        ([stops("stop"), says("user", content="and")], "a user message"),
    ],
)  # fmt: skip
def test_a_turn_that_has_not_stopped_is_open(steps, reason):
    """A prompt, a call, a result or an assistant that goes on keeps the turn open."""
    assert reason in last_turn(*steps)


AFTERTHOUGHTS = [
    adds("label", targetId="x", label="here"),
    adds("custom", customType="model-snapshot", data={}),
    adds("model_change", provider="p", modelId="m"),
    adds("thinking_level_change", thinkingLevel="off"),
    adds("session_info", name="n"),
    adds("leaf", targetId="00000001"),
    adds("compaction", summary="s", firstKeptEntryId="00000001"),
    adds("branch_summary", summary="s", fromId="00000001"),
    adds("custom_message", content="words"),
    says("bashExecution", command="ls", output="words"),
    says("custom", content="words"),
    lambda conversation: conversation.lines.append("a bare string"),
    lambda conversation: conversation.lines.append(["a list"]),
]


@pytest.mark.parametrize("after", range(len(AFTERTHOUGHTS)))
def test_what_is_no_step_of_a_turn_is_passed_over(after):
    """Labels, state, summaries, bash executions and custom messages change nothing."""
    assert last_turn(stops("stop"), AFTERTHOUGHTS[after]) is None
    assert "a user message" in last_turn(says("user", content="go"), AFTERTHOUGHTS[after])


def test_an_unterminated_line_counts_when_it_parses_and_is_a_write_when_not():
    """A last line without its newline says what it says; torn, it says that a write goes on."""
    conversation = Conversation()
    conversation.turn()
    closed = conversation.bytes()[:-1]
    conversation.user()
    opened_again = conversation.bytes()[:-1]

    assert survey(OPENCLAW, closed).open_turn is None
    assert "a user message" in survey(OPENCLAW, opened_again).open_turn
    for torn in (closed[:-1], closed[:-40], opened_again[:-1], closed + b"\n{", closed + b"\n\xff"):
        assert "torn" in survey(OPENCLAW, torn).open_turn


def test_a_broken_line_in_the_middle_is_passed_over():
    """A line that ended and does not parse is no write under way."""
    conversation = Conversation()
    conversation.turn()

    assert survey(OPENCLAW, conversation.bytes() + b'{"torn":\n').open_turn is None
    assert survey(OPENCLAW, conversation.bytes() + b"\n\n").open_turn is None


def test_a_turn_is_judged_off_the_branch_too():
    """Whatever a leaf control selects, a prompt that stands last in the file is being answered."""
    root = adds("leaf", targetId=None)
    words = [adds("custom_message", content="words")] * (WINDOW + 2)

    assert "a user message" in last_turn(says("user", content="go"), root)
    assert "a user message" in last_turn(says("user", content="go"), *words)
    assert last_turn(stops("stop"), root) is None


def test_a_file_without_messages_has_no_open_turn():
    """Nothing has begun where only a header stands, or nothing at all."""
    assert survey(OPENCLAW, dump(HEADER)) == Survey(WINDOW, {}, None)
    assert survey(OPENCLAW, b"") == Survey(WINDOW, {}, None)


def test_a_fork_names_the_session_it_came_from():
    """`parentSession` of the header is the parent, behind a mark of byte order too."""
    parent = "/agents/main/sessions/parent.jsonl"
    data = Conversation(parentSession=parent).bytes()

    assert survey(OPENCLAW, data).parent == parent
    assert survey(OPENCLAW, b"\xef\xbb\xbf" + data).parent == parent
    assert survey(OPENCLAW, Conversation(parentSession=7).bytes()).parent is None


# OpenClaw and pi: the active branch.


def positions(lines, window=WINDOW):
    """Give the position of every entry by its id; None for what is old."""
    data = b"".join(dump(line) for line in lines)
    look = survey(OPENCLAW, data, window)
    return {
        entry.get("id"): None if look.position(offset) == OLD else look.position(offset)
        for offset, _, _, entry in entries(data)
        if entry.get("type") != "session"
    }


def node(ident, parent, kind="message", **fields):
    """Give an entry of the tree: a user message, or of another type."""
    body = {"message": {"role": "user", "content": "x"}} if kind == "message" else {}
    return {"type": kind, "id": ident, "parentId": parent, **body, **fields}


CHAIN = [node("a", None), node("b", "a"), node("c", "b")]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        pytest.param([], {"a": 2, "b": 1, "c": 0}, id="a chain"),
        pytest.param([node("d", "a")], {"a": 1, "b": None, "c": None, "d": 0}, id="a branch"),
        pytest.param([node("l", "c", "label")], {"a": 2, "b": 1, "c": 0, "l": 0}, id="a label"),
        pytest.param([node("k", "c", "compaction"), node("d", "k")],
                     {"a": 3, "b": 2, "c": 1, "k": 0, "d": 0}, id="a compaction"),
        pytest.param([node("l", "c", "leaf", targetId="a")],
                     {"a": 0, "b": None, "c": None, "l": None}, id="a leaf control"),
        pytest.param([node("l", "c", "leaf", targetId="a"), node("d", "a")],
                     {"a": 1, "b": None, "c": None, "l": None, "d": 0}, id="after a leaf control"),
        pytest.param([node("l", "c", "leaf", targetId="a"), node("d", "l")],
                     {"a": 1, "b": None, "c": None, "l": None, "d": 0}, id="through the control"),
        pytest.param([node("l", "c", "leaf", targetId=None)],
                     {"a": None, "b": None, "c": None, "l": None}, id="a leaf control to nothing"),
        pytest.param([node("l", "c", "leaf", targetId=None), node("d", None)],
                     {"a": None, "b": None, "c": None, "l": None, "d": 0}, id="a fresh root"),
        pytest.param([node("s", "c", appendMode="side")],
                     {"a": 2, "b": 1, "c": 0, "s": None}, id="a side append"),
        pytest.param([node("s", "c", appendMode="side"), node("d", "c")],
                     {"a": 3, "b": 2, "c": 1, "s": None, "d": 0}, id="after a side append"),
        pytest.param([node("s", "b", appendMode="side"), node("d", "s")],
                     {"a": 3, "b": 2, "c": 1, "s": None, "d": 0}, id="the cursor at a side append"),
        pytest.param([node("l", "c", "leaf", targetId="c", appendParentId="a"), node("d", "a")],
                     {"a": 3, "b": 2, "c": 1, "l": None, "d": 0}, id="the cursor beside the leaf"),
        pytest.param([node("l", "c", "leaf", targetId="c", appendParentId=None), node("d", None)],
                     {"a": 3, "b": 2, "c": 1, "l": None, "d": 0}, id="the cursor at the root"),
        pytest.param([node("p", "c", "plugin-metadata"), node("d", "p")],
                     {"a": 3, "b": 2, "c": 1, "p": None, "d": 0}, id="an unknown type"),
        pytest.param([node("p", "a", "plugin-metadata"), node("d", "c"), node("e", "p")],
                     {"a": 1, "b": None, "c": None, "p": None, "d": None, "e": 0},
                     id="a branch from an unknown type"),
        pytest.param([{"type": "message", "id": "d", "message": {"role": "user", "content": "x"}}],
                     {"a": 3, "b": 2, "c": 1, "d": 0}, id="an entry without a parent"),
        pytest.param([node("d", 7)], {"a": 2, "b": 1, "c": 0, "d": None}, id="no parent at all"),
        pytest.param([node("", "c")], {"a": 2, "b": 1, "c": 0, "": None}, id="no id"),
        pytest.param([node("d", "gone")], {"a": None, "b": None, "c": None, "d": 0},
                     id="a parent that is gone"),
        pytest.param([node("d", "d")], {"a": None, "b": None, "c": None, "d": 0}, id="a loop"),
    ],
)  # fmt: skip
def test_positions_follow_the_active_branch(more, expected):
    """What is not on the way from the leaf to the root is old, however young it is.

    openclaw 2026.7.35 `transcript-tree`: a leaf control selects its target; a side append or an
    entry of an unknown type moves the cursor but not the leaf.
    """
    assert positions([HEADER, *CHAIN, *more], window=10) == expected


def active(lines):
    """Walk the tree forwards, as openclaw's `scanSessionTranscriptTree` reads it."""
    known, leaf, cursor = {}, None, None
    for entry in lines:
        ident, kind = entry["id"], entry["type"]
        moves = kind != "plugin-metadata" and entry.get("appendMode") != "side"
        if kind == "leaf":
            target, after = entry["targetId"], entry.get("appendParentId", entry["targetId"])
            known[ident] = (entry, target)
            leaf, cursor = target, after
            continue
        parent = entry.get("parentId", leaf)
        if kind != "plugin-metadata":
            if "parentId" in entry and entry.get("appendMode") != "side" and parent == cursor:
                parent = leaf
            while parent in known and known[parent][0]["type"] == "leaf":
                parent = known[parent][1]
        known[ident] = (entry, parent)
        cursor = ident
        leaf = ident if moves else leaf
    branch = []
    while leaf in known:
        entry, leaf = known[leaf]
        branch.append(entry)
    return branch


@st.composite
def trees(draw):
    """Grow a session file entry by entry: any type, anywhere on the tree."""
    lines = []
    for number in range(draw(st.integers(1, 14))):
        idents = [entry["id"] for entry in lines]
        place = st.sampled_from([None, *idents, *idents[-1:] * 3])
        kind = draw(st.sampled_from(("message", "message", "message", "label", "leaf",
                                     "plugin-metadata")))  # fmt: skip
        entry = node(f"n{number}", draw(place), kind)
        if kind == "leaf":
            entry["targetId"] = draw(place)
            if draw(st.booleans()):
                entry["appendParentId"] = draw(place)
        elif draw(st.integers(0, 5)) == 0:
            entry["appendMode"] = "side"
        elif kind == "message" and draw(st.integers(0, 5)) == 0:
            del entry["parentId"]
        lines.append(entry)
    return lines


@settings(max_examples=300, deadline=None)
@given(trees())
def test_the_walk_back_finds_the_branch_that_openclaw_sends(lines):
    """Walking back from the end finds what reading the whole tree forwards finds."""
    expected, messages = {}, 0
    for entry in active(lines):
        counts = entry["type"] == "message"
        if entry["type"] in ("message", "label"):
            expected[entry["id"]] = messages if counts else max(messages - 1, 0)
        messages += counts

    found = {key: value for key, value in positions(lines, 100).items() if value is not None}

    assert found == expected


def test_the_last_user_message_is_the_one_that_is_sent():
    """A prompt off the active branch opens no turn: what was signed since the real one stays."""
    conversation = Conversation()
    conversation.user("the prompt")
    block = {"type": "thinking", "thinking": "hm", "thinkingSignature": "c2lnbmVk"}
    conversation.assistant([block, TEXT], api="anthropic-messages")
    answer = conversation.last
    before = conversation.bytes()
    conversation.user("a prompt that was taken back")
    conversation.entry("leaf", targetId=answer)
    after = conversation.bytes()

    for data in (before, after):
        look = survey(OPENCLAW, data)
        (offset, _, _, entry) = entries(data)[2]
        (locked,) = [part for part in OPENCLAW.parts(entry, look, offset) if part.locked]

        assert locked.locked == "signed thinking of the last turn"


def test_the_last_user_message_is_found_however_far_back():
    """A long turn does not hide the prompt that opened it."""
    conversation = Conversation()
    conversation.user("the prompt")
    for _ in range(50):
        conversation.call()
        conversation.result('a result that says "user"')
    data = conversation.bytes()

    assert survey(OPENCLAW, data, window=2).last_user == entries(data)[1][0]


# Generic entries.


@pytest.mark.parametrize(
    ("entry", "kind", "found"),
    [
        ({"type": "tool_result", "output": "x"}, "tool_result", {"output"}),
        ({"type": "tool_result", "content": "x"}, "tool_result", {"content"}),
        ({"type": "tool_result", "text": "x"}, "tool_result", {"text"}),
        ({"type": "tool_result", "result": {"stdout": "x", "code": 0, "lines": ["y", 1]}},
         "tool_result", {"result.stdout", "result.lines.0"}),
        ({"type": "tool_result", "data": "x", "note": "y"}, "tool_result", {"data"}),
        ({"type": "tool_result", "message": "x"}, "tool_result", {"message"}),
        ({"type": "tool_result", "message": {"role": "tool", "content": "x"}}, "tool_result",
         {"message.content"}),
        ({"type": "message", "message": {"role": "tool", "content": "x"}}, "tool_result",
         {"message.content"}),
        ({"type": "message", "message": {"role": "user", "content": "x"}}, "user",
         {"message.content"}),
        ({"type": "message", "role": "assistant", "content": [{"type": "text", "text": "x"}]},
         "assistant", {"content.0.text"}),
        ({"type": "message", "role": "system", "text": "x"}, "system", {"text"}),
        ({"type": "thinking", "thinking": "x"}, "thinking", {"thinking"}),
        ({"type": "custom", "text": "x"}, "custom", {"text"}),
        ({"type": "user", "text": "x"}, "user", {"text"}),
        ({"type": "tool_call", "name": "write", "arguments": {"path": "/w", "content": "x"}},
         "tool_call", {"arguments.path", "arguments.content"}),
        ({"type": "tool_result", "arguments": {"path": "/w"}, "output": "x"}, "tool_result",
         {"output"}),
        ({"type": "tool_result", "content": [{"stdout": "x"}, "y", 7]}, "tool_result",
         {"content.0.stdout", "content.1"}),
    ],
)  # fmt: skip
def test_generic_names_what_may_be_cut(entry, kind, found):
    """The strings below the value keys, at the top level and inside `message`, are parts."""
    assert paths(GENERIC, entry) == found
    assert {part.kind for part in parts(GENERIC, entry)} == {kind}


@pytest.mark.parametrize(
    "entry",
    [
        {"type": "message", "role": "narrator", "text": "x"},
        {"type": "message", "message": {"content": "x"}},
        {"type": "message", "message": "x"},
        {"type": "note", "text": "x"},
        {"text": "x"},
        {"type": ["tool_result"], "text": "x"},
        {"type": "message", "role": ["user"], "text": "x"},
    ],
)
def test_generic_has_no_parts_in_what_maps_to_no_kind(entry):
    """An entry without a kind neither counts nor has parts."""
    assert parts(GENERIC, entry) == []
    assert GENERIC.counts(entry) is False


def blocks(*content, **fields):
    """Give a generic assistant message of these blocks."""
    body = {"role": "assistant", "content": list(content)}
    return {"type": "message", "__id": "m", "message": body, **fields}


@pytest.mark.parametrize(
    ("block", "kind", "found"),
    [
        ({"type": "text", "text": "x"}, "assistant", {"text"}),
        ({"type": "thinking", "thinking": "x"}, "thinking", {"thinking"}),
        ({"type": "tool_use", "id": "t", "name": "read", "input": {"path": "x"}}, "tool_call",
         {"input.path"}),
        ({"type": "toolCall", "id": "t", "name": "read", "arguments": {"path": "x"}}, "tool_call",
         {"arguments.path"}),
        ({"type": "tool_result", "tool_use_id": "t", "content": "x"}, "tool_result", {"content"}),
        ({"type": "tool_result", "tool_use_id": "t", "content": [TEXT, TEXT]}, "tool_result",
         {"content.0.text", "content.1.text"}),
        ({"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}, "tool_result",
         {"content.0"}),
        (IMAGE, "assistant", {""}),
    ],
)  # fmt: skip
def test_generic_looks_into_blocks_as_agents_write_them(block, kind, found):
    """Blocks of a content have the shape that providers read: their `type` and ids stay."""
    entry = blocks(block)
    inner = block.get("content") if isinstance(block.get("content"), list) else []

    assert paths(GENERIC, entry) == {f"message.content.0.{end}".rstrip(".") for end in found}
    assert {part.kind for part in parts(GENERIC, entry)} == {kind}
    assert {part.block for part in parts(GENERIC, entry)} == {IMAGE in (block, *inner)}


@pytest.mark.parametrize(
    "entry",
    [
        blocks({"type": "thinking", "thinking": "x", "signature": "c2ln"}),
        blocks({"type": "thinking", "thinking": "x", "thinkingSignature": "c2ln"}),
        {"type": "thinking", "thinking": "x", "signature": "c2ln"},
        {"type": "message", "message": {"role": "assistant", "thinking": "x", "signature": "s"}},
    ],
)
def test_generic_leaves_thinking_that_somebody_signed(entry):
    """Nobody knows here who verifies the signature, so that text and signature stay."""
    (part,) = parts(GENERIC, entry)

    assert part.kind == "thinking"
    assert part.locked == "thinking signed by its provider"


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        ({"__id": "msg-7", "id": "other"}, "msg-7"),
        ({"__id": None, "id": "other"}, "other"),
        ({"id": 7}, "7"),
        ({"__id": "", "id": "other"}, None),
        ({"__id": True}, None),
    ],
)
def test_generic_names_entries_by_their_own_id(entry, name):
    """`__id` names an entry, else `id`; one that cannot be used names nothing."""
    assert GENERIC.identity(entry, b"raw", 3) == name


def test_generic_names_other_entries_by_their_line_and_its_digest():
    """Without any id the line's number and a digest of what we never change stand in."""
    name = GENERIC.identity({"type": "tool_result"}, b"raw", 3)

    assert name.startswith("L3-")
    assert name == GENERIC.identity({"type": "tool_result"}, b"raw", 3)
    assert name != GENERIC.identity({"type": "tool_result"}, b"raw", 4)
    assert name != GENERIC.identity({"type": "tool_result", "tool": "x"}, b"raw", 3)
    assert name == GENERIC.identity({"type": "tool_result", "output": "y"}, b"other", 3)
    assert name == GENERIC.identity({"type": "tool_result", "_restored": "z"}, b"other", 3)


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({"type": "message", "role": "assistant", "text": "x"}, None),
        ({"type": "thinking", "thinking": "x"}, None),
        ({"type": "system", "text": "x"}, None),
        ({"type": "custom", "text": "x"}, None),
        ({"type": "message", "role": "user", "text": "x"}, "a user message"),
        ({"type": "tool_call", "name": "read"}, "a tool call"),
        ({"type": "tool_result", "output": "x"}, "a tool result"),
        ({"type": "message", "message": {"role": "tool", "content": "x"}}, "a tool result"),
    ],
)
def test_the_last_generic_entry_that_counts_says_whether_a_turn_is_open(last, reason):
    """A prompt, a call or a result keeps the turn open, whatever does not count comes after."""
    before = dump({"type": "message", "__id": 1, "role": "user", "text": "x"})
    for after in (b"", dump({"type": "note", "text": "x"}), b"\n", b"[1]\n", b"{broken\n"):
        found = survey(GENERIC, before + dump(last) + after).open_turn

        assert found is None if reason is None else found.endswith(reason)


def test_a_torn_last_line_keeps_a_generic_turn_open():
    """An unterminated last line counts when it parses; torn, it says that a write goes on."""
    closed = dump({"type": "message", "__id": 1, "role": "assistant", "text": "x"})

    assert survey(GENERIC, closed[:-1]).open_turn is None
    assert "torn" in survey(GENERIC, closed[:-2]).open_turn
    assert "torn" in survey(GENERIC, closed + b'{"type"').open_turn


def test_generic_positions_are_those_of_the_file():
    """Every entry that maps to a kind is one step; the others stand with the next."""
    lines = [
        {"type": "tool_result", "__id": 1}, {"type": "note"}, {"type": "tool_call", "__id": 2},
        {"type": "note"}, {"type": "message", "__id": 3, "role": "assistant"}, {"type": "note"},
    ]  # fmt: skip
    data = b"".join(dump(line) for line in lines)
    offsets = [offset for offset, *_ in entries(data)]
    large, small = survey(GENERIC, data, 10), survey(GENERIC, data, 1)

    assert [large.position(offset) for offset in offsets] == [2, 1, 1, 0, 0, 0]
    assert [small.position(offset) for offset in offsets] == [OLD, OLD, 1, 0, 0, 0]
