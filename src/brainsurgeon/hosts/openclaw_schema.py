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

if TYPE_CHECKING:
    from collections.abc import Iterator

VERSIONS = (19, 21, 23)
COMPRESSING = 23
"""The first version whose events may be stored compressed."""

_PLAIN, _COMPRESSED = "06a8be359298", "52dd946f4553"
_WRITTEN = {
    "transcript_events": {19: _PLAIN, 21: _PLAIN, 23: _COMPRESSED},
    "transcript_rewrite_watermarks": dict.fromkeys(VERSIONS, "ca41667e0ab5"),
    "session_windows": dict.fromkeys(VERSIONS, "8958d3dda5ef"),
}
"""The tables that are written: digest of the statement that made each, by version."""

_TRIGGERS = {
    "session_windows_canonical_pending_after_insert": "a34ef27b43e8",
    "session_windows_canonical_pending_after_update": "43d665df1003",
    "session_windows_canonical_pending_after_delete": "a7fc5a118b39",
}
"""The triggers on the written tables; they fire on `session_id` and `session_key` only."""

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
"""The tables that are asked: their columns in every known version."""
_SOMETIMES = {
    "session_nodes": {"legacy_acp_migration_json"},
    "session_pending_inputs": {"consumed_event_id"},
}
"""Columns that some of the known versions have, too."""


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
