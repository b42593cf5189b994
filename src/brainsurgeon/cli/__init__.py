"""The command line: parse, call, render, exit. One door turns errors into one line and a code."""

from __future__ import annotations

import io
import os
import signal
import sys
from typing import Annotated

import typer

from brainsurgeon import __version__
from brainsurgeon.cli import restoring, running, showing
from brainsurgeon.cli.given import Config, given
from brainsurgeon.errors import BrainsurgeonError

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None,
    pretty_exceptions_enable=False,
)  # fmt: skip


def main() -> None:
    """Run the command line and exit with a code that means something."""
    os.umask(0o077)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale may know no ellipsis
            stream.reconfigure(errors="backslashreplace")
    signal.signal(signal.SIGTERM, _terminated)
    raise SystemExit(_run())


def _terminated(*_: object) -> None:
    """End as by Ctrl-C: what had begun is finished or undone on the way out."""
    raise SystemExit(128 + signal.SIGTERM)


def _run() -> int:
    try:
        code = app(standalone_mode=False)
    except BrainsurgeonError as error:
        _complain(error)
        return error.exit_code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:  # noqa: BLE001  the last door: no traceback reaches a person
        return _unexpected(error)
    return code if isinstance(code, int) else 0


def _complain(error: BrainsurgeonError) -> None:
    from brainsurgeon.render import in_local_time, safe

    said = str(error)
    if given.json:
        _complain_in_json(said, error.exit_code, **error.facts())
    lines = "\n".join(safe(line) for line in in_local_time(said).split("\n"))
    print(f"brainsurgeon: {lines}", file=sys.stderr)


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
