"""Measure the load of a Codex session, which records it after each call."""

import math
from collections.abc import Iterable

from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import Calibration, Sent
from brainsurgeon.planning.budget import Measure


class CodexMeasure(Measure):
    def __init__(self) -> None:
        super().__init__()
        self._recorded: int | None = None  # the tokens of the context, as the session records them
        self._added = Sent()  # what the next request also contains

    def load(self, calibration: Calibration) -> int:
        if self._recorded is None:
            return super().load(calibration)
        removed = self.removed_since(self.last)
        return max(0, self._recorded + (self._added - removed).tokens(calibration.rate))

    def look(
        self, entry: Entry, sent: Sent, removed: Iterable[tuple[float, Sent]] = (),
        left: float = math.inf,
    ) -> None:  # fmt: skip
        super().look(entry, sent, removed, left)
        if entry.compacts:
            self._recorded, self._added = None, Sent()
        elif entry.role == "reply":
            self._added = Sent()
        elif entry.role != "aside" or entry.is_message:
            self._added += sent
        if stated := entry.own:  # else it is an item, or unreadable
            self.window = stated.window or self.window
            self._recorded = stated.load or self._recorded
