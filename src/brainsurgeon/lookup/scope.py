"""Resolve which sessions a caller may see and which one it names."""

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


# Seconds between two checks for a call that is not written yet.
_GLANCE = 0.1


@dataclass(frozen=True, slots=True)
class Scope:
    """One agent, one session, or, with neither, every session.

    `agent` is a name, the agent's own directory, or the working directory of a Claude Code
    project. `session` is a path, an id or `agent/id`. A prefix of an id is not enough: it could
    match another session later.
    """

    agent: str | None = None
    session: str | None = None


def bound(settings: Settings, store: Store | None, scope: Scope) -> tuple[Scope, str | None]:
    """Return a scope with its names resolved to paths, and a warning if one matches nothing.

    Raises AmbiguousError if a name matches several: the person who starts a server sees it, no
    agent does.
    """
    listed = [item for item in all_sessions(settings, store) if _of_agent(item, scope.agent)]
    directories = sorted({session.agent_directory for session in _of_live_agents(listed)})
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
    """Return the sessions that a caller may see, none if the agent's name has become ambiguous."""
    listed = _of_live_agents(
        item for item in all_sessions(settings, store) if _of_agent(item, scope.agent)
    )
    if scope.agent and len({session.agent_directory for session in listed}) > 1:
        return []
    if scope.agent or scope.session:
        listed = [replace(session, only_owned=True) for session in listed]
    if scope.session is None:
        return listed
    named = scope.session
    return [
        item for item in listed
        if named == item.path or names.is_called(item, named) or names.calls_itself(item, named)
    ]  # fmt: skip


def _of_live_agents(sessions: Iterable[Session]) -> list[Session]:
    """Drop sessions that the store knows only from an agent's earlier directory."""
    listed = list(sessions)
    live = {(session.agent, session.agent_directory) for session in listed if session.file}
    names = {agent for agent, _ in live}
    return [
        session for session in listed
        if session.agent not in names or (session.agent, session.agent_directory) in live
    ]  # fmt: skip


def _of_agent(session: Session, agent: str | None) -> bool:
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
    """Return the session that is named, or that made the call, or that has the entry.

    `call` holds the arguments of the tool call; `holds` checks whether a session has the entry
    that they name. Raises NotFoundError for a session that does not exist or is out of scope,
    UntoldError if no name is given and several sessions are possible.
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
        meant = [session for session in meant if holds(session)]
        if not meant:
            raise NotFoundError("no session here has that entry")
        if len(meant) == 1:
            return meant[0]
    newest = sorted(meant, key=_last_change, reverse=True)
    raise UntoldError([session.title for session in newest])


def _caller(
    settings: Settings, store: Store | None, scope: Scope, listed: list[Session], call: Entry,
    clock: Callable[[], float], holds: Callable[[Session], bool] | None,
) -> tuple[Session | None, list[Session]]:  # fmt: skip
    """Return the session that made a call, or None, and the sessions that may have made it.

    Waits for calls that Claude Code has not written yet.
    """
    deadline = time.monotonic() + claude_code.LATEST_LINE
    while True:
        calling = [item for item in listed if _is_calling(settings, item, call, clock())]
        if len(calling) == 1:
            return calling[0], calling
        if (starter := _starter_among(calling or listed, holds)) is not None:
            return starter, calling
        late = any(_may_be_late(settings, session, clock()) for session in listed)
        if calling or not late or time.monotonic() > deadline:
            return None, calling or listed
        time.sleep(_GLANCE)
        listed = sessions_in(settings, store, scope) or listed


def _starter_among(
    sessions: Iterable[Session], holds: Callable[[Session], bool] | None
) -> Session | None:
    """Return the session whose process started this one; its call may not be written yet.

    A session without a row is accepted: it may be a new fork, and `holds` needs the row.
    """
    here = claude_code.calling_session()
    for session in sessions:
        at = here is not None and paths.realpath(session.path) == paths.realpath(here)
        if at and (holds is None or session.record is None or holds(session)):
            return session
    return None


def _may_be_late(settings: Settings, session: Session, now: float) -> bool:
    """Check whether this is a live session of Claude Code, which writes calls with a delay."""
    if session.file is None or claude_code.place(session.path) is None:
        return False
    return silence(session.file.fingerprint, now, now) < settings.abandoned_after_seconds


def _last_change(session: Session) -> int:
    return session.file.fingerprint.mtime_ns if session.file else 0


def _is_calling(settings: Settings, session: Session, call: Entry, now: float) -> bool:
    """Check whether a session's open turn waits for the answer to this call."""
    if session.file is None:
        return False
    if silence(session.file.fingerprint, now, now) >= settings.abandoned_after_seconds:
        return False
    try:
        with open_session(session.file) as opened:
            form = opened.format
            survey = form.survey(opened.lines, 0)
            if survey.open_turn is None:
                return False
            waiting = _unanswered(opened.lines, form, survey.last_user)
            return any(_means(arguments, call) for arguments in waiting)
    except (OSError, RefusedError, BusyError):
        return False


def _unanswered(lines: Lines, form: Format, last_user: int | None) -> list[Entry]:
    """Return the arguments of the last calls after the prompt that have no answer yet.

    Calls before a failed answer are closed, although their round goes on for the provider.
    """
    answered: set[str | None] = set()
    unnamed, waiting, seen_call = 0, [], False
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
        if seen_call and form.counts(entry) and not calls:
            break  # the previous round
        answered |= {answer.call_id for answer in answers if answer.call_id}
        unnamed += any(answer.call_id is None for answer in answers)
        for call in reversed(calls):
            seen_call = True
            if not {call.call_id, ident} & answered and unnamed == 0:
                waiting.append(call.arguments)
            unnamed = max(0, unnamed - 1)
    return waiting


def _means(written: Entry, call: Entry) -> bool:
    """Check whether arguments in a file equal the arguments of the call; some hosts wrap them."""
    return _said(written) == _said(call) or any(
        isinstance(inner, dict) and _said(inner) == _said(call) for inner in written.values()
    )


def _said(arguments: Entry) -> Entry:
    """Drop null arguments: some hosts pass every argument by name."""
    return {key: value for key, value in arguments.items() if value is not None}
