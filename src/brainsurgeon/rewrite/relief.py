"""Estimate the load of a session, and plan the relief that brings it below its threshold."""

import math
import os
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from msgspec import Struct, convert
from msgspec.structs import replace

from brainsurgeon import agents
from brainsurgeon.config import Settings
from brainsurgeon.lookup.entries import json_text
from brainsurgeon.model.plans import Outcome, Plan, Result
from brainsurgeon.model.providers import LONG_LIFE, price_of
from brainsurgeon.model.records import Extraction, Records
from brainsurgeon.model.rules import ArchiveRules, Budget, Rules, ValueIds
from brainsurgeon.model.text import counted, minute
from brainsurgeon.model.turns import (
    BLOCK,
    BLOCKS,
    HEAVY,
    LAST_STEP,
    ONE_ROUND,
    SIGNATURE,
    TOO_LARGE,
    TOO_LONG,
    Calibration,
    Fullness,
    LoadChange,
    Reason,
    Refusal,
)
from brainsurgeon.planning import budget, cache, reasoning
from brainsurgeon.planning.archiving import LASTING, NO_ARCHIVING, OPEN_TURN, Archiving
from brainsurgeon.planning.budget import Measure, ReliefLevel
from brainsurgeon.planning.calls import last_call
from brainsurgeon.planning.superseded import superseded
from brainsurgeon.rewrite.archived_turns import summaries
from brainsurgeon.rewrite.inspect import Examination, ExaminationPlanner, stated_window
from brainsurgeon.sessions.discovery import AnyOpen
from brainsurgeon.store import Store


class WeighedPlan(LoadChange, frozen=True, kw_only=True):
    """A plan, the rules that it was made by, and the load before and after it."""

    plan: Plan
    rules: Rules

    def outcome(self, examined: Examination, plan: Plan) -> Outcome:
        return replace(outcome_of(examined, self.rules, plan), full=self.after)


def outcome_of(examined: Examination, rules: Rules, plan: Plan) -> Outcome:
    file, format_name = examined.session.file, examined.form.name
    size = after = file.fingerprint.size
    result: Result = "deferred"
    if plan.deferred:
        reason = plan.deferred
    elif not plan.edits and rules.waits:
        reason = rules.waits
    elif not plan.edits:
        result, reason = "unchanged", "nothing to extract"
    elif not plan.forced and not rules.pays(plan, size):
        reason = f"too little to gain ({counted(plan.freed, 'byte')})"
    else:
        result, reason, after = "changed", plan.summary, size - plan.gain
    return Outcome(file.title, file.path, format_name, result, reason, size, after, plan=plan)


class Wanted(Struct, frozen=True):
    to: float | None = None  # a share of the window if at most 1, else tokens; None: as configured
    signatures: bool = False  # also extract thinking whose signature is or may be invalid
    now: bool = False  # also extract recently restored values


def weigh(
    planner: ExaminationPlanner, original: Callable[[Extraction], Any] | None = None
) -> tuple[Measure, Fullness]:
    """Measure a session. With `original`, the result does not depend on what scans recorded."""
    examined, records, store = planner.examined, planner.records, planner.examined.store
    recording = agents.measure(examined.form.name)
    measured = budget.measure(
        examined.transcript, records, examined.session.parsed, original, recording
    )
    directory = os.fsencode(examined.session.file.agent_directory)
    others = [] if original else store.calibrations.of_agent(directory, records.own)
    calibration = budget.calibrate(measured.calls, others)
    limits = examined.settings.budget_rules()
    recorded = measured.window or stated_window(examined.session)
    load = measured.load(calibration) if recording else None
    full = fullness(limits, measured, calibration, recorded, load)
    if refused_for_blocks(full.refusal) and measured.last and measured.last.refusal:
        blocks = budget.blocks_sent(examined.transcript)
        measured.unfit = budget.unfit_blocks(
            blocks, measured.last.refusal, measured.last_sent, measured.sent
        )
        full = replace(full, unfit=len(measured.unfit))
    return measured, full


def refused_for_blocks(why: str) -> bool:
    return why in (BLOCK, BLOCKS)


class Bound(Struct, frozen=True):
    """The largest request that counts as fitting, or the size at which relief aims."""

    tokens: int
    bytes: float = math.inf

    def holds(self, full: Fullness | None) -> bool:
        if full is None or full.unfit:
            return False
        return full.load <= self.tokens and full.bytes <= self.bytes


class ReliefPlanner:
    """Plans relief: each level adds a step. `protect` spares recently restored values."""

    def __init__(
        self, planner: ExaminationPlanner, measured: Measure, full: Fullness, rules: Rules
    ) -> None:
        """If the request has too many bytes, all levels take the largest blocks."""
        records = replace(planner.records, rate=full.calibration.rate)
        self.planner = replace(planner, records=records)
        self._full, self._rules = full, rules
        self._giant = max(1, int(budget.GIANT * full.window / full.calibration.rate))
        self._kept_messages = max(1, (measured.messages + 1) // 2)
        self._cached_plan = lru_cache(maxsize=6)(self.plan)
        self._unfit = measured.unfit
        heavy = self._heavy(_goal(full).bytes) if full.is_too_large else frozenset()
        self._rules = replace(rules, heavy=heavy | self._unfit)

    def at(
        self, level: ReliefLevel, spared: ValueIds = frozenset(), *, protect: bool = True
    ) -> WeighedPlan:
        return self._cached_plan(level, spared, protect=protect)  # one cache key for equal calls

    def _heavy(self, heaviest: float) -> ValueIds:
        """Return the fewest pictures and documents without which the request is small enough."""
        examined, rules = self.planner.examined, self._rules
        found = budget.blocks_sent(examined.transcript)
        blocks = [block.place for block in budget.largest_first(found)]

        def suffice(count: int) -> bool:
            self._rules = replace(rules, heavy=frozenset(blocks[:count]))
            after = self.plan(()).after
            return after is not None and after.bytes <= heaviest

        taken = bisect_left(range(len(blocks)), True, key=suffice)
        return frozenset(blocks[:taken])

    def plan_to(self, levels: Sequence[ReliefLevel], goal: Bound, room: Bound) -> WeighedPlan:
        """Plan the lowest level that reaches `goal`, or the last level.

        Of the values that this level adds, only those that the goal requires are extracted.
        Protected values do not lead to a higher level.
        """
        at, protect = self.lowest(levels, goal), True
        if self.at(levels[min(at, len(levels) - 1)]).plan.protected:
            lower = self.lowest(levels[:at], goal, protect=False)
            at, protect = lower, lower == at
        spared: ValueIds = frozenset()
        if 0 < at < len(levels):
            spared = self.spared(levels, at, goal, protect=protect)
        level = levels[min(at, len(levels) - 1)]
        weighed = self.at(level, spared)
        if weighed.plan.protected and not goal.holds(weighed.after):
            released = self.at(level, spared, protect=False)
            if room.holds(released.after):
                weighed = replace(weighed, protected=_protected(weighed.plan, released.plan))
        return replace(weighed, room=room.tokens, room_bytes=room.bytes)

    def least(self) -> WeighedPlan:
        return self.plan((0, *budget.LINKED), kept_messages=1, protect=False)

    def plan(
        self, level: ReliefLevel, spared: ValueIds = frozenset(), *, kept_messages: int = 0,
        protect: bool = True,
    ) -> WeighedPlan:  # fmt: skip
        full, kept_messages = self._full, kept_messages or self._kept_messages
        rules = self._rules if protect else replace(self._rules, keep_after_restore=0.0)
        rules = budget.rules_at(level, rules, self._giant, kept_messages)
        archiving = budget.archiving_at(level, archiving_of(self.planner), kept_messages)
        plan = self.planner.plan(archiving, replace(rules, spared=spared))
        load = max(0, full.load - round(full.calibration.scale * plan.tokens))
        size = max(0, full.bytes - plan.request_bytes)
        going = {(removal.entry_id, removal.path) for removal in plan.removals}
        after = replace(
            full, load=load, bytes=size, step=level[-1] if level else 0,
            unfit=len(self._unfit - going),
        )  # fmt: skip
        return WeighedPlan(full, after, plan=plan, rules=rules)

    def lowest(self, levels: Sequence[ReliefLevel], goal: Bound, *, protect: bool = True) -> int:
        """Return the index of the lowest level that reaches `goal`, or the number of levels."""
        return bisect_left(
            levels, True, key=lambda level: goal.holds(self.at(level, protect=protect).after)
        )

    def spared(
        self, levels: Sequence[ReliefLevel], at: int, goal: Bound, *, protect: bool
    ) -> ValueIds:
        """Return the values that level `at` adds to the level below, but the goal does not need."""
        lower, here = (self.at(one, protect=protect).plan for one in levels[at - 1 : at + 1])
        before = {removal.start for removal in lower.removals}
        examined = self.planner.examined
        outdated = superseded(examined.transcript)
        added = [one for one in here.removals if one.start not in before]
        # Superseded values are extracted first, then the oldest.
        added.sort(key=lambda one: (one.entry_id, one.kind, one.call) not in outdated)
        values = [(removal.entry_id, removal.path) for removal in added]
        needed = bisect_left(
            range(len(values)), True,
            key=lambda count: goal.holds(
                self.plan(levels[at], frozenset(values[count:]), protect=protect).after
            ),
        )  # fmt: skip
        return frozenset(values[needed:])


def _protected(plan: Plan, released: Plan) -> tuple[int, float] | None:
    """Return the size of the values that only protection keeps, and when their protection ends."""
    removed = {removal.start for removal in plan.removals}
    kept = [removal.entry_id for removal in released.removals if removal.start not in removed]
    if not kept:
        return None
    until = plan.protected
    last = max(until.get(entry, 0.0) for entry in kept) or max(until.values())
    return released.gain - plan.gain, last


def fullness(
    limits: Budget, measured: Measure, calibration: Calibration, recorded: int | None,
    load: int | None = None,
) -> Fullness:  # fmt: skip
    """Return the load of a session. Its agent recorded the window `recorded`, perhaps its `load`.

    If the newest answer is a refusal, its provider knows better: the estimate is scaled to the
    tokens that it counted, and the window is the stated one, and smaller than the refused prompt.
    If the prompt had too many bytes, the same holds for them.
    """
    window, most = limits.window(measured.model, recorded), limits.most_bytes(measured.model)
    refusal = _refusal(measured, window)
    if refusal and refusal.why == TOO_LARGE:
        known = filter(None, (most, refusal.limit, measured.last_sent.bytes))
        most = min(known, default=1)
    elif refusal and refusal.why == TOO_LONG:
        guess = load or max(1, calibration.tokens(measured.last_sent))
        tokens = refusal.count or max(guess, refusal.limit or 0)
        calibration = replace(calibration, scale=tokens / guess)
        window = max(1, min(limits.window(measured.model, recorded, refusal.limit), tokens))
    load = measured.load(calibration) if load is None else round(calibration.scale * load)
    tier = limits.tier(measured.model)
    return Fullness(
        load, window, limits.threshold_of(tier), calibration, measured.model, tier,
        recorded is not None, refusal=refusal.why if refusal else "", bytes=measured.sent.bytes,
        most_bytes=most,
    )  # fmt: skip


_FULL = 0.99  # the share of a window that a prompt fills if it leaves no room for an answer


def _refusal(measured: Measure, window: int) -> Refusal | None:
    last = measured.last
    if last and last.refusal and last.refusal.why != SIGNATURE:
        return last.refusal
    # Some providers cut a prompt to the size of the window, and answer nothing.
    if last and last.end == "cut" and not last.output and last.tokens >= _FULL * window:
        return Refusal(TOO_LONG, last.tokens)
    return None


def archiving_of(planner: ExaminationPlanner, rules: ArchiveRules | None = None) -> Archiving:
    settings = planner.examined.settings
    if not settings.enabled or planner.examined.form.archives is None:
        return NO_ARCHIVING
    return Archiving(
        rules or settings.archive_rules(), partial(json_text, planner.examined.store),
        planner.records.to_archive, planner.summaries, most=settings.budget.max_messages,
    )  # fmt: skip


def asked_relief(records: Records) -> Wanted | None:
    asked = records.requested("relieve")
    return convert(asked[-1].value or {}, Wanted) if asked else None


def plan_to_fit(planner: ExaminationPlanner) -> WeighedPlan:
    """Plan all edits that are due in a session, and the relief that makes it fit."""
    settings, asked = planner.examined.settings, asked_relief(planner.records)
    form, rules = planner.examined.form, settings.decision_rules()
    if planner.extract and asked:
        return relieve_by(planner, asked)
    if not (planner.extract and settings.budget.enabled):
        weighed = WeighedPlan(plan=planner.plan(archiving_of(planner)), rules=rules)
        return _await_cold_cache(planner, weighed)
    measured, full = weigh(planner)
    goal, room = _goal(full), _room(full)
    highest = settings.budget.max_step if full.is_too_full else 0
    levels = budget.relief_levels(highest, form.archives)[1:]
    relief = ReliefPlanner(planner, measured, full, rules)
    return _await_cold_cache(relief.planner, relief.plan_to(levels, goal, room))


def _await_cold_cache(planner: ExaminationPlanner, weighed: WeighedPlan) -> WeighedPlan:
    """Postpone optional extractions of sent values until the key `when` allows them."""
    plan, before, examined = weighed.plan, weighed.before, planner.examined
    # A refused prompt is not in the cache, and one that is too large would be refused.
    hurries = before is not None and (before.refusal or before.is_too_large)
    if plan.deferred or not plan.optional or hurries:
        return weighed
    now, settings, rules = examined.now, examined.settings, weighed.rules
    session = examined.session
    last = last_call(examined.transcript)
    if last:
        line = price_of(last.model, settings.price_rules()).line
        plan = replace(plan, load=last.load, line=line)
    weighed = replace(weighed, plan=plan)
    enough = plan.forced or rules.pays(plan, session.fingerprint.size)
    if planner.hurries or not (enough and plan.load):
        return weighed
    transcript, records = examined.transcript, planner.records
    risk = reasoning.at_risk(transcript, plan, records, rules.signed_models)
    lost = reasoning.lost(risk, plan.optional[0].start)
    weighed = replace(weighed, plan=replace(plan, reasoning_lost=lost))
    cold = rules.when == "always" or examined.silent >= LONG_LIFE
    if cold and not (risk and rules.when == "pays"):  # cache.read is slow
        return weighed
    state, change = cache.read(transcript, plan, records, now - examined.silent)
    change = replace(change, lost=lost)
    price = price_of(state.model, settings.price_rules())
    until = cache.due(rules.when, state, change, price, now)
    if rules.when == "pays" and is_too_full(settings, session, state.model, plan.load):
        return weighed
    if until is not None:
        why = f"its cache is warm until {minute(until)}"
        return _waiting(planner, weighed, why, until)
    placed = [(one.start, one.tokens) for one in plan.optional]
    first = reasoning.spared(rules.when, placed, risk, state, price, now)
    spared, chosen = plan.optional[:first], plan.optional[first:]
    if not spared:
        return weighed
    if not chosen or any(one.how == "archive" for one in spared):
        return _waiting(planner, weighed, "the reasoning behind its values is worth more")
    rules = replace(rules, spared=frozenset((one.entry_id, one.path) for one in spared))
    plan = replace(
        planner.plan(archiving_of(planner), rules), load=plan.load, line=plan.line,
        reasoning_lost=reasoning.lost(risk, chosen[0].start),
    )  # fmt: skip
    return replace(weighed, plan=plan, rules=rules)


def _waiting(
    planner: ExaminationPlanner, weighed: WeighedPlan, why: str, until: float = math.inf
) -> WeighedPlan:
    """Plan what does not wait. `until` is when the rest is due, if that is known."""
    rules, before = replace(weighed.rules, waits=why), weighed.before
    plan = planner.plan(budget.archiving_at((), archiving_of(planner)), rules)
    due_at = min(until, math.inf if plan.due_at is None else plan.due_at)
    return replace(
        weighed, rules=rules,
        plan=replace(
            plan, due_at=None if due_at == math.inf else due_at, load=weighed.plan.load,
            reasoning_lost=weighed.plan.reasoning_lost,
        ),
        after=before and replace(
            before, load=max(0, before.load - plan.tokens), waits=weighed.fits
        ),
    )  # fmt: skip


def is_too_full(settings: Settings, session: AnyOpen, model: str | None, load: int) -> bool:
    limits = settings.budget_rules()
    window = limits.window(model, stated_window(session))
    return load > limits.threshold_of(limits.tier(model)) * window


def _goal(full: Fullness) -> Bound:
    share, share_of_bytes = full.threshold - budget.BELOW, HEAVY - budget.BELOW
    if full.refusal == TOO_LARGE:
        share_of_bytes = budget.HALF
    elif full.refusal == TOO_LONG:
        share = min(share, budget.HALF)
    return _bound(full, share, share_of_bytes)


def _room(full: Fullness) -> Bound:
    return _bound(full, full.threshold, HEAVY)


def _bound(full: Fullness, share: float, share_of_bytes: float) -> Bound:
    most = math.inf if full.most_bytes is None else share_of_bytes * full.most_bytes
    return Bound(max(0, int(share * full.window)), most)


def relieve_by(planner: ExaminationPlanner, wanted: Wanted) -> WeighedPlan:
    """Plan a relief. Drop halves only if the other steps fail even without protection."""
    measured, full = weigh(planner)
    goal, room = _goal(full), _room(full)
    to = wanted.to and int(wanted.to * full.window if wanted.to <= 1 else wanted.to)
    if to and not (full.refusal == TOO_LONG and to >= full.window):  # it must become smaller
        goal, room = replace(goal, tokens=to), replace(room, tokens=to)
    rules = planner.examined.settings.decision_rules()
    rules = replace(rules, min_reclaim=0)
    if wanted.now:
        rules = replace(rules, keep_after_restore=0.0)
    if wanted.signatures:
        # After a refusal, it is unknown which of the signatures is invalid.
        refusal = measured.last.refusal if measured.last else None
        refused = refusal is not None and refusal.why == SIGNATURE
        rules = replace(rules, drop_signatures="all" if refused else "broken")
    relief, form = ReliefPlanner(planner, measured, full, rules), planner.examined.form
    least = relief.least()
    if least.load > room.tokens and not least.plan.deferred:
        # No relief can help: plan only requests.
        return replace(relief.plan_to([()], goal, room), least=least.load)
    # The user asked though the session seems to fit.
    if wanted.to is None and goal.holds(full):
        return relief.plan_to([(0, 1)], goal, room)
    for step in range(ONE_ROUND, LAST_STEP + 1):
        weighed = relief.plan_to(budget.relief_levels(step, form.archives), goal, room)
        if (goal if full.refusal else room).holds(weighed.after) or weighed.protected:
            break
    return weighed


def remember(store: Store, loads: Mapping[str, Fullness]) -> None:
    for path, full in loads.items():
        record = store.sessions.at(path)
        if record and store.calibrations.of(record.id) != full:
            store.calibrations.remember(record.id, full)


def _cancel_hopeless(store: Store, records: Records, plan: Plan, now: float) -> None:
    """Cancel archive requests that can never be fulfilled: pending requests make scans slower."""
    verdicts = {verdict.prompt_id: verdict for verdict in plan.turns}
    newest = [verdict for verdict in plan.turns if not verdict.dead][-1:]
    for request in records.requested("archive") if verdicts else ():
        if request.id is None:
            continue
        verdict = verdicts.get(request.entry_id or "")
        why = verdict.reason if verdict else Reason("the turn is no longer in its session")
        left_open = verdict not in newest and why.kind == OPEN_TURN
        if verdict is None or left_open or (not verdict.archived and why.kind in LASTING):
            with store.transaction():
                store.requests.cancel([request.id], why, now, store.runs.current)


def plan_due(
    planner: ExaminationPlanner, check_stop: Callable[[], None], *, dry_run: bool
) -> WeighedPlan:
    """Plan all due edits. Without `dry_run`, run `archive.command` and cancel hopeless requests."""
    examined = planner.examined
    weighed = plan_to_fit(planner)
    if dry_run:
        return weighed
    if planner.extract:
        _cancel_hopeless(examined.store, planner.records, weighed.plan, examined.now)
    if not (weighed.plan.archives and examined.settings.archive.command):
        return weighed
    texts, warnings = summaries(planner, weighed.plan, check_stop)
    if texts:
        weighed = plan_to_fit(replace(planner, summaries=texts))
    warned = replace(weighed.plan, warnings=(*weighed.plan.warnings, *warnings))
    return replace(weighed, plan=warned)
