"""Say what is asked of the turns of one session, by its settings and by what was noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.decide.folding import NOTHING_ASKED, Folding

if TYPE_CHECKING:
    from brainsurgeon.decide.turns import ArchiveRules
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Records, SessionRecord
    from brainsurgeon.rewrite.examine import Examination
    from brainsurgeon.store import Store


_FOR_GOOD = ("no gain", "depth", "format", "never sent")
"""Why a turn stays that will never fold: nothing about it changes any more."""
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
            store.archives.let_go(record.id, why, now, store.passes.so_far)


def folding_of(one: Examination, records: Records, rules: ArchiveRules | None = None) -> Folding:
    """Give what is asked of a session's turns; `rules` are those of its settings unless given.

    Nothing folds while nothing may be extracted. A session in a database has no form for it: there
    nobody has to look.
    """
    settings = one.settings
    if not settings.enabled or one.session.file.in_database:
        return NOTHING_ASKED
    return Folding(
        rules or settings.archive_rules(), records.to_archive, beyond=settings.budget.max_messages
    )
