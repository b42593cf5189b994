"""The load of a Codex session, as the session records it."""

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.codex.measure import CodexMeasure
from brainsurgeon.model.records import Records
from brainsurgeon.model.turns import Sent
from brainsurgeon.planning.budget import Sample, calibrate, measure
from building.format_reading import Reading
from building.world import dump


def measure_codex(lines):
    read = Reading(FORMATS["codex"], b"".join(map(dump, lines)))
    return measure(read.transcript, Records(), read.parsed, measured=CodexMeasure())


def test_codex_load_is_what_the_file_records():
    """The load is the newest total, and what was added since; a compaction has a new total."""
    item = lambda **payload: {"type": "response_item", "payload": payload}  # noqa: E731
    message = lambda role, size: item(  # noqa: E731
        type="message", role=role, content=[{"type": "text", "text": "x" * size}]
    )
    output = item(type="function_call_output", output="o" * 300)
    call = item(type="function_call", name="shell", arguments="{}")
    count = lambda total, sent=0: {"type": "event_msg", "payload": {  # noqa: E731
        "type": "token_count", "info": {
            "last_token_usage": {"input_tokens": sent, "total_tokens": total},
        }}}  # fmt: skip
    kept = message("user", 600)["payload"]
    compacted = {"type": "compacted", "payload": {"replacement_history": [kept]}}
    start = [message("user", 50), call, output, count(115_058, 115_038)]
    cases = {
        "answered": ([*start, message("assistant", 9), count(115_400, 115_380)], 115_400),
        "a result was added": (start, 115_058 + 99),
        "a prompt was added": (
            [*start, message("assistant", 9), count(115_400, 115_380), message("user", 600)],
            115_400 + 198,
        ),
        "compacted": ([*start, compacted, count(6_231)], 6_231),
        "compacted just now": ([*start, compacted], 198),
        "nothing recorded": ([message("user", 600)], 198),
    }
    loads = {}
    for name, (lines, _) in cases.items():
        loads[name] = measure_codex(lines).load(calibrate((), ()))

    assert loads == {name: load for name, (_, load) in cases.items()}


def test_measure_codex_uses_its_token_counts():
    """A call of Codex is its token count, which follows the reply; a repeated count is none."""
    item = lambda **payload: {"type": "response_item", "payload": payload}  # noqa: E731
    count = lambda total, last: {"type": "event_msg", "payload": {  # noqa: E731
        "type": "token_count", "info": {
            "total_token_usage": {"input_tokens": total, "total_tokens": total},
            "last_token_usage": {"input_tokens": last}}}}  # fmt: skip
    text = lambda role, size: item(  # noqa: E731
        type="message", role=role, content=[{"type": "text", "text": "x" * size}]
    )
    lines = [
        {"type": "session_meta", "payload": {"id": "s"}},
        {"type": "turn_context", "payload": {"model": "gpt-5.3-codex"}},
        {"type": "event_msg", "payload": {"type": "task_started", "model_context_window": 258400}},
        text("user", 50), text("assistant", 7), count(60, 55), count(60, 55),
        item(type="function_call_output", output="o" * 30), text("assistant", 1), count(150, 90),
    ]  # fmt: skip
    load = measure_codex(lines)

    assert load.calls == [Sample(Sent(57), 55), Sample(Sent(88), 90)]
    assert (load.sent.chars, load.model, load.window) == (88, "gpt-5.3-codex", 258_400)
