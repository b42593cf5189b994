"""A power cut at any moment of a real operation: after recovery nothing is lost.

One operation is traced; every state of the disk that a power cut may leave by a weak model (see
`power/tracing.py`) is built, recovered and undone. To prove that the model is strict enough, every
sync is left out in turn: that must break a promise, or be in the table with its reason.
"""

import contextlib
import functools
import hashlib
import itertools
import json
import os
import re
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files import exchange, retire
from brainsurgeon.model.entries import placeholder_named
from brainsurgeon.model.turns import LINK, MARK
from brainsurgeon.operations.restore import restore_all
from brainsurgeon.rewrite import recover
from brainsurgeon.store import open_store
from brainsurgeon.store.database import key_path_text
from building.world import Conversation
from proofs.power import operation as operations
from proofs.power.tracing import Disk, strace_problem, trace

NOWHERE = 1 << 60
# Two sessions are extracted in one run, with shared commits.
TOGETHER = "together"
# Turns are archived, and restored.
ARCHIVING = ["archive", "unarchive"]
PLACEHOLDER = re.compile(rb"\[\[extracted-[^\]]*\]\]")
STANDS = """EXISTS (SELECT 1 FROM placements p
    WHERE p.extraction_id = e.id AND p.session_id = e.session_id)"""


STRACE_PROBLEM = strace_problem()
# Only a trace shows what reached the disk; strace may be missing on a developer's machine.
pytestmark = pytest.mark.skipif(STRACE_PROBLEM is not None, reason=str(STRACE_PROBLEM))


# The old file got its name back after the rewrite was recorded, which leaves records without a
# placeholder: the next scan corrects the store.
HARMLESS = {(verb, "a recorded extraction is not in the file") for verb in ("followed", "beat")}


class Traced:
    """One operation on a small world, traced."""

    def __init__(self, base, verb):
        self.base, self.verb = str(base), verb
        self.session = f"{self.base}/agents/main/sessions/one.jsonl"
        beside = self.session.replace("one", "two")
        self.sessions = [self.session, beside] if verb == TOGETHER else [self.session]
        self.original = self._build()
        if verb == "follow":
            self._move_and_go_on()
        elif verb not in ("scan", "archive", RELIEF, TOGETHER, *operations.LINES):
            operations.act(self.base, "archive" if verb == "unarchive" else "scan")
        before = [os.stat(path).st_ino for path in self.sessions]
        contents = {
            str(path): path.read_bytes() for path in Path(base).rglob("*") if path.is_file()
        }
        changes = trace(self.base, verb, f"{self.base}.trace")
        self.disk = Disk(contents, [f"{self.base}/state", os.path.dirname(self.session)], changes)
        ended = {path: number for path, number, *_ in next(iter(self.disk.ends()))}
        self._numbers = {}
        for path, inode in zip(self.sessions, before, strict=True):
            self._numbers |= {inode: self.disk.numbers[path], os.stat(path).st_ino: ended[path]}
        self._new = self._new_file(self.disk.numbers[self.session])
        self.with_both_files = 0
        self._known = {}
        self._checked = {}

    def _new_file(self, old):
        """Return the number of the file that was to take the session's name, or None."""
        return next(
            (number for state in self.disk.states(coarse=True) for path, number, *_ in state
             if path.endswith(".tmp") and number != old), None,
        )  # fmt: skip

    def _build(self):
        os.makedirs(os.path.dirname(self.session))
        for number, path in reversed([*enumerate(self.sessions)]):
            conversation = Conversation(f"11111111-0000-4000-8000-{number:012}")
            conversation.turn("first " + "x" * 900)
            conversation.turn("second " + "y" * 700)
            data = conversation.bytes()
            Path(path).write_bytes(data)
        open_store(f"{self.base}/state").close()
        self._age()
        return data

    def _move_and_go_on(self):
        """Extract the session under another name, rename it, and append a turn."""
        elsewhere = self.session.replace("one", "two")
        os.rename(self.session, elsewhere)
        operations.act(self.base, "scan")
        os.rename(elsewhere, self.session)
        since = Conversation()
        since._ids = itertools.count(0x100)
        since.turn("since " + "z" * 800)
        lines = since.bytes().split(b"\n", 1)[1]
        with open(self.session, "ab") as file:
            file.write(lines)
        self.original += lines
        self._age()

    def _age(self):
        for path in Path(self.base, "agents").rglob("*"):
            os.utime(path, (operations.NOW - 7 * operations.DAY,) * 2)

    def verdict(self, state):
        """Return the problem after a power cut that leaves this state, or None."""
        if state not in self._known:
            self._known[state] = self._judge(state)
        return self._known[state]

    def _judge(self, state):
        try:
            mark = self._materialise(state)
            if mark not in self._checked:
                check = self._check if len(self.sessions) == 1 else self._check_each
                self._checked[mark] = check()
        except (sqlite3.Error, BrainsurgeonError, OSError) as error:
            return f"{type(error).__name__}: {error}"[:90]
        return self._checked[mark]

    def _materialise(self, state):
        """Write the state to disk and let SQLite recover; return a digest of files and database."""
        shutil.rmtree(self.base)
        os.makedirs(os.path.dirname(self.session))
        os.mkdir(f"{self.base}/state", 0o700)
        inodes = {}
        mark = hashlib.blake2b()
        for path, number, count, half in state:
            data = self.disk.content(number, count, half)
            Path(path).write_bytes(data)
            os.chmod(path, 0o600)
            inodes[number] = os.stat(path).st_ino
            if not path.startswith(f"{self.base}/state/"):
                mark.update(repr((path, number, data)).encode())
        self._age()
        with sqlite3.connect(f"{self.base}/state/store.db") as database:
            sound = database.execute("PRAGMA integrity_check").fetchone()[0]
            if sound != "ok":
                raise sqlite3.DatabaseError("the database is damaged")
            mark.update("\n".join(map(repr, database.iterdump())).encode())
            self._rename_inodes(database, inodes)
        database.close()
        return mark.digest()

    def _rename_inodes(self, database, inodes):
        """Replace the inodes in the journal by those of the files written now."""
        for row, text in database.execute("SELECT id, rewrite FROM journal").fetchall():
            rewrite = json.loads(text)
            for name in ("inode", "new_inode", "moving_to"):
                if number := rewrite[name]:
                    now = inodes.get(self._numbers.get(number, self._new), NOWHERE)
                    rewrite[name] = now
            renumbered = json.dumps(rewrite)
            database.execute("UPDATE journal SET rewrite = ? WHERE id = ?", (renumbered, row))

    def _check(self):
        if not all(os.path.exists(path) for path in self.sessions):
            return "the session is gone"
        store = open_store(f"{self.base}/state")
        try:
            recover.recover(store)
            self._age()
            content = Path(self.session).read_bytes()
            *lines, tail = content.split(b"\n", self.original.count(b"\n"))
            if len(lines) != self.original.count(b"\n"):
                return "the session is torn"
            if tail not in _tails(self.verb):
                return "lines are lost, doubled or in another order"
            why = _differs(store, content)
            if why and (self.verb, why) not in HARMLESS:
                return why
            if any(rewrite.stays for rewrite in store.journal.open_rewrites()):
                self.with_both_files += 1
                return self._lost_beside(store, tail)
            if store.journal.open_rewrites():
                return "the rewrite cannot be finished"
            if os.listdir(os.path.dirname(self.session)) != ["one.jsonl"]:
                return "a temporary file is left"
            for _ in range(2):  # a field that was asked for before the cut is set first
                restore_all(
                    operations.settings_of(self.base), store, clock=operations.Clock(),
                    pristine=True,
                )  # fmt: skip
            if Path(self.session).read_bytes() != self.original + tail:
                return "the undo does not restore the original"
            return None
        finally:
            store.close()

    def _check_each(self):
        """Check sessions that were extracted together, without late lines."""
        with contextlib.closing(open_store(f"{self.base}/state")) as store:
            recover.recover(store)
            self._age()
            for path in self.sessions:
                content = Path(path).read_bytes()
                if content.count(b"\n") != self.original.count(b"\n"):
                    return "the session is torn"
                if why := _differs(store, content, path):
                    return why
            if store.journal.open_rewrites():
                return "the rewrite cannot be finished"
            if len(os.listdir(os.path.dirname(self.session))) != len(self.sessions):
                return "a temporary file is left"
            settings = operations.settings_of(self.base)
            restore_all(settings, store, clock=operations.Clock(), pristine=True)
            for number, path in enumerate(self.sessions):
                content = Path(path).read_bytes().replace(b"%012d" % number, b"%012d" % 0)
                if content != self.original:
                    return "the undo does not restore the original"
        return None

    def _lost_beside(self, store, tail):
        """Return the problem if two files stay although the order of the lines is known."""
        [rewrite] = store.journal.open_rewrites()
        content = Path(rewrite.temporary_path).read_bytes()
        *_, beside = content.split(b"\n", self.original.count(b"\n"))
        if self.verb not in operations.LINES or not tail or not beside:
            return "the old file stays although nothing is uncertain"
        return None


@functools.cache
def _tails(verb):
    """Return the possible bytes after the session's own lines: late lines are not synced."""
    parts = [
        [line[:end] for end in range(len(line) + 1)] for line in operations.LINES.get(verb, ())
    ]
    between = (b"", b"\n") if len(parts) > 1 else (b"",)
    return {sep.join(chosen) for sep in between for chosen in itertools.product(*parts)}


def _differs(store, content, path=""):
    """Return the contradiction between store and file after recovery, or None."""
    held = {
        placeholder_named(name).encode(): (blob, stands)
        for name, blob, stands in store._connection.execute(
            f"SELECT e.name, e.blob_id, {STANDS} FROM extractions e JOIN sessions s"
            " ON s.id = e.session_id WHERE e.replacement IS NULL AND e.journal_id IS NULL"
            " AND ? IN ('', CAST(s.path AS TEXT)) ORDER BY e.id",
            (path,),
        )
    }
    for placeholder in PLACEHOLDER.findall(content):
        if held.get(placeholder, (None,))[0] is None:
            return "a placeholder has no value"
        if not held[placeholder][1]:
            return "a placeholder of a restored value is in the file"
    for placeholder, (_, stands) in held.items():
        if stands and placeholder not in content:
            return "a recorded extraction is not in the file"
    if why := _differs_in_archives(store, content):
        return why
    for (after,) in store._connection.execute("SELECT after FROM fields"):
        if after not in content:
            return "a recorded field is not in the file"
    noted = "SELECT seq FROM sqlite_sequence WHERE name = 'requests' AND seq > 0"
    noted = store._connection.execute(noted).fetchall()
    if noted and not store.requests.count_open() and b'"_extractable":false' not in content:
        return "a finished request was not carried out"
    return None


def _differs_in_archives(store, content):
    """Return the contradiction between store and file about archived turns, or None."""
    records = store._connection.execute(
        f"SELECT replacement, blob_id, {STANDS} FROM extractions e"
        " WHERE archive_id IS NOT NULL AND path != ?",
        (key_path_text(LINK),),
    ).fetchall()
    archived = content.count(MARK.encode())
    standing = [text for text, _, stands in records if stands]
    if any(text.encode() not in content for text in standing):
        return "a recorded archive is not in the file"
    if archived > sum(blob is not None for _, blob, _ in records):
        return "an archive has no value"
    if archived > len(standing):
        return "an archive of restored turns is in the file"
    return None


@pytest.fixture(scope="module")
def traced():
    base = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    operations_by_verb = {}

    def of(verb):
        if verb not in operations_by_verb:
            operations_by_verb[verb] = Traced(Path(base, verb), verb)
        return operations_by_verb[verb]

    yield of
    shutil.rmtree(base)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """Skip waits: the states are built, not passed through."""
    monkeypatch.setattr(retire, "LOOK_BACK", 0.0)
    monkeypatch.setattr(exchange, "WAIT_FOR_OPENERS", 0.0)


def violations(operation, states):
    counts = {}
    for state in states:
        if why := operation.verdict(state):
            counts[why] = counts.get(why, 0) + 1
    return counts


def roles(changes):
    created = _first(changes, lambda change: _on_temporary_file(change, "create"))
    swapped = _first(changes, lambda change: change[0] == "exchange")
    removed = _first(changes, lambda change: _on_temporary_file(change, "unlink"))
    commits = [
        i
        for i, operation in enumerate(changes)
        if operation[0] == "create" and "-journal" in operation[2]
    ]
    stages = {
        max((i for i in commits if i < swapped), default=-1): "naming",
        max((i for i in commits if i < created), default=-1): "shelving",
        min((i for i in commits if i > swapped), default=-1): "confirming",
        min((i for i in commits if i > removed), default=-1): "closing",
    }
    steps = ("journal, first", "name of the journal", "journal", "database", "end of the commit")
    result, stage, step = {}, "", iter(())
    for index, operation in enumerate(changes):
        if index in commits:
            stage, step = stages.get(index, "other"), iter(steps)
        if operation[0].startswith("sync"):
            if operation[1].endswith(".tmp"):
                result[index] = "session", "new content"
            elif operation[1].endswith("sessions"):
                result[index] = "session", "exchange" if index < removed else "old file removed"
            else:
                result[index] = stage, next(step)
    return result


def _first(changes, fits):
    return next((i for i, change in enumerate(changes) if fits(change)), len(changes))


def _on_temporary_file(operation, kind):
    return operation[0] == kind and operation[2].startswith(".brainsurgeon-")


# The syncs without which no promise is broken, each with the reason.
SPARED = {
    ("any", "journal, first"):
        "SQLite syncs the journal twice, for disks that reorder the writes of one file; here the"
        " writes of one file are lost from the end only, and the second sync covers the first",
    ("other", "end of the commit"):
        "nothing outside the database relies on this commit, and a later commit makes it durable",
    ("other", "name of the journal"):
        "the last commit of a retention run changes one page beside the counter in the header: half"
        " of it is the state before or after",
    ("other", "journal"): "as for its name",
    ("other", "database"):
        "the last commit of a change by hand only notes what it saves: one row, in one page",
    ("naming", "end of the commit"):
        "it distinguishes an old file with late lines from one without: there are none here",
    ("confirming", "end of the commit"):
        "recovery finds the row open, sees the exchange by the inode, and confirms again",
    ("closing", "name of the journal"):
        "one row is deleted; with it or without it, recovery has nothing to do",
    ("closing", "journal"): "as for the name of the journal",
    ("closing", "database"): "as for the name of the journal",
    ("closing", "end of the commit"): "as for the name of the journal",
}  # fmt: skip


VERBS = ["scan", "pin", "undo-and-expire", "ask"]
ROLLBACK = "rollback"
RELIEF = "relieve"
# The recorded path of a session may be lost at the cost of time: nothing relies on that commit.
FOLLOWING = "follow"
PROOF = pytest.mark.long(proves=("store", "sessions", "rewrite"))
# The verbs that differ most; the long form has the others.
ALWAYS = {"scan", "undo-and-expire", ROLLBACK, "archive", "late", "followed"}
EVERY = [
    verb if verb in ALWAYS else pytest.param(verb, marks=PROOF)
    for verb in (*VERBS, TOGETHER, FOLLOWING, ROLLBACK, RELIEF, *ARCHIVING, *operations.LINES)
]


@pytest.mark.parametrize("verb", EVERY)
def test_power_cut_at_any_moment_loses_nothing(traced, verb):
    """Every state that a power cut may leave recovers and can be undone to the byte."""
    operation = traced(verb)
    states = list(operation.disk.states())
    problems = violations(operation, states)
    print(
        f"power loss, {verb}: {len(operation.disk.operations)} changes,"
        f" {len(operation.disk.syncs())} syncs,"
        f" {len(states)} states, {operation.with_both_files} with both files kept,"
        f" violations {problems or 0}"
    )
    assert len(states) > 30
    assert not problems


def _without_last_run(end):
    """Leave out the time of the last run without changes, which need not be durable."""
    return frozenset(file for file in end if not file[0].endswith("/last_run"))


@pytest.mark.parametrize("verb", EVERY)
def test_finished_command_is_durable(traced, verb):
    """After a command has ended, a power cut takes back none of its changes."""
    disk = traced(verb).disk
    assert len({_without_last_run(end) for end in disk.ends()}) == 1
    assert len(disk.ends(disk.syncs()[-1])) > 1


def _spared(operation, *, coarse):
    """Leave out every sync in turn; return the roles of those whose absence breaks nothing."""
    spared, states = set(), 0
    for index, role in roles(operation.disk.operations).items():
        broken = len(operation.disk.ends(index)) > 1
        for state in () if broken else operation.disk.states(index, coarse=coarse):
            states += 1
            if broken := operation.verdict(state) is not None:
                break
        if not broken:
            spared.add(("any", role[1]) if role[1] == "journal, first" else role)
    syncs = len(operation.disk.syncs())
    print(
        f"power loss, {operation.verb}: each of {syncs} syncs left out, {states} states,"
        f" {len(spared)} roles may be spared"
    )
    return spared


def test_every_sync_is_needed_or_listed_with_a_reason(traced):
    """Leaving out any sync breaks a promise, except those in the table."""
    spared = set().union(*(_spared(traced(verb), coarse=True) for verb in VERBS))
    assert spared == SPARED.keys()


def ended(operation):
    """Return the operation, with the disk as it is after its end."""
    operation._materialise(next(iter(operation.disk.ends())))
    return operation


def test_model_loses_values_without_directory_syncs(traced):
    """The model bites: placeholders come back after their values have expired."""
    operation = traced("undo-and-expire")
    syncs = [
        index for index, role in roles(operation.disk.operations).items() if role[0] == "session"
    ]
    problems = violations(operation, operation.disk.states(syncs[1:], coarse=True))
    print(f"power loss, {operation.verb} without directory syncs: {problems}")
    assert "a placeholder has no value" in problems


def test_traced_operations_extract_pin_restore_and_expire(traced):
    """The store and session after each operation show that it was a real one."""
    ends = {}
    for verb in VERBS:
        operation = ended(traced(verb))
        with contextlib.closing(open_store(f"{operation.base}/state")) as store:
            ends[verb] = Path(operation.session).read_bytes(), *(
                store._connection.execute(f"SELECT count(*) FROM {of}").fetchone()[0]
                for of in ("blobs", "fields", "requests")
            )  # fmt: skip
    original = traced("scan").original
    assert [ends[verb][1:] for verb in VERBS] == [(2, 0, 0), (2, 1, 0), (0, 0, 0), (2, 0, 1)]
    assert ends["undo-and-expire"][0] == original
    assert len(PLACEHOLDER.findall(ends["scan"][0])) == 2
    assert b'"_extractable":false' in ends["pin"][0]


def test_traced_operations_archive_and_restore_turns(traced):
    """Two turns are archived, and the undo restores every byte."""
    archived = {}
    for verb in ARCHIVING:
        archived[verb] = Path(ended(traced(verb)).session).read_bytes().count(MARK.encode())
    assert archived == {"archive": 2, "unarchive": 0}
    assert Path(traced("unarchive").session).read_bytes() == traced("unarchive").original


def test_traced_relieve_extracts_values(traced):
    """At least two placeholders are in the session, which is smaller."""
    operation = ended(traced(RELIEF))
    relieved = Path(operation.session).read_bytes()
    assert len(PLACEHOLDER.findall(relieved)) >= 2
    assert len(relieved) < len(operation.original)


@PROOF
@pytest.mark.parametrize(
    "verb", [*VERBS, TOGETHER, "restore-entry", FOLLOWING, ROLLBACK, RELIEF, *ARCHIVING]
)
def test_every_sync_is_needed_in_every_state(traced, verb):
    """Leaving out a sync breaks a promise also if every single write is lost on its own."""
    operation = traced(verb)
    assert not violations(operation, operation.disk.states())
    assert _spared(operation, coarse=False) <= SPARED.keys()
