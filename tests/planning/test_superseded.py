"""Results that later ones supersede."""

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.planning.superseded import superseded
from building.claude import ClaudeConversation
from building.format_reading import Reading
from building.world import Conversation

READ, WRITE = ("read", {"path": "/w/a"}), ("write", {"path": "/w/a", "content": "new"})
PART = ("read", {"path": "/w/a", "offset": 9})
INFO = ("get_file_info", {"path": "/w/a"})
LS, PWD = ("exec", {"command": "ls"}), ("exec", {"command": "pwd"})


def superseding(talk, form="openclaw"):
    """Return the superseding entry of each superseded value."""
    return dict(superseded(Reading(FORMATS[form], talk.bytes()).transcript))


def superseding_results(talk, form="openclaw"):
    """Return the superseding entry by the call id of the superseded value."""
    return {call: ident for (_, _, call), ident in superseding(talk, form).items()}


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([LS, LS], {"0": "1"}),
        ([LS, LS, LS], {"0": "1", "1": "2"}),
        ([LS, PWD], {}),
        ([READ, PART], {}),  # another part of the file
        ([PART, READ], {"0": "1"}),
        ([READ, PART, WRITE], {"0": "2", "1": "2"}),
        ([PART, INFO], {}),  # the whole answer of another tool is no content
        ([INFO, INFO, WRITE], {"0": "1", "1": "2"}),
        ([WRITE, READ], {}),  # what a change answers is no reading
        ([READ, ("read", {"path": "/w/b"})], {}),
    ],
)
def test_result_is_superseded_by_a_repeated_call_or_a_change(calls, expected):
    """A result is superseded by its repeated call, a later whole read by its tool, or a change."""
    talk, idents = Conversation(), {}
    for number, (tool, arguments) in enumerate(calls):
        talk.user()
        talk.call(tool, arguments, str(number))
        idents[talk.result(f"text {number}", tool, str(number))] = str(number)
        talk.assistant()

    assert {old: idents[new] for old, new in superseding_results(talk).items()} == expected


def test_equal_results_are_superseded_by_the_newest():
    """Of equal results of different calls, the newest supersedes the others."""
    talk = Conversation()
    for number in range(3):
        talk.call("exec", {"command": str(number)}, str(number))
        newest = talk.result("the same", "exec", str(number))
        talk.assistant()

    assert superseding_results(talk)["1"] == newest
    assert superseding_results(talk).keys() == {"0", "1"}


def test_results_with_different_images_are_not_equal():
    """Results with different images are not equal, although pi writes the same text beside them."""
    talk = Conversation()
    for number, data in enumerate("ABA"):
        talk.call("read", {"path": f"/w/{number}.png"}, str(number))
        last = talk.result("Read image file [image/png]", "read", str(number))
        talk.lines[-1]["message"]["content"].append(
            {"type": "image", "data": data * 99, "mimeType": "image/png"}
        )
        talk.assistant()

    assert superseding_results(talk) == {"0": last}


def test_failed_result_is_superseded_only_in_its_call():
    """The last successful result stays, while the arguments of the failed call are superseded."""
    talk = Conversation()
    for number in range(2):
        call = talk.call("exec", {"command": "ls"}, str(number))
        failed = talk.result(f"text {number}", "exec", str(number))
        talk.assistant()
    talk.lines[-2]["message"]["isError"] = True

    assert superseding(talk) == {(call, "tool_call", "1"): failed}


def test_claude_code_read_is_superseded_by_an_edit():
    """A read of Claude Code is superseded by an edit of the same `file_path`."""
    talk = ClaudeConversation()
    for number, tool in enumerate(("Read", "Edit")):
        talk.user()
        talk.call(f"toolu_{number}", tool, {"file_path": "/w/a"})
        last = talk.result(f"text {number}", f"toolu_{number}")
        talk.assistant()

    assert superseding_results(talk, "claude-code") == {"toolu_0": last}


def attached(talk, text, **fields):
    file = {"filePath": "/w/a", "content": text, "numLines": 9, "totalLines": 9, **fields}
    return talk.entry(
        "attachment", attachment={"type": "file", "filename": "/w/a", "content": {"file": file}},
        rendered=[{"content": f"<system-reminder>{text}</system-reminder>"}],
    )  # fmt: skip


def test_attached_file_is_superseded_by_the_whole_file():
    """A later attachment or read of a part supersedes nothing."""
    talk = ClaudeConversation()
    oldest, middle = attached(talk, "old"), attached(talk, "new")
    part = attached(talk, "some", numLines=3)
    talk.call("toolu_0", "Read", {"file_path": "/w/a", "offset": 9})
    piece = talk.result("piece", "toolu_0")
    talk.call("toolu_1", "Read", {"file_path": "/w/a"})
    result = talk.result("newest", "toolu_1")

    assert superseding(talk, "claude-code") == {
        (oldest, "tool_result", None): middle,
        (middle, "tool_result", None): result,
        (part, "tool_result", None): result,
        (piece, "tool_result", "toolu_0"): result,
    }


def test_reminder_is_superseded_by_the_same_text():
    """A reminder is superseded only by a later one with the same text."""
    talk = ClaudeConversation()
    first = talk.user("remember this", isMeta=True)
    talk.user("remember that", isMeta=True)
    second = talk.user("remember this", isMeta=True)

    assert superseding(talk, "claude-code") == {(first, "system", None): second}
