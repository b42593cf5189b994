"""The command line: parse, call, render, exit. One door turns errors into one line and a code."""

from __future__ import annotations

import os
import signal
import sys
from typing import Annotated

import typer

from brainsurgeon import __version__
from brainsurgeon.cli import restoring, running, showing, streams
from brainsurgeon.cli.given import Config, given
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.model.texts import readable_lines

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None,
    pretty_exceptions_enable=False,
)  # fmt: skip


def main() -> None:
    """Run the command line and exit with a code that means something."""
    os.umask(0o077)
    streams.take_over()
    signal.signal(signal.SIGTERM, _terminated)
    code = _run()
    try:
        streams.let_go()
    except streams.ReaderGoneError:
        pass
    except BrainsurgeonError as error:
        code = _output_lost(error)
    raise SystemExit(code)


def _terminated(*_: object) -> None:
    """End as by Ctrl-C: what had begun is finished or undone on the way out."""
    raise SystemExit(128 + signal.SIGTERM)


def _run() -> int:
    try:
        code = app(standalone_mode=False)
    except streams.OutputError as error:
        return _output_lost(error)
    except BrainsurgeonError as error:
        _complain(error)
        return error.exit_code
    except (streams.ReaderGoneError, BrokenPipeError):
        streams.lead_nowhere()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:  # noqa: BLE001  the last door: no traceback reaches a person
        return _unexpected(error)
    return code if isinstance(code, int) else 0


def _output_lost(error: BrainsurgeonError) -> int:
    streams.lead_nowhere()
    print(f"brainsurgeon: {error}", file=sys.stderr)
    return error.exit_code


def _complain(error: BrainsurgeonError) -> None:
    from brainsurgeon.render import in_local_time

    said = str(error)
    if given.json:
        _complain_in_json(said, error.exit_code, **error.facts())
    print(f"brainsurgeon: {readable_lines(in_local_time(said))}", file=sys.stderr)


def _complain_in_json(said: str, code: int, **facts: object) -> None:
    from brainsurgeon.render import document, printable

    print(document(printable({"error": said, "exit_code": code, **facts})))


def _unexpected(error: Exception) -> int:
    show = getattr(error, "show", None)
    if show is not None:  # what typer says of wrong words
        code = int(getattr(error, "exit_code", 2))
        if "--json" in sys.argv:
            _complain_in_json(getattr(error, "message", str(error)), code)
        show()
        return code
    from brainsurgeon.render import unexpected

    if given.json:
        _complain_in_json(unexpected(error), 1)
    print(f"brainsurgeon: {unexpected(error)}", file=sys.stderr)
    return 1


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"brainsurgeon {__version__}")
        raise typer.Exit


@app.callback()
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
    given.config = config


for command in (
    running.scan, running.run, running.retention, running.status,
    running.doctor, running.mcp,
    showing.sessions, showing.context, showing.show, showing.cat,
    restoring.restore, restoring.set_extractable,
):  # fmt: skip
    app.command(command.__name__.replace("_", "-"))(command)
