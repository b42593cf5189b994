"""The command line: parse, call, render, exit. Every error becomes one line and an exit code."""

import gc
import os
import signal
import sys

from brainsurgeon.cli.options import OutputError, discard_output, flush_output, replace_streams
from brainsurgeon.errors import BrainsurgeonError


def main() -> None:
    os.umask(0o077)
    replace_streams()
    signal.signal(signal.SIGTERM, _terminated)
    gc.disable()  # imports leave no garbage; the command enables it again
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # else it would search every installed package
    code = _run()
    try:
        flush_output()
    except BrokenPipeError:
        pass
    except BrainsurgeonError as error:
        code = _output_lost(error)
    gc.freeze()  # else the interpreter would examine every object when it exits
    raise SystemExit(code)


def _terminated(*_: object) -> None:
    """Exit as after Ctrl-C, so that clean-up code runs."""
    raise SystemExit(128 + signal.SIGTERM)


def _run() -> int:
    """Run the command and return its exit code, even if its output cannot be written."""
    try:
        from brainsurgeon.cli.commands import run

        return run()
    except OutputError as error:
        return _output_lost(error)
    except BrokenPipeError:
        discard_output()
        return 0
    except KeyboardInterrupt:
        return 130


def _output_lost(error: BrainsurgeonError) -> int:
    discard_output()
    print(f"brainsurgeon: {error}", file=sys.stderr)
    return error.exit_code
