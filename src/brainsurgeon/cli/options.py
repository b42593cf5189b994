"""What every command is given: the configuration, the store, and how to say things."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainsurgeon.model.text import readable, readable_lines

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from brainsurgeon.config import Settings
    from brainsurgeon.store import Store


Config = Annotated[str | None, typer.Option("--config", help="Configuration file to use.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
OneSession = Annotated[
    str | None,
    typer.Option("--session", help="Path, id, prefix of the id, agent/id, or session key."),
]
Keys = Annotated[
    list[str] | None,
    typer.Option("--key", help="Only this value: a whole path, or a name in it. Repeatable."),
]
Entry = Annotated[str, typer.Argument(help="Entry id, or a whole pasted [[extracted-…]].")]
SessionName = Annotated[
    str, typer.Argument(help="Path, id, prefix of the id, agent/id, or session key.")
]


@dataclass(slots=True)
class Given:
    """What stood before the command's name, how the answer is wanted, and what was warned of."""

    config: str | None = None
    json: bool = False
    warnings: list[str] = field(default_factory=list)


given = Given()


def settings_of(config: str | None, *, json: bool = False) -> Settings:
    """Load the settings for a command, saying warnings on stderr."""
    given.json = json
    from brainsurgeon.config import load

    settings, given.warnings = load(config or given.config)
    for warning in given.warnings:
        print(f"brainsurgeon: {readable(warning)}", file=sys.stderr)
    return settings


def store_to_write(settings: Settings) -> Store:
    """Open the store for a command that may change it; create it where there is none."""
    from brainsurgeon.store import open_store

    return open_store(settings.state_dir)


def store_to_read(settings: Settings) -> AbstractContextManager[Store | None]:
    """Open the store for a command that only looks: it never creates or changes one."""
    from brainsurgeon.store import open_to_read

    return open_to_read(settings.state_dir) or nullcontext()


def say(text: str) -> None:
    """Print what was put into words; whatever names it quotes, a terminal only shows them."""
    print(readable_lines(text))


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON document."""
    from brainsurgeon.render import document

    print(document(value))
