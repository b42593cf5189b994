"""Sessions in opencode's database: rows of `part`, of which only the column `data` is changed.

opencode reads all rows again before each request (1.18.33). So a change takes effect at once, and a
restore need not wait until the session is idle. No time and no row of the event log is changed.
"""

import hashlib
import os
import re
import sqlite3
import stat
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property

from brainsurgeon.agents.opencode.format import MessageFacts, Opencode, left_open
from brainsurgeon.agents.opencode.home import is_database
from brainsurgeon.agents.rows import (
    Database,
    Databases,
    Layout,
    OpenRows,
    Recorded,
    Row,
    RowEdit,
    UnreadableRowError,
    digest,
)
from brainsurgeon.files import sqlite
from brainsurgeon.files.reading import RefusedError
from brainsurgeon.files.sqlite import pragma
from brainsurgeon.formats import splice
from brainsurgeon.model.entries import ID
from brainsurgeon.model.session_files import NotIdleError, SessionFile, Unreadable
from brainsurgeon.planning.row_steps import RowKey

# Digests of the names of all migrations: opencode 1.18.33, and Kilo CLI 7.7.9.
_MIGRATIONS = ("1834f64f8b0d", "4396791e2f1b")
# The columns of the tables that are read. No migration has changed the first two yet.
_COLUMNS = {
    "part": "id message_id session_id time_created time_updated data",
    "message": "id session_id time_created time_updated data",
    "session": "id parent_id version time_created time_updated",
    "session_message": "session_id",
}
SECOND = "opencode 2 keeps its messages in another table (session_message), which is never changed"


def examine(connection: sqlite3.Connection) -> Layout:
    version, names = int(pragma(connection, "user_version")), list[str]()
    if sqlite.has_table(connection, "migration"):
        rows = connection.execute("SELECT id FROM migration ORDER BY id").fetchall()
        names = [str(name) for (name,) in rows]
    differences = tuple(_differences(connection, names))
    reason, program = None, None
    if differences:
        parts = ", ".join(part.partition(":")[0] for part in differences)
        reason = f"its layout differs from the known ones in {parts}; the database is only read"
    elif pragma(connection, "encoding") != "UTF-8":
        reason = "its text encoding is not UTF-8; the database is only read"
    if not differences:
        newest = connection.execute(
            "SELECT version FROM session ORDER BY time_updated DESC LIMIT 1"
        ).fetchone()
        program = newest and str(newest[0])
    return Layout(
        version, int(pragma(connection, "schema_version")), program, reason, differences,
        empty=not sqlite.has_table(connection, "session"),
    )  # fmt: skip


def _differences(connection: sqlite3.Connection, migrations: Sequence[str]) -> Iterator[str]:
    """Yield each part of the layout that is not known, and what it is."""
    if _digest(migrations) not in _MIGRATIONS:
        newest = migrations[-1] if migrations else "none"
        yield f"its migrations (the newest is {newest}): {len(migrations)} of them"
    for table, known in _COLUMNS.items():
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        names, wanted = [str(name) for (name,) in rows], known.split()
        if set(wanted) - {*names} or (table in ("part", "message") and names != wanted):
            yield f"table {table}: ({', '.join(names)})"
    made = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'part'"
    )
    yield from (f"trigger {name}: {sql}" for name, sql in made.fetchall())


def _digest(names: Iterable[str]) -> str:
    return hashlib.sha256(" ".join(names).encode()).hexdigest()[:12]


class Conversation(Recorded, frozen=True):
    """What the database says about a session."""

    parts: int
    messages: int
    changed: int  # the newest time (milliseconds) of its rows
    is_second: bool  # its messages are in the table of opencode 2

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


def conversations(connection: sqlite3.Connection) -> list[Conversation]:
    rows = connection.execute(f"{_SESSION} ORDER BY s.time_created, s.id").fetchall()
    return [_conversation(*row) for row in rows]


def conversation(connection: sqlite3.Connection, session: str) -> Conversation | None:
    row = connection.execute(f"{_SESSION} WHERE s.id = ?", (session,)).fetchone()
    return _conversation(*row) if row else None


def _conversation(
    session: str, parts: int, messages: int, changed: int, second: int
) -> Conversation:
    return Conversation(session, session, parts, messages, changed, bool(second))


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
# The order of the tables is that of the loops (CROSS JOIN).
_FROM = " FROM message m CROSS JOIN part p ON p.message_id = m.id"
_ORDER = " ORDER BY m.time_created, m.id, p.id"
_SIZES = (
    f"SELECT p.session_id, p.id, length(CAST({_ROW.format(0)} AS BLOB)),"
    " length(CAST(p.data AS BLOB)),"
    " CASE WHEN instr(p.data, '[[extracted-') AND instr(p.data, '\"attachments\":[]')"
    f" THEN CAST(p.data AS BLOB) END{_FROM}"
)
_FETCH = f"SELECT p.id, CAST({_ROW.format(_BESIDE)} AS BLOB), CAST(p.data AS BLOB)"

_HEAD, _MIDDLE = b'{"row":', b',"part":'
_NONE, _BLOCK = b"[]", b'{"type":"text","text":"%b"}'
_FRAME = len(_HEAD + _MIDDLE) + 1
_LONGER = len(_BLOCK % b"") - len(rb"\n") - len(_NONE)  # a line with a placeholder for attachments
# Our fields, which are behind the part in a line, but in it in the database.
_FIELDS = re.compile(
    rb'(?:,"_(?:extractable|restored|redacted)":(?:"[^"\\]*"|true|false|[0-9]+))+\Z'
)
# A placeholder at the end of a result. It names the attachments, which are an empty list then.
_SUFFIX = re.compile(rb"(?<!\\)((?:\\\\)*)\\n(\[\[extracted-" + ID.encode() + rb'\]\])"\Z')
_SHOWN = re.compile(rb'{"type":"text","text":"(\[\[extracted-' + ID.encode() + rb'\]\])"}\Z')
_PLACES = (("state", "attachments"), ("state", "output"))


class Part(Row, frozen=True):
    """A row of `part`. `row` is what its line begins with.

    opencode requires a list of attachments. So if they are extracted, the list is empty, and their
    placeholder is behind the result. In the line, it is in the place of the list.
    """

    row: bytes
    data: bytes

    @property
    def head(self) -> bytes:
        return _HEAD + self.row + _MIDDLE

    def line(self) -> bytes:
        return self._line

    @cached_property
    def _line(self) -> bytes:
        if not self.data.endswith(b"}"):
            raise UnreadableRowError
        found = _FIELDS.search(self.data, 0, len(self.data) - 1)
        fields = found[0] if found else b""
        part = self.data[: len(self.data) - 1 - len(fields)] + b"}"
        return self.head + _with_block(part) + fields + b"}"

    @cached_property
    def digest(self) -> bytes:
        return digest(self.data)


def _with_block(part: bytes) -> bytes:
    """Put the placeholder of attachments in the place of their list."""
    places = _places(part, _NONE)
    if places is None:
        return part
    attachments, (start, end) = places
    found = _SUFFIX.search(part, start, end)
    if found is None:
        return part
    return splice.splice(part, [
        (*attachments, _BLOCK % found[2]), (found.start() + len(found[1]), end - 1, b""),
    ])  # fmt: skip


def _without_block(part: bytes) -> bytes:
    """Put the placeholder of attachments behind the result."""
    places = _places(part, b"{")
    if places is None:
        return part
    attachments, (_, end) = places
    found = _SHOWN.match(part[slice(*attachments)])
    if found is None:
        return part
    return splice.splice(part, [(*attachments, _NONE), (end - 1, end - 1, rb"\n" + found[1])])


def _places(part: bytes, beginning: bytes) -> tuple[splice.Span, splice.Span] | None:
    """Return where attachments that begin so are, and the result."""
    if b'"attachments":' + beginning not in part or b"[[extracted-" not in part:
        return None
    try:
        spans = splice.locate(part, _PLACES)
    except splice.UntouchableError:
        return None
    attachments, result = (spans.get(path) for path in _PLACES)
    if attachments is None or result is None or part[result[0] : result[0] + 1] != b'"':
        return None
    return (attachments, result) if part.startswith(beginning, attachments[0]) else None


def _size(row: int, data: int, whole: bytes | None) -> int:
    moved = whole is not None and _with_block(whole) != whole
    return _FRAME + row + data + (_LONGER if moved else 0)


class OpenConversation(OpenRows):
    recorded: Conversation

    @property
    def obstacle(self) -> str | None:
        return SECOND if self.recorded.is_second else super().obstacle

    def check_turn(self, open_turn: str | None, _quiet: float, _now: float) -> None:
        # The newest message may have no part yet, and so no line.
        if left := _left_open(self.database, self.recorded.session) or open_turn:
            raise NotIdleError(left, in_database=True)

    def fence(
        self, _quiet: float, _clock: Callable[[], float]
    ) -> Callable[[sqlite3.Connection], str | None]:
        def reason_not_to_write(database: sqlite3.Connection) -> str | None:
            now = conversation(database, self.recorded.session)
            return None if now == self.recorded else "the session changed meanwhile"

        return reason_not_to_write

    def row_with(self, before: Row, text: bytes) -> Part:
        row = before.row if isinstance(before, Part) else b""
        head = Part(row, b"").head
        body = text.removeprefix(head)[:-1]
        found = _FIELDS.search(body)
        part, fields = (body[: found.start()], found[0]) if found else (body, b"")
        after = Part(row, _without_block(part)[:-1] + fields + b"}")
        if not text.startswith(head) or after.line() != text:
            raise RefusedError("its message would change")
        return after

    def write(self, edits: Sequence[RowEdit], _now_ms: int) -> tuple[Conversation, None]:
        for edit in edits:
            before, after = edit.before, edit.after
            if not (isinstance(before, Part) and isinstance(after, Part)):
                raise TypeError(edit)
            done = self.database.execute(
                "UPDATE part SET data = CAST(? AS TEXT)"
                " WHERE id = ? AND session_id = ? AND data IS CAST(? AS TEXT)",
                (after.data, edit.key, self.recorded.session, before.data),
            )
            if done.rowcount != 1:
                raise RefusedError("a row changed meanwhile")
        return self.recorded, None


_NEWEST = (
    "SELECT id, json_extract(data, '$.parentID'), json_extract(data, '$.finish'),"
    " json_extract(data, '$.time.completed') IS NOT NULL, json_extract(data, '$.error.name')"
    " FROM message WHERE session_id = ? AND json_extract(data, '$.role') = ?"
    " ORDER BY time_created DESC, id DESC LIMIT 1"
)


def _left_open(connection: sqlite3.Connection, session: str) -> str | None:
    prompt = connection.execute(_NEWEST, (session, "user")).fetchone()
    found = connection.execute(_NEWEST, (session, "assistant")).fetchone()
    answer = None
    if found:
        ident, parent, finish, completed, error = found
        answer = MessageFacts(ident, False, parent, finish, bool(completed), error)
    return left_open(prompt and prompt[0], answer, running=False)


class OpencodeDatabases(Databases):
    form = Opencode()
    rereads = True
    note = (
        "pruning a database saves context, not disk: its event log keeps copies of all values,"
        " and the file never shrinks"
    )

    def __init__(self, program: str) -> None:
        self._program = program

    def has(self, path: str) -> bool:
        return is_database(self._program, path)

    def below(self, root: str) -> Iterator[Database | Unreadable]:
        top = os.path.realpath(root)
        try:
            names = sorted(os.listdir(top))
        except OSError:
            return  # `sessions.discovery` reports the root
        for path in filter(self.has, (os.path.join(top, name) for name in names)):
            try:
                is_file = stat.S_ISREG(os.lstat(path).st_mode)
            except OSError:
                continue
            if is_file:
                yield Database(top, self._program, os.path.dirname(path), path)
            else:
                yield Unreadable(top, path, "not a plain file")

    layout = staticmethod(examine)
    sessions = staticmethod(conversations)
    recorded = staticmethod(conversation)

    def names(self, connection: sqlite3.Connection) -> list[str]:
        return [str(name) for (name,) in connection.execute("SELECT id FROM session").fetchall()]

    def totals(self, connection: sqlite3.Connection, _layout: Layout) -> dict[str, int]:
        sums = Counter[str]()
        for session, _, *columns in connection.execute(_SIZES):
            sums[session] += _size(*columns) + 1
        return dict(sums)

    def sizes(
        self, connection: sqlite3.Connection, _layout: Layout, session: str
    ) -> list[tuple[RowKey, int]]:
        rows = connection.execute(f"{_SIZES} WHERE m.session_id = ?{_ORDER}", (session,))
        return [(key, _size(*columns)) for _, key, *columns in rows]

    def fetch(
        self, connection: sqlite3.Connection, _layout: Layout, session: str,
        keys: Sequence[RowKey],
    ) -> list[tuple[RowKey, Part]]:  # fmt: skip
        chosen = ", ".join("?" * len(keys))
        rows = connection.execute(
            f"{_FETCH} FROM part p CROSS JOIN message m ON m.id = p.message_id"
            f" WHERE p.id IN ({chosen}) AND p.session_id = ?{_ORDER}",
            (*keys, session),
        )
        return [(key, Part(row, data)) for key, row, data in rows.fetchall()]

    @contextmanager
    def session(
        self, file: SessionFile, check_stop: Callable[[], None]
    ) -> Iterator[OpenConversation]:
        with ExitStack() as held:
            database = held.enter_context(self.opened(file.directory))
            opened = OpenConversation(self, file, database, check_stop, held)
            if opened.recorded.is_second and not opened.recorded.parts:
                raise RefusedError(SECOND, self.form.name)
            yield opened
