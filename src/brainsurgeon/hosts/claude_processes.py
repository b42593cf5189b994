"""The processes of Claude Code that live: each keeps a record of itself while it does.

Versions 2.1.112 and later write `sessions/<pid>.json` into their home, with the session that they
are on; from 2.1.300 on with a status, and with the kernel's start time of the process. A record
is rewritten in place, so that a reader may meet half of it, and stays behind when its process is
killed: it holds only while the process lives that wrote it.
"""

from __future__ import annotations

import os
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from brainsurgeon.formats.base import parse
from brainsurgeon.hosts.processes import exists, start_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORD = re.compile(r"([1-9][0-9]{0,9})\.json")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_LARGEST_RECORD = 1 << 20
_PAUSES = (0.0, 0.01, 0.02, 0.04, 0.08, 0.16)
"""How long (seconds) to wait before each look at a record that seems to be half written."""
_START_SLACK = 5.0
"""Seconds by which a process may seem to have begun after it wrote when it did."""


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
        """Tell whether the process that wrote the record lives."""
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
    """Give when (seconds since 1970) the machine was started."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
