"""Examine one session: open it, read it, check whether it is idle, plan. Writes nothing."""

import glob
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cached_property

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon import agents, interruption
from brainsurgeon.agents.agent import UNREADABLE_LOCK_FILE, Agent
from brainsurgeon.agents.rows import OpenRows
from brainsurgeon.config import Settings
from brainsurgeon.errors import BusyError
from brainsurgeon.files.reading import ObstacleError, OpenFile, RefusedError
from brainsurgeon.formats.base import Format
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.lookup.owners import Place, countable, fields_of_entries, of_other_agents
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import (
    EVERYTHING,
    FileState,
    Others,
    Records,
    Request,
    SessionRecord,
)
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.session_files import BusyCheck, NotIdleError, SessionFile
from brainsurgeon.model.text import iso
from brainsurgeon.model.turns import RATE
from brainsurgeon.planning.archiving import NO_ARCHIVING, Archiving
from brainsurgeon.planning.matching import marked
from brainsurgeon.planning.plan import SnapshotPlanner
from brainsurgeon.planning.rules import changed_recently, silence
from brainsurgeon.planning.snapshot import VERSION, Habits, Snapshot
from brainsurgeon.sessions import discovery
from brainsurgeon.sessions.discovery import AnyOpen
from brainsurgeon.sessions.transcripts import Transcripts
from brainsurgeon.store import Store
from brainsurgeon.store.journal import LEAST_WAIT


def settings_for(settings: Settings, file: SessionFile) -> Settings:
    if not settings.has_profiles:
        return settings
    names = agents.ids_in(file.session)
    titles = [f"{agent}/{name}" for agent in agents.names_of(file.agent) for name in names]
    keys = agents.keys_of(file) if settings.uses_session_keys else []
    return settings.under(settings.profile_of(titles, keys))


def excluded(file: SessionFile, settings: Settings) -> str | None:
    """Return why the configuration excludes a session, or None."""
    ids = agents.ids_in(file.session)
    names = {"agent": agents.names_of(file.agent), "session": ids, "tool": ()}
    for pattern in settings.exclude:
        kind, _, name = pattern.partition(":")
        if kind in names:
            matches = any(fnmatchcase(text, name) for text in names[kind])
        else:
            path_glob = _without_links(pattern)
            matches = any(fnmatchcase(file.path, one) for one in (path_glob, f"{path_glob}/*"))
        if matches:
            return f"excluded by {pattern}"
    return None


def _without_links(pattern: str) -> str:
    """Resolve the symbolic links in an absolute glob, up to its first wildcard."""
    if not pattern.startswith("/"):
        return pattern.rstrip("/")
    literal = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
    end = len(pattern) if literal == pattern else literal.rindex("/") + 1
    return os.path.join(glob.escape(os.path.realpath(pattern[:end])), pattern[end:]).rstrip("/")


def in_memory(settings: Settings, file: SessionFile, now: float) -> str | None:
    """Return why to wait if an idle process of its agent has, or may have, a session in memory."""
    presence = agents.agent_at(file.path).presence
    return presence.in_memory(file.path, now, settings.abandoned_after)


def agent_of(session: AnyOpen) -> Agent:
    return agents.agent_of(session.file.path, session.form.name)


def stated_window(session: AnyOpen) -> int | None:
    """Return the size of the context window in tokens, if the agent states it."""
    if isinstance(session, OpenRows):
        return session.context_tokens
    return agent_of(session).home.window(session.file.directory, session.file.name)


def mend(file: SessionFile) -> None:
    """Mend where a session begins in another. Raises NotIdleError if that has to wait."""
    try:
        agents.agent_at(file.path).presence.mend(file.path, rewritten=False)
    except (RefusedError, BusyError) as why:
        raise NotIdleError(str(why)) from why


def busy_check_of(session: OpenFile, settings: Settings, clock: Callable[[], float]) -> BusyCheck:
    return agent_of(session).presence.busy_check(
        session.directory, session.file.path, clock, settings.quiet, settings.abandoned_after
    )


def check_mount(session: AnyOpen) -> None:
    """Raise ObstacleError if the file itself is mounted somewhere. Examines every process."""
    if isinstance(session, OpenFile) and (mounted := session.mounted):
        raise ObstacleError(mounted)


def check_touchable(session: AnyOpen, settings: Settings, *, restores: bool = False) -> None:
    """Raise RefusedError if an obstacle prevents any change. Does not examine processes.

    `restores`: the change only restores values.
    """
    if agents.superseded(session.file) and not discovery.is_archive(session.file):
        raise RefusedError("its agent keeps its sessions in SQLite now: nothing is written here")
    if (
        isinstance(session, OpenRows) and settings.databases == "auto"
        and (engine := session.databases.engine(session.file.directory))
    ):  # fmt: skip
        raise RefusedError('{}; databases = "engines" {}'.format(*engine))
    if obstacle := session.obstacle:
        raise ObstacleError(obstacle)
    if not restores and (why := only_restores(session)):
        raise ObstacleError(why)


def only_restores(session: AnyOpen) -> str | None:
    """Return why only values may be restored in a session, or None."""
    return session.only_restores if isinstance(session, OpenRows) else None


def check_idle(session: AnyOpen, settings: Settings, silent: float, now: float) -> None:
    """Raise NotIdleError or RefusedError if a session may not be changed now."""
    check_touchable(session, settings)
    check_mount(session)
    _raise(changed_recently(silent, settings.quiet))
    check_turn(session, settings, silent, now)


def check_turn(session: AnyOpen, settings: Settings, silent: float, now: float) -> None:
    if discovery.is_archive(session.file):
        return
    chain = session.transcript.chain
    if isinstance(session, OpenRows):
        session.check_turn(chain.open_turn, settings.quiet, now)
        return
    _raise(changed_recently(silent, min(chain.quiet, settings.abandoned_after)))
    _raise(chain.open_turn if silent < settings.abandoned_after else None)
    _raise(busy_check_of(session, settings, lambda: now).read())


LEASED = "another process is replacing the file"  # opening it would wait for a lease


class Examination(Struct, frozen=True, dict=True):
    settings: Settings
    store: Store
    session: AnyOpen
    silent: float  # seconds since the last change
    now: float
    record: SessionRecord | None = None
    asked: tuple[Request, ...] = ()  # requests that are not in the store

    @property
    def form(self) -> Format:
        return self.session.form

    @property
    def transcript(self) -> Transcript:
        return self.session.transcript

    @property
    def agent(self) -> Agent:
        return agent_of(self.session)

    def check_idle(self) -> None:
        check_idle(self.session, self.settings, self.silent, self.now)

    def check_turn(self) -> None:
        check_turn(self.session, self.settings, self.silent, self.now)

    @property
    def abandoned_at(self) -> float:
        return self.now + max(0.0, self.settings.abandoned_after - self.silent)

    @property
    def habits(self) -> Habits:
        presence, file = self.agent.presence, self.session.file
        stores_offsets = self.transcript.chain.keeps_length
        return Habits(
            presence.drops_blocks,
            presence.remembers,
            presence.moving(file.path, shrinks=file.shrink) if stores_offsets else "no edits",
        )

    def kept_in_memory(self) -> str | None:
        """Return why to wait if a process has the session in memory: its requests cannot shrink."""
        # After a long silence, the session is probably resumed in a new process.
        agent, abandoned = self.agent, self.settings.abandoned_after
        if self.silent >= abandoned:
            return None
        why = agent.presence.in_memory(self.session.file.path, self.now, abandoned)
        return why and f"{why}, at most until {iso(math.ceil(self.abandoned_at / 60) * 60)}"

    def _pending(self, requests: Sequence[Request]) -> Iterator[Request]:
        """Yield the requests that are not too late. An answer stays if its restore is."""
        late = [one for one in requests if one.lapses_at is not None and one.lapses_at <= self.now]
        kept = {one.entry_id for one in late if one.action == "restore"}
        for request in requests:
            shortens = request.action == "redact"
            stays = self.settings.keep_purge_control_calls or request.entry_id in kept
            if request not in late and not (shortens and stays):
                yield request

    @cached_property
    def records(self) -> Records:
        store, record = self.store, self.record
        placed = store.placements.of_session(record.id) if record else frozenset()
        records = self._records_of_lines(placed)
        if record is None:
            return replace(records, requests=self.asked)
        full = store.calibrations.of(record.id)
        requests = (*self._pending(store.requests.of_session(record.id)), *self.asked)
        # Before the first change: of a database, some rows would be restored and others not.
        wanted = [
            value for value in records.extractions
            if any(one.action == "restore" and one.concerns(value.entry_id) for one in requests)
        ]  # fmt: skip
        return replace(
            records,
            last_placed=placed,
            requests=requests,
            damaged=store.extractions.damaged(wanted),
            archives=tuple(store.archives.of_session(record.id, records.extractions)),
            rate=full.calibration.rate if full else RATE,
        )

    @property
    def place(self) -> Place:
        file = self.session.file
        return Place(file.path, file.agent_directory, self.record)

    def _records_of_lines(self, placed: frozenset[int]) -> Records:
        """Return the records of placeholders and fields in the lines, without requests.

        The values with ids `placed`, which were last seen in the session, are the last ones.
        """
        store, session, record = self.store, self.session, self.record
        names, entries = (set(), set()) if store.is_empty else marked(self.transcript)
        values = store.extractions.by_names(names, record.id if record else None)
        values.sort(key=lambda value: value.id in placed)
        others = of_other_agents(store, self.place, {value.session_id for value in values})
        counted = countable(values, others, session.form)
        ours = {value.name for value in counted}
        return Records(
            counted,
            same_identity=store.sessions.same_identity(
                session.identity, (value.session_id for value in counted)
            ),
            fields=fields_of_entries(store, self.place, entries, session.form),
            restores=store.extractions.restores(record.id) if record else {},
            asked_until=store.requests.newest(record.id) if record else 0,
            own=record.id if record else None,
            others=Others(others, frozenset({value.name for value in values} - ours)),
        )


class ExaminationPlanner(Struct, frozen=True, dict=True):
    """Plans an examined session by its settings and by records of the store."""

    examined: Examination
    records: Records
    extract: bool = True
    explain: bool = False
    summaries: Mapping[bytes, str] = field(default_factory=dict)
    hurries: bool = False  # does not wait for a cold prompt cache

    def plan(self, archiving: Archiving = NO_ARCHIVING, rules: Rules | None = None) -> Plan:
        rules = rules or self.examined.settings.decision_rules()
        return self._snapshot.plan(
            rules, extract=self.extract, explain=self.explain, archiving=archiving
        )

    @cached_property
    def _snapshot(self) -> SnapshotPlanner:
        examined = self.examined
        return SnapshotPlanner(Snapshot(
            examined.transcript, examined.session.parsed, self.records, examined.now,
            changed_at=examined.now - examined.silent,
            answer_wait=max(LEAST_WAIT, examined.settings.abandoned_after),
            branches_die_at=examined.abandoned_at, habits=examined.habits,
        ))  # fmt: skip


def plan_of_everything(examined: Examination, records: Records | None = None) -> Plan:
    records = replace(records or examined.records, requests=(EVERYTHING,))
    return ExaminationPlanner(examined, records, extract=False).plan()


def examine_open(
    settings: Settings, store: Store, session: AnyOpen, now: float,
    record: SessionRecord | None = None,
) -> Examination:  # fmt: skip
    """Examine an open session. Raise RefusedError if its format is unknown."""
    _ = session.form
    settings = settings_for(settings, session.file)
    silent = _silent_for(store, session.file, now)
    return Examination(settings, store, session, silent, now, record)


def rules_of(settings: Settings) -> str:
    """Return a text that changes if decisions about unchanged sessions may change."""
    return f"{settings.rules_fingerprint()} {VERSION}"


def examine_closed(
    settings: Settings, store: Store, session: AnyOpen, last_scan: FileState, now: float
) -> Examination:
    """Examine a session whose last turn is known to be closed. Reads none of its lines."""
    session.transcript = Transcript.read(session.form, ())
    silent = silence(session.file.fingerprint, last_scan.first_seen, now)
    return Examination(settings_for(settings, session.file), store, session, silent, now)


@contextmanager
def examine_quiet(
    settings: Settings, store: Store, file: SessionFile, now: float,
    check_stop: Callable[[], None] = interruption.check, kept: Transcripts | None = None, *,
    at_work: bool = False, restores: bool = False,
) -> Iterator[Examination]:  # fmt: skip
    """Examine a session. Raises NotIdleError or RefusedError if it may not be changed now.

    With `at_work`, it may have changed just now. With `at_work` or `restores`, it may be a session
    of which only values may be restored (`only_restores`). Before a change, the caller must also
    call `check_turn` (not with `at_work`) and `check_mount`.
    """
    if not at_work:
        _raise(changed_recently(_silent_for(store, file, now), settings.quiet))
    with discovery.open_session(file, check_stop) as session:
        if session.fingerprint != file.fingerprint and not at_work:
            raise NotIdleError("changed just now")
        session.keeper = None if kept is None else kept.transcript
        _ = session.form  # raises RefusedError if it is unknown, before an obstacle is reported
        check_touchable(session, settings, restores=at_work or restores)
        yield examine_open(settings, store, session, now)


@contextmanager
def examine_to_show(
    settings: Settings, store: Store, file: SessionFile, record: SessionRecord | None, now: float
) -> Iterator[Examination]:
    """Examine a session to show it. Raises FailedError or BusyError."""
    with discovery.open_to_show(file) as session:
        yield examine_open(settings, store, session, now, record)


_AT_WORK_FOR = 86_400.0  # seconds of silence after which an agent no longer counts as at work


def why_blocked(settings: Settings, store: Store, file: SessionFile, now: float) -> str | None:
    """Return why a session is blocked, or None.

    It is blocked if it is not idle, for any reason but an open turn or an agent at work for less
    than a day.
    """
    try:
        with discovery.open_session(file) as session:
            _ = session.form
            check_touchable(session, settings)
            check_mount(session)
            examined = examine_open(settings, store, session, now)
            try:
                examined.check_turn()
            except NotIdleError as why:
                unclear = why.given_up or str(why) == UNREADABLE_LOCK_FILE
                return str(why) if unclear or examined.silent >= _AT_WORK_FOR else None
    except (RefusedError, BusyError, NotIdleError) as why:
        return str(why)
    except FileNotFoundError:
        return None
    except OSError as why:
        return why.strerror or type(why).__name__
    return None


def _silent_for(store: Store, file: SessionFile, now: float) -> float:
    state = store.files.at(file.path)
    # A state from the future was recorded before the clock was set back.
    valid = state and state.fingerprint == file.fingerprint and state.looked_at <= now
    return silence(file.fingerprint, state.first_seen if state and valid else now, now)


def _raise(reason: str | None) -> None:
    if reason:
        raise NotIdleError(reason)
