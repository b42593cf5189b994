"""Look at one session: open it, know its format, judge whether it is settled, plan it.

What scan, restore and the showing verbs share; nothing here writes.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from brainsurgeon import formats
from brainsurgeon.errors import Failed
from brainsurgeon.operations.plan import Known
from brainsurgeon.sessions import quiet
from brainsurgeon.sessions.discover import fingerprint_of
from brainsurgeon.sessions.reading import Refused, open_session, writable
from brainsurgeon.store import extractions, wishes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model import Found, Survey
    from brainsurgeon.sessions.reading import Opened
    from brainsurgeon.store import Store
    from brainsurgeon.store.extractions import SessionRow


HELD = "another process is replacing the file"
"""What it means that a file cannot be opened without waiting: somebody has a lease on it."""


class Unsettled(Exception):  # noqa: N818  a verdict on the session, not a failure of ours
    """The session may not be touched now; trying again at the next pass will do."""


@dataclass(frozen=True, slots=True)
class Quietness:
    """How long a session has been silent, and how long it has to be."""

    settings: Settings
    silent: float

    @classmethod
    def of(cls, found: Found, settings: Settings, first_seen: float, now: float) -> Quietness:
        """Measure by the file's modification time alone."""
        return cls(settings, quiet.silence(found.fingerprint, first_seen, now))

    def check_silence(self) -> None:
        """Raise Unsettled while the file has changed too recently."""
        _raise(quiet.restless(self.silent, self.settings.quiet_seconds))

    def check_turn(self, session: Opened, survey: Survey, now: float) -> None:
        """Raise Unsettled while a turn is open or the agent shows that it is at work."""
        _raise(quiet.open_turn(survey, self.silent, self.settings.abandoned_after_seconds))
        _raise(self.gate(session, lambda: now)())

    def gate(self, session: Opened, clock: Callable[[], float]) -> Callable[[], str | None]:
        """Give the question that is asked once more under the lease."""
        abandoned = float(self.settings.abandoned_after_seconds)
        return lambda: quiet.agent_busy(session.directory, session.found.name, clock(), abandoned)


@contextmanager
def opened(found: Found) -> Iterator[Opened]:
    """Open a session for a command that only looks; raise Failed where that cannot be."""
    try:
        with open_session(found) as session:
            yield session
    except Refused as why:
        raise Failed(f"{found.title}: {why}; its file was left as it is") from why
    except OSError as why:
        raise failed(found.title, why) from why


def recognise(session: Opened) -> Format:
    """Know the format of an open session, or raise Refused with the reason."""
    form, reason = formats.recognise(session.head(formats.HEAD_LINES), session.found.hint)
    if form is None:
        raise Refused(reason)
    return form


def named(found: Found, format_name: str) -> Found:
    """Complete the name of an agent that is called after the format and its directory."""
    if os.path.basename(found.directory) == "sessions":
        return found
    return replace(found, agent=f"{format_name}:{os.path.basename(found.directory)}")


def check_same(session: Opened, found: Found) -> None:
    """Raise Unsettled when the file changed between the walk's look and its opening."""
    if session.fingerprint != found.fingerprint:
        raise Unsettled("changed just now")


def check_writable(session: Opened) -> None:
    """Raise Refused for a file that we never replace."""
    if quiet.migrated(session.found.agent_directory):
        raise Refused("its agent keeps its sessions in SQLite now: nothing is written here")
    if reason := writable(session):
        raise Refused(reason)


def again(found: Found) -> Found:
    """Look at a file once more, by its name."""
    status = os.stat(found.path, follow_symlinks=False)
    return replace(found, fingerprint=fingerprint_of(status))


def failed(title: str, error: OSError) -> Failed:
    """Say in one line which session could not be read or replaced, and why."""
    why = error.strerror or type(error).__name__
    return Failed(f"{title}: {why}; its file was left as it is")


def excluded(found: Found, settings: Settings) -> str | None:
    """Say why the configuration leaves this session alone, or None."""
    for pattern in settings.exclude:
        kind, _, name = pattern.partition(":")
        hit = (
            (kind == "agent" and fnmatchcase(found.agent, name))
            or (kind == "session" and fnmatchcase(found.session, name))
            or (kind not in ("agent", "session", "tool") and fnmatchcase(found.path, pattern))
        )
        if hit:
            return f"excluded by {pattern}"
    if found.fingerprint.size < settings.min_session_bytes:
        return "smaller than min_session_bytes"
    return None


def known(settings: Settings, store: Store | None, row: SessionRow | None, now: float) -> Known:
    """Gather what the store says of a session.

    Put-backs whose time is over are left out, and redactions where calls are to be kept.
    """
    if store is None or row is None:
        return Known()
    connection = store.connection
    return Known(
        extractions=tuple(extractions.of_sessions(connection, extractions.family(connection, row))),
        fields=tuple(extractions.fields(connection, row.id)),
        restores=extractions.restores(connection, row.id),
        wishes=tuple(
            wish
            for wish in wishes.open_wishes(connection, row.id)
            if (wish.lapses_at is None or wish.lapses_at > now)
            and not (wish.action == "redact" and settings.keep_purge_control_calls)
        ),
        asked_until=wishes.newest(connection, row.id),
    )


def _raise(reason: str | None) -> None:
    if reason:
        raise Unsettled(reason)
