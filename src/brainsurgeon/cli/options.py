"""Options, settings, store, progress bar and output of all commands."""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from enum import StrEnum
from functools import partial, wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any, TextIO

from msgspec import Struct, field
from typer import Argument, Exit, Option
from typer.core import TyperCommand

from brainsurgeon import render
from brainsurgeon.errors import BrainsurgeonError, UsageError
from brainsurgeon.model.text import readable, readable_lines, short_titles

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import ShownValues
    from brainsurgeon.model.session_files import SessionFile
    from brainsurgeon.store import Store


class Command(TyperCommand):
    """A command whose help shows names, not types (ENTRY, not TEXT). Flags have no `--no-…`."""

    def __init__(self, *words: Any, **options: Any) -> None:
        super().__init__(*words, **options)
        for param in self.params:
            _simplify_help(param)


def _simplify_help(param: Any) -> None:
    if getattr(param, "is_flag", False):
        param.secondary_opts = []
        return
    name = param.metavar = param.metavar or param.name.rpartition("_")[2].upper()
    if param.param_type_name == "argument":  # typer would add braces and a type
        name = name if param.required else f"[{name}]"
        param.get_usage_pieces = lambda _: [name if param.nargs == 1 else f"{name}..."]
        param.display_type_rich = lambda **_: None


def _completion(names_in: Callable[[Store, str], Iterable[str]]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        try:
            from brainsurgeon.config import load

            with store_to_read(load(given.config)[0]) as store:
                return sorted(names_in(store, incomplete))[:_MOST_COMPLETIONS]
        except Exception:  # noqa: BLE001  a message would spoil the user's command line
            return []

    return complete


def _session_names(store: Store, begun: str) -> Iterable[str]:
    short = short_titles(record.title for record in store.sessions.all())
    names = {name for name in short.values() if name.startswith(begun)}
    return names or {title for title in short if title.startswith(begun)}


def _run_numbers(store: Store, begun: str) -> Iterable[str]:
    return [str(run.id) for run in store.runs.newest(None) if str(run.id).startswith(begun)]


_MOST_COMPLETIONS = 100
session_titles = _completion(_session_names)
entry_ids = _completion(lambda store, begun: store.extractions.ids_from(begun, _MOST_COMPLETIONS))
run_numbers = _completion(_run_numbers)


_NAMES = "Path, id, prefix of the id, agent/id, or session key."
SessionName = Annotated[str, Argument(help=_NAMES, autocompletion=session_titles)]
OptionalSession = Annotated[str | None, Argument(help=_NAMES, autocompletion=session_titles)]
OneSession = Annotated[str | None, Option(help=_NAMES, autocompletion=session_titles)]
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
_ENTRY = "Id of an entry, the beginning of an id, or a placeholder [[extracted-…]]."
Entry = Annotated[str, Argument(help=_ENTRY, autocompletion=entry_ids)]
OptionalEntry = Annotated[str | None, Argument(help=_ENTRY, autocompletion=entry_ids)]
NewStore = Annotated[
    bool,
    Option(
        help="If there is no store, begin one even if sessions have placeholders of another store."
    ),
]
Config = Annotated[str | None, Option(metavar="FILE", help="Configuration file to use.")]
Json = Annotated[bool, Option("--json", help="Print one JSON document.")]


DECLINED = "nothing was done: the answer was no; --yes does it without asking"


Color = StrEnum("Color", ["auto", "always", "never"])


class Given(Struct):
    """The values of --color, --config and --json, and the warnings of the configuration."""

    color: Color = Color.auto

    config: str | None = None
    json: bool = False
    warnings: list[str] = field(default_factory=list)


given = Given()


def shared(function: Callable[..., None], *, in_json: bool = True) -> Callable[..., None]:
    """Add the options --config and, if `in_json`, --json to a command. They set `given`."""

    @wraps(function)
    def command(*, json: bool = False, config: str | None = None, **options: Any) -> None:
        given.json, given.config = json, given.config if config is None else config
        for name, value in {"config": given.config, **options}.items():
            if value == "" or (isinstance(value, list) and "" in value):
                raise UsageError(
                    f"an empty text is given for {name.replace('_', '-')}: name a value"
                )
        function(**options)

    own = signature(function, eval_str=True)  # typer reads the options from the signature
    keyword = Parameter.KEYWORD_ONLY
    added = [Parameter("json", keyword, default=False, annotation=Json)] if in_json else []
    added.append(Parameter("config", keyword, default=None, annotation=Config))
    parameters = [*own.parameters.values(), *added]
    command.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def load_settings() -> Settings:
    from brainsurgeon.config import load

    settings, given.warnings = load(given.config)
    for warning in given.warnings:
        print(f"brainsurgeon: {readable(warning)}", file=sys.stderr)
    return settings


def parse_seconds(option: str, text: str) -> float:
    from brainsurgeon.config.values import InvalidValueError, seconds_of

    try:
        seconds = seconds_of(f"{text}s" if text.isdecimal() else text)
    except InvalidValueError as error:
        raise UsageError(f"{option} {text}: {error}") from error
    return math.inf if seconds is None else seconds


def refuse(*combinations: tuple[str, object]) -> None:
    """Raise UsageError with the message of the first combination that was given."""
    for message, is_given in combinations:
        if is_given:
            raise UsageError(message)


def is_duration(text: str | None) -> bool:
    try:
        parse_seconds("", text or "")
    except UsageError:
        return False
    return True


def parse_moment(option: str, text: str, now: float) -> float:
    """Return the Unix time that a duration from now or a time in ISO 8601 names."""
    from brainsurgeon.model.text import parse_time

    moment = parse_time(text, zone=None)
    if moment is None and not is_duration(text):
        raise UsageError(f"{option} {text}: wants a duration (2h, 3d) or a time in ISO 8601")
    return now + parse_seconds(option, text) if moment is None else moment


def store_to_write(settings: Settings, *, new_store: bool = False) -> Store:
    from brainsurgeon.lookup.opening import open_to_write

    return open_to_write(settings, new_store=new_store)


def check_store(settings: Settings, *, new_store: bool = False) -> None:
    from brainsurgeon.lookup.opening import check_store

    check_store(settings, new_store=new_store)


@contextmanager
def recovered_store(settings: Settings) -> Iterator[Store]:
    from brainsurgeon.rewrite.recover import recover

    with store_to_write(settings) as store:
        recover(store)
        yield store


def store_to_read(settings: Settings) -> Store:
    from brainsurgeon.store import open_to_read

    return open_to_read(settings.state_dir)


@contextmanager
def reading(*, only_store: bool = False) -> Iterator[tuple[Settings, Store]]:
    """Yield the settings and the store. If `only_store` is read, a missing one is an error."""
    settings = load_settings()
    if only_store:
        check_store(settings)
    with store_to_read(settings) as store:
        yield settings, store


def config_file() -> str:
    """Return the path of the configuration, also if there is none yet."""
    from brainsurgeon.config import config_path, user_config

    return os.path.abspath(config_path(given.config) or user_config())


def in_colour(text: str, stream: TextIO) -> str:
    """Colour a text for a terminal, or if --color requests it; NO_COLOR forbids it."""
    wanted = stream.isatty() and os.environ.get("TERM", "dumb") != "dumb"
    if given.color is Color.always or (wanted and not os.environ.get("NO_COLOR")):
        return render.formatting.coloured(text)
    return text


def print_text(text: str) -> None:
    print(in_colour(readable_lines(text), sys.stdout))


def print_json(value: Any) -> None:
    print(render.formatting.document(value))


def print_answer(in_json: Any, as_text: Callable[..., str], *answer: Any) -> None:
    if given.json:
        print_json(in_json)
    else:
        print_text(as_text(*answer))


def shows_progress() -> bool:
    return sys.stderr.isatty() and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def progress_bar(
    verb: str, list_sizes: Callable[[], list[int]], *, quiet: bool
) -> Iterator[Callable[[SessionFile], None]]:
    """Yield a function that shows progress. It does nothing if `quiet` or without a terminal."""
    if quiet or not shows_progress():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Column

    sizes = list_sizes()
    console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False,
                   table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=16), TextColumn("{task.fields[done]}", markup=False),
        DownloadColumn(), TimeRemainingColumn(compact=True, elapsed_when_finished=True),
    )  # fmt: skip
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task(verb, total=max(sum(sizes), 1), done=f"0 of {len(sizes):,}")
        seen = 0

        def step(file: SessionFile) -> None:
            nonlocal seen
            seen += 1
            bar.update(
                task, description=f"{verb} {readable(render.formatting.title(file.title))}",
                advance=file.fingerprint.size, done=f"{min(seen, len(sizes)):,} of {len(sizes):,}",
            )  # fmt: skip

        yield step


def show_life(looked_at: int, sessions: int) -> None:
    """Print how far a long scan is, where no progress bar does."""
    if given.json or not shows_progress():
        text = f"brainsurgeon: looked at {looked_at:,} of {sessions:,} sessions"
        print(text, file=sys.stderr, flush=True)


class OutputError(BrainsurgeonError):
    """Standard output cannot be written."""


@contextmanager
def _output_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError as error:  # without its errno, with which typer would exit with 1
        raise BrokenPipeError from error
    except OSError as error:
        raise OutputError(f"standard output cannot be written: {error.strerror}") from error


class _Stream(io.TextIOWrapper):
    """Standard output or error. Failed writes raise an error on standard output only."""

    guard: Callable[[], AbstractContextManager[Any]]

    def write(self, text: str) -> int:
        with self.guard():
            super().write(text)
        return len(text)

    def flush(self) -> None:
        with self.guard():
            super().flush()


def replace_streams() -> None:
    """Replace standard output and error by `_Stream`. Open a closed stream on /dev/null."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # else the store could get this descriptor, and receive our output
            os.open(os.devnull, os.O_RDWR)  # opens the lowest free descriptor: this one
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115
    ignoring = partial(suppress, OSError, ValueError)
    for name, descriptor, guard in (("stdout", 1, _output_errors), ("stderr", 2, ignoring)):
        stream = getattr(sys, name) or open(descriptor, "w", closefd=False)  # noqa: SIM115
        taken = _Stream(
            encoding=stream.encoding, errors="backslashreplace",  # for unencodable text
            line_buffering=stream.line_buffering, write_through=stream.write_through,
            buffer=stream.detach(),
        )  # fmt: skip
        taken.guard = guard
        setattr(sys, name, taken)
        setattr(sys, f"__{name}__", taken)  # shutil.get_terminal_size reads sys.__stdout__


def discard_output() -> None:
    """Discard all further output, so that the interpreter reports no error when it exits."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout.flush()


def values_text(values: dict[str, Any], same_as: dict[str, str]) -> str:
    texts = []
    for path, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        paths = ", ".join([path, *(copy for copy, value in same_as.items() if value == path)])
        texts.append(f"==> {readable(paths)} <==\n{text}\n" if len(values) > 1 else text)
    if len(values) == 1 and sys.stdout.isatty():
        texts.append("\n")
    return "".join(texts)


def exit_if_keys_are_unknown(shown: ShownValues) -> None:
    """Exit with 1 if there is no value for a --key. The values of the others were returned."""
    from brainsurgeon.lookup.entries import UNKNOWN_KEY

    if any(missed.endswith(f": {UNKNOWN_KEY}") for missed in shown.missed):
        raise Exit(1)


def print_bytes(chunks: Iterable[bytes]) -> None:
    for chunk in chunks:
        with _output_errors():
            sys.stdout.buffer.write(chunk)
    sys.stdout.flush()
