"""Files and rows of sessions, what earlier scans said about them, and signs of an agent at work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from msgspec import Struct


class Fingerprint(Struct, frozen=True):
    HASHED: ClassVar[int] = 2**60 - 1  # bits of a hash to keep: more would take 16 bytes a file
    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: Any) -> Fingerprint:
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )

    @property
    def file_id(self) -> tuple[int, int]:
        return self.device, self.inode


class LastScan(NamedTuple):
    skipped_under: str | None  # rules under which later runs may skip the unchanged file
    rules: str  # of that scan
    outcome: str


# The hash of a file's fingerprint, the time when something in it is due, the result of the scan.
# Tuples take little memory: a tree may have 100,000 files.
KnownFile = tuple[int, float | None, LastScan]


class Listing(NamedTuple):
    mark: Fingerprint  # of the directory
    names: list[str]
    directories: list[str]
    links: list[str]


class Memory(Protocol):
    """The known files of a tree. A walk skips unchanged files in which nothing is due."""

    rules: str
    now: float
    listings: Mapping[str, Listing]  # of the last run, by directory
    listed: dict[str, Listing]  # of this run

    def known_in(self, directory: str) -> Mapping[str, KnownFile]:
        """Return the known files of a directory, by name, except files with pending requests."""

    def record_skipped(self, directory: str, names: list[str]) -> None: ...


AUTO, ANY = "auto", "any"  # instead of a format; ANY: also those that need the user's wish


class Root(Struct, frozen=True):
    path: str
    format: str = AUTO
    required: bool = True  # a missing directory is reported
    exclusive: bool = False  # the user promises that no other program writes below the directory
    databases: bool = True  # sessions in agents' databases below the directory are included
    shrink: bool = False  # lines may move although the agent stores offsets into the file

    @property
    def hint(self) -> str:
        """The format that its files may have. The user wrote every root that is required."""
        return ANY if self.format == AUTO and self.required else self.format


class End(Struct, frozen=True):
    """The size of a file and a digest of its last bytes, to recognise a file that only grew."""

    size: int
    digest: bytes


class SessionFile(Struct, frozen=True):
    """A session found below a root: a file, or rows of a database.

    The root also gives `hint` (its `format`), `exclusive` and `shrink`.

    If the session is in a database, `directory` is the path of the database, `name` is the id of
    the session, `key` is the agent's name for it (None for a file), and the fingerprint comes from
    columns of the database. `own_ms` is the time (milliseconds) that our last write recorded in
    the database. It does not count as activity of the agent.
    """

    root: str
    directory: str
    name: str
    agent: str
    agent_directory: str
    hint: str
    fingerprint: Fingerprint
    exclusive: bool = False
    key: str | None = None
    own_ms: int | None = None
    shrink: bool = False

    @property
    def in_database(self) -> bool:
        return self.key is not None

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    @property
    def session(self) -> str:
        return self.name.removesuffix(".jsonl")

    @property
    def title(self) -> str:
        return f"{self.agent}/{self.session}"


# Which edits may move lines into which the agent stores offsets.
Moving = Literal["no edits", "restores", "all edits"]


def _hold_nothing(_new: int | None) -> AbstractContextManager[None]:
    return nullcontext()


class BusyCheck:
    """Checks before and during an exchange whether an agent is at work on a session.

    The files that show it are read before a lease is taken. Under the lease, only their `stat` is
    compared: another process may be blocked in open(2), and must not wait until megabytes are
    parsed.
    """

    def __init__(
        self, name: str, busy: Callable[[], str | None], stat: Callable[[], object], *,
        alone: bool = False,
    ) -> None:  # fmt: skip
        self._name, self._busy, self._stat = name, busy, stat
        self.alone = alone  # the exchange of another session in the directory changes them
        # What is held during the exchange; yields why it cannot be held, or None. If the exchange
        # moves lines, it gets the descriptor of the new file, and mends what points to them.
        self.hold: Callable[[int | None], AbstractContextManager[str | None]] = _hold_nothing
        self._seen: object = None

    def read(self) -> str | None:
        """Return why the agent is at work, or None."""
        self._seen = self._stat()
        return self._busy()

    def changed(self) -> str | None:
        return None if self._stat() == self._seen else f"{self._name} changed just now"


class NotIdleError(Exception):
    """The session may not be changed now. A later run may change it.

    An unchanged session may be idle from `until` on. If `in_database`, only `until` or a change of
    the database makes another attempt useful. If `given_up`, it may never become idle: it is also
    `in_database`, and does not count as waiting.
    """

    def __init__(
        self, reason: str, until: float | None = None, *, in_database: bool = False,
        given_up: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(reason)
        self.until, self.in_database, self.given_up = until, in_database or given_up, given_up


class Unreadable(Struct, frozen=True):  # a file or a directory
    root: str
    path: str
    reason: str
    failed: bool = True  # False: a scan that finds this still succeeds


OFF_BRANCH = "off the active branch"
BEFORE_COMPACTION = "before the last compaction"
EDITED_AWAY = "taken out by a later edit of the context"
