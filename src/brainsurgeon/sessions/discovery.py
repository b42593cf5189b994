"""Find the session files below the roots, without ever leaving a root; open a session."""

# Every step below a root goes through the descriptor of the directory above and refuses symbolic
# links. So a directory that is swapped for a link during the walk cannot lead outside. The root
# itself is the user's choice and may be a link.
#
# A change in a directory changes its ctime, which no process can set. If the ctime is the same, the
# listing of an earlier run is used, but each file in it is checked. The directory is not even
# opened for reading: the kernel would notify every process that watches it, including this one.

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

from msgspec import Struct, field
from msgspec.structs import replace

from brainsurgeon import agents, interruption
from brainsurgeon.agents.agent import Owner
from brainsurgeon.agents.rows import OpenRows
from brainsurgeon.errors import BusyError, FailedError
from brainsurgeon.files import reading
from brainsurgeon.files.leases import unproven
from brainsurgeon.formats.recognition import UNKNOWN
from brainsurgeon.model.session_files import (
    Fingerprint,
    Listing,
    Memory,
    Root,
    SessionFile,
    Unreadable,
)
from brainsurgeon.sessions.row_listing import list_rows

_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_PATH = getattr(os, "O_PATH", os.O_RDONLY)
# A listing is kept for later runs only if the directory had been unchanged for this many seconds.
# Filesystem clocks advance in steps: two changes in quick succession may have the same ctime.
AGED = 3.0
_DEEPEST = 16
_HEAD = 65_536  # bytes at the beginning of a file that may name its agent
LINK = "a symbolic link, which is not followed"
# Returns the format of a file, or None if the file must be read to detect it.
FormatOf = Callable[[str, Fingerprint], str | None]


def _open_listed(
    path: str, name: str, above: int | None, memory: Memory | None
) -> tuple[int, Listing]:
    flags = _DIRECTORY if above is None else _DIRECTORY | os.O_NOFOLLOW
    if memory and (known := memory.listings.get(path)):
        descriptor = os.open(name, _PATH | flags, dir_fd=above)  # serves to open and stat files
        if Fingerprint.of(os.fstat(descriptor)) == known.mark:
            memory.listed[path] = known
            return descriptor, known
        os.close(descriptor)
    descriptor = os.open(name, os.O_RDONLY | flags, dir_fd=above)
    try:
        mark = Fingerprint.of(os.fstat(descriptor))  # before the listing, to detect later changes
        listing = Listing(mark, [], [], [])
        with os.scandir(descriptor) as items:
            for item in items:
                if item.is_symlink():
                    listing.links.append(item.name)
                elif item.is_dir(follow_symlinks=False):
                    listing.directories.append(item.name)
                else:
                    listing.names.append(item.name)
        now = time.clock_gettime(time.CLOCK_REALTIME)  # the kernel's clock, as for file times
        # On an untested filesystem, another machine with another clock may set the ctime.
        if memory and mark.ctime_ns / 1e9 < now - AGED and unproven(descriptor) is None:
            memory.listed[path] = listing
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, listing


def any_format(_path: str, _fingerprint: Fingerprint) -> str:
    """For walks that do not need the agents' names."""
    return UNKNOWN


def discover(
    roots: Iterable[Root],
    wanted: Callable[[str], bool] = agents.is_session_name,
    format_of: FormatOf | None = None,
    memory: Memory | None = None,
    was_recorded: Callable[[str], bool] | None = None,
) -> Iterator[SessionFile | Unreadable]:
    """Yield every session file below the roots once, and every path that could not be read.

    With `memory`, unchanged files for which nothing is due are left out. `wanted` selects files by
    name. `format_of` is called if the directory does not show which agent wrote a file. A link is
    yielded as unreadable if a session `was_recorded` at its path or below it.
    """
    walked: set[tuple[int, int]] = set()
    for root in _noted(roots):
        top = os.path.realpath(root.path)
        walk = _Walk(top, root, wanted, format_of, memory, walked, was_recorded)
        yield from walk.directory(top, None, 0)


def links_below(roots: Iterable[Root]) -> Iterator[tuple[str, str]]:
    """Yield each link to a directory where sessions are expected, and the real path behind it.

    No walk follows them. Nothing behind them is read; those that lead below a root are left out.
    """
    tops = [os.path.realpath(root.path) for root in roots]
    for top in tops:
        with suppress(OSError), os.scandir(top) as listing:
            for item in sorted(listing, key=lambda item: item.name):
                # OpenClaw's root contains agents, each with a directory `sessions`.
                path = item.path if item.is_symlink() else os.path.join(item.path, "sessions")
                real = os.path.realpath(path)
                below = any(os.path.commonpath([real, other]) == other for other in tops)
                if os.path.islink(path) and os.path.isdir(path) and not below:
                    yield path, real


def _noted(roots: Iterable[Root]) -> Sequence[Root]:
    listed = list(roots)
    agents.note_roots(root.path for root in listed)
    return listed


def discover_at(
    roots: Iterable[Root], path: str, format_of: FormatOf | None = None
) -> SessionFile | Unreadable | None:
    """Return the item that `discover` would yield for one path, or for its missing root."""
    directory, name = os.path.split(path)
    for root in _noted(roots):
        top = os.path.realpath(root.path)
        if directory != top and not directory.startswith(top.rstrip("/") + "/"):
            continue
        below = [step for step in directory[len(top) :].split("/") if step]
        if len(below) > _DEEPEST or {".", "..", *agents.SKIPPED_DIRECTORIES} & {*below}:
            continue
        try:
            descriptor = reading.open_below(top, directory)
        except FileNotFoundError:
            if not os.path.lexists(top):
                return Unreadable(top, root.path, "no such directory", failed=root.required)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                return Unreadable(top, directory, error.strerror or "cannot be opened")
        else:
            try:
                walk = _Walk(top, root, agents.is_session_name, format_of)
                for item in walk.file(directory, name, descriptor):
                    return item
            finally:
                os.close(descriptor)
    return None


def has_agent_name(file: SessionFile) -> bool:
    nameless = file.agent.startswith(f"{UNKNOWN}:")
    return not nameless or agents.keeper_of(file.path) is not None


class _Walk(Struct, frozen=True):
    top: str
    root: Root
    wanted: Callable[[str], bool]
    format_of: FormatOf | None
    memory: Memory | None = None
    walked: set[tuple[int, int]] = field(default_factory=set)  # directories and hard links
    was_recorded: Callable[[str], bool] | None = None

    def directory(
        self, path: str, above: int | None, depth: int
    ) -> Iterator[SessionFile | Unreadable]:
        is_root = above is None
        shown = self.root.path if is_root else path
        try:
            name = path if is_root else os.path.basename(path)
            descriptor, listing = _open_listed(path, name, above, self.memory)
        except FileNotFoundError:
            if is_root:
                yield Unreadable(path, shown, "no such directory", failed=self.root.required)
            return
        except OSError as error:
            yield Unreadable(self.top, shown, error.strerror or "cannot be opened")
            return
        try:
            if listing.mark.file_id in self.walked:  # the directory is below another root, too
                return
            self.walked.add(listing.mark.file_id)
            for name in listing.links:
                if self.was_recorded and self.was_recorded(f"{path}/{name}"):
                    yield Unreadable(self.top, f"{path}/{name}", LINK)
            directories = frozenset(listing.directories) - agents.SKIPPED_DIRECTORIES
            names = [*self._not_skipped(path, descriptor, listing.names), *directories]
            names.sort()  # in place: there may be 100,000
            for name in names:
                if name not in directories:
                    yield from self.file(path, name, descriptor)
                elif depth < _DEEPEST:
                    yield from self.directory(f"{path}/{name}", descriptor, depth + 1)
        finally:
            os.close(descriptor)

    def _not_skipped(self, path: str, descriptor: int, listed: list[str]) -> Iterable[str]:
        # The loop runs for every unchanged file: it is kept fast.
        rows = self.memory.known_in(path) if self.memory else None
        if self.memory is None or not rows:
            return listed
        rules, now, walked, skipped, rest = self.memory.rules, self.memory.now, self.walked, [], []
        bits = Fingerprint.HASHED
        for name in listed:
            row = rows.get(name)
            if row and row[2][0] == rules and (row[1] is None or row[1] > now):
                try:
                    seen = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except OSError:
                    seen = None
                if seen and row[0] == bits & hash((
                    seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns,
                )):  # fmt: skip
                    if seen.st_nlink > 1:
                        walked.add((seen.st_dev, seen.st_ino))
                    skipped.append(name)
                    continue
            rest.append(name)
        self.memory.record_skipped(path, skipped)
        return rest

    def file(
        self, directory: str, name: str, descriptor: int
    ) -> Iterator[SessionFile | Unreadable]:
        path = f"{directory}/{name}"
        if not self.wanted(name):
            return
        of_session = path[: path.rindex(".jsonl") + len(".jsonl")] if ".jsonl" in name else path
        if agents.is_no_session(of_session):
            return
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return  # deleted since the listing
        except OSError as error:
            yield Unreadable(self.top, path, error.strerror or "cannot be read")
            return
        if stat.S_ISREG(status.st_mode):
            fingerprint = Fingerprint.of(status)
            if status.st_nlink > 1:
                if fingerprint.file_id in self.walked:
                    return
                self.walked.add(fingerprint.file_id)
            owner = self._owner(directory, name, descriptor, fingerprint)
            yield SessionFile(
                self.top, directory, name, owner.name, owner.directory, self.root.hint,
                fingerprint, self.root.exclusive, shrink=self.root.shrink,
            )  # fmt: skip

    def _owner(self, directory: str, name: str, descriptor: int, fingerprint: Fingerprint) -> Owner:
        path = f"{directory}/{name}"
        if kept := agents.keeper_of(path):
            return kept
        format_name = self.format_of(path, fingerprint) if self.format_of else None
        if not format_name and agents.is_session_name(name):
            # Our temporary files are never opened here: that would break their leases.
            with suppress(OSError), reading.plain_file(name, descriptor) as file:
                known = reading.recognise_at(file, agents.FORMATS, self.root.hint)
                format_name = known.name or UNKNOWN
            format_name = format_name or agents.format_at(path)  # it is unreadable

        def head() -> bytes:
            with suppress(OSError), reading.plain_file(name, descriptor) as file:
                return os.pread(file, _HEAD, 0)
            return b""

        return agents.owner_of(path, format_name or UNKNOWN, head)


AnyOpen = reading.OpenFile | OpenRows


def open_session(
    file: SessionFile, check_stop: Callable[[], None] = interruption.check
) -> AbstractContextManager[AnyOpen]:
    """Open a session file or a session in a database. Raises RefusedError, BusyError or OSError."""
    if file.in_database:
        return agents.databases_of(file.directory).session(file, check_stop)
    return reading.open_session(file, agents.FORMATS, check_stop)


def is_archive(file: SessionFile) -> bool:
    return not file.in_database and not agents.is_session_name(file.name)


def identity_of(file: SessionFile) -> str | None:
    try:
        with open_session(file) as session:
            return session.identity
    except (OSError, reading.RefusedError, BusyError):
        return None


def session_at(root: str, path: str) -> SessionFile | Unreadable | None:
    return discover_at([Root(root)], path) or _row_at(Root(root), path, {})


def _row_at(root: Root, path: str, own: Mapping[str, int]) -> SessionFile | Unreadable | None:
    rows = list_rows([root], own, only_path=path)
    return next((row for row in rows if isinstance(row, Unreadable) or row.path == path), None)


def current_state(file: SessionFile) -> SessionFile:
    """Return the current state of a session. Raises OSError: FileNotFoundError if it is gone."""
    if not file.in_database:
        status = os.stat(file.path, follow_symlinks=False)
        return replace(file, fingerprint=Fingerprint.of(status))
    root = Root(file.root, file.hint, exclusive=file.exclusive)
    own = {} if file.own_ms is None else {file.path: file.own_ms}
    session = _row_at(root, file.path, own)
    if isinstance(session, SessionFile):
        return session
    raise OSError(errno.EIO, session.reason) if session else FileNotFoundError(file.path)


@contextmanager
def open_to_show(file: SessionFile) -> Iterator[AnyOpen]:
    """Open a session. Raises FailedError with the session's title, or BusyError."""
    try:
        with open_session(file) as session:
            yield session
    except reading.RefusedError as why:
        raise failed(file.title, why) from why
    except reading.LineChangedError as why:
        raise BusyError(f"{why}; try again", file.title) from why
    except OSError as why:
        raise failed(file.title, why) from why


def failed(title: str, why: Exception | str) -> FailedError:
    """Return the error that a session cannot be read or changed."""
    text = why.strerror or type(why).__name__ if isinstance(why, OSError) else why
    return FailedError(f"{text}; its file was left as it is", title)
