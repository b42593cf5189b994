"""Another process, told what to do line by line: the agent, the intruder, the other command.

Each line from stdin is a Python expression; its value goes back as one line.
"""

import os
import signal
import sys


def _obey():
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    names = {}
    exec("import os, sys, mmap, fcntl, time, errno", names)
    for line in sys.stdin:
        try:
            value = eval(line, names)
            answer = ("said", value if isinstance(value, int | str | bytes | None) else repr(value))
        except Exception as error:  # noqa: BLE001  it belongs to whoever asked
            number, words = getattr(error, "errno", 0), getattr(error, "strerror", str(error))
            answer = ("raised", (number, words, type(error).__name__))
        os.write(1, repr(answer).encode() + b"\n")


if __name__ == "__main__":
    _obey()
