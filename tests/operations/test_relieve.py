"""relieve: a session that exceeds its model's window, and scans with a budget or a cap."""

import json
import math
import random
from datetime import datetime

import pytest
from msgspec.structs import replace

from brainsurgeon.errors import FailedError, GoneError
from brainsurgeon.lookup.sessions import file_of, session_named
from brainsurgeon.model.records import EVERYTHING
from brainsurgeon.model.turns import LAST_STEP, Calibration
from brainsurgeon.operations.archive import archive
from brainsurgeon.operations.relieve import RELIEF_REQUEST_SECONDS, relieve, would_relieve
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.status import status
from brainsurgeon.planning.budget import relief_levels
from brainsurgeon.render import turns as render
from brainsurgeon.render.runs import event_text
from brainsurgeon.rewrite.inspect import ExaminationPlanner, examine_to_show
from brainsurgeon.rewrite.relief import ReliefPlanner, Wanted, relieve_by, weigh
from building.claude import ClaudeConversation
from building.claw import GATEWAY, LATER, WAITS_FOR_ENGINE, ClawWorld
from building.turns import active_branch, add_long_turn, branch_roles, text_blocks
from building.world import SAMPLES, Conversation, World, entry_text, pin

BIG = "openclaw/2026.7.35/agents/main/sessions/a1a1a1a1-0000-4000-8000-000000000001.jsonl"
CODEX = {"type": "session_meta", "payload": {"id": "c"}}


def large_conversation(turns=20, chars=3000):
    """Return a conversation whose recorded usage grows linearly with its characters."""
    conversation, carried = Conversation(), 0
    for number in range(turns):
        conversation.turn(f"{number:04}" + "x" * (chars - 4))
        carried += chars + 40
        usage = {"input": 2000 + carried // 4, "cacheRead": 0, "cacheWrite": 0}
        conversation.lines[-1]["message"] |= {"model": "house-1", "usage": usage}
    return conversation


def write_prompts(world, count):
    """Write a session of long prompts and answers without tool calls."""
    conversation = Conversation()
    for number in range(count):
        conversation.user(f"{number} " + "q" * 2000)
        conversation.assistant(f"{number} " + "a" * 2000)
    world.put("s.jsonl", conversation.bytes())


def relieve_session(world, session="s", to=None, signatures=False, **keys):
    wanted = Wanted(to, signatures)
    return relieve(world.settings(**keys), world.store, session, wanted, clock=world.clock)


def event_kinds(world):
    return [event.kind for event in world.store.events.after(0)]


def fullness(world, session="s", **keys):
    return context(world.settings(**keys), world.store, session, world.clock()).full


# A model that takes little, and rules that keep nearly everything.
SMALL = {"windows": {"house-*": 20_000}, "keep_recent": 100}
# A model that takes very much, and rules by which nothing goes.
LARGE = {"windows": {"house-*": 10_000_000}, "min_value_length": 10_000}


@pytest.fixture
def full_path(world):
    """Write a session that is larger than the window of its model."""
    return world.put("s.jsonl", large_conversation().bytes())


def test_relieve_reduces_a_full_session_until_it_fits(world, clock, full_path):
    """The lowest sufficient step extracts the oldest values; a restore brings back every byte."""
    before = full_path.read_bytes()
    relief = relieve_session(world, **SMALL)

    assert relief.fits
    assert not relief.pending
    assert render.relief_json(relief, dry_run=False)["rounds"] == 1
    assert relief.before.load > 0.75 * 20_000 > relief.after.load
    assert relief.after.pressure <= 0.60
    assert relief.after.step == 4
    assert fullness(world, **SMALL).load == pytest.approx(relief.after.load, rel=0.02)
    assert sum(amount.values for amount in relief.went) == relief.values == 7  # the oldest
    assert {amount.kind for amount in relief.stays} >= {"tool_call", "assistant", "user"}
    assert len(full_path.read_bytes()) == relief.bytes_after < relief.bytes_before == len(before)
    world.restore_all(pristine=True)
    assert full_path.read_bytes() == before


@pytest.mark.parametrize("model", ["delivery-mirror", "gateway-injected"])
def test_relieve_knows_the_model_behind_bookkeeping(world, clock, model):
    """A last entry that OpenClaw never sends has no window: the relief is that without it."""
    conversation = large_conversation()
    usage = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "totalTokens": 0}
    reliefs = []
    for name in ("plain", model):
        world.put(f"{name}.jsonl", conversation.bytes().replace(b"1111-", name[:4].encode() + b"-"))
        reliefs.append(relieve_session(world, name, **SMALL))
        conversation.assistant("sent", api="openclaw-transcript")
        conversation.lines[-1]["message"] |= {
            "provider": "openclaw",
            "model": model,
            "usage": usage,
        }
    plain, behind = reliefs

    assert (plain.after.step, plain.values, plain.fits) == (4, 7, True)
    assert (behind.before, behind.after, behind.went) == (plain.before, plain.after, plain.went)


def test_relieve_is_a_run_that_can_be_rolled_back(world, clock, full_path):
    """A relief records a run and its events, and a rollback of the run restores every byte."""
    before = full_path.read_bytes()
    relief = relieve_session(world, **SMALL)
    [run] = world.store.runs.newest(None)

    assert run.command == "relieve"
    assert run.facts["extracted"] == relief.values
    assert event_kinds(world) == ["extraction", "relief"]
    assert world.store.events.after(0)[-1].facts["values"] == relief.values
    world.rollback(run.id)
    assert full_path.read_bytes() == before


def test_relieve_to_a_given_number_of_tokens(world, clock):
    """`--to` replaces the configured threshold as the goal for a recorded session."""
    world.put("s.jsonl", (SAMPLES / BIG).read_bytes())
    full = fullness(world)
    relief = relieve_session(world, to=50_000)

    assert full.calibration.method == "session"
    assert full.calibration.error < 0.01
    assert full.load > 50_000 >= relief.after.load
    assert relief.fits


@pytest.mark.parametrize(
    "sample", [
        "pi/large-session.derived-v3.jsonl",
        "openclaw/2026.2.19/agents/main/sessions/c3c3c3c3-0000-4000-8000-000000000004.jsonl",
        "openclaw/2026.7.35/agents/main/sessions/a1a1a1a1-0000-4000-8000-000000000002.jsonl",
    ],
)  # fmt: skip
def test_load_is_the_same_if_turns_are_archived_before_or_after_a_scan(tmp_path, clock, sample):
    """Archives and extractions, in any order, leave the estimate of tokens per character."""
    loads = []
    for scans in (False, True):
        world = World(tmp_path / str(scans))
        world.clock = clock
        world.put("s.jsonl", (SAMPLES / sample).read_bytes())
        before = fullness(world)
        if scans:
            world.scan(when="always")
            assert fullness(world).load < before.load
            clock.now += 60
        archive(world.settings(), world.store, "s", clock=clock)
        after = fullness(world)
        assert after.load < before.load
        assert after.calibration.calls == before.calibration.calls
        assert after.calibration.rate == pytest.approx(before.calibration.rate, rel=0.01)
        loads.append(after.load)
        world.close()

    assert loads[0] == pytest.approx(loads[1], rel=0.05)


def test_second_relief_finds_the_load_that_the_first_announced(world, clock):
    """Archiving turns after their values were extracted leaves the load that was planned."""
    world.put("s.jsonl", (SAMPLES / "pi/large-session.derived-v3.jsonl").read_bytes())
    world.scan(when="always")
    clock.now += 60
    first = relieve_session(world, to=0.2)
    clock.now += 60
    second = relieve_session(world, to=0.2)

    assert first.before.load > 0.4 * 200_000
    assert first.after.step == 3
    assert first.fits
    assert second.fits
    assert second.before.load == second.after.load == pytest.approx(first.after.load, rel=0.01)


def test_relieve_extracts_a_recent_giant_result_in_step_2(world, clock):
    """Step 2 extracts a result larger than a tenth of the window even if it is the newest."""
    conversation = large_conversation(4)
    giant = conversation.turn("g" * 60_000)
    world.put("s.jsonl", conversation.bytes())
    relief = relieve_session(world, **SMALL)

    assert relief.fits
    assert relief.after.step == 2
    assert world.store.extractions.of_entry(giant)


@pytest.mark.parametrize(
    ("error", "window"),
    [("context_length_exceeded", None), ("prompt is too long: 9999 tokens > 6000 maximum", 6000)],
)
def test_relieve_after_the_provider_refused_the_last_prompt(world, clock, error, window):
    """A refusal closes the turn and means a load above the window."""
    conversation = large_conversation()
    conversation.user("and now?")
    conversation.assistant([], stop="error")
    conversation.lines[-1]["message"]["errorMessage"] = error
    world.put("s.jsonl", conversation.bytes())
    relief = relieve_session(world)

    assert relief.fits
    assert relief.before.pressure >= 1
    assert window is None or relief.before.window == window
    full = fullness(world)
    assert full.window == pytest.approx(relief.before.window, rel=0.01)
    assert full.load < 0.75 * full.window


@pytest.mark.parametrize("message", ["30,000 tokens > 27,000 maximum", "context window of 27,000"])
def test_relieve_prefers_the_provider_count_to_an_estimate(world, clock, message):
    """The load is the number of tokens in the provider's refusal, or the window that it names."""
    conversation = Conversation()
    giant = conversation.turn("g" * 30_000)
    conversation.user("and now?")
    conversation.assistant([], stop="error")
    conversation.lines[-1]["message"]["errorMessage"] = f"prompt is too long: {message}"
    path = world.put("s.jsonl", conversation.bytes())
    relief = relieve_session(world, to=0.95, keep_recent=100)

    assert relief.before.load == pytest.approx(30_000 if "30" in message else 27_000, rel=0.01)
    assert (relief.fits, relief.values) == (True, 1)
    assert entry_text(path, giant).startswith("[[extracted-")


def test_relieve_extracts_prompts_and_answers_in_step_6(world, clock):
    """If five steps do not suffice, prompts and answers of the older half are extracted."""
    write_prompts(world, 30)
    relief = relieve_session(world, windows={"*": 30_000})

    assert render.relief_json(relief, dry_run=False)["rounds"] == 2
    assert relief.after.step == 6
    assert {amount.kind for amount in relief.went} == {"user", "assistant"}
    assert sum(amount.values for amount in relief.went) == 30
    assert relief.fits


def test_relieve_reports_a_session_that_cannot_fit(world, clock):
    """A session that cannot fit because of a pinned value is reported and stays valid."""
    conversation = Conversation()
    ident = conversation.user("q" * 90_000)
    conversation.assistant("a" * 300)
    path = world.put("s.jsonl", conversation.bytes())
    pin(world, ident, False)
    relief = relieve_session(world, windows={"*": 10_000})

    assert not relief.fits
    assert relief.after.load > relief.room
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_relieve_extracts_the_oldest_values_and_no_more_than_needed(world, clock):
    """For random goals restoring the last of the extracted oldest values misses the goal."""
    for seed in range(12):
        dice = random.Random(seed)
        conversation = Conversation(f"{seed:08}-0000-4000-8000-000000000001")
        for _ in range(100 * seed):  # each session has ids of its own
            conversation.user("go on")
        del conversation.lines[1:]
        conversation.last = None
        turns = range(dice.randrange(8, 20))
        results = [conversation.turn("x" * dice.randrange(600, 6000)) for _ in turns]
        path = world.put(f"s{seed}.jsonl", conversation.bytes())
        load = fullness(world, f"s{seed}").load
        goal = dice.randrange(load * 2 // 5, load)
        relief = relieve_session(world, f"s{seed}", to=goal)
        extracted = [ident for ident in results if entry_text(path, ident)[0] != "x"]

        assert relief.fits, seed
        assert extracted == results[: relief.values] != [], seed
        assert fullness(world, f"s{seed}").load <= goal, seed
        world.restore(extracted[-1], session=f"s{seed}")
        assert fullness(world, f"s{seed}").load > goal, seed


def test_relieve_extracts_superseded_results_before_older_ones(world, clock):
    """A superseded result is extracted first although other results are older."""
    conversation, results = Conversation(), []
    for number, command in enumerate(("a", "b", "ls", "ls", "c")):
        conversation.user()
        conversation.call(arguments={"command": command}, call=str(number))
        results.append(conversation.result(f"{number}" * 3000, call=str(number)))
        conversation.assistant()
    path = world.put("s.jsonl", conversation.bytes())
    relieve_session(world, to=fullness(world).load - 900)

    assert [entry_text(path, ident)[0] for ident in results] == ["0", "1", "[", "3", "4"]


def add_mixed_turns(dice, conversation):
    """Add turns with values of all kinds and lengths to a conversation and return it."""
    claude = isinstance(conversation, ClaudeConversation)
    for number in range(dice.randrange(4, 14)):
        conversation.user("q" * dice.randrange(5, 1500))
        for call in range(dice.randrange(4)):
            arguments = {"command": "c" * dice.choice((9, 150, 900))}
            conversation.call(
                call=f"call_{number}_{call}", **{"given" if claude else "arguments": arguments}
            )
            conversation.result(
                "r" * dice.choice((30, 250, 900, 7000)), call=f"call_{number}_{call}"
            )
        text = "a" * dice.randrange(5, 900)
        conversation.assistant({"type": "text", "text": text} if claude else text)
    return conversation


@pytest.mark.parametrize("kind", [Conversation, ClaudeConversation])
@pytest.mark.parametrize("seed", range(6))
def test_relieve_never_extracts_one_value_more_than_needed(world, clock, kind, seed):
    """For random sessions and goals the last value of the lowest sufficient step is needed."""
    dice = random.Random(seed)
    world.put("s.jsonl", add_mixed_turns(dice, kind()).bytes())
    settings = world.settings(windows={"*": 20_000}, keep_recent=dice.choice((0, 3, 30)))
    file = file_of(session_named(settings, world.store, "s"))
    with examine_to_show(settings, world.store, file, None, clock()) as examined:
        planner = ExaminationPlanner(examined, examined.records)
        measured, full = weigh(planner)
        relief = ReliefPlanner(planner, measured, full, settings.decision_rules())
        levels = relief_levels(LAST_STEP, planner.examined.form.archives)
        for goal in [dice.randrange(relief.least().load, full.load) for _ in range(4)]:
            at = next(
                (at for at, level in enumerate(levels) if relief.plan(level).load <= goal), None
            )
            weighed = relieve_by(planner, Wanted(goal))
            assert weighed.fits == (at is not None), goal
            if at is None:
                continue
            assert weighed.after.step == levels[at][-1], goal
            assert relief.plan(levels[at - 1]).load > goal
            before = {value.start for value in relief.plan(levels[at - 1]).plan.removals}
            places = [
                (value.entry_id, value.path) for value in relief.plan(levels[at]).plan.removals
                if value.start not in before
            ]  # fmt: skip
            removed = {(value.entry_id, value.path) for value in weighed.plan.removals}
            extracted = [place for place in places if place in removed]
            without = frozenset(places) - frozenset(extracted[:-1])
            assert extracted == places[: len(extracted)]
            assert not extracted or relief.plan(levels[at], without).load > goal


def test_relieve_spares_other_values_while_one_is_protected(world, clock):
    """If only a protected value would do, nothing is extracted; `--now` extracts it."""
    conversation = Conversation()
    giant = conversation.turn("g" * 60_000, prompt="q" * 5000, arguments={"command": "c" * 20_000})
    for _ in range(4):
        conversation.turn("short")
    path = world.put("s.jsonl", conversation.bytes())
    window = {"windows": {"*": 20_000}}
    world.scan(**window)
    world.restore(giant)
    before = path.read_bytes()
    relief = relieve_session(world, **window)

    assert not relief.fits
    assert (relief.values, relief.least) == (0, None)
    assert path.read_bytes() == before
    size, end = relief.protected
    assert size == pytest.approx(60_000, rel=0.01)
    assert clock() < end <= clock() + 600
    until = datetime.fromtimestamp(math.ceil(end / 60) * 60).astimezone().strftime("%H:%M")
    printed = render.relief(relief, dry_run=False)
    assert f"60.0 KB protected until {until}; --now extracts them" in printed
    again = relieve(world.settings(**window), world.store, "s", Wanted(now=True), clock=world.clock)
    assert again.fits
    assert again.protected is None
    assert {amount.kind for amount in again.went} == {"tool_result"}


def test_relieve_ignores_protected_values_it_does_not_need(world, clock):
    """If other values of the step suffice, they are extracted and no protection is reported."""
    conversation = Conversation()
    results = [conversation.turn("x" * 3000) for _ in range(12)]
    path = world.put("s.jsonl", conversation.bytes())
    load = fullness(world).load
    assert relieve_session(world, to=load - 900).values == 1
    world.restore(results[0])
    relief = relieve_session(world, to=load - 900)

    assert relief.fits
    assert relief.protected is None
    assert entry_text(path, results[0])[0] == "x" != entry_text(path, results[1])[0]


def test_relieve_changes_nothing_for_an_unreachable_goal(world, clock, full_path):
    """If the fixed load exceeds the goal, nothing is extracted and that load is named."""
    before = full_path.read_bytes()
    relief = relieve_session(world, to=2000)  # system prompt and tools take 2,000 in this model

    assert (relief.fits, relief.values) == (False, 0)
    assert relief.least > 2000
    assert full_path.read_bytes() == before


def test_relieve_extracts_all_it_may_if_no_step_suffices(world, clock):
    """If the newest quarter alone exceeds the goal, it is reported that the session is too full."""
    write_prompts(world, 20)
    relief = relieve_session(world, to=fullness(world).load // 5)

    assert (relief.fits, relief.after.step, relief.least) == (False, 7, None)
    assert relief.values > 0


def test_relieve_in_an_open_turn_becomes_a_pending_request(world, clock):
    """In an open turn nothing is written; the first scan after the turn carries out the request."""
    conversation = large_conversation()
    conversation.user("more")
    path = world.put("s.jsonl", conversation.bytes(), age=5)
    before = path.read_bytes()
    relief = relieve_session(world, **SMALL)

    assert relief.pending
    assert not relief.fits
    assert "a user message" in relief.reason
    assert path.read_bytes() == before
    assert world.scan(**SMALL).values_extracted == 0
    conversation.assistant("yes")
    world.put("s.jsonl", conversation.bytes(), age=5)
    report = world.scan(**SMALL)
    assert report.values_extracted == 7
    assert fullness(world, **SMALL).pressure < 0.75
    assert event_kinds(world) == ["extraction", "relief"]
    assert world.store.requests.count_open() == 0
    assert world.scan(**SMALL).sessions_changed == 0


@pytest.fixture
def pending_session(world, clock):
    """Return a session with a pending request to relieve it, whose turn was closed afterwards."""
    conversation = large_conversation()
    conversation.user("more")
    path = world.put("s.jsonl", conversation.bytes(), age=5)
    assert relieve_session(world, **SMALL).pending
    conversation.assistant("yes")
    world.put("s.jsonl", conversation.bytes(), age=5)
    return path


def lapses(world):
    """Return the session, action and reason of each request that lapsed."""
    events = world.store.events.after(0, kinds=["lapse"])
    return [(event.session, event.facts["action"], event.facts["reason"]) for event in events]


def test_relieve_request_of_an_excluded_session_lapses_after_a_day(world, pending_session, clock):
    """After a day without an idle moment a request lapses; events and `status` give the reason."""
    keys = {**SMALL, "exclude": ["session:s"]}
    before = pending_session.read_bytes()
    world.scan(**keys)
    assert world.store.requests.count_open() == 1
    clock.now += RELIEF_REQUEST_SECONDS
    world.scan(**keys)

    reason = "its session was not idle in time, or is excluded or gone"
    assert lapses(world) == [("main/s", "relieve", reason)]
    assert world.store.requests.count_open() == 0
    assert pending_session.read_bytes() == before
    [failure] = status(world.settings(**keys), world.store, clock()).failures
    assert event_text(failure) == f"main/s: relieve lapsed, {reason}"


def test_relieve_request_waits_for_an_unreadable_root(world, pending_session, clock):
    """A session in a missing root is not gone: its request is carried out when the root is back."""
    aside = world.base / "aside"
    world.root.rename(aside)
    world.scan(**SMALL)
    assert world.store.requests.count_open() == 1
    [listed] = sessions(world.settings(**SMALL), world.store, clock())
    assert (listed.state, listed.reason) == ("unreadable", f"{world.root}: no such directory")
    with pytest.raises(GoneError, match="its file cannot be seen"):
        relieve_session(world, **SMALL)
    aside.rename(world.root)

    assert world.scan(**SMALL).values_extracted == 7
    assert lapses(world) == []


def test_restore_keeps_a_pending_relieve_request(world, clock, full_path):
    """Restoring an entry closes no request to relieve the session."""
    relieve_session(world, **SMALL)
    entry = json.loads(full_path.read_bytes().splitlines()[3])["id"]
    session = world.store.sessions.at(str(full_path))
    with world.store.transaction():
        world.store.requests.add(
            replace(EVERYTHING, session_id=session.id, action="relieve", value={}, asked_at=clock())
        )
    world.restore(entry)

    assert [request.action for request in world.store.requests.of_session(session.id)] == [
        "relieve"
    ]


def test_relieve_dry_run_writes_nothing_and_needs_no_store(world, clock, full_path):
    """A dry run returns the load and values after a relief without a change and without a store."""
    before = full_path.read_bytes()
    relief = would_relieve(world.settings(**SMALL), world.no_store, "s", Wanted(), clock())

    assert relief.fits
    assert relief.values == 7
    assert full_path.read_bytes() == before
    assert not world.state.exists()


def test_relieve_refuses_an_excluded_session(world, full_path):
    """An excluded session is refused with the reason, also in a dry run."""
    before, settings = full_path.read_bytes(), world.settings(exclude=["session:s"], **SMALL)
    with pytest.raises(FailedError, match="excluded by session:s"):
        relieve(settings, world.store, "s", Wanted(), clock=world.clock)
    with pytest.raises(FailedError, match="excluded by session:s"):
        would_relieve(settings, world.store, "s", Wanted(), world.clock())

    assert full_path.read_bytes() == before


def think(conversation, text="t" * 40, model="claude-fable-5-1"):
    """Add an answer with signed thinking and return its id."""
    block = {"type": "thinking", "thinking": text, "thinkingSignature": "s" * 80}
    blocks = [block, {"type": "text", "text": "so"}]
    ident = conversation.assistant(blocks, api="anthropic-messages")
    conversation.lines[-1]["message"]["model"] = model
    return ident


def test_relieve_signatures_removes_empty_and_stale_ones_only(world, clock):
    """Signatures without text or after an extraction are removed on request; valid ones stay."""
    conversation = Conversation()
    conversation.user()
    valid = think(conversation)
    conversation.turn("x" * 3000)
    conversation.user()
    stale = think(conversation)
    conversation.user()
    empty = think(conversation, text="", model="claude-3-opus")
    data = conversation.bytes()
    path = world.put("s.jsonl", data)
    world.scan(signed_models=["!claude-*"])
    assert b"extracted-" in path.read_bytes()
    assert relieve_session(world, keep_recent=99).signatures == 0

    relief = relieve_session(world, signatures=True, keep_recent=99)
    left = {line["id"]: line for line in map(json.loads, path.read_bytes().splitlines())}

    assert relief.signatures == 2
    assert left[valid]["message"]["content"][0]["thinkingSignature"]
    for ident in (stale, empty):
        assert left[ident]["message"]["content"][0]["thinkingSignature"] == ""
    world.restore_all(pristine=True)
    assert path.read_bytes() == data


def test_relieve_signatures_removes_all_after_a_refusal(world, clock):
    """After the provider refused a signature all are removed: the error does not say which."""
    conversation = Conversation()
    conversation.user()
    think(conversation)
    conversation.user()
    conversation.assistant([], stop="error", api="anthropic-messages")
    conversation.lines[-1]["message"]["errorMessage"] = (
        "400 The block is bound to a different conversation"
    )
    path = world.put("s.jsonl", conversation.bytes())

    assert relieve_session(world, signatures=True).signatures == 1
    assert b'"thinkingSignature":"s' not in path.read_bytes()


# Scans with a budget.


def test_scan_without_a_budget_records_no_load(world, clock, full_path):
    """A scan in the default configuration neither estimates nor stores a load."""
    world.scan()

    assert status(world.settings(), world.store, clock()).tokens.loads.sessions_weighed == 0


def test_scan_with_a_budget_takes_the_lowest_sufficient_step(world, clock, full_path):
    """Above the threshold a scan relieves to 0.15 below it, and the next scan changes nothing."""
    budget = {**SMALL, "budget": {"enabled": True, "max_step": 5}}
    report = world.scan(**budget)

    (outcome,) = report.sessions
    assert outcome.full.step == 4
    assert outcome.full.pressure <= 0.60
    assert world.scan(**budget).sessions_changed == 0
    loads = status(world.settings(**budget), world.store, clock()).tokens.loads
    assert (loads.sessions_weighed, loads.sessions_too_full) == (1, 0)
    assert loads.load_tokens == outcome.full.load


def test_scan_with_a_budget_plans_a_fitting_session_once(world, clock, monkeypatch):
    """A budget adds no second plan for a session below its threshold."""
    world.put("s.jsonl", large_conversation(turns=4).bytes())
    plan, plans = ExaminationPlanner.plan, []
    monkeypatch.setattr(
        ExaminationPlanner, "plan", lambda *arguments: plans.append(1) or plan(*arguments)
    )
    world.scan(budget={"enabled": True})

    assert len(plans) == 1


def test_scan_with_a_budget_stops_at_max_step(world, clock, full_path):
    """With the default max_step 3 recent messages are kept although the session stays too full."""
    budget = {**SMALL, "budget": {"enabled": True}}
    assert world.scan(**budget).values_extracted == 0
    assert fullness(world, **budget).pressure > 0.75


def test_scan_with_a_budget_below_the_threshold_follows_the_rules(world, clock, full_path):
    """Below the threshold a budget extracts as many values as a scan without it."""
    plain = world.scan(dry_run=True, keep_recent=30).values_extracted

    assert world.scan(keep_recent=30, budget={"enabled": True}).values_extracted == plain > 0


@pytest.mark.parametrize(("turns", "calls"), [(18, 1), (3, 11), (1, 35), (37, 0), (13, 1)])
def test_max_messages_archives_turns_until_it_holds(world, clock, turns, calls):
    """Turns of any shape become one archive until 50 messages remain; then nothing changes."""
    conversation = Conversation()
    for _ in range(turns):
        add_long_turn(conversation, question="q" * 90, calls=calls, text="y" * 300)
    path = world.put("s.jsonl", conversation.bytes())
    cap = {"budget": {"max_messages": 50}}
    world.scan(**cap)
    written = path.read_bytes()

    assert 0 < len(branch_roles(written)) <= 50
    assert written.count(b'"[archived turn]') == 1
    assert text_blocks(written, active_branch(written)[0]["id"]) == ["q" * 90]
    assert world.scan(**cap).sessions_changed == 0
    world.restore_all(pristine=True)
    assert path.read_bytes() == conversation.bytes()


def test_max_messages_archives_turns_around_a_pinned_entry(world, clock):
    """The turn of a pinned entry stays; the turns before and after it become an archive each."""
    conversation = Conversation()
    for number in range(20):
        add_long_turn(conversation, calls=1)
        if number == 3:
            conversation.lines[-2]["_extractable"] = False
    path = world.put("s.jsonl", conversation.bytes())
    world.scan(budget={"max_messages": 50})
    written = path.read_bytes()

    assert len(branch_roles(written)) <= 50
    assert written.count(b'"[archived turn]') == 2
    assert world.scan(budget={"max_messages": 50}).sessions_changed == 0


def test_max_messages_without_links_extracts_older_values(world, clock):
    """In Claude Code's format a cap of 50 extracts the values of messages before the last 50."""
    conversation = ClaudeConversation()
    idents = [
        conversation.user("q" * 90) if number % 2 == 0 else conversation.assistant("a" * 90)
        for number in range(51)
    ]
    world.put("s.jsonl", conversation.bytes())
    world.scan(budget={"max_messages": 50})
    extracted = [ident for ident in idents if world.store.extractions.of_entry(ident)]

    assert extracted == idents[:1]


def test_profile_is_chosen_by_the_openclaw_session_key(world, clock):
    """A `key:` pattern matches the key in sessions.json, which also gives the window."""
    conversation = large_conversation(40)
    path = world.put("s.jsonl", conversation.bytes())
    (world.directory / "sessions.json").write_text(json.dumps({
        "agent:main:cron:daily": {"sessionId": "s", "contextTokens": 32_000},
    }))  # fmt: skip
    use = {"use": [{"sessions": "key:agent:*:cron:*", "profile": "ephemeral"}]}

    assert fullness(world).window == 32_000
    assert fullness(world).recorded
    assert world.scan(dry_run=True, keep_recent=200).values_extracted == 0
    assert world.scan(keep_recent=200, **use).values_extracted == 27
    assert path.read_bytes().count(b"extracted-") == 27


def test_new_session_is_calibrated_by_others_of_its_agent(world, clock):
    """A session without recorded usage gets the median calibration of its agent's sessions."""
    budget = {"budget": {"enabled": True}}
    world.put("one.jsonl", large_conversation().bytes())
    world.scan(**budget)
    fresh = Conversation("22222222-0000-4000-8000-000000000002")
    fresh.turn()
    world.put("two.jsonl", fresh.bytes())
    calibration = fullness(world, "two", **budget).calibration

    assert calibration.method == "agent"
    assert calibration.rate == pytest.approx(0.25, rel=0.05)


def test_deleted_session_drops_out_of_the_loads(world, clock):
    """After the scan that misses a session `status` no longer counts its load."""
    budget = {"budget": {"enabled": True}}
    path = world.put("s.jsonl", large_conversation().bytes())
    world.scan(**budget)
    path.unlink()
    world.scan(**budget)

    assert status(world.settings(), world.store, clock()).tokens.loads.sessions_weighed == 0


def test_codex_session_has_the_recorded_window(world, clock):
    """A Codex session's window and load are recorded, and its calibration is the default."""
    count = {"type": "token_count", "info": {
        "last_token_usage": {"input_tokens": 7, "total_tokens": 115_058},
        "model_context_window": 258_400,
    }}  # fmt: skip
    lines = [CODEX, {"type": "event_msg", "payload": count}]
    world.put("rollout-x.jsonl", b"".join(json.dumps(line).encode() + b"\n" for line in lines))
    session = context(world.settings(), world.store, "rollout-x", clock())

    assert session.format == "codex"
    assert (session.full.window, session.full.recorded) == (258_400, True)
    assert session.full.load == 115_058
    assert session.full.calibration == Calibration(0.33, 0.0, 1, "default", 1.0)


# Sessions in a database.


@pytest.fixture
def claw(tmp_path):
    world = ClawWorld(tmp_path)
    yield world
    world.close()


def test_relieve_in_a_database_is_restored_byte_for_byte(claw):
    """Steps 1, 2, 4 and 5 apply to rows, and a restore brings back every event unchanged."""
    before = claw.claw.texts(GATEWAY)
    full = context(claw.settings(), claw.store, GATEWAY, LATER).full
    relief = relieve(
        claw.settings(), claw.store, GATEWAY, Wanted(full.load // 2), clock=claw.clock
    )  # fmt: skip

    assert relief.values > 0
    assert relief.after.load < relief.before.load
    assert relief.after.step in (1, 2, 4, 5)
    assert {amount.kind for amount in relief.went} <= {"tool_result", "thinking", "tool_call"}
    assert claw.claw.texts(GATEWAY) != before
    claw.restore_all(pristine=True)
    assert claw.claw.texts(GATEWAY) == before
    assert claw.claw.sound() == []


def test_relieve_request_waits_for_a_busy_database(claw):
    """Scans that leave a database unread keep its pending request until one carries it out."""
    claw.claw.sql(WAITS_FOR_ENGINE % 1)
    wanted = Wanted(context(claw.settings(), claw.store, GATEWAY, LATER).full.load // 2)
    assert relieve(claw.settings(), claw.store, GATEWAY, wanted, clock=claw.clock).pending
    for _ in range(4):
        claw.later(60)
        report = claw.scan()
    assert (report.sessions, lapses(claw)) == ([], [])
    claw.claw.sql("DELETE FROM context_engine_turn_outbox")
    claw.scan()

    assert "relief" in event_kinds(claw)
    assert lapses(claw) == []


def test_window_of_a_database_session_is_read_from_its_node(claw):
    """`contextTokens` of the session node is the window, or the model's default without it."""
    change = "UPDATE session_nodes SET entry_json = json_{}(entry_json, '$.contextTokens'{})"
    claw.claw.sql(change.format("set", ", 12345"))
    recorded = context(claw.settings(), claw.store, GATEWAY, LATER).full
    claw.claw.sql(change.format("remove", ""))
    default = context(claw.settings(), claw.store, GATEWAY, LATER).full

    assert (recorded.window, recorded.recorded) == (12_345, True)
    assert (default.window, default.recorded) == (200_000, False)


def test_relieve_archives_the_oldest_turns_in_step_3(world):
    """Where extraction does not suffice, the oldest turns are archived, no more than needed."""
    conversation = Conversation()
    for _ in range(6):
        add_long_turn(conversation, calls=12, text="y" * 190)
    path = world.put("s.jsonl", conversation.bytes())
    world.scan()
    relief = relieve_session(world, to=fullness(world).load * 3 // 4)

    assert (relief.fits, relief.after.step) == (True, 3)
    assert path.read_bytes().count(b'"[archived turn]') == 2  # one would miss the goal
    assert relief.room - relief.after.load < (relief.before.load - relief.after.load) // 2
    assert fullness(world).load == pytest.approx(relief.after.load, rel=0.02)
    world.restore_all(pristine=True)
    assert path.read_bytes() == conversation.bytes()
