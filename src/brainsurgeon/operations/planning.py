"""Plan one session of a pass: what is due, what has to go for it to fit, and which turns fold."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from brainsurgeon.operations.archiving import end_hopeless, folding_of
from brainsurgeon.operations.fullness import fit_in
from brainsurgeon.operations.summarise import summaries

if TYPE_CHECKING:
    from brainsurgeon.decide.resume import Frontier
    from brainsurgeon.model.records import Records
    from brainsurgeon.operations.fullness import Fitting
    from brainsurgeon.operations.summarise import Told
    from brainsurgeon.store import Store


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
