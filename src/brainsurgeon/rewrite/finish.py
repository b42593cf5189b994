"""The end of a rewrite: remove the old file once no other process can write to it.

Rewrites that are due together share the sync of their directory and the commit that closes them
in the journal.
"""

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress

from msgspec import Struct

from brainsurgeon.errors import BrainsurgeonError
from brainsurgeon.model.plans import Edit
from brainsurgeon.model.sessions import Fingerprint
from brainsurgeon.rewrite import recover
from brainsurgeon.sessions import retire
from brainsurgeon.sessions.exchange import Exchange
from brainsurgeon.sessions.retire import FilePair
from brainsurgeon.store import Store

_HURRY = 0.2  # seconds to wait for a writer of the old file when the program is being stopped
_LATEST = 0.2  # seconds for which a rewrite that is due waits for others
TOGETHER = 16  # sessions that share their commits
UNFINISHED = (
    "the old file stays beside the session, since somebody has it open; the next command ends it"
)


class Rewrite(Struct, frozen=True):
    """A changed session. A change of database rows needs no finish.

    `stored` is the number of bytes by which the store grew. If the plan was carried out in part,
    `left` is the reason and `done` are the edits made. `due` is the time (monotonic) at which the
    old file may be checked for the last time.
    """

    name: str
    fingerprint: Fingerprint
    stored: int
    done: tuple[Edit, ...] = ()
    left: str | None = None
    due: float = 0.0

    def finish(self, *, hurry: bool = False) -> bool:  # noqa: ARG002  as for a file
        """Clean up; return False if that has to wait."""
        return True


class FileRewrite(Rewrite, frozen=True, kw_only=True):
    """A session whose old file is not removed yet. `held` releases its lock and directory."""

    store: Store
    journal_id: int
    directory: int
    exchanged: Exchange
    held: ExitStack

    def finish(self, *, hurry: bool = False) -> bool:
        """Wait until the rewrite is due (not in a `hurry`), and remove the old file.

        Return False if that is impossible now, usually because another process has the file open.
        The rewrite then stays in the journal, and the next recovery finishes it.
        """
        return not finish_together([self], hurry=hurry)

    def remove(self, deadline: float | None) -> None:
        """Remove the old file, without syncing its directory or closing the rewrite.

        Other processes may have it open until `deadline` (monotonic), by default for two seconds.
        """
        done = self.exchanged
        pair = FilePair(
            self.directory, self.name, done.temporary, done.ends, done.fingerprint.inode,
            recover.JournalLedger(self.store, self.journal_id),
        )  # fmt: skip
        if deadline is None:
            deadline = done.at + retire.LOOK_BACK_LONGEST
        with recover.noting_what_stays(self.store, self.journal_id):
            retire.retire(pair, deadline=deadline, synced=False)


def finish_together(rewrites: Sequence[FileRewrite], *, hurry: bool = False) -> list[FileRewrite]:
    """Finish rewrites of one store. Return those that have to wait."""
    with ExitStack() as held:
        for rewrite in rewrites:
            held.push(rewrite.held)
        try:
            deadline = time.monotonic() + _HURRY if hurry else None
            if not hurry:
                due = max((rewrite.due for rewrite in rewrites), default=0.0)
                time.sleep(max(0.0, due - time.monotonic()))
            return _remove(rewrites, deadline)
        except (OSError, BrainsurgeonError):
            return list(rewrites)
        except BaseException:
            with suppress(OSError, BrainsurgeonError):
                _remove(rewrites, time.monotonic() + _HURRY)
            raise


def _remove(rewrites: Sequence[FileRewrite], deadline: float | None) -> list[FileRewrite]:
    gone, directories = [], {}
    for rewrite in rewrites:
        with suppress(OSError, BrainsurgeonError):
            rewrite.remove(deadline)
            status = os.fstat(rewrite.directory)
            directories[status.st_dev, status.st_ino] = rewrite.directory
            gone.append(rewrite)
    for directory in directories.values():
        os.fsync(directory)
    if gone:
        store = gone[0].store
        with store.transaction():
            for rewrite in gone:
                store.journal.close(rewrite.journal_id)
    return [rewrite for rewrite in rewrites if rewrite not in gone]


class Unfinished:
    """The rewrites of a run whose old files are not removed yet."""

    def __init__(self) -> None:
        self._waiting: list[FileRewrite] = []

    def add(self, results: Iterable[Rewrite | Exception]) -> None:
        self._waiting += [result for result in results if isinstance(result, FileRewrite)]
        self._waiting.sort(key=lambda rewrite: rewrite.due)

    def finish_due(self) -> list[FileRewrite]:
        """Finish the due rewrites if there are enough or one is late; return the unfinished.

        A rewrite stays unfinished if its old file cannot be removed now.
        """
        # This runs for every file that is scanned, so it checks only two waiting rewrites.
        now, first = time.monotonic(), self._waiting[:TOGETHER]
        enough = len(first) == TOGETHER and first[-1].due <= now
        if not enough and not (first and first[0].due + _LATEST <= now):
            return []
        return self._finish(sum(rewrite.due <= now for rewrite in first), hurry=False)

    def finish_all(self, *, hurry: bool) -> list[FileRewrite]:
        """Finish all rewrites. Return those that wait for the next recovery."""
        late: list[FileRewrite] = []
        while self._waiting:
            late += self._finish(TOGETHER, hurry=hurry)
        return late

    def _finish(self, count: int, *, hurry: bool) -> list[FileRewrite]:
        chosen, self._waiting = self._waiting[:count], self._waiting[count:]
        try:
            return finish_together(chosen, hurry=hurry)
        except BaseException:
            finish_now(self._waiting)
            raise


def finish_now(rewrites: Iterable[Rewrite]) -> None:
    """Finish the rewrites that can be finished at once, when a command is being stopped."""
    for rewrite in rewrites:
        with suppress(Exception):
            rewrite.finish(hurry=True)
