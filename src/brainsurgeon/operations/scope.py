"""Whose sessions a caller may see, and which of them it means."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from os import path as paths
from os import sep
from typing import TYPE_CHECKING, Any

from brainsurgeon.errors import Ambiguous, NotFound
from brainsurgeon.formats.base import parse
from brainsurgeon.operations import look
from brainsurgeon.operations.find import all_sessions, session_among
from brainsurgeon.sessions.reading import Refused, open_session

if TYPE_CHECKING:
    from collections.abc import Callable

    from brainsurgeon.config import Settings
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model import Entry, Lines
    from brainsurgeon.operations.find import Session
    from brainsurgeon.store import Store


@dataclass(frozen=True, slots=True)
class Scope:
    """One agent, by name or directory, one session of it, or, with neither, every session."""

    agent: str | None = None
    session: str | None = None


def sessions_in(settings: Settings, store: Store | None, scope: Scope) -> list[Session]:
    """List what a caller may see.

    Raise Ambiguous when two agents have the name, NotFound when the session is not there.
    """
    listed = [one for one in all_sessions(settings, store) if _of_agent(one, scope.agent)]
    directories = sorted({one.agent_directory for one in listed})
    if scope.agent and len(directories) > 1:
        hint = "name its directory with --agent"
        raise Ambiguous(f"agent {scope.agent!r}", directories, hint)
    return [session_among(listed, scope.session)] if scope.session else listed


def _of_agent(session: Session, agent: str | None) -> bool:
    if agent is None:
        return True
    if sep in agent:
        return paths.realpath(agent) == paths.realpath(session.agent_directory)
    return session.agent == agent


def session_for(
    settings: Settings, store: Store | None, scope: Scope, name: str | None, call: Entry,
    clock: Callable[[], float] = time.time,
) -> Session:  # fmt: skip
    """Find the session that is named, or the one whose open turn holds this very call.

    `call` are the arguments of the tool call. Raise NotFound for what is not there or not within
    the scope, Ambiguous where nothing is named and it cannot be told.
    """
    listed = sessions_in(settings, store, scope)
    if name:
        return session_among(listed, name)
    if scope.session:
        return listed[0]
    if not listed:
        raise NotFound("no sessions are known here")
    calling = [one for one in listed if _is_calling(settings, one, call, clock())]
    if len(calling) == 1:
        return calling[0]
    newest = sorted(calling or listed, key=_last_change, reverse=True)
    what = "the session of this call" if calling else "no open turn holds this call, which"
    raise Ambiguous(what, [one.title for one in newest], "name the session")


def _last_change(session: Session) -> int:
    return session.found.fingerprint.mtime_ns if session.found else 0


def _is_calling(settings: Settings, session: Session, call: Entry, now: float) -> bool:
    """Tell whether a session's open turn waits for the answer to this call."""
    if session.found is None:
        return False
    silent = look.Quietness.of(session.found, settings, now, now).silent
    if silent >= settings.abandoned_after_seconds:
        return False
    try:
        with open_session(session.found) as opened:
            form = look.recognise(opened)
            survey = form.survey(opened.lines, 0)
            if survey.open_turn is None:
                return False
            waiting = _unanswered(opened.lines, form, survey.last_user)
            return any(_means(given, call) for given in waiting)
    except (OSError, Refused):
        return False


def _unanswered(lines: Lines, form: Format, last_user: int) -> list[Entry]:
    """Give the arguments of the last calls after the question that nothing has answered yet."""
    answered: set[str] = set()
    unnamed, waiting, met = 0, [], False
    for line in lines.backward():
        if line.offset <= last_user:
            break
        entry = parse(line.raw) if line.raw else None
        if entry is None:
            continue
        answers, calls = list(form.answers(entry)), list(form.calls(entry))
        if met and form.counts(entry) and not calls:
            break  # the round before
        answered |= {one.call_id for one in answers if one.call_id}
        unnamed += any(one.call_id is None for one in answers)
        for call in reversed(calls):
            met = True
            if call.call_id not in answered and unnamed == 0:
                waiting.append(call.arguments)
            unnamed = max(0, unnamed - 1)
    return waiting


def _means(given: Any, call: Entry) -> bool:
    """Tell whether the arguments in a file are those of the call, as hosts wrap them."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return False
    if not isinstance(given, dict):
        return False
    return _said(given) == _said(call) or any(
        isinstance(inner, dict) and _said(inner) == _said(call) for inner in given.values()
    )


def _said(arguments: Entry) -> Entry:
    """Leave out what was given as nothing: some hosts name every argument."""
    return {key: value for key, value in arguments.items() if value is not None}
