"""Operations in forks of one process, so that one strace can strike each at another call.

    strace -f -e inject=KIND:FAULT:when=STRIKE ... python striking.py

strace counts per process and kind of call. A fork that is to be struck at its n-th `fsync` first
makes STRIKE - n calls without effect. Each line of stdin is an order as JSON:
[base, verb, kind, n]; the answer is a line: [pid, exit code].
"""

import contextlib
import ctypes
import json
import os
import sqlite3
import sys
from pathlib import Path

from brainsurgeon.errors import BrainsurgeonError

sys.path.insert(0, str(Path(__file__).parents[2]))
from building.imports import import_everything
from proofs.power import operation

# The call of its kind that is struck; no operation makes so many.
STRIKE = 1000
NOTHING = "/nowhere/at/all"
_libc = ctypes.CDLL(None)


def _calls(null):
    return {
        "write": lambda: os.write(null, b"x"),
        "pwrite64": lambda: os.pwrite(null, b"x", 0),
        "fsync": lambda: os.fsync(null),
        "fdatasync": lambda: os.fdatasync(null),
        "ftruncate": lambda: os.ftruncate(null, 0),
        "fchmod": lambda: os.fchmod(null, 0o666),
        "utimensat": lambda: os.utime(NOTHING),
        "unlink": lambda: os.unlink(NOTHING),
        "unlinkat": lambda: os.unlink("no", dir_fd=null),
        "renameat2": lambda: _libc.renameat2(-1, b"no", -1, b"none", 2),
        "fcntl": lambda: _libc.fcntl(null, 1031),
    }


KINDS = tuple(_calls(-1))


def _struck(base, verb, kind, number):
    null = os.open("/dev/null", os.O_RDWR)
    if kind:
        call = _calls(null)[kind]
        for _ in range(STRIKE - number):
            with contextlib.suppress(OSError):
                call()
    try:
        operation.act(base, verb)
    except (BrainsurgeonError, OSError, sqlite3.Error):
        os._exit(3)
    except BaseException:  # noqa: BLE001  the exit code reports it
        os._exit(9)
    os._exit(0)


def main():
    import_everything()
    for order in sys.stdin:
        pid = os.fork()
        if pid == 0:
            _struck(*json.loads(order))
        _, status = os.waitpid(pid, 0)
        code = os.waitstatus_to_exitcode(status)
        os.writev(1, [json.dumps([pid, code]).encode() + b"\n"])  # a kind that is not counted


if __name__ == "__main__":
    main()
