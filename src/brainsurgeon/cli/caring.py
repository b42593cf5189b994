"""The commands that care for the store as a whole."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from brainsurgeon.cli.given import Config, Json, print_json, say, settings_of
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
    from brainsurgeon.operations.store_care import back_up
    from brainsurgeon.render import care

    done = back_up(settings, file, force=force)
    print_json(care.backup_json(done)) if json else say(care.backup(done))


@store.command()
def restore(
    file: Annotated[str, typer.Argument(help="A file that `store backup` made.")],
    yes: Yes = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Put a backup in the place of the store; the old one stays beside it.

    It is read whole first, and each session is named with stubs that are newer than it: what was
    cut there since is only in the store of now. No daemon may run meanwhile.

    \b
    Examples:
      brainsurgeon store restore /media/backup/brainsurgeon.db
      brainsurgeon store restore --yes ~/brainsurgeon.db
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.store_care import replacing_store
    from brainsurgeon.render import care

    with replacing_store(settings, file) as pending:
        if not yes:
            say(care.before_replacing(pending.found))
            _ask("Put it in the place of the store?")
        done = pending.carry_out(time.time())
    print_json(care.replacement_json(done)) if json else say(care.replacement(done))


@store.command()
def compact(json: Json = False, config: Config = None) -> None:
    """Write the store's database anew, without what was freed in it.

    It needs twice the room of the database meanwhile, and nobody else can write to the store.

    \b
    Example:
      brainsurgeon store compact
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.store_care import compact
    from brainsurgeon.render import care

    done = compact(settings)
    print_json(care.compaction_json(done)) if json else say(care.compaction(done))


@store.command()
def purge(
    even_so: Annotated[
        bool,
        typer.Option("--even-so", help="Also where stubs stand whose values are then gone."),
    ] = False,
    yes: Yes = False,
    json: Json = False,
    config: Config = None,
) -> None:
    """Remove the store, when no stub of it stands in any session or archive.

    Put everything back first: brainsurgeon restore --all. No daemon may run meanwhile.

    \b
    Examples:
      brainsurgeon store purge
      brainsurgeon store purge --even-so --yes
    """  # noqa: D301
    settings = settings_of(config, json=json)
    from brainsurgeon.operations.store_care import purge
    from brainsurgeon.render import care

    if not yes:
        _ask(f"Remove the store in {settings.state_dir}, every stored value with it?")
    done = purge(settings, even_so=even_so)
    print_json(care.purge_json(done)) if json else say(care.purge(done))
    raise typer.Exit(0 if done.removed else 1)


def _ask(question: str) -> None:
    """Go on only where a person says yes; where nobody can be asked, `--yes` says so."""
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError("nobody is there to be asked: --yes says that it is meant")
    if not typer.confirm(question, err=True):
        raise UsageError("left as it was")
