"""Measure the load of a Copilot CLI session, which records the limit of each request."""

import math
from collections.abc import Iterable

from brainsurgeon.agents.copilot.format import EventFacts
from brainsurgeon.model.transcript import Entry
from brainsurgeon.model.turns import Sent
from brainsurgeon.planning.budget import Measure


class CopilotMeasure(Measure):
    def look(
        self, entry: Entry, sent: Sent, removed: Iterable[tuple[float, Sent]] = (),
        left: float = math.inf,
    ) -> None:  # fmt: skip
        super().look(entry, sent, removed, left)
        if isinstance(entry.own, EventFacts):
            self.window = entry.own.window or self.window
