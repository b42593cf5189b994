"""Watchers of a session while its agent and brainsurgeon work on it."""

import os
import sqlite3
import threading
from contextlib import suppress


class Watching:
    """A look that a thread repeats inside a `with` block."""

    # Seconds between two looks.
    every = 0.02

    def __enter__(self):
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        seen = None
        while not self._stop.wait(self.every):
            with suppress(FileNotFoundError, sqlite3.OperationalError):
                state = self.state()
                if state != seen:
                    self.look()
                    seen = state


class Witness(Watching):
    """Keeps each line of the session as it first stood: as OpenClaw wrote it."""

    def __init__(self, path):
        self.path, self.lines, self.states = path, [], 0

    def state(self):
        status = os.stat(self.path)
        return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns

    def look(self):
        data = self.path.read_bytes()
        self.states += 1
        whole = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
        self.lines += whole[len(self.lines) :]
