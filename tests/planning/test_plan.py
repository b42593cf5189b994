"""What the planner makes of the decisions on a whole file."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brainsurgeon.formats import FORMATS, splice
from brainsurgeon.model.records import Records
from brainsurgeon.model.rules import Rule, Rules
from brainsurgeon.planning.drafts import Ids
from brainsurgeon.planning.plan import plan
from brainsurgeon.planning.snapshot import Snapshot
from brainsurgeon.sessions.reading import FileLines
from building.format_reading import open_lines
from building.world import Conversation, dump

NOW = datetime(2026, 2, 20, 12, tzinfo=UTC).timestamp()
RULES = Rules(
    rules=(Rule("tool_result", (), 500, 3), Rule("thinking", (), 500, 3)), keep_after_restore=600.0
)


@pytest.mark.parametrize(
    ("fields", "warnings", "cut"),
    [
        ({"_extractable": "yes"}, 1, 2),
        ({"_restored": "yesterday"}, 1, 2),
        ({"_extractable": -1, "_restored": "2099-01-01T00:00:00Z"}, 2, 2),
        ({"_extractable": False}, 0, 0),
        ({"_restored": "2026-02-20T11:55:00Z"}, 0, 0),
    ],
)
def test_an_odd_field_is_warned_of_once_per_entry(planned, fields, warnings, cut):
    """However many values an entry has, what it says wrongly is told once, and named."""
    conversation = Conversation()
    conversation.user()
    ident = conversation.result("x" * 2000, details={"aggregated": "y" * 2000}, **fields)
    for _ in range(4):
        conversation.assistant()

    made = planned(conversation.bytes())

    assert len(made.removals) == cut
    assert len(made.warnings) == warnings
    assert all(ident in warning for warning in made.warnings)
    assert made.due_at == (NOW + 300 if fields.get("_restored", "")[:4] == "2026" else None)


def test_a_larger_window_is_looked_at_from_further_back(planned):
    """`_extractable: N` is measured in messages however large N is."""
    conversation = Conversation()
    inside = conversation.result("x" * 2000, _extractable=21)
    outside = conversation.result("x" * 2000, _extractable=19)
    for _ in range(19):
        conversation.assistant()

    made = planned(conversation.bytes())

    assert [edit.entry_id for edit in made.removals] == [outside]
    assert inside not in {edit.entry_id for edit in made.removals}
    assert {kept.reason for kept in made.kept} >= {"recent by its _extractable"}


def test_a_value_that_gains_nothing_stays_unless_forced(planned):
    """A value as short as its placeholder is not swapped for it.

    One that is forced is, whatever it costs.

    The placeholder of a long id is longer than many a value.
    """
    ident = "i" * 100
    conversation = Conversation()
    conversation.result("x" * 114, ident=ident)
    conversation.result("x" * 113, ident=f"{ident}2", _extractable=True)
    conversation.result("x" * 116, ident=f"{ident}3")
    for _ in range(4):
        conversation.assistant()

    made = planned(conversation.bytes(), Rules((Rule("tool_result", (), 10, 3),)))

    assert [edit.entry_id[100:] for edit in made.removals] == ["2", "3"]
    assert {kept.reason for kept in made.kept if kept.kind == "tool_result"} == {"no gain"}


def test_an_id_that_stands_twice_is_left_alone(planned):
    """Readers differ in which of two entries of one id they mean, so that neither is extracted."""
    conversation = Conversation()
    conversation.result("x" * 2000, ident="twice")
    conversation.result("y" * 2000, ident="twice")
    once = conversation.result("z" * 2000)
    for _ in range(4):
        conversation.assistant()

    assert [edit.entry_id for edit in planned(conversation.bytes()).removals] == [once]


def test_the_last_line_is_never_cut_while_it_has_no_newline(planned):
    """An unterminated line may still be growing: even what is forced waits for its end."""
    line = {"type": "message", "id": "a1", "parentId": None, "_extractable": True,
            "message": {"role": "user", "content": "x" * 2000}}  # fmt: skip
    head = Conversation().bytes()

    assert [edit.entry_id for edit in planned(head + dump(line)).removals] == ["a1"]
    assert planned(head + dump(line)[:-1]).removals == ()


texts = st.text(st.sampled_from('ab"\\\n\té\u2028🙂\ud800'), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(texts, st.booleans(), st.booleans(), st.booleans()), max_size=6))
def test_values_found_by_their_bytes_make_the_very_plan_of_the_walk(turns):
    """Cuts, their digests and all that stays are the same whichever way values are found."""
    conversation = Conversation()
    conversation.turn("short")
    data = conversation.bytes()
    for text, twice, forced, spaced in turns:
        conversation.lines.clear()
        details = {"aggregated": text * 600} if twice else {"n": 1.5, "same": [text] * 600}
        field = {"_extractable": True} if forced else {}
        conversation.result(text * 600, details=details, **field)
        conversation.assistant([{"type": "text", "text": text * 600}], **field)
        line = json.dumps(conversation.lines[0], ensure_ascii=True).encode() + b"\n"
        data += line if spaced else conversation.bytes() if "\ud800" not in text else line
    for _ in range(2):
        conversation.lines.clear()
        conversation.turn("short")
        data += conversation.bytes()

    with open_lines(data) as lines:
        form = FORMATS["openclaw"]
        survey = form.survey(lines, RULES.window)
        session = Snapshot(lines, form, survey, Records(), NOW)
        quick = plan(session, RULES)
        with pytest.MonkeyPatch.context() as slow:
            slow.setattr(splice, "compact_spans", lambda *_: None)
            walked = plan(session, RULES)

    assert quick == walked
    assert len(quick.removals) >= len(turns)


@pytest.fixture
def planned(tmp_path):
    def build(data, rules=RULES):
        path = tmp_path / "session.jsonl"
        path.write_bytes(data)
        with path.open("rb") as handle:
            lines = FileLines(handle.fileno(), len(data))
            form = FORMATS["openclaw"]
            survey = form.survey(lines, rules.window)
            return plan(Snapshot(lines, form, survey, Records(), NOW), rules)

    return build


class Walked(list):
    """A list that counts how often somebody goes over it."""

    walks = 0

    def __iter__(self):
        self.walks += 1
        return super().__iter__()


def test_ids_that_occur_twice_are_found_in_a_few_walks():
    """What finding them costs grows with the ids of a file, not with their square."""
    ids = Ids()
    ids._met = Walked([*range(600_000), 7, 599_999])

    assert ids.twice() == {7, 599_999}
    assert ids._met.walks <= 8
