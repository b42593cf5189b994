"""Add up what a session and its sub-agents have cost, by model. Writes nothing."""

from contextlib import suppress

from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.lookup.scope import started_by
from brainsurgeon.lookup.sessions import all_sessions, session_among
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import Records
from brainsurgeon.model.reports import SessionCosts
from brainsurgeon.planning import cache
from brainsurgeon.planning.calls import RecordedCalls
from brainsurgeon.sessions.discovery import failing, open_session
from brainsurgeon.store import Store


def session_costs(settings: Settings, store: Store | None, name: str) -> SessionCosts:
    """Return the costs of a session, without those of files that cannot be read.

    Raises NotFoundError or AmbiguousError for the session.
    """
    listed = all_sessions(settings, store)
    own = session_among(listed, name)
    others = [one for one in listed if one.agent_directory == own.agent_directory]
    spending, warm_until, compactions, read = RecordedCalls(settings.price_rules()), None, 0, 0
    for session in (own, *started_by(own, others)):
        if (file := session.file) is None:
            continue
        with suppress(BusyError, FailedError), failing(file), open_session(file) as opened:
            lines, form = opened.lines, opened.format
            spending.read(lines, form)
            read += 1
            if session is own:
                compactions = len(spending.compactions)
                warm_until = cache.read(
                    lines, form, form.survey(lines, 0), Plan(), Records(),
                    opened.fingerprint.mtime_ns / 1e9,
                )[0].warm_until  # fmt: skip
    return SessionCosts(
        spending.models,
        tuple(spending.compactions[:compactions]),
        warm_until,
        max(0, read - 1),
        spending.stated,
    )
