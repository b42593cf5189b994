"""Weigh a session, and plan as much relief as its budget asks for."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from brainsurgeon.model.turns import LAST_STEP, SEAL, TOO_LONG, Fullness
from brainsurgeon.planning.archive import NOTHING_ASKED, Folding
from brainsurgeon.planning.budget import (
    BELOW,
    Room,
    calibrate,
    folding_at,
    measure,
    rules_at,
    steps_to,
)
from brainsurgeon.planning.plan import outcome_of
from brainsurgeon.rewrite.inspect import context_tokens
from brainsurgeon.rewrite.turns import summaries
from brainsurgeon.sessions.row_session import OpenRows

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from brainsurgeon.model.plans import Outcome, Plan
    from brainsurgeon.model.records import Records, SessionRecord
    from brainsurgeon.model.turns import Calibration
    from brainsurgeon.planning.budget import Budget, Measure
    from brainsurgeon.planning.rules import Rules
    from brainsurgeon.planning.tail import Frontier
    from brainsurgeon.planning.turns import ArchiveRules
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.rewrite.turns import Told
    from brainsurgeon.store import Store


class Maker(Protocol):
    """Plans a session, by the rules of the configuration or by others."""

    def __call__(self, *, folding: Folding, rules: Rules | None = None) -> Plan:
        """Make the plan."""


@dataclass(frozen=True, slots=True)
class Weighed:
    """An examined session, what is live in it, and how full that makes it."""

    measure: Measure
    full: Fullness

    @property
    def goal(self) -> int:
        """The load (tokens) to which relief leads, so that it lasts."""
        return max(0, int((self.full.threshold - BELOW) * self.full.window))

    def after(self, planned: Plan, step: int) -> Fullness:
        """Return how full it is once a plan is carried out."""
        less, now = planned.lighter, self.measure
        load = self.full.calibration.tokens(
            max(0, now.chars - less.chars), max(0, now.pictures - less.pictures)
        )
        return replace(self.full, load=load, step=step)


@dataclass(frozen=True, slots=True)
class Within:
    """A plan that keeps to a budget as far as it may: by which rules, and how full it leaves."""

    plan: Plan
    rules: Rules
    full: Fullness


def weigh(one: Examination, records: Records, store: Store | None) -> Weighed:
    """Estimate how full an examined session is, given what the store says of it."""
    survey = one.survey
    measured = measure(one.session.lines, one.format, survey, records)
    line = calibrate(measured.calls, others_of(store, one.session.file.agent_directory, records))
    recorded = recorded_window(one)
    return Weighed(measured, fullness(one.settings.budget_rules(), measured, line, recorded))


def fullness(
    budget: Budget, measured: Measure, line: Calibration, recorded: int | None
) -> Fullness:
    """Put together how full a session is.

    Where its last call was refused as too long, the window is no larger than what was refused.
    """
    load = line.tokens(measured.chars, measured.pictures)
    window = budget.window(measured.model, recorded)
    if measured.complaint == TOO_LONG:
        refused = line.tokens(measured.refused.chars, measured.refused.pictures)
        window = max(1, min(window, measured.limit or refused))
    tier = budget.tier(measured.model)
    threshold = budget.threshold_of(tier)
    return Fullness(load, window, threshold, line, measured.model, tier, recorded is not None)


def others_of(store: Store | None, agent_directory: str, records: Records) -> list[Calibration]:
    """Return the lines through the calls of the agent's other sessions."""
    if store is None:
        return []
    return store.calibrations.of_agent(os.fsencode(agent_directory), records.own)


def recorded_window(one: Examination) -> int | None:
    """Return how many tokens the model of a session takes, as its agent noted; None where not."""
    if isinstance(one.session, OpenRows):
        return one.session.context_tokens
    return context_tokens(one.session.file)


def plan_within(
    weighed: Weighed, steps: Sequence[int], goal: int,
    make: Maker, begin: Rules, folding: Folding, *, at_least: int = 0,
) -> Within:  # fmt: skip
    """Plan with the lowest of these steps that brings the load to a goal (tokens), or with all.

    `at_least` so many of them are taken, whatever the load; with 0 the rules as they are may do.
    `make` plans by the rules that it is given, which are `begin` and what the steps make of them,
    and what is asked of the turns, which is `folding` and what linked steps make of that.
    """
    full, messages = weighed.full, weighed.measure.messages
    room = Room(full.window, full.calibration.rate, messages)
    for number in range(at_least, len(steps) + 1):
        taken = steps[:number]
        rules = rules_at(taken, begin, room)
        planned = make(rules=rules, folding=folding_at(taken, folding, room))
        after = weighed.after(planned, taken[-1] if taken else 0)
        if after.load <= goal:
            break
    return Within(planned, rules, after)


def allowed_steps(one: Examination, highest: int) -> tuple[int, ...]:
    """Return the steps that may be taken in a session, in the medium that it lies in."""
    in_rows = isinstance(one.session, OpenRows)
    return steps_to(highest, in_rows=in_rows, linked=one.format.archives == "linked")


def plan_budgeted(
    one: Examination, weighed: Weighed, make: Maker, begin: Rules, folding: Folding
) -> Within:
    """Plan what is due, and with it as much relief as the configuration asks for and allows."""
    budget = one.settings.budget_rules()
    too_full = budget.enabled and weighed.full.pressure > weighed.full.threshold
    steps = allowed_steps(one, budget.max_step) if too_full else ()
    return plan_within(weighed, steps, weighed.goal, make, begin, folding)


# The highest step of the first round of a relief; the last one is a round of its own.
FIRST_ROUND = LAST_STEP - 1


@dataclass(frozen=True, slots=True)
class Fitting:
    """A plan, the rules that it was made by, and how full the session is before and after it.

    Both are None where nobody asked how full it is. `rounds` counts those that a relief took, and
    `room` is the load (tokens) up to which the session fits.
    """

    plan: Plan
    rules: Rules
    before: Fullness | None = None
    after: Fullness | None = None
    rounds: int = 0
    room: int = 0

    def outcome(self, one: Examination, planned: Plan) -> Outcome:
        """Return what carrying the plan out makes of its session, as far as it is `planned` now."""
        came = outcome_of(one.session.file, one.format.name, self.rules, planned)
        return replace(came, full=self.after)

    @property
    def fits(self) -> bool:
        """Whether the session fits once the plan is carried out."""
        return self.after is None or self.after.load <= self.room


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a relief: the load that it is to lead to, and whether seals go.

    `to` are tokens, or, up to 1, a share of the window; None leaves it to the configuration.
    """

    to: float | None = None
    seals: bool = False

    @classmethod
    def read(cls, value: Any) -> Wanted:
        return cls(value.get("to"), bool(value.get("seals"))) if isinstance(value, dict) else cls()

    def write(self) -> dict[str, Any]:
        """Give it as the value of a request."""
        return {"to": self.to, "seals": self.seals}

    def tokens(self, full: Fullness) -> int | None:
        """Return the load that it is to lead to, where one is named."""
        if self.to is None:
            return None
        return int(self.to * full.window if self.to <= 1 else self.to)


def asked_relief(records: Records) -> Wanted | None:
    """Return the relief that waits for a session to be idle, if any does."""
    asked = [request for request in records.requests if request.action == "relieve"]
    return Wanted.read(asked[-1].value) if asked else None


def fit_in(
    one: Examination, records: Records, store: Store | None, make: Maker, folding: Folding,
    *, cut: bool,
) -> Fitting:  # fmt: skip
    """Plan what is due in a session, and what else has to go for it to fit.

    `make` plans by rules, or without any by those of the configuration; `folding` is what is asked
    of its turns.
    """
    rules, asked = one.settings.decision_rules(), asked_relief(records)
    if not cut or not (asked or one.settings.budget.enabled):
        return Fitting(make(folding=folding), rules)
    weighed = weigh(one, records, store)
    if asked:
        return relieve_by(one, weighed, asked, make, folding)
    within = plan_budgeted(one, weighed, make, rules, folding)
    return Fitting(within.plan, within.rules, weighed.full, within.full)


def relieve_by(
    one: Examination, weighed: Weighed, wanted: Wanted, make: Maker, folding: Folding
) -> Fitting:
    """Plan a relief: at most two rounds, the steps before the last one, and then that."""
    full, named = weighed.full, wanted.tokens(weighed.full)
    goal = weighed.goal if named is None else named
    room = int(full.threshold * full.window) if named is None else named
    begin = _begin(one, weighed, wanted)
    for rounds, highest in enumerate((FIRST_ROUND, LAST_STEP), 1):
        steps = allowed_steps(one, highest)
        at_least = 1 if rounds == 1 else len(steps)
        within = plan_within(weighed, steps, goal, make, begin, folding, at_least=at_least)
        done = Fitting(within.plan, within.rules, full, within.full, rounds, room)
        if done.fits or steps == allowed_steps(one, LAST_STEP):
            break
    return done


def _begin(one: Examination, weighed: Weighed, wanted: Wanted) -> Rules:
    """Return the rules that a relief begins with: it is made however little it gains.

    Where the last prompt was refused for a seal, nobody knows which: then all of them go.
    """
    rules = replace(one.settings.decision_rules(), min_reclaim_share=0.0, min_reclaim_bytes=0)
    if not wanted.seals:
        return rules
    return replace(rules, unseal="all" if weighed.measure.complaint == SEAL else "broken")


def remember(store: Store, seen: Mapping[str, Fullness], now: float) -> None:
    """Write down how full sessions are, by their paths, where that says anything new."""
    for path, full in seen.items():
        record = store.sessions.at(path)
        if record is None or record.id is None:
            continue
        before = store.calibrations.of(record.id)
        if before is None or replace(full, tier=None, recorded=False) != before:
            store.calibrations.remember(record.id, full, now)


# Why a turn stays that will never fold: nothing about it changes any more.
_FOR_GOOD = ("no gain", "depth", "format", "never sent")
GONE = "the turn stands in its session no more"


def end_hopeless(
    store: Store, record: SessionRecord, records: Records, planned: Plan, now: float
) -> None:
    """Let go of turns that were asked for and never fold: each look would be at everything."""
    asked = records.to_archive
    if not (asked and planned.turns):
        return
    said = {one.turn.prompt_id: one for one in planned.turns}
    why = {prompt: GONE for prompt in asked if prompt not in said}
    why |= {
        prompt: one.reason for prompt, one in said.items()
        if prompt in asked and not one.folds and one.reason.startswith(_FOR_GOOD)
    }  # fmt: skip
    if why:
        with store.transaction():
            store.archives.let_go(record.id, why, now, store.runs.so_far)


def folding_of(one: Examination, records: Records, rules: ArchiveRules | None = None) -> Folding:
    """Return what is asked of a session's turns; `rules` are those of its settings unless given.

    Nothing folds while nothing may be extracted. A session in a database has no form for it: there
    nobody has to look.
    """
    settings = one.settings
    if not settings.enabled or one.session.file.in_database:
        return NOTHING_ASKED
    return Folding(
        rules or settings.archive_rules(), records.to_archive, beyond=settings.budget.max_messages
    )


def plan_due(
    told: Told, records: Records, store: Store | None, frontier: Frontier, *, cut: bool,
    dry_run: bool,
) -> Fitting:  # fmt: skip
    """Plan what is due in a session; unless it may be `cut` only what is asked for.

    `store` is what is known of other sessions; `told` says who may be asked for summaries, which
    nobody is in a `dry_run`.
    """
    one = told.one
    folding = folding_of(one, records)
    make = partial(one.plan, records, cut=cut, explain=dry_run, frontier=frontier)
    fitting = fit_in(one, records, store, make, folding, cut=cut)
    if store and told.record and cut and not dry_run:
        end_hopeless(store, told.record, records, fitting.plan, one.now)
    if store is None or dry_run or not (fitting.plan.archives and one.settings.archive.command):
        return fitting
    said, warnings = summaries(told, store, fitting.plan)
    if said:
        fitting = fit_in(one, records, store, make, replace(folding, summaries=said), cut=cut)
    warned = replace(fitting.plan, warnings=(*fitting.plan.warnings, *warnings))
    return replace(fitting, plan=warned)
