"""Which layouts of OpenClaw's agent database this program knows, by the statements that made them.

The versions 19 (openclaw 2026.8.1 to 2026.9.4), 21 (2026.9.5) and 23 (2026.9.6) were read and
tried; a database that was brought up to 23 from 19 keeps the older `session_nodes`. Anything else
may be read, if it can be, and is never written.
"""

from __future__ import annotations

import hashlib
import re
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.formats.base import parse

if TYPE_CHECKING:
    from collections.abc import Iterator


VERSIONS = (19, 21, 23)
# The first version whose events may be stored compressed.
COMPRESSING = 23

_PLAIN, _COMPRESSED = "06a8be359298", "52dd946f4553"
# The tables that are written: digest of the statement that made each, by version.
_WRITTEN = {
    "transcript_events": {19: _PLAIN, 21: _PLAIN, 23: _COMPRESSED},
    "transcript_rewrite_watermarks": dict.fromkeys(VERSIONS, "ca41667e0ab5"),
    "session_windows": dict.fromkeys(VERSIONS, "8958d3dda5ef"),
}

# The triggers on the written tables; they fire on `session_id` and `session_key` only.
_TRIGGERS = {
    "session_windows_canonical_pending_after_insert": "a34ef27b43e8",
    "session_windows_canonical_pending_after_update": "43d665df1003",
    "session_windows_canonical_pending_after_delete": "a7fc5a118b39",
}

# The tables that are asked: their columns in every known version.
_READ = {
    "schema_meta": "meta_key role schema_version agent_id app_version created_at updated_at",
    "session_transcript_active_events":
        "session_id active_position event_seq message_position context_eligible",
    "session_transcript_index_state":
        "session_id indexed_seq leaf_event_id needs_rebuild active_event_count"
        " active_message_count updated_at",
    "session_nodes":
        "session_key current_session_id entry_json entry_valid updated_at status created_at"
        " created_via created_actor_type created_actor_id owner_actor_type owner_actor_id"
        " owner_assigned_by_type owner_assigned_by_id owner_assigned_at project_id"
        " parent_session_key spawned_by fork_source_session_key fork_source_session_id"
        " fork_source_entry_id label display_name category icon pinned_at archived_at"
        " last_read_at last_interaction_at last_activity_at",
    "session_pending_inputs":
        "seq input_id session_key session_id idempotency_key run_id request_hash message_json"
        " lifecycle_generation state accepted_at",
    "context_engine_turn_outbox":
        "advancement_key engine_id owner_plugin_id session_id payload_json attempt_count"
        " last_attempt_at last_error created_at",
}  # fmt: skip
# Columns that some of the known versions have, too.
_SOMETIMES = {
    "session_nodes": {"legacy_acp_migration_json"},
    "session_pending_inputs": {"consumed_event_id"},
}


@dataclass(frozen=True, slots=True)
class Schema:
    """The layout of one database as it was examined.

    `unknown` is the reason why it may not be written, or None. `cookie` changes with every change
    of the schema, so that comparing it later replaces a second examination.
    """

    version: int
    cookie: int
    program: str | None
    unknown: str | None

    @property
    def compressing(self) -> bool:
        """Whether events may be stored compressed, with columns of their own."""
        return self.version >= COMPRESSING


def examine(connection: sqlite3.Connection) -> Schema:
    """Examine the layout of an open database."""
    version = int(_pragma(connection, "user_version"))
    try:
        meta = connection.execute(
            "SELECT role, schema_version, app_version FROM schema_meta WHERE meta_key = 'primary'"
        ).fetchone()
    except sqlite3.OperationalError:
        meta = None
    unknown = _unknown(connection, version, meta)
    cookie = int(_pragma(connection, "schema_version"))
    return Schema(version, cookie, meta[2] if meta else None, unknown)


def still(connection: sqlite3.Connection, schema: Schema) -> bool:
    """Return whether the layout is the one that was examined; cheap enough for a transaction.

    Ask it where the database is open for writing: only there does it tell how it is logged.
    """
    return (
        _pragma(connection, "schema_version") == schema.cookie
        and _pragma(connection, "user_version") == schema.version
        and _pragma(connection, "journal_mode") == "wal"
    )


def _unknown(
    connection: sqlite3.Connection, version: int, meta: tuple[str, int, str | None] | None
) -> str | None:
    if meta is None or meta[0] != "agent":
        return "not the database of an OpenClaw agent"
    made = f"version {version} (OpenClaw {meta[2] or 'unknown'})"
    if version not in VERSIONS or meta[1] != version:
        return f"its layout, {made}, is not known to this program; it is only read"
    if _pragma(connection, "encoding") != "UTF-8":
        return f"its layout, {made}, is not in UTF-8; it is only read"
    if different := next(_differences(connection, version), None):
        return f"its layout, {made}, differs in {different}; it is only read"
    return None


def _differences(connection: sqlite3.Connection, version: int) -> Iterator[str]:
    for table, digests in _WRITTEN.items():
        made = connection.execute(
            "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (table,)
        ).fetchone()
        if made is None or _digest(made[0]) != digests[version]:
            yield f"table {table}"
    for name, table, made in connection.execute(
        "SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'trigger' ORDER BY name"
    ).fetchall():
        if table in _WRITTEN and _TRIGGERS.get(name) != _digest(made):
            yield f"trigger {name}"
    for table, listed in _READ.items():
        columns = {
            name
            for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        }
        if columns - _SOMETIMES.get(table, set()) != set(listed.split()):
            yield f"table {table}"


def _digest(statement: str) -> str:
    """Digest a statement, but for its quotes, its case and its spaces."""
    plain = re.sub(r"\s+", " ", statement.replace('"', "").lower())
    plain = re.sub(r"\s*([(),])\s*", r"\1", plain).strip()
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


def _pragma(connection: sqlite3.Connection, name: str) -> int | str:
    value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


# An event is kept as its text, or (layout 23) compressed with zstd, with a digest for navigation
# beside it that OpenClaw derives from the text itself. A text may always be kept as it is, whatever
# its size, with no digest: then OpenClaw derives it when it reads (openclaw 2026.9.6,
# `prepareTranscriptPayload` and the table's constraints). So what we write is either the four
# columns as they were, or the text alone.


# Bytes of the longest event that OpenClaw compresses.
LARGEST_COMPRESSED = 4 << 20
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


_PLAIN_COLUMNS = "CAST(e.event_json AS BLOB), NULL, NULL, NULL"
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
    columns = _COMPRESSING if schema.compressing else _PLAIN_COLUMNS
    rows = connection.execute(
        f"SELECT e.seq, {columns} FROM transcript_events e"  # noqa: S608
        " WHERE e.session_id = ? AND e.seq BETWEEN ? AND ? ORDER BY e.seq",
        (session, first, last),
    )
    return [(row[0], Payload(*row[1:])) for row in rows.fetchall()]


def last_message(connection: sqlite3.Connection, schema: Schema, session: str) -> bytes | None:
    """Return the last message of the branch that the model sees, or None without one."""
    columns = _COMPRESSING if schema.compressing else _PLAIN_COLUMNS
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
