"""What systemd is told of a service: that it is ready, that it ends, and that it still works.

The protocol of sd_notify(3): a word on a socket that is named in the environment.
"""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress


def notify(state: str) -> None:
    """Tell systemd how the service stands; nothing without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(address)
        line.sendall(state.encode())


class Watchdog:
    """A sign of life, given by whoever works: where the work stands still, none is given.

    It is asked at each step of the work and, while there is none, by a job that waits its turn
    among the others. So what is shown is that the worker gets on and that jobs are begun at all.
    """

    def __init__(self) -> None:
        self.interval = _watched() / 4
        """Seconds between two signs; 0 where nobody waits for one."""
        self._last = 0.0

    def beat(self) -> None:
        """Give a sign of life, unless the last one was given just now."""
        if self.interval and time.monotonic() - self._last >= self.interval / 2:
            self._last = time.monotonic()
            notify("WATCHDOG=1")


def _watched() -> float:
    """Give the seconds without a sign after which systemd ends this process; 0 for never."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    said = os.environ.get("WATCHDOG_USEC", "")
    return int(said) / 1e6 if said.isdecimal() else 0.0
