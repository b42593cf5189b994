"""Replace session files by exchanging names. `retire` may exchange the names back."""

# No process ever sees a half-written session file. A file is not replaced if it changed since it
# was read, or while another process has it open. (In an `exclusive` root, it may be open if leases
# are not supported.) Mode, owner and times stay the same.
#
# The new content is written to a temporary file beside the session and synced. Write leases on both
# files prove that no other process has either open. A process that opens one of them has to wait.
# The state of file and agent is compared once more, the names are exchanged, and the directory is
# synced. A *late opener* resolved the name before the exchange, so it opens the old file. Its lines
# are moved to the new file, or the names are exchanged back. `retire` removes the old file.
#
# Sessions of one directory share its sync and the wait for late openers. Slow work is done before
# the first lease, since a process that opens a leased file has to wait.

import os
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from hashlib import blake2b
from itertools import chain, zip_longest
from typing import NoReturn

import msgspec.structs
from msgspec import Struct

from brainsurgeon.files import attributes, leases, retire
from brainsurgeon.files.reading import OpenFile, RefusedError, read_range
from brainsurgeon.files.retire import CAREFULLY, WAIT_FOR_OPENERS, FilePair, Ledger, inode
from brainsurgeon.model.session_files import BusyCheck, End, Fingerprint

WAIT_FOR_CLOSING = 0.5  # seconds that late writers have to close the old file
TRUSTED = 5.0  # seconds to rely on the leases, which the kernel breaks after 45 (fcntl(2))

_OPEN = "another process has the file open"
_NO_LEASES = "no lease can be had here ({}), and the session's root is not `exclusive`"
_TEMPORARY = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

BLOCK = 4096  # bytes; in the copy of a sparse file, blocks of zeros become holes
# Start and end in the old file, and the bytes that replace them in the new one.
Splice = tuple[int, int, bytes]
# Start and end in the old file, and the length of the replacement in the new one.
Replacement = tuple[int, int, int]


class RolledBackError(RefusedError):
    """The session is unchanged again. For a moment, other processes could read the new content."""


class Exchange(Struct, frozen=True):
    pair: FilePair
    fingerprint: Fingerprint
    at: float  # monotonic


class Successor(Struct):
    """A durable file with the new content of a session."""

    session: OpenFile
    temporary: str
    descriptor: int  # of the new file
    replaced: list[Replacement]
    ends: tuple[End, End]  # of the old and the new file
    busy_check: BusyCheck
    ledger: Ledger
    result: Exchange | Exception | None = None  # of the attempt to exchange the names
    leased_at: float = 0.0  # monotonic, just before the leases were taken
    exchanged_at: float = 0.0  # monotonic, just after the exchange

    @property
    def inode(self) -> int:
        return os.fstat(self.descriptor).st_ino

    @property
    def pair(self) -> FilePair:
        file, directory = self.session.file, self.session.directory
        return FilePair(directory, file.name, self.temporary, self.ends, self.inode, self.ledger)

    @property
    def moved(self) -> int | None:
        """The descriptor of the new file if a line begins or ends elsewhere in it."""
        moves = any(end - start != length for start, end, length in self.replaced)
        return self.descriptor if moves else None

    def close(self) -> None:
        if self.descriptor >= 0:
            descriptor, self.descriptor = self.descriptor, -1
            os.close(descriptor)

    def drop_leases(self) -> None:
        leases.drop(self.session.descriptor)
        leases.drop(self.descriptor)

    def exchanged(self) -> None:
        now = Fingerprint.of(os.fstat(self.descriptor))
        now = msgspec.structs.replace(now, size=self.ends[1].size)
        self.result = Exchange(self.pair, now, time.monotonic())

    def refused(self, why: Exception) -> None:
        self.result = why
        try:
            _discard(self.session, self.temporary, self.descriptor)
        except OSError as error:
            self.result = error

    def may_begin(self) -> bool:
        """Check whether signs and mounts allow the exchange. Slow, so it runs before any lease."""
        try:
            _refuse_if(self.busy_check.read())
            # A container may have mounted the file since the last check. Leases do not show this.
            directory, name = self.session.directory, self.session.file.name
            _refuse_if(leases.obstacle(directory, name, exchanging=True))
        except Exception as error:  # noqa: BLE001  a refusal concerns this session alone
            self.refused(error)
        return self.result is None

    def exchange(self) -> None:
        session = self.session
        with self.busy_check.hold(self.moved) as why:
            _refuse_if(why)
            self._exchange(session)

    def _exchange(self, session: OpenFile) -> None:
        self.leased_at = time.monotonic()
        try:
            taken = leases.take(self.descriptor) and leases.take(session.descriptor)
            _refuse_if("" if taken else _OPEN)
            _refuse_if(session.differs() or self.busy_check.changed())
            _refuse_if("" if leases.held(session.descriptor) else "the file is being opened")
            try:
                leases.exchange(session.directory, self.temporary, session.file.name)
            except FileNotFoundError as error:
                raise RefusedError("the file was deleted meanwhile") from error
            self.exchanged_at = time.monotonic()
        finally:
            if not self.exchanged_at:
                self.drop_leases()

    def exchange_unleased(self, why: leases.LeaseUnsupportedError) -> None:
        session = self.session
        try:
            _refuse_if("" if session.file.exclusive else _NO_LEASES.format(why.strerror))
            with self.busy_check.hold(self.moved) as held_by:
                _refuse_if(held_by or self.busy_check.read() or session.differs())
                leases.exchange(session.directory, self.temporary, session.file.name)
            os.fsync(session.directory)
        except leases.LeaseUnsupportedError as error:
            self.refused(RefusedError(str(error.strerror)))
        except Exception as error:  # noqa: BLE001  kept as the result
            self.refused(error)
        else:
            self.exchanged()

    def replaced_this_file(self) -> bool:
        """Check whether the exchange replaced the file that was read; if not, undo it."""
        try:
            if inode(self.session.directory, self.temporary) != self.session.fingerprint.inode:
                self._exchange_back("the file was replaced meanwhile")
        except Exception as error:  # noqa: BLE001  kept as the result
            self.result = error
            return False
        return True

    def openers_may_come(self) -> bool:
        return time.monotonic() < self.exchanged_at + WAIT_FOR_OPENERS

    def move_late_lines(self, deadline: float, removal_deadline: float) -> None:
        """Move lines that late openers append to the old file. The new file is still leased.

        If a writer keeps the old file open until `deadline` (monotonic), or did not only append,
        the old file gets its name back. The new file is then removed, or stays for the next
        recovery if it is still in use at `removal_deadline`.
        """
        old, new = self.session.descriptor, self.descriptor
        # A late reader, such as a pager, may keep the old file open.
        while self.openers_may_come() or not leases.no_writers(old):
            if time.monotonic() > deadline:
                self._exchange_back("another process keeps the file open", removal_deadline)
            time.sleep(0.0005)
        old_end, new_end = self.ends
        status = os.fstat(old)
        edited = status.st_mtime_ns != self.session.fingerprint.mtime_ns
        if not retire.only_grew(old, old_end) or (
            edited and (status.st_size == old_end.size or not self._same_between_replacements())
        ):
            self._exchange_back("the agent rewrote the file meanwhile", removal_deadline)
        late = retire.tail_of(old, old_end)
        if late:
            self.ledger.note({self.inode: new_end}, self.inode)
            # If this process was stopped for a while, the kernel may have broken the lease.
            # `retire` moves the lines later.
            if time.monotonic() > self.leased_at + TRUSTED:
                return
            try:
                retire.write(new, late)
            except BaseException:
                os.ftruncate(new, new_end.size)
                raise
            os.fsync(new)
            os.fsync(old)  # the journal will record that the old file ends with these lines
        self.ends = (
            retire.end_of(old, old_end.size + len(late)),
            retire.end_of(new, new_end.size + len(late)),
        )

    def _same_between_replacements(self) -> bool:
        old, new = self.session.descriptor, self.descriptor
        old_at = new_at = 0
        whole = self.session.fingerprint.size
        for start, end, length in [*self.replaced, (whole, whole, 0)]:
            before = read_range(old, old_at, start)
            after = read_range(new, new_at, new_at + start - old_at)
            if any(chunk != other for chunk, other in zip_longest(before, after)):
                return False
            new_at += start - old_at + length
            old_at = end
        return True

    def _exchange_back(self, why: str, removal_deadline: float | None = None) -> NoReturn:
        """Exchange the names back, and move lines added to the new file into the old file.

        If the agent replaced one of these files meanwhile, the agent's file gets the name.
        """
        pair, old, new = self.pair, self.session.descriptor, self.descriptor
        leases.exchange(pair.directory, pair.temporary, pair.name)
        ours = inode(pair.directory, pair.temporary) == pair.other_inode
        if not ours:
            leases.exchange(pair.directory, pair.temporary, pair.name)
        os.fsync(pair.directory)
        time.sleep(WAIT_FOR_OPENERS)  # for processes that resolved the name before this exchange
        if ours:
            leases.drop(old)  # `turned_back` opens the old file by its name
            pair = pair.turned_back()  # notes the end of the old file before lines are moved to it
        self.drop_leases()  # otherwise moving the lines would wait for our own lease
        if ours:
            # Only a read-only descriptor gets a lease while other processes read the file.
            reading = os.open(pair.temporary, os.O_RDONLY | CAREFULLY, dir_fd=pair.directory)
            os.dup2(reading, new, inheritable=False)
            os.close(reading)
        retire.retire(
            pair, leased=new if ours else old, named_in_use=ours,
            deadline=removal_deadline or time.monotonic() + retire.LOOK_BACK_LONGEST,
        )  # fmt: skip
        raise RolledBackError(why)


def _refuse_if(reason: str | None) -> None:
    if reason:
        raise RefusedError(reason)


def prepare(
    session: OpenFile,
    temporary: str,
    splices: Iterable[Splice],
    busy_check: BusyCheck,
    ledger: Ledger,
) -> Successor:
    """Write the spliced content to a new file beside the session. The caller closes the result."""
    try:
        new = os.open(temporary, _TEMPORARY, 0o600, dir_fd=session.directory)
    except OSError as error:
        raise OSError(error.errno, f"{session.file.directory}: {error.strerror}") from error
    try:
        replaced, new_end = fill(session, new, splices)
        old_end = retire.end_of(session.descriptor, session.fingerprint.size)
    except BaseException:
        try:
            _discard(session, temporary, new)
        finally:
            os.close(new)
        raise
    return Successor(session, temporary, new, replaced, (old_end, new_end), busy_check, ledger)


def _discard(session: OpenFile, temporary: str, new: int) -> None:
    """Remove the new file, unless an exchange gave the temporary name to the old file.

    Raises OSError if it cannot be removed: the journal must keep the name of the file.
    """
    if inode(session.directory, temporary) == os.fstat(new).st_ino:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=session.directory)


def fill(session: OpenFile, new: int, splices: Iterable[Splice]) -> tuple[list[Replacement], End]:
    done, replaced = 0, list[Replacement]()
    for start, end, token in splices:
        if start < done:
            raise ValueError("splices out of order")
        _copy_range(session, new, done, start)
        retire.write(new, token)
        replaced.append((start, end, len(token)))
        done = end
    _copy_range(session, new, done, session.fingerprint.size)
    new_end = retire.end_now(new)  # before the times are copied: reading changes the access time
    attributes.copy(session.descriptor, new, session.status)
    os.fsync(new)
    return replaced, new_end


def _copy_range(session: OpenFile, new: int, start: int, end: int) -> None:
    for chunk in read_range(session.descriptor, start, end):
        session.check_stop()
        if not session.sparse:
            retire.write(new, chunk)
            continue
        for at in range(0, len(chunk), BLOCK):
            block = chunk[at : at + BLOCK]
            if block.strip(b"\0"):
                retire.write(new, block)
            else:
                os.ftruncate(new, os.fstat(new).st_size + len(block))


def check_closed(session: OpenFile) -> None:
    """Raise RefusedError if another process has, or may have, the file open."""
    try:
        taken = leases.take(session.descriptor)
        leases.drop(session.descriptor)
        _refuse_if("" if taken else _OPEN)
    except leases.LeaseUnsupportedError as why:
        _refuse_if("" if session.file.exclusive else _NO_LEASES.format(why.strerror))


def grouped_by_directory(successors: Iterable[Successor]) -> list[list[Successor]]:
    """Group by directory, except those whose exchange concerns other files, too."""
    groups: dict[tuple[int, int, str], list[Successor]] = {}
    # What begins in another file was written later, and is not changed any more after that one.
    for successor in reversed([*successors]):
        above = os.fstat(successor.session.directory)
        mends = successor.session.file.shrink and successor.moved is not None
        alone = successor.temporary if mends or successor.busy_check.alone else ""
        groups.setdefault((above.st_dev, above.st_ino, alone), []).append(successor)
    return list(groups.values())


def replace(successors: Sequence[Successor]) -> None:
    """Replace sessions of one directory by their successors, and set each successor's `result`.

    After a RefusedError, the session is untouched. After a RolledBackError, another process may
    have read the new content. After any other error, both files may exist (`rewrite.recover`).
    """
    exchanged: list[Successor] = []
    unleased: list[tuple[Successor, leases.LeaseUnsupportedError]] = []
    try:
        for successor in [successor for successor in successors if successor.may_begin()]:
            try:
                successor.exchange()
            except leases.LeaseUnsupportedError as error:
                unleased.append((successor, error))
            except Exception as error:  # noqa: BLE001  kept as the result
                successor.refused(error)
            else:
                # From here on another process may write to either file: only `retire` removes one.
                if successor.replaced_this_file():
                    exchanged.append(successor)
        _handle_late_openers(exchanged)
    finally:
        for successor in successors:
            successor.drop_leases()
    for successor in exchanged:
        if successor.result is None:
            successor.exchanged()
    for successor, why in unleased:
        successor.exchange_unleased(why)


def _handle_late_openers(successors: Sequence[Successor]) -> None:
    try:
        if successors:
            os.fsync(successors[0].session.directory)
        late = await_openers(successors)
        # One deadline for all: processes that open any of the new files have to wait.
        deadline = time.monotonic() + WAIT_FOR_CLOSING
        removal_deadline = deadline + retire.LOOK_BACK_LONGEST
        for successor in late:
            try:
                try:
                    successor.move_late_lines(deadline, removal_deadline)
                finally:
                    successor.drop_leases()  # an error here replaces an error of the move
            except Exception as error:  # noqa: BLE001  kept as the result
                successor.result = error
    except Exception as error:  # noqa: BLE001  it concerns all of them
        for successor in successors:
            successor.result = successor.result or error


def await_openers(successors: Sequence[Successor]) -> list[Successor]:
    """Hold the leases until no late opener can come. Return the successors that have late openers.

    Their new files stay leased. All other leases are dropped.
    """
    waiting, late = list(successors), []
    while waiting:
        undecided = []
        for successor in waiting:
            if not leases.held(successor.session.descriptor):
                leases.drop(successor.session.descriptor)
                late.append(successor)
            elif not successor.openers_may_come():
                successor.drop_leases()
            else:
                undecided.append(successor)
        waiting = undecided
        if waiting:
            time.sleep(0.001)
    return late


def rewrite_start(descriptor: int, path: str, length: int, new: bytes) -> None:
    """Replace the first bytes of a file, which no other process may have open. Its times stay.

    If the new bytes are more or fewer, a new file gets its name.
    """
    status = os.fstat(descriptor)
    if len(new) == length:
        os.pwrite(descriptor, new, 0)
        os.utime(descriptor, ns=(status.st_atime_ns, status.st_mtime_ns))
        os.fsync(descriptor)
        return
    directory, name = os.path.split(path)
    # The same after a crash: then what is left of it is removed here.
    temporary = f".brainsurgeon-{blake2b(os.fsencode(name), digest_size=8).hexdigest()}.tmp"
    above = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    with ExitStack() as held:
        held.callback(os.close, above)
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=above)
        fresh = os.open(temporary, _TEMPORARY, 0o600, dir_fd=above)
        held.callback(os.close, fresh)
        for piece in chain([new], read_range(descriptor, length, status.st_size)):
            retire.write(fresh, piece)
        attributes.copy(descriptor, fresh, status)
        os.fsync(fresh)
        os.rename(temporary, name, src_dir_fd=above, dst_dir_fd=above)
        os.fsync(above)


# The names of our temporary files. No agent takes such a file for a session.
TEMPORARY = re.compile(r"\.brainsurgeon-[0-9a-f]{16}\.tmp")


def new_temporary_name() -> str:
    return f".brainsurgeon-{secrets.token_hex(8)}.tmp"


def leases_work(directory: str) -> bool:
    path = os.path.join(directory, new_temporary_name())
    descriptor = os.open(path, _TEMPORARY, 0o600)
    try:
        return leases.take(descriptor)
    except leases.LeaseUnsupportedError:
        return False
    finally:
        os.close(descriptor)
        os.unlink(path)
