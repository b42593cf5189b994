"""A traced operation's changes to the disk, and every state that a power cut may leave.

The model is weak on purpose. Of each file, everything written after its last sync may be missing,
or everything from some write on, and that write may be cut in half. Of each directory, the latest
changes since its last sync may be missing. Files and directories are independent. An operation is
a tuple: ("create", directory, name), ("write", file, offset, bytes), ("truncate", file, size),
("sync", file), ("sync-directory", directory), ("exchange", directory, first, second),
("unlink", directory, name).
"""

import itertools
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

CALLS = (
    "openat,open,creat,write,writev,pwrite64,pwritev,pwritev2,fsync,fdatasync,ftruncate,truncate,"
    "fallocate,rename,renameat,renameat2,link,linkat,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "sendfile,copy_file_range,dup2,dup3"
)
_LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (-?\d+)(?:<.*)?$")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_FILE = re.compile(r"^(?P<number>\d+)<(?P<path>(?:\\x[0-9a-f]{2})*)>")
_DIRECTORY = re.compile(r"^(?P<number>AT_FDCWD)<(?P<path>(?:\\x[0-9a-f]{2})*)>")


@cache
def strace_problem():
    """Return why strace cannot be used here, or None if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed (Debian: apt-get install strace)"
    command = ["strace", "-o", os.devnull, sys.executable, "-c", ""]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return (
        f"strace may not trace here: {process.stderr.strip()[:80]}" if process.returncode else None
    )


class UnknownCallError(AssertionError):
    """The trace contains a call that this model does not know."""


def trace(base, verb, log):
    """Run one operation under strace; return its changes below `base`."""
    command = [
        "strace", "-f", "-y", "-xx", "-s", "16777216", "-o", log, "-e", f"trace={CALLS}",
        sys.executable, str(Path(__file__).parent / "operation.py"), base, verb,
    ]  # fmt: skip
    quiet = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    process = subprocess.run(command, capture_output=True, text=True, env=quiet, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
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
            operation = _operation_of(call, base, positions)
            if operation:
                yield operation


class _Call:
    """A call in the trace; `path` is that of the first argument, `texts` are all its strings."""

    def __init__(self, name, arguments, result):
        self.name, self.arguments, self.result = name, arguments, result
        self.texts = [_decode(text) for text in _TEXT.findall(arguments)]
        first = _FILE.match(arguments) or _DIRECTORY.match(arguments)
        self.path = _decode(first["path"]).decode() if first else ""
        self.descriptor = int(first["number"]) if first and first["number"].isdigit() else -1

    @property
    def target(self):
        return os.path.join(self.path, self.texts[0].decode())

    @property
    def last_number(self):
        return int(self.arguments.rsplit(", ", 1)[1])


def _operation_of(call, base, positions):
    """Return the operation of a call, or None if it changes nothing below `base`."""
    if call.name in ("openat", "open", "unlink", "unlinkat"):
        creates = call.name.startswith("open")
        if not call.target.startswith(base) or (creates and "O_CREAT" not in call.arguments):
            return None
        return "create" if creates else "unlink", *os.path.split(call.target)
    if not call.path.startswith(base):
        if any(text.startswith(base.encode()) for text in call.texts):
            raise UnknownCallError(call.name, call.texts)
        return None
    return _file_operation(call, positions)


def _file_operation(call, positions):
    if call.name == "renameat2" and "RENAME_EXCHANGE" in call.arguments:
        return "exchange", call.path, *(text.decode() for text in call.texts)
    if call.name == "pwrite64":
        return "write", call.path, call.last_number, call.texts[0]
    if call.name == "write":
        at = positions[call.descriptor]
        if at is not None:  # None: the descriptor appends
            positions[call.descriptor] += len(call.texts[0])
        return "write", call.path, at, call.texts[0]
    if call.name in ("fsync", "fdatasync"):
        return "sync-directory" if os.path.isdir(call.path) else "sync", call.path
    if call.name == "ftruncate":
        return "truncate", call.path, call.last_number
    raise UnknownCallError(call.name, call.path)


def _decode(text):
    return bytes.fromhex(text.replace("\\x", ""))


class Disk:
    """The files before an operation, and the operation's changes to them.

    Each file has a number. A state gives for each file how many of its writes are on the disk, and
    whether half of the next one is. `numbers` has the files from before the operation, by path.
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
        return [i for i, operation in enumerate(self.operations) if operation[0].startswith("sync")]

    def states(self, without=None, *, coarse=False):
        """Yield each state once, as a sorted tuple of (path, file, writes, half).

        `without` omits one sync or several, by index. With `coarse`, only none, half or all of the
        unsynced writes may be on the disk.
        """
        seen = set()
        for state in itertools.chain.from_iterable(self._states_by_step(without, coarse=coarse)):
            if state not in seen:
                seen.add(state)
                yield state

    def ends(self, without=None):
        """Return the states that a power cut may leave after the operation."""
        *_, latest = self._states_by_step(without, coarse=True)
        return set(latest)

    def _states_by_step(self, without, *, coarse):
        """Yield, after each operation in turn, the states that a power cut may leave."""
        writes = {number: [] for number in self._before}
        synced = dict.fromkeys(self._before, 0)
        listings = {directory: [names] for directory, names in self._names.items()}
        self._writes = writes
        omitted = {without} if isinstance(without, int) else set(without or ())
        for index, operation in enumerate(self.operations):
            if index not in omitted:
                self._apply(operation, writes, synced, listings)
            yield self._possible(writes, synced, listings, coarse)

    @staticmethod
    def _possible(writes, synced, listings, coarse):
        choices = {
            number: _choices(synced[number], written, coarse) for number, written in writes.items()
        }
        for names in itertools.product(*listings.values()):
            existing = {number for listing in names for number in listing.values()}
            options = [choices[number] for number in sorted(existing)]
            for choice in itertools.product(*options):
                writes_of = dict(zip(sorted(existing), choice, strict=True))
                yield tuple(sorted(
                    (f"{directory}/{name}", number, *writes_of[number])
                    for directory, listing in zip(listings, names, strict=True)
                    for name, number in listing.items()
                ))  # fmt: skip

    def _apply(self, operation, writes, synced, listings):
        kind, *arguments = operation
        if kind == "create":
            directory, name = arguments
            latest = listings[directory][-1]
            if name not in latest:
                number = len(writes)
                writes[number], synced[number] = [], 0
                listings[directory].append({**latest, name: number})
        elif kind == "unlink":
            directory, name = arguments
            latest = listings[directory][-1]
            listings[directory].append({n: f for n, f in latest.items() if n != name})
        elif kind == "exchange":
            directory, first, second = arguments
            latest = listings[directory][-1]
            listings[directory].append({**latest, first: latest[second], second: latest[first]})
        elif kind == "sync-directory":
            del listings[arguments[0]][:-1]
        else:
            directory, name = os.path.split(arguments[0])
            number = listings[directory][-1][name]
            if kind == "sync":
                synced[number] = len(writes[number])
            else:
                writes[number].append((kind, *arguments[1:]))

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


def _choices(synced, writes, coarse):
    total = len(writes)
    counts = sorted({synced, (synced + total) // 2, total}) if coarse else range(synced, total + 1)
    choices = []
    for count in counts:
        choices.append((count, False))
        if count < total and writes[count][0] == "write" and len(writes[count][2]) > 1:
            choices.append((count, True))
    return choices


def _write(data, write):
    kind, at, *new = write
    at = len(data) if at is None else at
    data.extend(bytes(max(0, at - len(data))))
    if kind == "truncate":
        del data[at:]
    else:
        data[at : at + len(new[0])] = new[0]
