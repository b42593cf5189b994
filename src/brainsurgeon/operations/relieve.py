"""Shrink a session until it fits its model's context window."""

from collections.abc import Callable

from msgspec.structs import asdict, replace

from brainsurgeon.config import Settings
from brainsurgeon.formats.base import DAMAGED, HOLLOW
from brainsurgeon.formats.marks import placeholder_at
from brainsurgeon.lookup import sessions
from brainsurgeon.model.plans import Amounts
from brainsurgeon.model.records import Request
from brainsurgeon.model.reports import Relief
from brainsurgeon.model.session_files import NotIdleError
from brainsurgeon.operations.sessions import why_not_idle
from brainsurgeon.planning.signatures import BROKEN, DOUBTFUL, STALE
from brainsurgeon.rewrite import inspect
from brainsurgeon.rewrite.apply import Change, apply_quiet, examine_to_change
from brainsurgeon.rewrite.recover import finish
from brainsurgeon.rewrite.relief import Wanted, WeighedPlan, relieve_by
from brainsurgeon.sessions.discovery import failed, open_to_show
from brainsurgeon.store import Store

RELIEF_REQUEST_SECONDS = 86_400.0  # after which a request lapses
_SIGNATURES = (BROKEN, DOUBTFUL, HOLLOW, DAMAGED, STALE)


def relieve(
    settings: Settings, store: Store, session: str | sessions.Session, wanted: Wanted,
    *, clock: Callable[[], float],
) -> Relief:  # fmt: skip
    """Extract values until the session fits, or record the request if the session is not idle.

    Raises MovedError if the agent no longer uses the session's file, and FailedError if the session
    is excluded or its file cannot be read or replaced.
    """
    chosen = sessions.session_named(settings, store, session)
    file = sessions.file_of(chosen)
    if why := inspect.excluded(file, settings):
        raise failed(chosen.title, why)
    try:
        with store.runs.run("relieve", clock()):
            with examine_to_change(settings, store, file, clock) as quiet:
                record, now = sessions.note_record(store, quiet.session), quiet.now
                examined = replace(quiet, record=record)
                planner = inspect.ExaminationPlanner(examined, examined.records, explain=True)
                weighed = relieve_by(planner, wanted)
                relief = _report(examined, weighed)
                rewrite = apply_quiet(store, Change(examined, weighed.plan), clock)
                if rewrite is None:
                    sessions.record_placeholders(store, examined.session, record, weighed.plan, now)
                if weighed.after:
                    with store.transaction():
                        store.calibrations.remember(record.id, weighed.after)
            finish(rewrite)
    except NotIdleError as why:
        now = clock()
        with open_to_show(file) as opened, store.transaction():
            store.requests.add(Request(
                sessions.note_within(store, opened).id, "relieve", now,
                value=asdict(wanted), lapses_at=now + RELIEF_REQUEST_SECONDS,
            ))  # fmt: skip
        return Relief(session=chosen.title, pending=True, reason=str(why))
    return relief


def would_relieve(
    settings: Settings, store: Store, session: str, wanted: Wanted, now: float
) -> Relief:
    """Return the expected result of `relieve` in an idle session. Writes nothing."""
    chosen = sessions.session_named(settings, store, session)
    file = sessions.file_of(chosen)
    if why := inspect.excluded(file, settings):
        raise failed(chosen.title, why)
    with inspect.examine_to_show(settings, store, file, chosen.record, now) as examined:
        weighed = relieve_by(
            inspect.ExaminationPlanner(examined, examined.records, explain=True), wanted
        )
        return _report(examined, weighed, reason=weighed.plan.deferred or why_not_idle(examined))


def _report(examined: inspect.Examination, weighed: WeighedPlan, *, reason: str = "") -> Relief:
    planned, size = weighed.plan, examined.session.fingerprint.size
    removed = {(removal.entry_id, removal.path) for removal in planned.removals}
    went, stays = Amounts(), Amounts()
    transcript = examined.transcript
    for index, entry in transcript.live():
        for value in transcript.values(index):
            if not (value.dead or placeholder_at(entry, value.path)):
                sums = went if (entry.ident, value.path) in removed else stays
                sums.add(value.kind, value.tool, chars=value.chars)
    return Relief(
        weighed.before, weighed.after, weighed.room, weighed.protected, weighed.least,
        weighed.room_bytes,
        session=examined.session.file.title, reason=reason, went=went.listed(),
        stays=stays.listed(), bytes_before=size, bytes_after=size - planned.gain,
        values=sum(removal.how != "archive" for removal in planned.removals),
        signatures=sum(
            removal.how == "empty" and removal.reason in _SIGNATURES for removal in planned.removals
        ),
        refused=planned.handled.unfit if weighed.rules.drop_signatures else (),
    )  # fmt: skip
