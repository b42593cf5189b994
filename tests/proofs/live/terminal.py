"""A program in a terminal of its own, which a test reads and types into."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time


class Terminal:
    def __init__(self, command, environment, directory):
        self.output = b""
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        self._process = subprocess.Popen(
            command, env=environment, cwd=directory, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            try:
                self.output += self.read(65536)
            except OSError:  # the program ended
                return

    def read(self, size):
        return os.read(self._ours, size)

    def write(self, keys):
        os.write(self._ours, keys)

    def type(self, text):
        """Type a line, and give the program time to see that it was not pasted."""
        for key in (*text, "\r"):
            self.write(key.encode())
            time.sleep(0.05 if key != text[-1] else 1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._ours)
