"""The lock that Codex holds while a thread is loaded, even if it is idle (since 0.148).

It is an flock on `thread-writer-locks/<thread>.lock`, which Codex takes while it holds another on
`.coordination.lock`. For that one it waits, but it refuses a thread whose own lock is held. So we
hold both during an exchange: a Codex that starts meanwhile waits for milliseconds.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

LOCKS = "thread-writer-locks"
COORDINATION = ".coordination.lock"
BUSY = "Codex has the thread open"
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_LOCK_SECONDS = 1.0


@contextmanager
def writer_locks(directory: str, threads: Callable[[], Iterable[str]]) -> Iterator[str | None]:
    """Hold the writer locks of threads. Yield why they cannot be held, or None.

    `threads` is called when no other process can begin a thread any more.
    """
    with ExitStack() as held:
        try:
            above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:  # before 0.148
            yield None
            return
        held.callback(os.close, above)
        deadline = time.monotonic() + _LOCK_SECONDS
        while not (is_free := _locked(held, COORDINATION, above)) and time.monotonic() < deadline:
            time.sleep(0.001)
        for name in sorted(f"{thread}.lock" for thread in threads()) if is_free else ():
            is_free = is_free and _locked(held, name, above)
            if is_free:
                held.callback(_remove, name, above)  # as Codex does
        yield None if is_free else BUSY


def _locked(held: ExitStack, name: str, above: int) -> bool:
    descriptor = os.open(name, _OPEN, 0o600, dir_fd=above)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return False
    held.callback(os.close, descriptor)
    return True


def _remove(name: str, above: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=above)
