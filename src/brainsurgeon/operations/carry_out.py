"""Carry out what is asked of one session, with the wishes that already wait, if it is settled."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from brainsurgeon.errors import Busy, Damaged, Failed, Gone, Guarded
from brainsurgeon.operations import look
from brainsurgeon.operations.operate import Rewrite, operate
from brainsurgeon.operations.plan import plan
from brainsurgeon.sessions import quiet
from brainsurgeon.sessions.reading import Refused, open_session
from brainsurgeon.store import files

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.model import Found, Plan
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import SessionRow
    from brainsurgeon.store.wishes import Wish


def carry_out(
    settings: Settings, store: Store, found: Found, row: SessionRow,
    asked: tuple[Wish, ...], clock: Callable[[], float],
) -> tuple[Plan, Rewrite | None]:  # fmt: skip
    """Carry out what is asked, with the wishes that already wait, if the session is settled.

    Raise Unsettled where it is not; nothing is cut on the way. The caller finishes the rewrite.
    """
    damaged: set[int] = set()
    while True:
        try:
            return _rewrite(settings, store, look.again(found), row, asked, clock, damaged)
        except Damaged as why:  # what is whole still goes back
            if why.extraction_id is None or why.extraction_id in damaged:
                raise
            damaged.add(why.extraction_id)
        except BlockingIOError as why:
            raise look.Unsettled(look.HELD) from why
        except Busy as why:
            raise look.Unsettled(str(why)) from why
        except Refused as why:
            if quiet.migrated(found.agent_directory):
                told = f"{row.title}: {why}; `brainsurgeon show` still prints the value"
                raise Guarded(told) from why
            raise Failed(f"{row.title}: {why}; its file was left as it is") from why
        except FileNotFoundError as why:
            raise Gone(f"{row.title}: its file went away") from why
        except OSError as why:
            raise look.failed(row.title, why) from why


def _rewrite(
    settings: Settings, store: Store, found: Found, row: SessionRow,
    asked: tuple[Wish, ...], clock: Callable[[], float], damaged: set[int],
) -> tuple[Plan, Rewrite | None]:  # fmt: skip
    now = clock()
    seen = files.remembered_one(store.connection, found.path)
    same = seen is not None and seen.fingerprint == found.fingerprint
    first_seen = seen.first_seen if seen and same else now
    quietness = look.Quietness.of(found, settings, first_seen, now)
    quietness.check_silence()
    with open_session(found) as session:
        look.check_same(session, found)
        form = look.recognise(session)
        look.check_writable(session)
        rules = settings.decision_rules()
        survey = form.survey(session.lines, rules.window)
        quietness.check_turn(session, survey, now)
        known = look.known(settings, store, row, now)
        known = replace(
            known,
            wishes=(*known.wishes, *asked),
            extractions=tuple(replace(one, damaged=one.id in damaged) for one in known.extractions),
        )
        planned = plan(session.lines, form, rules, known, now, survey, cut=False)
        if not planned.edits:
            return planned, None
        try:
            return planned, operate(
                store, session, row, planned, gate=quietness.gate(session, clock),
                quiet_for=quietness.silent, now=now,
            )  # fmt: skip
        except Refused as why:  # by then the session as such was fine
            raise look.Unsettled(str(why)) from why
