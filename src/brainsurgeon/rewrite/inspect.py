"""Examine one session: open it, survey it, check whether it is idle, plan. Writes nothing."""

import math
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.config import Settings
from brainsurgeon.formats.base import Format
from brainsurgeon.formats.placeholders import Marks, marks_in
from brainsurgeon.hosts import claude_code, homes, openclaw
from brainsurgeon.model.plans import Plan
from brainsurgeon.model.records import FileState, Records, Request, SessionRecord
from brainsurgeon.model.rules import Rules
from brainsurgeon.model.sessions import SessionFile, Signs, Survey
from brainsurgeon.model.text import iso
from brainsurgeon.model.turns import RATE
from brainsurgeon.planning import rules as idleness
from brainsurgeon.planning.archive import NOTHING_ASKED, Archiving
from brainsurgeon.planning.budget import keeping_tokens
from brainsurgeon.planning.drafts import Place
from brainsurgeon.planning.plan import plan
from brainsurgeon.planning.snapshot import Frontier, Habits, Snapshot
from brainsurgeon.sessions.opening import failing, moved_away, open_session, put_away
from brainsurgeon.sessions.reading import (
    AnyOpen,
    NotIdleError,
    RefusedError,
    carry_on,
    refuse_if,
)
from brainsurgeon.store import Store
from brainsurgeon.store.journal import LEAST_WAIT


def settings_for(settings: Settings, file: SessionFile) -> Settings:
    """Return the settings of a session: with its profile, if one is in use.

    A profile is selected by the names `agent/id` of the session, or by its keys in its agent's
    `sessions.json` (no keys if that cannot be read).
    """
    if not settings.use:
        return settings
    titles = [f"{agent}/{file.session}" for agent in openclaw.agent_names(file.agent)]
    keys = [] if file.key is None else [file.key]
    if not keys and settings.asks_for_keys and openclaw.owner(file.directory):
        keys = openclaw.keys_of(file.directory, file.name)
    return settings.under(settings.profile_of(titles, keys))


def excluded(file: SessionFile, settings: Settings, *, asked: bool = False) -> str | None:
    """Return why the configuration leaves this session alone, or None.

    With `asked` (the user asked to relieve or archive it), its size is ignored.
    """
    names = {"agent": openclaw.agent_names(file.agent), "session": (file.session,), "tool": ()}
    for pattern in settings.exclude:
        kind, _, glob = pattern.partition(":")
        texts, glob = (names[kind], glob) if kind in names else ((file.path,), pattern)
        if any(fnmatchcase(text, glob) for text in texts):
            return f"excluded by {pattern}"
    if not asked and file.fingerprint.size < settings.min_session_bytes:
        return "smaller than min_session_bytes"
    return None


def is_held(settings: Settings, file: SessionFile, now: float) -> bool:
    """Check whether a resting process of Claude Code has a session in memory."""
    place, abandoned = claude_code.place(file.path), settings.abandoned_after
    return place is not None and claude_code.presence(place, now, abandoned).beside is not None


def check_alone(session: AnyOpen) -> None:
    """Raise ObstacleError if a container mounts just this file, not its directory.

    This examines every process: a run checks it only if something is to be changed.
    """
    if mounted := session.mounted:
        raise session.obstacle_error(mounted)


def check_touchable(session: AnyOpen, settings: Settings) -> None:
    """Raise RefusedError if there is an obstacle that can be found without examining processes."""
    if moved_away(session.file) and not put_away(session.file):
        raise RefusedError("its agent keeps its sessions in SQLite now: nothing is written here")
    refuse_if(session.engine if settings.databases == "auto" else None)
    if obstacle := session.own_obstacle:
        raise session.obstacle_error(obstacle)


HELD = "another process is replacing the file"  # it has a lease: opening the file would wait


class Examination(Struct, frozen=True):
    """An open session with its survey. `silent` is the number of seconds since it changed."""

    settings: Settings
    session: AnyOpen
    survey: Survey
    silent: float
    now: float

    @property
    def format(self) -> Format:
        return self.session.format

    def check_idle(self) -> None:
        check_touchable(self.session, self.settings)
        check_alone(self.session)
        _raise(idleness.changed_recently(self.silent, self.settings.quiet))
        self.check_turn()

    def check_turn(self) -> None:
        """Raise NotIdleError while a turn is open or the agent shows that it is at work."""
        session, open_turn = self.session, self.survey.open_turn
        if put_away(session.file) or session.check_turn(open_turn, self.settings.quiet, self.now):
            return
        abandoned = self.settings.abandoned_after
        _raise(idleness.changed_recently(self.silent, self.survey.quiet))
        _raise(idleness.open_turn(self.survey, self.silent, abandoned))
        _raise(self.signs(lambda: self.now).read())

    def signs(self, clock: Callable[[], float]) -> Signs:
        settings = self.settings
        return self.session.signs(clock, settings.quiet, settings.abandoned_after)

    @property
    def forgotten_at(self) -> float:
        """When the session will have been silent for `abandoned_after`."""
        return self.now + max(0.0, self.settings.abandoned_after - self.silent)

    @property
    def habits(self) -> Habits:
        # OpenClaw writes pi's format, but in its own directories or database. It reads a session
        # again for every run, so only pi itself and Claude Code have these habits.
        is_pi = self.format.name == "openclaw" and not self.session.in_layout
        remembers = is_pi or self.format.name == claude_code.FORMAT
        return Habits(drops_blocks=is_pi and homes.drops_blocks(), remembers=remembers)

    def kept_in_memory(self) -> str | None:
        """Return which process has the session in memory: extracting would save nothing yet.

        None without one, or if the session has been silent for so long that its next user will
        probably read it again.
        """
        place, abandoned = self.session.place, self.settings.abandoned_after
        if place is None or self.silent >= abandoned:
            return None
        if not claude_code.presence(place, self.now, abandoned).beside:
            return None
        until = iso(math.ceil(self.forgotten_at / 60) * 60)
        return f"a resting process holds it; waits until {until}"

    def plan(
        self, records: Records, *, extract: bool = True, explain: bool = False,
        frontier: Frontier | None = None, rules: Rules | None = None,
        archiving: Archiving = NOTHING_ASKED, spared: Container[Place] = frozenset(),
    ) -> Plan:  # fmt: skip
        """Plan what is due in the session, given its records.

        If `rules` are given, they replace those of the settings.
        """
        lines = self.session.lines
        by = keeping_tokens(
            rules or self.settings.decision_rules(), lines, self.format, self.survey, records.rate
        )
        wider = by.window > self.survey.window
        survey = self.format.survey(lines, by.window) if wider else self.survey
        session = Snapshot(
            lines, self.format, survey, records, self.now, changed_at=self.now - self.silent,
            patience=max(LEAST_WAIT, self.settings.abandoned_after),
            branches_die_at=self.forgotten_at, habits=self.habits,
        )  # fmt: skip
        return plan(
            session, by, extract=extract, explain=explain, frontier=frontier, archiving=archiving,
            spared=spared,
        )  # fmt: skip


@contextmanager
def examine(
    settings: Settings, file: SessionFile, state: FileState | None, now: float,
    window: int | None = None,
) -> Iterator[Examination]:  # fmt: skip
    """Open and survey a session, idle or not. `state` is the record of its last scan."""
    with open_session(file) as session:
        yield examine_open(settings, session, state, now, window)


def examine_open(
    settings: Settings, session: AnyOpen, state: FileState | None, now: float,
    window: int | None = None,
) -> Examination:  # fmt: skip
    """Survey an open session. Raise RefusedError if its format is unknown."""
    settings = settings_for(settings, session.file)
    if window is None:
        window = settings.decision_rules().window
    survey = session.format.survey(session.lines, window)
    return Examination(settings, session, survey, _silence(session.file, state, now), now)


@contextmanager
def examine_quiet(
    settings: Settings, file: SessionFile, state: FileState | None, now: float,
    check_stop: Callable[[], None] = carry_on, *, alone: bool = True,
) -> Iterator[Examination]:  # fmt: skip
    """Examine a session that is to be changed: one that is quiet and may be replaced.

    Raise NotIdleError if it is not quiet, RefusedError if it may not be replaced. The caller must
    call `check_turn`, and `check_alone` as well if `alone` is false.
    """
    with open_quiet(settings, file, state, now, check_stop) as session:
        _ = session.format  # an unknown one is reported before any obstacle
        check_touchable(session, settings)
        if alone:
            check_alone(session)
        yield examine_open(settings, session, state, now)


@contextmanager
def open_quiet(
    settings: Settings, file: SessionFile, state: FileState | None, now: float,
    check_stop: Callable[[], None],
) -> Iterator[AnyOpen]:  # fmt: skip
    _raise(idleness.changed_recently(_silence(file, state, now), settings.quiet))
    with open_session(file, check_stop) as session:
        if session.fingerprint != file.fingerprint:
            raise NotIdleError("changed just now")
        yield session


@contextmanager
def examine_to_show(
    settings: Settings, store: Store | None, file: SessionFile, record: SessionRecord | None,
    now: float, asked: tuple[Request, ...] = (),
) -> Iterator[tuple[Examination, Records]]:  # fmt: skip
    """Examine a session for a command that only reads; raise FailedError if that is impossible.

    Yields its records as well, with the requests that are `asked` now.
    """
    state = store.files.at(file.path) if store else None
    with failing(file), examine(settings, file, state, now) as examined:
        yield examined, records_of(settings, store, examined.session, record, now, asked)


def _silence(file: SessionFile, state: FileState | None, now: float) -> float:
    known = state and state.fingerprint == file.fingerprint
    return idleness.silence(file.fingerprint, state.first_seen if state and known else now, now)


def records_of(
    settings: Settings, store: Store | None, session: AnyOpen | None, record: SessionRecord | None,
    now: float, asked: tuple[Request, ...] = (),
) -> Records:  # fmt: skip
    """Return the records of a session and of all its placeholders.

    `session` is None if its file is gone. The requests are the open ones and those `asked` now,
    without lapsed ones, and without redactions if the configuration keeps the agent's own calls.
    """
    if store is None:
        return Records(requests=asked)
    records = records_of_lines(store, session, record)
    if record is None:
        return replace(records, requests=asked)
    placed, full = store.placements.of_session(record.id), store.calibrations.of(record.id)
    values_of = store.extractions.held_in if session else store.extractions.of_session
    others = (value for value in records.extractions if value.id not in placed)
    extractions = (*others, *values_of(record.id))
    pending = (
        request for request in store.requests.open_of(record.id)
        if (request.lapses_at is None or request.lapses_at > now)
        and not (request.action == "redact" and settings.keep_purge_control_calls)
    )  # fmt: skip
    return replace(
        records,
        extractions=extractions,
        placed=placed,
        requests=(*pending, *asked),
        archives=tuple(store.archives.of_session(record.id, extractions)),
        rate=full.calibration.rate if full else RATE,
    )


def records_of_lines(
    store: Store, session: AnyOpen | None, record: SessionRecord | None
) -> Records:
    """Return the records of the entries and placeholders in the lines of an open session."""
    known = not (store.extractions.is_empty and store.fields.is_empty)
    marks = marks_in(session.lines, session.format) if session and known else Marks()
    return Records(
        tuple(store.extractions.named(marks.names)),
        alike=store.sessions.alike(session.identity) if session else frozenset(),
        fields=tuple(store.fields.of_entries(record.id if record else None, marks.entries)),
        restores=store.extractions.restores(record.id) if record else {},
        asked_until=store.requests.newest(record.id) if record else 0,
        own=record.id if record else None,
    )


def _raise(reason: str | None) -> None:
    if reason:
        raise NotIdleError(reason)
