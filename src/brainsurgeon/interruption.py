"""SIGTERM and SIGINT during a run: they end it where it checks for them, between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from brainsurgeon.errors import StoppedError

_noted: list[int] = []  # signals that arrived while they were deferred


@contextmanager
def deferred() -> Iterator[None]:
    """Call the signals' handlers at the end only. Their exceptions could leave files behind."""
    handlers = {}
    in_main = threading.current_thread() is threading.main_thread()  # only there do handlers run
    try:
        for number in (signal.SIGTERM, signal.SIGINT) if in_main else ():
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                handlers[number] = handler
                signal.signal(number, _note)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        while handlers and _noted:
            signal.raise_signal(_noted.pop())


def _note(number: int, _: object) -> None:
    _noted.append(number)


def check() -> None:
    """Raise StoppedError if a deferred signal arrived."""
    if _noted:
        raise StoppedError
