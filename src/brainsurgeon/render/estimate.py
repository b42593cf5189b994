"""Render the costs of sessions, recorded or estimated for each policy, as text and JSON."""

import textwrap
from collections.abc import Sequence
from typing import Any

from msgspec import to_builtins

from brainsurgeon.model.reports import Bill, Estimate, ModelCost, SessionCosts
from brainsurgeon.model.text import about, counted
from brainsurgeon.render.formatting import WIDTH, Column, columned, local, table, titles

NO_USAGE = "no session records the usage and time of its model calls"
ASSUMPTIONS = (
    "The estimate is based on recorded usage: the size of a value is what it added to a prompt."
    " It assumes that one scan follows each turn, and another once the cache is cold. After a scan,"
    " the agent reads its session again, and the next prompt reads its unchanged beginning from the"
    " cache. Archives, restores, relief, avoided compactions and the models' answers are left out."
    " Tokens paid are the cost of all prompts in uncached input tokens: cache reads and writes are"
    " converted by the model's prices."
)


_NO_DIFFERENCE = (
    "values are small or recent, or turns follow each other sooner than scans (`quiet`)"
)


def estimate_json(found: Estimate) -> dict[str, Any]:
    answer = to_builtins(found)
    for part in (answer, *answer["sessions"]):
        part["policies"] = [{"policy": name, **bill} for name, bill in part["policies"].items()]
    return answer  # type: ignore[no-any-return]


def estimate(found: Estimate) -> str:
    left_out = counted(found.sessions_left_out, "session")
    left_out += " left out: without usage, gone, or unreadable"
    if not found.sessions:
        return f"no estimate; {left_out}" if found.sessions_left_out else NO_USAGE
    head, *rows = bills(found)
    lines = [table(head, rows)]
    if len(found.sessions) > 1:
        ranked = sorted(found.sessions, key=lambda one: -one.policies["raw"].tokens_paid)
        names = [name for name in found.policies if name != "raw"]
        called = titles((one.session for one in ranked), only_some=True)
        lines += ["", table(
            ("session", "calls", "tokens paid", *names),
            [
                (called[one.session], f"{one.calls:,}", f"{one.policies['raw'].tokens_paid:,}",
                 *(_share(one.policies[name].tokens_paid, one.policies["raw"].tokens_paid)
                   for name in names))
                for one in ranked
            ],
            fixed=1,
        )]  # fmt: skip
    sessions, calls = counted(len(found.sessions), "session"), counted(found.calls, "call")
    lines += ["", f"{calls} of {sessions}"]
    if found.sessions_left_out:
        lines[-1] += f"; {left_out}"
    same = sum(len({bill.tokens_sent for bill in one.policies.values()}) == 1
               for one in found.sessions)  # fmt: skip
    if same:
        why = f"{counted(same, 'session')} without a difference: {_NO_DIFFERENCE}"
        lines += textwrap.wrap(why, WIDTH)
    return "\n".join([*lines, *textwrap.wrap(ASSUMPTIONS, WIDTH)])


def bills(found: Estimate) -> list[tuple[str, ...]]:
    raw = found.policies["raw"]
    lossy = any(bill.reasoning_lost for bill in found.policies.values())
    rows = [
        ("policy", "tokens sent", "from cache", "tokens paid", "of raw",
         *(("dollars",) if raw.cost_dollars is not None else ()),
         *(("reasoning lost",) if lossy else ()))
    ]  # fmt: skip
    return rows + [
        (name, f"{bill.tokens_sent:,}", _share(bill.tokens_cached, bill.tokens_sent),
         f"{bill.tokens_paid:,}", _share(bill.tokens_paid, raw.tokens_paid),
         *((f"{bill.cost_dollars or 0.0:,.2f}",) if raw.cost_dollars is not None else ()),
         *((f"{bill.reasoning_lost:,}",) if lossy else ()))
        for name, bill in found.policies.items()
    ]  # fmt: skip


def in_one_line(found: Estimate) -> str:
    raw, configured = found.policies["raw"], found.policies["configured"]
    if not raw.tokens_paid:
        return ""
    calls = counted(found.calls, "recorded call")
    if (configured.tokens_paid, configured.tokens_sent) == (raw.tokens_paid, raw.tokens_sent):
        return (
            f"an estimate: as configured, {calls} would have cost the same"
            " (`brainsurgeon status --estimate` prints why)"
        )
    return (
        f"an estimate: as configured, {calls} would have cost"
        f" {_share(configured.tokens_paid, raw.tokens_paid)} of"
        f" {'their price' if raw.cost_dollars is None else f'${raw.cost_dollars:,.2f}'},"
        f" and sent {_share(configured.tokens_sent, raw.tokens_sent)} of their tokens"
        " (`brainsurgeon status --estimate`)"
    )


def saved_so_far(bill: Bill) -> str:
    if not (bill.tokens_sent or bill.tokens_paid):
        return ""
    # Dollars count only calls with a known price: they may rise although the tokens fall.
    money = (
        ""
        if bill.cost_dollars is None
        else f" (${abs(bill.cost_dollars):,.2f} {_less(bill.cost_dollars)})"
    )
    return (
        f"an estimate: {about(bill.tokens_sent)} tokens were not sent; the prompts cost"
        f" {about(abs(bill.tokens_paid))} input tokens {_less(bill.tokens_paid)}{money},"
        " the cost of broken caches included"
    )


def _less(saved: float) -> str:
    return "less" if saved >= 0 else "more"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "-"


def models_json(models: Sequence[ModelCost]) -> dict[str, Any]:
    whole = total(models)
    return {
        "cost_dollars": whole.cost_dollars, "calls": whole.calls,
        "calls_unpriced": whole.calls_unpriced, "models": to_builtins(models),
    }  # fmt: skip


def total(models: Sequence[ModelCost]) -> ModelCost:
    known = [one.cost_dollars for one in models if one.cost_dollars is not None]
    return ModelCost(
        None, calls=sum(one.calls for one in models),
        cost_dollars=sum(known) if known or not models else None,
        calls_unpriced=sum(one.calls_unpriced for one in models),
    )  # fmt: skip


def total_cost(models: Sequence[ModelCost]) -> str:
    whole = total(models)
    why = " (no price is recorded, configured or known)" if whole.cost_dollars is None else ""
    return f"{cost(whole)}{why}; {counted(whole.calls, 'recorded call')}" if models else ""


def cost(one: ModelCost, *, short: bool = False) -> str:
    if one.cost_dollars is None:
        return "unknown"
    unknown = " + ?" if short else f", unknown for {counted(one.calls_unpriced, 'call')}"
    return f"${one.cost_dollars:,.2f}" + (unknown if one.calls_unpriced else "")


MODELS: tuple[Column, ...] = (
    ("model", 0, lambda one: one.model or "(not recorded)"),
    ("turns", 70, lambda one: "-" if one.turns_answered is None else f"{one.turns_answered:,}"),
    ("calls", 55, lambda one: f"{one.calls:,}"),
    ("tokens sent", 40, lambda one: f"{one.tokens_sent:,}"),
    ("from cache", 70, lambda one: _share(one.tokens_cached, one.tokens_sent)),
    ("answered", 80, lambda one: f"{one.tokens_answered:,}"),
    ("cost", 0, lambda one: cost(one, short=True)),
)


def costs_json(costs: SessionCosts) -> dict[str, Any]:
    return {
        "costs": models_json(costs.models)
        | {"subagents_read": costs.subagents, "stated_dollars": costs.stated},
        "compactions": costs.compactions,
        "cache_warm_until": costs.warm_until,
        "reasoning_dropped": costs.reasoning_dropped,
    }


def costs(costs: SessionCosts, now: float) -> list[str]:
    lines = []
    if costs.models:
        others = f", with {counted(costs.subagents, 'sub-agent')}" if costs.subagents else ""
        stated = f"; its agent recorded ${costs.stated:,.2f}" if costs.stated else ""
        lines += [
            f"cost       {total_cost(costs.models)}{others}{stated}",
            *table(*columned(MODELS, costs.models)).splitlines(),
        ]
    if (until := costs.warm_until) is not None:
        state = f"warm until {local(until)}" if until > now else f"cold since {local(until)}"
        lines.append(f"cache      {state}")
    if costs.reasoning_dropped:
        items = counted(costs.reasoning_dropped, "item")
        lines.append(
            f"reasoning  {items} dropped by the provider in the last call: prefix_mismatch"
        )
    if costs.compactions:
        last = costs.compactions[0]
        at = f", last {local(last.at)}" if last.at is not None else ""
        tokens = f" at {last.tokens_before:,} tokens" if last.tokens_before else ""
        lines.append(f"compacted  {counted(len(costs.compactions), 'time')}{at}{tokens}")
    return lines
