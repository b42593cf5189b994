"""Processes of this machine, commands, and the boot clock."""

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

_MOST_ANCESTORS = 64
_POLL = 0.02  # seconds between checks of a command's output, which may grow by 2 MB in this time
_MOST_ROUNDS = 10  # of killing: processes may start others in the meantime
# Indexes into the result of `_status_of`: fields 3, 4, 6 and 22 in proc_pid_stat(5).
_STATE_FIELD, _PARENT_FIELD, _SESSION_FIELD, _START_FIELD = 0, 1, 3, 19
# Seconds by which the kernel's start time may be later than a time that the process recorded.
_START_SLACK = 5.0


def lives(pid: int, started: object = None, since: float | None = None) -> bool:
    """Check whether a process lives (a zombie does not).

    `started` is in ticks since boot. Without it, the process must have been there at `since`
    (seconds since 1970): a younger process has the pid of another that ended.
    """
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass  # it exists, but belongs to another user
    fields = _status_of(pid)
    if fields and fields[_STATE_FIELD] in (b"Z", b"X"):
        return False
    if not fields:
        return True
    ticks = int(fields[_START_FIELD])
    if isinstance(started, int):
        return ticks == started
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    began = booted + ticks / os.sysconf("SC_CLK_TCK")
    return since is None or began <= since + _START_SLACK


def ancestors() -> Iterator[int]:
    pid = os.getpid()
    for _ in range(_MOST_ANCESTORS):
        yield pid
        fields = _status_of(pid)
        pid = int(fields[_PARENT_FIELD]) if fields else 0
        if pid <= 1:
            return


def kill_with_descendants(leader: int) -> None:
    """Kill all processes in the process session of `leader`, and their descendants."""
    for _ in range(_MOST_ROUNDS):
        children, members = defaultdict[int, list[int]](list), [leader]
        for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
            fields = _status_of(int(name)) if name.isascii() and name.isdigit() else []
            if fields and fields[_STATE_FIELD] not in (b"Z", b"X"):
                children[int(fields[_PARENT_FIELD])].append(int(name))
                if int(fields[_SESSION_FIELD]) == leader:
                    members.append(int(name))
        doomed: set[int] = set()  # an orphan that left the process session cannot be found
        while members:
            doomed.add(pid := members.pop())
            members += [child for child in children[pid] if child not in doomed]
        with suppress(OSError):
            os.killpg(leader, signal.SIGKILL)
        for pid in doomed - {leader}:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if doomed == {leader}:
            return


class CommandFailedError(Exception):
    """A command of the user failed. The message quotes no output."""


class CommandHungError(CommandFailedError):
    pass


def output_of(
    command: Sequence[str], data: bytes, check_stop: Callable[[], None], *,
    timeout: float, limit: int,
) -> bytes:  # fmt: skip
    """Run a command. Raises CommandFailedError, also if the output exceeds `limit` bytes."""
    begun, output, rest = time.monotonic(), None, data or None
    try:
        process = subprocess.Popen(  # noqa: S603  the command is configured by the user
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_unblock_signals,  # noqa: PLW1509  safe: it takes no lock and imports nothing
        )  # fmt: skip
    except OSError as error:
        raise CommandFailedError(f"the command cannot be run: {error.strerror}") from None
    with process:
        try:
            while output is None:
                check_stop()
                if time.monotonic() > begun + timeout:
                    raise CommandHungError("the command took too long")
                try:
                    output, _ = process.communicate(rest, timeout=_POLL)
                    size = len(output)
                except subprocess.TimeoutExpired as still_running:
                    rest, size = None, len(still_running.output or b"")
                if size > limit:
                    raise CommandFailedError("the command printed too much")
        finally:
            kill_with_descendants(process.pid)
    if process.returncode != 0:
        raise CommandFailedError(f"the command exited with {process.returncode}")
    return output


def _unblock_signals() -> None:  # the daemon blocks some, and children would inherit this
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _status_of(pid: int) -> list[bytes]:
    """Return the fields of /proc/<pid>/stat after the command's name, [] if it cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as handle:
            fields = handle.read().rsplit(b")", 1)[-1].split()
    except OSError:
        return []
    return fields if len(fields) > _START_FIELD else []


def boot_clock() -> float:
    """Seconds since boot, sleep included."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as handle:
            return handle.read().strip()
    except OSError:
        return ""
