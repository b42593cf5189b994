"""What was read from files of agents, each read again only after a change of its `stat`."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

from brainsurgeon.model.session_files import Fingerprint

# Seconds within which two changes may have the same times: filesystem clocks advance in steps.
_STEP = 0.05

_Content = TypeVar("_Content")


class Readings(Generic[_Content]):
    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[object, tuple[Fingerprint, _Content]] = {}

    def of(self, name: object, seen: Fingerprint, read: Callable[[], _Content]) -> _Content:
        """Return the content of the file `name`. `seen` must be taken before it is read.

        An error of `read` is passed on, and nothing is kept.
        """
        known = self._known.get(name)
        if known and known[0] == seen:
            return known[1]
        content = read()
        self._known.pop(name, None)
        if seen.ctime_ns / 1e9 < time.time() - _STEP:
            while len(self._known) >= self._most:
                del self._known[next(iter(self._known))]
            self._known[name] = seen, content
        return content
