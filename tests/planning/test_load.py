"""How much a session weighs: a line through its own calls, else what others of its agent say."""

import pytest

from brainsurgeon.formats import recognise
from brainsurgeon.model.entries import Line
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
    measure_codex,
)
from building.world import SAMPLES, dump

# The samples with calls enough that some can be held back.
FITTED = (
    "claude-code/entire-37_995ebed6e4_2.jsonl", "claude-code/entire-cc_90f6622c5b_0.jsonl",
    "claude-code/entire-f8_10e13fce67_0.jsonl",
    "openclaw/2026.7.35/agents/main/sessions/a1a1a1a1-0000-4000-8000-000000000001.jsonl",
    "openclaw/2026.7.35/agents/thinker/sessions/b2b2b2b2-0000-4000-8000-000000000003.jsonl",
    "openclaw/2026.2.19/agents/main/sessions/c3c3c3c3-0000-4000-8000-000000000004.jsonl",
    "pi/large-session.derived-v3.jsonl",
)  # fmt: skip


class Text:
    """The lines of a text, from either end."""

    def __init__(self, data):
        self._lines, at = [], 0
        for number, raw in enumerate(data.split(b"\n"), 1):
            if raw:
                self._lines.append(Line(number, at, raw))
            at += len(raw) + 1

    def __iter__(self):
        return iter(self._lines)

    def backward(self):
        return reversed(self._lines)


def measured(data, *extractions):
    lines = Text(data)
    form = recognise([line.raw for line in lines][:20]).form
    return measure(lines, form, form.survey(lines, 3), Records(tuple(extractions), own=1))


def straight(number, rate=0.3, fixed=1000):
    """Give calls that lie on a line, a thousand characters apart."""
    return [Sample(Sent(1000 * n), round(fixed + rate * 1000 * n)) for n in range(1, number + 1)]


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


def said(text="ok", tokens=100, stop="stop", **more):
    return {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop,
            "model": "m-1", "usage": {"input": tokens, "cacheRead": 0, "cacheWrite": 0},
            **more}  # fmt: skip


@pytest.mark.parametrize("sample", FITTED)
def test_calls_that_were_held_back_are_estimated_to_a_tenth(sample):
    """A line through the first two thirds of a real session's calls tells what the rest took."""
    calls = measured((SAMPLES / sample).read_bytes()).calls
    known = calls[: -(len(calls) // 3)]
    line = fit(known)
    errors = [abs(line.tokens(one.sent) / one.tokens - 1) for one in calls[len(known) :]]

    assert line.method == "session"
    assert len(errors) >= 4
    assert max(errors) < 0.1


@pytest.mark.parametrize(("number", "method"), [(FEWEST - 1, "default"), (FEWEST, "session")])
def test_eight_calls_make_a_line(number, method):
    """With seven calls nothing is made of them; with eight the line is taken."""
    line = calibrate(straight(number), [])

    assert line.method == method
    assert line.calls == number


@pytest.mark.parametrize(
    ("rate", "method"), [(0.14, "default"), (0.16, "session"), (0.79, "session"), (0.81, "default")]
)
def test_a_rate_beyond_reason_is_no_rate(rate, method):
    """From 0.15 to 0.8 tokens for a character a line says what it is asked for."""
    assert calibrate(straight(20, rate), []).method == method


@pytest.mark.parametrize(("bend", "method"), [(0, "session"), (900, "session"), (6000, "default")])
def test_calls_that_lie_on_no_line_make_none(bend, method):
    """Where the line explains less than nine tenths of what the calls took, it is not taken."""
    calls = [
        Sample(one.sent, one.tokens + (bend if number % 2 else 0))
        for number, one in enumerate(straight(20))
    ]

    assert calibrate(calls, []).method == method


def test_calls_that_all_carried_the_same_make_no_line():
    """Eight times the same prompt says nothing about what a character takes."""
    assert fit([Sample(Sent(1000), 500)] * FEWEST) is None


def test_without_calls_of_its_own_the_agents_other_sessions_tell():
    """The median of their lines is taken; where there is none, a third of a token and nothing."""
    others = [Calibration(rate, fixed, 9, "session") for rate, fixed in
              ((0.2, 10), (0.4, 5000), (0.3, 900))]  # fmt: skip

    assert calibrate([], others) == Calibration(0.3, 900, 0, "agent")
    assert calibrate([], []) == Calibration(0.33, 0, 0, "default")


def test_the_error_is_that_of_the_calls():
    """By how much a line is wrong about the session's own calls is said with every method."""
    assert calibrate([Sample(Sent(1000), 660)], []).error == pytest.approx(0.5)
    assert calibrate(straight(20), []).error < 0.001


def test_a_picture_has_a_weight_of_its_own():
    """However long its data is, it counts as a picture; it bends no line."""
    calls = [Sample(one.sent + Sent(0, 2), one.tokens + 2 * PICTURE) for one in straight(9)]
    found = measured(
        claw({"role": "user", "content": [{"type": "image", "data": "A" * 9000, "mimeType": "x"},
                                          {"type": "text", "text": "look"}]}, said())
    )  # fmt: skip

    assert fit(calls).fixed == pytest.approx(1000, abs=2)
    assert found.sent == Sent(6, 1)


def test_only_the_newest_fifty_calls_are_looked_at():
    """What was sent long ago was sent with other prompts and tools."""
    turns = [
        one for n in range(60) for one in ({"role": "user", "content": "x"}, said(tokens=n + 1))
    ]

    calls = measured(claw(*turns)).calls

    assert len(calls) == NEWEST
    assert calls[-1].tokens == 60


def test_calls_before_the_last_compaction_do_not_count():
    """They carried what is not sent any more; the summary is sent instead."""
    compaction = {"type": "compaction", "summary": "s" * 70, "firstKeptEntryId": "00000004"}
    found = measured(claw(
        {"role": "user", "content": "x" * 500}, said(tokens=11),
        {"role": "user", "content": "y" * 30}, said("z" * 9, tokens=22), compaction,
        {"role": "user", "content": "w" * 5}, said(tokens=33),
    ))  # fmt: skip

    assert [one.tokens for one in found.calls] == [33]
    assert found.calls[0].sent.chars == 9 + 70 + 5


def test_failed_and_aborted_answers_are_neither_sent_nor_counted():
    """What they say is in no request, and what they took says nothing."""
    found = measured(claw(
        {"role": "user", "content": "x" * 10}, said("e" * 99, 5, "aborted"),
        said("e" * 99, 0, "error", errorMessage="overloaded"), said("ok", 7),
    ))  # fmt: skip

    assert [(one.sent.chars, one.tokens) for one in found.calls] == [(10, 7)]
    assert found.sent.chars == 12
    assert found.last.complaint is None


def test_one_api_message_is_one_call():
    """Claude Code writes the blocks of an answer as lines of their own, each with the usage."""
    ident = {"id": "msg_1", "model": "claude-x",
             "usage": {"input_tokens": 3, "cache_read_input_tokens": 40,
                       "cache_creation_input_tokens": 7}}  # fmt: skip
    lines = [{"type": "user", "uuid": "u0", "parentUuid": None, "sessionId": "s",
              "message": {"role": "user", "content": "q" * 20}}]  # fmt: skip
    lines += [
        {"type": "assistant", "uuid": f"u{n}", "parentUuid": f"u{n - 1}", "sessionId": "s",
         "message": {**ident, "role": "assistant", "content": [{"type": "text", "text": "a" * n}]}}
        for n in (1, 2)
    ]  # fmt: skip

    assert measured(b"".join(map(dump, lines))).calls == (Sample(Sent(20), 50),)


def test_a_call_made_before_a_cut_carried_what_was_cut():
    """The length of a value is recorded, and when it went: calls after that did not carry it."""
    placeholder = "[[extracted-00000001]]"
    result = {"role": "toolResult", "toolCallId": "c", "toolName": "exec",
              "content": [{"type": "text", "text": placeholder}]}  # fmt: skip
    cut = Extraction(
        1, 1, "00000001", "00000001", ("message", "content", 0, "text"), "tool_result", "exec",
        block=False, replacement=None, anchor="c", rest=None, chars=5000, size=5000, digest=b"",
        blob_id=1, run_id=None, archive_id=None, tokens=1643,
        extracted_at=parse_time("2026-11-01T10:02:30Z"), restored_at=None, expired_at=None,
        expired_why=None, state="standing",
    )  # fmt: skip
    found = measured(claw(result, said(tokens=9), said(tokens=9)), cut)

    assert [one.sent.chars for one in found.calls] == [5000, len(placeholder) + 2]
    assert found.sent.chars == len(placeholder) + 4


def test_what_is_never_sent_weighs_nothing():
    """Details are for the screen, and entries off the branch are in no request."""
    result = {"role": "toolResult", "toolCallId": "c", "toolName": "exec",
              "content": [{"type": "text", "text": "r" * 8}],
              "details": {"all": "d" * 999}}  # fmt: skip

    assert measured(claw(result)).sent.chars == 8


def test_codex_is_measured_though_it_is_only_read():
    """Its calls are told by its own counts, which stand behind what each of them answered."""
    item = lambda **payload: {"type": "response_item", "payload": payload}  # noqa: E731
    count = lambda total, last: {"type": "event_msg", "payload": {  # noqa: E731
        "type": "token_count", "info": {"total_token_usage": {"total_tokens": total},
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
    found = measure_codex(Text(b"".join(map(dump, lines))))

    assert found.calls == (Sample(Sent(57), 55), Sample(Sent(88), 90))
    assert (found.sent.chars, found.model, found.window) == (88, "gpt-5.3-codex", 258_400)
