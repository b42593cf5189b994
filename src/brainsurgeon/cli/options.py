"""Shared by all commands: options, configuration, opening the store, standard streams."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

from msgspec import Struct, field
from typer import Argument, Option

from brainsurgeon.errors import BrainsurgeonError, UsageError
from brainsurgeon.model.text import readable, readable_lines

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store


def session_titles(incomplete: str) -> list[str]:
    """Return the titles of recorded sessions with this beginning, for the shell's completion."""
    try:
        from brainsurgeon.config import load

        with store_to_read(load(given.config)[0]) as store:
            records = store.sessions.all() if store else ()
            return sorted(one.title for one in records if one.title.startswith(incomplete))
    except Exception:  # noqa: BLE001  a shell that completes shows no error
        return []


Config = Annotated[str | None, Option("--config", help="Configuration file to use.")]
Json = Annotated[bool, Option("--json", help="Print one JSON document.")]
OneSession = Annotated[
    str | None,
    Option(
        "--session",
        help="Path, id, prefix of the id, agent/id, or session key.",
        autocompletion=session_titles,
    ),
]
Sessions = Annotated[
    list[str] | None,
    Option("--session", help="Only this session. Repeatable.", autocompletion=session_titles),
]
Keys = Annotated[
    list[str] | None,
    Option(
        "--key", help="Only this value: a whole path, or a name in it. Repeat it, or use commas."
    ),
]
Entry = Annotated[
    str, Argument(help="Entry id, its beginning, or a whole placeholder [[extracted-…]].")
]
SessionName = Annotated[
    str,
    Argument(
        help="Path, id, prefix of the id, agent/id, or session key.", autocompletion=session_titles
    ),
]


class Given(Struct):
    """The options of this call that all commands share, and the warnings about its settings."""

    config: str | None = None
    json: bool = False
    warnings: list[str] = field(default_factory=list)


given = Given()


def settings_of(config: str | None, *, json: bool = False) -> Settings:
    """Load the settings for a command; print warnings to stderr."""
    given.json = json
    from brainsurgeon.config import load

    settings, given.warnings = load(config or given.config)
    for warning in given.warnings:
        print(f"brainsurgeon: {readable(warning)}", file=sys.stderr)
    return settings


def seconds_given(option: str, text: str) -> float:
    """Return the seconds of a duration that an option has; infinity for `never`."""
    from brainsurgeon.config.values import InvalidValueError, seconds_of

    try:
        seconds = seconds_of(f"{text}s" if text.isdecimal() else text)
    except InvalidValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
    return math.inf if seconds is None else seconds


def store_to_write(settings: Settings) -> Store:
    """Open the store for a command that may change it; create it if there is none."""
    from brainsurgeon.store import open_store

    return open_store(settings.state_dir)


@contextmanager
def recovered_store(settings: Settings) -> Iterator[Store]:
    """Open the store for a command that changes sessions, and recover from a crash first."""
    from brainsurgeon.rewrite.recover import recover

    with store_to_write(settings) as store:
        recover(store)
        yield store


def store_to_read(settings: Settings) -> AbstractContextManager[Store | None]:
    """Open the store for a command that neither creates nor changes it; None if there is none."""
    from brainsurgeon.store import open_to_read

    return open_to_read(settings.state_dir) or nullcontext()


def say(text: str) -> None:
    """Print a text with the control characters of names in it escaped."""
    print(readable_lines(text))


def print_json(value: dict[str, Any]) -> None:
    from brainsurgeon.render import document

    print(document(value))


def print_answer(
    as_json: Callable[..., dict[str, Any]], as_text: Callable[..., str], *answer: Any
) -> None:
    """Print the answer of a command, as JSON or as text."""
    if given.json:
        print_json(as_json(*answer))
    else:
        say(as_text(*answer))


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
