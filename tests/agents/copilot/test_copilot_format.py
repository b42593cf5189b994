"""What Copilot CLI's events say: turns, sub-agents, compactions, and what is never taken."""

import itertools

import pytest

from brainsurgeon.agents import FORMATS
from brainsurgeon.agents.copilot.format import COPY, SUBAGENT
from brainsurgeon.agents.copilot.measure import CopilotMeasure
from brainsurgeon.formats.recognition import recognise
from brainsurgeon.model.records import Records
from brainsurgeon.model.rules import Rule, Rules
from brainsurgeon.model.session_files import BEFORE_COMPACTION
from brainsurgeon.planning.budget import measure
from building.format_reading import Reading, plan, snapshot
from building.world import SAMPLES, dump

COPILOT = FORMATS["copilot"]
TURNS = SAMPLES / "copilot" / "turns-1.0.102.jsonl"
COMPACTED = SAMPLES / "copilot" / "compacted-1.0.102.jsonl"
LONG = "a line of text " * 60
SIGNED = {"reasoningOpaque": "EqQB" + "A" * 200, "reasoningText": LONG, "model": "claude-opus-5.1"}


class Events:
    """Events of a session, each with an id of its own."""

    def __init__(self):
        self.numbers = itertools.count(1)
        start = {"sessionId": self.ident(0), "version": 1, "copilotVersion": "1.0.102"}
        self.events = [self.event("session.start", **start)]

    @staticmethod
    def ident(number):
        return f"22222222-0000-4000-8000-{number:012}"

    def event(self, kind, agent=None, **data):
        beside = {"agentId": agent} if agent else {}
        return {"type": kind, "data": data, "id": self.ident(next(self.numbers)), **beside}

    def add(self, kind, agent=None, **data):
        self.events.append(self.event(kind, agent, **data))
        return self.events[-1]["id"]

    def prompt(self, text="go on"):
        return self.add("user.message", content=text)

    def reply(self, text="", call=None, agent=None, **more):
        calls = [{"toolCallId": call, "name": "bash", "arguments": {"command": "ls"}}]
        return self.add("assistant.message", agent, content=text,
                        toolRequests=calls if call else [], **more)  # fmt: skip

    def result(self, call, text=LONG, agent=None, **more):
        self.add("tool.execution_start", agent, toolCallId=call, toolName="bash")
        return self.add("tool.execution_complete", agent, toolCallId=call, success=True,
                        result={"content": text}, **more)  # fmt: skip

    def turn(self, call, **more):
        self.prompt()
        self.reply(call=call, **more)
        ident = self.result(call)
        self.reply("done.")
        self.add("assistant.turn_end")
        return ident

    def bytes(self):
        return b"".join(map(dump, self.events))

    def reading(self):
        return Reading(COPILOT, self.bytes())


def taken(session):
    """Return the ids of the entries from which a plan extracts, and why it waits."""
    rules = Rules((Rule("tool_result", (), 500, 0),), keep_recent=0)
    planned = plan(snapshot(COPILOT, session.bytes()), rules)
    return {value.entry_id for value in planned.extracted}, planned.deferred


def open_turn(*kinds):
    """Return why the turn is open after a prompt and some events."""
    session = Events()
    session.prompt()
    for kind in kinds:
        if kind in ("answer", "empty"):
            session.reply("done." if kind == "answer" else "")
        elif kind == "call":
            session.reply(call="c1")
        elif kind == "result":
            session.result("c1")
        elif kind.startswith("sub:"):
            session.add(kind.removeprefix("sub:"), "agent-1", content="x", toolRequests=[])
        else:
            session.add(kind)
    return session.reading().transcript.chain.open_turn


@pytest.mark.parametrize(
    ("kinds", "is_open"),
    [
        ([], True),
        (["assistant.turn_start"], True),
        (["assistant.turn_start", "call", "result", "assistant.turn_end"], True),
        (["call", "result", "assistant.turn_end", "assistant.turn_start", "answer"], True),
        (["answer", "call", "result", "assistant.turn_end"], True),
        (["answer", "assistant.turn_end", "session.usage_checkpoint"], False),
        (["empty"], True), (["empty", "call", "assistant.turn_end"], True),
        (["call", "result", "empty", "assistant.turn_end"], False),
        (["call", "abort", "assistant.turn_end"], False),
        (["assistant.turn_start", "assistant.turn_end", "session.error"], False),
        (["session.error", "assistant.turn_start"], True),
        (["call", "session.shutdown", "session.resume"], False),
        (["call", "sub:user.message", "sub:assistant.message", "sub:session.error"], True),
        (["answer", "assistant.turn_end", "sub:user.message", "sub:assistant.turn_start"], False),
        (["answer", "sub:assistant.turn_end"], True),
    ],
)  # fmt: skip
def test_a_turn_ends_with_its_last_event(kinds, is_open):
    """A reply without a call is one, even without a text. Events of sub-agents change nothing."""
    assert bool(open_turn(*kinds)) == is_open


def test_events_of_subagents_are_dead_and_no_messages():
    """No request contains them, and calls of a sub-agent name the tools of its results only."""
    read = Reading(COPILOT, TURNS.read_bytes())
    entries, chain = read.transcript.entries, read.transcript.chain
    own = {index for index, why in chain.dead.items() if why == SUBAGENT}
    values = [value for index in own for value in read.transcript.values(index)]

    assert {"tool_result", "thinking"} <= {value.kind for value in values}
    assert all(value.dead for value in values)
    assert not any(entries[index].is_message or entries[index].calls for index in own)
    assert "bash" in {value.tool for value in values}
    assert not any(read.transcript.sent(index).chars for index in own)


def test_a_compaction_leaves_what_followed_its_beginning():
    """Results that a turn added while the compaction was at work are still sent."""
    session = Events()
    before = session.turn("c1")
    session.add("session.compaction_start", compactionAttemptId="one")
    during = session.turn("c2")
    session.add("session.compaction_complete", compactionAttemptId="one", success=True,
                summaryContent="a summary")  # fmt: skip
    session.add("session.compaction_start", compactionAttemptId="two")
    session.add("session.compaction_complete", compactionAttemptId="two", success=False)
    read = session.reading().transcript
    dead = {read.entries[index].ident: why for index, why in read.chain.dead.items()}

    assert dead[before] == BEFORE_COMPACTION
    assert during not in dead
    assert sum(entry.sent.chars for _, entry in read.live()) < 2 * len(LONG)


def test_copies_of_a_compaction_are_never_sent_or_recent():
    """Each text of both copies is a value, but for the names and ids in them."""
    data = COMPACTED.read_bytes()
    read = Reading(COPILOT, data[: data.index(b'{"type":"session.compaction_complete"')])
    chain = read.transcript.chain
    copies = [index for index, why in chain.dead.items() if why == COPY]
    listed = [value for index in copies for value in read.transcript.values(index)]
    paths = {value.path for value in listed}

    assert len(copies) == 2
    assert {*copies} <= chain.off
    assert all(value.dead and not value.locked for value in listed)
    assert ("data", "requestMessages") in paths
    assert ("data", "messages", 1, "content") in paths
    assert not {"role", "id", "name"} & {path[-1] for path in paths}


def test_texts_prompts_and_pictures_are_no_values():
    """What a database repeats, what a compaction sends again, and what cannot leave stays."""
    for file in (TURNS, COMPACTED):
        read = Reading(COPILOT, file.read_bytes())
        for index in range(len(read.transcript.entries)):
            kind = read.parsed(index).entry["type"]
            paths = {value.path for value in read.transcript.values(index)}
            assert not paths or kind in (
                "tool.execution_complete", "assistant.message", "model.model_call_success",
                "model.messages_snapshot",
            )  # fmt: skip
            assert paths <= {("data", "reasoningText")} or kind != "assistant.message"


def test_pictures_count_in_requests_by_what_refers_to_them():
    """A picture of a user and one of a tool have the size of their asset as base64."""
    read = Reading(COPILOT, TURNS.read_bytes()).transcript
    pictures = [read.sent(index).data for index in range(len(read.entries))
                if read.sent(index).pictures]  # fmt: skip

    assert pictures == [2428, 2428]


def test_thinking_is_sent_only_with_a_signature():
    """Without one, it is extracted; with one, it stays, and so does what the signature covers."""
    session = Events()
    first = session.turn("c1", reasoningText=LONG)
    second = session.turn("c2", **SIGNED)
    third = session.turn("c3")
    thinking = Events.ident(int(first[-12:]) - 2)

    found, waits = taken(session)
    assert not found
    assert waits.startswith(f"signatures: the thinking of {Events.ident(int(second[-12:]) - 2)}")
    data = session.events[8]["data"]
    data["model"] = "claude-sonnet-4.5"
    assert taken(session) == ({thinking, first, second, third}, None)
    data["model"], data["reasoningBlocks"] = "gpt-6.2", {"provider": "openai-responses"}
    assert taken(session) == ({thinking, first, session.events[8]["id"], second, third}, None)


def test_failed_calls_have_their_exit_code_and_finding():
    """A command that failed, and a tool that failed."""
    session = Events()
    session.result("c1", "it broke\nbadly", shellExecution={"exitCode": 3})
    session.add("tool.execution_complete", toolCallId="c2", success=False,
                error={"message": "no such file"})  # fmt: skip
    results = [COPILOT.read(event).step.results[0] for event in session.events[-2:]]

    assert [(one.failed, one.exit_code, one.finding) for one in results] == [
        (True, 3, "it broke"), (True, None, "no such file"),
    ]  # fmt: skip


def test_load_window_and_refusals_are_recorded():
    """Each call counts, the newest limit is the window, and a refusal is known by its message."""
    read = Reading(COPILOT, TURNS.read_bytes())
    measured = measure(read.transcript, Records(), read.parsed, measured=CopilotMeasure())
    calls = [entry.call for entry in read.transcript.entries if entry.call]

    assert measured.window == 200_000
    assert len(measured.calls) == len([call for call in calls if call.tokens])
    assert [call.end for call in calls if not call.tokens] == ["refused"]


def test_a_header_of_another_version_is_refused():
    """The file is recognised, and left alone."""
    session = Events()
    session.events[0]["data"]["version"] = 2
    found = recognise(session.bytes().split(b"\n"), FORMATS)

    assert (found.form, found.name) == (None, "copilot")
    assert found.reason == "its version is not known to this program"
