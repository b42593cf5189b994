"""The end of rewrites: remove the old files, and finish or undo rewrites that a crash interrupted.

An old file is removed once no other process can write to it. Rewrites that are due together share
the sync of their directory and the commit that closes them in the journal.

Every command that may write recovers first. Recovery deletes the records of a rewrite only if no
other process can have read the new content. Otherwise they stay: a record without a placeholder
does no harm, but a placeholder without a record could never be restored.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from brainsurgeon.agents import FORMATS, agent_at, databases_of
from brainsurgeon.agents.rows import UnreadableRowError
from brainsurgeon.errors import BrainsurgeonError, BusyError
from brainsurgeon.files import retire
from brainsurgeon.files.reading import RefusedError, open_below, plain_file, recognise_at
from brainsurgeon.files.retire import FilePair, Ledger, StaysError, inode
from brainsurgeon.formats.base import is_generated
from brainsurgeon.model.entries import Line
from brainsurgeon.model.plans import Edit
from brainsurgeon.model.records import OpenRewrite
from brainsurgeon.model.reports import Recovery
from brainsurgeon.model.session_files import End, Fingerprint
from brainsurgeon.planning.row_steps import RowKey
from brainsurgeon.store import Store

_WAIT = 2.0  # seconds to wait, in the first recovery, for a process that has the old file open
_HURRY = 0.2  # seconds to wait for such a process while the program is being stopped
_LATEST = 0.2  # longest time (seconds) that a due rewrite waits for others
TOGETHER = 16  # largest number of sessions that share their commits
UNFINISHED = "the session's previous file is not removed yet: another process may have it open"


class JournalLedger(Ledger):
    def __init__(self, store: Store, journal_id: int, unfinished_move: int | None = None) -> None:
        self._store, self._id, self.unfinished_move = store, journal_id, unfinished_move

    def identifies(self, line: bytes) -> bool:
        session_id = self._store.journal.rewrite(self._id).session_id
        form = FORMATS.get(self._store.sessions.by_id(session_id).format or "")
        entries = form.entries(Line(0, 0, line), 0) if form else ()
        return any(one.ident and not is_generated(one.ident) for one in entries)

    def note(self, ends: Mapping[int, End], moving_to: int | None = None) -> None:
        journal = self._store.journal
        with self._store.transaction():
            rewrite = journal.rewrite(self._id)
            old, new = rewrite.ends
            both = ends.get(rewrite.inode, old), ends.get(rewrite.new_inode or 0, new)
            journal.update(self._id, ends=both, moving_to=moving_to)
        self.unfinished_move = None


@contextmanager
def recording_stays(store: Store, journal_id: int) -> Iterator[None]:
    try:
        yield
    except StaysError as error:
        ended_at = -time.time() if error.is_final else None
        with store.transaction():
            store.journal.update(journal_id, stays=error.strerror or "", ended_at=ended_at)
        raise


def recover(store: Store) -> list[Recovery]:
    """Resolve interrupted rewrites. Skip locked sessions, and files that were given up earlier."""
    resolved = []
    for rewrite in store.journal.open_rewrites():
        if rewrite.ended_at is not None and os.path.lexists(rewrite.temporary_path):
            continue
        with suppress(BusyError), store.lock(rewrite.session_id, patience=0):
            if any(rewrite.id == still_open.id for still_open in store.journal.open_rewrites()):
                result = resolve(store, rewrite)
                if not rewrite.stays or not result.startswith(rewrite.stays):  # report it only once
                    resolved.append(Recovery(rewrite.path, result))
    return resolved


def resolve(store: Store, rewrite: OpenRewrite, old_file: int | None = None) -> str:
    """Finish or undo one rewrite. Return the result in words. The caller must hold the lock.

    `old_file` is this process's open descriptor of the old file, if any, for a lease.
    """
    if rewrite.in_database:
        return _resolve_rows(store, rewrite)
    try:
        directory = open_below(rewrite.root, rewrite.directory)
    except (FileNotFoundError, NotADirectoryError):
        if not os.path.isdir(rewrite.root):
            return "its root is not there now; left for the next run"
        _settle_records(store, rewrite, exchanged=True)
        with store.transaction():
            store.journal.close(rewrite.id)
        return "its directory is gone; the extracted values stay in the store"
    except OSError as error:
        return f"its directory cannot be opened ({error.strerror}); left for the next run"
    try:
        return _resolve_files(store, rewrite, directory, old_file)
    except OSError as error:
        return f"it cannot be finished now ({error.strerror}); left for the next run"
    finally:
        os.close(directory)


Digests = dict[RowKey, str]  # digests (hexadecimal) of rows that exist, by their keys


def _resolve_rows(store: Store, rewrite: OpenRewrite) -> str:
    path = rewrite.directory
    if not os.path.lexists(path):
        if not os.path.isdir(rewrite.root):
            return "its root is not there now; left for the next run"
        settle(store, rewrite, {})
        return "its database is gone; the extracted values stay in the store"
    keys = [key for key, _, _ in rewrite.confirmation.rows]
    current: Digests = {}
    try:
        databases = databases_of(path)
        with databases.opened(path) as opened:
            layout = databases.layout(opened)
            each = (databases.fetch(opened, layout, rewrite.name, [key]) for key in keys)
            for key, row in chain.from_iterable(each):
                current[key] = ""  # of a damaged row
                with suppress(UnreadableRowError):
                    current[key] = row.digest.hex()
    except BusyError:
        return "its database cannot be read now (its agent is using it); left for the next run"
    except OSError as error:
        return f"its database cannot be read now ({error.strerror}); left for the next run"
    return "finished" if settle(store, rewrite, current) else "undone"


def settle(store: Store, rewrite: OpenRewrite, current: Digests) -> bool:
    """Close a rewrite of rows. Return whether it was made, by the `current` digests."""
    # One transaction changed all of the rows or none. If all have changed since, it is unknown
    # whether it was made. Then extractions count as made and restorations do not, so that no
    # placeholder loses its record, and no request ends unfulfilled.
    made = rewrite.confirmation
    happened = all(current.get(key) != before for key, before, _ in made.rows)
    if not any(current.get(key) == after for key, _, after in made.rows):
        made = replace(made, restored_ids=[], fields_gone=[], requests=[], restored=[])
    with store.transaction():
        if happened:
            store.journal.confirm(rewrite.id, rewrite.session_id, made)
        else:
            store.journal.forget(rewrite.id)
        store.journal.close(rewrite.id)
    return happened


def _resolve_files(store: Store, rewrite: OpenRewrite, directory: int, old_file: int | None) -> str:
    rewrite = _with_current_name(store, directory, rewrite)
    name = rewrite.which(inode(directory, rewrite.name))
    temporary = rewrite.which(inode(directory, rewrite.temporary))
    ledger = JournalLedger(store, rewrite.id, rewrite.moving_to)
    pair = FilePair(
        directory, rewrite.name, rewrite.temporary, rewrite.ends, rewrite.new_inode, ledger
    )
    if name == "new" and temporary == "other":  # the agent's newer file gets its name back
        pair.exchange_names()
        pair = pair.turned_back()
        name, temporary = "other", "new"
    elif temporary != "old":
        pair = replace(pair, ends=rewrite.ends[::-1], other_inode=rewrite.inode)
    # If neither file is here (perhaps their directory was moved), assume that they were exchanged.
    moved_away = name != "old" and temporary == "none" and rewrite.new_inode is not None
    displaced = name != "old" and temporary == "old"
    exchanged = rewrite.confirmed or name == "new" or displaced or moved_away
    # Commit this before a file is removed, since its inode number may be reused at once.
    _settle_records(store, rewrite, exchanged=exchanged)
    saved = 0
    if rewrite.new_inode is None:  # the new file never had the session's name
        retire.remove(directory, rewrite.temporary)
    else:
        swapped = temporary == "old"
        deadline = time.monotonic() + (0.0 if rewrite.stays else _WAIT)
        try:
            with recording_stays(store, rewrite.id):
                saved = retire.retire(
                    pair, deadline=deadline, leased=old_file if swapped else None,
                    named_in_use=not swapped, after_crash=True,
                )  # fmt: skip
        except StaysError as error:
            then = "both files stay" if error.is_final else "left for the next run"
            return f"{error.strerror}; {then}"
    if rewrite.moves:
        try:
            agent_at(rewrite.path).presence.mend(rewrite.path)
        except (RefusedError, BusyError) as why:
            return f"{why}; left for the next run"
    with store.transaction():
        store.journal.close(rewrite.id)
    late = f", {saved} bytes written late were moved" if saved else ""
    return ("finished" if exchanged else "undone") + late


def _with_current_name(store: Store, directory: int, rewrite: OpenRewrite) -> OpenRewrite:
    if rewrite.which(inode(directory, rewrite.name)) in ("none", "other"):
        for name in os.listdir(directory):
            ours = name.startswith(rewrite.temporary)
            if not ours and _is_the_session(store, directory, name, rewrite):
                return replace(rewrite, name=name)
    return rewrite


def _is_the_session(store: Store, directory: int, name: str, rewrite: OpenRewrite) -> bool:
    # Inode numbers of deleted files are reused.
    which = rewrite.which(inode(directory, name))
    if which not in ("old", "new"):
        return False
    record = store.sessions.by_id(rewrite.session_id)
    with plain_file(name, directory) as descriptor:
        if retire.only_grew(descriptor, rewrite.ends[which == "new"]):
            return True
        identity = recognise_at(descriptor, FORMATS, record.format or "auto").identity
        return identity is not None and identity == record.identity


def _settle_records(store: Store, rewrite: OpenRewrite, *, exchanged: bool) -> None:
    if rewrite.confirmed:
        return
    with store.transaction():
        if exchanged:
            store.journal.confirm(rewrite.id, rewrite.session_id, rewrite.confirmation)
        elif rewrite.new_inode is None:
            store.journal.forget(rewrite.id)
        else:
            store.journal.keep(rewrite.id)


class Rewrite(Struct, frozen=True):
    name: str
    fingerprint: Fingerprint
    stored: int  # bytes by which the store grew
    done: tuple[Edit, ...]  # the edits that were made, with the ids that their values got
    why_partial: str | None = None  # why only a part of the plan was carried out
    own_ms: int | None = None  # as in SessionFile, after the rewrite
    due: float = 0.0  # monotonic time at which to remove the old file


class FileRewrite(Rewrite, frozen=True, kw_only=True):
    """A session whose old file still exists. Closing `held` releases the session's lock."""

    store: Store
    journal_id: int
    pair: FilePair
    held: ExitStack
    mend: Callable[[], None]  # what names offsets into the file


def finish(rewrite: Rewrite | None, *, hurry: bool = False) -> bool:
    """Remove the old file of a rewrite. Return False if that is left to the next recovery."""
    return not (isinstance(rewrite, FileRewrite) and finish_together([rewrite], hurry=hurry))


def finish_together(rewrites: Sequence[FileRewrite], *, hurry: bool = False) -> list[FileRewrite]:
    """Finish rewrites of one store when due, or now if `hurry`. Return those left to recovery."""
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


def _remove(rewrites: Sequence[FileRewrite], deadline: float | None) -> list[FileRewrite]:
    """Remove old files. Wait for writers until `deadline` (None: 2 seconds after the exchange)."""
    finished, directories = [], {}
    for rewrite in rewrites:
        longest = rewrite.due - retire.LOOK_BACK + retire.LOOK_BACK_LONGEST
        with suppress(OSError, BrainsurgeonError, RefusedError):
            with recording_stays(rewrite.store, rewrite.journal_id):
                retire.retire(rewrite.pair, deadline=deadline or longest, sync=False)
                rewrite.mend()
            status = os.fstat(rewrite.pair.directory)
            directories[status.st_dev, status.st_ino] = rewrite.pair.directory
            finished.append(rewrite)
    for directory in directories.values():
        os.fsync(directory)
    if finished:
        store = finished[0].store
        with store.transaction():
            for rewrite in finished:
                store.journal.close(rewrite.journal_id)
    return [rewrite for rewrite in rewrites if rewrite not in finished]


class Unfinished:
    def __init__(self) -> None:
        self._waiting: list[FileRewrite] = []

    def add(self, results: Iterable[Rewrite | Exception]) -> None:
        self._waiting += [result for result in results if isinstance(result, FileRewrite)]
        self._waiting.sort(key=lambda rewrite: rewrite.due)

    def finish_due(self) -> list[FileRewrite]:
        """Finish due rewrites if they are many or late. Return those left to the next recovery."""
        # This runs for every file of a scan, so it checks only two of the waiting rewrites.
        now, first = time.monotonic(), self._waiting[:TOGETHER]
        enough = len(first) == TOGETHER and first[-1].due <= now
        if not enough and not (first and first[0].due + _LATEST <= now):
            return []
        return self._finish(sum(rewrite.due <= now for rewrite in first), hurry=False)

    def finish_all(self, *, hurry: bool) -> list[FileRewrite]:
        late: list[FileRewrite] = []
        while self._waiting:
            late += self._finish(TOGETHER, hurry=hurry)
        return late

    def _finish(self, count: int, *, hurry: bool) -> list[FileRewrite]:
        chosen, self._waiting = self._waiting[:count], self._waiting[count:]
        return finish_together(chosen, hurry=hurry)


def finish_now(rewrites: Iterable[Rewrite]) -> None:
    """Finish rewrites in a hurry, since the caller fails. The next recovery does the rest."""
    for rewrite in rewrites:
        with suppress(Exception):
            finish(rewrite, hurry=True)
