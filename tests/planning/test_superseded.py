"""Which results a later one supersedes."""

import pytest

from brainsurgeon.formats import FORMATS
from brainsurgeon.planning.superseded import superseded
from building.claude import ClaudeConversation
from building.format_reading import open_lines
from building.world import Conversation

READ, WRITE = ("read", {"path": "/w/a"}), ("write", {"path": "/w/a", "content": "new"})
PART = ("read", {"path": "/w/a", "offset": 9})
LS, PWD = ("exec", {"command": "ls"}), ("exec", {"command": "pwd"})


def found(talk, form="openclaw"):
    """Give which values are superseded by which entry."""
    form = FORMATS[form]
    with open_lines(talk.bytes()) as lines:
        return dict(superseded(lines, form, form.survey(lines, 3)))


def newer(talk, form="openclaw"):
    """Give which call's result is superseded by which entry."""
    return {call: ident for (_, _, call), ident in found(talk, form).items()}


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([LS, LS], {"0": "1"}),
        ([LS, LS, LS], {"0": "1", "1": "2"}),
        ([LS, PWD], {}),
        ([READ, PART], {}),  # another part of the file
        ([PART, READ], {"0": "1"}),
        ([READ, PART, WRITE], {"0": "2", "1": "2"}),
        ([WRITE, READ], {}),  # what a change answers is no reading
        ([READ, ("read", {"path": "/w/b"})], {}),
    ],
)
def test_a_result_is_superseded_by_what_repeats_it(calls, expected):
    """By the same call, by a read of the whole file, and by a change of the file."""
    talk, idents = Conversation(), {}
    for number, (tool, arguments) in enumerate(calls):
        talk.user()
        talk.call(tool, arguments, str(number))
        idents[talk.result(f"text {number}", tool, str(number))] = str(number)
        talk.assistant()

    assert {old: idents[new] for old, new in newer(talk).items()} == expected


def test_equal_results_are_superseded_by_the_newest():
    """Whatever the calls were."""
    talk = Conversation()
    for number in range(3):
        talk.call("exec", {"command": str(number)}, str(number))
        last = talk.result("the same", "exec", str(number))
        talk.assistant()

    assert newer(talk)["1"] == last
    assert newer(talk).keys() == {"0", "1"}


def test_results_with_other_images_are_not_equal():
    """Each image of pi has the same text beside it; the same image and text are equal."""
    talk = Conversation()
    for number, data in enumerate("ABA"):
        talk.call("read", {"path": f"/w/{number}.png"}, str(number))
        last = talk.result("Read image file [image/png]", "read", str(number))
        talk.lines[-1]["message"]["content"].append(
            {"type": "image", "data": data * 99, "mimeType": "image/png"}
        )
        talk.assistant()

    assert newer(talk) == {"0": last}


def test_a_failed_result_supersedes_only_its_arguments():
    """The last result that is of use stays."""
    talk = Conversation()
    for number in range(2):
        call = talk.call("exec", {"command": "ls"}, str(number))
        failed = talk.result(f"text {number}", "exec", str(number))
        talk.assistant()
    talk.lines[-2]["message"]["isError"] = True

    assert found(talk) == {(call, "tool_call", "1"): failed}


def test_claude_code_names_its_files_otherwise():
    """`file_path` and its own tools are known."""
    talk = ClaudeConversation()
    for number, tool in enumerate(("Read", "Edit")):
        talk.user()
        talk.call(f"toolu_{number}", tool, {"file_path": "/w/a"})
        last = talk.result(f"text {number}", f"toolu_{number}")
        talk.assistant()

    assert newer(talk, "claude-code") == {"toolu_0": last}


def attached(talk, text, **said):
    file = {"filePath": "/w/a", "content": text, "numLines": 9, "totalLines": 9, **said}
    return talk.entry(
        "attachment", attachment={"type": "file", "filename": "/w/a", "content": {"file": file}},
        rendered=[{"content": f"<system-reminder>{text}</system-reminder>"}],
    )  # fmt: skip


def test_an_attached_file_is_superseded_as_a_read_is():
    """By a later attachment or read of the whole file; a part of it supersedes nothing."""
    talk = ClaudeConversation()
    first, second = attached(talk, "old"), attached(talk, "new")
    part = attached(talk, "some", numLines=3)
    talk.call("toolu_1", "Read", {"file_path": "/w/a"})
    last = talk.result("newest", "toolu_1")

    assert found(talk, "claude-code") == {
        (first, "tool_result", None): second,
        (second, "tool_result", None): last,
        (part, "tool_result", None): last,
    }


def test_a_reminder_is_superseded_by_the_same_text():
    """Text that differs supersedes nothing."""
    talk = ClaudeConversation()
    first = talk.user("remember this", isMeta=True)
    talk.user("remember that", isMeta=True)
    second = talk.user("remember this", isMeta=True)

    assert found(talk, "claude-code") == {(first, "system", None): second}
