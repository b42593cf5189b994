"""Sessions in opencode's database: rows of `part`, of which only the column `data` is changed.

opencode reads all rows again before each request (1.18.33). So a change takes effect at once, and a
restore need not wait until the session is idle. No time and no row of the event log is changed.
"""

import hashlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from brainsurgeon.agents import rows
from brainsurgeon.agents.opencode.format import SOON, MessageFacts, Opencode, left_open
from brainsurgeon.agents.opencode.home import name_of
from brainsurgeon.files import sqlite
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.formats import splice
from brainsurgeon.model.entries import ID
from brainsurgeon.model.session_files import NotIdleError
from brainsurgeon.planning.row_steps import RowKey

# Digests of the names of all migrations: opencode 1.18.33, and Kilo CLI 7.7.9.
_MIGRATIONS = ("1834f64f8b0d", "4396791e2f1b")
# The columns of the tables that are read. No migration has changed the first two yet.
_COLUMNS = {
    "part": "id message_id session_id time_created time_updated data",
    "message": "id session_id time_created time_updated data",
    "session": "id parent_id time_created time_updated",
    "session_message": "session_id",
}
SECOND = "opencode 2 has messages of it in another table (session_message), so nothing is extracted"


def examine(connection: sqlite3.Connection) -> rows.Layout:
    names = "user_version", "schema_version"
    version, cookie = (int(sqlite.pragma(connection, name)) for name in names)
    if not sqlite.has_table(connection, "session"):
        return rows.Layout(version, cookie, None, None, empty=True)
    differences = tuple(_differences(connection))
    parts = ", ".join(part.partition(":")[0] for part in differences)
    reason = f"its layout is unknown: {parts}; the database is only read" if differences else None
    return rows.Layout(version, cookie, None, reason, differences)


def _differences(connection: sqlite3.Connection) -> Iterator[str]:
    """Yield each part of the layout that is not known, and what it is."""

    def names(query: str, *values: str) -> list[str]:
        return [str(name) for (name,) in connection.execute(query, values).fetchall()]

    known = sqlite.has_table(connection, "migration")
    done = names("SELECT id FROM migration ORDER BY id") if known else ["none"]
    if hashlib.sha256(" ".join(done).encode()).hexdigest()[:12] not in _MIGRATIONS:
        yield f"migrations up to {done[-1]}: {len(done)} of them"
    for table, columns in _COLUMNS.items():
        found, wanted = names("SELECT name FROM pragma_table_xinfo(?)", table), {*columns.split()}
        if wanted - {*found} or ("data" in wanted and len(found) > len(wanted)):
            yield f"table {table}: ({', '.join(found)})"
    # What a trigger does is unknown. No view may have the name of the table that is written.
    others = "SELECT type || ' ' || name FROM sqlite_master WHERE lower(tbl_name) = ? AND type > ?"
    yield from names(others, "part", "table")


class Conversation(rows.Recorded, frozen=True):
    parts: int
    messages: int
    changed: int  # the newest time (milliseconds) of its rows
    is_second: int  # 1 if it has messages in the table of opencode 2

    def newest(self, own_ms: int | None) -> int:  # noqa: ARG002  our changes leave no time
        return self.changed


_SESSION = """
    SELECT s.id,
      (SELECT count(*) FROM part p WHERE p.session_id = s.id),
      (SELECT count(*) FROM message m WHERE m.session_id = s.id),
      max(s.time_updated,
        coalesce((SELECT max(p.time_updated) FROM part p WHERE p.session_id = s.id), 0),
        coalesce((SELECT max(m.time_updated) FROM message m WHERE m.session_id = s.id), 0)),
      EXISTS (SELECT 1 FROM session_message o WHERE o.session_id = s.id)
    FROM session s"""


def conversations(connection: sqlite3.Connection, where: str = "", *of: str) -> list[Conversation]:
    query = f"{_SESSION} {where} ORDER BY s.time_created, s.id"
    found = connection.execute(query, of).fetchall()
    return [Conversation(session, session, *numbers) for session, *numbers in found]


# Of a role: the fields of MessageFacts, then the model.
_NEWEST = """
    SELECT id, json_extract(data, '$.parentID'), json_extract(data, '$.finish'),
      json_extract(data, '$.time.completed') IS NOT NULL, json_extract(data, '$.error.name'),
      EXISTS (SELECT 1 FROM part p WHERE p.message_id = m.id
        AND json_extract(p.data, '$.state.status') IN ('pending', 'running')),
      EXISTS (SELECT 1 FROM part p WHERE p.message_id = m.id
        AND json_extract(p.data, '$.type') = 'step-start'), json_extract(data, '$.model.modelID')
    FROM message m WHERE session_id = ? AND json_extract(data, '$.role') = ?
    ORDER BY time_created DESC, id DESC LIMIT 1"""
# What a line begins with: columns of the row and of its message's.
_ROW = """json_object(
    'id', p.id, 'session', p.session_id, 'message', m.id, 'created', m.time_created,
    'role', json_extract(m.data, '$.role'), 'parent', json_extract(m.data, '$.parentID'),
    'finish', json_extract(m.data, '$.finish'),
    'completed', json_extract(m.data, '$.time.completed') IS NOT NULL,
    'error', json_extract(m.data, '$.error.name'),
    'summary', json_extract(m.data, '$.summary') IS 1,
    'model', coalesce(json_extract(m.data, '$.modelID'), json_extract(m.data, '$.model.modelID')),
    'beside', {})"""
# Whether the message of a part with thinking also has a text or a call.
_BESIDE = """CASE WHEN p.data LIKE '{"type":"reasoning"%' THEN EXISTS (
    SELECT 1 FROM part o WHERE o.message_id = m.id AND (
      o.data LIKE '{"type":"tool"%' OR o.data LIKE '{"type":"text","text":"_%'
      AND o.data NOT LIKE '{"type":"text","text":""%')) ELSE 0 END"""
# With CROSS JOIN, the order of the tables is that of the loops.
_ORDER = " ORDER BY m.time_created, m.id, p.id"
_SIZES = f"""SELECT p.id, length(CAST({_ROW.format(0)} AS BLOB)),
    length(CAST(p.data AS BLOB)),
    CASE WHEN p.data LIKE '%}}' AND instr(p.data, '[[extracted-')
      AND (instr(p.data, '"attachments":[]') OR instr(p.data, '"synthetic":true'))
    THEN CAST(p.data AS BLOB) END FROM message m CROSS JOIN part p ON p.message_id = m.id"""  # noqa: S608
_FETCH = f"""SELECT p.id, CAST({_ROW.format(_BESIDE)} AS BLOB), CAST(p.data AS BLOB)
    FROM part p CROSS JOIN message m ON m.id = p.message_id
    WHERE p.session_id = ? AND p.id IN """  # noqa: S608

_UPDATE = """UPDATE part SET data = CAST(? AS TEXT)
    WHERE id = ? AND session_id = ? AND data IS CAST(? AS TEXT)"""

_HEAD, _MIDDLE, _NONE = b'{"row":', b',"part":', b"[]"
_BLOCK, _SYNTHETIC = b'{"type":"text","text":"%b"}', b',"synthetic":true}'
# Our fields, which are behind the part in a line, but in it in the database.
_FIELDS = re.compile(rb'(?:,"_(?:extractable|restored|redacted)":(?:"[^"\\]*"|true|false|\d+))+\Z')
# A placeholder at the end of a result. It names the attachments, which are an empty list then.
_SUFFIX = re.compile(rb"(?<!\\)((?:\\\\)*)\\n(\[\[extracted-" + ID.encode() + rb'\]\])"\Z')
_SHOWN = re.compile(rb'{"type":"text","text":"()(\[\[extracted-' + ID.encode() + rb'\]\])"}\Z')
_PLACES = ("state", "attachments"), ("state", "output")


class Part(rows.Row, frozen=True):
    """A row of `part`. `row` is what its line begins with.

    opencode needs a list of attachments: an empty one, if the placeholder is behind the result. In
    the line, the placeholder is in the place of the list. A user's picture becomes a text that is
    `synthetic`: opencode sends it, but neither shows it nor puts it into a reverted prompt.
    """

    row: bytes
    data: bytes

    @property
    def head(self) -> bytes:
        return _HEAD + self.row + _MIDDLE

    def line(self) -> bytes:
        if not self.data.endswith(b"}"):
            raise rows.UnreadableRowError
        part, fields = _divided(self.data[:-1])
        return self.head + _with_block(part + b"}") + fields + b"}"

    @cached_property
    def digest(self) -> bytes:
        return rows.digest(self.data)


def _divided(text: bytes) -> tuple[bytes, bytes]:
    """Divide a text before the fields at its end."""
    found = _FIELDS.search(text, max(0, len(text) - 200))  # all three are shorter
    return (text[: found.start()], found[0]) if found else (text, b"")


def _with_block(part: bytes) -> bytes:
    """Put the placeholder of attachments in the place of their list; see `Part`."""
    if _SHOWN.fullmatch(plain := part.removesuffix(_SYNTHETIC) + b"}"):
        return plain
    if (found := _found(part, _NONE, 1, _SUFFIX)) is None:
        return part
    attachments, (_, end), match = found
    cut = match.start() + len(match[1]), end - 1, b""
    return splice.splice(part, [(*attachments, _BLOCK % match[2]), cut])


def _without_block(part: bytes) -> bytes:
    """Put the placeholder of attachments behind the result; see `Part`."""
    if _SHOWN.fullmatch(part):
        return part[:-1] + _SYNTHETIC
    if (found := _found(part, b"{", 0, _SHOWN)) is None:
        return part
    attachments, (_, end), match = found
    return splice.splice(part, [(*attachments, _NONE), (end - 1, end - 1, rb"\n" + match[2])])


def _found(
    part: bytes, beginning: bytes, at: int, pattern: re.Pattern[bytes]
) -> tuple[splice.Span, splice.Span, re.Match[bytes]] | None:
    """Return where attachments that begin so and the result are, and our placeholder in one."""
    if b'"attachments":' + beginning not in part or b"[[extracted-" not in part:
        return None
    spans, _ = splice.locate_sure(part, _PLACES)
    if len(spans) < len(_PLACES):
        return None
    attachments, result = (spans[path] for path in _PLACES)
    match = pattern.search(part, *(attachments, result)[at])
    plain = part.startswith(beginning, attachments[0]) and part.startswith(b'"', result[0])
    return (attachments, result, match) if match and plain else None


def _size(row: int, data: int, whole: bytes | None) -> int:
    size = len(Part(b"", whole).line()) if whole else len(_HEAD + _MIDDLE) + 1 + data
    return row + size


class OpenConversation(rows.OpenRows):
    recorded: Conversation

    @property
    def only_restores(self) -> str | None:
        # opencode 2 reads no `part`, and earlier releases read what was there before.
        return SECOND if self.recorded.is_second else None

    @property
    def model(self) -> str | None:
        return str(prompt[-1]) if (prompt := self._newest("user")) else None

    def check_turn(self, _open_turn: str | None, _quiet: float, now: float) -> None:
        # Lines do not tell: the newest message may have no part.
        prompt, answer = self._newest("user"), self._newest("assistant")
        silent, newest = now - self.recorded.changed / 1000, answer and MessageFacts(*answer[:-1])
        if left := left_open(prompt and prompt[0], newest, silent):
            until = now - silent + SOON if silent < SOON else None
            raise NotIdleError(left, until, in_database=True)

    def _newest(self, role: str) -> Any:
        return self.database.execute(_NEWEST, (self.recorded.session, role)).fetchone()

    def row_with(self, before: rows.Row, text: bytes) -> Part:
        old = before if isinstance(before, Part) else Part(b"", b"")
        part, fields = _divided(text.removeprefix(old.head)[:-1])
        same = part[:-1]
        if not old.data.startswith(same) or old.data.startswith(same + _SYNTHETIC[:-1]):
            part = _without_block(part)  # else, it may be a text of the user
        after = Part(old.row, part[:-1] + fields + b"}")
        if not text.startswith(old.head) or after.line() != text:
            raise RefusedError("its message would change")
        return after

    def write(self, edits: Sequence[rows.RowEdit], _now_ms: int) -> tuple[Conversation, None]:
        for edit in edits:
            before, after = [row.data for row in (edit.before, edit.after) if isinstance(row, Part)]
            row = after, edit.key, self.recorded.session, before
            if self.database.execute(_UPDATE, row).rowcount != 1:
                raise RefusedError("a row changed meanwhile")
        return self.recorded, None


class OpencodeDatabases(rows.Databases):
    form, open_rows, rereads = Opencode(), OpenConversation, True
    note = "pruning saves context, not disk: the database never shrinks, and keeps copies"

    def __init__(self, program: str) -> None:
        self.program = program

    def name(self, path: str) -> str | None:
        return name_of(self.program, path)

    layout, sessions = staticmethod(examine), staticmethod(conversations)

    def recorded(self, connection: sqlite3.Connection, session: str) -> Conversation | None:
        return next(iter(conversations(connection, "WHERE s.id = ?", session)), None)

    def names(self, connection: sqlite3.Connection) -> list[str]:
        return [str(name) for (name,) in connection.execute("SELECT id FROM session").fetchall()]

    def sizes(
        self, connection: sqlite3.Connection, _: rows.Layout, session: str
    ) -> list[tuple[RowKey, int]]:
        found = connection.execute(f"{_SIZES} WHERE m.session_id = ?{_ORDER}", (session,))
        return [(key, _size(*columns)) for key, *columns in found]

    def fetch(
        self, connection: sqlite3.Connection, _: rows.Layout, session: str, keys: Sequence[RowKey],
    ) -> list[tuple[RowKey, Part]]:  # fmt: skip
        query = f"{_FETCH} ({', '.join('?' * len(keys))}){_ORDER}"
        found = connection.execute(query, (session, *keys)).fetchall()
        return [(key, Part(row, data)) for key, row, data in found]
