"""What a traced operation did to the disk, and every state in which a power cut may leave it.

The model is weak on purpose. Of each file what was written after its last sync may be missing:
wholly, or from some write on, that one cut in half. Of each directory a run of its latest changes
may be missing, back to its last sync. Files and directories do not wait for each other. An
operation is a tuple: ("create", directory, name), ("write", file, offset, bytes),
("truncate", file, size), ("sync", file), ("sync-directory", directory),
("exchange", directory, one, other), ("unlink", directory, name).
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CALLS = (
    "openat,open,creat,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,ftruncate,truncate,"
    "fallocate,rename,renameat,renameat2,link,linkat,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "sendfile,copy_file_range,dup2,dup3"
)
_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)(?:<.*)?$")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FILE = re.compile(r"^(?P<number>\d+)<(?P<path>(?:\\x[0-9a-f]{2})*)>")
_HERE = re.compile(r"^(?P<number>AT_FDCWD)<(?P<path>(?:\\x[0-9a-f]{2})*)>")


def why_not():
    if shutil.which("strace") is None:
        return "strace is not installed (Debian: apt-get install strace)"
    tried = ["strace", "-o", os.devnull, sys.executable, "-c", ""]
    done = subprocess.run(tried, capture_output=True, text=True, check=False)
    return f"strace may not trace here: {done.stderr.strip()[:80]}" if done.returncode else None


class NotUnderstoodError(AssertionError):
    """The trace holds a change that this model does not know."""


def trace(base, verb, log):
    """Do one operation under strace and give what it did below `base`."""
    command = [
        "strace", "-f", "-y", "-xx", "-s", "16777216", "-o", log, "-e", f"trace={CALLS}",
        sys.executable, str(Path(__file__).parent / "operation.py"), base, verb,
    ]  # fmt: skip
    quiet = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=quiet, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    with open(log, encoding="ascii") as lines:
        return list(_operations(lines, base))


def _operations(lines, base):
    positions = {}
    for line in lines:
        match = _LINE.match(line)
        if match and int(match[3]) >= 0:
            call = _Call(match[1], match[2], int(match[3]))
            if call.name in ("openat", "open"):
                appends = "O_APPEND" in call.arguments and "O_CREAT" not in call.arguments
                positions[call.result] = None if appends else 0
            if call.name in ("dup2", "dup3"):
                positions[call.result] = positions.get(call.descriptor)
                continue
            done = _understood(call, base, positions)
            if done:
                yield done


class _Call:
    """One line of the trace: `path` is that of the first argument, `texts` are the strings."""

    def __init__(self, name, arguments, result):
        self.name, self.arguments, self.result = name, arguments, result
        self.texts = [_plain(text) for text in _TEXT.findall(arguments)]
        on = _FILE.match(arguments) or _HERE.match(arguments)
        self.path = _plain(on["path"]).decode() if on else ""
        self.descriptor = int(on["number"]) if on and on["number"].isdigit() else -1

    @property
    def named(self):
        return os.path.join(self.path, self.texts[0].decode())

    @property
    def number(self):
        return int(self.arguments.rsplit(", ", 1)[1])


def _understood(call, base, positions):
    """Give the operation that a call was; None for one that changes nothing below `base`."""
    if call.name in ("openat", "open", "unlink", "unlinkat"):
        creates = call.name.startswith("open")
        if not call.named.startswith(base) or (creates and "O_CREAT" not in call.arguments):
            return None
        return "create" if creates else "unlink", *os.path.split(call.named)
    if not call.path.startswith(base):
        if any(text.startswith(base.encode()) for text in call.texts):
            raise NotUnderstoodError(call.name, call.texts)
        return None
    return _on_a_file(call, positions)


def _on_a_file(call, positions):
    if call.name == "renameat2" and "RENAME_EXCHANGE" in call.arguments:
        return "exchange", call.path, *(text.decode() for text in call.texts)
    if call.name == "pwrite64":
        return "write", call.path, call.number, call.texts[0]
    if call.name == "write":
        at = positions[call.descriptor]
        if at is not None:  # else it is appended, wherever that is
            positions[call.descriptor] += len(call.texts[0])
        return "write", call.path, at, call.texts[0]
    if call.name in ("fsync", "fdatasync"):
        return "sync-directory" if os.path.isdir(call.path) else "sync", call.path
    if call.name == "ftruncate":
        return "truncate", call.path, call.number
    raise NotUnderstoodError(call.name, call.path)


def _plain(text):
    return bytes.fromhex(text.replace("\\x", ""))


class Disk:
    """The files below some directories as they were, and what an operation does to them.

    A file is a number; its content is told by how many of its writes are there, and whether half
    of the next one is. `numbers` gives the files that were there from the beginning.
    """

    def __init__(self, contents, directories, operations):
        self.operations = operations
        self.numbers = {path: number for number, path in enumerate(sorted(contents))}
        self._before = {self.numbers[path]: data for path, data in contents.items()}
        self._names = {
            directory: {os.path.basename(path): number for path, number in self.numbers.items()
                        if os.path.dirname(path) == directory}
            for directory in directories
        }  # fmt: skip
        self._writes = {}
        self._contents = {}

    def syncs(self):
        return [i for i, one in enumerate(self.operations) if one[0].startswith("sync")]

    def states(self, without=None, *, coarse=False):
        """Yield each state once: (path, file, writes, half) for each path, as a sorted tuple.

        `without` leaves one sync out. `coarse` ones look at no, half and all of the missing
        writes only.
        """
        seen = set()
        for state in itertools.chain.from_iterable(self._lived(without, coarse=coarse)):
            if state not in seen:
                seen.add(state)
                yield state

    def ends(self, without=None):
        """Give the states that a power cut may leave when the operation is over."""
        *_, latest = self._lived(without, coarse=True)
        return set(latest)

    def _lived(self, without, *, coarse):
        """Yield, after each operation in turn, the states that a power cut may then leave."""
        writes = {number: [] for number in self._before}
        synced = dict.fromkeys(self._before, 0)
        listings = {directory: [names] for directory, names in self._names.items()}
        self._writes = writes
        left_out = {without} if isinstance(without, int) else set(without or ())
        for index, operation in enumerate(self.operations):
            if index not in left_out:
                self._apply(operation, writes, synced, listings)
            yield self._possible(writes, synced, listings, coarse)

    @staticmethod
    def _possible(writes, synced, listings, coarse):
        choices = {
            number: _choices(synced[number], len(done), done, coarse)
            for number, done in writes.items()
        }
        for names in itertools.product(*listings.values()):
            there = {number for listing in names for number in listing.values()}
            options = [choices[number] for number in sorted(there)]
            for chosen in itertools.product(*options):
                told = dict(zip(sorted(there), chosen, strict=True))
                yield tuple(sorted(
                    (f"{directory}/{name}", number, *told[number])
                    for directory, listing in zip(listings, names, strict=True)
                    for name, number in listing.items()
                ))  # fmt: skip

    def _apply(self, operation, writes, synced, listings):
        kind, *told = operation
        if kind == "create":
            directory, name = told
            latest = listings[directory][-1]
            if name not in latest:
                number = len(writes)
                writes[number], synced[number] = [], 0
                listings[directory].append({**latest, name: number})
        elif kind == "unlink":
            directory, name = told
            latest = listings[directory][-1]
            listings[directory].append({n: f for n, f in latest.items() if n != name})
        elif kind == "exchange":
            directory, one, other = told
            latest = listings[directory][-1]
            listings[directory].append({**latest, one: latest[other], other: latest[one]})
        elif kind == "sync-directory":
            del listings[told[0]][:-1]
        else:
            directory, name = os.path.split(told[0])
            number = listings[directory][-1][name]
            if kind == "sync":
                synced[number] = len(writes[number])
            else:
                writes[number].append((kind, *told[1:]))

    def content(self, number, count, half):
        key = number, count, half
        if key not in self._contents:
            data = bytearray(self._before.get(number, b""))
            for write in self._writes[number][:count]:
                _write(data, write)
            if half:
                kind, at, new = self._writes[number][count]
                _write(data, (kind, at, new[: len(new) // 2]))
            self._contents[key] = bytes(data)
        return self._contents[key]


def _choices(synced, done, writes, coarse):
    counts = sorted({synced, (synced + done) // 2, done}) if coarse else range(synced, done + 1)
    chosen = []
    for count in counts:
        chosen.append((count, False))
        if count < done and writes[count][0] == "write" and len(writes[count][2]) > 1:
            chosen.append((count, True))
    return chosen


def _write(data, write):
    kind, at, *new = write
    at = len(data) if at is None else at
    data.extend(bytes(max(0, at - len(data))))
    if kind == "truncate":
        del data[at:]
    else:
        data[at : at + len(new[0])] = new[0]
