"""What is recent: messages, tokens, and results that a later one supersedes."""

import pytest

from building.world import entry_text


def repeated(world, conversation):
    """Write a session that makes the same call three times; give the three results."""
    results = []
    for number in range(3):
        conversation.user()
        conversation.call(call=str(number))
        results.append(conversation.result(f"{number}" * 2000, call=str(number)))
        conversation.assistant()
    world.put("s.jsonl", conversation.bytes())
    return results


def test_superseded_results_go_although_they_are_recent(world, conversation, path):
    """The newest stays, and the reason names it; without the key all of them stay."""
    first, second, last = repeated(world, conversation)
    assert world.scan(keep_recent=20, superseded=False).values_extracted == 0

    [session] = world.scan(keep_recent=20, superseded=True, dry_run=True).sessions
    reasons = [removal.reason for removal in session.plan.removals]
    assert [why.rpartition(", ")[2] for why in reasons] == [
        f"superseded by {second}", f"superseded by {last}"
    ]  # fmt: skip
    assert world.scan(keep_recent=20, superseded=True).values_extracted == 2
    assert entry_text(path, first) == f"[[extracted-{first}]]"
    assert entry_text(path, last) == "2" * 2000


def test_a_superseded_result_stays_in_the_last_two_messages(world, conversation, path):
    """The agent has just seen it; it goes with the next message."""
    conversation.user()
    for number in range(2):
        conversation.call(call=str(number))
    first, _ = (conversation.result("y" * 2000, call=str(number)) for number in range(2))
    world.put("s.jsonl", conversation.bytes())
    assert world.scan(keep_recent=20, superseded=True).values_extracted == 0

    conversation.assistant()
    world.put("s.jsonl", conversation.bytes())
    assert world.scan(keep_recent=20, superseded=True).values_extracted == 1
    assert entry_text(path, first) == f"[[extracted-{first}]]"


def test_arguments_of_a_failed_call_go_with_what_it_supersedes(world, conversation, path):
    """They are extracted whatever the triggers; arguments of a call that succeeded stay."""
    for number, fails in enumerate((True, False)):
        conversation.user()
        conversation.call(arguments={"command": "x" * 2000}, call=str(number))
        conversation.result("no", call=str(number))
        conversation.lines[-1]["message"]["isError"] = fails
        conversation.assistant()
    world.put("s.jsonl", conversation.bytes())
    whole = path.read_bytes()

    assert world.scan(superseded=False).values_extracted == 0
    [session] = world.scan(superseded=True).sessions
    assert [removal.kind for removal in session.plan.removals] == ["tool_call"]
    world.restore_all(pristine=True)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("tokens", "recent", "extracted"),
    [(0, 3, 2), (600, 3, 2), (700, 3, 1), (1400, 3, 0), (1, 20, 0)],
)
def test_the_larger_of_both_windows_holds(world, conversation, tokens, recent, extracted):
    """A message is recent when fewer than `keep_recent_tokens` tokens follow it."""
    repeated(world, conversation)  # 662 tokens a result, at 0.33 a character

    settings = {"keep_recent": recent, "keep_recent_tokens": tokens}
    assert world.scan(**settings).values_extracted == extracted
