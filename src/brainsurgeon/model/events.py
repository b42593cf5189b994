"""What happened, for whoever follows it; and the passes in which it did."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, get_args

EventKind = Literal[
    "extraction", "restoration", "redaction", "archive", "unarchive", "relief", "rollback",
    "expiry", "lapse", "summary_failed", "signal", "failure",
]  # fmt: skip
KINDS: tuple[EventKind, ...] = get_args(EventKind)
"""Every kind of event there is; a `lapse` is a wish that nobody could carry out."""
TOKENS_PER_CHAR = 0.33
"""What a character is taken for where nothing better is known: an estimate."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a session, `session` by its title; `facts` hold no content."""

    id: int
    at: float
    pass_id: int | None
    session_id: int | None
    session: str | None
    kind: EventKind
    facts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Pass:
    """One run of a command that changed something.

    `facts` are the counts of what it did: `sessions`, `extracted`, `redacted`, `restored` and
    `expired` values, `fields`, turns `archived` and `unarchived`, and the `chars` and (estimated)
    `tokens` of what was cut. That of a rollback `rolls_back` another.
    """

    id: int
    at: float
    command: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tally:
    """How many values of one kind and tool went and came back, and how long those are."""

    kind: str
    tool: str | None
    extracted: int
    extracted_chars: int
    restored: int
    restored_chars: int
