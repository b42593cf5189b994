"""Months of random lives of sessions: retention deletes exactly what the table of expiry says.

A model keeps its own books. It looks for placeholders in the files by itself, and knows the true
time. After every run, its values must be those of the store.
"""

import bz2
import gzip
import itertools
import json
import os
import random
import re
from collections import defaultdict
from typing import NamedTuple

import pytest

from brainsurgeon.files import processes
from brainsurgeon.model.text import iso
from brainsurgeon.operations.retention import retention
from building.world import Conversation, fork, sql

HOUR = 3600.0
DAY = 24 * HOUR
YEARS = 3653 * DAY
SHORT, LONG = 10, 620  # lives, each of about four months
STEPS = 36
PLACEHOLDER = re.compile(rb"\[\[extracted-([0-9a-f]+)\]\]")
TERMS = [  # retention, missing and standing in days, and the keys that say so
    ((1, 30, None), {}),
    ((1, 30, None), {}),
    ((1, 9, None), {"retention_missing": "9d"}),
    ((5, 30, 30), {"retention": "5d", "retention_standing": "30d"}),
    ((1, 12, 3), {"retention_standing": "3d", "retention_missing": "12d"}),
    ((None, None, None), {"retention": "never", "retention_missing": "never"}),
]


class Moment(NamedTuple):
    wall: float
    after: int  # the number of runs before it


class Run(NamedTuple):
    wall: float
    counted: float
    how: str  # "evenly", "moved" or "late"
    day: int | None  # if it could see what is missing


class Time:
    """True time, a wall clock that is set, and a boot clock that a reboot begins anew."""

    def __init__(self):
        self.now, self.offset, self.booted, self.boots = 1_800_000_000.0, 0.0, 1.79e9, 0

    def __call__(self):
        return self.now + self.offset

    def boot(self):
        return self.now - self.booted

    def boot_id(self):
        return f"boot {self.boots}"

    def reboot(self):
        self.booted, self.boots = self.now, self.boots + 1


class Books:
    """What the table says, for the values of one world, by their names."""

    def __init__(self, time, terms):
        self.time = time
        self.retention, self.missing, self.standing = (
            None if days is None else days * DAY for days in terms
        )
        self.runs = []
        self.last = (0.0, 0.0, 0)  # wall clock, boot clock and boot of the last run
        self.held, self.owner = set(), {}
        self.extracted, self.restored, self.unplaced = {}, {}, {}
        self.places = defaultdict(dict)  # by value and session: when the entry went missing
        self.gone = {}  # by session: when a run missed it
        self.paths = {}  # of sessions, where a scan last saw them
        self.files = {}  # by path: status and activity
        self.vanished = {}  # by value: when a run found that its file is gone
        self.last_stood = {}  # by value: the true time at which it was in any file
        self.slack = 0.0  # seconds that a wrong clock across a reboot may add to counted time
        self.last_run = time.now
        self.trusted = False  # whether a run has seen a known session in the root

    def moment(self):
        return Moment(self.time(), len(self.runs))

    def counted(self, at):
        following = self.runs[at.after]
        if at.after == 0:
            return following.counted - max(0.0, following.wall - at.wall)
        before = self.runs[at.after - 1]
        if following.how == "moved" or not before.wall <= at.wall <= following.wall:
            return following.counted
        return max(before.counted, following.counted - (following.wall - at.wall))

    # --- what a scan or a restore sees

    def scanned(self, sessions, fresh):
        """`sessions`: path, id, ids of entries and names of placeholders; `fresh`: extracted."""
        now = self.moment()
        for path, ident, entries, names in sessions:
            self.paths[ident] = path
            self.gone.pop(ident, None)
            for name in names:
                self.places[name][ident] = None
                self.unplaced.pop(name, None)
            for name in [name for name in self.places if ident in self.places[name]]:
                if name not in names and name in entries:
                    self.left(name, ident, now)
                elif name not in entries and self.places[name][ident] is None:
                    self.places[name][ident] = now
        for name, ident in fresh:
            self.held.add(name)
            self.owner.setdefault(name, ident)
            self.extracted[name] = now
            self.restored.pop(name, None)

    def left(self, name, ident, now):
        self.places[name].pop(ident, None)
        if not self.places[name]:
            self.unplaced.setdefault(name, now)

    def seen(self, path):
        """Note that a scan saw a file, but could not understand it."""
        for ident, where in self.paths.items():
            if where == path:
                self.gone.pop(ident, None)

    def put_back(self, name, ident):
        now = self.moment()
        self.restored[name] = now
        self.left(name, ident, now)

    # --- a retention run

    def run(self, files, blocked):
        """Return the names that the run deletes. `files`: status and names, by path."""
        wall, boot, boots = self.time(), self.time.boot(), self.time.boots
        moved = self._count(wall, boot, boots)
        now, counted = Moment(wall, len(self.runs) - 1), self.runs[-1].counted
        standing = self._look(files, wall, counted, now)
        self.trusted = self.trusted or any(path in files for path in self.paths.values())
        if not self.trusted:
            self.runs[-1] = self.runs[-1]._replace(day=None)
        for ident, path in self.paths.items():
            if path in files:
                self.gone.pop(ident, None)
            elif self.trusted and not moved:
                self.gone.setdefault(ident, now)
        if moved or not self.trusted:
            return set()
        gone = {name for name in self.held if self._expires(name, standing, files, blocked)}
        self.held -= gone
        least = min(filter(None, (self.retention, self.missing)), default=0) - self.slack
        for name in gone - set(standing):
            assert self.time.now - self.last_stood[name] >= least, name
        return gone

    def _count(self, wall, boot, boots):
        last_wall, last_boot, last_boots = self.last
        self.last = wall, boot, boots
        if not self.runs:
            self.last_run = self.time.now
            self.runs.append(Run(wall, wall, "evenly", int(wall // DAY)))
            return False
        passed, same = wall - last_wall, boots == last_boots
        moved = abs(passed - (boot - last_boot)) > HOUR if same else passed < 0
        step = min(max(0.0, boot - last_boot if same else passed), 7 * DAY)
        how = "moved" if moved else "evenly" if step == passed else "late"
        self.slack += max(0.0, step - (self.time.now - self.last_run))
        self.last_run = self.time.now
        day = None if moved else int(wall // DAY)
        self.runs.append(Run(wall, self.runs[-1].counted + step, how, day))
        return moved

    def _look(self, files, wall, counted, now):
        """Return, by names that stand anywhere, the paths."""
        standing, known = defaultdict(list), {}
        self._compare(files, now)
        idents = {path: ident for ident, path in self.paths.items()}
        earliest = self.runs[-2].counted if len(self.runs) > 1 else None
        for path, (status, names) in files.items():
            modified = status[-1] / 1e9
            before, activity, _ = self.files.get(path, (None, None, None))
            if before != status:
                at = counted
                moment = Moment(modified, len(self.runs) - 1)
                if self.runs[-1].how != "moved" and modified <= wall:
                    late = earliest is None or modified > self.runs[-2].wall
                    at = self.counted(moment) if late else earliest
                rewritten = self._rewritten(idents.get(path), names)
                if (self.runs[-2].wall if earliest else 0) < rewritten <= wall:
                    at = max(at, self.counted(moment._replace(wall=rewritten)))
                activity = max(at, earliest or at)
            known[path] = status, activity, names
            for name in names:
                standing[name].append(path)
        self.files = known
        return standing

    def _compare(self, files, now):
        """Begin terms anew where placeholders left files that the last run saw."""
        for path, (_, _, names) in self.files.items():
            for name in names - (files[path][1] if path in files else set()):
                if path not in files and name in self.held:
                    self.vanished[name] = now
                    self._restart(name, now)
                elif self._is_late(name, path, now):
                    self._restart(name, now)
        for path, (_, names) in files.items():
            for name in names - self.files.get(path, (None, None, set()))[2]:
                self.vanished.pop(name, None)

    def _rewritten(self, ident, names):
        """Return when one of the values, or a value of the session, was extracted or restored."""
        times = (self.extracted, self.restored)
        return max(
            (at[name].wall for at in times for name in at
             if name in names or self.owner[name] == ident),
            default=0,
        )  # fmt: skip

    def _is_late(self, name, path, now):
        """Return whether it was thought to be gone while the last run, or no scan, saw it there."""
        marks = [entry or self.gone.get(ident) for ident, entry in self.places[name].items()]
        if name in self.unplaced and self.paths.get(self.owner[name]) != path:
            return True
        return any(at and at.after < now.after for at in [*marks, self.unplaced.get(name)])

    def _restart(self, name, now):
        for marks in (self.unplaced, self.vanished):
            if name in marks:
                marks[name] = now
        for ident, entry in self.places[name].items():
            if entry or self.gone.get(ident):
                self.places[name][ident] = now

    def _expires(self, name, standing, files, blocked):
        counted = self.runs[-1].counted
        places = self.places[name]
        there = {self.paths[ident] for ident in {*places, self.owner[name]} - {*self.gone}}
        if blocked & {*there, *(standing[name] if self.standing is not None else ())}:
            return False
        if standing[name]:
            moments = [self.files[path][1] for path in standing[name]]
            return self.standing is not None and max(moments) + self.standing <= counted
        if places or name in self.vanished:
            missed = [entry or self.gone.get(ident) for ident, entry in places.items()]
            missed += [self.vanished[name]] if name in self.vanished else []
            if None in missed or self.missing is None:
                return False
            since = max(map(self.counted, missed))
            return since + self.missing <= counted and min(map(self._days, missed)) >= 3
        return (
            self.retention is not None
            and self.counted(self.unplaced[name]) + self.retention <= counted
        )

    def _days(self, at):
        since = self.counted(at)
        return len({run.day for run in self.runs if run.day is not None and run.counted >= since})


class Life:
    """A world whose sessions are moved, archived, compressed, forked, restored and put back."""

    def __init__(self, world, seed, patch):
        self.world, self.random = world, random.Random(seed)
        self.time = world.clock = Time()
        patch.setattr(processes, "boot_clock", self.time.boot)
        patch.setattr(processes, "boot_id", self.time.boot_id)
        terms, self.keys = self.random.choice(TERMS)
        self.books = Books(self.time, terms)
        self.numbers = itertools.count(0x1000, 0x1000)
        self.old, self.away, self.blocked = {}, {}, {}
        back = [-YEARS, -40 * DAY, -40 * DAY] * (terms[2] is None)
        self.jumps = self.random.choice([None, YEARS, *back])
        self.jumped = False
        self.log = []

    # --- files

    def sessions(self):
        return sorted(self.world.root.rglob("*.jsonl"))

    def touch(self, path, age=0.0):
        os.utime(path, (self.time() - age,) * 2)

    def ident(self, path):
        return json.loads(path.read_bytes().splitlines()[0])["id"]

    def names(self, path):
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        if path.suffix == ".bz2":
            data = bz2.decompress(data)
        return set(map(bytes.decode, PLACEHOLDER.findall(data)))

    def chosen(self):
        paths = self.sessions()
        return self.random.choice(paths) if paths else None

    # --- what happens

    def create(self):
        number = next(self.numbers)
        conversation = Conversation(f"{number:08x}-0000-4000-8000-000000000001")
        conversation._ids = itertools.count(number)
        conversation.turn(f"{number} " * 300)
        if self.random.random() < 0.5:
            conversation.turn(f"another {number} " * 300)
        conversation.turn("short")
        path = self.world.directory / f"s{number:x}.jsonl"
        path.write_bytes(conversation.bytes())
        self.touch(path, age=self.random.choice([HOUR, 3 * DAY, 50 * DAY]))

    def move(self, path):
        directory = self.world.root / self.random.choice(["main", "second"]) / "sessions"
        directory.mkdir(parents=True, exist_ok=True)
        if not (directory / path.name).exists():
            path.rename(directory / path.name)

    def leave(self, path):
        target = self.world.base / f"away{len(self.away)}-{len(self.log)}"
        self.away[target] = path
        path.rename(target)

    def come_back(self, _path):
        if self.away:
            target = self.random.choice(list(self.away))
            path = self.away.pop(target)
            if not path.exists() and not self.is_there(target):
                path.parent.mkdir(parents=True, exist_ok=True)
                target.rename(path)

    def is_there(self, file):
        return self.ident(file) in {self.ident(path) for path in self.sessions()}

    def archive(self, path):
        kind = self.random.choice(["reset", "deleted"])
        path.rename(f"{path}.{kind}.{int(self.time())}-{len(self.log)}")

    def back_up(self, path):
        (path.parent / f"{path.name}.bak.{len(self.log)}").write_bytes(path.read_bytes())

    def compress(self, path):
        pack, ending = self.random.choice([(gzip.compress, "gz"), (bz2.compress, "bz2")])
        packed = path.parent / f"{path.name}.{len(self.log)}.{ending}"
        packed.write_bytes(pack(path.read_bytes()))
        self.touch(packed, age=self.random.choice([0, 20 * DAY]))
        if self.random.random() < 0.7:
            path.unlink()

    def clear(self, _path):
        """Delete an archive."""
        archives = sorted({*self.world.root.rglob("*.jsonl*")} - {*self.sessions()})
        if archives:
            self.random.choice(archives).unlink()

    def lose_copy(self, path):
        """Restore a value while a copy has its placeholder, and delete or overwrite the copy."""
        copy = path.parent / f"{path.name}.bak.{len(self.log)}"
        copy.write_bytes(path.read_bytes())
        self.time.now += HOUR
        self.run()
        self.restore(path)
        self.scan()
        if self.random.random() < 0.5:
            copy.unlink()
        else:
            copy.write_bytes(b"")

    def fork(self, path):
        if len(self.names(path)) == len(self.long_entries(path)):  # nothing is extracted there anew
            self.touch(fork(path, f"{next(self.numbers):08x}-0000-4000-8000-00000000000f"))

    def long_entries(self, path):
        return [line for line in path.read_bytes().splitlines() if b"toolResult" in line][:-1]

    def delete(self, path):
        path.unlink()

    def keep_copy(self, path):
        self.old[path] = path.read_bytes(), path.stat()

    def put_old_copy_back(self, path):
        """Put an older copy back, with its times."""
        if path in self.old and path not in self.blocked:
            data, status = self.old[path]
            if self.ident(path) == json.loads(data.splitlines()[0])["id"]:
                path.write_bytes(data)
                os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def delete_entry(self, path):
        if path not in self.blocked:
            lines = path.read_bytes().splitlines(keepends=True)
            kept = [line for line in lines if not PLACEHOLDER.search(line)]
            path.write_bytes(b"".join(kept))
            self.touch(path)

    def work(self, path):
        self.touch(path, age=self.random.choice([0, 0, HOUR, -YEARS]))

    def block(self, path):
        """Give a session a version that is unknown, or its own again."""
        data = path.read_bytes()
        known, unknown = b'"version":3', b'"version":99'
        self.blocked[path] = known in data
        data = data.replace(known, unknown) if known in data else data.replace(unknown, known)
        path.write_bytes(data)
        self.touch(path)

    def restore(self, path):
        ident = self.ident(path)
        names = sorted(self.names(path))
        if not names or b'"version":99' in path.read_bytes().splitlines()[0]:
            return
        name = self.random.choice(names)
        if self.books.owner.get(name) == ident and name in self.books.held and self.known(path):
            answer = self.world.restore(name, session=str(path), **self.keys)
            if not answer.pending and name not in self.names(path):
                self.books.put_back(name, ident)

    def known(self, path):
        return self.books.paths.get(self.ident(path)) == str(path)

    # --- runs

    def scan(self):
        before = {path: self.names(path) for path in self.sessions()}
        self.world.scan(**self.keys)
        fresh, seen = [], []
        for path in self.sessions():
            header, *lines = map(json.loads, path.read_bytes().splitlines())
            if header["version"] != 3:
                self.books.seen(str(path))
                continue
            names = self.names(path)
            fresh += [(name, header["id"]) for name in names - before[path]]
            seen.append((str(path), header["id"], {line["id"] for line in lines}, names))
        self.books.scanned(seen, fresh)

    def run(self):
        files, blocked = {}, set()
        for path in self.world.root.rglob("*.jsonl*"):
            status = path.stat()
            mark = status.st_ino, status.st_size, status.st_mtime_ns
            files[str(path)] = mark, self.names(path)
            if path.suffix == ".jsonl" and b'"version":99' in path.read_bytes():
                blocked.add(str(path))
        before = self.held()
        report = retention(self.world.settings(**self.keys), self.world.store, clock=self.time)
        gone = self.books.run(files, blocked)
        self.log.append((iso(self.time()), report.values_deleted, sorted(gone)))
        held = self.held()
        standing = {name for _, names in files.values() for name in names}
        if self.books.standing is None:
            assert not (before - held) & standing, self.log  # a placeholder can be restored
        assert held == self.books.held, (held ^ self.books.held, self.log)

    def held(self):
        query = "SELECT DISTINCT name FROM extractions WHERE blob_id IS NOT NULL"
        return {name for (name,) in sql(self.world, query)}

    def observe(self):
        """Note which values have a placeholder in any file now."""
        for path in self.world.root.rglob("*.jsonl*"):
            self.books.last_stood |= dict.fromkeys(self.names(path), self.time.now)

    def step(self):
        self.observe()
        actions = [
            self.move, self.move, self.leave, self.come_back, self.come_back, self.archive,
            self.back_up, self.lose_copy, self.compress, self.clear, self.fork, self.delete,
            self.keep_copy,
            self.put_old_copy_back, self.delete_entry, self.work, self.work, self.block,
            self.restore, self.restore, self.restore,
        ]  # fmt: skip
        for _ in range(self.random.choice([0, 1, 1, 2, 3])):
            path = self.chosen()
            if path is None or self.random.random() < 0.15:
                self.create()
                continue
            action = self.random.choice(actions)
            self.log.append((action.__name__, path.name))
            action(path)
        self.time.now += self.random.choice([HOUR, 6 * HOUR, 6 * HOUR, DAY, DAY, 3 * DAY, 9 * DAY])
        if self.jumps and self.random.random() < (0.4 if self.jumped else 0.1):
            self.log.append(("the clock jumps by", self.jumps))
            self.time.offset += self.jumps
            self.jumps = None if self.jumped else -self.jumps
            self.jumped = True
            if self.random.random() < 0.3:
                self.time.reboot()
            if self.random.random() < 0.7:  # and a scan comes before the next run
                if path := self.chosen():
                    self.restore(path)
                self.scan()
                self.time.now += HOUR
            self.observe()
            self.run()
            return
        if self.random.random() < 0.8:
            self.log.append(("scan", iso(self.time())))
            self.scan()
        self.observe()
        if self.random.random() < 0.9:
            self.run()


@pytest.mark.parametrize(
    "seed",
    [
        *range(SHORT),
        *(
            pytest.param(seed, marks=pytest.mark.long(proves=["operations", "planning", "store"]))
            for seed in range(SHORT, SHORT + LONG)
        ),
    ],
)
def test_retention_deletes_exactly_what_the_table_says(world, monkeypatch, seed):
    """Whatever happens to sessions and clocks, no wanted value is deleted, and none kept longer."""
    life = Life(world, seed, monkeypatch)
    for begin in (life.create, life.create, life.scan):
        begin()
    for _ in range(STEPS):
        life.step()
