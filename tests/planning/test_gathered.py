"""What is kept of a turn while its entries are met, and afterwards: little, and all that counts."""

import json
import tracemalloc

from brainsurgeon.model.turns import ToolCall, ToolResult, TurnStep
from brainsurgeon.planning.archive import Middles, Turn, TurnEntry


def step(turn, number, said):
    """Let a turn go on with an entry that continues the one before it."""
    entry = TurnEntry(number * 100, f"e{number}", said)
    turn = turn or Turn(1, entry)
    turn.add(entry, "assistant")
    return turn


def test_an_entry_takes_little_room():
    """A turn of many entries keeps less than a hundred bytes of each, and of their texts none."""
    count = 20_000
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    turn = step(None, 0, TurnStep("prompt"))
    for number in range(1, count, 2):
        called = (ToolCall(f"c{number}", "exec", arguments={"path": "/w/a"}),)
        step(turn, number, TurnStep("reply", f"e{number - 1}", text="x" * 5000, calls=called))
        answered = (ToolResult(f"c{number}"),)
        step(turn, number + 1, TurnStep("result", f"e{number}", results=answered))
    turn.end(None)
    counted = turn.size.calls, turn.summary.failed
    turn.summary = None
    took = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()

    assert took < 100 * count
    assert (counted, turn.entries.flaws) == ((count // 2, 0), {})


def test_a_failed_call_is_counted_whatever_comes_first():
    """Results may stand before their calls; each failed call is told with its tool."""
    turn = step(None, 0, TurnStep("prompt"))
    step(turn, 1, TurnStep("result", "e0", results=(ToolResult("b", failed=True, finding="no"),)))
    step(turn, 2, TurnStep("reply", "e1", calls=(ToolCall("a", "read"), ToolCall("b", "exec"))))
    step(turn, 3, TurnStep("result", "e2", results=(ToolResult("a"),)))
    step(turn, 4, TurnStep("reply", "e3", text="so", text_path=("content",), closes=True))
    turn.end(None)

    assert turn.stays.open is None
    assert (turn.size.calls, turn.summary.failed) == (2, 1)
    assert json.loads(turn.summary.text)["tools_used"] == {"read": 1, "exec": 1, "exec!": 1}


def test_lists_are_capped():
    """The five newest findings, 160 characters each, and twenty files, the written ones first."""
    turn = step(None, 0, TurnStep("prompt"))
    for number in range(7):
        failed = ToolResult(f"c{number}", failed=True, finding=f"{number}" * 200)
        step(turn, number + 1, TurnStep("result", f"e{number}", results=(failed,)))
    files = [f"/{number}" for number in range(25)]
    calls = tuple(
        ToolCall(name, tool, arguments={"path": name})
        for tool, names in (("read", files), ("apply_patch", ["/24", "/c"])) for name in names
    )  # fmt: skip
    step(turn, 8, TurnStep("reply", "e7", calls=calls))
    turn.end(None)

    summary = json.loads(turn.summary.text)
    assert summary["key_findings"] == [f"{number}" * 160 for number in range(2, 7)]
    assert summary["files_touched"] == ["/24", "/c", *files[:18], "+6"]


def test_the_middle_of_an_archive_is_between_its_ends():
    """Neither the prompt nor the closing entry, nor what is between two archives."""
    middles = Middles([(20, 23), (5, 8)])

    assert [offset for offset in range(30) if offset in middles] == [6, 7, 21, 22]
