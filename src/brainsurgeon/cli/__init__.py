"""The command line: parse, call, render, exit. One door turns errors into one line and a code."""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from brainsurgeon.cli import quick, streams
from brainsurgeon.errors import BrainsurgeonError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    Code = TypeVar("Code", int, int | None)


def __getattr__(name: str) -> Any:
    """Give the commands, which are made when they are first asked for."""
    if name != "app":
        raise AttributeError(name)
    from brainsurgeon.cli.commands import app

    return app


def main() -> None:
    """Run the command line and exit with a code that means something."""
    os.umask(0o077)
    streams.take_over()
    signal.signal(signal.SIGTERM, _terminated)
    gc.disable()  # of what is imported nothing is garbage
    quickly = _guarded(lambda: 0 if quick.answer(sys.argv[1:]) else None)
    gc.enable()
    code = _run() if quickly is None else quickly
    try:
        streams.let_go()
    except streams.ReaderGoneError:
        pass
    except BrainsurgeonError as error:
        code = _output_lost(error)
    if quickly is not None:
        os._exit(code)  # all is said and closed; taking everything apart is a tenth of the time
    raise SystemExit(code)


def _terminated(*_: object) -> None:
    """End as by Ctrl-C: what had begun is finished or undone on the way out."""
    raise SystemExit(128 + signal.SIGTERM)


def _run() -> int:
    from brainsurgeon.cli.commands import run

    return _guarded(run)


def _guarded(act: Callable[[], Code]) -> Code | int:
    """Give the exit code that an act gives, or that of the error with which it ends."""
    try:
        return act()
    except streams.OutputError as error:
        return _output_lost(error)
    except (streams.ReaderGoneError, BrokenPipeError):
        streams.lead_nowhere()
        return 0
    except BrainsurgeonError as error:
        from brainsurgeon.cli.commands import complain

        complain(error)
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # noqa: BLE001  the last door: no traceback reaches a person
        from brainsurgeon.cli.commands import complain_unexpectedly

        return complain_unexpectedly(error)


def _output_lost(error: BrainsurgeonError) -> int:
    streams.lead_nowhere()
    print(f"brainsurgeon: {error}", file=sys.stderr)
    return error.exit_code
