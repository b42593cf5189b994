"""Say what becomes of a session by its plan: changed, unchanged or deferred, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model.plans import Outcome
from brainsurgeon.model.words import counted

if TYPE_CHECKING:
    from brainsurgeon.decide.rules import Rules
    from brainsurgeon.model.plans import Plan, Result
    from brainsurgeon.model.sessions import SessionFile


def outcome_of(file: SessionFile, form: str, rules: Rules, plan: Plan) -> Outcome:
    """Say what carrying a plan out makes of its session, whose format is called `form`."""
    size = file.fingerprint.size
    result, reason = _result(rules, plan, size)
    done = result == "changed"
    cuts = plan.extracted if done else ()
    return Outcome(
        file.title, file.path, form, result, reason, size,
        size - plan.gain if done else size,
        plan.entries if done else 0, len(cuts),
        len(plan.putbacks) if done else 0, seen=True, plan=plan,
    )  # fmt: skip


def _result(rules: Rules, plan: Plan, size: int) -> tuple[Result, str]:
    if plan.deferred:
        return "deferred", plan.deferred
    if not plan.edits:
        return "unchanged", "nothing to extract"
    if not plan.forced and not rules.pays(plan.gain, size):
        return "deferred", f"too little to gain ({counted(plan.gain, 'byte')})"
    return "changed", plan.summary
