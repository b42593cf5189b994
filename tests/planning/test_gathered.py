"""What is kept of the calls of a turn: little, and all that counts."""

import json
import tracemalloc

from brainsurgeon.model.turns import ToolCall, ToolResult, TurnStep
from brainsurgeon.planning.archive import Calls, Middles


def test_an_entry_takes_little_room():
    """A turn of many calls keeps less than 200 bytes of each with its result, and no texts."""
    count = 10_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    calls = Calls()
    for number in range(count):
        called = (ToolCall(f"c{number}", "exec", arguments={"path": "/w/a"}),)
        calls.add(TurnStep("reply", f"e{number}", text="x" * 5000, calls=called))
        calls.add(TurnStep("result", f"r{number}", results=(ToolResult(f"c{number}"),)))
    took = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert took < 200 * count
    assert (calls.tools.total(), calls.summary("", None).failed) == (count, 0)


def test_a_failed_call_is_counted_whatever_comes_first():
    """Results may stand before their calls; each failed call is told with its tool."""
    calls, last = Calls(), TurnStep("reply", text="so", text_path=("content",), closes=True)
    calls.add(TurnStep("result", results=(ToolResult("b", failed=True, finding="no"),)))
    calls.add(TurnStep("reply", calls=(ToolCall("a", "read"), ToolCall("b", "exec"))))
    calls.add(TurnStep("result", results=(ToolResult("a"),)))
    calls.add(last)
    summary = calls.summary(last.text, None)

    assert calls.left_open(last) is None
    assert (calls.tools.total(), summary.failed) == (2, 1)
    assert json.loads(summary.text)["tools_used"] == {"read": 1, "exec": 1, "exec!": 1}


def test_lists_are_capped():
    """The five newest findings, 160 characters each, and twenty files, the written ones first."""
    calls = Calls()
    for number in range(7):
        failed = ToolResult(f"c{number}", failed=True, finding=f"{number}" * 200)
        calls.add(TurnStep("result", results=(failed,)))
    files = [f"/{number}" for number in range(25)]
    called = tuple(
        ToolCall(name, tool, arguments={"path": name})
        for tool, names in (("read", files), ("apply_patch", ["/24", "/c"])) for name in names
    )  # fmt: skip
    calls.add(TurnStep("reply", calls=called))

    summary = json.loads(calls.summary("", None).text)
    assert summary["key_findings"] == [f"{number}" * 160 for number in range(2, 7)]
    assert summary["files_touched"] == ["/24", "/c", *files[:18], "+6"]


def test_the_middle_of_an_archive_is_between_its_ends():
    """Neither the prompt nor the closing entry, nor what is between two archives."""
    middles = Middles([(20, 23), (5, 8)])

    assert [offset for offset in range(30) if offset in middles] == [6, 7, 21, 22]
