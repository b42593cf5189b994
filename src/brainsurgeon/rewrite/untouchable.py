"""What is never changed by us, whatever its state: a reason to skip a session."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from brainsurgeon.hosts import openclaw
from brainsurgeon.sessions import mounts
from brainsurgeon.sessions.reading import ObstacleError, OpenSession, RefusedError
from brainsurgeon.sessions.row_session import OpenRows

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.sessions.opening import AnyOpen


def excluded(file: SessionFile, settings: Settings, *, asked: bool = False) -> str | None:
    """Say why the configuration leaves this session alone, or None.

    Where its relief or an archive was `asked` for, its size is no reason.
    """
    agents = openclaw.agent_names(file.agent)
    for pattern in settings.exclude:
        kind, _, name = pattern.partition(":")
        hit = (
            (kind == "agent" and any(fnmatchcase(one, name) for one in agents))
            or (kind == "session" and fnmatchcase(file.session, name))
            or (kind not in ("agent", "session", "tool") and fnmatchcase(file.path, pattern))
        )
        if hit:
            return f"excluded by {pattern}"
    if not asked and file.fingerprint.size < settings.min_session_bytes:
        return "smaller than min_session_bytes"
    return None


def check_replaceable(session: AnyOpen, settings: Settings) -> None:
    """Raise RefusedError for what we never change."""
    check_touchable(session, settings)
    check_alone(session)


def check_alone(session: AnyOpen) -> None:
    """Raise ObstacleError where a container was given the file alone.

    It takes a look at every process: a pass asks for it only where something is to go.
    """
    if isinstance(session, OpenSession):
        _check(mounts.obstacle(session.directory, session.file.name))


def check_touchable(session: AnyOpen, settings: Settings) -> None:
    """Raise RefusedError for what shows without a look at other processes."""
    if moved_away(session.file):
        raise RefusedError("its agent keeps its sessions in SQLite now: nothing is written here")
    if isinstance(session, OpenRows) and settings.databases == "auto":
        _check_engine(session)
    _check(session.own_obstacle if isinstance(session, OpenSession) else session.obstacle)


def _check(obstacle: str | None) -> None:
    if obstacle:
        raise ObstacleError(obstacle)


def moved_away(file: SessionFile) -> bool:
    """Tell whether the agent of a session in a file keeps its sessions in a database now."""
    return not file.in_database and openclaw.migrated(file.agent_directory)


def _check_engine(session: OpenRows) -> None:
    """Raise RefusedError where another context engine keeps turns of its own, or may do so."""
    chosen = session.selected
    if chosen.unreadable:
        raise RefusedError(f'{chosen.unreadable}; databases = "engines" does without')
    if chosen.engine:
        raise RefusedError(
            f'the context engine {chosen.engine} is selected; databases = "engines" includes it'
        )
