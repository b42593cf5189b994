"""Say what is asked of the turns of one session, by its settings and by what was noted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.decide.folding import NOTHING_ASKED, Folding

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.records import Records
    from brainsurgeon.model.sessions import SessionFile


def folding_of(settings: Settings, records: Records, file: SessionFile) -> Folding:
    """Give what is asked of a session's turns; nothing folds where nothing may be extracted.

    A session in a database has no form for it: there, nobody has to look.
    """
    rules = settings.archive_rules()
    if not settings.enabled or file.in_database:
        return NOTHING_ASKED
    return (
        Folding(rules, records.to_archive)
        if rules.enabled or records.to_archive
        else (NOTHING_ASKED)
    )
