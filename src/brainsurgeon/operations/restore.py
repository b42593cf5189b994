"""Put values back: at once where the session is settled, else as a wish with the values now."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from brainsurgeon.decide.extract import moment
from brainsurgeon.errors import Changed, NotFound
from brainsurgeon.model import dotted
from brainsurgeon.operations import look
from brainsurgeon.operations.carry_out import carry_out
from brainsurgeon.operations.entries import choose, entry_named
from brainsurgeon.operations.find import Session, file_of
from brainsurgeon.operations.operate import UNFINISHED
from brainsurgeon.operations.redact import answer_mark
from brainsurgeon.operations.show import contents
from brainsurgeon.operations.times import iso
from brainsurgeon.store import extractions, retaining, wishes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.config import Settings
    from brainsurgeon.model import Found, KeyPath, Plan
    from brainsurgeon.operations.entries import Named
    from brainsurgeon.operations.operate import Rewrite
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import Extraction, SessionRow

_TRY_AGAIN = 0.5
"""Seconds between two tries of a restore that waits."""

SUGGESTION = "This entry was restored before. To keep it in context, set _extractable: false on it."


@dataclass(frozen=True, slots=True)
class Restored:
    """The answer to a restore of one entry; as JSON it is what an agent reads."""

    entry_id: str
    session: str
    session_id: int
    pending: bool
    keys: tuple[str, ...]
    sizes: dict[str, int]
    at: float
    previous: float | None
    content: dict[str, Any]
    insertions_removed: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    why_pending: str = ""
    redacts: bool = False

    def as_json(self, *, content: bool = False) -> dict[str, Any]:
        """Give the answer as other programs read it."""
        answer: dict[str, Any] = {
            "restored": True,
            "pending": self.pending,
            "entry_id": self.entry_id,
            "session": self.session,
            "keys_restored": list(self.keys),
            "sizes_bytes": self.sizes,
            "restored_at": iso(self.at),
            "redacted": self.redacts,
        }
        if self.previous is not None:
            answer["previous_restored_at"] = iso(self.previous)
            answer["suggestion"] = SUGGESTION
        if self.pending or content:
            answer["content"] = self.content
        if self.why_pending:
            answer["why_pending"] = self.why_pending
        if self.insertions_removed:
            answer["insertions_removed"] = list(self.insertions_removed)
        if self.missed:
            answer["missed"] = list(self.missed)
        return answer


def restore(
    settings: Settings,
    store: Store,
    entry: str,
    *,
    clock: Callable[[], float],
    session: str | None = None,
    keys: Iterable[str] = (),
    pristine: bool = False,
    wait: bool = False,
) -> Restored:
    """Put the values of an entry back; with `wait`, wait for the session to be settled.

    Raise NotFound, Ambiguous or Expired for what cannot be found, Changed when the stub no longer
    stands there, Guarded when the agent does not keep its sessions in files any more.
    """
    wanted = list(keys)
    named = _noted(store, entry_named(settings, store, entry, session))
    values = choose(named, wanted)
    paths = tuple(value.path for value in values) if wanted else None
    now = clock()
    previous = extractions.restores(store.connection, named.row.id).get(named.entry_id)
    found = _file(named.session)
    content = contents(store, values)
    answer = Restored(
        named.entry_id, named.row.title, named.row.id, pending=False,
        keys=tuple(dotted(value.path) for value in values),
        sizes={dotted(value.path): value.size for value in values},
        at=now, previous=previous, content=content,
    )  # fmt: skip
    wish = wish_to_restore(named.row, named.entry_id, paths, pristine, now)
    try:
        planned, rewrite = _carry_out_by(
            clock() + _patience(settings) if wait else clock(),
            settings, store, found, named.row, wish, clock,
        )  # fmt: skip
    except look.Unsettled as why:
        note(settings, store, named.row, named.entry_id, paths, pristine, now)
        return replace(
            answer, pending=True, why_pending=str(why),
            redacts=not settings.keep_purge_control_calls,
        )  # fmt: skip
    unfinished = rewrite is not None and not rewrite.finish()
    at = extractions.restores(store.connection, named.row.id).get(named.entry_id, now)
    done = _settled_answer(replace(answer, at=at), planned, values)
    return replace(done, missed=(*done.missed, UNFINISHED)) if unfinished else done


def _noted(store: Store, named: Named) -> Named:
    """Give a fork that no scan has seen yet a row of its own, so that wishes can name it."""
    if named.row.id or named.session.found is None:
        return named
    with store.transaction() as connection:
        row = extractions.note_session(
            connection, named.session.found, named.row.format, named.row.parent
        )
    return replace(named, row=row)


def _patience(settings: Settings) -> float:
    """Give the seconds after which a put-back lapses, and waiting for it ends."""
    return max(float(settings.keep_after_restore_seconds), wishes.LONGEST_WAIT)


def _carry_out_by(
    deadline: float, settings: Settings, store: Store, found: Found, row: SessionRow,
    wish: wishes.Wish, clock: Callable[[], float],
) -> tuple[Plan, Rewrite | None]:  # fmt: skip
    """Carry out a wish, trying again until `deadline` while the session is not settled."""
    while True:
        try:
            return carry_out(settings, store, found, row, (wish,), clock)
        except look.Unsettled:
            if clock() >= deadline:
                raise
        time.sleep(_TRY_AGAIN)


def _settled_answer(answer: Restored, planned: Plan, values: tuple[Extraction, ...]) -> Restored:
    ident = answer.entry_id
    back = {dotted(edit.path) for edit in planned.putbacks if edit.entry_id == ident}
    if not back and not any(edit.undoes and edit.entry_id == ident for edit in planned.fields):
        reasons = [why for entry, why in planned.missed if entry == ident]
        back_since = f"it was put back at {iso(answer.previous)}" if answer.previous else ""
        reason = ", ".join(reasons) or back_since or "its stub no longer stands there"
        raise Changed(
            f"{answer.session} {ident}: {reason}; the entry was left as it is. "
            "`brainsurgeon show` still prints the value"
        )
    sizes = {dotted(value.path): value.size for value in values if dotted(value.path) in back}
    return replace(
        answer, keys=tuple(sizes), sizes=sizes,
        previous=_marked(planned, ident) or answer.previous,
        insertions_removed=removed(planned), missed=missed(planned),
    )  # fmt: skip


def _marked(planned: Plan, entry: str) -> float | None:
    """Read from the mark that was replaced when the entry was restored before."""
    for edit in planned.fields:
        if (edit.entry_id, edit.name) == (entry, "_restored") and edit.before and not edit.undoes:
            return moment(json.loads(edit.before))
    return None


def removed(planned: Plan) -> tuple[str, ...]:
    """Name the fields of ours that a plan takes out again."""
    return tuple(f"{e.name} of {e.entry_id}" for e in planned.fields if e.undoes is not None)


def missed(planned: Plan) -> tuple[str, ...]:
    """Say, entry by entry, what was asked for and could not be done."""
    return tuple(f"{entry}: {why}" for entry, why in planned.missed)


def _file(session: Session) -> Found:
    try:
        return file_of(session)
    except NotFound as gone:
        raise Changed(f"{gone}; `brainsurgeon show` still prints the value") from gone


def wish_to_restore(
    row: SessionRow, entry_id: str, paths: tuple[KeyPath, ...] | None,
    pristine: bool, now: float,
) -> wishes.Wish:  # fmt: skip
    """Make a wish that is carried out now and recorded only if it has to wait."""
    return wishes.Wish(0, row.id, entry_id, "restore", paths, None, pristine, now, None)


def note_answer(store: Store, answer: Restored, text: str) -> None:
    """Record how an answer begins, so that the call it answers is redacted later."""
    if answer.redacts:
        with store.transaction() as connection:
            wishes.add_redact(
                connection, answer.session_id, answer.entry_id, answer_mark(text), answer.at
            )


def note(
    settings: Settings, store: Store, row: SessionRow, entry_id: str,
    paths: tuple[KeyPath, ...] | None, pristine: bool, now: float,
) -> None:  # fmt: skip
    """Record the wish; what was marked as expired is wanted again."""
    with store.transaction() as connection:
        for ident in extractions.family(connection, row):
            retaining.unmark_entry(connection, ident, entry_id)
        wishes.add_restore(
            connection, row.id, entry_id, paths, now, now + _patience(settings),
            pristine=pristine,
        )  # fmt: skip
