"""Claude Code on this machine: where its sessions lie, and who is at work on one.

Seen with versions 2.0.76 to 2.1.330 on Linux. A home is `$CLAUDE_CONFIG_DIR`, else `~/.claude`.
Its sessions are `projects/<project>/<session>.jsonl`, and those of sub-agents
`projects/<project>/<session>/subagents/<name>.jsonl`; no other file there is a session.

The record that a process keeps of itself says `busy` from a prompt to its answer and while
sub-agents work in the background. A process never reads its session again, so that beside an idle
one a rewrite does no harm, but its next request is none the smaller.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from glob import escape, glob
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import parse
from brainsurgeon.hosts import home_paths, processes
from brainsurgeon.hosts.processes import exists, start_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


# Versions 2.1.112 and later write `sessions/<pid>.json` into their home, with the session that they
# are on; from 2.1.300 on with a status, and with the kernel's start time of the process. A record
# is rewritten in place, so that a reader may meet half of it, and stays behind when its process is
# killed: it holds only while the process lives that wrote it.


_RECORD = re.compile(r"([1-9][0-9]{0,9})\.json")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LARGEST_RECORD = 1 << 20
# How long (seconds) to wait before each look at a record that seems to be half written.
_PAUSES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)
# Seconds by which a process may seem to have begun after it wrote when it did.
_START_SLACK = 5.0


@dataclass(frozen=True, slots=True)
class Record:
    """One live-process record; `session` is None where the record could not be read.

    `directory` is where the process works. `started` is the kernel's start time of the process
    (ticks since boot), as text; `since` is when (seconds since 1970) the process says it began,
    and `written` when the record changed.
    """

    pid: int
    written: float
    session: str | None = None
    directory: str = ""
    status: object = None
    started: str | None = None
    since: float | None = None
    namespace: str | None = None

    def lives(self, now: float, abandoned: float) -> bool:
        """Check whether the process that wrote the record lives."""
        if self.namespace is not None and self.namespace != _own_namespace():
            return now - self.written < abandoned
        if not exists(self.pid):
            return False
        ticks = start_of(self.pid)
        if ticks is None:
            return True
        if self.started is not None:
            return self.started == str(ticks)
        began = _boot_time() + ticks / os.sysconf("SC_CLK_TCK")
        return self.since is None or began <= self.since + _START_SLACK


def records(directory: str) -> Iterator[Record]:
    """Yield every record; none where this version of Claude Code keeps none."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    for name in names:
        match = _RECORD.fullmatch(name)
        if match:
            record = read(directory, int(match[1]))
            if record is not None:
                yield record


def read(directory: str, pid: int) -> Record | None:
    """Read one record, again where half of it stands there; None when it went away."""
    path = os.path.join(directory, f"{pid}.json")
    written = time.time()
    for pause in _PAUSES:
        if pause and not exists(pid):
            return None
        time.sleep(pause)
        try:
            descriptor = os.open(path, _READ)
            try:
                written = os.fstat(descriptor).st_mtime
                said = parse(os.read(descriptor, _LARGEST_RECORD)) or {}
            finally:
                os.close(descriptor)
        except FileNotFoundError:
            return None
        except OSError:
            break
        session = said.get("sessionId")
        if isinstance(session, str):
            return _record(pid, written, session, said)
    return Record(pid, written)


def _record(pid: int, written: float, session: str, said: dict[str, Any]) -> Record:
    started, since, domain = (said.get(key) for key in ("procStart", "startedAt", "pidDomain"))
    directory = said.get("cwd")
    namespace = re.search(r"pid:\[[0-9]+\]$", domain) if isinstance(domain, str) else None
    return Record(
        pid, written, session, directory if isinstance(directory, str) else "",
        said.get("status"),
        str(started) if isinstance(started, str | int) else None,
        since / 1000 if isinstance(since, int | float) else None,
        namespace[0] if namespace else None,
    )  # fmt: skip


def _own_namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _boot_time() -> float:
    """Return when (seconds since 1970) the machine was started."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)


FORMAT = "claude-code"
PROJECTS = "projects"
SUBAGENTS = "subagents"
RECORDS = "sessions"

# Seconds until a call is written down that was made: lines are collected for 100 ms (2.1.330), and
# the process that writes them may have to wait for the machine.
LATEST_LINE = 1.5
_BESIDE_A_SESSION = re.compile(
    r"/projects/[^/]+/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/"
)
# Characters of a project's directory before Claude Code shortens it (2.1.112 `cli.js`).
_LONGEST_NAME = 200


def home() -> str:
    """Return the home of Claude Code of this user, existing or not."""
    return home_paths.claude_code()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session file lies: in which home, in which project, and whose it is.

    `session` is the id of the main session; `subagent` names the file of a sub-agent of it.
    """

    home: str
    project: str
    session: str
    subagent: str | None = None

    @property
    def agent(self) -> str:
        """The owner of the session: nothing is shared or shown beyond a project."""
        return f"{FORMAT}:{self.project}"

    @property
    def directory(self) -> str:
        """The directory of the project."""
        return os.path.join(self.home, PROJECTS, self.project)

    @property
    def started_by(self) -> str | None:
        """The session whose agent started this one, as people address it; None for a main one."""
        return f"{self.agent}/{self.session}" if self.subagent else None


def place(path: str) -> Place | None:
    """Return where a session file lies; None for a path that is no session's in any home."""
    steps = path.split(os.sep)
    name, stem = steps[-1], steps[-1].removesuffix(".jsonl")
    if stem in ("", name):
        return None
    if steps[-3:-2] == [PROJECTS]:
        return Place(os.sep.join(steps[:-3]), steps[-2], stem)
    if steps[-5:-4] == [PROJECTS] and steps[-2] == SUBAGENTS:
        return Place(os.sep.join(steps[:-5]), steps[-4], steps[-3], stem)
    return None


def is_no_session(path: str, known_home: str) -> bool:
    """Check whether a file lies in a home of Claude Code without being a session there.

    `known_home` is that of this user, without links; another is known by a session's directory.
    """
    if place(path) is not None:
        return False
    return path.startswith(known_home + os.sep) or _BESIDE_A_SESSION.search(path) is not None


@dataclass(frozen=True, slots=True)
class Presence:
    """What the live-process records say of a session: why it is busy, and who sits beside it.

    `beside` names a living process that is on the session and at rest, or that does not say.
    """

    busy: str | None = None
    beside: str | None = None


class Signs:
    """What shows whether Claude Code is at work on a session: its records, and young sub-agents.

    It is read before a lease is taken, and only compared under it, by status alone.
    """

    def __init__(
        self, where: Place, clock: Callable[[], float], quiet: float, abandoned: float
    ) -> None:
        self._where, self._clock = where, clock
        self._quiet, self._abandoned = quiet, abandoned
        self._marks: list[object] = []

    def read(self) -> str | None:
        """Return what shows that Claude Code is at work, or None."""
        self._marks = self._status()
        now = self._clock()
        found = presence(self._where, now, self._abandoned)
        return found.busy or young_subagent(self._where, now, self._quiet)

    def changed(self) -> str | None:
        """Say that a record or a sub-agent's session is not what was read, or None."""
        return None if self._status() == self._marks else "Claude Code's records changed just now"

    def _status(self) -> list[object]:
        where = self._where
        subagents = os.path.join(where.directory, where.session, SUBAGENTS)
        return [_marks(os.path.join(where.home, RECORDS)), _marks(subagents)]


def _marks(directory: str) -> object:
    """Return what tells two states of the files in a directory apart, or why it has none."""
    try:
        with os.scandir(directory) as listing:
            return sorted(
                (item.name, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
                for item in listing
                for seen in (item.stat(follow_symlinks=False),)
            )
    except OSError as error:
        return error.errno


def presence(where: Place, now: float, abandoned: float) -> Presence:
    """Read the live-process records of a home; what cannot be read for certain counts as busy.

    The record of a process in another pid namespace (a container) says nothing that could be
    checked here: it counts as living for `abandoned` seconds after it was last written.
    """
    beside = None
    try:
        for record in records(os.path.join(where.home, RECORDS)):
            if not record.lives(now, abandoned) or record.session not in (None, where.session):
                continue
            if record.session is None:
                return Presence(f"the record of process {record.pid} cannot be read")
            if record.status not in (None, "idle"):
                return Presence(f"process {record.pid} of Claude Code is at work on it")
            beside = f"process {record.pid} of Claude Code has it in memory"
    except OSError as error:
        return Presence(f"live-process records cannot be read: {error.strerror}")
    return Presence(beside=beside)


def calling_session() -> str | None:
    """Return the path of the session whose process started this one, if Claude Code did.

    A tool or a server is a child of the process that keeps the record. The file of the session
    need not be there yet. A sub-agent's call counts as its main session's.
    """
    records = os.path.join(home(), RECORDS)
    for pid in processes.ancestors():
        record = read(records, pid)
        if record is not None and record.session and record.lives(time.time(), 0.0):
            return _path_of(record.session, record.directory)
    return None


def _path_of(session: str, directory: str) -> str:
    """Return where a session lies: in the project of a directory, unless in another only."""
    path = os.path.join(project_of(directory), f"{session}.jsonl")
    if not os.path.exists(path):
        elsewhere = glob(os.path.join(escape(home()), PROJECTS, "*", f"{escape(session)}.jsonl"))
        return elsewhere[0] if len(elsewhere) == 1 else path
    return path


def project_of(directory: str) -> str:
    """Return where this user's Claude Code keeps the sessions that work in a directory.

    A name that would be too long is cut, and followed by a digest of Claude Code's own.
    """
    projects = os.path.join(home(), PROJECTS)
    name = re.sub(r"[^a-zA-Z0-9]", "-", directory)
    if len(name) <= _LONGEST_NAME:
        return os.path.join(projects, name)
    cut = name[:_LONGEST_NAME] + "-"
    try:
        known = [one for one in os.listdir(projects) if one.startswith(cut)]
    except OSError:
        known = []
    return os.path.join(projects, known[0] if len(known) == 1 else name)


def young_subagent(where: Place, now: float, quiet: float) -> str | None:
    """Say that a sub-agent of this session wrote less than `quiet` seconds ago, or None."""
    if where.subagent:
        return None
    try:
        with os.scandir(os.path.join(where.directory, where.session, SUBAGENTS)) as listing:
            ages = [
                now - item.stat(follow_symlinks=False).st_mtime
                for item in listing
                if item.name.endswith(".jsonl")
            ]
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"its sub-agents cannot be looked at: {error.strerror}"
    age = min(ages, default=quiet)
    return None if age >= quiet else f"a sub-agent of it wrote {max(age, 0):.0f} s ago"
