"""Sessions of random bytes: extraction, `cat` and undo return the original."""

import shutil

from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from brainsurgeon.files import retire
from brainsurgeon.model.entries import KINDS
from brainsurgeon.operations.show import cat
from building.version_diff import replaced_values
from building.world import World

EXAMPLES = 150


spaces = st.sampled_from([b""] * 12 + [b" ", b"  ", b"\t", b" \r"])
readable = [
    b"plain words ", b"x" * 30, b"\\n", b"\\u0041",
    b"\\ud83d", b"\\ud83d\\ude00", b"\\udfff\\u0000",
    b"\\/", b'\\"', b"\\\\", "é".encode(), "\U0001f600".encode(), "\u2028\u0085".encode(),
    b"[[extracted-a1]]", b"[[extracted-b2", b'{\\"a\\":', b"\x7f",
]  # fmt: skip
unreadable = [b"\xff", b"\xed\xa0\xbd", b"\xc3", b"\t", b"\x00"]
# What strings are made of; now and then something that makes parsers refuse the line.
pieces = st.sampled_from(readable * 8 + unreadable)


strings = st.one_of(
    st.lists(pieces, min_size=1, max_size=6).map(b"".join),
    st.tuples(pieces, st.integers(1, 60)).map(lambda pair: pair[0] * pair[1]),
    st.sampled_from([b"[[extracted-a1]]", b"[[extracted-b2]]", b"[[extracted-~x]]", b""]),
).map(lambda inner: b'"' + inner + b'"')
texts = st.one_of(strings, st.integers(25, 300).map(lambda size: b'"' + b"t" * size + b'"'))
scalars = st.sampled_from([
    b"null", b"true", b"0", b"-0", b"1e-7", b"1.0E+2", b"1e400", b"123456789012345678901234567890",
    b"7" * 5000, b"NaN", b"[]", b"{}",
])  # fmt: skip
idents = st.sampled_from(
    [f'"{letter}{digit}"'.encode() for letter in "abcdefgh" for digit in range(10)]
    + [b'"a1"', b'"b2"'] * 3
    + [
        b'"a]] ../x\\n"', b'"~x"', b'""', b'"' + b"l" * 200 + b'"', b'"' + b"l" * 2000 + b'"',
        '"é\u2028"'.encode(), b'"\\ud83d"', b'"\\u0061 1"', b'"\\u001b[31m"', b"7", b"null",
    ]
)  # fmt: skip
# None is written exactly as we write it, or undoing would remove it as a field from a fork.
own_fields = st.sampled_from([
    (b'"_extractable"', b"true"), (b'"_extractable"', b"false"), (b'"_extractable"', b"3"),
    (b'"_extractable"', b"1.5"), (b'"_restored"', b'"2026-02-20T10:00:00+00:00"'),
    (b'"_restored"', b'"junk"'), (b'"_redacted"', b" true"), (b'"_r\\u0065stored"', b"1"),
])  # fmt: skip


@st.composite
def objects(draw, *members):
    """Build an object of members in this order, with random spacing."""
    written = []
    for member in members:
        key, value = draw(member) if isinstance(member, st.SearchStrategy) else member
        value = draw(value) if isinstance(value, st.SearchStrategy) else value
        written.append(
            draw(spaces) + key + draw(spaces) + b":" + draw(spaces) + value + draw(spaces)
        )
    return b"{" + b",".join(written) + draw(spaces) + b"}"


def lists(*elements):
    inner = st.lists(st.one_of(*elements), max_size=4)
    return st.tuples(spaces, inner).map(lambda pair: b"[" + pair[0] + b",".join(pair[1]) + b"]")


def string(text):
    return f'"{text}"'.encode()


nested = st.recursive(
    st.one_of(texts, scalars),
    lambda inner: st.one_of(
        lists(inner),
        objects((b'"k"', inner), (b'"content"', inner)),
        objects((b'"\\u006b"', inner)),
    ),
    max_leaves=5,
)
blocks = st.one_of(
    objects((b'"type"', string("text")), (b'"text"', texts)),
    objects((b'"text"', texts), (b'"type"', string("text")), (b'"text"', texts)),
    objects((b'"type"', string("image")), (b'"data"', texts), (b'"mimeType"', string("image/png"))),
    objects((b'"type"', string("thinking")), (b'"thinking"', texts)),
    objects(
        (b'"type"', string("thinking")), (b'"thinking"', texts), (b'"thinkingSignature"', texts)
    ),
    objects(
        (b'"type"', string("toolCall")), (b'"id"', string("call_1")), (b'"name"', texts),
        (b'"arguments"', objects((b'"command"', texts), (b'"new\\u0054ext"', nested))),
    ),
    nested,
)  # fmt: skip
roles = st.sampled_from(
    [string(role) for role in ("toolResult", "assistant", "user", "bashExecution", "custom")]
)
messages = objects(
    (b'"role"', roles), (b'"api"', st.sampled_from([string("anthropic-messages"), string("x")])),
    (b'"toolName"', texts), (b'"content"', st.one_of(texts, lists(blocks), scalars)),
    (b'"details"', nested), (b'"output"', texts), (b'"stopReason"', string("stop")),
)  # fmt: skip
extras = st.one_of(
    st.tuples(strings, nested), own_fields, st.just((b'"message"', b"{}")),
    st.tuples(st.just(b'"id"'), idents),
)  # fmt: skip
openclaw = st.one_of(
    objects((b'"type"', string("message")), (b'"id"', idents), (b'"message"', messages)),
    objects((b'"type"', string("message")), (b'"id"', idents), (b'"message"', messages), extras),
    objects(own_fields, (b'"message"', messages), (b'"id"', idents),
            (b'"type"', string("message")), own_fields),
    objects(
        (b'"type"', string("custom_message")), (b'"id"', idents), (b'"content"', lists(blocks))
    ),
    objects((b'"type"', string("compaction")), (b'"id"', idents), (b'"summary"', texts)),
)  # fmt: skip
generic = st.one_of(
    objects((b'"type"', string("tool_result")), (b'"__id"', idents), (b'"output"', nested)),
    objects(
        (b'"type"', string("tool_call")), (b'"__id"', idents), (b'"arguments"', nested), extras
    ),
    objects((b'"type"', string("message")), (b'"role"', string("user")), (b'"content"', nested)),
    objects((b'"type"', string("thinking")), (b'"__id"', idents), (b'"thinking"', texts)),
)  # fmt: skip
claude_blocks = st.one_of(
    objects(
        (b'"type"', string("tool_result")),
        (b'"tool_use_id"', string("toolu_1")),
        (b'"content"', st.one_of(texts, lists(blocks))),
    ),
    objects(
        (b'"type"', string("tool_use")),
        (b'"id"', string("toolu_1")),
        (b'"name"', string("Read")),
        (b'"input"', objects((b'"k"', nested))),
    ),
    blocks,
)
claude_messages = objects(
    (b'"role"', st.sampled_from([string("user"), string("assistant")])),
    (b'"id"', string("msg_1")),
    (b'"content"', st.one_of(texts, lists(claude_blocks))),
    (b'"stop_reason"', string("end_turn")),
)
claude = st.one_of(
    objects((b'"parentUuid"', idents), (b'"type"', string("user")), (b'"message"', claude_messages),
            (b'"uuid"', idents), (b'"toolUseResult"', nested), (b'"sessionId"', string("s"))),
    objects((b'"parentUuid"', b"null"), (b'"type"', string("assistant")),
            (b'"message"', claude_messages), (b'"uuid"', idents), extras),
    objects((b'"type"', string("progress")), (b'"uuid"', idents), (b'"data"', nested)),
    objects((b'"type"', string("attachment")), (b'"uuid"', idents), (b'"rendered"', nested),
            (b'"attachment"', objects((b'"type"', string("file")), (b'"content"', nested)))),
    objects((b'"type"', string("system")), (b'"subtype"', string("compact_boundary")),
            (b'"uuid"', idents), (b'"content"', texts)),
    objects((b'"type"', string("last-prompt")), (b'"leafUuid"', idents)),
)  # fmt: skip
oddities = st.one_of(
    st.sampled_from([
        b"", b"   ", b"null", b'"a string"', b"[1,2]", b"{}{}", b'{"type":"mess', b"\xff\xfe\x00",
        b'{"type":"message","id":"a1"}{"type":"message","id":"b2"}', b"[" * 3000,
        b'{"a":' * 3000, b'{"type":"message","id":"a1","message":null}', b"\x85\x0b\x0c",
    ]),
    st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b"")),
)  # fmt: skip
endings = st.sampled_from([b"\n"] * 8 + [b"\r\n", b"\n\n"])
header = b'{"type":"session","version":3,"id":"s","timestamp":"2026-11-01T10:00:00.000Z"}\n'
claude_header = (
    b'{"parentUuid":null,"sessionId":"s","type":"user","uuid":"h","message":{"role":"user",'
    b'"content":"go on"}}\n'
)
generic_header = b'{"type":"message","role":"user","__id":"h","content":"go on"}\n'


def bodies(entries):
    """Build lines with random endings; the last one may have none."""
    lines = st.lists(
        st.tuples(st.one_of(entries, entries, entries, oddities), endings), min_size=3, max_size=14
    )
    return st.tuples(lines.map(lambda parts: b"".join(map(b"".join, parts))), st.booleans()).map(
        lambda parts: parts[0].removesuffix(b"\n") if parts[1] else parts[0]
    )


documents = st.tuples(
    st.sampled_from([b"", b"", b"", b"\xef\xbb\xbf"]),
    st.one_of(
        bodies(openclaw).map(header.__add__), bodies(openclaw).map(header.__add__),
        bodies(generic).map(generic_header.__add__),
        bodies(claude).map(claude_header.__add__), bodies(claude).map(claude_header.__add__),
    ),
).map(b"".join)  # fmt: skip


def test_random_sessions_are_restored_to_the_byte(tmp_path, monkeypatch):
    """A scan changes only the recorded values; `cat` and the undo return the original."""
    monkeypatch.setattr(retire, "LOOK_BACK", 0.0)
    template = World(tmp_path / "template")
    assert template.store
    template.close()
    everything = {"keep_recent": 0, "min_value_length": 20, "trigger_types": list(KINDS)}
    counts, marks = [], []

    @settings(
        max_examples=EXAMPLES, deadline=None, database=None, derandomize=True,
        phases=[Phase.explicit, Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )  # fmt: skip
    @given(data=documents, twice=st.booleans())
    def check(data, twice):
        note(data.decode("latin-1"))
        shutil.rmtree(tmp_path / "world", ignore_errors=True)
        world = World(tmp_path / "world")  # examples have equal ids, which no two sessions share
        shutil.copytree(template.state, world.state)
        path = world.put("s.jsonl", data)
        try:
            report = world.scan(only={str(path)}, **everything)
            pruned = path.read_bytes()

            assert report.files_failed == 0
            assert len(replaced_values(data, pruned)) == report.values_extracted

            printed = b"".join(cat(world.settings(), world.store, str(path), world.clock()))
            if twice:
                world.restore_all(str(path))
                marks.append(path.read_bytes().count(b'"_restored"') > data.count(b'"_restored"'))
            [result] = world.restore_all(str(path), pristine=True)

            assert printed == data
            assert path.read_bytes() == data, result
            assert world.leftovers() == []
            counts.append(report.values_extracted)
        finally:
            world.close()

    check()

    assert sum(count > 0 for count in counts) > EXAMPLES // 5
    assert any(marks)
