"""Rules of the state machine for an agent whose sessions are in OpenClaw's database."""

import hashlib
import json
import os
import re
import types
import uuid
from contextlib import closing

import zstandard
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from brainsurgeon.model.entries import id_named
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.operations.show import cat
from building import claw_agent
from building.claw import GATEWAY, LATER, NEWEST, plain_connection, start_time, unpack
from building.version_diff import differences
from building.world import dump, note_answered

OURS = re.compile(rb',"_(?:restored|extractable|redacted)":(?:"[^"]*"|true|false|[0-9]+)')
PLACEHOLDER = re.compile(rb"\[\[extracted-([^\]]*)\]\]")
indexes = st.integers(0, 11)


class RowSession:
    """A session in the database, with the text of each event as its agent wrote it, by number."""

    def __init__(self, ident):
        self.ident, self.true, self.packed = ident, {}, set()
        self.changed = 0
        self.open = self.running = False
        self.plain = True
        """Whether its agent has never copied our placeholders or fields into a new event."""

    @property
    def last(self):
        return json.loads(self.true[max(self.true)])["id"] if self.true else None


class RowRules:
    """A mixin for a state machine: adds an agent `dev` whose sessions are in a database.

    `keys` are the settings of the machine, `figures` its counts.
    """

    keys, figures = types.MappingProxyType({}), types.MappingProxyType({})
    database = None

    def __init__(self):
        super().__init__()
        self.now = int(LATER)
        self.rows, self.archived, self.gateway = {}, {}, None
        self.path = self.world.root / "dev" / "agent" / "openclaw-agent.sqlite"
        if RowRules.database is None:
            unpack(f"openclaw-agent-{NEWEST}", self.path)
            with closing(plain_connection(self.path)) as agent:
                agent.execute("PRAGMA foreign_keys = ON")
                agent.execute("DELETE FROM session_windows WHERE session_id != ?", (GATEWAY,))
                agent.execute("DELETE FROM session_nodes WHERE current_session_id != ?", (GATEWAY,))
                agent.execute("DELETE FROM transcript_events")
                agent.execute("DELETE FROM session_transcript_active_events")
                agent.execute("VACUUM")
            RowRules.database = self.path.read_bytes()
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.path.write_bytes(RowRules.database)
        unpack(f"openclaw-state-{NEWEST}", self.base / "state" / "openclaw.sqlite")

    def teardown(self):
        if self.gateway is not None:
            self.gateway.close()
        super().teardown()

    # Actions of the agent.

    @initialize()
    def begin_in_rows(self):
        session = self._new_rows()
        for _ in range(2):
            self._rows_turn(session, 400, closed=True, packed=True)
        self.now += 60

    @rule(size=st.sampled_from([10, 100, 3000]), at=indexes, closed=st.booleans(),
          packed=st.booleans())  # fmt: skip
    def append_rows(self, size, at, closed, packed):
        """Append a turn, closed or left open; an open one is closed first."""
        if session := self._in_rows(at):
            self._rows_close(session)
            self._rows_turn(session, size, closed=closed, packed=packed)

    @rule(at=indexes)
    def close_rows(self, at):
        if session := self._in_rows(at):
            self._rows_close(session)

    @rule(at=indexes)
    def run_begins(self, at):
        if session := self._in_rows(at):
            self._lease()
            with self._agent() as agent:
                claw_agent.set_status(agent, session.ident, "running")
            session.running = True

    @precondition(lambda self: len(self.rows) < 3)
    @rule()
    def new_rows(self):
        self._rows_turn(self._new_rows(), 300, closed=True, packed=False)

    @precondition(lambda self: len(self.rows) < 3)
    @rule(at=indexes)
    def fork_rows(self, at):
        """Fork a session: its rows are copied as they are, placeholders and fields included."""
        parent = self._in_rows(at)
        if not parent or parent.open or parent.running:
            return
        child = RowSession(str(uuid.UUID(int=self._next())))
        with self._agent() as agent:
            claw_agent.fork(agent, parent.ident, child.ident, self._ms())
            child.plain = parent.plain and not any(
                OURS.search(text) for _, text in claw_agent.texts(agent, parent.ident)
            )
        child.true, child.packed = dict(parent.true), set(parent.packed)
        child.changed = self.now
        self.rows[child.ident] = child

    @rule(at=indexes, count=st.integers(1, 5))
    def reappend_rows(self, at, count):
        """Append the last events again with new ids, placeholders included."""
        session = self._in_rows(at)
        if not session or session.open or session.running or len(session.true) < 8:
            return
        with self._agent() as agent:
            here = claw_agent.texts(agent, session.ident)
            claw_agent.reappend(agent, session.ident, count)
            session.plain = False
            for seq, text in here[-count:]:
                old = json.loads(text)["id"].encode()
                new = str(uuid.UUID(int=self._next())).encode()
                ours = OURS.sub(b"", text).replace(b'"id":"' + old, b'"id":"' + new, 1)
                true = session.true[seq].replace(b'"id":"' + old, b'"id":"' + new, 1)
                if b'"_redacted"' in text:
                    true = _original_of_copy(ours, true)
                at = claw_agent.append(agent, session.ident, ours, self._ms())
                session.true[at] = true
        session.changed = self.now

    @rule(at=indexes, archived=st.booleans())
    def delete_rows(self, at, archived):
        """Delete a session; its agent may keep an archive of it."""
        if session := self._in_rows(at):
            with self._agent() as agent:
                claw_agent.delete(agent, session.ident, self._ms(), archived=archived)
            del self.rows[session.ident]
            if archived:
                session.changed = self.now
                self.archived[session.ident] = session

    # Commands of brainsurgeon.

    @rule(at=indexes, pristine=st.booleans())
    def restore_rows(self, at, pristine):
        """Restore one entry, or request it if its session is not idle."""
        row = self._row_extraction(at)
        if row is None:
            return
        entry, session = row
        if pristine:
            self.pinned.pop((session.ident, entry), None)
        self._verb(self.world.restore, entry, session=self._name(session), pristine=pristine,
                   **self.keys)  # fmt: skip

    @rule(pristine=st.booleans())
    def restore_all(self, pristine):
        """Restore everything: idle sessions are as the agent wrote them, apart from fields."""
        waiting = self._with_requests()
        gone = waiting - self.rows.keys()
        super().restore_all(pristine)
        if self.crashed or self.crash_at is not None:
            return
        for session in self.rows.values():
            if session.open or session.running or not session.plain:
                continue
            # A fork takes over the record and requests of a deleted session.
            if (session.ident in waiting or gone) and not pristine:
                continue
            here = dict(self._texts(session))
            whole = {seq: OURS.sub(b"", text) for seq, text in here.items()}
            missing = [seq for seq, text in whole.items() if text != session.true[seq]]
            for seq in missing:
                line, true = json.loads(whole[seq]), json.loads(session.true[seq])
                self._must_have_expired(session, line, true)
            if pristine and not missing:
                assert here == session.true

    @rule(at=indexes, entry=indexes, value=st.sampled_from([True, False, 0, 2, 50]))
    def set_extractable_in_rows(self, at, entry, value):
        session = self._in_rows(at)
        if not session:
            return
        ids = [json.loads(text)["id"] for _, text in self._texts(session)]
        ident = ids[-1 - entry % len(ids)]
        answer = self._verb(
            lambda: set_extractable(
                self.world.settings(**self.keys), self.world.store, ident, value,
                clock=self.world.clock, session=self._name(session),
            )
        )  # fmt: skip
        self.pinned.pop((session.ident, ident), None)
        if answer is not None and value is False:
            self.pinned[session.ident, ident] = self._row_placeholders(session, ident)

    @rule(at=indexes)
    def agent_restores_in_rows(self, at):
        """Restore a value as the agent does, in the middle of a turn, and append the answer."""
        row = self._row_extraction(at)
        if row is None:
            return
        entry, session = row
        self._rows_close(session)
        self._append(session, {"role": "user", "content": "what was it?"})
        call = self._append(
            session, _call_message("purge_control", {"action": "restore"}, self._next())
        )
        session.open = True
        answer = self._verb(self.world.restore, entry, session=self._name(session), **self.keys)
        if answer is None:
            return
        text = note_answered(self.world, answer)
        self._append(session, _result_message(call, text, "purge_control"))
        self._rows_close(session)

    def _changes_and_texts(self):
        for session in (*self.rows.values(), *self.archived.values()):
            yield session.changed, b"".join(self._lines(session))
        yield from super()._changes_and_texts()

    # Invariants.

    @invariant()
    def every_event_can_be_restored(self):
        """Each event has its original text, or placeholders whose values restore it."""
        with closing(plain_connection(self.path)) as agent:
            assert agent.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert agent.execute("PRAGMA foreign_key_check").fetchall() == []
        for session in self.rows.values():
            self._check_rows(session)
        for session in self.archived.values():
            self._check_archived(session)

    def _check_rows(self, session):
        here = self._texts(session)
        assert [seq for seq, _ in here] == sorted(session.true)
        self.figures["lines"] += len(here)
        if self.crashed:
            return
        full = [text for _, text in here]
        if any(mark in text for text in full for mark in (b"[[extracted-", b'"_redacted":')):
            settings = self.world.settings(**self.keys)
            unarchived = cat(settings, self.world.store, self._name(session), self.now)
            full = b"".join(unarchived).splitlines(keepends=False)
        for line, (seq, _) in zip(full, here, strict=True):
            true = session.true[seq]
            if OURS.sub(b"", line) != true:
                self._must_have_expired(session, json.loads(line), json.loads(true))
        for (name, ident), allowed in self.pinned.items():
            if name == session.ident:
                assert self._row_placeholders(session, ident) <= allowed, (
                    "a pinned value was extracted"
                )

    def _must_have_expired(self, session, line, true):
        """Check that each value that cannot be restored was allowed to expire."""
        for place, value in differences(line, true):
            if place[0] in ("_restored", "_extractable", "_redacted"):
                continue
            placeholder = value.get("text") if isinstance(value, dict) else value
            placeholder = placeholder if isinstance(placeholder, str) else json.dumps(placeholder)
            rows = self.world.store._connection.execute(
                "SELECT blob_id IS NULL, replacement FROM extractions"
                " WHERE (name = ? AND replacement IS NULL)"
                " OR replacement = ? OR (replacement IS NOT NULL AND entry_id = ?)",
                (id_named(placeholder), json.dumps(value), true["id"]),
            ).fetchall()
            assert rows, f"{place} of {true['id']} in {session.ident} is lost: {value!r:.80}"
            expired = any(is_expired for is_expired, _ in rows)
            redacted = any(replacement for _, replacement in rows)
            assert expired or (redacted and not session.plain), (
                f"{place} of {true['id']} in {session.ident} is lost: {value!r:.80}"
            )
            ident = PLACEHOLDER.fullmatch(placeholder.encode())
            if expired and ident is not None:
                assert ident[1] in self.may_go, "a value went too early"
                self.figures["tombstones"] += 1

    def _check_archived(self, session):
        if self.crashed:
            return
        for placeholder in {match[0].decode() for line in self._lines(session)
                            for match in re.finditer(PLACEHOLDER, line)}:  # fmt: skip
            extractions = self.world.store._connection.execute(
                "SELECT blob_id FROM extractions WHERE name = ? AND replacement IS NULL",
                (id_named(placeholder),),
            ).fetchall()
            held = not extractions or any(blob for (blob,) in extractions)  # none: forged
            ident = PLACEHOLDER.fullmatch(placeholder.encode())[1]
            assert held or ident in self.may_go, (
                "a value whose placeholder is archived went too early"
            )

    # Helpers.

    def _verb(self, act, *arguments, **keywords):
        busy = {
            session.ident: self._texts(session)
            for session in self.rows.values()
            if session.open or session.running
        }
        try:
            return super()._verb(act, *arguments, **keywords)
        finally:
            for ident, before in busy.items():
                assert self._texts(self.rows[ident]) == before, "a session at work was changed"

    def _inodes(self):
        digest = hashlib.sha256()
        with closing(plain_connection(self.path)) as agent:
            for table in ("transcript_events", "transcript_rewrite_watermarks", "session_windows"):
                digest.update(repr(agent.execute(f"SELECT * FROM {table}").fetchall()).encode())
        return {**super()._inodes(), "rows": digest.hexdigest()}

    def _agent(self):
        return claw_agent.transaction(self.path)

    def _contents(self):
        """Leave out the index of the log, which changes when the log is read."""
        contents = super()._contents()
        return {path: data for path, data in contents.items() if not path.name.endswith("-shm")}

    def _lease(self):
        """Open the database and record a lease on it, as a gateway that is this process."""
        if self.gateway is None:
            self.gateway = plain_connection(self.path)
            self.gateway.execute("SELECT * FROM schema_meta").fetchall()
        with claw_agent.transaction(self.base / "state" / "openclaw.sqlite") as agent:
            agent.execute("DELETE FROM agent_database_leases")
            agent.execute(
                "INSERT INTO agent_database_leases VALUES ('x', 'dev', ?, ?, ?, ?)",
                (str(self.path), os.getpid(), start_time("self"), self._ms()),
            )

    def _ms(self):
        return int(self.now * 1000)

    def _next(self):
        self.counter += 1
        return self.counter

    def _name(self, session):
        return f"{self.path}/{session.ident}"

    def _in_rows(self, at):
        names = sorted(self.rows)
        return self.rows[names[at % len(names)]] if names else None

    def _texts(self, session):
        with closing(plain_connection(self.path)) as agent:
            return claw_agent.texts(agent, session.ident)

    def _lines(self, session):
        if session.ident in self.rows:
            return [text for _, text in self._texts(session)]
        with closing(plain_connection(self.path)) as agent:
            (blob,) = agent.execute(
                "SELECT archive_blob FROM session_transcript_archives WHERE session_id = ?",
                (session.ident,),
            ).fetchone()
        return zstandard.decompress(blob).splitlines()

    def _row_placeholders(self, session, ident):
        for seq, text in self._texts(session):
            if json.loads(text)["id"] == ident:
                differing = differences(json.loads(text), json.loads(session.true[seq]))
                return {where for where, value in differing if PLACEHOLDER.search(dump(value))}
        return set()

    def _extraction(self, at):
        """Choose an extraction in a file, as the rules of the base class need it."""
        extraction = super()._extraction(at)
        return extraction if extraction and extraction[1].endswith(".jsonl") else None

    def _row_extraction(self, at):
        """Return an entry with an extracted value and its existing session, or None."""
        if self.crashed:
            return None
        extractions = self.world.store._connection.execute(
            "SELECT DISTINCT e.entry_id, s.path FROM extractions e"
            " JOIN sessions s ON s.id = e.session_id"
            " WHERE e.journal_id IS NULL AND s.path IS NOT NULL ORDER BY e.id"
        ).fetchall()
        here = [
            (entry, self.rows[ident]) for entry, path in extractions
            if (ident := path.decode().rpartition("/")[2]) in self.rows
        ]  # fmt: skip
        return here[at % len(here)] if here else None

    def _with_requests(self):
        if self.crashed:
            self._recovered()
        if self.crashed:
            return set()
        requests = self.world.store._connection.execute(
            "SELECT s.path FROM requests w JOIN sessions s ON s.id = session_id"
            " WHERE s.path IS NOT NULL AND s.path NOT GLOB '*.jsonl*'"
        ).fetchall()
        return {path.decode().rpartition("/")[2] for (path,) in requests}

    def _new_rows(self):
        session = RowSession(str(uuid.UUID(int=self._next())))
        with self._agent() as agent:
            claw_agent.begin_session(agent, GATEWAY, session.ident, self._ms())
        header = {"type": "session", "version": 4, "id": session.ident,
                  "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/w"}  # fmt: skip
        self.rows[session.ident] = session
        self._put_row(session, dump(header).rstrip(b"\n"))
        return session

    def _rows_turn(self, session, size, *, closed, packed):
        self._append(session, {"role": "user", "content": "go on"})
        call = self._append(session, _call_message("exec", {"command": "ls"}, self._next(),
                                           thinking=self._text(size, 0)))  # fmt: skip
        text = self._text(size, self.counter % 5)
        self._append(session, _result_message(call, text, "exec"), packed=packed and size > 1000)
        session.open = True
        if closed:
            self._rows_close(session)

    def _rows_close(self, session):
        if session.open:
            self._append(session, {
                "role": "assistant", "content": [{"type": "text", "text": "done."}],
                "api": "openai-completions", "stopReason": "stop",
            })  # fmt: skip
        if session.running:
            with self._agent() as agent:
                claw_agent.set_status(agent, session.ident, "done")
        session.open = session.running = False

    def _append(self, session, message, *, packed=False):
        entry = {"type": "message", "id": str(uuid.UUID(int=self._next())),
                 "parentId": session.last, "timestamp": "2026-11-01T10:00:01.000Z",
                 "message": message}  # fmt: skip
        self._put_row(session, dump(entry).rstrip(b"\n"), packed=packed)
        return message

    def _put_row(self, session, text, *, packed=False):
        with self._agent() as agent:
            seq = claw_agent.append(agent, session.ident, text, self._ms(), packed=packed)
        session.true[seq] = text
        session.changed = self.now


def _original_of_copy(ours, true):
    """Return the text of a copied event, with values of `true` in place of its placeholders."""
    copied, original = json.loads(ours), json.loads(true)
    for place, value in list(differences(copied, original)):
        if PLACEHOLDER.fullmatch(dump(value).strip(b'"\n')):
            target, source = copied, original
            for step in place[:-1]:
                target, source = target[step], source[step]
            target[place[-1]] = source[place[-1]]
    return dump(copied).rstrip(b"\n")


def _call_message(tool, arguments, number, thinking=None):
    content = [{"type": "thinking", "thinking": thinking}] if thinking else []
    content.append({"type": "toolCall", "id": f"call_{number}", "name": tool,
                    "arguments": arguments})  # fmt: skip
    return {"role": "assistant", "content": content, "api": "openai-completions",
            "stopReason": "toolUse"}  # fmt: skip


def _result_message(call, text, tool):
    return {"role": "toolResult", "toolCallId": call["content"][-1]["id"], "toolName": tool,
            "content": [{"type": "text", "text": text}], "details": {"output": text},
            "isError": False}  # fmt: skip
