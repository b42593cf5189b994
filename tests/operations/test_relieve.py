"""A session that is too full: scans with a budget, caps, and the one command that helps."""

import json
import random
from datetime import datetime

import pytest
from msgspec.structs import replace

from brainsurgeon.errors import FailedError, GoneError
from brainsurgeon.lookup.sessions import file_of, session_named
from brainsurgeon.model.records import EVERYTHING
from brainsurgeon.model.turns import Calibration
from brainsurgeon.operations.relieve import PATIENCE, relieve, would_relieve
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.status import status
from brainsurgeon.planning.budget import rungs, steps_to
from brainsurgeon.render import turns as render
from brainsurgeon.render.runs import event_text
from brainsurgeon.rewrite.budget import Ladder, Wanted, relieve_by, weigh
from brainsurgeon.rewrite.inspect import Planner, examine_to_show
from building.claude import ClaudeConversation
from building.claw import GATEWAY, LATER, ClawWorld
from building.turns import active_branch, add_long_turn, branch_roles, text_blocks
from building.world import SAMPLES, Clock, Conversation, entry_text, pin

BIG = "openclaw/2026.7.35/agents/main/sessions/a1a1a1a1-0000-4000-8000-000000000001.jsonl"
CODEX = {"type": "session_meta", "payload": {"id": "c"}}


def talk(turns=20, chars=3000, model="house-1"):
    """Give a conversation of turns with results of a length, whose usage lies on a line."""
    one, carried = Conversation(), 0
    for number in range(turns):
        ident = one.turn(f"{number:04}" + "x" * (chars - 4))
        carried += chars + 40
        one.lines[-1]["message"] |= {
            "model": model, "usage": {"input": 2000 + carried // 4, "cacheRead": 0,
                                      "cacheWrite": 0},
        }  # fmt: skip
        one.last_result = ident
    return one


def lift(world, session="s", to=None, signatures=False, **keys):
    return relieve(
        world.settings(**keys), world.store, session, Wanted(to, signatures), clock=world.clock
    )


def kinds_told(world):
    return [one.kind for one in world.store.events.after(0)]


def fullness(world, session="s", **keys):
    return context(world.settings(**keys), world.store, session, world.clock()).full


# A model that takes little, and rules that keep nearly everything.
SMALL = {"windows": {"house-*": 20_000}, "keep_recent": 100}
# A model that takes very much, and rules by which nothing goes.
LARGE = {"windows": {"house-*": 10_000_000}, "min_value_length": 10_000}


def test_a_session_that_is_too_full_is_relieved_until_it_fits(world, clock):
    """The lowest step goes first, everything of it comes back, and the bytes are the same."""
    path = world.put("s.jsonl", talk().bytes())
    before = path.read_bytes()
    done = lift(world, **SMALL)

    assert done.fits
    assert not done.pending
    assert render.relief_json(done, dry_run=False)["rounds"] == 1
    assert done.before.load > 0.75 * 20_000 > done.after.load
    assert done.after.pressure <= 0.60
    assert done.after.step == 4
    assert fullness(world, **SMALL).load == pytest.approx(done.after.load, rel=0.02)
    assert sum(one.values for one in done.went) == done.values == 7  # the oldest
    assert {one.kind for one in done.stays} >= {"tool_call", "assistant", "user"}
    assert len(path.read_bytes()) == done.bytes_after < done.bytes_before == len(before)
    world.restore_all(pristine=True)
    assert path.read_bytes() == before


def test_a_relief_is_a_run_that_can_be_taken_back(world, clock):
    """It says what went when it happened, and a rollback brings back every byte of it."""
    path = world.put("s.jsonl", talk().bytes())
    before = path.read_bytes()
    done = lift(world, **SMALL)
    [made] = world.store.runs.newest(None)

    assert made.command == "relieve"
    assert made.facts["extracted"] == done.values
    assert kinds_told(world) == ["extraction", "relief"]
    assert world.store.events.after(0)[-1].facts["values"] == done.values
    world.rollback(made.id)
    assert path.read_bytes() == before


def test_a_real_session_is_brought_to_a_load_that_is_named(world, clock):
    """--to names tokens or a share of the window; what is asked for decides, not the threshold."""
    world.put("s.jsonl", (SAMPLES / BIG).read_bytes())
    full = fullness(world)
    done = lift(world, to=50_000)

    assert full.calibration.method == "session"
    assert full.calibration.error < 0.01
    assert full.load > 50_000 >= done.after.load
    assert done.fits


def test_a_giant_result_that_has_just_come_goes_by_the_second_step(world, clock):
    """A result larger than a tenth of the window goes although it is the newest there is."""
    one = talk(4)
    giant = one.turn("g" * 60_000)
    world.put("s.jsonl", one.bytes())
    done = lift(world, **SMALL)

    assert done.fits
    assert done.after.step == 2
    assert world.store.extractions.of_entry(giant)


@pytest.mark.parametrize(
    ("error", "window"),
    [("context_length_exceeded", None), ("prompt is too long: 9999 tokens > 6000 maximum", 6000)],
)
def test_a_session_whose_last_prompt_was_refused_is_relieved_at_once(world, clock, error, window):
    """An answer that is an error closes its turn; what was refused is larger than the window."""
    one = talk()
    one.user("and now?")
    one.assistant([], stop="error")
    one.lines[-1]["message"]["errorMessage"] = error
    world.put("s.jsonl", one.bytes())
    done = lift(world)

    assert done.fits
    assert done.before.pressure >= 1
    assert window is None or done.before.window == window
    again = fullness(world)
    assert again.window == pytest.approx(done.before.window, rel=0.01)
    assert again.load < 0.75 * again.window


@pytest.mark.parametrize("said", ["30,000 tokens > 27,000 maximum", "context window of 27,000"])
def test_what_the_provider_counted_stands_above_an_estimate(world, clock, said):
    """A prompt that was refused does not fit, however little is known of what is always there."""
    one = Conversation()
    giant = one.turn("g" * 30_000)
    one.user("and now?")
    one.assistant([], stop="error")
    one.lines[-1]["message"]["errorMessage"] = f"prompt is too long: {said}"
    path = world.put("s.jsonl", one.bytes())
    done = lift(world, to=0.95, keep_recent=100)

    assert done.before.load == pytest.approx(30_000 if "30" in said else 27_000, rel=0.01)
    assert (done.fits, done.values) == (True, 1)
    assert entry_text(path, giant).startswith("[[extracted-")


def test_the_last_round_takes_the_older_half_whatever_its_kind(world, clock):
    """Where the first five steps do not do, prompts and answers of the older half go, too."""
    one = Conversation()
    for number in range(30):
        one.user(f"{number} " + "q" * 2000)
        one.assistant(f"{number} " + "a" * 2000)
    world.put("s.jsonl", one.bytes())
    done = lift(world, windows={"*": 30_000})

    assert render.relief_json(done, dry_run=False)["rounds"] == 2
    assert done.after.step == 6
    assert {one.kind for one in done.went} == {"user", "assistant"}
    assert sum(one.values for one in done.went) == 30
    assert done.fits


def test_one_that_cannot_fit_says_so_and_is_left_valid(world, clock):
    """What is pinned stays whatever the step: then it does not fit, and no more was done."""
    one = Conversation()
    ident = one.user("q" * 90_000)
    one.assistant("a" * 300)
    path = world.put("s.jsonl", one.bytes())
    pin(world, ident, False)
    done = lift(world, windows={"*": 10_000})

    assert not done.fits
    assert done.after.load > done.room
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_the_oldest_goes_first_and_no_more_than_is_needed(world, clock):
    """Restoring the last value that was taken would miss the goal, whatever the goal is."""
    for seed in range(12):
        dice, one = random.Random(seed), Conversation(f"{seed:08}-0000-4000-8000-000000000001")
        for _ in range(100 * seed):  # each session has ids of its own
            one.user("go on")
        del one.lines[1:]
        one.last = None
        results = [one.turn("x" * dice.randrange(600, 6000)) for _ in range(dice.randrange(8, 20))]
        path = world.put(f"s{seed}.jsonl", one.bytes())
        load = fullness(world, f"s{seed}").load
        goal = dice.randrange(load * 2 // 5, load)
        done = lift(world, f"s{seed}", to=goal)
        taken = [ident for ident in results if entry_text(path, ident)[0] != "x"]

        assert done.fits, seed
        assert taken == results[: done.values] != [], seed
        assert fullness(world, f"s{seed}").load <= goal, seed
        world.restore(taken[-1], session=f"s{seed}")
        assert fullness(world, f"s{seed}").load > goal, seed


def test_superseded_results_go_before_older_ones(world, clock):
    """A result whose call was repeated goes first, although others are older."""
    one, results = Conversation(), []
    for number, command in enumerate(("a", "b", "ls", "ls", "c")):
        one.user()
        one.call(arguments={"command": command}, call=str(number))
        results.append(one.result(f"{number}" * 3000, call=str(number)))
        one.assistant()
    path = world.put("s.jsonl", one.bytes())
    lift(world, to=fullness(world).load - 900)

    assert [entry_text(path, ident)[0] for ident in results] == ["0", "1", "[", "3", "4"]


def mixed(dice, one):
    """Fill a session with turns of values of all kinds and lengths."""
    claude = isinstance(one, ClaudeConversation)
    for number in range(dice.randrange(4, 14)):
        one.user("q" * dice.randrange(5, 1500))
        for call in range(dice.randrange(4)):
            given = {"command": "c" * dice.choice((9, 150, 900))}
            one.call(call=f"call_{number}_{call}", **{"given" if claude else "arguments": given})
            one.result("r" * dice.choice((30, 250, 900, 7000)), call=f"call_{number}_{call}")
        text = "a" * dice.randrange(5, 900)
        one.assistant({"type": "text", "text": text} if claude else text)
    return one


@pytest.mark.parametrize("kind", [Conversation, ClaudeConversation])
@pytest.mark.parametrize("seed", range(6))
def test_the_last_that_any_step_takes_was_needed(world, clock, kind, seed):
    """Without the last value of the lowest step that does, or without its archive, it is missed."""
    dice = random.Random(seed)
    world.put("s.jsonl", mixed(dice, kind()).bytes())
    settings = world.settings(windows={"*": 20_000}, keep_recent=dice.choice((0, 3, 30)))
    file = file_of(session_named(settings, world.store, "s"))
    with examine_to_show(settings, world.store, file, None, clock()) as examined:
        planner = Planner(examined, examined.records)
        measured, full = weigh(planner)
        ladder = Ladder(planner, measured, full, settings.decision_rules())
        climbed = rungs((0, *steps_to(6, planner.examined.format.archives)))
        for goal in [dice.randrange(ladder.least().load, full.load) for _ in range(4)]:
            at = next((at for at, one in enumerate(climbed) if ladder.plan(one).load <= goal), None)
            fitting = relieve_by(planner, Wanted(goal))
            assert fitting.fits == (at is not None), goal
            if at is None:
                continue
            assert fitting.after.step == climbed[at][-1], goal
            assert ladder.plan(climbed[at - 1]).load > goal
            before = {value.start for value in ladder.plan(climbed[at - 1]).plan.removals}
            places = [
                (value.entry_id, value.path) for value in ladder.plan(climbed[at]).plan.removals
                if value.start not in before
            ]  # fmt: skip
            went = {(value.entry_id, value.path) for value in fitting.plan.removals}
            taken = [place for place in places if place in went]
            without = frozenset(places) - frozenset(taken[:-1])
            assert taken == places[: len(taken)]
            assert not taken or ladder.plan(climbed[at], without).load > goal


def test_what_was_restored_a_moment_ago_sends_nothing_else_away(world, clock):
    """It is said until when it is protected; calls and prompts stay, and --now takes it."""
    one = Conversation()
    giant = one.turn("g" * 60_000, prompt="q" * 5000, arguments={"command": "c" * 20_000})
    for _ in range(4):
        one.turn("short")
    path = world.put("s.jsonl", one.bytes())
    window = {"windows": {"*": 20_000}}
    world.scan(**window)
    world.restore(giant)
    before = path.read_bytes()
    done = lift(world, **window)

    assert not done.fits
    assert (done.values, done.least) == (0, None)
    assert path.read_bytes() == before
    assert done.protected_bytes == pytest.approx(60_000, rel=0.01)
    assert clock() < done.protected_until <= clock() + 600
    until = datetime.fromtimestamp(done.protected_until).astimezone().strftime("%H:%M")
    printed = render.relief(done, dry_run=False)
    assert f"60.0 KB protected until {until}; --now takes them" in printed
    again = relieve(world.settings(**window), world.store, "s", Wanted(now=True), clock=world.clock)
    assert again.fits
    assert again.protected_until is None
    assert {amount.kind for amount in again.went} == {"tool_result"}


def test_protected_values_that_are_not_needed_hold_nothing_up(world, clock):
    """Where other values of the same step do, they go, and nothing is said."""
    one = Conversation()
    results = [one.turn("x" * 3000) for _ in range(12)]
    path = world.put("s.jsonl", one.bytes())
    load = fullness(world).load
    assert lift(world, to=load - 900).values == 1
    world.restore(results[0])
    done = lift(world, to=load - 900)

    assert done.fits
    assert done.protected_until is None
    assert entry_text(path, results[0])[0] == "x" != entry_text(path, results[1])[0]


def test_what_no_value_can_take_off_is_more_than_the_goal(world, clock):
    """Then nothing is taken out, whatever could be, and the load that is always there is named."""
    path = world.put("s.jsonl", talk().bytes())
    before = path.read_bytes()
    done = lift(world, to=2000)  # system prompt and tools take 2,000 in this model

    assert (done.fits, done.values) == (False, 0)
    assert done.least > 2000
    assert path.read_bytes() == before


def test_where_no_step_does_all_is_taken_that_may_go(world, clock):
    """If the newer half alone is too long, the older half goes, and it is said not to fit."""
    one = Conversation()
    for number in range(20):
        one.user(f"{number} " + "q" * 2000)
        one.assistant(f"{number} " + "a" * 2000)
    world.put("s.jsonl", one.bytes())
    done = lift(world, to=fullness(world).load // 4)

    assert (done.fits, done.after.step, done.least) == (False, 6, None)
    assert done.values > 0


def test_an_open_turn_makes_it_a_request_that_the_scan_carries_out(world, clock):
    """Nothing is written into a turn; once it is closed, a scan does what was asked for."""
    one = talk()
    one.user("more")
    path = world.put("s.jsonl", one.bytes(), age=5)
    before = path.read_bytes()
    done = lift(world, **SMALL)

    assert done.pending
    assert "a user message" in done.reason
    assert path.read_bytes() == before
    assert world.scan(**SMALL).values_extracted == 0
    one.assistant("yes")
    world.put("s.jsonl", one.bytes(), age=5)
    report = world.scan(**SMALL)
    assert report.values_extracted == 7
    assert fullness(world, **SMALL).pressure < 0.75
    assert kinds_told(world) == ["extraction", "relief"]
    assert world.store.requests.count_open() == 0
    assert world.scan(**SMALL).sessions_changed == 0


@pytest.fixture
def asked(world, clock):
    """Give a session that is to be relieved once its turn is closed."""
    one = talk()
    one.user("more")
    path = world.put("s.jsonl", one.bytes(), age=5)
    assert lift(world, **SMALL).pending
    one.assistant("yes")
    world.put("s.jsonl", one.bytes(), age=5)
    return path


def lapses(world):
    """Give the sessions whose relief lapsed, with the reasons."""
    told = (one for one in world.store.events.after(0) if one.kind == "lapse")
    return [(one.session, one.facts["action"], one.facts["reason"]) for one in told]


def test_a_relief_that_was_never_possible_lapses(world, asked, clock):
    """After a day without an idle moment it ends, and events and `status` say so."""
    keys = {**SMALL, "exclude": ["session:s"]}
    before = asked.read_bytes()
    world.scan(**keys)
    assert world.store.requests.count_open() == 1
    clock.now += PATIENCE
    world.scan(**keys)

    reason = "its session was not idle in time, or is excluded or gone"
    assert lapses(world) == [("main/s", "relieve", reason)]
    assert world.store.requests.count_open() == 0
    assert asked.read_bytes() == before
    [told] = status(world.settings(**keys), world.store, clock()).failures
    assert event_text(told) == f"main/s: relieve lapsed, {reason}"


def test_a_relief_waits_for_a_root_that_cannot_be_read(world, asked, clock):
    """A session that cannot be seen for now is not gone: it is relieved when it can be."""
    aside = world.base / "aside"
    world.root.rename(aside)
    world.scan(**SMALL)
    assert world.store.requests.count_open() == 1
    [one] = sessions(world.settings(**SMALL), world.store, clock())
    assert (one.state, one.reason) == ("unreadable", f"{world.root}: no such directory")
    with pytest.raises(GoneError, match="its file cannot be seen"):
        lift(world, **SMALL)
    aside.rename(world.root)

    assert world.scan(**SMALL).values_extracted == 7
    assert lapses(world) == []


def test_a_small_session_is_relieved_where_that_was_asked_for(world, asked, clock):
    """`min_session_bytes` keeps no session from what was asked for, now or later."""
    assert world.scan(min_session_bytes=10**9, **SMALL).values_extracted == 7
    assert lapses(world) == []


def test_a_restore_leaves_the_request_to_relieve_open(world, clock):
    """Putting one value back fulfils no other request."""
    one = talk()
    path = world.put("s.jsonl", one.bytes())
    lift(world, **SMALL)
    entry = json.loads(path.read_bytes().splitlines()[3])["id"]
    one = world.store.sessions.at(str(path))
    with world.store.transaction():
        world.store.requests.add(
            replace(EVERYTHING, session_id=one.id, action="relieve", value={}, asked_at=clock())
        )
    world.restore(entry)

    assert [request.action for request in world.store.requests.open_of(one.id)] == ["relieve"]


def test_a_look_changes_nothing(world, clock):
    """What would go and what would be left is said without a store and without a change."""
    path = world.put("s.jsonl", talk().bytes())
    before = path.read_bytes()
    done = would_relieve(world.settings(**SMALL), world.no_store, "s", Wanted(), clock())

    assert done.fits
    assert done.values == 7
    assert path.read_bytes() == before
    assert not world.state.exists()


def test_what_is_excluded_is_not_relieved_either(world):
    """What the configuration leaves alone stays as it is, with the reason."""
    path = world.put("s.jsonl", talk().bytes())
    before = path.read_bytes()
    with pytest.raises(FailedError, match="excluded by session:s"):
        lift(world, exclude=["session:s"], **SMALL)

    assert path.read_bytes() == before
    assert lift(world, min_session_bytes=10**9, **SMALL).fits


def signed(text="t" * 40, signature="s" * 80, model="claude-fable-5-1"):
    block = {"type": "thinking", "thinking": text, "thinkingSignature": signature}
    return {"content": [block, {"type": "text", "text": "so"}], "api": "anthropic-messages",
            "model": model}  # fmt: skip


def think(one, **how):
    said = signed(**how)
    ident = one.assistant(said["content"], api=said["api"])
    one.lines[-1]["message"]["model"] = said["model"]
    return ident


def test_hollow_and_broken_signatures_go_only_on_request(world, clock):
    """A signature without its text goes, and one behind a cut; one before every cut stays."""
    one = Conversation()
    one.user()
    fits = think(one)
    one.turn("x" * 3000)
    one.user()
    stale = think(one)
    one.user()
    hollow = think(one, text="", model="claude-3-opus")
    data = one.bytes()
    path = world.put("s.jsonl", data)
    world.scan(signed_models=["!claude-*"])
    assert b"extracted-" in path.read_bytes()
    assert lift(world, keep_recent=99).signatures == 0

    done = lift(world, signatures=True, keep_recent=99)
    left = {one["id"]: one for one in map(json.loads, path.read_bytes().splitlines())}

    assert done.signatures == 2
    assert left[fits]["message"]["content"][0]["thinkingSignature"]
    for ident in (stale, hollow):
        assert left[ident]["message"]["content"][0]["thinkingSignature"] == ""
    world.restore_all(pristine=True)
    assert path.read_bytes() == data


def test_signatures_go_all_together_where_one_was_refused(world, clock):
    """Nobody knows which of them the provider meant, so that all of them go, in any turn."""
    one = Conversation()
    one.user()
    think(one)
    one.user()
    one.assistant([], stop="error", api="anthropic-messages")
    one.lines[-1]["message"]["errorMessage"] = "400 The block is bound to a different conversation"
    path = world.put("s.jsonl", one.bytes())

    assert lift(world, signatures=True).signatures == 1
    assert b'"thinkingSignature":"s' not in path.read_bytes()


# Scans with a budget.


def test_without_a_budget_nothing_is_weighed(world, clock):
    """A scan as configured by default neither estimates nor remembers a load."""
    world.put("s.jsonl", talk().bytes())
    world.scan()

    assert status(world.settings(), world.store, clock()).loads.sessions == 0


def test_a_scan_with_a_budget_takes_the_lowest_step_that_does(world, clock):
    """Above the threshold it relieves to 0.15 below; a second scan finds nothing to do."""
    world.put("s.jsonl", talk().bytes())
    budget = {**SMALL, "budget": {"enabled": True, "max_step": 5}}
    report = world.scan(**budget)

    (outcome,) = report.sessions
    assert outcome.full.step == 4
    assert outcome.full.pressure <= 0.60
    assert world.scan(**budget).sessions_changed == 0
    told = status(world.settings(**budget), world.store, clock()).loads
    assert (told.sessions, told.too_full) == (1, 0)
    assert told.load == outcome.full.load


def test_a_session_that_fits_is_planned_once(world, clock, monkeypatch):
    """A budget costs a session below its threshold one walk over its lines for the plan."""
    world.put("s.jsonl", talk(turns=4).bytes())
    plan, planned = Planner.plan, []
    monkeypatch.setattr(Planner, "plan", lambda *given: planned.append(1) or plan(*given))
    world.scan(budget={"enabled": True})

    assert len(planned) == 1


def test_no_step_beyond_the_allowed_is_taken(world, clock):
    """With max_step 3 recent messages stay, however full the session is; then it stays too full."""
    world.put("s.jsonl", talk().bytes())
    budget = {**SMALL, "budget": {"enabled": True}}
    assert world.scan(**budget).values_extracted == 0
    assert fullness(world, **budget).pressure > 0.75


def test_below_the_threshold_the_rules_are_as_configured(world, clock):
    """A budget asks for nothing in a session that has room."""
    world.put("s.jsonl", talk().bytes())
    plain = world.scan(dry_run=True, keep_recent=30).values_extracted

    assert world.scan(keep_recent=30, budget={"enabled": True}).values_extracted == plain > 0


def test_a_session_with_a_budget_is_never_looked_at_by_its_tail_alone(world, clock):
    """How full it is hangs on all of it, so that no place is remembered to go on from."""
    path = world.put("s.jsonl", talk(200, 4000).bytes())
    for keys in ({}, {"budget": {"enabled": True}}, {"budget": {"max_messages": 1000}}, {}):
        world.scan(**LARGE, **keys)
        assert bool(world.store.resumes.at(str(path))) == (not keys), keys


def test_another_profile_makes_a_session_be_looked_at_as_a_whole(world, clock):
    """The settings that hold for it are part of what a resumed look goes by."""
    path = world.put("s.jsonl", talk(200, 4000).bytes())
    met = set()
    for profile in ("night", "day", "noon"):
        world.scan(
            **LARGE,
            use=[{"sessions": "main/*", "profile": profile}],
            profiles={"night": {"keep_recent": 2}, "day": {"keep_recent": 9}, "noon": {}},
        )
        met.add(world.store.resumes.at(str(path)).rules)

    assert len(met) == 3


@pytest.mark.parametrize(("turns", "calls"), [(18, 1), (3, 11), (1, 35), (37, 0), (13, 1)])
def test_at_most_50_messages_means_at_most_50(world, clock, turns, calls):
    """Whole turns archive, of any shape, until it holds; another scan finds nothing to do."""
    one = Conversation()
    for _ in range(turns):
        add_long_turn(one, question="q" * 90, calls=calls, text="y" * 300)
    path = world.put("s.jsonl", one.bytes())
    cap = {"budget": {"max_messages": 50}}
    world.scan(**cap)
    written = path.read_bytes()

    assert 0 < len(branch_roles(written)) <= 50
    assert text_blocks(written, active_branch(written)[0]["id"]) == ["q" * 90]
    assert world.scan(**cap).sessions_changed == 0
    world.restore_all(pristine=True)
    assert path.read_bytes() == one.bytes()


def test_a_turn_that_may_not_archive_stays_and_the_cap_holds_around_it(world, clock):
    """What is pinned keeps its turn; the turns before and after it archive in its place."""
    one = Conversation()
    for number in range(20):
        add_long_turn(one, calls=1)
        if number == 3:
            one.lines[-2]["_extractable"] = False
    path = world.put("s.jsonl", one.bytes())
    world.scan(budget={"max_messages": 50})
    written = path.read_bytes()

    assert len(branch_roles(written)) <= 50
    assert written.count(b'"[archived turn]') == 2
    assert world.scan(budget={"max_messages": 50}).sessions_changed == 0


def test_in_a_form_without_links_older_messages_lose_their_values(world, clock):
    """A cap of fifty takes the values of what stands fifty back, and of nothing nearer."""
    one = ClaudeConversation()
    idents = [one.user("q" * 90) if n % 2 == 0 else one.assistant("a" * 90) for n in range(51)]
    world.put("s.jsonl", one.bytes())
    world.scan(budget={"max_messages": 50})
    cut = [ident for ident in idents if world.store.extractions.of_entry(ident)]

    assert cut == idents[:1]


def test_a_profile_is_chosen_by_the_key_that_openclaw_gives_a_session(world, clock):
    """sessions.json beside the file says which sessions are those of a cron job."""
    one = talk(40)
    path = world.put("s.jsonl", one.bytes())
    (world.directory / "sessions.json").write_text(json.dumps({
        "agent:main:cron:daily": {"sessionId": "s", "contextTokens": 32_000},
    }))  # fmt: skip
    use = {"use": [{"sessions": "key:agent:*:cron:*", "profile": "ephemeral"}]}

    assert fullness(world).window == 32_000
    assert fullness(world).recorded
    assert world.scan(dry_run=True, keep_recent=200).values_extracted == 0
    assert world.scan(keep_recent=200, **use).values_extracted == 27
    assert path.read_bytes().count(b"extracted-") == 27


def test_the_agents_other_sessions_tell_what_a_new_one_takes(world, clock):
    """A session without calls of its own is weighed by the median of its agent's others."""
    budget = {"budget": {"enabled": True}}
    world.put("one.jsonl", talk().bytes())
    world.scan(**budget)
    fresh = Conversation("22222222-0000-4000-8000-000000000002")
    fresh.turn()
    world.put("two.jsonl", fresh.bytes())
    line = fullness(world, "two", **budget).calibration

    assert line.method == "agent"
    assert line.rate == pytest.approx(0.25, rel=0.05)


def test_a_session_that_is_gone_is_not_summed_up_any_more(world, clock):
    """What is remembered of a load goes with its session."""
    budget = {"budget": {"enabled": True}}
    path = world.put("s.jsonl", talk().bytes())
    world.scan(**budget)
    path.unlink()
    world.scan(**budget)

    assert status(world.settings(), world.store, clock()).loads.sessions == 0


def test_codex_sessions_are_weighed_though_only_read(world, clock):
    """How full one is, is told by its own counts; nothing else can be said or done."""
    count = {"type": "token_count", "info": {
        "last_token_usage": {"input_tokens": 7}, "model_context_window": 258_400,
    }}  # fmt: skip
    lines = [CODEX, {"type": "event_msg", "payload": count}]
    world.put("rollout-x.jsonl", b"".join(json.dumps(one).encode() + b"\n" for one in lines))
    one = context(world.settings(), world.store, "rollout-x", clock())

    assert one.format == "codex"
    assert (one.full.window, one.full.recorded) == (258_400, True)
    assert one.full.calibration == Calibration(0.33, 0.0, 1, "default", 1.0)


# Sessions in a database.


@pytest.fixture
def claw(tmp_path):
    one = ClawWorld(tmp_path)
    one.clock = Clock(LATER)
    yield one
    one.close()


def test_a_session_in_a_database_is_relieved_and_comes_back(claw):
    """Steps 1, 2, 4 and 5 are taken in rows; every event is as it was once all is restored."""
    before = claw.claw.texts(GATEWAY)
    full = context(claw.settings(), claw.store, GATEWAY, LATER).full
    done = relieve(
        claw.settings(), claw.store, GATEWAY, Wanted(full.load // 2), clock=claw.clock
    )  # fmt: skip

    assert done.values > 0
    assert done.after.load < done.before.load
    assert done.after.step in (1, 2, 4, 5)
    assert {one.kind for one in done.went} <= {"tool_result", "thinking", "tool_call"}
    assert claw.claw.texts(GATEWAY) != before
    claw.restore_all(pristine=True)
    assert claw.claw.texts(GATEWAY) == before
    assert claw.claw.sound() == []


def test_a_relief_waits_while_its_database_rests(claw):
    """A run that need not open a database does not take the sessions in it for gone."""
    claw.claw.sql(
        "INSERT INTO context_engine_turn_outbox (advancement_key, engine_id, session_id,"
        " payload_json, created_at) VALUES ('a', 'e', ?, '{}', 1)", (GATEWAY,),
    )  # fmt: skip
    wanted = Wanted(context(claw.settings(), claw.store, GATEWAY, LATER).full.load // 2)
    assert relieve(claw.settings(), claw.store, GATEWAY, wanted, clock=claw.clock).pending
    for _ in range(4):
        claw.later(60)
        report = claw.scan()
    assert (report.sessions, lapses(claw)) == ([], [])
    claw.claw.sql("DELETE FROM context_engine_turn_outbox")
    claw.scan()

    assert "relief" in kinds_told(claw)
    assert lapses(claw) == []


def test_the_window_of_a_session_in_a_database_is_what_its_node_says(claw):
    """OpenClaw notes what the model takes beside each session; without that it is as usual."""
    change = "UPDATE session_nodes SET entry_json = json_{}(entry_json, '$.contextTokens'{})"
    claw.claw.sql(change.format("set", ", 12345"))
    noted = context(claw.settings(), claw.store, GATEWAY, LATER).full
    claw.claw.sql(change.format("remove", ""))
    usual = context(claw.settings(), claw.store, GATEWAY, LATER).full

    assert (noted.window, noted.recorded) == (12_345, True)
    assert (usual.window, usual.recorded) == (200_000, False)


def test_the_third_step_archives_turns_whose_form_is_linked(world):
    """Turns older than the last two archive, the oldest first, where values are not enough."""
    one = Conversation()
    for _ in range(6):
        add_long_turn(one, calls=12, text="y" * 190)
    path = world.put("s.jsonl", one.bytes())
    world.scan()
    told = lift(world, to=fullness(world).load * 3 // 4)

    assert (told.fits, told.after.step) == (True, 3)
    assert path.read_bytes().count(b'"[archived turn]') == 2  # one would miss the goal
    assert told.room - told.after.load < (told.before.load - told.after.load) // 2
    assert fullness(world).load == pytest.approx(told.after.load, rel=0.02)
    world.restore_all(pristine=True)
    assert path.read_bytes() == one.bytes()


def test_messages_beyond_the_newest_archive_into_one(world):
    """With a cap the turns beyond it become one archive, and a second scan changes nothing."""
    one = talk(12)
    path = world.put("s.jsonl", one.bytes())
    world.scan(budget={"max_messages": 12})
    written = path.read_bytes()

    assert written.count(b'"[archived turn]') == 1
    assert world.scan(budget={"max_messages": 12}).sessions_changed == 0
    world.restore_all(pristine=True)
    assert path.read_bytes() == one.bytes()
