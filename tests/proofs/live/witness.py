"""Somebody who watches a session file while its agent and we work on it."""

import os
import threading


class Witness:
    """Keeps each line of the session as it stood first: as OpenClaw wrote it."""

    def __init__(self, path):
        self.path, self.lines, self.states = path, [], 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _watch(self):
        seen = None
        while not self._stop.wait(0.02):
            try:
                status = os.stat(self.path)
                state = (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
                if state == seen:
                    continue
                data = self.path.read_bytes()
            except FileNotFoundError:
                continue
            seen = state
            self.states += 1
            whole = data[: data.rfind(b"\n") + 1].splitlines(keepends=True)
            self.lines += whole[len(self.lines) :]
