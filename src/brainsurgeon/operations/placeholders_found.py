"""Account for the stubs of one session: which lead to a value, a tombstone, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.decide.matching import ANOTHERS, NOBODYS, SEVERAL
from brainsurgeon.decide.plan import plan
from brainsurgeon.formats.base import parse
from brainsurgeon.model.entries import STUB_PREFIX, stub_in, value_at
from brainsurgeon.model.records import Wish
from brainsurgeon.model.sessions import NO_SURVEY
from brainsurgeon.rewrite.examine import records_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.sessions.opening import AnyOpen
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Stubs:
    """The stubs of one session, of which the store has the record `session_id` or none.

    `standing` are the extractions that they lead to, of which `expired` are tombstones. `orphans`
    names the entries with stubs of ours that no record puts back, each with why; `unknown` counts
    the texts that only look like stubs.
    """

    standing: tuple[int, ...]
    expired: int
    orphans: tuple[tuple[str, str], ...]
    unknown: int
    session_id: int | None = None


def stubs_of(settings: Settings, store: Store | None, session: AnyOpen) -> Stubs:
    """Look at the placeholders of a session as if all were to be restored."""
    form = session.format
    survey = form.survey(session.lines, 0)
    everything = Wish(None, 0, None, "restore", None, None, True, 0.0, None)
    record = store.sessions.find(session.file, session.identity) if store else None
    records = records_of(settings, store, session, record, 0.0, (everything,))
    rules = settings.decision_rules()
    planned = plan(session.lines, form, rules, records, 0.0, survey, cut=False)
    gone = {
        value.id: value.blob_id is None
        for value in records.extractions if value.replacement is None
    }  # fmt: skip
    standing = tuple(ident for ident in planned.sighted if ident in gone)
    orphans = tuple(one for one in planned.left if one[1] in (NOBODYS, ANOTHERS, SEVERAL))
    texts = sum(1 for _ in _texts(session))
    return Stubs(
        standing, sum(gone[ident] for ident in standing), orphans,
        texts - len(standing) - len(orphans), records.own,
    )  # fmt: skip


def _texts(session: AnyOpen) -> Iterator[str]:
    """Yield the whole values of entries that have the shape of a stub."""
    for line in session.lines:
        entry = parse(line.raw) if line.raw and STUB_PREFIX in line.raw else None
        for part in session.format.parts(entry, NO_SURVEY, None) if entry else ():
            text = stub_in(value_at(entry, part.path)) if entry else None
            if text is not None:
                yield text
