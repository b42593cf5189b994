"""Stop one operation at each of its changes to the disk, and check the recovery.

    python crash_trial.py BASE SCENARIO FAULT EXTENT

The sessions are in BASE/world/agents/main/sessions. Every run is a fork of this process, which
imports everything once and never opens a store itself. A shim precedes every system call and SQL
statement of the program that changes something; at the n-th it kills (`kill`), fails once (`eio`),
or fails from there on (`enospc`). Then a fresh fork recovers, checks, repeats the operation, and
undoes everything. The last line printed is JSON.
"""

import collections
import contextlib
import errno
import fcntl
import gc
import itertools
import json
import os
import re
import shutil
import sqlite3
import struct
import sys
import time
import traceback
from pathlib import Path

from brainsurgeon import config
from brainsurgeon.config.settings import ArchiveTable
from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.files import exchange, leases, retire
from brainsurgeon.files import processes as clocks
from brainsurgeon.operations.relieve import relieve
from brainsurgeon.operations.restore import note_answer, restore, restore_all, rollback
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.render.sessions import restored_json
from brainsurgeon.rewrite import apply, recover
from brainsurgeon.rewrite.relief import Wanted
from brainsurgeon.store import open_store

sys.path.insert(0, str(Path(__file__).parent.parent))
from building import unsynced
from building.imports import import_everything
from building.store_rows import is_restorable

NOW = 1_795_000_000.0
DAY = 86_400.0
KILLED = 137
SOMEBODY = 65534
LATE = b'{"type":"custom","id":"late","data":1}\n'
LATER = b'{"type":"custom","id":"later","data":2}\n'
BEAT = b'{"type":"beat"}\n'
PLACEHOLDER = re.compile(rb"\[\[extracted-[^\]]*\]\]")
NUMBER = re.compile(rb"~[0-9]+\]\]")
READING = ("SELECT", "PRAGMA", "EXPLAIN", "WITH")
UNLOCK = struct.pack("h", fcntl.F_UNLCK)
NEEDS_NO_ROOM = {"fcntl", "exchange", "unlink", "rename", "flock", "rmdir"}


class World:
    """The directories of one scenario."""

    def __init__(self, base):
        self.base = base
        self.template = os.path.join(base, "template")
        self.place = os.path.join(base, "world")
        self.sessions = os.path.join(self.place, "agents", "main", "sessions")
        self.state = os.path.join(self.place, "state")
        self.settings = config.Settings.model_validate({
            "roots": [{"path": os.path.join(self.place, "agents"), "exclusive": True}],
            "state_dir": self.state,
            "quiet_seconds": 0, "min_reclaim": 0, "keep_recent": 0,
        })  # fmt: skip

    def reset(self):
        shutil.rmtree(self.place, ignore_errors=True)
        shutil.copytree(self.template, self.place)
        if os.geteuid() == 0:  # whose file it is must stay, too
            for name in self.names():
                os.chown(os.path.join(self.sessions, name), SOMEBODY, SOMEBODY)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.late_file)

    @property
    def late_file(self):
        """The file in which a late opener records what it wrote."""
        return os.path.join(self.base, "late")

    def record_late(self, line):
        with open(self.late_file, "ab") as handle:
            handle.write(line)

    def late_lines(self):
        with contextlib.suppress(FileNotFoundError), open(self.late_file, "rb") as handle:
            return handle.read()
        return b""

    def names(self):
        return sorted(name for name in os.listdir(self.sessions) if name.endswith(".jsonl"))

    def contents(self):
        read = {}
        for name in self.names():
            with open(os.path.join(self.sessions, name), "rb") as handle:
                read[name] = handle.read()
        return read

    def attributes(self):
        """Return the attributes that must not change with the content."""
        attributes = {}
        for name in self.names():
            path = os.path.join(self.sessions, name)
            status = os.stat(path)
            extended = {key: repr(os.getxattr(path, key)) for key in os.listxattr(path)}
            attributes[name] = [status.st_mode, status.st_mtime_ns, status.st_nlink, extended]
        return attributes

    def owners(self):
        statuses = [os.stat(os.path.join(self.sessions, name)) for name in self.names()]
        return {(status.st_uid, status.st_gid) for status in statuses}

    def settle(self):
        """Set the attributes that must not change, and times of a week ago."""
        for name in self.names():
            path = os.path.join(self.sessions, name)
            os.chmod(path, 0o640)
            with contextlib.suppress(OSError):
                os.setxattr(path, "user.note", b"mine")
            os.utime(path, (NOW - 7 * 86_400, NOW - 7 * 86_400))


def clock():
    return NOW


def prune(world, store):
    report = scan(world.settings, store, clock=clock)
    return {"failed": report.failed or bool(report.interrupted), "changed": report.sessions_changed}


def archive(world, store):
    archiving = ArchiveTable(enabled=True, token_threshold=0, keep_turns=0)
    report = scan(world.settings.model_copy(update={"archive": archiving}), store, clock=clock)
    return {"failed": report.failed or bool(report.interrupted), "changed": report.sessions_changed}


def relieve_session(world, store):
    relief = relieve(world.settings, store, "0", Wanted(to=200), clock=clock)
    return {"failed": relief.pending, "changed": int(relief.values > 0)}


def undo(world, store):
    answers = restore_all(world.settings, store, clock=clock, pristine=True)
    failed = any(answer.state == "failed" for answer in answers)
    return {"failed": failed, "changed": len(answers)}


def roll_back(world, store):
    report = rollback(world.settings, store, 1, clock=clock)
    failed = any(session.unfinished for session in report.sessions)
    return {"failed": failed, "changed": len(report.sessions)}


def pin(world, store):
    """Set a field on an entry whose value is extracted."""
    set_extractable(world.settings, store, "00000003", False, clock=clock, session="0")
    return {"failed": False, "changed": 1}


def restore_one(world, store):
    restore(world.settings, store, "00000003", clock=clock, session="0")
    return {"failed": False, "changed": 1}


def expire(world, store):
    later = NOW + 1.5 * DAY
    with _clocks_at(later):
        report = retention(world.settings, store, clock=lambda: later)
    return {"failed": bool(report.held_back), "changed": report.values_deleted}


@contextlib.contextmanager
def _clocks_at(now):
    before, clocks.boot_clock = clocks.boot_clock, lambda: now
    yield
    clocks.boot_clock = before


def store_made(world, store):
    """Prepare an existing store, where its creation is not what is stopped."""


def pruned(world, store):
    prune(world, store)


def archived(world, store):
    archive(world, store)


def moved(world, store):
    """Prepare sessions that were extracted, then renamed, copied and appended to, without a scan.

    Return the original name of each file.
    """
    prune(world, store)
    old, new, copy = (os.path.join(world.sessions, f"{name}.jsonl") for name in ("0", "8", "9"))
    os.rename(old, new)
    shutil.copy2(new, copy)
    entry = {"type": "message", "id": "x0", "message": {
        "role": "toolResult", "toolCallId": "call_x", "toolName": "exec",
        "content": [{"type": "text", "text": "said since " + "y" * 3000}]}}  # fmt: skip
    end = {"type": "message", "id": "x1", "message": {
        "role": "assistant", "content": [{"type": "text", "text": "that"}],
        "stopReason": "stop"}}  # fmt: skip
    for path in (new, copy):
        with open(path, "ab") as file:
            file.write(b"".join(json.dumps(line).encode() + b"\n" for line in (entry, end)))
    return {"8.jsonl": "0.jsonl", "9.jsonl": "0.jsonl"}


def restore_requested(world, store):
    """Prepare a restore request of an agent that was answered and is not fulfilled yet."""
    prune(world, store)
    busy = world.settings.model_copy(update={"quiet": 10**9})
    answer = restore(busy, store, "00000003", clock=clock, session="0")
    text = json.dumps(restored_json(answer))
    note_answer(store, answer, text)
    call = {"type": "toolCall", "id": "call_x", "name": "purge_control",
            "arguments": {"action": "restore", "entry": "00000003", "keys": "content"}}  # fmt: skip
    messages = [
        {"role": "user", "content": "what was it?"},
        {"role": "assistant", "content": [call], "stopReason": "toolUse"},
        {"role": "toolResult", "toolCallId": "call_x", "toolName": "purge_control",
         "content": [{"type": "text", "text": text}]},
        {"role": "assistant", "content": [{"type": "text", "text": "that"}], "stopReason": "stop"},
    ]  # fmt: skip
    with open(os.path.join(world.sessions, "0.jsonl"), "ab") as file:
        for number, message in enumerate(messages):
            entry = {"type": "message", "id": f"x{number}", "message": message}
            file.write(json.dumps(entry).encode() + b"\n")


def restored_and_retained(world, store):
    """Prepare restored values after one retention run, which trusts no clock the first time."""
    prune(world, store)
    undo(world, store)
    with _clocks_at(NOW):
        retention(world.settings, store, clock=clock)


class Scenario:
    """An operation, its preparation, and the kind of point at which stops begin."""

    def __init__(self, act, *, prepare=None, start=None):
        self.act, self.prepare, self.start = act, prepare, start


SCENARIOS = {
    "scan": Scenario(prune),
    "restore": Scenario(undo, prepare=pruned),
    "rollback": Scenario(roll_back, prepare=pruned),
    "pin": Scenario(pin, prepare=pruned),
    "restore-entry": Scenario(restore_one, prepare=pruned),
    "redact": Scenario(prune, prepare=restore_requested),
    "archive": Scenario(archive),
    "relieve": Scenario(relieve_session),
    "unarchive": Scenario(undo, prepare=archived),
    "follow": Scenario(prune, prepare=moved),
    "follow-undo": Scenario(undo, prepare=moved),
    "expire": Scenario(expire, prepare=restored_and_retained),
    "unleased": Scenario(prune, start="utime"),
    "late": Scenario(prune, start="exchange"),
    "kept": Scenario(prune, start="exchange"),
    "followed": Scenario(prune, start="exchange"),
    "beat": Scenario(prune, start="exchange"),
}


# What somebody who comes late writes, each with the pause after it.
LATE_ONES = {
    "late": [(LATE, 0.0)], "kept": [(LATE, 0.04), (LATER, 0.0)], "followed": [(LATE, 0.0)],
    "beat": [(BEAT, 0.0)],
}  # fmt: skip
# What the agent writes next, by the session's name, before anybody recovers.
FOLLOWING = {"followed": LATER, "beat": BEAT}


def follow(world, line):
    """Append the agent's next line, a little later than the one before."""
    time.sleep(0.012)  # the clock of files is a coarse one
    with open(os.path.join(world.sessions, "0.jsonl"), "ab") as handle:
        handle.write(line)
    world.record_late(line)


class Shim:
    """Precedes every call that changes something, and counts the calls."""

    def __init__(self, fault, at):
        self.fault, self.at = fault, at
        self.points = []
        self._tried = set()
        self.on_exchange = lambda: None
        self.leased = None

    def install(self):
        """Replace the calls; only done in a fork."""
        for name in ("write", "fsync", "fchmod", "fchown", "utime", "setxattr", "unlink", "rename",
                     "link", "ftruncate", "mkdir", "chmod", "pwrite", "rmdir"):  # fmt: skip
            setattr(os, name, self._before(name, getattr(os, name)))
        os.open = self._opening(os.open)
        fcntl.flock = self._before("flock", fcntl.flock)
        fcntl.fcntl = self._controlling(fcntl.fcntl)
        leases.exchange = self._before("exchange", leases.exchange)
        connect = sqlite3.connect
        sqlite3.connect = lambda *a, factory=sqlite3.Connection, **k: connect(
            *a, factory=type("Connection", (self._connection(), factory), {}), **k
        )

    def point(self, what, *, half=lambda: None, error=None):
        """Count one change; stop or fail if it is the chosen one."""
        self.points.append(what)
        number = len(self.points)
        if number < self.at or not self.at:
            return
        if self.fault == "kill":
            half()
            os._exit(KILLED)
        sticky = self.fault == "enospc" and what.split()[0] not in NEEDS_NO_ROOM
        if (self.fault == "eio" and number == self.at) or sticky:
            half()
            raise error() if error else self._error()

    def _error(self):
        number = {"eio": errno.EIO, "enospc": errno.ENOSPC}[self.fault]
        return OSError(number, os.strerror(number))

    def _before(self, name, call):
        def shim(*arguments, **keywords):
            if name == "exchange":
                self.on_exchange()

            def half():
                if name == "write":
                    call(arguments[0], arguments[1][: len(arguments[1]) // 2])

            self.point(name, half=half)
            return call(*arguments, **keywords)

        return shim

    def _opening(self, call):
        def shim(path, flags, *arguments, **keywords):
            if flags & os.O_CREAT:
                self.point("open moment" if str(path).endswith("/last_run") else "open")
            return call(path, flags, *arguments, **keywords)

        return shim

    def _controlling(self, call):
        def shim(descriptor, command, *arguments):
            lease = command == fcntl.F_SETLEASE
            unlocking = command == fcntl.F_OFD_SETLK and arguments[0][:2] == UNLOCK
            if (
                lease
                or command == fcntl.F_SETSIG
                or (command == fcntl.F_OFD_SETLK and not (unlocking and self.fault != "kill"))
            ):
                self._once("fcntl", descriptor, command, *arguments)
            if lease and arguments[0] == fcntl.F_WRLCK:
                self.leased = descriptor
            return call(descriptor, command, *arguments)

        self.control = call
        return shim

    def _once(self, what, *call):
        """Count a call that is repeated while waiting only once."""
        if not self.points or self.points[-1] != what:
            self._tried = set()
        if call not in self._tried:
            self._tried.add(call)
            self.point(what)

    def _connection(self):
        shim = self

        class Connection(sqlite3.Connection):
            def execute(self, sql, *arguments):
                self._before(sql)
                return super().execute(sql, *arguments)

            def executemany(self, sql, *arguments):
                self._before(sql)
                return super().executemany(sql, *arguments)

            def _before(self, sql):
                words = " ".join(sql.split()[:3])
                if not words.upper().startswith(READING) and words != "ROLLBACK":
                    shim.point(f"sql {words}", error=self._failed)

            def _failed(self):
                """Fail as SQLite does on a disk that fails: the transaction is gone."""
                if self.in_transaction:
                    super().execute("ROLLBACK")
                full = shim.fault == "enospc"
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorname = "SQLITE_FULL" if full else "SQLITE_IOERR_WRITE"
                return error

        return Connection


class LateOpener:
    """A process that opens the session before the exchange, and writes."""

    def __init__(self, world, path, lines):
        wait, self._wake = os.pipe()
        self.alive, dying = os.pipe()
        if os.fork() == 0:
            os.close(self._wake)
            os.close(self.alive)
            self._live(world, path, wait, lines)
            os._exit(0)
        os.close(wait)
        os.close(dying)

    def _live(self, world, path, wait, lines):
        if not os.read(wait, 1):
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
        for line, pause in lines:
            os.write(descriptor, line)
            world.record_late(line)
            time.sleep(pause)
        os.close(descriptor)

    def go(self, control, leased):
        """Start its open, and wait until it blocks there."""
        os.write(self._wake, b"!")
        while control(leased, fcntl.F_GETLEASE) == fcntl.F_WRLCK:
            time.sleep(0.0005)


def hurry():
    """Shorten every wait, since only the late opener is waited for, and sync nothing."""
    unsynced.install()
    exchange.WAIT_FOR_OPENERS = 0.0005
    retire.LOOK_BACK = 0.0
    retire.LOOK_BACK_LONGEST = 0.3
    recover._WAIT = 0.3
    apply.BATCH = 1


def run_forked(act, *arguments):
    """Run a function in a fork; return its exit code and result."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            answer = act(*arguments)
        except BaseException:  # noqa: BLE001  a fork must end here, whatever happened
            answer = {"broken": traceback.format_exc()}
        with os.fdopen(writing, "w") as handle:
            json.dump(answer, handle)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as handle:
        output = handle.read()
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), json.loads(output) if output else None


def run(world, scenario, fault, at, dying):
    os.close(dying[0])
    hurry()
    shim = Shim(fault, at)
    if scenario == "unleased":
        leases.take = _no_leases
    if scenario in LATE_ONES:
        _send_late(world, scenario, shim)
    shim.install()
    answer = {"raised": None, "failed": False, "opened": 1 << 20}
    try:
        store = open_store(world.state)
        answer["opened"] = len(shim.points)
        try:
            answer.update(SCENARIOS[scenario].act(world, store))
        finally:
            store.close()
    except (BrainsurgeonError, OSError, sqlite3.Error) as error:
        answer["raised"] = type(error).__name__
        shim.at = 0
    return {**answer, "points": shim.points}


def _no_leases(descriptor):
    raise leases.LeaseUnsupportedError(errno.EINVAL, "no leases here")


def _send_late(world, scenario, shim):
    keeps_open = scenario == "kept"
    exchange.WAIT_FOR_CLOSING = 0.01 if keeps_open else 5.0
    path = os.path.join(world.sessions, "0.jsonl")
    opener = LateOpener(world, path, LATE_ONES[scenario])
    sent = []

    def send():
        if not sent:
            sent.append(True)
            opener.go(shim.control, shim.leased)

    shim.on_exchange = send


def check(world, scenario, before, after, attributes):
    """Recover in a fresh process; return the problems."""
    hurry()
    bad = []
    store = open_store(world.state)
    recover.recover(store)
    stays = [rewrite.stays or "" for rewrite in store.journal.open_rewrites()]
    if scenario == "beat" and any("after a crash it is unknown" in why for why in stays):
        bad += _kept_apart(world, store)
        store.close()
        return bad
    contents, late = world.contents(), world.late_lines()
    for name, content in contents.items():
        tail = late if name == "0.jsonl" else b""
        whole = content.endswith(tail) and content[: len(content) - len(tail)]
        if _unnumbered(whole) not in map(_unnumbered, (before[name], after[name])):
            bad.append(f"{name} is neither as before nor as after ({content[-80:]!r})")
        for line in content.splitlines():
            json.loads(line)
        bad += [f"{name}: {text!r} resolves to nothing" for text in PLACEHOLDER.findall(content)
                if not is_restorable(store, text.decode())]  # fmt: skip
    bad += [f"left beside: {name}" for name in os.listdir(world.sessions)
            if not name.endswith(".jsonl")]  # fmt: skip
    bad += _store_problems(store)
    bad += _event_problems(store)
    again = SCENARIOS[scenario].act(world, store)
    if again["failed"]:
        bad.append("doing it again failed")
    ended = {name: _unnumbered(content) for name, content in world.contents().items()}
    if not late and ended != {name: _unnumbered(content) for name, content in after.items()}:
        bad.append("doing it again does not lead to the end")
    undo(world, store)
    expected = {name: content + (late if name == "0.jsonl" else b"")
                for name, content in attributes[0].items()}  # fmt: skip
    if world.contents() != expected:
        bad.append("undoing everything does not give back the original")
    if os.geteuid() == 0 and world.owners() != {(SOMEBODY, SOMEBODY)}:
        bad.append(f"the owner changed: {world.owners()}")
    if not late and world.attributes() != attributes[1]:
        bad.append(f"attributes changed: {world.attributes()}")
    bad += _store_problems(store)
    store.close()
    return bad


def _unnumbered(content):
    """Remove the numbers of placeholders: which of two equal ids gets one depends on the order."""
    return NUMBER.sub(b"]]", content or b"")


def _kept_apart(world, store):
    """Yield the problems if equal lines cannot be distinguished from one that was moved twice.

    Both files stay with every line, and the journal names the old one.
    """
    beside = [name for name in os.listdir(world.sessions) if not name.endswith(".jsonl")]
    lines = 0
    for name in ["0.jsonl", *beside]:
        with open(os.path.join(world.sessions, name), "rb") as handle:
            lines += handle.read().count(BEAT)
    if lines < 2:
        yield "a line is lost"
    if beside != [rewrite.temporary for rewrite in store.journal.open_rewrites()]:
        yield "the file beside has no name in the journal"


def _store_problems(store):
    whole = store._connection.execute("PRAGMA integrity_check").fetchone()[0]
    foreign = store._connection.execute("PRAGMA foreign_key_check").fetchall()
    pending = store._connection.execute(
        "SELECT count(*) FROM extractions WHERE journal_id IS NOT NULL"
    )
    bare = store._connection.execute(
        "SELECT count(*) FROM extractions WHERE (blob_id IS NULL) != (expired_at IS NOT NULL)"
    )
    problems = {
        "the store is damaged": whole != "ok",
        "rows point nowhere": foreign,
        "the journal is not empty": store.journal.open_rewrites(),
        "pending rows are left": pending.fetchone()[0],
        "bytes went without a tombstone": bare.fetchone()[0],
    }
    return [words for words, wrong in problems.items() if wrong]


def _event_problems(store):
    """Yield each rewrite whose extractions were not logged exactly once, with their session.

    The rows of an undone rewrite stay without an event.
    """
    cut = collections.defaultdict(collections.Counter)
    placed = set()
    for number, session, is_placed, *value in store._connection.execute(
        "SELECT run_id, session_id,"
        " EXISTS (SELECT 1 FROM placements WHERE extraction_id = extractions.id),"
        " entry_id, path, digest FROM extractions"
        " WHERE archive_id IS NULL"  # archived turns are logged as archives
    ):
        cut[number, session][tuple(value)] += 1
        placed |= {(number, session)} if is_placed else set()
    logged = collections.Counter()
    for event in store.events.after(0):
        if event.kind in ("extraction", "redaction"):
            logged[event.run_id, event.session_id] += event.facts["values"]
    for key, rows in cut.items():
        silent = not logged[key] and key not in placed
        if logged[key] != rows.total() and not silent:
            yield f"{rows.total()} were extracted by {key}, {logged[key]} are logged"


def _prepare(world, prepare):
    """Make the template of the sessions; return what undoing must lead to."""
    hurry()
    world.settle()
    original = world.contents()
    if prepare:
        store = open_store(world.state)
        names = prepare(world, store) or {}
        store.close()
        original = {name: original[names.get(name, name)] for name in world.names()}
    world.settle()
    for name, content in world.contents().items():  # what the agent said while it was prepared
        lines = [line for line in content.splitlines(keepends=True) if b'"id": "x' in line]
        original[name] += b"".join(lines)
    return {
        "original": {name: content.decode() for name, content in original.items()},
        "attributes": world.attributes(),
    }


def bytes_of(texts):
    return {name: text.encode() for name, text in texts.items()}


def run_stopped(world, scenario, fault, at):
    """Run the scenario with one fault, and wait for the late opener."""
    alive, dying = os.pipe()
    code, answer = run_forked(run, world, scenario, fault, at, (alive, dying))
    os.close(dying)
    os.read(alive, 1)
    os.close(alive)
    if scenario in FOLLOWING:
        follow(world, FOLLOWING[scenario])
    return code, answer


def _outcome(changed, code, answer):
    if code == KILLED:
        ending = "killed"
    else:
        ending = answer.get("raised") or ("failed" if answer.get("failed") else "went on")
    return f"{'changed' if changed else 'untouched'}, {ending}"


def _misbehaviour(scenario, label, at, code, answer):
    if code == KILLED:
        return
    if code or "broken" in answer:
        yield f"it broke down: {answer or code}"
        return
    in_run = at > answer["opened"] and not label.startswith(("sql", "open moment"))
    if in_run and SCENARIOS[scenario].act in (prune, undo, roll_back) and answer["raised"]:
        yield f"the run raised {answer['raised']} instead of reporting"
    if in_run and SCENARIOS[scenario].act is prune and not answer["failed"]:
        yield "the run did not say that something failed"


def points_to_stop_at(points, first, extent):
    """Yield the points at which to stop: all, or the first of each kind.

    With "all" it never ends, because a run without a fault shows which is the last.
    """
    if extent == "all":
        yield from itertools.count(first)
    seen = set()
    for at, label in enumerate(points[first - 1 :], first):
        if label not in seen:
            seen.add(label)
            yield at


def main(base, scenario, fault, extent):
    world = World(base)
    import_everything()
    gc.disable()
    gc.freeze()
    chosen = SCENARIOS[scenario]
    in_the_making = fault == "kill" and not chosen.start
    prepare = chosen.prepare or (None if in_the_making else store_made)
    _, prepared = run_forked(_prepare, world, prepare)
    os.rename(world.place, world.template)
    world.reset()
    before = world.contents()
    plain = "scan" if scenario in LATE_ONES else scenario
    run_stopped(world, plain, "none", 0)
    after = world.contents()
    world.reset()
    _, complete = run_stopped(world, scenario, "none", 0)
    points = complete["points"]
    opened = 0 if fault == "kill" else complete["opened"]
    first = points.index(chosen.start, opened) + 1 if chosen.start else opened + 1
    original = bytes_of(prepared["original"]), prepared["attributes"]
    outcomes, bad, hits = collections.Counter(), [], 0
    for at in points_to_stop_at(points, first, extent):
        world.reset()
        code, answer = run_stopped(world, scenario, fault, at)
        hit = code == KILLED or (answer and len(answer.get("points", ())) >= at)
        if not hit and extent == "all":
            break
        if not hit:
            continue  # of a race no two runs are alike
        hits += 1
        # Of a race no two runs are alike: what was struck is what this one says.
        reached = (answer or {}).get("points", points)
        label = reached[at - 1] if at <= len(reached) else "?"
        # Where the moment cannot be noted by itself, it goes into the database as ever.
        label = "open moment" if "open moment" in reached[at - 2 : at] else label
        outcomes[_outcome(world.contents() != before, code, answer)] += 1
        bad += [[at, label, words] for words in _misbehaviour(scenario, label, at, code, answer)]
        code, problems = run_forked(check, world, scenario, before, after, original)
        if code or problems:
            problems = problems or f"the check died ({code})"
            bad.append([at, label, problems])
    expected = len(points) - first + 1 if extent == "all" else len(set(points[first - 1 :]))
    print(json.dumps({
        "scenario": scenario, "fault": fault, "points": hits, "expected": expected,
        "kinds": sorted({point.split()[0] for point in points}), "outcomes": outcomes, "bad": bad,
    }))  # fmt: skip


if __name__ == "__main__":
    main(*sys.argv[1:])
