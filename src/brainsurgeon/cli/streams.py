"""Standard output and error: broken pipes, full disks, closed descriptors."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO, cast

from brainsurgeon.errors import BrainsurgeonError

# A failure to write to standard error never stops a command. A failure to write to standard output
# ends it: silently if the reader went away, as `head` does, else with one line.


class OutputError(BrainsurgeonError):
    """Standard output cannot be written."""


class ReaderGoneError(Exception):
    """The reader of standard output went away: no error (typer would make one of EPIPE)."""


class _Stream:
    """A stream that is written through `attempt`; everything else is unchanged."""

    def __init__(self, stream: Any, attempt: Callable[[Callable[[], Any]], Any]) -> None:
        self._stream, self._attempt = stream, attempt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    @property
    def buffer(self) -> _Stream:
        return _Stream(self._stream.buffer, self._attempt)

    def write(self, data: Any) -> Any:
        return self._attempt(lambda: self._stream.write(data))

    def flush(self) -> None:
        self._attempt(self._stream.flush)


def take_over() -> None:
    """Replace the standard streams; closed descriptors lead to /dev/null from now on.

    Otherwise a database could get the number of a closed standard stream, and prints would be
    written to it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number
    for name, descriptor, attempt in (("stdout", 1, _output), ("stderr", 2, _message)):
        stream = getattr(sys, name) or open(descriptor, "w", closefd=False)  # noqa: SIM115
        if isinstance(stream, io.TextIOWrapper):  # the locale may lack some characters
            stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, cast("TextIO", _Stream(stream, attempt)))


def plain() -> None:
    """Restore standard output, for a server that uses a protocol on it."""
    sys.stdout = getattr(sys.stdout, "_stream", sys.stdout)


def release_output() -> None:
    """Flush standard output; if that fails, raise OutputError and discard later output."""
    try:
        sys.stdout.flush()
    except BaseException:
        lead_nowhere()
        raise


def lead_nowhere() -> None:
    """Discard all further output, so that the interpreter reports no error at its end."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout.flush()


def _output(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except BrokenPipeError as error:
        raise ReaderGoneError from error
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror}") from error


def _message(act: Callable[[], Any]) -> Any:
    with suppress(OSError, ValueError):
        return act()
    return 0


def values_text(values: dict[str, Any], same_as: dict[str, str]) -> str:
    """Return one value as it is, several under their paths and those of their copies."""
    from json import dumps

    from brainsurgeon.model.text import readable

    texts = []
    for path, value in values.items():
        text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
        places = ", ".join([path, *(copy for copy, of in same_as.items() if of == path)])
        texts.append(f"==> {readable(places)} <==\n{text}\n" if len(values) > 1 else text)
    if len(values) == 1 and sys.stdout.isatty():
        texts.append("\n")
    return "".join(texts)


def print_raw(text: str) -> None:
    out = sys.stdout.buffer
    out.write(text.encode("utf-8", "surrogatepass"))
    out.flush()
