"""The streams that people read: closed, full or gone, they end a command in one line at most.

What is said on standard error never stops what is being done. What cannot be written to standard
output ends the command: quietly where the reader went away, as `head` does, else with one line.
"""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from brainsurgeon.errors import BrainsurgeonError

if TYPE_CHECKING:
    from collections.abc import Callable


class OutputError(BrainsurgeonError):
    """Standard output cannot be written."""


class ReaderGoneError(Exception):
    """Whoever read standard output has seen enough: no error (typer would make one of EPIPE)."""


class _Stream:
    """A stream whose writing goes through `attempt`; everything else is its own."""

    def __init__(self, stream: Any, attempt: Callable[[Callable[[], Any]], Any]) -> None:
        self._stream, self._attempt = stream, attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> _Stream:
        """The bytes below, written in the same way."""
        return _Stream(self._stream.buffer, self._attempt)

    def write(self, data: Any) -> Any:
        """Write, as the stream does."""
        return self._attempt(lambda: self._stream.write(data))

    def flush(self) -> None:
        """Flush, as the stream does."""
        self._attempt(self._stream.flush)


def take_over() -> None:
    """Make the streams of this process such; descriptors that are closed lead nowhere from now on.

    A database that got the number of a closed standard stream would be written to by whoever
    prints.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
    for name, descriptor, attempt in (("stdout", 1, _said), ("stderr", 2, _hinted)):
        stream = getattr(sys, name) or open(descriptor, "w", closefd=False)  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):  # a locale may know no ellipsis
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, cast("TextIO", _Stream(stream, attempt)))


def plain() -> None:
    """Give standard output back as it was, to a server that speaks a protocol on it."""
    sys.stdout = getattr(sys.stdout, "_stream", sys.stdout)


def let_go() -> None:
    """Write out what waits, or raise OutputError; what is written afterwards leads nowhere."""
    try:
        sys.stdout.flush()
    except BaseException:
        lead_nowhere()
        raise


def lead_nowhere() -> None:
    """Let standard output lead nowhere, so that nothing more is said of it at the end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout.flush()


def _said(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror}") from error


def _hinted(act: Callable[[], Any]) -> Any:
    with suppress(OSError, ValueError):
        return act()
    return 0
