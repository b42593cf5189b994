"""Shared by all commands: options, loading the configuration, opening the store, printing."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import Struct, field

from brainsurgeon.errors import UsageError
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


Config = Annotated[str | None, typer.Option("--config", help="Configuration file to use.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
OneSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        help="Path, id, prefix of the id, agent/id, or session key.",
        autocompletion=session_titles,
    ),
]
Sessions = Annotated[
    list[str] | None,
    typer.Option("--session", help="Only this session. Repeatable.", autocompletion=session_titles),
]
Keys = Annotated[
    list[str] | None,
    typer.Option(
        "--key", help="Only this value: a whole path, or a name in it. Repeat it, or use commas."
    ),
]
Entry = Annotated[
    str, typer.Argument(help="Entry id, its beginning, or a whole placeholder [[extracted-…]].")
]
SessionName = Annotated[
    str,
    typer.Argument(
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
