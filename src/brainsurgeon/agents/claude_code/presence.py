"""The records of the processes of Claude Code that work on sessions.

A process reads a session file once and keeps it in memory. So a rewrite while the process is idle
does no harm, but does not make its next request smaller.
"""

import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from glob import escape, glob

from msgspec import Struct

from brainsurgeon.agents.agent import KNOWN_OPEN, Presence
from brainsurgeon.agents.claude_code.home import (
    PROJECTS,
    SUBAGENTS,
    Location,
    home_directory,
    location,
    project_of,
)
from brainsurgeon.files.cached import Readings
from brainsurgeon.files.processes import ancestors, lives
from brainsurgeon.model.entries import parse
from brainsurgeon.model.session_files import BusyCheck, Fingerprint

# Since 2.1.112, each process keeps a record of itself, `sessions/<pid>.json`, with the id of its
# session. Since 2.1.220, it has the start time of the process, too. Since 2.1.300, it has a status:
# `busy` from a prompt to its answer, and while sub-agents work in the background. A reader may find
# half a record. A killed process leaves its record behind.
RECORDS = "sessions"
_RECORD = re.compile(r"([1-9][0-9]{0,9})\.json")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LARGEST_RECORD = 1 << 20
_PAUSES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)  # seconds before each attempt to read a record


class ProcessRecord(Struct, frozen=True):
    pid: int
    written: float  # mtime of the record, or the time now if it cannot be opened
    session: str | None = None  # None if the record could not be read
    directory: str = ""  # the working directory
    status: object = None
    started: int | None = None  # the kernel's start time of the process, in ticks since boot
    since: float | None = None  # the start by the process's own clock, in seconds since 1970
    namespace: str | None = None  # the PID namespace of the process

    def lives(self, now: float, abandoned_after: float) -> bool:
        own = os.path.basename(os.path.realpath("/proc/self/ns/pid"))
        if self.namespace not in (None, own):  # its pid has no meaning here
            return now - self.written < abandoned_after
        return lives(self.pid, self.started, self.since)


_records = Readings[ProcessRecord | None](most=1024)


def read(directory: str, pid: int) -> ProcessRecord | None:
    path = os.path.join(directory, f"{pid}.json")
    try:
        seen = Fingerprint.of(os.lstat(path))
    except FileNotFoundError:
        return None
    except OSError:
        return ProcessRecord(pid, time.time())
    return _records.of(path, seen, lambda: _read(path, pid))


def _read(path: str, pid: int) -> ProcessRecord | None:
    written = time.time()
    for pause in _PAUSES:
        if pause and not lives(pid):
            return None
        time.sleep(pause)
        try:
            with open(path, "rb", opener=lambda name, _: os.open(name, _READ)) as handle:
                written = os.fstat(handle.fileno()).st_mtime
                record = parse(os.read(handle.fileno(), _LARGEST_RECORD)) or {}
        except FileNotFoundError:
            return None
        except OSError:
            break
        if isinstance(session := record.get("sessionId"), str):
            working, since = map(record.get, ("cwd", "startedAt"))
            started = str(record.get("procStart"))
            namespace = re.search(r"pid:\[[0-9]+\]$", str(record.get("pidDomain")))
            return ProcessRecord(
                pid, written, session, working if isinstance(working, str) else "",
                record.get("status"),
                int(started) if re.fullmatch("[0-9]{1,19}", started) else None,
                since / 1000 if isinstance(since, int | float) else None,
                namespace[0] if namespace else None,
            )  # fmt: skip
    return ProcessRecord(pid, written)


class ProcessRecords(Presence):
    remembers = True

    def busy_check(
        self, directory: int, path: str, clock: Callable[[], float], quiet: float,
        abandoned_after: float,
    ) -> BusyCheck:  # fmt: skip
        if (at := location(path)) is None:
            return super().busy_check(directory, path, clock, quiet, abandoned_after)

        def busy() -> str | None:
            now = clock()
            return presence(at, now, abandoned_after).busy or young_subagent(at, now, quiet)

        subagents = os.path.join(at.directory, at.session, SUBAGENTS)
        directories = os.path.join(at.home, RECORDS), subagents
        return BusyCheck(
            "Claude Code's records", busy, lambda: [*map(_state_of, directories)],
            alone=at.subagent is not None,
        )  # fmt: skip

    def in_memory(self, path: str, now: float, abandoned_after: float) -> str | None:
        if (at := location(path)) is None or presence(at, now, abandoned_after).in_memory is None:
            return None
        return KNOWN_OPEN.format("Claude Code")

    def calling_session(self) -> str | None:
        # For a sub-agent, this is the main session.
        home = home_directory()
        for pid in ancestors():
            record = read(os.path.join(home, RECORDS), pid)
            if record is not None and record.session and record.lives(time.time(), 0.0):
                path = os.path.join(project_of(record.directory), f"{record.session}.jsonl")
                if os.path.exists(path):
                    return path
                # The session file may be in another project, or not exist yet.
                name = f"{escape(record.session)}.jsonl"
                elsewhere = glob(os.path.join(escape(home), PROJECTS, "*", name))
                return elsewhere[0] if len(elsewhere) == 1 else path
        return None


class ProcessUse(Struct, frozen=True):
    """What processes of Claude Code do with a session: None, or a reason."""

    busy: str | None = None
    in_memory: str | None = None


def _state_of(directory: str) -> object:
    try:
        return sorted(_files_below(directory))
    except OSError as error:
        return error.errno


def _files_below(directory: str) -> Iterator[tuple[str, Fingerprint]]:
    with os.scandir(directory) as listing:
        for item in listing:
            if item.is_dir(follow_symlinks=False):
                yield from _files_below(item.path)
            else:
                with suppress(FileNotFoundError):  # it was removed since the listing
                    yield item.path, Fingerprint.of(item.stat(follow_symlinks=False))


def presence(where: Location, now: float, abandoned_after: float) -> ProcessUse:
    """Read the records of living processes. A record that cannot be read counts as busy."""
    directory = os.path.join(where.home, RECORDS)
    in_memory = None
    try:
        for name in sorted(os.listdir(directory)):
            match = _RECORD.fullmatch(name)
            record = read(directory, int(match[1])) if match else None
            if not (record and record.session in (None, where.session)):
                continue
            if not record.lives(now, abandoned_after):
                continue
            if record.session is None:
                return ProcessUse(f"the record of process {record.pid} cannot be read")
            if record.status not in (None, "idle"):  # without a status, it counts as idle
                return ProcessUse(f"process {record.pid} of Claude Code is at work on it")
            in_memory = f"process {record.pid} of Claude Code has it in memory"
    except FileNotFoundError:
        pass  # this version keeps no records
    except OSError as error:
        return ProcessUse(f"Claude Code's process records cannot be read: {error.strerror}")
    return ProcessUse(in_memory=in_memory)


def young_subagent(where: Location, now: float, quiet: float) -> str | None:
    if where.subagent:
        return None
    try:
        files = _files_below(os.path.join(where.directory, where.session, SUBAGENTS))
        ages = [now - seen.mtime_ns / 1e9 for name, seen in files if name.endswith(".jsonl")]
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"its sub-agents cannot be listed: {error.strerror}"
    age = min(ages, default=quiet)
    return None if age >= quiet else f"one of its sub-agents wrote {max(age, 0):.0f} s ago"
