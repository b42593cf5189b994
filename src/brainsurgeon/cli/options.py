"""Shared by all commands: options, settings, the store, the progress bar, standard streams."""

from __future__ import annotations

import io
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, TextIO, cast

from msgspec import Struct, field
from typer import Argument, Option
from typer.core import TyperCommand

from brainsurgeon.errors import BrainsurgeonError, UsageError
from brainsurgeon.model.text import readable, readable_lines

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.store import Store


class Command(TyperCommand):
    """A command whose help names arguments and values by their meaning: ENTRY, --since SINCE."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        for param in self.params:
            _name_plainly(param)


def _name_plainly(param: Any) -> None:
    if getattr(param, "is_flag", False):
        return
    name = param.metavar = param.metavar or param.name.rpartition("_")[2].upper()
    if param.param_type_name == "argument":  # typer would add braces and a type
        name = name if param.required else f"[{name}]"
        param.get_usage_pieces = lambda _: [name if param.nargs == 1 else f"{name}..."]
        param.display_type_rich = lambda **_: None


def session_titles(incomplete: str) -> list[str]:
    """Return the titles of recorded sessions with this beginning, for the shell's completion."""
    try:
        from brainsurgeon.config import load

        with store_to_read(load(given.config)[0]) as store:
            records = store.sessions.all() if store else ()
            return sorted(one.title for one in records if one.title.startswith(incomplete))
    except Exception:  # noqa: BLE001  a shell that completes shows no error
        return []


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
        "--key",
        help="Only this value: its path (message.details), or one part of the path (details). "
        "Repeatable.",
    ),
]
Entry = Annotated[
    str,
    Argument(help="Entry id, its beginning, or a whole placeholder [[extracted-…]]."),
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


Config = Annotated[
    str | None, Option("--config", metavar="FILE", help="Configuration file to use.")
]
Json = Annotated[bool, Option("--json", help="Print one JSON document.")]


def shared(function: Callable[..., None], *, in_json: bool = True) -> Callable[..., None]:
    """Return a command with the options --json and --config, which set `given`."""

    @wraps(function)
    def command(*, json: bool = False, config: str | None = None, **options: Any) -> None:
        given.json, given.config = json, config or given.config
        function(**options)

    own = signature(function, eval_str=True)  # typer reads the options from the signature
    keyword = Parameter.KEYWORD_ONLY
    added = [Parameter("json", keyword, default=False, annotation=Json)] if in_json else []
    added.append(Parameter("config", keyword, default=None, annotation=Config))
    parameters = [*own.parameters.values(), *added]
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def load_settings() -> Settings:
    """Load the settings for a command; print warnings to stderr."""
    from brainsurgeon.config import load

    settings, given.warnings = load(given.config)
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


def print_json(value: Any) -> None:
    from brainsurgeon.render import document

    print(document(value))


def print_answer(in_json: Any, as_text: Callable[..., str], *answer: Any) -> None:
    """Print the answer of a command, as JSON or as text."""
    if given.json:
        print_json(in_json)
    else:
        say(as_text(*answer))


# A number of sessions, and their size in bytes.
Ahead = tuple[int, int]


def is_watched() -> bool:
    """Check whether standard error is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def progress_bar(
    verb: str, totals: Callable[[], Ahead], *, quiet: bool
) -> Iterator[Callable[[SessionFile], None]]:
    """Show how many of all sessions and bytes are done, and how long the rest may take.

    `totals` returns both. It walks the roots, so it is only called if the bar is shown.
    """
    if quiet or not is_watched():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    number, size = totals()
    console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False,
                   table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=16), TextColumn("{task.fields[done]}", markup=False),
        DownloadColumn(), TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(verb, total=max(size, 1), done=f"0 of {number:,}")
        seen = 0

        def step(file: SessionFile) -> None:
            nonlocal seen
            seen += 1
            bar.update(
                task, description=f"{verb} {readable(file.title)}",
                advance=file.fingerprint.size, done=f"{min(seen, number):,} of {number:,}",
            )  # fmt: skip

        yield step


def _files_below(settings: Settings) -> Iterator[SessionFile]:
    from brainsurgeon.model.sessions import SessionFile
    from brainsurgeon.sessions.discovery import discover
    from brainsurgeon.sessions.row_listing import list_rows

    roots = settings.root_directories()
    return (file for file in (*discover(roots), *list_rows(roots)) if isinstance(file, SessionFile))


def ahead_of_scan(settings: Settings, store: Store | None, only: Collection[str] = ()) -> Ahead:
    """Count the sessions that a run will read, since they changed or are to be read again."""
    rules, sizes = settings.rules_fingerprint(), []
    known = store.files.all() if store else {}
    for file in _files_below(settings):
        if only and file.path not in only:
            continue
        state = known.get(file.path)
        rests = state and state.fingerprint == file.fingerprint and state.rules == rules
        if only or not rests or (state and state.outcome in ("again", "waits", "failed")):
            sizes.append(file.fingerprint.size)
    return len(sizes), sum(sizes)


def ahead_of_restore(settings: Settings, store: Store) -> Ahead:
    from brainsurgeon.lookup.sessions import all_sessions

    sessions = all_sessions(settings, store, beyond=True)
    sizes = [session.file.fingerprint.size for session in sessions if session.file]
    return len(sizes), sum(sizes)


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
        discard_output()
        raise


def discard_output() -> None:
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
