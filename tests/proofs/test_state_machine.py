"""Random actions of an agent, its user and brainsurgeon, with crashes: nothing is lost.

A model keeps the lines that the agent wrote. After every step each of their bytes is in the file or
comes back from the store, and the invariants hold. A shim makes a crash: it stops before the n-th
change to the disk or the database and lets nothing through afterwards. The agent may go on before
recovery.
"""

import contextlib
import copy
import gc
import json
import os
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files import exchange, leases, retire
from brainsurgeon.files import processes as clocks
from brainsurgeon.formats.transcript import Transcript
from brainsurgeon.lookup.sessions import all_sessions
from brainsurgeon.model.entries import id_named
from brainsurgeon.model.text import iso
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.operations.show import cat
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions.transcripts import Transcripts
from brainsurgeon.store import open_store
from brainsurgeon.store.database import key_path_text
from building.rows_machine import OURS, PLACEHOLDER, RowRules
from building.turns import folding
from building.version_diff import differences
from building.world import World, dump, note_answered

DAY = 86_400
KEYS = {
    "min_value_length": 60, "keep_recent": 1, "retention": "24h", "retention_standing": "30d",
    "keep_after_restore_seconds": 600,
}  # fmt: skip
ARCHIVES = {
    "archive": {
        "enabled": True, "token_threshold": 0, "tool_call_threshold": 0, "keep_turns": 0,
    },
}  # fmt: skip
ARCHIVED = b'"[archived turn]'
# Said of a session of which something was asked for where another one lies since.
MEANWHILE = "another request for this session was recorded meanwhile"
READING = ("SELECT", "PRAGMA", "EXPLAIN", "WITH", "ROLLBACK")
HOUR = 3600


which = st.integers(0, 11)
figures = dict.fromkeys((
    "examples", "steps", "crashes", "lines", "placeholders", "tombstones", "moves", "late",
    "rolled back", "whole again", "kept", "archives",
), 0)  # fmt: skip


class Kept(Transcripts):
    """What scans keep. A session that grew is understood as if it was read once."""

    def read(self, opened):
        known = opened.file.path in self
        kept = super().read(opened)
        if known:
            figures["kept"] += 1
            whole = Transcript.read(opened.form, opened.lines)
            assert kept.transcript.entries == whole.entries
            assert kept.transcript.chain.dead == whole.chain.dead
        return kept


class Crash(BaseException):
    """The process died here."""


class Shim:
    """Called before every change to disk or database; stops at the n-th until it is reset."""

    def __init__(self):
        self.at = None
        self.dies_exchanged = False
        self.dead = False
        self.copies = []
        self._undo = []

    def point(self):
        if self.dead:
            raise Crash
        if self.at is None:
            return
        self.at -= 1
        if self.at < 0:
            self.dead = True
            raise Crash

    def reset(self):
        self.at, self.dead, self.dies_exchanged = None, False, False

    def install(self):
        for name in ("write", "fchmod", "fchown", "utime", "setxattr", "unlink", "rename", "link",
                     "ftruncate", "mkdir", "chmod", "pwrite"):  # fmt: skip
            self._put(os, name, self._before(getattr(os, name)))
        opened = os.open

        def creating(path, flags, *arguments, **keywords):
            if flags & os.O_CREAT:
                self.point()
            return opened(path, flags, *arguments, **keywords)

        self._put(os, "open", creating)
        self._put(os, "fsync", lambda descriptor: self.point())
        swap = self._before(leases.exchange)

        def exchanging(*arguments):
            swap(*arguments)
            if self.dies_exchanged:
                self.at = 0
                self.point()

        self._put(leases, "exchange", exchanging)
        self._put(leases, "take", self._before(leases.take))
        duplicate = os.dup
        self._put(os, "dup", lambda descriptor: self._note(duplicate(descriptor)))
        shim, connect = self, sqlite3.connect

        class Connection(sqlite3.Connection):
            """Stops before the statements that change something."""

            def execute(self, sql, *arguments):
                if not sql.lstrip().upper().startswith(READING):
                    shim.point()
                return super().execute(sql, *arguments)

            def executemany(self, sql, *arguments):
                shim.point()
                return super().executemany(sql, *arguments)

        self._put(sqlite3, "connect", lambda *a, **k: connect(*a, **{"factory": Connection, **k}))

    def remove(self):
        while self._undo:
            setattr(*self._undo.pop())

    def _put(self, place, name, value):
        self._undo.append((place, name, getattr(place, name)))
        setattr(place, name, value)

    def _before(self, call):
        def shim(*arguments, **keywords):
            self.point()
            return call(*arguments, **keywords)

        return shim

    def _note(self, descriptor):
        self.copies.append(descriptor)
        return descriptor


class Session:
    """One session as its agent knows it: the lines it wrote, with their values."""

    def __init__(self, name, header):
        self.name = name
        self.agent = "main"
        self.lines = [header]
        self.source = None
        """The session that this one was forked or copied from."""
        self.scanned_at = None
        """The path at which a scan last looked at it, None where none has."""
        self.mtime = 0
        self.open = False
        self.plain = True
        """Whether the agent has never written a field of brainsurgeon itself."""

    @property
    def last(self):
        return self.ids()[-1] if self.ids() else None

    def ids(self):
        return [line["id"] for line in self.lines[1:] if "id" in line]


class Agents(RuleBasedStateMachine):
    """A world with agents, a user, a clock, and brainsurgeon."""

    template = None

    def __init__(self):
        super().__init__()
        figures["examples"] += 1
        self.base = Path(tempfile.mkdtemp(prefix="machine-", dir=_fast_directory()))
        self.world = World(self.base)
        self.world.clock = lambda: self.now
        self.now = 1_795_000_000
        self.counter = 0
        self.sessions = {}
        self.archives = {}
        self.named = {}
        """The sessions by the names that they had when we died last."""
        self.texts = []
        self.pinned = {}
        self.agents = ["main"]
        self.may_go = set()
        self.crashed = False
        self.stray = set()
        """Our files in directories that were renamed before we recovered: doctor names them."""
        self.crash_at = None
        self.dies_exchanged = False
        self.shim = Shim()
        self.shim.install()
        self._boot, self._look_back = clocks.boot_clock, retire.LOOK_BACK
        self._wait = exchange.WAIT_FOR_OPENERS
        self.world.kept = Kept()
        clocks.boot_clock = lambda: float(self.now)
        retire.LOOK_BACK = 0.0
        exchange.WAIT_FOR_OPENERS = 0.0
        if Agents.template is None:
            open_store(str(self.base / "state")).close()
            Agents.template = {
                path.name: path.read_bytes() for path in (self.base / "state").iterdir()
            }
        (self.base / "state").mkdir(mode=0o700, exist_ok=True)
        for name, data in Agents.template.items():
            (self.base / "state" / name).write_bytes(data)
            (self.base / "state" / name).chmod(0o600)

    def teardown(self):
        self.shim.reset()
        try:
            self.world.close()
        finally:
            self.shim.remove()
            clocks.boot_clock = self._boot
            retire.LOOK_BACK = self._look_back
            exchange.WAIT_FOR_OPENERS = self._wait
            shutil.rmtree(self.base, ignore_errors=True)

    # What the agent does.

    @initialize(turns=st.sampled_from((1, 2, 3, 9)), pruned=st.booleans())
    def begin(self, turns, pruned):
        """Begin with one session of some turns, often pruned already."""
        session = self._new_session()
        for _ in range(turns):
            self._turn(session, 400, closed=True, odd=0)
        self.now += 60
        if pruned:
            self.scan()

    @rule(size=st.sampled_from([10, 100, 3000]), at=which, closed=st.booleans(), odd=which)
    def append(self, size, at, closed, odd):
        """Append a turn, closed or left open; an open one is closed first."""
        if session := self._session(at):
            if session.open:
                self._close(session)
            self._turn(session, size, closed=closed, odd=odd)

    @rule(size=st.sampled_from([50, 400]), at=which, odd=which)
    def work_on(self, size, at, odd):
        """Append three turns with a run after each; all runs but the first read only these."""
        session = self._session(at)
        if session and session.open:
            self._close(session)
        for _ in range(3):
            if session:
                self._turn(session, size, closed=True, odd=odd)
            self.scan()

    @rule(at=which)
    def close_turn(self, at):
        session = self._session(at)
        if session and session.open:
            self._close(session)

    @precondition(lambda self: len(self.sessions) < 4)
    @rule(again=st.booleans())
    def new_session(self, again):
        """Begin another session, sometimes under a name that was used before."""
        session = self._new_session(old_name=again)
        self._turn(session, 300, closed=True, odd=0)

    @rule(at=which, new_ids=st.sampled_from([None, 0, 1, 3]), in_place=st.booleans(),
          loaded=st.booleans())  # fmt: skip
    def rewrite(self, at, new_ids, in_place, loaded):
        """Write the history again, from memory or as loaded, with new ids from some entry on."""
        session = self._session(at)
        if not session:
            return
        lines = [json.loads(line) for line in self._read(session)] if loaded else None
        if lines is None:
            lines = copy.deepcopy(session.lines)
            session.plain = True
            self.pinned = {key: v for key, v in self.pinned.items() if key[0] != session.name}
        else:
            session.plain = session.plain and not any(OURS.search(dump(line)) for line in lines)
        if new_ids is not None:
            self._rename(session, lines, new_ids)
        self._write_anew(session, lines, in_place=in_place)

    @precondition(lambda self: len(self.sessions) < 4)
    @rule(at=which, share=st.floats(0.2, 1))
    def fork(self, at, share):
        """Fork a session: the new file has the same lines, placeholders and fields included."""
        parent = self._session(at)
        if not parent:
            return
        raw = self._read(parent)
        count = max(2, round(len(raw) * share))
        child = self._new_session(parent=str(self._path(parent)), agent=parent.agent)
        child.source = parent
        child.lines += copy.deepcopy(parent.lines[1:count])
        child.plain = not any(OURS.search(line) for line in raw[:count])
        for key, value in list(self.pinned.items()):
            if key[0] == parent.name and key[1] in child.ids():
                self.pinned[child.name, key[1]] = value
        with open(self._path(child), "ab") as handle:
            handle.writelines(raw[1:count])
        child.open = parent.open if count == len(raw) else True
        if child.open:
            self._write(child, self._answer(child))
            child.open = False
        self._touch(child)

    @rule(at=which)
    def delete(self, at):
        if session := self._session(at):
            self._path(session).unlink()
            del self.sessions[session.name]

    @rule(at=which)
    def reset(self, at):
        if session := self._session(at):
            self.counter += 1
            away = f"{session.name}.reset.2026-11-21T10-00-00.{self.counter:03d}Z"
            self._path(session).rename(self._path(session).with_name(away))
            self.archives[away] = self.sessions.pop(session.name)

    # What its user does with the files.

    @rule(at=which)
    def rename_session(self, at):
        if session := self._session(at):
            self.counter += 1
            self._move_session(session, f"renamed-{self.counter}.jsonl", session.agent)

    @rule(at=which, agent=st.integers(0, 3))
    def move_session(self, at, agent):
        if session := self._session(at):
            self._move_session(session, session.name, self.agents[agent % len(self.agents)])

    @rule(at=which, other=which)
    def exchange_names(self, at, other):
        """Exchange the names and the agents of two sessions."""
        session, partner = self._session(at), self._session(other)
        if session and partner and session is not partner:
            name, agent = partner.name, partner.agent
            self._move_session(partner, "exchanged.jsonl", partner.agent)
            first = session.name, session.agent
            self._move_session(session, name, agent)
            self._move_session(partner, *first)

    @rule(at=st.integers(0, 3))
    def rename_agent(self, at):
        self.counter += 1
        old = self.agents[at % len(self.agents)]
        new = f"agent-{self.counter}"
        (self.world.root / old).rename(self.world.root / new)
        self._record_agent_name(old, new)

    @precondition(lambda self: len(self.agents) < 3)
    @rule()
    def new_agent(self):
        self.counter += 1
        self.agents.append(f"agent-{self.counter}")
        self._sessions_of(self.agents[-1])

    @precondition(lambda self: len(self.agents) > 1)
    @rule()
    def exchange_agents(self):
        first, second = self.agents[:2]
        for old, new in ((first, "between"), (second, first), ("between", second)):
            (self.world.root / old).rename(self.world.root / new)
            self._record_agent_name(old, new)

    @precondition(lambda self: len(self.sessions) < 4)
    @rule(at=which)
    def copy_session(self, at):
        if session := self._session(at):
            self.counter += 1
            name = f"copy-{self.counter}.jsonl"
            duplicate = self.sessions[name] = copy.deepcopy(
                session, {id(session.source): session.source}
            )
            duplicate.name, duplicate.source, duplicate.scanned_at = name, session, None
            duplicate.plain &= not any(OURS.search(line) for line in self._read(session))
            shutil.copy2(self._path(session), self._path(duplicate))
            for (owner, ident), placeholders in list(self.pinned.items()):
                if owner == session.name:
                    self.pinned[name, ident] = placeholders

    def _move_session(self, session, name, agent):
        """Move a session's file, and all that is recorded of it."""
        figures["moves"] += 1
        old = self._path(session)
        del self.sessions[session.name]
        self.pinned = {
            (name if owner == session.name else owner, ident): placeholders
            for (owner, ident), placeholders in self.pinned.items()
        }
        session.name, session.agent = name, agent
        self.sessions[name] = session
        old.rename(self._path(session))

    def _record_agent_name(self, old, new):
        figures["moves"] += 1
        if self.crashed:
            self.stray.update(self.world.leftovers())
        self.agents = [new if name == old else name for name in self.agents]
        for session in (*self.sessions.values(), *self.archives.values()):
            if session.agent == old:
                session.agent = new

    @rule(seconds=st.sampled_from([1, 60, 700, 4000, DAY + 60, 31 * DAY]))
    def wait(self, seconds):
        self.now += seconds

    # What we do.

    @rule()
    def scan(self):
        """Do a run; another one changes nothing."""
        report = self._verb(self.world.scan, **KEYS)
        if report is None:
            return
        self._record_scanned_paths(report)
        assert not report.failed
        assert not report.interrupted
        if any(
            session.executed.restorations or MEANWHILE in session.reason
            for session in report.sessions
        ):
            self._verb(self.world.scan, **KEYS)  # what is set to go at once goes again
        before = self._inodes()
        again = self._verb(self.world.scan, **KEYS)
        assert again is None or again.sessions_changed == 0
        assert self._inodes() == before

    def _record_scanned_paths(self, report):
        """Record the paths at which a run looked at each session."""
        left = {
            session.path
            for session in report.sessions
            if session.outcome in ("deferred", "skipped")
        }
        for session in self.sessions.values():
            if str(path := self._path(session)) not in left:
                session.scanned_at = path

    @rule()
    def archive(self):
        """Do a run that archives turns, the newest too, and archives of archives."""
        with folding(2):
            report = self._verb(self.world.scan, **KEYS, **ARCHIVES)
        if report is not None:
            self._record_scanned_paths(report)
            written = b"".join(path.read_bytes() for path in self._files())
            figures["archives"] += written.count(ARCHIVED)

    @rule()
    def dry_run(self):
        """Do a dry run: no file changes, the database neither."""
        self._recovered()
        before = self._contents()
        self.world.scan(dry_run=True, **KEYS)
        assert self._contents() == before

    @rule(at=which, pristine=st.booleans())
    def restore(self, at, pristine):
        """Restore one entry, or record a pending request."""
        row = self._extraction(at)
        if row is None:
            return
        entry, path, name = row
        if pristine:  # takes pins out as well
            self.pinned.pop((name, entry), None)
        answer = self._verb(self.world.restore, entry, session=path, pristine=pristine, **KEYS)
        if answer is not None:
            for line in self.sessions[name].lines[1:]:
                if line.get("id") == entry:
                    for place, value in answer.content.items():
                        assert value == _at(line, place.split("."))

    @rule(pristine=st.booleans())
    def restore_all(self, pristine):
        """Restore everything; a pristine undo also removes pins."""
        if pristine:
            self.pinned.clear()
        self._recovered()
        query = "SELECT DISTINCT session_id FROM requests"
        requested = {ident for (ident,) in self.world.store._connection.execute(query)}
        waiting = {
            os.path.basename(result.path)
            for result in all_sessions(self.world.settings(**KEYS), self.world.store)
            if result.record and result.record.id in requested
        }
        results = self._verb(self.world.restore_all, pristine=pristine, **KEYS)
        for result in results or ():
            session = self.sessions.get(result.session.rpartition("/")[2] + ".jsonl")
            if session is None or (session.name in waiting and not pristine):
                continue  # what was asked for before is carried out as well
            if result.state not in ("restored", "nothing to undo") or result.missed:
                continue
            raw, left = self._read(session), {why.partition(": ")[0] for why in result.left}
            for line, true in zip(raw, session.lines, strict=True):
                if OURS.sub(b"", line) != OURS.sub(b"", dump(true)):
                    assert true["id"] in left, "what stays is not named"
                    self._must_be_expired(session, line, true)
            if pristine and session.plain and not left:
                assert b"".join(raw) == b"".join(map(dump, session.lines))

    @rule(at=st.integers(0, 40))
    def rollback(self, at):
        """Roll a run back; a second rollback of it changes nothing."""
        self._recovered()
        runs = self.world.store.runs.newest(None)
        if runs:
            number = runs[-1 - at % len(runs)].id
            report = self._roll_back(number)
            again = report and self._roll_back(number)
            if again:
                assert not any(session.state == "rolled back" for session in again.sessions)

    @rule()
    def roll_everything_back(self):
        """Roll back every run, newest first: then only reported values stay extracted."""
        self._recovered()
        runs = self.world.store.runs.newest(None)[::-1]
        named = set()
        for run in runs:
            report = self._roll_back(run.id)
            if report is None:
                return
            named |= {entry.session for entry in report.sessions if self._is_named(entry)}
        named |= self._titles("e.run_id > ?", runs[0].id if runs else 0)  # as it was due
        named |= self._titles("e.blob_id IS NULL AND e.run_id IS NULL")  # its run was deleted
        for session in self.sessions.values():
            title = f"{session.agent}/{session.name.removesuffix('.jsonl')}"
            if title in named or session.source or not self._is_known(session):
                continue
            raw = b"".join(self._read(session))
            ours = b"".join(map(dump, session.lines))
            assert OURS.sub(b"", raw) == OURS.sub(b"", ours)
            figures["whole again"] += PLACEHOLDER.search(raw) is None

    def _is_known(self, session):
        """Check whether a run is known to have changed this file.

        If a session and its copy were both moved, it is unknown until the next scan which of the
        two files is the original.
        """
        names = [known.lines[0]["id"] for known in self.sessions.values()]
        copied = names.count(session.lines[0]["id"]) > 1
        return session.scanned_at and not (copied and session.scanned_at != self._path(session))

    def _titles(self, which, *arguments):
        """Return the sessions from which values were extracted, and those with the placeholders."""
        return {title for (title,) in self.world.store._connection.execute(
            "SELECT DISTINCT s.agent || '/' || s.name FROM extractions e JOIN sessions s"
            " ON s.id = e.session_id OR s.id IN (SELECT p.session_id FROM placements p"
            f" WHERE p.extraction_id = e.id) WHERE {which}",
            arguments,
        )}  # fmt: skip

    def _roll_back(self, number):
        fields = "SELECT entry_id FROM fields WHERE run_id = ?"
        undone = {ident for (ident,) in self.world.store._connection.execute(fields, (number,))}
        self.pinned = {key: v for key, v in self.pinned.items() if key[1] not in undone}
        report = self._verb(self.world.rollback, number, **KEYS)
        if report:
            figures["rolled back"] += sum(
                session.state == "rolled back" for session in report.sessions
            )
        return report

    @staticmethod
    def _is_named(session):
        """Check whether a rollback reports that something stays, or may stay, in a session."""
        since = session.reasons.keys() - {"restored since"}
        return session.state in ("pending", "failed") or session.missed or since

    @rule(at=which, entry=which, value=st.sampled_from([True, False, 0, 2, 50]))
    def set_extractable(self, at, entry, value):
        session = self._session(at)
        if not session:
            return
        ident = session.ids()[-1 - entry % len(session.ids())]
        answer = self._verb(
            lambda: set_extractable(
                self.world.settings(**KEYS), self.world.store, ident, value,
                clock=self.world.clock, session=str(self._path(session)),
            )
        )  # fmt: skip
        self.pinned.pop((session.name, ident), None)
        if answer is not None and value is False:
            self.pinned[session.name, ident] = self._placeholders_of(session, ident)

    @rule(at=which, pick=which)
    def agent_restores(self, at, pick):
        """Restore a value for the agent in the middle of its turn, and append the answer."""
        session, row = self._session(at), self._extraction(pick)
        if not session or not row or row[2] != session.name:
            return
        if session.open:
            self._close(session)
        self._write(session, self._entry(session, {"role": "user", "content": "what was it?"}))
        call = self._call(session, "purge_control", {"action": "restore", "entry": row[0], "x": 1})
        session.open = True
        self._write(session, call)
        answer = self._verb(self.world.restore, row[0], session=row[1], **KEYS)
        if answer is None:
            return
        text = note_answered(self.world, answer)
        self._write(session, self._result(session, call, text, "purge_control"))
        self._close(session)

    @rule()
    def retention(self):
        """Expire values: one whose placeholder is in a file only after a month of silence."""
        silent, alive = set(), set()
        for changed, text in self._changes_and_texts():
            old = self.now >= changed + 30 * DAY
            (silent if old else alive).update(PLACEHOLDER.findall(text))
        self.may_go |= silent - alive
        self._verb(
            lambda: retention(self.world.settings(**KEYS), self.world.store, clock=self.world.clock)
        )

    def _changes_and_texts(self):
        for path in self._files():
            yield path.stat().st_mtime, path.read_bytes()

    @rule(often=which)
    def long_silence(self, often):
        """Advance by a month, so that all expires; the first run in days deletes nothing."""
        if often == 0:
            self.now += 31 * DAY
            for act in (self.retention, self.scan, self.retention):
                self.now += 60
                act()

    @rule(at=st.integers(0, 40))
    def crash(self, at):
        self.crash_at = at

    @rule(
        at=st.integers(0, 30),
        verb=st.sampled_from(["scan", "restore_all", "retention", "rollback"]),
    )
    def crash_in(self, verb, at):
        self.crash_at = at
        if verb == "restore_all":
            self.restore_all(pristine=bool(at % 2))
        elif verb == "rollback":
            self.rollback(at)
        else:
            getattr(self, verb)()

    @rule(at=st.integers(0, 12))
    def crash_while_recovering(self, at):
        if self.crashed:
            self.shim.at = at
            with contextlib.suppress(Crash):
                self._recovered()

    @rule(follow=st.booleans(), beat=st.booleans(), at=st.integers(0, 12))
    def write_late(self, follow, beat, at):
        """Crash at an exchange; a waiting opener writes to the old file, others may go on."""
        if not self.crashed:
            self.crash_at = None
            self.dies_exchanged = True
            self.scan()
        for rewrite in self.world.store.journal.open_rewrites():
            old, session = Path(rewrite.temporary_path), self.named.get(rewrite.name)
            if session not in self.sessions.values() or not _has_inode(old, rewrite.inode):
                continue
            path = self._path(session)
            untouched = (
                _has_inode(path, rewrite.new_inode) and path.stat().st_size == rewrite.ends[1].size
            )
            for place in (old, path) if follow and untouched else (old,):
                self.now += 1
                answer = {**self._answer(session), "timestamp": iso(self.now)}
                line = {"type": "beat"} if beat else answer
                session.lines.append(line)
                session.open &= beat  # an answer closes the turn
                with open(place, "ab") as handle:
                    handle.write(dump(line))
                os.utime(place, (self.now, self.now))
                figures["late"] += 1
            self.crash_while_recovering(at if not beat else 10**6)
            self._recovered()
            if not untouched:  # both files grew after the crash: lines of one follow the other's
                place = self._read(session).index(dump(line))
                session.lines.insert(place, session.lines.pop())
            self._touch(session)

    # What must hold after every step.

    @invariant()
    def every_byte_is_there(self):
        """Check that each line is as written, or can be restored to that."""
        figures["steps"] += 1
        if not self.crashed:
            self._store_is_sound()
        for session in self.sessions.values():
            self._check(session)
        for name, session in self.archives.items():
            self._check_archive(name, session)

    def _check(self, session):
        path = self._path(session)
        raw = self._read(session)
        assert len(raw) == len(session.lines)
        assert os.stat(path).st_mtime == session.mtime
        figures["lines"] += len(raw)
        whole = b"".join(raw)
        if self.crashed or not (PLACEHOLDER.search(whole) or ARCHIVED in whole):
            for line, true in zip(raw, session.lines, strict=True):
                if not self.crashed and _without_placeholders(line) not in (None, true):
                    self._must_be_expired(session, line, true)  # and its field was taken out
            if self.crashed:
                return
        full = b"".join(cat(self.world.settings(**KEYS), self.world.store, str(path), self.now))
        rows = full.splitlines(keepends=True) if b"\r" not in full else full.split(b"\n")
        for line, true in zip(rows, session.lines, strict=True):
            if OURS.sub(b"", line) != OURS.sub(b"", dump(true)):
                self._must_be_expired(session, line, true)
        for (name, ident), allowed in self.pinned.items():
            if name == session.name:
                assert self._placeholders_of(session, ident) <= allowed, (
                    "a pinned value was extracted"
                )

    def _must_be_expired(self, session, line, true):
        """Check that every value that is not restored has a tombstone, and may have expired."""
        for place, value in differences(json.loads(line), true):
            if place[0] in ("_restored", "_extractable", "_redacted"):
                continue
            if self._is_shown_only(session, true["id"], _text(value)):
                continue
            row = self.world.store._connection.execute(
                "SELECT max(expired_at) FROM extractions WHERE blob_id IS NULL AND"
                " (path = ? AND (replacement IS NULL AND name = ? OR replacement = ?)"
                "  OR path = ? AND (entry_id = ? AND replacement IS NOT NULL OR replacement = ?))",
                (
                    key_path_text(place),
                    id_named(_text(value)),
                    json.dumps(value),
                    key_path_text(place[:-1]),
                    true["id"],
                    dump(_at(json.loads(line), [str(step) for step in place[:-1]]))
                    .decode()
                    .strip(),
                ),  # arguments gave way as a whole, and their entry may bear a new id since
            ).fetchone()
            assert row[0] is not None, f"{place} of {true['id']} is lost: {value!r:.80}"
            ident = PLACEHOLDER.fullmatch(_text(value).encode())
            assert ident is None or ident[1] in self.may_go, "a value went too early"
            figures["tombstones"] += 1

    def _is_shown_only(self, session, ident, text):
        """Check whether a value is shown but not restored, because a fork got new ids.

        For a part that belongs to no tool call, only the ids of its entry and session distinguish
        a placeholder from typed text.
        """
        rows = self.world.store._connection.execute(
            "SELECT e.entry_id, e.anchor, s.identity FROM extractions e JOIN sessions s"
            " ON s.id = e.session_id WHERE e.blob_id IS NOT NULL"
            " AND (e.name = ? AND e.replacement IS NULL OR e.replacement = ?)",  # or an archive
            (id_named(text), json.dumps(text)),
        ).fetchall()
        return rows and all(
            entry != ident and anchor is None and own != session.lines[0]["id"]
            for entry, anchor, own in rows
        )

    def _check_archive(self, name, session):
        path = self._path(session).with_name(name)
        raw = path.read_bytes()
        assert raw.count(b"\n") == len(session.lines)
        if self.crashed:
            return
        for line, true in zip(raw.splitlines(keepends=True), session.lines, strict=True):
            for place, value in differences(json.loads(line), true):
                if place[0].startswith("_") or not PLACEHOLDER.fullmatch(_text(value).encode()):
                    continue
                ident = PLACEHOLDER.fullmatch(_text(value).encode())[1].decode()
                held = self.world.store._connection.execute(
                    "SELECT 1 FROM extractions WHERE name = ? AND replacement IS NULL"
                    " AND blob_id IS NOT NULL",
                    (ident,),
                ).fetchone()
                went = "a value whose placeholder is archived went too early"
                assert held or ident.encode() in self.may_go, went

    def _store_is_sound(self):
        connection = self.world.store._connection
        assert set(self.world.leftovers()) <= self.stray
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("SELECT count(*) FROM journal").fetchone() == (0,)
        for table in ("extractions", "fields"):
            pending = f"SELECT count(*) FROM {table} WHERE journal_id IS NOT NULL"
            assert connection.execute(pending).fetchone() == (0,)
        bare = "SELECT count(*) FROM extractions WHERE (blob_id IS NULL) != (expired_at NOT NULL)"
        assert connection.execute(bare).fetchone() == (0,), "bytes went without a tombstone"
        for blob, digest in connection.execute(
            "SELECT blob_id, digest FROM extractions WHERE blob_id IS NOT NULL"
        ).fetchall():
            figures["placeholders"] += 1
            assert self.world.store.blobs.get(blob, digest)

    # How it is done.

    def _verb(self, act, *arguments, **keywords):
        """Run an operation; return None if it refused or crashed."""
        at, self.crash_at = self.crash_at, None
        self._recovered()
        busy = {
            self._path(session): os.stat(self._path(session)).st_ino
            for session in self.sessions.values()
            if session.open and self.now - session.mtime < HOUR
        }
        self.shim.at, self.shim.dies_exchanged = at, self.dies_exchanged
        self.dies_exchanged = False
        try:
            return act(*arguments, **keywords)
        except BrainsurgeonError:
            return None
        except Crash:
            self.crashed, self.named = True, dict(self.sessions)
            return None
        finally:
            if self.crashed:
                self._die()
            self.shim.reset()
            for path, inode in busy.items():
                assert os.stat(path).st_ino == inode, "a session with an open turn was replaced"

    def _die(self):
        figures["crashes"] += 1
        gc.collect()
        with contextlib.suppress(Crash):
            self.world.close()
        self.world._stores.clear()
        while self.shim.copies:
            with contextlib.suppress(OSError):
                os.close(self.shim.copies.pop())

    def _recovered(self):
        self.shim.copies.clear()
        if not self.crashed:
            return
        try:
            recover.recover(self.world.store)
            self.world.kept = Kept()
            self.crashed = False
        finally:
            if self.crashed:
                self._die()
            self.shim.reset()

    def _new_session(self, parent=None, *, old_name=False, agent="main"):
        self.counter += 1
        known = {key.partition(".jsonl")[0] + ".jsonl" for key in self.archives}
        free = sorted(known - self.sessions.keys())
        name = free[0] if free and old_name else f"session-{self.counter}.jsonl"
        header = {
            "type": "session", "version": 3, "id": name.removesuffix(".jsonl"),
            "timestamp": "2026-11-01T10:00:00.000Z", "cwd": "/w",
        }  # fmt: skip
        if parent:
            header["parentSession"] = parent
        session = self.sessions[name] = Session(name, header)
        session.agent = agent if agent in self.agents else self.agents[0]
        self.pinned = {key: v for key, v in self.pinned.items() if key[0] != name}
        self._path(session).write_bytes(dump(header))
        self._touch(session)
        return session

    def _session(self, at):
        names = sorted(self.sessions)
        return self.sessions[names[at % len(names)]] if names else None

    def _path(self, session):
        return self._sessions_of(session.agent) / session.name

    def _sessions_of(self, agent):
        directory = self.world.root / agent / "sessions"
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def _files(self):
        return sorted(path for path in self.world.root.glob("*/sessions/*") if path.is_file())

    def _read(self, session):
        return self._path(session).read_bytes().splitlines(keepends=True)

    def _touch(self, session):
        session.mtime = self.now
        os.utime(self._path(session), (self.now, self.now))

    def _turn(self, session, size, *, closed, odd):
        self._write(session, self._entry(session, {"role": "user", "content": self._prompt(odd)}))
        call = self._call(session, "exec", {"command": "ls"}, thinking=self._text(size, 0))
        self._write(session, call)
        self._write(session, self._result(session, call, self._text(size, odd), "exec"))
        session.open = True
        if closed:
            self._close(session)

    def _close(self, session):
        self._write(session, self._answer(session))
        session.open = False

    def _answer(self, session):
        content = [{"type": "text", "text": "done."}]
        return self._entry(session, {
            "role": "assistant", "content": content, "api": "openai-completions",
            "stopReason": "stop",
        })  # fmt: skip

    def _call(self, session, tool, arguments, thinking=None):
        self.counter += 1
        content = [{"type": "thinking", "thinking": thinking}] if thinking else []
        content.append({"type": "toolCall", "id": f"call_{self.counter}", "name": tool,
                        "arguments": arguments})  # fmt: skip
        return self._entry(session, {
            "role": "assistant", "content": content, "api": "openai-completions",
            "stopReason": "toolUse",
        })  # fmt: skip

    def _result(self, session, call, text, tool):
        message = {
            "role": "toolResult", "toolCallId": call["message"]["content"][-1]["id"],
            "toolName": tool, "content": [{"type": "text", "text": text}],
            "details": {"output": text}, "isError": False,
        }  # fmt: skip
        return self._entry(session, message)

    def _entry(self, session, message):
        self.counter += 1
        return {"type": "message", "id": f"{self.counter:08x}", "parentId": session.last,
                "timestamp": "2026-11-01T10:00:01.000Z", "message": message}  # fmt: skip

    def _write(self, session, line):
        line["parentId"] = session.last
        session.lines.append(line)
        with open(self._path(session), "ab") as handle:
            handle.write(dump(line))
        self._touch(session)

    def _text(self, size, odd):
        """Return a value: new, used before, with odd characters, or like a placeholder."""
        self.counter += 1
        if odd == 1 and self.texts:
            return self.texts[self.counter % len(self.texts)]
        if odd == 2:
            return self._prompt(2)
        text = f"{self.counter} " + 'é"\\\u2028\t' * (odd == 3)
        text += "word " * (size // 5)
        self.texts.append(text)
        return text

    def _prompt(self, odd):
        """Return a prompt, sometimes a placeholder that is or may soon be in a file."""
        if odd != 2:
            return "go on"
        written = b"".join(path.read_bytes() for path in self._files() if path.suffix == ".jsonl")
        ids = sorted({ident.decode() for ident in PLACEHOLDER.findall(written)})
        ids = ids or [ident for session in self.sessions.values() for ident in session.ids()]
        return f"[[extracted-{ids[self.counter % len(ids)]}]]" if ids else "go on"

    def _rename(self, session, lines, start):
        """Set new ids from some entry on; redacted text is the agent's own from then on."""
        last = lines[start].get("id") if start and len(lines) > start else None
        for number in range(1 + start, len(lines)):
            self.counter += 1
            true = session.lines[number]
            if "id" not in true:
                continue
            if lines[number].get("_redacted") and lines[number] is not true:
                message = copy.deepcopy(lines[number]["message"])
                for place, value in differences(message, true["message"]):
                    if PLACEHOLDER.fullmatch(_text(value).encode()):
                        _put(message, place, _at(true["message"], [str(step) for step in place]))
                true["message"] = message
            self.pinned.pop((session.name, true["id"]), None)
            for line in (lines[number], true):
                line["id"], line["parentId"] = f"{self.counter:08x}", last
            last = true["id"]

    def _write_anew(self, session, lines, *, in_place):
        path = self._path(session)
        data = b"".join(map(dump, lines))
        if in_place:
            path.write_bytes(data)
        else:
            other = path.with_suffix(".writing")
            other.write_bytes(data)
            other.rename(path)
        self._touch(session)

    def _extraction(self, at):
        """Choose an extracted entry of a session that has a file; return it with path and name."""
        if self.crashed:
            return None
        known = all_sessions(self.world.settings(**KEYS), self.world.store)
        where = {row.record.id: row.path for row in known if row.record and row.file}
        rows = self.world.store._connection.execute(
            "SELECT DISTINCT entry_id, session_id FROM extractions WHERE journal_id IS NULL"
            " ORDER BY id"
        ).fetchall()
        rows = [
            (entry, where[ident], os.path.basename(where[ident]))
            for entry, ident in rows if ident in where
        ]  # fmt: skip
        return rows[at % len(rows)] if rows else None

    def _placeholders_of(self, session, ident):
        for raw, true in zip(self._read(session), session.lines, strict=True):
            if true.get("id") == ident:
                return {place for place, value in differences(json.loads(raw), true)
                        if PLACEHOLDER.fullmatch(_text(value).encode())}  # fmt: skip
        return set()

    def _inodes(self):
        return {path: path.stat().st_ino for path in self._files()}

    def _contents(self):
        return {path: path.read_bytes() for path in self.base.rglob("*") if path.is_file()}


def _fast_directory():
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _text(value):
    value = value.get("text") if isinstance(value, dict) else value
    return value if isinstance(value, str) else json.dumps(value)


def _without_placeholders(line):
    """Return the parsed line, or None if it holds anything of brainsurgeon."""
    found_mark = PLACEHOLDER.search(line) or OURS.search(line) or ARCHIVED in line
    return None if found_mark else json.loads(line)


def _has_inode(path, inode):
    return path.exists() and path.stat().st_ino == inode


def _at(value, steps):
    for step in steps:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value


def _put(value, place, new):
    _at(value, [str(step) for step in place[:-1]])[place[-1]] = new


class AgentsWithRows(RowRules, Agents):
    """The same world, with an agent that keeps its sessions in a database."""

    keys, figures = KEYS, figures


def _run(machine=Agents, **limits):
    for name in figures:
        figures[name] = 0
    run_state_machine_as_test(
        machine,
        settings=settings(
            deadline=None, suppress_health_check=list(HealthCheck), database=None, **limits
        ),
    )
    print("state machine: " + ", ".join(f"{count} {name}" for name, count in figures.items()))


def test_random_actions_and_crashes_lose_nothing():
    """After every step, each byte that the agent wrote is in the file or in the store."""
    _run(max_examples=28, stateful_step_count=40, derandomize=True)
    assert figures["crashes"] > 5
    assert figures["placeholders"] > 500
    assert figures["rolled back"] > 2
    assert figures["whole again"] > 0
    assert figures["kept"] > 10
    assert figures["moves"] > 50  # the same lives are not drawn on every machine


@pytest.mark.long(proves=("formats", "planning", "store", "sessions", "rewrite", "operations"))
def test_many_random_actions_and_crashes_lose_nothing():
    """The same for more and longer examples, which differ each time."""
    _run(max_examples=1000, stateful_step_count=60)


def test_random_actions_and_crashes_lose_no_database_event():
    """After every step, each event that the agent wrote is in its database or in the store."""
    _run(AgentsWithRows, max_examples=12, stateful_step_count=30, derandomize=True)
    assert figures["crashes"] > 1
    assert figures["placeholders"] > 100


@pytest.mark.long(proves=("formats", "agents", "store", "sessions", "rewrite", "operations"))
def test_many_random_actions_and_crashes_lose_no_database_event():
    """The same for more and longer examples, which differ each time."""
    _run(AgentsWithRows, max_examples=600, stateful_step_count=50)
