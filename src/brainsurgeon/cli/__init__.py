"""The entry point of the command line."""

import gc
import os
import signal
import sys

from brainsurgeon.cli.options import OutputError, discard_output, replace_streams


def main() -> None:
    os.umask(0o077)
    replace_streams()
    signal.signal(signal.SIGTERM, _exit)
    gc.disable()  # imports leave no garbage; `commands._options` enables it again
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "1"  # else pydantic searches every package for plugins
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
    gc.freeze()  # else the last garbage collection examines every object
    raise SystemExit(code)


def _exit(*_: object) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # an exception, so that `finally` blocks run


def _run() -> int:
    try:
        from brainsurgeon.cli.commands import run

        return run()
    except KeyboardInterrupt:
        return 130
