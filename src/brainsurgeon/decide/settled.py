"""Whether a session is quiet and its last turn closed, by its times and its lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brainsurgeon.model.sessions import Fingerprint, Survey


def silence(fingerprint: Fingerprint, first_seen: float, now: float) -> float:
    """Tell for how many seconds the file has been quiet.

    A modification time in the future counts from when this state of the file was first seen.
    """
    modified = fingerprint.mtime_ns / 1e9
    return max(0.0, now - (modified if modified <= now else min(first_seen, now)))


def restless(silent: float, quiet: float) -> str | None:
    """Say that the file changed too recently, or None."""
    return None if silent >= quiet else f"changed {silent:.0f} s ago, quiet is {quiet:.0f} s"


def open_turn(survey: Survey, silent: float, abandoned: float) -> str | None:
    """Say that a turn is open, or None; one silent for `abandoned` seconds counts as closed."""
    return survey.open_turn if survey.open_turn and silent < abandoned else None
