"""How full the sessions of a pass are: what its plans make of that, and what is remembered."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.decide.outcome import outcome_of
from brainsurgeon.model.calls import SEAL
from brainsurgeon.model.loads import LAST_STEP
from brainsurgeon.rewrite.budgeting import allowed_steps, plan_budgeted, plan_within, weigh

if TYPE_CHECKING:
    from collections.abc import Mapping

    from brainsurgeon.decide.folding import Folding
    from brainsurgeon.decide.rules import Rules
    from brainsurgeon.model.loads import Fullness
    from brainsurgeon.model.plans import Outcome, Plan
    from brainsurgeon.model.records import Records
    from brainsurgeon.rewrite.budgeting import Maker, Weighed
    from brainsurgeon.rewrite.examine import Examination
    from brainsurgeon.store import Store

FIRST_ROUND = LAST_STEP - 1
"""The highest step of the first round of a relief; the last one is a round of its own."""


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
        """Say what carrying the plan out makes of its session, as far as it is `planned` now."""
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
        """Read it from the value of a wish."""
        return cls(value.get("to"), bool(value.get("seals"))) if isinstance(value, dict) else cls()

    def write(self) -> dict[str, Any]:
        """Give it as the value of a wish."""
        return {"to": self.to, "seals": self.seals}

    def tokens(self, full: Fullness) -> int | None:
        """Give the load that it is to lead to, where one is named."""
        if self.to is None:
            return None
        return int(self.to * full.window if self.to <= 1 else self.to)


def asked_relief(records: Records) -> Wanted | None:
    """Give the relief that waits for a session to be settled, if any does."""
    asked = [wish for wish in records.wishes if wish.action == "relieve"]
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
    """Give the rules that a relief begins with: it is made however little it gains.

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
