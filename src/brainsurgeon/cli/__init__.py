"""The entry point of the command line."""

import gc
import os
import signal
import sys

from brainsurgeon import interruption
from brainsurgeon.cli.options import OutputError, discard_output, replace_streams


def main() -> None:
    os.umask(0o077)
    replace_streams()
    for number in interruption.SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, interruption.end)
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


def _run() -> int:
    try:
        from brainsurgeon.cli.commands import run

        return run()
    except KeyboardInterrupt:
        return 130
