"""How OpenClaw keeps one event of a transcript in a row, and how a row of ours must look.

An event is kept as its text, or (layout 23) compressed with zstd, with a digest for navigation
beside it that OpenClaw derives from the text itself. A text may always be kept as it is, whatever
its size, with no digest: then OpenClaw derives it when it reads (openclaw 2026.9.6,
`prepareTranscriptPayload` and the table's constraints). So what we write is either the four
columns as they were, or the text alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator

    from brainsurgeon.hosts.openclaw_schema import Schema

LARGEST_COMPRESSED = 4 << 20
"""Bytes of the longest event that OpenClaw compresses."""
_STOPS = ("stop", "length", "error", "aborted")


class UnreadableEventError(Exception):
    """An event's row does not hold what its columns promise."""


@dataclass(frozen=True, slots=True)
class Payload:
    """The four columns that hold one event; the last three are None in layouts before 23."""

    text: bytes | None
    packed: bytes | None
    size: int | None
    navigation: bytes | None

    @property
    def weight(self) -> int:
        """How many bytes the columns hold together."""
        return sum(len(one) for one in (self.text, self.packed, self.navigation) if one)

    def is_plain(self, *, compressing: bool) -> bool:
        """Return whether they hold the text just as we would write it."""
        return self.text is not None and self == plain(self.text, compressing=compressing)

    def event(self) -> bytes:
        """Return the event's text; raise UnreadableEventError where the row is damaged."""
        if self.text is not None:
            return self.text
        if self.packed is None or not 0 < (self.size or 0) <= LARGEST_COMPRESSED:
            raise UnreadableEventError
        return _unpacked(self.packed, self.size or 0)


def plain(text: bytes, *, compressing: bool) -> Payload:
    """Return the columns that hold a text as it is."""
    return Payload(text, None, len(text) if compressing else None, None)


def _unpacked(packed: bytes, size: int) -> bytes:
    import zstandard  # noqa: PLC0415  commands that meet no compressed row should not wait for it

    try:
        text = zstandard.ZstdDecompressor().decompress(packed, max_output_size=size)
    except zstandard.ZstdError as error:
        raise UnreadableEventError from error
    if len(text) != size:
        raise UnreadableEventError
    return text


_PLAIN = "CAST(e.event_json AS BLOB), NULL, NULL, NULL"
_COMPRESSING = (
    "CAST(e.event_json AS BLOB), e.event_zstd, e.event_utf8_bytes, CAST(e.navigation_json AS BLOB)"
)
_SIZE = {False: "length(CAST(e.event_json AS BLOB))",
         True: "coalesce(e.event_utf8_bytes, length(CAST(e.event_json AS BLOB)))"}  # fmt: skip


def sizes(connection: sqlite3.Connection, schema: Schema, session: str) -> list[tuple[int, int]]:
    """Return the sequence number of each event of a session and the bytes of its text."""
    rows = connection.execute(
        f"SELECT e.seq, {_SIZE[schema.compressing]} FROM transcript_events e"  # noqa: S608
        " WHERE e.session_id = ? ORDER BY e.seq",
        (session,),
    )
    return rows.fetchall()


def sessions(connection: sqlite3.Connection) -> list[str]:
    """Name the sessions that have events, described or not."""
    rows = connection.execute("SELECT DISTINCT session_id FROM transcript_events")
    return [session for (session,) in rows.fetchall()]


def totals(connection: sqlite3.Connection, schema: Schema) -> dict[str, int]:
    """Return the bytes of each session's events, a newline after each counted."""
    rows = connection.execute(
        f"SELECT e.session_id, sum(1 + {_SIZE[schema.compressing]}) FROM transcript_events e"  # noqa: S608
        " GROUP BY e.session_id"
    )
    return dict(rows.fetchall())


def payloads(
    connection: sqlite3.Connection, schema: Schema, session: str, first: int, last: int
) -> list[tuple[int, Payload]]:
    """Return the rows of a session between two sequence numbers, both included, in order."""
    columns = _COMPRESSING if schema.compressing else _PLAIN
    rows = connection.execute(
        f"SELECT e.seq, {columns} FROM transcript_events e"  # noqa: S608
        " WHERE e.session_id = ? AND e.seq BETWEEN ? AND ? ORDER BY e.seq",
        (session, first, last),
    )
    return [(row[0], Payload(*row[1:])) for row in rows.fetchall()]


def last_message(connection: sqlite3.Connection, schema: Schema, session: str) -> bytes | None:
    """Return the last message of the branch that the model sees, or None without one."""
    columns = _COMPRESSING if schema.compressing else _PLAIN
    row = connection.execute(
        f"SELECT {columns} FROM session_transcript_active_events a"  # noqa: S608
        " JOIN transcript_events e"
        " ON e.session_id = a.session_id AND e.seq = a.event_seq"
        " WHERE a.session_id = ? AND a.message_position IS NOT NULL"
        " ORDER BY a.message_position DESC LIMIT 1",
        (session,),
    ).fetchone()
    return Payload(*row).event() if row else None


def open_turn(event: bytes | None) -> str | None:
    """Say that the turn which ends with this message is open, or None; silence closes none."""
    if event is None:
        return "it has no message yet"
    message = (parse(event) or {}).get("message")
    if not isinstance(message, dict) or message.get("role") != "assistant":
        role = message.get("role") if isinstance(message, dict) else None
        named = {"user": "a user message", "toolResult": "a tool result"}
        return f"the last turn is open: {named.get(str(role), 'no answer of the assistant')}"
    if any(_is_call(block) for block in _blocks(message)):
        return "the last turn is open: a tool call"
    if message.get("stopReason") not in _STOPS:
        return "the last turn is open: the assistant has not stopped"
    return None


def _blocks(message: dict[str, object]) -> Iterator[object]:
    content = message.get("content")
    yield from content if isinstance(content, list) else ()


def _is_call(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "toolCall"
