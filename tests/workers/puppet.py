"""Another process, told what to do line by line: the agent, the intruder, the other command.

Each line from stdin is a Python expression; its value goes back as one line. `say` does not wait,
so that the puppet may be sent into a call that blocks; `hear` waits for the next answer.
"""

import ast
import inspect
import os
import select
import signal
import subprocess
import sys
import time

PATIENCE = 20.0


class SilentError(AssertionError):
    """The puppet did not answer in time: it is blocked, or dead."""


class Puppet:
    """A process of its own that evaluates what it is told."""

    def __init__(self, *preparations):
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
        )
        self.pid = self.process.pid
        for expression in preparations:
            self.ask(expression)

    def say(self, *expressions):
        """Tell it to evaluate, one after the other, without waiting for the answers."""
        for expression in expressions:
            self.process.stdin.write(expression.encode() + b"\n")

    def hear(self, patience=PATIENCE):
        """Give the value of the oldest expression not yet heard of, or raise what it raised.

        An error has the name of its class in the place of the file's.
        """
        if not self.answers_within(patience):
            raise SilentError
        line = self.process.stdout.readline()
        if not line:
            raise SilentError
        kind, value = ast.literal_eval(line.decode())
        if kind == "raised":
            raise OSError(*value)
        return value

    def answers_within(self, seconds):
        """Tell whether an answer comes within some seconds."""
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def ask(self, expression):
        """Evaluate one expression and give its value."""
        self.say(expression)
        return self.hear()

    def start(self, code):
        """Begin to run some lines of code; `hear` tells when they are done."""
        self.say(f"exec({inspect.cleandoc(code)!r}, globals())")

    def kill(self):
        """Kill it the hard way; to do so twice is no error."""
        self.process.kill()
        self.process.communicate()


def wait_until(happened, patience=PATIENCE):
    """Wait until something is the case."""
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise SilentError
        time.sleep(0.001)


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
