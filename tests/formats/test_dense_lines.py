"""Lines whose structure would take too much memory to parse."""

import json

import pytest

from brainsurgeon.model import entries
from brainsurgeon.model.entries import parse
from building.world import Conversation

MB = 1 << 20


def around(content):
    return b'{"type":"message","id":"1","message":{"role":"user","content":' + content + b"}}"


DENSE = {
    "11 MB of empty lists": lambda: b"[" + b"[]," * (11 * MB // 3) + b"1]",
    "empty objects": lambda: b"[" + b"{}," * (2 * MB) + b"1]",
    "lists in lists": lambda: b"[" + (b"[" * 400 + b"]" * 400 + b",") * 3000 + b"1]",
    "numbers": lambda: b"[" + b"1," * (4 * MB) + b"1]",
    "short texts": lambda: b"[" + b'"ab",' * (2 * MB) + b"1]",
    "keys": lambda: b"{" + b",".join(b'"%d":1' % n for n in range(800_000)) + b"}",
    "a wide text": lambda: json.dumps("x" * (24 * MB) + "\U0001f600", ensure_ascii=False).encode(),
    "a wide text, escaped": lambda: json.dumps("x" * (24 * MB) + "\U0001f600").encode(),
    "a text that never ends": lambda: b'"' + b"[]," * (5 * MB),
}
LIGHT = {
    "a long text": lambda: b'"' + b"x" * (31 * MB) + b'"',
    "a text full of marks": lambda: json.dumps('{"a":[],\\"' * (2 * MB)).encode(),
    "a text of two bytes": lambda: json.dumps("\u4e2d" * (9 * MB), ensure_ascii=False).encode(),
    "thousands of blocks": lambda: (
        b"[" + b'{"type":"text","text":"twenty characters ..."},' * 80_000 + b"1]"
    ),
}


@pytest.mark.parametrize("case", DENSE)
def test_dense_line_is_not_parsed(case):
    """A line with too much structure per byte is left unparsed, however short it is."""
    line = around(DENSE[case]())

    assert entries.too_dense(line)
    assert parse(line) is None


@pytest.mark.parametrize("case", LIGHT)
def test_long_line_that_is_not_dense_is_parsed(case):
    """Neither length nor structural characters inside a text make a line too dense."""
    assert parse(around(LIGHT[case]())) is not None


def test_dense_line_is_copied_unchanged_by_a_rewrite(world, conversation):
    """The entries around a dense line are extracted and restored; the dense line stays."""
    conversation.turn("x" * 4000)
    dense = b'{"type":"custom","id":"dense","data":' + DENSE["empty objects"]() + b"}\n"
    other = Conversation("22222222-0000-4000-8000-000000000002")
    other.turn("y" * 4000)
    path = world.put("s.jsonl", conversation.bytes() + dense)
    world.put("t.jsonl", other.bytes())
    report = world.scan(keep_recent=0)
    lean = path.read_bytes()
    world.restore_all(pristine=True)

    assert (report.sessions_changed, report.failed) == (2, False)
    assert dense in lean
    assert path.read_bytes() == conversation.bytes() + dense


def test_line_that_is_nested_too_deeply_hides_no_other(world):
    """About a thousand levels, which some parsers read, take no other line out of the scan."""
    for depth in range(900, 1100, 20):
        talk = Conversation(f"22222222-0000-4000-8000-00000000{depth:04}")
        for text in (f"{depth}" * 1000, "short", "short", "short"):
            talk.turn(text)
        talk.user()
        talk.call(arguments={"nested": "@"})
        talk.result("short")
        talk.assistant()
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        world.put(f"{depth}.jsonl", talk.bytes().replace(b'"@"', deep))
    report = world.scan()

    assert (report.files_failed, report.values_extracted) == (0, 10)
