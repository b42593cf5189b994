"""All commands, as typer parses them, and how their errors are printed."""

import gc
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from brainsurgeon import __version__
from brainsurgeon.cli import change, history, setup, store
from brainsurgeon.cli import run as running
from brainsurgeon.cli import show as showing
from brainsurgeon.cli.options import Config, given
from brainsurgeon.cli.streams import OutputError, ReaderGoneError
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.model.text import readable_lines

# All commands except those of the group `store`, by name, in the order of the help.
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

    Raises OutputError, ReaderGoneError and KeyboardInterrupt.
    """
    try:
        code = application(sys.argv[1:2])(standalone_mode=False)
    except (OutputError, ReaderGoneError, BrokenPipeError):
        raise
    except BrainsurgeonError as error:
        complain(error)
        return error.exit_code
    except typer.Abort:
        return 130
    except Exception as error:  # noqa: BLE001  nobody is shown a traceback
        return complain_unexpectedly(error)
    return code if isinstance(code, int) else 0


def complain(error: BrainsurgeonError) -> None:
    """Print what went wrong to stderr, and as JSON to stdout if that was asked for."""
    from brainsurgeon.render import in_local_time

    if given.json:
        _complain_in_json(str(error), error.exit_code, **error.facts())
    print(f"brainsurgeon: {readable_lines(in_local_time(str(error)))}", file=sys.stderr)


def _complain_in_json(message: str, code: int, **facts: object) -> None:
    from brainsurgeon.render import document, printable

    print(document(printable({"error": message, "exit_code": code, **facts})))


def complain_unexpectedly(error: Exception) -> int:
    """Print typer's message about wrong arguments, or the place of a bug; return the exit code."""
    show = getattr(error, "show", None)
    if show is not None:  # an error of typer
        code = int(getattr(error, "exit_code", 2))
        message = _of_wrong_words(error)
        if "--json" in sys.argv:
            _complain_in_json(message or "a command is missing", code)
        if message is None:
            show()
        else:
            print(f"brainsurgeon: {readable_lines(message)}", file=sys.stderr)
        return code
    from brainsurgeon.render import unexpected

    if given.json:
        _complain_in_json(unexpected(error), 1)
    print(f"brainsurgeon: {unexpected(error)}", file=sys.stderr)
    return 1


def _of_wrong_words(error: Any) -> str | None:
    """Return typer's message in one line, with a hint to the help; None if it is the help."""
    words = getattr(getattr(error, "ctx", None), "command_path", "brainsurgeon")
    message = error.format_message()
    if message.startswith("Usage: "):
        return None
    text = message.replace("Value error, ", "").strip().rstrip(".")
    return f"{text[:1].lower()}{text[1:]}; `{words} --help` says more"


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


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Return the application; with one command only if the words name one.

    Typer reads the signature of each command that it is given, about 1 ms each.
    """
    made = typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )  # fmt: skip
    made.callback()(_options)
    chosen = [name for name in words if name in COMMANDS]
    for name in chosen or COMMANDS:
        made.command(name)(COMMANDS[name])
    if not chosen:
        made.add_typer(store.store)
    return made


app = application()
