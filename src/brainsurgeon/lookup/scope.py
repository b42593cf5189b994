"""Whose sessions a caller may see, and which of them it means."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from os import path as paths
from os import sep
from typing import TYPE_CHECKING

from brainsurgeon.errors import AmbiguousError, BusyError, NotFoundError, UntoldError
from brainsurgeon.formats.base import parse
from brainsurgeon.hosts import claude_code, openclaw
from brainsurgeon.lookup import sessions as names
from brainsurgeon.lookup.sessions import all_sessions, session_among
from brainsurgeon.planning.rules import silence
from brainsurgeon.sessions.opening import open_session
from brainsurgeon.sessions.reading import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from brainsurgeon.config import Settings
    from brainsurgeon.formats.base import Format
    from brainsurgeon.lookup.sessions import Session
    from brainsurgeon.model.entries import Entry, Lines
    from brainsurgeon.store import Store


_GLANCE = 0.1
"""Seconds between two looks for a call that is not written down yet."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One agent, by name or directory, one session of it, or, with neither, every session.

    The directory is the agent's own, or the one that a project of Claude Code works in.

    `session` is a path, an id, or an id behind its agent: a beginning of one could come to mean
    another session later.
    """

    agent: str | None = None
    session: str | None = None


def bound(settings: Settings, store: Store | None, scope: Scope) -> tuple[Scope, str | None]:
    """Bind a scope to what its names mean now; give it with a warning where that is nothing.

    Raise AmbiguousError when a name fits several: whoever starts a server is told, no agent is.
    """
    listed = [one for one in all_sessions(settings, store) if _of_agent(one, scope.agent)]
    directories = sorted({one.agent_directory for one in _of_live_agents(listed)})
    if scope.agent and len(directories) > 1:
        hint = "name its directory with --agent"
        raise AmbiguousError(f"agent {scope.agent!r}", directories, hint)
    if scope.agent and not listed:
        return scope, f"no session of an agent {scope.agent!r} is known yet"
    agent = directories[0] if scope.agent else None
    if scope.session is None:
        return Scope(agent), None
    try:
        return Scope(agent, session_among(listed, scope.session).path), None
    except NotFoundError:
        return Scope(agent, scope.session), f"no session {scope.session!r} is known yet"


def sessions_in(settings: Settings, store: Store | None, scope: Scope) -> list[Session]:
    """List what a caller may see: nothing where an agent's name has come to mean two."""
    listed = _of_live_agents(
        one for one in all_sessions(settings, store) if _of_agent(one, scope.agent)
    )
    if scope.agent and len({one.agent_directory for one in listed}) > 1:
        return []
    if scope.agent or scope.session:
        listed = [replace(one, only_owned=True) for one in listed]
    if scope.session is None:
        return listed
    named = scope.session
    return [
        one for one in listed
        if named == one.path or names.is_called(one, named) or names.calls_itself(one, named)
    ]  # fmt: skip


def _of_live_agents(sessions: Iterable[Session]) -> list[Session]:
    """Leave out what the store remembers of an agent's earlier directory."""
    listed = list(sessions)
    live = {(one.agent, one.agent_directory) for one in listed if one.file}
    names = {agent for agent, _ in live}
    return [
        one for one in listed
        if one.agent not in names or (one.agent, one.agent_directory) in live
    ]  # fmt: skip


def _of_agent(session: Session, agent: str | None) -> bool:
    """Tell whether an agent is named: by its name, its directory, or one that it works in."""
    if agent is None:
        return True
    if (sep in agent or agent == ".") and "\0" not in agent:
        own = paths.realpath(session.agent_directory)
        working = paths.realpath(claude_code.project_of(paths.realpath(agent)))
        return own in (paths.realpath(agent), working)
    return agent in openclaw.agent_names(session.agent)


def session_for(
    settings: Settings, store: Store | None, scope: Scope, name: str | None, call: Entry,
    clock: Callable[[], float] = time.time, holds: Callable[[Session], bool] | None = None,
) -> Session:  # fmt: skip
    """Find the session that is named, or whose open turn holds this very call, or has the entry.

    `call` are the arguments of the tool call; `holds` tells whether a session has the entry that
    it names. Raise NotFoundError for what is not there or not within the scope, UntoldError where
    nothing is named and it cannot be told.
    """
    listed = sessions_in(settings, store, scope)
    if name:
        return session_among(listed, name)
    if not listed or (scope.session and len(listed) > 1):
        raise NotFoundError("no session is known here")
    if scope.session:
        return listed[0]
    caller, meant = _caller(settings, store, scope, listed, call, clock, holds)
    if caller:
        return caller
    if holds is not None:
        meant = [one for one in meant if holds(one)]
        if not meant:
            raise NotFoundError("no session here has that entry")
        if len(meant) == 1:
            return meant[0]
    newest = sorted(meant, key=_last_change, reverse=True)
    raise UntoldError([one.title for one in newest])


def _caller(
    settings: Settings, store: Store | None, scope: Scope, listed: list[Session], call: Entry,
    clock: Callable[[], float], holds: Callable[[Session], bool] | None,
) -> tuple[Session | None, list[Session]]:  # fmt: skip
    """Find the session that made a call; where that cannot be told, those that may have made it.

    A call that Claude Code has not written down yet is waited for.
    """
    deadline = time.monotonic() + claude_code.LATEST_LINE
    while True:
        calling = [one for one in listed if _is_calling(settings, one, call, clock())]
        if len(calling) == 1:
            return calling[0], calling
        if (starter := _starter_among(calling or listed, holds)) is not None:
            return starter, calling
        late = any(_may_be_late(settings, one, clock()) for one in listed)
        if calling or not late or time.monotonic() > deadline:
            return None, calling or listed
        time.sleep(_GLANCE)
        listed = sessions_in(settings, store, scope) or listed


def _starter_among(
    sessions: Iterable[Session], holds: Callable[[Session], bool] | None
) -> Session | None:
    """Find the session whose process started this one; its call may not be written down yet.

    A fork may have no record yet, by which it could be told that it has the entry.
    """
    here = claude_code.calling_session()
    for one in sessions:
        at = here is not None and paths.realpath(one.path) == paths.realpath(here)
        if at and (holds is None or one.record is None or holds(one)):
            return one
    return None


def _may_be_late(settings: Settings, session: Session, now: float) -> bool:
    """Tell whether a session is a live one of Claude Code, which writes a call down after it."""
    if session.file is None or claude_code.place(session.path) is None:
        return False
    return silence(session.file.fingerprint, now, now) < settings.abandoned_after_seconds


def _last_change(session: Session) -> int:
    return session.file.fingerprint.mtime_ns if session.file else 0


def _is_calling(settings: Settings, session: Session, call: Entry, now: float) -> bool:
    """Tell whether a session's open turn waits for the answer to this call."""
    if session.file is None:
        return False
    silent = silence(session.file.fingerprint, now, now)
    if silent >= settings.abandoned_after_seconds:
        return False
    try:
        with open_session(session.file) as opened:
            form = opened.format
            survey = form.survey(opened.lines, 0)
            if survey.open_turn is None:
                return False
            waiting = _unanswered(opened.lines, form, survey.last_user)
            return any(_means(given, call) for given in waiting)
    except (OSError, RefusedError, BusyError):
        return False


def _unanswered(lines: Lines, form: Format, last_user: int | None) -> list[Entry]:
    """Give the arguments of the last calls after the question that nothing has answered yet.

    What stands before an answer that failed is over, although its round goes on for the provider.
    """
    answered: set[str | None] = set()
    unnamed, waiting, met = 0, [], False
    for line in lines.backward():
        if last_user is not None and line.offset <= last_user:
            break
        entry = parse(line.raw) if line.raw else None
        if entry is None:
            continue
        said = form.said(entry)
        if said and (said.role == "prompt" or (said.cut_short and not said.asked)):
            break
        answers, calls = list(form.answers(entry)), list(form.calls(entry))
        ident = form.identity(entry, line.raw or b"", line.number)
        if met and form.counts(entry) and not calls:
            break  # the round before
        answered |= {one.call_id for one in answers if one.call_id}
        unnamed += any(one.call_id is None for one in answers)
        for call in reversed(calls):
            met = True
            if not {call.call_id, ident} & answered and unnamed == 0:
                waiting.append(call.arguments)
            unnamed = max(0, unnamed - 1)
    return waiting


def _means(given: Entry, call: Entry) -> bool:
    """Tell whether the arguments in a file are those of the call, as some hosts wrap them."""
    return _said(given) == _said(call) or any(
        isinstance(inner, dict) and _said(inner) == _said(call) for inner in given.values()
    )


def _said(arguments: Entry) -> Entry:
    """Leave out what was given as nothing: some hosts name every argument."""
    return {key: value for key, value in arguments.items() if value is not None}
