"""The commands that care for the store as a whole."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from typing import Annotated

import typer

from brainsurgeon.cli.options import Config, Json, print_json, say, settings_of, store_to_read
from brainsurgeon.errors import UsageError

store = typer.Typer(
    name="store", no_args_is_help=True, add_completion=False, rich_markup_mode=None,
    pretty_exceptions_enable=False,
)  # fmt: skip

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


@store.callback()
def _store() -> None:
    """Back the store up, put a backup in its place, make it small, remove it.

    \b
    Examples:
      brainsurgeon store backup /media/backup/brainsurgeon.db
      brainsurgeon store restore /media/backup/brainsurgeon.db
    """  # noqa: D301


@store.command()
def backup(
    file: Annotated[str, typer.Argument(help="Where the copy goes.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Copy the store to a file and read it back whole, also while the daemon runs.

    \b
    Examples:
      brainsurgeon store backup /media/backup/brainsurgeon.db
      brainsurgeon store backup --force ~/brainsurgeon.db
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.store import back_up
    from brainsurgeon.render import sessions

    done = back_up(settings, file, force=force)
    print_json(sessions.backup_json(done)) if json else say(sessions.backup(done))


@store.command()
def restore(
    file: Annotated[str, typer.Argument(help="A file that `store backup` made.")],
    yes: Yes = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Put a backup in the place of the store; the old one stays beside it.

    It is read whole first, and each session is named with placeholders that are newer than it:
    what was cut there since is only in the store of now. No daemon may run meanwhile.

    \b
    Examples:
      brainsurgeon store restore /media/backup/brainsurgeon.db
      brainsurgeon store restore --yes ~/brainsurgeon.db
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.store import replacing_store
    from brainsurgeon.render import sessions

    with replacing_store(settings, file) as pending:
        if not yes:
            say(sessions.before_replacing(pending.found))
            _ask("Put it in the place of the store?")
        done = pending.carry_out(time.time())
    print_json(sessions.replacement_json(done)) if json else say(sessions.replacement(done))


@store.command()
def compact(json: Json = False, config: Config = None) -> None:
    """Write the store's database anew, without what was freed in it.

    It needs twice the room of the database meanwhile, and nobody else can write to the store.

    \b
    Example:
      brainsurgeon store compact
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.store import compact
    from brainsurgeon.render import sessions

    done = compact(settings)
    print_json(sessions.compaction_json(done)) if json else say(sessions.compaction(done))


@store.command()
def purge(
    even_so: Annotated[
        bool,
        typer.Option("--even-so", help="Also where placeholders stand whose values are then gone."),
    ] = False,
    yes: Yes = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Remove the store, when no placeholder of it stands in any session or archive.

    Put everything back first: brainsurgeon restore --all. No daemon may run meanwhile.

    \b
    Examples:
      brainsurgeon store purge
      brainsurgeon store purge --even-so --yes
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.store import purge
    from brainsurgeon.render import sessions

    if not yes:
        _ask(f"Remove the store in {settings.state_dir}, every stored value with it?")
    done = purge(settings, even_so=even_so)
    print_json(sessions.purge_json(done)) if json else say(sessions.purge(done))
    raise typer.Exit(0 if done.removed else 1)


def _ask(question: str) -> None:
    """Go on only where a person says yes; where nobody can be asked, `--yes` says so."""
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError("nobody is there to be asked: --yes says that it is meant")
    if not typer.confirm(question, err=True):
        raise UsageError("left as it was")


def report(
    output: Annotated[
        str | None,
        typer.Option("--output", help="Where the page goes; else report.html in state_dir."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    previews: Annotated[
        bool, typer.Option("--previews", help="Also show how each extracted value begins.")
    ] = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Write a page about everything: savings, sizes, what comes next, what waits and why.

    It is one file that needs no network; without --previews no content of a session is in it.

    \b
    Examples:
      brainsurgeon report --open
      brainsurgeon report --output ~/sessions.html
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.cli.progress import largest_ahead, progress_bar
    from brainsurgeon.log import PRIVATE, write_whole
    from brainsurgeon.operations.report import TAKEN_APART
    from brainsurgeon.operations.report import report as operation
    from brainsurgeon.render.report import report as render
    from brainsurgeon.store.database import make_directory

    if output is None:
        make_directory(settings.state_dir)
    path = os.path.abspath(output or os.path.join(settings.state_dir, "report.html"))
    with store_to_read(settings) as store:
        ahead = partial(largest_ahead, settings, TAKEN_APART)
        with progress_bar("looking at", ahead, quiet=json) as progress:
            page = operation(settings, store, time.time(), previews=previews, progress=progress)
    write_whole(path, render(page), PRIVATE)
    if json:
        print_json({"path": path, "size_bytes": os.stat(path).st_size})
    else:
        say(path)
    if show:
        import webbrowser
        from pathlib import Path

        webbrowser.open(Path(path).as_uri())


def metrics(
    output: Annotated[
        str | None, typer.Option("--output", help="Where the figures go; else to stdout.")
    ] = None,
    json: Json = False,
    config: Config = None,
) -> None:
    """Print figures for Prometheus: of the store, without a look at any session.

    With metrics_file in the configuration they are written after each run, too.

    \b
    Example:
      brainsurgeon metrics --output /var/lib/node-exporter/brainsurgeon.prom
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.log import READABLE, write_whole
    from brainsurgeon.operations.status import metrics as operation
    from brainsurgeon.render.status import metrics as render
    from brainsurgeon.render.status import metrics_json

    with store_to_read(settings) as store:
        measured = operation(settings, store)
    if output is not None:
        write_whole(os.path.abspath(output), render(measured), READABLE)
    elif json:
        print_json(metrics_json(measured))
    else:
        print(render(measured), end="")
