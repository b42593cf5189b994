"""Recent values: the windows in messages and tokens, and results superseded by a later call."""

from building.world import entry_text


def write_repeated_calls(world, conversation):
    """Write a session that makes the same call three times and return the ids of the results."""
    results = []
    for number in range(3):
        conversation.user()
        conversation.call(call=str(number))
        results.append(conversation.result(f"{number}" * 2000, call=str(number)))
        conversation.assistant()
    world.put("s.jsonl", conversation.bytes())
    return results


def test_superseded_results_are_extracted_although_recent(world, conversation, path):
    """With `superseded`, all results of a repeated call but the newest are extracted."""
    first, second, last = write_repeated_calls(world, conversation)
    assert world.scan(keep_recent=20, superseded=False).values_extracted == 0

    [session] = world.scan(keep_recent=20, superseded=True, dry_run=True).sessions
    reasons = [removal.reason.rpartition(", ")[2] for removal in session.plan.removals]
    assert reasons == [f"superseded by {second}", f"superseded by {last}"]
    assert world.scan(keep_recent=20, superseded=True).values_extracted == 2
    assert entry_text(path, first) == f"[[extracted-{first}]]"
    assert entry_text(path, last) == "2" * 2000


def test_superseded_result_in_the_last_two_messages_is_kept(world, conversation, path):
    """A superseded result is kept until two messages follow it."""
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


def test_superseded_failed_call_has_its_arguments_extracted(world, conversation, path):
    """With `superseded`, arguments of failed calls are extracted and those of other calls kept."""
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
