"""A Python process that evaluates one expression per line of stdin and prints each value."""

import os
import signal
import sys


def main():
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    names = {}
    exec("import os, sys, mmap, fcntl, time, errno", names)
    for line in sys.stdin:
        try:
            value = eval(line, names)
            answer = ("said", value if isinstance(value, int | str | bytes | None) else repr(value))
        except Exception as error:  # noqa: BLE001  sent to the caller
            number, words = getattr(error, "errno", 0), getattr(error, "strerror", str(error))
            answer = ("raised", (number, words, type(error).__name__))
        os.write(1, repr(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
