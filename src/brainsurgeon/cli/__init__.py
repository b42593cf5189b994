"""The command line: parse, call, render, exit. Every error becomes one line and an exit code."""

from __future__ import annotations

import gc
import io
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

from brainsurgeon.errors import BrainsurgeonError

if TYPE_CHECKING:
    from collections.abc import Callable


# What is said on standard error never stops what is being done. What cannot be written to standard
# output ends the command: quietly where the reader went away, as `head` does, else with one line.


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


def __getattr__(name: str) -> Any:
    """Return the typer application, which is built when it is first used."""
    if name != "app":
        raise AttributeError(name)
    from brainsurgeon.cli.commands import app

    return app


def main() -> None:
    """Run the command line and exit with its code."""
    os.umask(0o077)
    take_over()
    signal.signal(signal.SIGTERM, _terminated)
    gc.disable()  # until the command begins: nothing that is imported is garbage
    code = _run()
    try:
        let_go()
    except ReaderGoneError:
        pass
    except BrainsurgeonError as error:
        code = _output_lost(error)
    gc.freeze()  # the interpreter need not search everything once more as it ends
    raise SystemExit(code)


def _terminated(*_: object) -> None:
    """Exit as after Ctrl-C, so that clean-up code runs."""
    raise SystemExit(128 + signal.SIGTERM)


def _run() -> int:
    """Run the command and return its exit code, also where its output cannot be written."""
    try:
        from brainsurgeon.cli.commands import run

        return run()
    except OutputError as error:
        return _output_lost(error)
    except (ReaderGoneError, BrokenPipeError):
        lead_nowhere()
        return 0
    except KeyboardInterrupt:
        return 130


def _output_lost(error: BrainsurgeonError) -> int:
    lead_nowhere()
    print(f"brainsurgeon: {error}", file=sys.stderr)
    return error.exit_code


def print_values(values: dict[str, Any], same_as: dict[str, str]) -> None:
    """Print one value raw, several under their paths and those of their copies."""
    from json import dumps

    from brainsurgeon.model.text import readable

    texts = []
    for path, value in values.items():
        text = value if isinstance(value, str) else dumps(value, ensure_ascii=False)
        places = ", ".join([path, *(copy for copy, of in same_as.items() if of == path)])
        texts.append(f"==> {readable(places)} <==\n{text}\n" if len(values) > 1 else text)
    if len(values) == 1 and sys.stdout.isatty():
        texts.append("\n")
    out = sys.stdout.buffer
    out.write("".join(texts).encode("utf-8", "surrogatepass"))
    out.flush()
