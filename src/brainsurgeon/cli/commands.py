"""Every command, as typer parses it, and how its errors are said."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from brainsurgeon import __version__, cli
from brainsurgeon.cli import change, history, setup, store
from brainsurgeon.cli import run as running
from brainsurgeon.cli import show as showing
from brainsurgeon.cli.options import Config, given
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.model.text import readable_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

# Every command but those of the group `store`, by name, in the order of the help.
COMMANDS = {
    command.__name__.replace("_", "-"): command
    for command in (
        setup.init, setup.config,
        running.scan, running.run, running.retention, running.status, running.doctor, running.mcp,
        showing.sessions, showing.context, showing.show, showing.cat, showing.search,
        change.restore, change.set_extractable, change.relieve,
        change.archive, showing.archives,
        history.runs, history.rollback, history.events, store.report, store.metrics,
    )
}  # fmt: skip


def run() -> int:
    """Parse the command line, run the command, print any error and return the exit code.

    Raise what `streams` raises, and KeyboardInterrupt.
    """
    try:
        code = application(sys.argv[1:2])(standalone_mode=False)
    except (cli.OutputError, cli.ReaderGoneError, BrokenPipeError):
        raise
    except BrainsurgeonError as error:
        complain(error)
        return error.exit_code
    except typer.Abort:
        return 130
    except Exception as error:  # noqa: BLE001  the last door: no traceback reaches a person
        return complain_unexpectedly(error)
    return code if isinstance(code, int) else 0


def complain(error: BrainsurgeonError) -> None:
    """Say what went wrong, in JSON too where that is wanted."""
    from brainsurgeon.render import in_local_time

    said = str(error)
    if given.json:
        _complain_in_json(said, error.exit_code, **error.facts())
    print(f"brainsurgeon: {readable_lines(in_local_time(said))}", file=sys.stderr)


def _complain_in_json(said: str, code: int, **facts: object) -> None:
    from brainsurgeon.render import document, printable

    print(document(printable({"error": said, "exit_code": code, **facts})))


def complain_unexpectedly(error: Exception) -> int:
    """Say what typer says of wrong words, or where a bug of ours showed; give the exit code."""
    show = getattr(error, "show", None)
    if show is not None:  # what typer says of wrong words
        code = int(getattr(error, "exit_code", 2))
        said = _of_wrong_words(error)
        if "--json" in sys.argv:
            _complain_in_json(said or "a command is missing", code)
        if said is None:
            show()
        else:
            print(f"brainsurgeon: {readable_lines(said)}", file=sys.stderr)
        return code
    from brainsurgeon.render import unexpected

    if given.json:
        _complain_in_json(unexpected(error), 1)
    print(f"brainsurgeon: {unexpected(error)}", file=sys.stderr)
    return 1


def _of_wrong_words(error: Any) -> str | None:
    """Say in one line what typer found wrong, and where help is; None where it shows the help."""
    words = getattr(getattr(error, "ctx", None), "command_path", "brainsurgeon")
    message = error.format_message()
    if message.startswith("Usage: "):
        return None
    said = message.replace("Value error, ", "").strip().rstrip(".")
    return f"{said[:1].lower()}{said[1:]}; `{words} --help` says more"


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"brainsurgeon {__version__}")
        raise typer.Exit


def _options(
    config: Config = None,
    version: Annotated[  # noqa: ARG001  its callback does the work
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Keep the session files of coding agents lean, and give back every byte on demand."""
    gc.enable()
    given.config = config


def application(first: Sequence[str] = ()) -> typer.Typer:
    """Return the application; with only one command if the first word names that command.

    Typer reads the signature of every command it is given, about 1 ms each.
    """
    made = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    made.callback()(_options)
    chosen = [name for name in first if name in COMMANDS]
    for name in chosen or COMMANDS:
        made.command(name)(COMMANDS[name])
    if not chosen:
        made.add_typer(store.store)
    return made


app = application()
