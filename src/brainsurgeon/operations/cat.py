"""Give a whole session with every stub filled in; the file is not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from brainsurgeon.model import Putback
from brainsurgeon.operations import look
from brainsurgeon.operations.field_edits import EVERY_ENTRY
from brainsurgeon.operations.find import file_of, row_of, session_named
from brainsurgeon.operations.plan import Known, plan
from brainsurgeon.sessions.reading import Refused, read_range
from brainsurgeon.store import extractions
from brainsurgeon.store.wishes import Wish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store


def cat(settings: Settings, store: Store | None, name: str, now: float) -> Iterator[bytes]:
    """Yield the bytes of a session with the originals in the place of their stubs.

    Fields of ours stay where they stand; a session of no known format comes as it is.
    """
    chosen = session_named(settings, store, name)
    with look.opened(file_of(chosen)) as session:
        done = 0
        try:
            form = look.recognise(session)
        except Refused:
            form = None
        row = row_of(store, chosen) if form and store else None
        if form and store and row:
            rules = settings.decision_rules()
            wish = Wish(0, row.id, EVERY_ENTRY, "restore", None, None, True, now, None)
            known = Known(tuple(extractions.of_sessions(
                store.connection, extractions.family(store.connection, row)
            )), wishes=(wish,))  # fmt: skip
            survey = form.survey(session.lines, 0)
            planned = plan(session.lines, form, rules, known, now, survey, cut=False)
            for edit in planned.edits:
                if isinstance(edit, Putback):
                    yield from read_range(session.descriptor, done, edit.start)
                    yield extractions.value(store.connection, edit.extraction_id)
                    done = edit.end
        yield from read_range(session.descriptor, done, session.fingerprint.size)
