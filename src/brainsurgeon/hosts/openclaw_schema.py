"""The known layouts of OpenClaw's agent database, and the events in it.

The versions 19 (openclaw 2026.8.1 to 2026.9.4), 21 (2026.9.5) and 23 (2026.9.6) were examined and
tested. A database migrated from 19 to 23 keeps the older `session_nodes`. Other layouts are never
written.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterator
from functools import cached_property

import zstandard
from msgspec import Struct

from brainsurgeon.hosts.sqlite import AgentDatabaseError
from brainsurgeon.model.parsing import parse

VERSIONS = (19, 21, 23)
COMPRESSING = 23  # the first version whose events may be stored compressed

_PLAIN, _COMPRESSED = "06a8be359298", "52dd946f4553"
# The tables that are written: digests of their CREATE statements, by version.
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

# The tables that are read: digests of the names of their columns, in every known version.
_READ = {
    "schema_meta": "c5cf3bd30470",
    "session_transcript_active_events": "96290ae9df90",
    "session_transcript_index_state": "d7ba9e12a60f",
    "session_nodes": "6d4e421d262a",
    "session_pending_inputs": "5d74c2cf1e90",
    "context_engine_turn_outbox": "ec2f1434de07",
}
# Columns that only some of the known versions have.
_SOMETIMES = {"legacy_acp_migration_json", "consumed_event_id"}


class Schema(Struct, frozen=True):
    """The layout of one database; `program` is the version of OpenClaw that wrote it.

    `unknown` is the reason why it may not be written, or None. `cookie` changes with every change
    of the schema: comparing it replaces a second examination. `empty` is set if there are no tables
    for sessions: `openclaw doctor` of 2026.7 creates such a database beside sessions in files.
    """

    version: int
    cookie: int
    program: str | None
    unknown: str | None
    empty: bool = False

    @property
    def compressing(self) -> bool:
        """Whether events may be stored compressed, in additional columns."""
        return self.version >= COMPRESSING


def examine(connection: sqlite3.Connection) -> Schema:
    version, meta = int(_pragma(connection, "user_version")), None
    try:
        meta = connection.execute(
            "SELECT role, schema_version, app_version FROM schema_meta WHERE meta_key = 'primary'"
        ).fetchone()
    except AgentDatabaseError as error:
        if error.code != "SQLITE_ERROR":  # else it has no such table or columns
            raise
    unknown = _unknown(connection, version, meta)
    cookie = int(_pragma(connection, "schema_version"))
    tables = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE name IN ('transcript_events', 'session_windows')"
    )
    empty = tables.fetchone() is None
    return Schema(version, cookie, meta[2] if meta else None, unknown, empty)


def is_unchanged(connection: sqlite3.Connection, schema: Schema) -> bool:
    """Check, inside a transaction, whether the layout is unchanged.

    The database must be open for writing: only then is its journal mode known.
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
        return f"its layout, {made}, is not known to this program; the database is only read"
    if _pragma(connection, "encoding") != "UTF-8":
        return "its text encoding is not UTF-8; the database is only read"
    if different := next(_differences(connection, version), None):
        text = f"its layout, {made}, differs from the known one in {different}"
        return f"{text}; the database is only read"
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
    for table, digest in _READ.items():
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
        names = {name for (name,) in rows} - _SOMETIMES
        if _digest(" ".join(sorted(names))) != digest:
            yield f"table {table}"


def _digest(text: str) -> str:
    """Return the digest of SQL or of names, without quotes, case and spaces."""
    plain = re.sub(r"\s+", " ", text.replace('"', "").lower())
    plain = re.sub(r"\s*([(),])\s*", r"\1", plain).strip()
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


def _pragma(connection: sqlite3.Connection, name: str) -> int | str:
    value: int | str = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


# An event is stored as its text, or (layout 23) compressed with zstd, with navigation data
# (`navigation_json`) that OpenClaw derives from the text. A text of any size may always be stored
# uncompressed and without this data: then OpenClaw derives it when it reads (openclaw 2026.9.6,
# `prepareTranscriptPayload` and the table's constraints). So we write either the four columns as
# they were, or the text alone.

LARGEST_COMPRESSED = 4 << 20  # bytes of the longest event that OpenClaw compresses
_STOPS = ("stop", "length", "error", "aborted")
_decompressor = zstandard.ZstdDecompressor()


class UnreadableEventError(Exception):
    """The row of an event is damaged."""


class Payload(Struct, frozen=True, dict=True):
    """The four columns that hold one event; the last three are None in layouts before 23.

    The event is unpacked and its digest made once: a rewrite needs both several times.
    """

    text: bytes | None
    packed: bytes | None
    size: int | None
    navigation: bytes | None

    def is_plain(self, *, compressing: bool) -> bool:
        """Check whether the columns are as `plain` returns them for their text."""
        return self.text is not None and self == plain(self.text, compressing=compressing)

    def event(self) -> bytes:
        """Return the event's text; raise UnreadableEventError if the row is damaged."""
        return self._unpacked if self.text is None else self.text

    @cached_property
    def digest(self) -> bytes:
        """The digest of the event's text."""
        return digest(self.event())

    @cached_property
    def _unpacked(self) -> bytes:
        size = self.size or 0
        if self.packed is None or not 0 < size <= LARGEST_COMPRESSED:
            raise UnreadableEventError
        try:
            text = _decompressor.decompress(self.packed, max_output_size=size)
        except zstandard.ZstdError as error:
            raise UnreadableEventError from error
        if len(text) != size:
            raise UnreadableEventError
        return text


def digest(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def plain(text: bytes, *, compressing: bool) -> Payload:
    return Payload(text, None, len(text) if compressing else None, None)


# The columns of an event and the size of its text, by `Schema.compressing`.
_EVENT = {
    False: "CAST(e.event_json AS BLOB), NULL, NULL, NULL",
    True: "CAST(e.event_json AS BLOB), e.event_zstd, e.event_utf8_bytes,"
          " CAST(e.navigation_json AS BLOB)",
}  # fmt: skip
_SIZE = {False: "length(CAST(e.event_json AS BLOB))",
         True: "coalesce(e.event_utf8_bytes, length(CAST(e.event_json AS BLOB)))"}  # fmt: skip


def sizes(connection: sqlite3.Connection, schema: Schema, session: str) -> list[tuple[int, int]]:
    """Return the sequence number and the size of the text (bytes) of each event of a session."""
    return connection.execute(
        f"SELECT e.seq, {_SIZE[schema.compressing]} FROM transcript_events e"  # noqa: S608
        " WHERE e.session_id = ? ORDER BY e.seq",
        (session,),
    ).fetchall()


def sessions(connection: sqlite3.Connection) -> list[str]:
    """Return the ids of the sessions that have events, even without a row in `session_windows`."""
    rows = connection.execute("SELECT DISTINCT session_id FROM transcript_events")
    return [session for (session,) in rows]


def totals(connection: sqlite3.Connection, schema: Schema) -> dict[str, int]:
    return dict(connection.execute(
        f"SELECT e.session_id, sum(1 + {_SIZE[schema.compressing]}) FROM transcript_events e"  # noqa: S608
        " GROUP BY e.session_id"
    ).fetchall())  # fmt: skip


def payloads(
    connection: sqlite3.Connection, schema: Schema, session: str, first: int, last: int
) -> list[tuple[int, Payload]]:
    """Return the events from sequence number `first` to `last`, both included, in order."""
    rows = connection.execute(
        f"SELECT e.seq, {_EVENT[schema.compressing]} FROM transcript_events e"  # noqa: S608
        " WHERE e.session_id = ? AND e.seq BETWEEN ? AND ? ORDER BY e.seq",
        (session, first, last),
    )
    return [(row[0], Payload(*row[1:])) for row in rows.fetchall()]


def last_message(connection: sqlite3.Connection, schema: Schema, session: str) -> bytes | None:
    """Return the last message of the branch that the model sees, or None without one."""
    row = connection.execute(
        f"SELECT {_EVENT[schema.compressing]} FROM session_transcript_active_events a"  # noqa: S608
        " JOIN transcript_events e"
        " ON e.session_id = a.session_id AND e.seq = a.event_seq"
        " WHERE a.session_id = ? AND a.message_position IS NOT NULL"
        " ORDER BY a.message_position DESC LIMIT 1",
        (session,),
    ).fetchone()
    return Payload(*row).event() if row else None


def open_turn(event: bytes | None) -> str | None:
    """Return why the turn that ends with this message is open, or None."""
    if event is None:
        return "it has no message yet"
    message = (parse(event) or {}).get("message")
    message = message if isinstance(message, dict) else {}
    if (role := message.get("role")) != "assistant":
        names = {"user": "a user message", "toolResult": "a tool result"}
        return f"the last turn is open: {names.get(str(role), 'no answer from the assistant')}"
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    if any(isinstance(block, dict) and block.get("type") == "toolCall" for block in blocks):
        return "the last turn is open: a tool call"
    if message.get("stopReason") not in _STOPS:
        return "the last turn is open: the assistant has not stopped"
    return None
