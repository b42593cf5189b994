"""Weigh a session, and plan as much relief as its budget asks for."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from brainsurgeon.decide.budget import BELOW
from brainsurgeon.decide.load import calibrate, measure
from brainsurgeon.decide.steps import Room, folding_at, rules_at, steps_to
from brainsurgeon.model.calls import TOO_LONG
from brainsurgeon.model.loads import Fullness
from brainsurgeon.rewrite.session_settings import context_tokens
from brainsurgeon.sessions.row_session import OpenRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brainsurgeon.decide.budget import Budget
    from brainsurgeon.decide.folding import Folding
    from brainsurgeon.decide.load import Measure
    from brainsurgeon.decide.rules import Rules
    from brainsurgeon.model.loads import Calibration
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Records
    from brainsurgeon.rewrite.examine import Examination
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
        """Tell how full it is once a plan is carried out."""
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
    """Give the lines through the calls of the agent's other sessions."""
    if store is None:
        return []
    return store.calibrations.of_agent(os.fsencode(agent_directory), records.own)


def recorded_window(one: Examination) -> int | None:
    """Give how many tokens the model of a session takes, as its agent noted; None where not."""
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
    """Give the steps that may be taken in a session, in the medium that it lies in."""
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
