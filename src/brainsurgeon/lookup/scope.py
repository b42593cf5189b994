"""Find the sessions that a caller may see, and the one that a call means."""

import time
from collections.abc import Callable, Mapping, Sequence
from os import path as paths
from os import sep
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon import agents
from brainsurgeon.config import Settings
from brainsurgeon.errors import AmbiguousError, BusyError, NotFoundError, UnnamedError, UsageError
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.formats.base import dict_or_empty
from brainsurgeon.lookup.sessions import (
    Session,
    all_sessions,
    has_header_id,
    is_at,
    is_called,
    of_agent_named,
    of_calling_process,
    session_among,
)
from brainsurgeon.model.entries import JsonObject
from brainsurgeon.model.transcript import Entry
from brainsurgeon.planning.rules import silence
from brainsurgeon.sessions.discovery import AnyOpen, open_session
from brainsurgeon.store import Store


class Scope(Struct, frozen=True):
    """The sessions that a caller may see: those of an agent, one session, or by default all.

    `agent` is a name, the agent's own directory, or the working directory of a Claude Code
    project. `session` is a path, an id or `agent/id`. The function `bound` finds
    the session of any other name.
    """

    agent: str | None = None
    session: str | None = None


class Caller(Struct, frozen=True):
    scope: Scope
    arguments: JsonObject
    clock: Callable[[], float]
    meta: Mapping[str, Any] = MappingProxyType({})  # what the agent says about the call


def bound(settings: Settings, store: Store, scope: Scope) -> tuple[Scope, str | None]:
    """Resolve the names in a scope to paths. Also return a warning if a name matches nothing."""
    listed = _of_agent(all_sessions(settings, store), scope.agent)
    directories = sorted({session.agent_directory for session in listed})
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


def sessions_in(settings: Settings, store: Store, scope: Scope) -> list[Session]:
    every = [one for one in all_sessions(settings, store) if not one.goes_on]
    listed = _of_agent(every, scope.agent)
    if scope.agent and len({session.agent_directory for session in listed}) > 1:
        return []  # the agent's name has become ambiguous
    if scope.agent or scope.session:
        listed = [replace(session, only_owned=True) for session in listed]
    if scope.session is None:
        return listed
    name = scope.session
    return [
        session for session in listed
        if is_at(session, name) or is_called(session, name) or has_header_id(session, name)
    ]  # fmt: skip


def _of_agent(sessions: list[Session], agent: str | None) -> list[Session]:
    is_path = agent is not None and (sep in agent or agent == ".") and "\0" not in agent
    if agent is None:
        listed = sessions
    elif is_path:
        path = paths.realpath(agent)
        directories = {path, *map(paths.realpath, agents.directories_of(path))}
        listed = [item for item in sessions if paths.realpath(item.agent_directory) in directories]
    else:
        listed = of_agent_named(sessions, agent)
    # Ignore an agent's former directory if another of its directories has files.
    live = {(item.agent, item.agent_directory) for item in listed if item.file}
    names = {name for name, _ in live}
    return [
        item for item in listed
        if item.agent not in names or (item.agent, item.agent_directory) in live
    ]  # fmt: skip


def session_for(
    settings: Settings, store: Store, caller: Caller, name: str | None,
    holds: Callable[[Session], bool] | None = None, *, by_placeholder: bool = False,
) -> Session:  # fmt: skip
    """Return the session called `name`, the calling session, or the only one that `holds` accepts.

    Waits briefly for the agent to write the call, unless it was found `by_placeholder`: the
    caller has read this placeholder, and only one session of one agent holds it. Raises
    NotFoundError or AmbiguousError.
    """
    scope, listed = caller.scope, sessions_in(settings, store, caller.scope)
    if told := _told(caller, listed, name, holds):
        return told
    begun = time.monotonic()
    while True:
        now = caller.clock()
        calling = [item for item in listed if _is_calling(settings, item, caller.arguments, now)]
        if len(calling) == 1:
            return calling[0]
        for starter in of_calling_process(calling or listed):
            # A session without a record may be a new fork: the store does not know its entries.
            if holds is None or starter.record is None or holds(starter):
                return starter
        active = (item for item in listed if _is_active(settings, item, now))
        delay = max((agents.agent_at(item.path).home.call_delay for item in active), default=0.0)
        if by_placeholder and delay and not calling and (only := _only_holder(listed, holds)):
            return only
        by_placeholder = False
        if calling or not delay or time.monotonic() > begun + delay:
            directories = {item.agent_directory for item in calling}
            others = [item for item in listed if item.agent_directory in directories]
            return _only_one(calling or listed, holds, others)
        time.sleep(0.1)
        listed = sessions_in(settings, store, scope) or listed


def _told(
    caller: Caller, listed: list[Session], name: str | None,
    holds: Callable[[Session], bool] | None,
) -> Session | None:  # fmt: skip
    """Return the session that a call, its caller's scope or its agent names, or None."""
    if name:
        return session_among(listed, name)
    if not listed:
        raise NotFoundError("no session that this caller may read is known yet; try again")
    if caller.scope.session:
        return listed[0] if len(listed) == 1 else _only_one(listed, None)
    thread = agents.thread_in(caller.meta)  # it is in the names of the session's files
    own = (item for item in listed if thread and item.file and thread in paths.basename(item.path))
    newest = next(iter(_newest_first(list(own))), None)
    # A session without a record may be a new fork: the store does not know its entries.
    fits = newest is None or holds is None or newest.record is None or holds(newest)
    return newest if fits else None


def _only_holder(listed: list[Session], holds: Callable[[Session], bool] | None) -> Session | None:
    if holds is None or len({item.agent_directory for item in listed}) > 1:
        return None
    holders = list(filter(holds, listed))
    return holders[0] if len(holders) == 1 else None


def other_holder(
    settings: Settings, store: Store, scope: Scope, session: Session,
    holds: Callable[[Session], bool],
) -> Session:  # fmt: skip
    """Return another session of the agent with the entry: its starter, or the newest of forks.

    Raises UnnamedError or NotFoundError.
    """
    of_agent = [
        item for item in sessions_in(settings, store, scope)
        if item.agent_directory == session.agent_directory
    ]  # fmt: skip
    home = agents.agent_at(session.path).home
    owner = home.owner(session.path)
    parents = (item for item in of_agent if owner and item.title == owner.started_by)
    parent = next(filter(holds, parents), None)
    if parent is None and home.forks and (holders := list(filter(holds, of_agent))):
        return _newest_first(holders)[0]
    return parent or _only_one(of_agent, holds)


def own_session(settings: Settings, store: Store, caller: Caller, name: str | None) -> Session:
    """Return the calling session, or the session of its sub-agent that is called `name`."""
    try:
        own = session_for(settings, store, caller, None)
    except UnnamedError as why:  # do not ask for a name: the caller may read no other session
        raise UsageError(
            "it is unknown which session makes this call, so no evidence can be given; in a "
            "shell, `brainsurgeon evidence SESSION` prints it"
        ) from why
    if not name:
        return own
    others = [
        replace(item, only_owned=own.only_owned)
        for item in sessions_in(settings, store, Scope(caller.scope.agent))
        if item.agent_directory == own.agent_directory
    ]
    return session_among([own, *started_by(own, others)], name)


def started_by(own: Session, others: list[Session]) -> list[Session]:
    key = own.file.key if own.file else None
    is_started = agents.started(own.path, key)
    return [item for item in others if is_started(item.path)]


def _only_one(
    sessions: list[Session], holds: Callable[[Session], bool] | None, others: Sequence[Session] = ()
) -> Session:
    if holds is not None:
        sessions = list(filter(holds, sessions)) or list(filter(holds, others))
        if not sessions:
            raise NotFoundError("no session of this agent has the entry; name another `entry`")
        if len(sessions) == 1:
            return sessions[0]
    raise UnnamedError([session.title for session in _newest_first(sessions)])


def _newest_first(sessions: list[Session]) -> list[Session]:
    return sorted(
        sessions, reverse=True,
        key=lambda session: session.file.fingerprint.mtime_ns if session.file else 0,
    )  # fmt: skip


def _is_active(settings: Settings, session: Session, now: float) -> bool:
    file = session.file
    return file is not None and silence(file.fingerprint, now, now) < settings.abandoned_after


def _is_calling(settings: Settings, session: Session, call: JsonObject, now: float) -> bool:
    if session.file is None or not _is_active(settings, session, now):
        return False
    try:
        with open_session(session.file) as opened:
            if opened.transcript.chain.open_turn is None:
                return False
            masks = agents.agent_at(session.path).home.masks
            return any(_is_same_call(arguments, call, masks) for arguments in _unanswered(opened))
    except (OSError, RefusedError, BusyError):
        return False


def _unanswered(opened: AnyOpen) -> list[JsonObject]:
    """Return the arguments of the newest tool calls after the prompt that have no result yet."""
    entries, last_user = opened.transcript.entries, opened.transcript.chain.last_user
    answered: set[str | None] = set()
    unnamed, waiting, seen_call = 0, [], False
    for index in range(len(entries) - 1, -1 if last_user is None else last_user, -1):
        entry = entries[index]
        if entry.role == "prompt" or (entry.cut_short and not entry.calls):
            break
        if seen_call and entry.is_message and not entry.calls:
            break  # earlier calls were answered before the newest were made
        answered |= _answered(entry)
        unnamed += any(result.call_id is None for result in entry.results)
        for number in reversed(range(len(entry.calls))):
            seen_call = True
            if not {entry.calls[number].call_id, entry.ident} & answered and unnamed == 0:
                calls = opened.form.read(opened.parsed(index).entry).calls
                waiting.append(dict_or_empty(calls[number].arguments))
            unnamed = max(0, unnamed - 1)
    return waiting


def _answered(entry: Entry) -> set[str]:
    # In the file of a sub-agent, entries are no steps of a turn: their results are only values.
    shown = (value.call for value in entry.values if value.kind == "tool_result" and not value.dead)
    return set(filter(None, (*shown, *(result.call_id for result in entry.results))))


def _is_same_call(written: JsonObject, call: JsonObject, masks: Sequence[str]) -> bool:
    inner = (value for value in written.values() if isinstance(value, dict))
    # Null arguments do not count: some agents pass null for each omitted argument.
    wanted, *candidates = (
        {key: value for key, value in arguments.items() if value is not None}
        for arguments in (call, written, *inner)
    )
    return any(
        wanted.keys() == found.keys()
        and all(_is_same(wanted[key], found[key], masks) for key in wanted)
        for found in candidates
    )


def _is_same(given: object, written: object, masks: Sequence[str]) -> bool:
    if given == written or not (isinstance(given, str) and isinstance(written, str)):
        return given == written
    parts = (written.partition(mask) for mask in masks)
    return any(
        mask and given.startswith(begin) and given[len(begin) :].endswith(end)
        for begin, mask, end in parts
    )
