"""Measure the load of a Codex session, which records it after each call."""

from collections.abc import Iterable

from brainsurgeon.agents.codex.format import Codex, Stated
from brainsurgeon.formats.transcript import entries_of
from brainsurgeon.model.entries import Line
from brainsurgeon.model.turns import Calibration, Sent
from brainsurgeon.planning.budget import Measure


class CodexMeasure(Measure):
    recorded: int | None = None  # the tokens of the context, as the session records them
    added = Sent()  # what the next request also contains

    def load(self, calibration: Calibration) -> int:
        if self.recorded is None:
            return super().load(calibration)
        return self.recorded + self.added.tokens(calibration.rate)


def measure_codex(lines: Iterable[Line]) -> CodexMeasure:
    """Measure a Codex session. Entries before the last `compacted` entry are not sent any more."""
    measured = CodexMeasure()
    for _, entry in entries_of(Codex(), lines):
        if entry.compacts:
            measured.begin_anew()
            measured.recorded = None
            measured.added = Sent()
        elif entry.role == "reply":
            measured.added = Sent()
        else:
            measured.added += entry.sent
        measured.look(entry, entry.sent)
        if isinstance(entry.own, Stated):  # else the line is unreadable
            measured.model = entry.own.model or measured.model
            measured.window = entry.own.window or measured.window
            measured.recorded = entry.own.load or measured.recorded
    return measured
