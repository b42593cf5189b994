"""The commands store backup, store restore and store purge."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from brainsurgeon import operations, render
from brainsurgeon.cli import options
from brainsurgeon.errors import UsageError
from brainsurgeon.model.text import readable_lines

if TYPE_CHECKING:
    from brainsurgeon.model.reports import Replacement

store = typer.Typer(
    name="store", no_args_is_help=True, add_completion=False, rich_markup_mode=None,
    pretty_exceptions_enable=False,
)  # fmt: skip

Yes = Annotated[bool, Option("--yes", help="Do not ask for confirmation.")]


@store.callback()
def _store() -> None:
    """Back up the store, replace it with a backup, or remove it.

    \b
    Example:
      brainsurgeon store backup /media/backup/brainsurgeon.db
    """  # noqa: D301


@store.command(cls=options.Command)
@options.shared
def backup(
    file: str = Argument(..., help="File for the copy."),
    force: bool = Option(False, help="Replace an existing file."),
) -> None:
    """Copy the store to a file and check the copy, even while the daemon runs.

    \b
    Example:
      brainsurgeon store backup /media/backup/brainsurgeon.db
    """  # noqa: D301
    done = operations.store.back_up(options.load_settings(), file, force=force)
    options.print_answer(done, render.sessions.backup, done)


@store.command(cls=options.Command)
@options.shared
def restore(
    file: str = Argument(..., help="File that `store backup` wrote."), yes: Yes = False
) -> None:
    """Replace the store with a backup. The old store is kept in another file.

    Stop the daemon first. The backup is checked before anything is changed. Sessions with
    extracted values newer than the backup are listed: the backup does not contain these.

    \b
    Example:
      brainsurgeon store restore /media/backup/brainsurgeon.db
    """  # noqa: D301
    settings = options.load_settings()

    def confirm(replacement: Replacement) -> None:
        if not yes:
            text = readable_lines(render.sessions.before_replacing(replacement))
            typer.echo(text, err=True)
            _ask("Replace the store with this backup?")

    done = operations.store.replace_store(settings, file, time.time, confirm)
    options.print_answer(done, render.sessions.replacement, done)


@store.command(cls=options.Command)
@options.shared
def purge(
    even_so: bool = Option(
        False, help="Remove the store even if extracted values are left. They are lost."
    ),
    yes: Yes = False,
) -> None:
    """Remove the store if every extracted value is restored.

    Stop the daemon and run brainsurgeon restore --all --pristine first.

    \b
    Example:
      brainsurgeon store purge
    """  # noqa: D301
    settings = options.load_settings()

    def confirm() -> None:
        if not yes:
            _ask(f"Remove the store in {settings.state_dir}, with every stored value?")

    done = operations.store.purge(settings, confirm, even_so=even_so)
    options.print_answer(done, render.sessions.purge, done)
    raise typer.Exit(0 if done.removed else 1)


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise UsageError("nothing was done: no terminal to ask for confirmation; pass --yes")
    if not typer.confirm(question, err=True):
        raise UsageError(options.DECLINED)
