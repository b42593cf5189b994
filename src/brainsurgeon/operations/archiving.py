"""Say what is asked of the turns of one session, by its settings and by what was noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.decide.folding import NOTHING_ASKED, Folding

if TYPE_CHECKING:
    from brainsurgeon.decide.turns import ArchiveRules
    from brainsurgeon.model.records import Records
    from brainsurgeon.rewrite.examine import Examination


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
