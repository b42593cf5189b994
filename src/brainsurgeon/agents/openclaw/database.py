"""The databases with the sessions of OpenClaw's agents: paths, layouts, processes, settings.

The standard path is `<state directory>/agents/<agent>/agent/openclaw-agent.sqlite`, and the root is
the directory `agents`. Databases at other paths (`session.store`) are neither read nor written:
this was not tested.
"""

import hashlib
import json
import os
import re
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property
from itertools import count
from typing import Any, TypeGuard

import zstandard
from msgspec import Struct

from brainsurgeon.agents.rows import Database, Layout, Row, UnreadableRowError
from brainsurgeon.errors import BusyError
from brainsurgeon.files import configurations, sqlite
from brainsurgeon.files.processes import lives
from brainsurgeon.files.sqlite import AgentDatabaseError, pragma
from brainsurgeon.model.session_files import Unreadable
from brainsurgeon.planning.row_steps import RowKey

# A layout is known by its parts, not by its number: a release may change the number alone.
# The parts are those of 19 (openclaw 2026.8.1 to 2026.9.4), 21 (2026.9.5) and 23 (2026.9.6).

# The tables that brainsurgeon writes, and the indexes and triggers of these tables: digests of
# their CREATE statements. An update fires these triggers only if it changes `session_id` or
# `session_key`, which brainsurgeon never does.
_WRITTEN: dict[str, set[str | None]] = {
    "table transcript_events": {"06a8be359298", "52dd946f4553"},  # uncompressed, compressed
    "table transcript_rewrite_watermarks": {"ca41667e0ab5"},
    "table session_windows": {"8958d3dda5ef"},
    "index idx_agent_session_windows_conversation": {"5abb09dd6b23"},
    "index idx_agent_session_windows_created_at": {"6766c521719c"},
    "index idx_agent_session_windows_session_key": {"490296eb80ac"},
    "index idx_agent_session_windows_updated_at": {"69ae2a4c832f"},
    "trigger session_windows_canonical_pending_after_insert": {"a34ef27b43e8", None},
    "trigger session_windows_canonical_pending_after_update": {"43d665df1003", None},
    "trigger session_windows_canonical_pending_after_delete": {"a7fc5a118b39", None},
}
_EVENTS = "transcript_events"
_WRITTEN_TABLES = (_EVENTS, "transcript_rewrite_watermarks", "session_windows")

# The tables that are read: digests of the names of their columns.
_READ = {
    "schema_meta": "c5cf3bd30470",
    "session_transcript_active_events": "96290ae9df90",
    "session_transcript_index_state": "d7ba9e12a60f",
    "session_nodes": "6d4e421d262a",
    "session_pending_inputs": "5d74c2cf1e90",
    "context_engine_turn_outbox": "ec2f1434de07",
    "session_transcript_archives": "9638a7142945",
    "session_transcript_cold_archives": "403209bbb064",
}
_ABSENT_BEFORE_21 = "session_transcript_cold_archives"
# Columns that may be missing. A migration from layout 19 to 23 does not add the first.
_OPTIONAL = {"legacy_acp_migration_json", "consumed_event_id"}


class Schema(Layout, frozen=True):  # of 2026.7, `openclaw doctor` makes empty ones
    compressing: bool = False  # events can be compressed, and have more columns


def examine(connection: sqlite3.Connection) -> Schema:
    version, meta = int(pragma(connection, "user_version")), None
    try:
        meta = connection.execute(
            "SELECT role, schema_version, app_version FROM schema_meta WHERE meta_key = 'primary'"
        ).fetchone()
    except AgentDatabaseError as error:
        if error.code != "SQLITE_ERROR":  # this code: no such table or column
            raise
    differences = dict(_differences(connection)) if meta and meta[0] == "agent" else {}
    reason = _read_only_reason(connection, version, meta, differences)
    tables = "SELECT 1 FROM sqlite_master WHERE name IN ('transcript_events', 'session_windows')"
    return Schema(
        version, int(pragma(connection, "schema_version")), meta[2] if meta else None, reason,
        tuple(f"{part}: {made}" for part, made in differences.items()),
        compressing="event_zstd" in _columns(connection, _EVENTS),
        empty=connection.execute(tables).fetchone() is None,
    )  # fmt: skip


def _read_only_reason(
    connection: sqlite3.Connection, version: int, meta: tuple[str, int, str | None] | None,
    differences: Iterable[str],
) -> str | None:  # fmt: skip
    if meta is None or meta[0] != "agent":
        return "not the database of an OpenClaw agent"
    layout = f"its layout, version {version} (OpenClaw {meta[2] or 'unknown'}),"
    if meta[1] != version:
        return f"{layout} is recorded as version {meta[1]}, too; the database is only read"
    if pragma(connection, "encoding") != "UTF-8":
        return "its text encoding is not UTF-8; the database is only read"
    if parts := ", ".join(differences):
        return f"{layout} differs from the known ones in {parts}; the database is only read"
    return None


def _differences(connection: sqlite3.Connection) -> Iterator[tuple[str, str]]:
    """Yield each part of the layout that is in no known one, and its definition."""
    rows = connection.execute(
        # SQLite keeps the name of a trigger's table as the trigger spells it.
        "SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL AND lower(tbl_name) IN"
        " (SELECT value FROM json_each(?)) ORDER BY type, name", (json.dumps(_WRITTEN_TABLES),)
    )  # fmt: skip
    made = {f"{kind} {name}": sql for kind, name, sql in rows.fetchall()}
    for part in {**_WRITTEN, **made}:
        if (_digest(made[part]) if part in made else None) not in _WRITTEN.get(part, ()):
            yield part, " ".join(made.get(part, "missing").split())
    for table, known in _READ.items():
        names = sorted(_columns(connection, table))
        if _digest(" ".join(each for each in names if each not in _OPTIONAL)) != known and (
            names or table != _ABSENT_BEFORE_21
        ):
            yield f"table {table}", f"({', '.join(names)})" if names else "missing"


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,))
    return {name for (name,) in rows}


def _digest(text: str) -> str:
    plain = re.sub(r"\s+", " ", text.replace('"', "").lower())
    plain = re.sub(r"\s*([(),])\s*", r"\1", plain).strip()
    return hashlib.sha256(plain.encode()).hexdigest()[:12]


# An event is stored as text. Layout 23 can also store it compressed with zstd, and with navigation
# data (`navigation_json`). Compression is optional for texts of any size, and OpenClaw derives
# missing navigation data from the text (openclaw 2026.9.6, `prepareTranscriptPayload` and the
# table's constraints). So brainsurgeon writes a changed text uncompressed and without navigation
# data, also if it is the original again.

LARGEST_COMPRESSED = 4 << 20  # bytes of the longest event that OpenClaw compresses
_decompressor = zstandard.ZstdDecompressor()


class Payload(Row, frozen=True):
    """The four columns that hold one event; the last three are None if the layout lacks them."""

    text: bytes | None
    packed: bytes | None
    size: int | None
    navigation: bytes | None

    def line(self) -> bytes:
        return self._unpacked if self.text is None else self.text

    @cached_property
    def _unpacked(self) -> bytes:
        size = self.size or 0
        if self.packed is None or not 0 < size <= LARGEST_COMPRESSED:
            raise UnreadableRowError
        try:
            text = _decompressor.decompress(self.packed, max_output_size=size)
        except zstandard.ZstdError as error:
            raise UnreadableRowError from error
        if len(text) != size:
            raise UnreadableRowError
        return text


def plain(text: bytes, *, compressing: bool) -> Payload:
    return Payload(text, None, len(text) if compressing else None, None)


_EVENT = {
    False: "CAST(e.event_json AS BLOB), NULL, NULL, NULL",
    True: "CAST(e.event_json AS BLOB), e.event_zstd, e.event_utf8_bytes,"
          " CAST(e.navigation_json AS BLOB)",
}  # fmt: skip
_SIZE = {False: "length(CAST(e.event_json AS BLOB))",
         True: "coalesce(e.event_utf8_bytes, length(CAST(e.event_json AS BLOB)))"}  # fmt: skip


def sizes(connection: sqlite3.Connection, layout: Schema, session: str) -> list[tuple[RowKey, int]]:
    return connection.execute(
        f"SELECT e.seq, {_SIZE[layout.compressing]} FROM transcript_events e"  # noqa: S608
        " WHERE e.session_id = ? ORDER BY e.seq",
        (session,),
    ).fetchall()


def totals(connection: sqlite3.Connection, layout: Schema) -> dict[str, int]:
    return dict(connection.execute(
        f"SELECT e.session_id, sum(1 + {_SIZE[layout.compressing]}) FROM transcript_events e"  # noqa: S608
        " GROUP BY e.session_id"
    ).fetchall())  # fmt: skip


def payloads(
    connection: sqlite3.Connection, layout: Schema, session: str, keys: Sequence[RowKey]
) -> list[tuple[RowKey, Payload]]:
    rows = connection.execute(
        f"SELECT e.seq, {_EVENT[layout.compressing]} FROM transcript_events e"  # noqa: S608
        " WHERE e.session_id = ? AND e.seq BETWEEN ? AND ? ORDER BY e.seq",
        (session, keys[0], keys[-1]),
    )
    return [(row[0], Payload(*row[1:])) for row in rows.fetchall()]


def messages_backward(
    connection: sqlite3.Connection, layout: Schema, session: str
) -> Iterator[bytes]:
    """Yield the messages on the active branch, last first. Raises UnreadableRowError."""
    for number in count():
        if (event := _message(connection, layout, session, number)) is None:
            return
        yield event


def _message(
    connection: sqlite3.Connection, layout: Schema, session: str, later: int
) -> bytes | None:
    row = connection.execute(
        f"SELECT {_EVENT[layout.compressing]} FROM session_transcript_active_events a"  # noqa: S608
        " JOIN transcript_events e"
        " ON e.session_id = a.session_id AND e.seq = a.event_seq"
        " WHERE a.session_id = ? AND a.message_position IS NOT NULL"
        " ORDER BY a.message_position DESC LIMIT 1 OFFSET ?",
        (session, later),
    ).fetchone()
    return Payload(*row).line() if row else None


NAME = "openclaw-agent.sqlite"
# States in `worker_session_placements` in which no other machine works on the session.
_HERE = ("local", "reclaimed", "failed")
_FOR_EVER = 9_000_000_000_000_000  # milliseconds since 1970, later than any clock


def _state_directory(path: str) -> str:
    return os.path.normpath(os.path.join(path, *[os.pardir] * 4))


def databases(root: str) -> Iterator[Database | Unreadable]:
    """Yield each database below a root, or Unreadable if it is not a file. Follows no links."""
    top = os.path.realpath(root)
    try:
        agents = sorted(os.listdir(top))
    except OSError:
        return  # `sessions.discovery` reports the root
    for agent in agents:
        above = os.path.join(top, agent)
        directory = os.path.join(above, "agent")
        database = Database(top, agent, above, os.path.join(directory, NAME))
        try:
            outer, inner, file = (
                os.lstat(path).st_mode
                for path in (database.agent_directory, directory, database.path)
            )
        except OSError:
            continue
        if stat.S_ISDIR(outer) and stat.S_ISDIR(inner):
            is_file = stat.S_ISREG(file)
            yield database if is_file else Unreadable(top, database.path, "not a plain file")


def misplaced(path: str) -> str | None:
    """Return why its agent's sessions may be elsewhere, or others' sessions here, or None."""
    own = path.split(os.sep)[-3]
    listed = registered(_state_directory(path)) or ()
    paths = {each for agent, each in listed if agent == own}
    if paths and paths != {path}:
        return "OpenClaw keeps sessions of this agent elsewhere (session.store)"
    if any(agent != own and each == path for agent, each in listed):
        return "OpenClaw keeps the sessions of several agents in this database"
    store = selected(path).store
    standard = "/agents/{agentId}/sessions/sessions.json"
    if store and not store.replace("\\", "/").endswith(standard):
        return "OpenClaw keeps its sessions elsewhere (session.store)"
    return None


# `<state directory>/state/openclaw.sqlite` lists the path of each agent's database. It also lists
# which processes have a database open, since when, and when each process started. (openclaw
# 2026.9.6, `dist/openclaw-state-db-read-connection-*.mjs`; seen with 2026.8.1 to 2026.9.6)


class DatabaseUse(Struct, frozen=True):
    # When living processes opened the database (milliseconds since 1970). None if unknown.
    opened_at: tuple[int, ...] | None
    maintained: float = 0.0  # until when OpenClaw's doctor may work on it (seconds since 1970)
    elsewhere: frozenset[str] = frozenset()  # sessions of workers on other machines

    @property
    def is_closed(self) -> bool:
        return self.opened_at == ()


def registered(state_directory: str) -> list[tuple[str, str]] | None:
    with suppress(OSError, BusyError), _state(state_directory) as connection:
        rows = connection.execute("SELECT agent_id, path FROM agent_databases").fetchall()
        if all(isinstance(agent, str) and _is_path(path) for agent, path in rows):
            return [
                (agent, os.path.realpath(os.path.join(state_directory, path)))
                for agent, path in sorted(rows)
            ]
    return None


def presence(path: str, *, open_here: bool = False) -> DatabaseUse:
    state_directory = _state_directory(path)
    try:
        with _state(state_directory) as connection:
            known = _listed_presence(connection, state_directory, path)
    except (OSError, BusyError):
        known = DatabaseUse(None)
    if open_here or known.opened_at:
        return known
    if sqlite.mode_in_this_thread(path) is not None or sqlite.held_open(path):
        # It is open here, or in a process that is not listed, perhaps in a container.
        return DatabaseUse(None, known.maintained, known.elsewhere)
    return known


def open_database(path: str) -> AbstractContextManager[sqlite3.Connection]:
    return sqlite.reading(path, in_use=not presence(path).is_closed)


def _state_path(state_directory: str) -> str:
    return os.path.join(state_directory, "state", "openclaw.sqlite")


def _state(state_directory: str) -> AbstractContextManager[sqlite3.Connection]:
    path = _state_path(state_directory)
    return sqlite.reading(path, in_use=sqlite.held_open(path))


def _listed_presence(
    connection: sqlite3.Connection, state_directory: str, path: str
) -> DatabaseUse:
    leases = connection.execute(
        "SELECT path, owner_pid, owner_start_time, opened_at FROM agent_database_leases"
    ).fetchall()
    maintenance = connection.execute(
        "SELECT expires_at FROM state_leases WHERE scope = 'core:agent-database-maintenance'"
    )
    ends = [end if isinstance(end, int) else _FOR_EVER for (end,) in maintenance]
    query = "SELECT session_id, state FROM worker_session_placements"
    known = sqlite.has_table(connection, "worker_session_placements")
    placements = connection.execute(query) if known else ()
    elsewhere = frozenset(session for session, state in placements if state not in _HERE)
    opened_at = _opened_at(leases, state_directory, os.path.realpath(path))
    return DatabaseUse(opened_at, max(ends, default=0) / 1000, elsewhere)


def _opened_at(
    leases: Iterable[tuple[Any, ...]], state_directory: str, path: str
) -> tuple[int, ...] | None:
    opened_at = []
    for leased, pid, started, since in leases:
        if not _is_path(leased):
            return None
        if os.path.realpath(os.path.join(state_directory, leased)) == path:
            if not (isinstance(pid, int) and pid > 0 and isinstance(since, int)):
                return None
            if lives(pid, started):
                opened_at.append(since)
    return tuple(opened_at)


def _is_path(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and "\0" not in value


# OpenClaw's configuration is JSON5. Comments, unquoted keys, single quotes and trailing commas are
# converted to JSON, and words such as `NaN` to strings. Python's JSON parser then refuses other
# features. The library `json5` takes 30 times as long (half a second for 45 KB).
_PIECE = r"""(?xs)
      (?P<space>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<word>[A-Za-z_$][\w$]*)
    | (?P<other>[{}\[\]:,]|[-+.\w]+)
    """
_INNER = {"\\'": "'", '"': '\\"', "\\\n": ""}  # replacements inside a JSON5 string


def loads(text: str) -> object:
    """Parse the common features of JSON5; raise ValueError for all others."""
    pieces: list[str] = []
    matches = list(re.finditer(_PIECE, text))
    if "".join(match[0] for match in matches) != text:
        raise ValueError("not JSON5")
    for match in matches:
        piece = match[0]
        if match.lastgroup == "space":
            continue
        if piece in ("}", "]") and pieces and pieces[-1] == ",":
            pieces.pop()
        if match.lastgroup == "string":
            inner = re.sub(r'(?s)\\.|"', lambda part: _INNER.get(part[0], part[0]), piece[1:-1])
            piece = f'"{inner}"'
        elif match.lastgroup == "word" and piece not in ("true", "false", "null"):
            piece = f'"{piece}"'
        pieces.append(piece)
    return json.loads(" ".join(pieces), strict=False)  # JSON5 allows tabs in strings


# `session.store` moves the sessions elsewhere. `plugins.slots.contextEngine` selects another
# context engine, which may store turns itself. (openclaw 2026.9.6, `dist/slots-*.mjs`,
# `dist/session-sqlite-target-*.mjs`)


class Selected(Struct, frozen=True):
    store: str | None = None  # None: OpenClaw's own
    engine: str | None = None  # None: OpenClaw's own
    unreadable: str | None = None  # why both are unknown


def selected(path: str) -> Selected:
    state_directory = _state_directory(path)
    try:
        config = loads(configurations.read(config_path(state_directory)).decode())
    except FileNotFoundError:
        # If the state database is missing, too, perhaps only `agents` is mounted.
        known = os.path.exists(_state_path(state_directory))
        return Selected(unreadable=None if known else "its configuration cannot be found")
    except (OSError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        return Selected(unreadable="its configuration cannot be read")
    session, plugins = _table(config, "session"), _table(config, "plugins")
    slots = _table(plugins, "slots")
    if any("$include" in table for table in (config, session, plugins, slots)):
        return Selected(unreadable="its configuration includes other files")
    engine = _word(slots.get("contextEngine"))
    own = engine is None or engine.lower() in ("legacy", "none")  # OpenClaw's own engine
    return Selected(_word(session.get("store")), None if own else engine)


def config_path(state_directory: str) -> str:
    # OPENCLAW_CONFIG_PATH counts only for this user's own state directory.
    named = os.environ.get("OPENCLAW_CONFIG_PATH", "").strip()
    home = os.environ.get("OPENCLAW_STATE_DIR", "").strip() or "~/.openclaw"
    if named and os.path.realpath(os.path.expanduser(home)) == os.path.realpath(state_directory):
        return os.path.abspath(os.path.expanduser(named))
    return os.path.join(state_directory, "openclaw.json")


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    table = value.get(name)
    return table if isinstance(table, dict) else {}


def _word(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
