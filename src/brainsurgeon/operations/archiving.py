"""Say what is asked of the turns of one session, by its settings and by what was noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.decide.folding import NOTHING_ASKED, Folding

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.decide.turns import ArchiveRules
    from brainsurgeon.model.records import Records
    from brainsurgeon.model.sessions import SessionFile


def folding_of(
    settings: Settings, records: Records, file: SessionFile, rules: ArchiveRules | None = None
) -> Folding:
    """Give what is asked of a session's turns; `rules` are those of the settings unless given.

    Nothing folds while nothing may be extracted. A session in a database has no form for it: there
    nobody has to look.
    """
    chosen = rules or settings.archive_rules()
    asked = records.to_archive
    if not settings.enabled or file.in_database or not (chosen.enabled or asked):
        return NOTHING_ASKED
    return Folding(chosen, asked)
