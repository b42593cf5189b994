"""Examine one session: open it, survey it, judge whether it is idle, plan what is due in it.

Every verb that looks at a session as a whole goes through here; nothing here writes.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from brainsurgeon.formats.placeholders import Marks, marks_in
from brainsurgeon.hosts import claude_code, homes, openclaw
from brainsurgeon.model.records import Records
from brainsurgeon.planning import rules as idleness
from brainsurgeon.planning.archive import NOTHING_ASKED
from brainsurgeon.planning.plan import plan
from brainsurgeon.planning.signatures import Habits
from brainsurgeon.sessions import leases
from brainsurgeon.sessions.opening import failing, open_session
from brainsurgeon.sessions.reading import ObstacleError, OpenSession, RefusedError, carry_on
from brainsurgeon.sessions.row_session import OpenRows
from brainsurgeon.store.requests import LONGEST_WAIT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.formats.base import Format
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import Extraction, FileState, Request, SessionRecord
    from brainsurgeon.model.sessions import SessionFile, Signs, Survey
    from brainsurgeon.planning.archive import Folding
    from brainsurgeon.planning.rules import Rules
    from brainsurgeon.planning.tail import Frontier
    from brainsurgeon.sessions.opening import AnyOpen
    from brainsurgeon.store import Store


def settings_for(settings: Settings, file: SessionFile) -> Settings:
    """Return the settings that hold for a session.

    Without any profile in use, those that there are.

    Its names are `agent/id`, its keys those under which its agent lists it.
    """
    if not settings.use:
        return settings
    titles = [f"{agent}/{file.session}" for agent in openclaw.agent_names(file.agent)]
    keys = _keys(file) if settings.asks_for_keys else []
    return settings.under(settings.profile_of(titles, keys))


def _keys(file: SessionFile) -> list[str]:
    """Return the keys of a session; none where its agent's list cannot be read."""
    if file.key is not None:
        return [file.key]
    if openclaw.owner(file.directory) is None:
        return []
    return openclaw.keys_of(file.directory, file.name)


def context_tokens(file: SessionFile) -> int | None:
    """Return how many tokens the model of a session takes, as OpenClaw noted beside its file."""
    if file.in_database or openclaw.owner(file.directory) is None:
        return None
    return openclaw.context_tokens(file.directory, file.name)


def excluded(file: SessionFile, settings: Settings, *, asked: bool = False) -> str | None:
    """Return why the configuration leaves this session alone, or None.

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

    It takes a look at every process: a run asks for it only where something is to go.
    """
    if isinstance(session, OpenSession):
        _check(leases.obstacle(session.directory, session.file.name))


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
    """Check whether the agent of a session in a file keeps its sessions in a database now."""
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


# Why a file cannot be opened without waiting: somebody has a lease on it.
HELD = "another process is replacing the file"


class NotIdleError(Exception):
    """The session may not be touched now; trying again at the next run will do.

    `until` is when time alone may change that (seconds since 1970), None where that is not known.
    `idle` tells that it takes a change of the session's database, so that looking again before
    one would be in vain.
    """

    def __init__(self, reason: str, until: float | None = None, *, idle: bool = False) -> None:
        super().__init__(reason)
        self.until, self.idle = until, idle


@dataclass(frozen=True, slots=True)
class Examination:
    """One open session with its survey, and for how long (seconds) it has been silent."""

    settings: Settings
    session: AnyOpen
    survey: Survey
    silent: float
    now: float

    @property
    def format(self) -> Format:
        return self.session.format

    def check_idle(self) -> None:
        """Raise RefusedError where the file is never touched, NotIdleError where not now."""
        check_replaceable(self.session, self.settings)
        _raise(idleness.restless(self.silent, self.settings.quiet_seconds))
        self.check_turn()

    def check_turn(self) -> None:
        """Raise NotIdleError while a turn is open or the agent shows that it is at work."""
        if isinstance(self.session, OpenRows):
            self._check_gate(self.session)
            return
        abandoned = self.settings.abandoned_after_seconds
        _raise(idleness.restless(self.silent, self.survey.quiet))
        _raise(idleness.open_turn(self.survey, self.silent, abandoned))
        _raise(self.signs(self.session, lambda: self.now).read())

    def _check_gate(self, session: OpenRows) -> None:
        """Raise NotIdleError where any sign in the database says no; silence closes no turn."""
        if shut := session.closed(self.settings.quiet_seconds, self.now):
            raise NotIdleError(shut.reason, shut.until, idle=not shut.watched)
        if self.survey.open_turn:
            raise NotIdleError(self.survey.open_turn, idle=True)

    def signs(self, session: OpenSession, clock: Callable[[], float]) -> Signs:
        """Return what shows whether the agent is at work.

        It is asked once more for the exchange.
        """
        abandoned = float(self.settings.abandoned_after_seconds)
        where = self._place
        if where is not None:
            quiet = float(self.settings.quiet_seconds)
            return claude_code.Signs(where, clock, quiet, abandoned)
        return openclaw.Signs(session.directory, session.file.name, clock, abandoned)

    @property
    def _place(self) -> claude_code.Place | None:
        """Where the session lies in a home of Claude Code, if it is one of Claude Code's."""
        ours = self.format.name == claude_code.FORMAT
        return claude_code.place(self.session.file.path) if ours else None

    @property
    def forgotten_at(self) -> float:
        """When the session will have been silent for `abandoned_after_seconds`."""
        return self.now + max(0.0, self.settings.abandoned_after_seconds - self.silent)

    @property
    def habits(self) -> Habits:
        """What its agent does of itself.

        OpenClaw, which writes pi's dialect in a layout of its own, reads a session for every run.
        """
        file = self.session.file
        in_layout = file.in_database or openclaw.owner(file.directory)
        is_pi = self.format.name == "openclaw" and not in_layout
        return Habits(drops_blocks=is_pi and homes.drops_blocks(), remembers=is_pi)

    def kept_in_memory(self) -> str | None:
        """Return which process has the session in memory, so that cutting it saves nothing yet.

        None where there is none, and where the session has been silent for so long that whoever
        takes it up next will probably read it again.
        """
        where = self._place
        if where is None or self.forgotten_at <= self.now:
            return None
        abandoned = float(self.settings.abandoned_after_seconds)
        beside = claude_code.presence(where, self.now, abandoned).beside
        return beside and f"{beside}: new cuts wait"

    def plan(
        self, records: Records, *, cut: bool = True, explain: bool = False,
        frontier: Frontier | None = None, rules: Rules | None = None,
        folding: Folding = NOTHING_ASKED,
    ) -> Plan:  # fmt: skip
        """Plan what is due in it, given what the store says of it.

        With `rules` by these, and the plan says by how much the next request gets lighter.
        """
        lines, by = self.session.lines, rules or self.settings.decision_rules()
        wider = by.window > self.survey.window
        survey = self.format.survey(lines, by.window) if wider else self.survey
        return plan(
            lines, self.format, by, records, self.now,
            survey, cut=cut, explain=explain, changed_at=self.now - self.silent,
            patience=max(LONGEST_WAIT, float(self.settings.abandoned_after_seconds)),
            branches_die_at=self.forgotten_at, habits=self.habits, frontier=frontier,
            weigh=rules is not None, folding=folding,
        )  # fmt: skip


@contextmanager
def examine(
    settings: Settings, file: SessionFile, state: FileState | None, now: float,
    check_stop: Callable[[], None] = carry_on, window: int | None = None,
) -> Iterator[Examination]:  # fmt: skip
    """Open a session and survey it, idle or not; `state` is what a scan remembers of its file.

    Raise RefusedError or OSError where it cannot be opened or is of no known format.
    """
    with open_session(file, check_stop) as session:
        yield examine_open(settings, session, state, now, window)


def examine_open(
    settings: Settings, session: AnyOpen, state: FileState | None, now: float,
    window: int | None = None,
) -> Examination:  # fmt: skip
    """Survey a session that is open; raise RefusedError where it is of no known format."""
    settings = settings_for(settings, session.file)
    if window is None:
        window = settings.decision_rules().window
    survey = session.format.survey(session.lines, window)
    return Examination(settings, session, survey, silence(session.file, state, now), now)


@contextmanager
def examine_quiet(
    settings: Settings, file: SessionFile, state: FileState | None, now: float,
    check_stop: Callable[[], None] = carry_on,
    check: Callable[[AnyOpen, Settings], None] = check_replaceable,
) -> Iterator[Examination]:  # fmt: skip
    """Examine a session that is to be changed: one whose file is quiet and may be replaced.

    Raise NotIdleError where it is not quiet, RefusedError where `check` says that it may not be
    replaced. Whether its last turn is closed is for the caller to ask (`check_turn`).
    """
    with open_quiet(settings, file, state, now, check_stop) as session:
        form = session.format
        check(session, settings)
        settings = settings_for(settings, file)
        survey = form.survey(session.lines, settings.decision_rules().window)
        yield Examination(settings, session, survey, silence(file, state, now), now)


@contextmanager
def open_quiet(
    settings: Settings, file: SessionFile, state: FileState | None, now: float,
    check_stop: Callable[[], None],
) -> Iterator[AnyOpen]:  # fmt: skip
    """Open a session that is quiet; raise NotIdleError where it is not."""
    _raise(idleness.restless(silence(file, state, now), settings.quiet_seconds))
    with open_session(file, check_stop) as session:
        if session.fingerprint != file.fingerprint:
            raise NotIdleError("changed just now")
        yield session


@contextmanager
def examine_to_show(
    settings: Settings, file: SessionFile, state: FileState | None, now: float,
    window: int | None = None,
) -> Iterator[Examination]:  # fmt: skip
    """Examine a session for a command that only looks; raise FailedError where that cannot be."""
    with failing(file), examine(settings, file, state, now, window=window) as one:
        yield one


def silence(file: SessionFile, state: FileState | None, now: float) -> float:
    """Tell for how many seconds a session file has been quiet."""
    known = state is not None and state.fingerprint == file.fingerprint
    return idleness.silence(file.fingerprint, state.first_seen if state and known else now, now)


def records_of(
    settings: Settings, store: Store | None, session: AnyOpen | None, record: SessionRecord | None,
    now: float, asked: tuple[Request, ...] = (),
) -> Records:  # fmt: skip
    """Return what the store says of a session, and of whatever stands in its lines.

    Without an open `session`, its file is gone. To the open requests come those that are `asked`
    now. Requests to restore whose time is over are left out, and all redactions where the
    configuration says that the agent's own calls stay as they are.
    """
    if store is None:
        return Records(requests=asked)
    known = not (store.extractions.is_empty and store.fields.is_empty)
    marks = marks_in(session.lines, session.format) if session and known else Marks()
    found: list[Extraction] = []
    placed = frozenset[int]()
    if record is not None:
        placed = store.placements.of_session(record.id)
        of = store.extractions.held_in if session else store.extractions.of_session
        found = of(record.id)
    others = [one for one in store.extractions.named(marks.names) if one.id not in placed]
    extractions = (*others, *found)
    records = Records(
        extractions=extractions, placed=placed, requests=asked,
        alike=store.sessions.alike(session.identity) if session else frozenset(),
        fields=tuple(store.fields.of_entries(record.id if record else None, marks.entries)),
    )  # fmt: skip
    if record is None:
        return records
    return replace(
        records,
        own=record.id,
        restores=store.extractions.restores(record.id),
        requests=(
            *(
                request
                for request in store.requests.open_of(record.id)
                if (request.lapses_at is None or request.lapses_at > now)
                and not (request.action == "redact" and settings.keep_purge_control_calls)
            ),
            *asked,
        ),
        asked_until=store.requests.newest(record.id),
        archives=tuple(store.archives.of_session(record.id, extractions)),
    )


def _raise(reason: str | None) -> None:
    if reason:
        raise NotIdleError(reason)
