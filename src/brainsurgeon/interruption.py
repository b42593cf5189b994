"""SIGTERM, SIGINT and SIGHUP end a run between two steps, where it calls `check`."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from brainsurgeon.errors import StoppedError

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_noted: list[int] = []  # signals that arrived


@contextmanager
def deferred() -> Iterator[None]:
    """Call the handlers of signals after the block: their exceptions could leave files behind."""
    handlers = {}
    in_main = threading.current_thread() is threading.main_thread()  # only there do handlers run
    try:
        for number in SIGNALS if in_main else ():
            if (handler := signal.getsignal(number)) not in (signal.SIG_IGN, None):
                handlers[number] = handler
                signal.signal(number, _note)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        arrived = [number for number in handlers if number in _noted]  # each once
        if arrived:
            _noted.clear()
        for number in arrived:
            signal.raise_signal(number)


def _note(number: int, _: object) -> None:
    _noted.append(number)


def end(number: int, _: object) -> NoReturn:
    """Handle a signal by an exception, so that `finally` blocks run."""
    _noted.append(number)
    raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)


def exit_code() -> int:
    """Return 0 if no signal arrived."""
    return 128 + _noted[0] if _noted else 0


def check() -> None:
    if _noted:
        raise StoppedError
