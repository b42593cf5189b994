"""Walk the roots to session files, without ever leaving a root.

Every step below a root goes through the descriptor of the directory above and refuses symbolic
links, so that a directory swapped for a link during the walk cannot lead out. The root itself is
the user's word and may be a link.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from brainsurgeon import formats
from brainsurgeon.hosts import claude_code, openclaw
from brainsurgeon.model.sessions import Fingerprint, Listing, Root, SessionFile, Unreadable
from brainsurgeon.sessions.leases import unproven
from brainsurgeon.sessions.reading import format_name, open_below, open_plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.model.sessions import Resting


# What stands in a directory can change only together with the time at which the directory itself
# changed, which nobody can set. So a directory that is as it was at the last run is not listed
# again, nor opened in the sense of the kernel, which would tell everybody who watches it, ourselves
# among them. Its files are looked at, each of them, as ever.


_DIRECTORY = os.O_DIRECTORY | os.O_CLOEXEC
_PATH = getattr(os, "O_PATH", os.O_RDONLY)
# Seconds for which a directory must have been as it is when it is listed: until then a further
# change may leave it with the same time, as filesystems count in steps.
AGED = 3.0


def open_listed(
    path: str, name: str, above: int | None, resting: Resting | None
) -> tuple[int, Listing]:
    """Open the directory `name`, which is `path`, and give what stands in it.

    Below a directory that is open as `above` a link is refused. Raise OSError where it cannot be
    opened or listed. The caller closes the descriptor, which may be good for looking at names only.
    """
    known = resting.listings.get(path) if resting else None
    follow = 0 if above is None else os.O_NOFOLLOW
    if resting and known:
        descriptor = os.open(name, _PATH | _DIRECTORY | follow, dir_fd=above)
        if Fingerprint.of(os.fstat(descriptor)) == known.mark:
            resting.listed[path] = known
            return descriptor, known
        os.close(descriptor)
    descriptor = os.open(name, os.O_RDONLY | _DIRECTORY | follow, dir_fd=above)
    try:
        listing = _list(descriptor)
        if resting and _lasts(listing.mark, descriptor):
            resting.listed[path] = listing
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor, listing


def _list(descriptor: int) -> Listing:
    mark = Fingerprint.of(os.fstat(descriptor))  # before: what changes meanwhile shows in the next
    names: list[str] = []
    inner: list[str] = []
    links: list[str] = []
    with os.scandir(descriptor) as listing:
        for item in listing:
            if item.is_symlink():
                links.append(item.name)
            else:
                (inner if item.is_dir(follow_symlinks=False) else names).append(item.name)
    return Listing(mark, names, inner, links)


def _lasts(mark: Fingerprint, descriptor: int) -> bool:
    """Check whether the next change of a directory is certain to show in its mark.

    On other filesystems nobody knows who gives a directory its times.
    """
    now = time.clock_gettime(time.CLOCK_REALTIME)  # the kernel's, as are the times of files
    return mark.ctime_ns / 1e9 < now - AGED and unproven(descriptor) is None


_DEEPEST = 16
_NOT_ENTERED = openclaw.SKIPPED_DIRECTORIES | {".", ".."}
LINK = "a symbolic link, which is not followed"
# What opening a link, or anything but a directory, as a directory says.
_NO_DIRECTORY = (errno.ENOTDIR, errno.ELOOP)


def unknown_format(_path: str, _fingerprint: Fingerprint) -> str | None:
    """Know the format of no file: then its first lines are read where the agent is named by it."""
    return None


def any_format(_path: str, _fingerprint: Fingerprint) -> str | None:
    """Call every format unknown: for walks to which the names of agents do not matter."""
    return formats.UNKNOWN


def nothing_recorded(_path: str) -> bool:
    """Know of no session: then links are passed over in silence."""
    return False


def discover(
    roots: Iterable[Root],
    wanted: Callable[[str], bool] = openclaw.is_session_name,
    format_of: Callable[[str, Fingerprint], str | None] = unknown_format,
    resting: Resting | None = None,
    recorded: Callable[[str], bool] = nothing_recorded,
) -> Iterator[SessionFile | Unreadable]:
    """Yield every session file below the roots once, and every place that could not be read.

    Those of which `resting` knows that nothing changed and nothing is due are not yielded: they
    cost one stat each, and nothing is built of them.

    `wanted` tells by the name which files are meant. Where the layout of directories does not name
    the agent, the format of the file does; `format_of` gives it, or None for it to be read.

    A symbolic link is not followed. It is unreadable where `recorded` says that a session was once
    seen at its path, or below it.
    """
    met: set[tuple[int, int]] = set()
    for root in roots:
        path = os.path.realpath(root.path)
        try:
            descriptor, listing = open_listed(path, path, None, resting)
        except FileNotFoundError:
            yield Unreadable(path, root.path, "no such directory", failed=root.required)
            continue
        except OSError as error:
            yield Unreadable(path, root.path, error.strerror or "cannot be opened")
            continue
        walk = _Walk(path, root, wanted, format_of, resting, met, recorded)
        for item in walk.directory(path, descriptor, listing, 0):
            if isinstance(item, SessionFile):
                key = (item.fingerprint.device, item.fingerprint.inode)
                if key in met:
                    continue
                met.add(key)
            yield item


def discover_at(
    roots: Iterable[Root],
    path: str,
    format_of: Callable[[str, Fingerprint], str | None] = unknown_format,
) -> SessionFile | Unreadable | None:
    """Look at one path alone; give what a walk over the roots would yield there, None for nothing.

    A root that is missing counts as unreadable when the path would stand below it.
    """
    directory, name = os.path.split(path)
    for root in roots:
        top = os.path.realpath(root.path)
        if directory != top and not directory.startswith(top.rstrip("/") + "/"):
            continue
        below = [step for step in directory[len(top) :].split("/") if step]
        if len(below) > _DEEPEST or _NOT_ENTERED & {*below}:
            continue
        try:
            descriptor = open_below(top, directory)
        except FileNotFoundError:
            if not os.path.lexists(top):
                return Unreadable(top, root.path, "no such directory", failed=root.required)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY:
                return Unreadable(top, directory, error.strerror or "cannot be opened")
        else:
            try:
                walk = _Walk(top, root, openclaw.is_session_name, format_of)
                for item in walk.look(directory, name, descriptor):
                    return item
            finally:
                os.close(descriptor)
    return None


def is_named(file: SessionFile) -> bool:
    """Check whether the walk could name the agent of a file.

    From its place, or from its content.
    """
    nameless = file.agent.startswith(f"{formats.UNKNOWN}:")
    return not nameless or openclaw.owner(file.directory) is not None


@dataclass(frozen=True, slots=True)
class _Walk:
    """The walk of one root."""

    top: str
    root: Root
    wanted: Callable[[str], bool]
    format_of: Callable[[str, Fingerprint], str | None]
    resting: Resting | None = None
    met: set[tuple[int, int]] = field(default_factory=set)
    recorded: Callable[[str], bool] = nothing_recorded
    claude_home: str = field(default_factory=lambda: os.path.realpath(claude_code.home()))

    def directory(
        self, path: str, descriptor: int, listing: Listing, depth: int
    ) -> Iterator[SessionFile | Unreadable]:
        """Walk one directory; closes `descriptor`."""
        try:
            for name in listing.links:
                if self.recorded(f"{path}/{name}"):
                    yield Unreadable(self.top, f"{path}/{name}", LINK)
            directories = frozenset(listing.directories) - openclaw.SKIPPED_DIRECTORIES
            for name in sorted([*self._awake(path, descriptor, listing.names), *directories]):
                if name not in directories:
                    yield from self.look(path, name, descriptor)
                elif depth < _DEEPEST:
                    yield from self._enter(f"{path}/{name}", descriptor, depth)
        finally:
            os.close(descriptor)

    def _awake(self, path: str, descriptor: int, listed: list[str]) -> Iterable[str]:
        """Return the names in a directory that may need a look.

        For every file that rests this is what a run costs: a look-up, one stat, a comparison.
        """
        rows = self.resting.rows(path) if self.resting else None
        if self.resting is None or not rows:
            return listed
        rules, now, met, names, awake = self.resting.rules, self.resting.now, self.met, [], []
        for name in listed:
            row = rows.get(name)
            if row is not None and row[6] == rules and (row[5] is None or row[5] > now):
                try:
                    seen = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                except OSError:
                    awake.append(name)
                    continue
                if (
                    row[4] == seen.st_ctime_ns and row[3] == seen.st_mtime_ns
                    and row[1] == seen.st_ino and row[2] == seen.st_size
                    and row[0] == seen.st_dev
                ):  # fmt: skip
                    met.add((row[0], row[1]))
                    names.append(name)
                    continue
            awake.append(name)
        self.resting.rested(path, names)
        return awake

    def _enter(self, path: str, above: int, depth: int) -> Iterator[SessionFile | Unreadable]:
        try:
            inner, listing = open_listed(path, os.path.basename(path), above, self.resting)
        except FileNotFoundError:
            return
        except OSError as error:
            yield Unreadable(self.top, path, error.strerror or "cannot be opened")
            return
        yield from self.directory(path, inner, listing, depth + 1)

    def look(
        self, directory: str, name: str, descriptor: int
    ) -> Iterator[SessionFile | Unreadable]:
        """Yield the file of this name, if it is one that is meant."""
        path = f"{directory}/{name}"
        if not self.wanted(name) or claude_code.is_no_session(path, self.claude_home):
            return
        try:
            status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            return  # it went away between the listing and the look: the next run will tell
        except OSError as error:
            yield Unreadable(self.top, f"{directory}/{name}", error.strerror or "cannot be read")
            return
        if stat.S_ISREG(status.st_mode):
            fingerprint = Fingerprint.of(status)
            agent, home = self._owner(directory, name, descriptor, fingerprint)
            yield SessionFile(
                self.top, directory, name, agent, home, self.root.format, fingerprint,
                self.root.exclusive,
            )  # fmt: skip

    def _owner(
        self, directory: str, name: str, descriptor: int, fingerprint: Fingerprint
    ) -> tuple[str, str]:
        """Name the agent that owns a file, and the directory that is that agent's own.

        Where the layout of directories does not tell, it is called after the format of the file
        and the file's directory.
        """
        home = openclaw.owner(directory)
        if home is not None:
            return os.path.basename(home), home
        path = f"{directory}/{name}"
        known = self.format_of(path, fingerprint)
        form = known or self._format(name, descriptor) or formats.UNKNOWN
        where = claude_code.place(path) if form == claude_code.FORMAT else None
        if where is not None:
            return where.agent, where.directory
        host = openclaw.PI if form == "openclaw" else f"{form}:"
        return f"{host}{os.path.basename(directory)}", directory

    def _format(self, name: str, descriptor: int) -> str | None:
        if not openclaw.is_session_name(name):  # opening a temporary file would disturb its lease
            return None
        try:
            opened = open_plain(name, descriptor)
        except OSError:
            return None
        try:
            return format_name(opened, self.root.format)
        except OSError:
            return None
        finally:
            os.close(opened)
