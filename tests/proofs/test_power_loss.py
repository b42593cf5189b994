"""The power fails anywhere in a real operation: after recovery everything is there.

One operation is traced; every state of the disk that a power cut may leave by a weak model (see
`power/tracing.py`) is built, recovered, and undone. To prove that the model bites, every single
sync is left out in turn: that must break a promise, or stand in the table with its reason.
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
from brainsurgeon.model.entries import placeholder_named
from brainsurgeon.model.turns import LINK, MARK
from brainsurgeon.operations.restore import restore_all
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import exchange, retire
from brainsurgeon.store import open_store
from brainsurgeon.store.database import key_path_text
from building.world import Conversation
from proofs.power import operation as operations
from proofs.power.tracing import Disk, trace, why_not

NOWHERE = 1 << 60
# Two sessions are cut in one run, and share their commits.
TOGETHER = "together"
# Turns archive into their last answers, and come back.
ARCHIVING = ["archive", "unarchive"]
PLACEHOLDER = re.compile(rb"\[\[extracted-[^\]]*\]\]")
STANDS = """EXISTS (SELECT 1 FROM placements p
    WHERE p.extraction_id = e.id AND p.session_id = e.session_id)"""


CANNOT = why_not()
# Without a trace nobody knows what reached the disk; the gate has strace, a newcomer need not.
pytestmark = pytest.mark.skipif(CANNOT is not None, reason=str(CANNOT))


# The old file got its name back after the rewrite counted: records without a placeholder.
HARMLESS = {(verb, "what is said to be extracted is not") for verb in ("followed", "beat")}
# Where the old file got its name back, the next look corrects what the store says.


class Traced:
    """One operation on a small world, as it was traced."""

    def __init__(self, base, verb):
        self.base, self.verb = str(base), verb
        self.session = f"{self.base}/agents/main/sessions/one.jsonl"
        beside = self.session.replace("one", "two")
        self.sessions = [self.session, beside] if verb == TOGETHER else [self.session]
        self.original = self._build()
        if verb == "follow":
            self._move_and_go_on()
        elif verb not in ("cut", "archive", RELIEF, TOGETHER, *operations.LINES):
            operations.act(self.base, "archive" if verb == "unarchive" else "cut")
        before = [os.stat(path).st_ino for path in self.sessions]
        contents = {
            str(path): path.read_bytes() for path in Path(base).rglob("*") if path.is_file()
        }
        done = trace(self.base, verb, f"{self.base}.trace")
        self.disk = Disk(contents, [f"{self.base}/state", os.path.dirname(self.session)], done)
        ended = {path: number for path, number, *_ in next(iter(self.disk.ends()))}
        self._numbers = {}
        for path, inode in zip(self.sessions, before, strict=True):
            self._numbers |= {inode: self.disk.numbers[path], os.stat(path).st_ino: ended[path]}
        self._new = self._new_file(self.disk.numbers[self.session])
        self.kept = 0
        self._known = {}
        self._checked = {}

    def _new_file(self, old):
        """Find the number of the file that was to take the session's name; it may be gone."""
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
        """Let the session be extracted under another name, be renamed, and say something since."""
        elsewhere = self.session.replace("one", "two")
        os.rename(self.session, elsewhere)
        operations.act(self.base, "cut")
        os.rename(elsewhere, self.session)
        since = Conversation()
        since._ids = itertools.count(0x100)
        since.turn("since " + "z" * 800)
        said = since.bytes().split(b"\n", 1)[1]
        with open(self.session, "ab") as file:
            file.write(said)
        self.original += said
        self._age()

    def _age(self):
        for path in Path(self.base, "agents").rglob("*"):
            os.utime(path, (operations.NOW - 7 * operations.DAY,) * 2)

    def verdict(self, state):
        """Say what is wrong after a power cut that leaves this state, or None."""
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
        """Write the state to disk, let SQLite recover, and name the files by their new inodes."""
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
        """Let the journal speak of the files as they are numbered now."""
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
            if any(one.stays for one in store.journal.open_rewrites()):
                self.kept += 1
                return self._lost_beside(store, tail)
            if store.journal.open_rewrites():
                return "the rewrite cannot be finished"
            if os.listdir(os.path.dirname(self.session)) != ["one.jsonl"]:
                return "a file of ours is left"
            for _ in range(2):  # a field that was asked for before the cut is set first
                restore_all(
                    operations.settings_of(self.base), store, clock=operations.Clock(),
                    pristine=True,
                )  # fmt: skip
            if Path(self.session).read_bytes() != self.original + tail:
                return "undoing everything does not give the original back"
            return None
        finally:
            store.close()

    def _check_each(self):
        """Do the same with sessions that were extracted together, without anybody beside them."""
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
                return "a file of ours is left"
            settings = operations.settings_of(self.base)
            restore_all(settings, store, clock=operations.Clock(), pristine=True)
            for number, path in enumerate(self.sessions):
                said = Path(path).read_bytes().replace(b"%012d" % number, b"%012d" % 0)
                if said != self.original:
                    return "undoing everything does not give the original back"
        return None

    def _lost_beside(self, store, tail):
        """Say what is wrong where two files stay, since nothing shows which line was first."""
        [rewrite] = store.journal.open_rewrites()
        *_, beside = Path(rewrite.beside).read_bytes().split(b"\n", self.original.count(b"\n"))
        if self.verb not in operations.LINES or not tail or not beside:
            return "the old file stays although nothing is uncertain"
        return None


@functools.cache
def _tails(verb):
    """Give what may stand behind the session's own lines: nobody synced what came late."""
    parts = [
        [line[:end] for end in range(len(line) + 1)] for line in operations.LINES.get(verb, ())
    ]
    between = (b"", b"\n") if len(parts) > 1 else (b"",)
    return {sep.join(chosen) for sep in between for chosen in itertools.product(*parts)}


def _differs(store, content, path=""):
    """Say where the store and the file contradict each other after recovery."""
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
            return "a placeholder leads nowhere"
        if not held[placeholder][1]:
            return "what is said to be restored is not"
    for placeholder, (_, stands) in held.items():
        if stands and placeholder not in content:
            return "what is said to be extracted is not"
    if why := _differs_in_archives(store, content):
        return why
    for (after,) in store._connection.execute("SELECT after FROM fields"):
        if after not in content:
            return "a field is said to be set and is not"
    noted = "SELECT seq FROM sqlite_sequence WHERE name = 'requests' AND seq > 0"
    noted = store._connection.execute(noted).fetchall()
    if noted and not store.requests.count_open() and b'"_extractable":false' not in content:
        return "a request is said to be done and is not"
    return None


def _differs_in_archives(store, content):
    """Say where store and file contradict each other about the turns that stand archived."""
    said = store._connection.execute(
        f"SELECT replacement, blob_id, {STANDS} FROM extractions e"
        " WHERE archive_id IS NOT NULL AND path != ?",
        (key_path_text(LINK),),
    ).fetchall()
    archived = content.count(MARK.encode())
    standing = [text for text, _, stands in said if stands]
    if any(text.encode() not in content for text in standing):
        return "what is said to be archived is not"
    if archived > sum(blob is not None for _, blob, _ in said):
        return "an archive leads nowhere"
    if archived > len(standing):
        return "what is said to be unarchived is not"
    return None


@pytest.fixture(scope="module")
def traced():
    base = tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
    made = {}

    def of(verb):
        if verb not in made:
            made[verb] = Traced(Path(base, verb), verb)
        return made[verb]

    yield of
    shutil.rmtree(base)


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Wait for nobody and sync nothing: the states are built, not lived through."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(retire, "LOOK_BACK", 0.0)
    monkeypatch.setattr(exchange, "WAIT_FOR_OPENERS", 0.0)


def violations(one, states):
    found = {}
    for state in states:
        if why := one.verdict(state):
            found[why] = found.get(why, 0) + 1
    return found


def roles(done):
    made = next((i for i, one in enumerate(done) if _of_ours(one, "create")), len(done))
    swapped = next((i for i, one in enumerate(done) if one[0] == "exchange"), len(done))
    removed = next((i for i, one in enumerate(done) if _of_ours(one, "unlink")), len(done))
    commits = [i for i, one in enumerate(done) if one[0] == "create" and "-journal" in one[2]]
    stages = {
        max((i for i in commits if i < swapped), default=-1): "naming",
        max((i for i in commits if i < made), default=-1): "shelving",
        min((i for i in commits if i > swapped), default=-1): "confirming",
        min((i for i in commits if i > removed), default=-1): "closing",
    }
    steps = ("journal, first", "name of the journal", "journal", "database", "end of the commit")
    named, stage, step = {}, "", iter(())
    for index, one in enumerate(done):
        if index in commits:
            stage, step = stages.get(index, "other"), iter(steps)
        if one[0].startswith("sync"):
            if one[1].endswith(".tmp"):
                named[index] = "session", "new content"
            elif one[1].endswith("sessions"):
                named[index] = "session", "exchange" if index < removed else "old file removed"
            else:
                named[index] = stage, next(step)
    return named


def _of_ours(one, kind):
    return one[0] == kind and one[2].startswith(".brainsurgeon-")


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
        "it tells an old file that a late opener has written to from one that nobody has: nobody"
        " came late here",
    ("confirming", "end of the commit"):
        "recovery finds the row open, sees the exchange by the inode, and confirms again",
    ("closing", "name of the journal"):
        "one row is deleted; whether it stands or not, recovery finds nothing left to do",
    ("closing", "journal"): "as for the name of the journal",
    ("closing", "database"): "as for the name of the journal",
    ("closing", "end of the commit"): "as for the name of the journal",
}  # fmt: skip


VERBS = ["cut", "pin", "undo-and-let-go", "ask"]
ROLLBACK = "rollback"
RELIEF = "relieve"
# Noting where a session is now may be lost at the cost of time: nothing relies on that commit.
FOLLOWING = "follow"
PROOF = pytest.mark.long(proves=("store", "sessions", "rewrite"))
# The ways that differ most; what the others add to them is proved at length.
ALWAYS = {"cut", "undo-and-let-go", ROLLBACK, "archive", "late", "followed"}
EVERY = [
    verb if verb in ALWAYS else pytest.param(verb, marks=PROOF)
    for verb in (*VERBS, TOGETHER, FOLLOWING, ROLLBACK, RELIEF, *ARCHIVING, *operations.LINES)
]


@pytest.mark.parametrize("verb", EVERY)
def test_a_power_cut_anywhere_loses_nothing(traced, verb):
    """Every state that a power cut may leave recovers to a sound whole, and can be undone."""
    one = traced(verb)
    states = list(one.disk.states())
    found = violations(one, states)
    print(
        f"power loss, {verb}: {len(one.disk.operations)} changes, {len(one.disk.syncs())} syncs,"
        f" {len(states)} states, {one.kept} with both files kept, violations {found or 0}"
    )
    assert len(states) > 30
    assert not found


def _without_moment(end):
    """Leave out when the last run was made that found nothing new: nobody waits for that."""
    return frozenset(file for file in end if not file[0].endswith("/last_run"))


@pytest.mark.parametrize("verb", EVERY)
def test_what_a_command_has_done_is_durable_when_it_ends(traced, verb):
    """When a command is over, a power cut takes nothing of it back."""
    disk = traced(verb).disk
    assert len({_without_moment(end) for end in disk.ends()}) == 1
    assert len(disk.ends(disk.syncs()[-1])) > 1


def _spared(one, *, coarse):
    """Leave out every sync in turn; give the roles of those whose absence breaks nothing."""
    spared, states = set(), 0
    for index, role in roles(one.disk.operations).items():
        bitten = len(one.disk.ends(index)) > 1
        for state in () if bitten else one.disk.states(index, coarse=coarse):
            states += 1
            if bitten := one.verdict(state) is not None:
                break
        if not bitten:
            spared.add(("any", role[1]) if role[1] == "journal, first" else role)
    syncs = len(one.disk.syncs())
    print(
        f"power loss, {one.verb}: each of {syncs} syncs left out, {states} states,"
        f" {len(spared)} roles may be spared"
    )
    return spared


def test_every_sync_is_needed_or_has_its_reason(traced):
    """Leaving out any one sync breaks a promise, but for those that stand in the table."""
    spared = set().union(*(_spared(traced(verb), coarse=True) for verb in VERBS))
    assert spared == SPARED.keys()


def test_without_directory_syncs_values_are_lost(traced):
    """Were the directory never synced, placeholders would come back after their values had gone."""
    one = traced("undo-and-let-go")
    syncs = [index for index, role in roles(one.disk.operations).items() if role[0] == "session"]
    found = violations(one, one.disk.states(syncs[1:], coarse=True))
    print(f"power loss, {one.verb} without directory syncs: {found}")
    assert "a placeholder leads nowhere" in found


def test_the_operations_do_what_their_names_say(traced):
    """The traced operations were real ones: cut, pinned, restored and let go."""
    ends = {}
    for verb in VERBS:
        one = traced(verb)
        one._materialise(next(iter(one.disk.ends())))
        with contextlib.closing(open_store(f"{one.base}/state")) as store:
            ends[verb] = Path(one.session).read_bytes(), *(
                store._connection.execute(f"SELECT count(*) FROM {of}").fetchone()[0]
                for of in ("blobs", "fields", "requests")
            )  # fmt: skip
    original = traced("cut").original
    assert [ends[verb][1:] for verb in VERBS] == [(2, 0, 0), (2, 1, 0), (0, 0, 0), (2, 0, 1)]
    assert ends["undo-and-let-go"][0] == original
    assert len(PLACEHOLDER.findall(ends["cut"][0])) == 2
    assert b'"_extractable":false' in ends["pin"][0]


def test_the_turns_that_are_archived_are_archived(traced):
    """The traced operations were real ones here, too: two turns archived, and came back."""
    archived = {}
    for verb in ARCHIVING:
        one = traced(verb)
        one._materialise(next(iter(one.disk.ends())))
        archived[verb] = Path(one.session).read_bytes().count(MARK.encode())
    assert archived == {"archive": 2, "unarchive": 0}
    assert Path(traced("unarchive").session).read_bytes() == traced("unarchive").original


def test_the_relief_takes_what_it_can(traced):
    """The traced relief was a real one: values went."""
    one = traced(RELIEF)
    one._materialise(next(iter(one.disk.ends())))
    relieved = Path(one.session).read_bytes()
    assert len(PLACEHOLDER.findall(relieved)) >= 2
    assert len(relieved) < len(one.original)


@PROOF
@pytest.mark.parametrize(
    "verb", [*VERBS, TOGETHER, "put-back", FOLLOWING, ROLLBACK, RELIEF, *ARCHIVING]
)
def test_every_sync_is_needed_in_every_state(traced, verb):
    """The same with every single write lost on its own, for one more operation."""
    one = traced(verb)
    assert not violations(one, one.disk.states())
    assert _spared(one, coarse=False) <= SPARED.keys()
