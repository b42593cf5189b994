"""The command line: parse, call, render, exit. Every error becomes one line and an exit code."""

import gc
import os
import signal
import sys

from brainsurgeon.cli.options import OutputError, discard_output, replace_streams


def main() -> None:
    os.umask(0o077)
    replace_streams()
    signal.signal(signal.SIGTERM, _terminated)
    gc.disable()  # imports leave no garbage; the command enables it again
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # else it would search every installed package
    code = 0
    try:
        code = _run()
        sys.stdout.flush()
    except BrokenPipeError:
        discard_output()
    except OutputError as error:
        discard_output()
        print(f"brainsurgeon: {error}", file=sys.stderr)
        code = error.exit_code
    gc.freeze()  # else the interpreter would examine every object when it exits
    raise SystemExit(code)


def _terminated(*_: object) -> None:
    """Exit as after Ctrl-C, so that clean-up code runs."""
    raise SystemExit(128 + signal.SIGTERM)


def _run() -> int:
    try:
        from brainsurgeon.cli.commands import run

        return run()
    except KeyboardInterrupt:
        return 130
