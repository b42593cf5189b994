"""Context load: tokens of a session, fitted to its own calls or to those of other sessions."""

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.formats.recognition import recognise
from brainsurgeon.model.records import Extraction, Records
from brainsurgeon.model.text import parse_time
from brainsurgeon.model.turns import PICTURE, Calibration, Sent
from brainsurgeon.planning.budget import (
    FEWEST,
    NEWEST,
    Sample,
    calibrate,
    fit,
    measure,
)
from brainsurgeon.planning.calls import calls_in
from building.claude import ClaudeConversation
from building.format_reading import Reading
from building.world import SAMPLES, dump

# Samples with enough calls to fit a line to two thirds of them.
FITTED = (
    "claude-code/entire-37_995ebed6e4_2.jsonl", "claude-code/entire-cc_90f6622c5b_0.jsonl",
    "claude-code/entire-f8_10e13fce67_0.jsonl",
    "openclaw/2026.7.35/agents/main/sessions/a1a1a1a1-0000-4000-8000-000000000001.jsonl",
    "openclaw/2026.7.35/agents/thinker/sessions/b2b2b2b2-0000-4000-8000-000000000003.jsonl",
    "openclaw/2026.2.19/agents/main/sessions/c3c3c3c3-0000-4000-8000-000000000004.jsonl",
    "pi/large-session.derived-v3.jsonl",
)  # fmt: skip


def measured(data, *extractions):
    form = recognise(data.split(b"\n")[:20], FORMATS).form
    read = Reading(form, data)
    return measure(read.transcript, Records(tuple(extractions), own=1), read.parsed)


def calls_on_a_line(number, rate=0.3):
    """Return calls on a line, a thousand characters apart."""
    return [Sample(Sent(1000 * n), round(1000 + rate * 1000 * n)) for n in range(1, number + 1)]


def claw(*messages):
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-11-01T10:00:00Z"}
    lines, last = [header], None
    for number, message in enumerate(messages, 1):
        entry = {"type": "message", "id": f"{number:08x}", "parentId": last, **(
            message if "type" in message else {"message": message}
        )}  # fmt: skip
        entry.setdefault("timestamp", f"2026-11-01T10:{number:02}:00Z")
        lines.append(entry)
        last = entry["id"]
    return b"".join(map(dump, lines))


def reply(text="ok", tokens=100, stop="stop", **more):
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop,
            "model": "m-1", "usage": {"input": tokens, "cacheRead": 0, "cacheWrite": 0},
            **more}  # fmt: skip


@pytest.mark.parametrize("sample", FITTED)
def test_fit_predicts_later_calls_within_a_tenth(sample):
    """A line through two thirds of a sample's calls is within 10 % of the other third."""
    calls = measured((SAMPLES / sample).read_bytes()).calls
    known = calls[: -(len(calls) // 3)]
    line = fit(known)
    errors = [abs(line.tokens(call.sent) / call.tokens - 1) for call in calls[len(known) :]]

    assert line.method == "session"
    assert len(errors) >= 4
    assert max(errors) < 0.1


@pytest.mark.parametrize(("number", "method"), [(FEWEST - 1, "default"), (FEWEST, "session")])
def test_fit_needs_eight_calls(number, method):
    """A line is fitted to eight calls; with seven the default line is used."""
    line = calibrate(calls_on_a_line(number), [])

    assert line.method == method
    assert line.calls == number


@pytest.mark.parametrize(
    ("rate", "method"), [(0.14, "default"), (0.16, "session"), (0.79, "session"), (0.81, "default")]
)
def test_fitted_rate_outside_its_bounds_is_rejected(rate, method):
    """A rate is accepted from 0.15 to 0.8 tokens a character."""
    assert calibrate(calls_on_a_line(20, rate), []).method == method


@pytest.mark.parametrize(("bend", "method"), [(0, "session"), (900, "session"), (6000, "default")])
def test_fit_that_explains_too_little_is_rejected(bend, method):
    """The line has to explain nine tenths of the variance."""
    calls = [
        Sample(sample.sent, sample.tokens + (bend if number % 2 else 0))
        for number, sample in enumerate(calls_on_a_line(20))
    ]

    assert calibrate(calls, []).method == method


def test_fit_of_equal_calls_is_none():
    """Calls of one size do not determine the tokens per character."""
    assert fit([Sample(Sent(1000), 500)] * FEWEST) is None


def test_session_without_calls_takes_the_agents_median():
    """A session without calls takes the median line of others, else 0.33 tokens a character."""
    others = [Calibration(rate, fixed, 9, "session") for rate, fixed in
              ((0.2, 10), (0.4, 5000), (0.3, 900))]  # fmt: skip

    assert calibrate([], others) == Calibration(0.3, 900, 0, "agent")
    assert calibrate([], []) == Calibration(0.33, 0, 0, "default")


def test_calibration_error_is_relative_to_the_calls():
    """The error on the session's own calls is given for every method."""
    assert calibrate([Sample(Sent(1000), 660)], []).error == pytest.approx(0.5)
    assert calibrate(calls_on_a_line(20), []).error < 0.001


def test_image_counts_a_fixed_number_of_tokens():
    """The length of its data has no effect, and it does not bend the line."""
    calls = [
        Sample(sample.sent + Sent(0, 2), sample.tokens + 2 * PICTURE)
        for sample in calls_on_a_line(9)
    ]
    load = measured(
        claw({"role": "user", "content": [{"type": "image", "data": "A" * 9000, "mimeType": "x"},
                                          {"type": "text", "text": "look"}]}, reply())
    )  # fmt: skip

    assert fit(calls).fixed == pytest.approx(1000, abs=2)
    assert load.sent == Sent(6, 1, 9000)


def test_measure_uses_the_newest_fifty_calls():
    """Only the newest fifty calls are used: older ones had other prompts and tools."""
    turns = [
        message
        for n in range(60)
        for message in ({"role": "user", "content": "x"}, reply(tokens=n + 1))
    ]

    calls = measured(claw(*turns)).calls

    assert len(calls) == NEWEST
    assert calls[-1].tokens == 60


def test_measure_omits_calls_before_the_last_compaction():
    """The summary is sent in place of the entries before it."""
    compaction = {"type": "compaction", "summary": "s" * 70, "firstKeptEntryId": "00000004"}
    load = measured(claw(
        {"role": "user", "content": "x" * 500}, reply(tokens=11),
        {"role": "user", "content": "y" * 30}, reply("z" * 9, tokens=22), compaction,
        {"role": "user", "content": "w" * 5}, reply(tokens=33),
    ))  # fmt: skip

    assert [call.tokens for call in load.calls] == [33]
    assert load.calls[0].sent.chars == 9 + 70 + 5


def test_measure_omits_failed_and_aborted_replies():
    """Failed and aborted replies add neither characters nor calls."""
    load = measured(claw(
        {"role": "user", "content": "x" * 10}, reply("e" * 99, 5, "aborted"),
        reply("e" * 99, 0, "error", errorMessage="overloaded"), reply("ok", 7),
    ))  # fmt: skip

    assert [(call.sent.chars, call.tokens) for call in load.calls] == [(10, 7)]
    assert load.sent.chars == 12
    assert load.last.refusal is None


def test_refusal_holds_until_the_next_answer():
    """A call that fails for another reason does not hide that the prompt was too long."""
    too_long = reply("", 0, "error", errorMessage="prompt is too long: 210000 tokens > 200000")
    overloaded = reply("", 0, "error", errorMessage="overloaded")

    assert measured(claw(too_long, overloaded)).last.refusal is not None
    assert measured(claw(too_long, overloaded, reply())).last.refusal is None


def test_calls_without_an_answer_are_not_paid():
    """A call that failed and records neither tokens nor costs is not among those with a price."""
    data = claw(reply("", 0, "error", errorMessage="overloaded"), reply(tokens=7))
    read = Reading(FORMATS["openclaw"], data)

    calls = calls_in(read.transcript.entries, read.transcript.form)
    assert [call.tokens for _, call in calls] == [7]


def test_lines_of_one_claude_code_reply_are_one_call():
    """Claude Code writes each block of a reply as a line of its own, each with the usage."""
    talk = ClaudeConversation()
    talk.user("q" * 20)
    for text in ("a", "aa"):
        talk.assistant({"type": "text", "text": text}, message="msg_1")
        talk.lines[-1]["message"]["usage"] = {
            "input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7,
        }  # fmt: skip

    assert measured(talk.bytes()).calls == [Sample(Sent(20), 50)]


def test_call_before_an_extraction_includes_the_value():
    """Calls after the recorded extraction include only the placeholder."""
    placeholder = "[[extracted-00000001]]"
    result = {"role": "toolResult", "toolCallId": "c", "toolName": "exec",
              "content": [{"type": "text", "text": placeholder}]}  # fmt: skip
    extraction = Extraction(
        "00000001", "00000001", ("message", "content", 0, "text"), "tool_result", "exec", 5000,
        block=False, call="c", parent=None, rest=None, tokens=1643, id=1, session_id=1,
        replacement=None, size=5000, digest=b"", blob_id=1, run_id=None, archive_id=None,
        extracted_at=parse_time("2026-11-01T10:02:30Z"), restored_at=None, tombstone=None,
        state="standing",
    )  # fmt: skip
    load = measured(claw(result, reply(tokens=9), reply(tokens=9)), extraction)

    assert [call.sent.chars for call in load.calls] == [5000, len(placeholder) + 2]
    assert load.sent.chars == len(placeholder) + 4
