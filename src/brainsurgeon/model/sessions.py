"""Sessions in files and in databases, and what one look over a whole session says of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from brainsurgeon.model.entries import OLD

if TYPE_CHECKING:
    from collections.abc import Mapping


# Device and inode: which file it is. An agent that writes its file anew may change it.
Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which file it was and in what state, by `stat` alone."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: Any) -> Fingerprint:
        """Reduce the answer of a `stat` to what tells two states of a file apart."""
        return cls(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )

    @property
    def place(self) -> Place:
        """Which file it was, whatever its name and state."""
        return self.device, self.inode


# A file as it was seen, as a plain row: device, inode, size, times of modification and change, when
# something in it falls due, the rules under which it needs no look before that (None where every
# run has to judge), the rules that it was seen under, and the outcome.
SeenRow = tuple[int, int, int, int, int, float | None, str | None, str, str]


class Listing(NamedTuple):
    """What stands in a directory in a certain state: directories and symbolic links apart."""

    mark: Fingerprint
    names: list[str]
    directories: list[str]
    links: list[str]


class Resting(Protocol):
    """What is known of the files of a tree, so that nothing is built of those that rest.

    `listings` is what the last run found in each directory, `listed` what this one does.
    """

    rules: str
    now: float
    listings: Mapping[str, Listing]
    listed: dict[str, Listing]

    def rows(self, directory: str) -> Mapping[str, SeenRow]:
        """Return the files of one directory that may rest, by name."""

    def rested(self, directory: str, names: list[str]) -> None:
        """Hear which of them do."""


@dataclass(frozen=True, slots=True)
class Root:
    """A directory to walk. `required` roots are reported when they are missing.

    `exclusive` is the user's word that nobody writes there but through this very mount.
    `databases` tells whether sessions in databases of their agents below it are looked at.
    """

    path: str
    format: str = "auto"
    required: bool = True
    exclusive: bool = False
    databases: bool = True


@dataclass(frozen=True, slots=True)
class End:
    """How a file ended: at which size, and a digest of its last bytes.

    A file that still says the same there was at most appended to since.
    """

    size: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class SessionFile:
    """A session file as the walk came upon it: by descriptor-safe steps, without leaving its root.

    `agent` is the name of the agent that owns it, `agent_directory` the directory that is that
    agent's own. `hint` is the format that the configuration names for the root, or `auto`;
    `exclusive` is what it says of the root.

    A session that lies in a database of its agent is described as a file of its events would be:
    `directory` is the path of the database, `name` the session's id, `key` what its agent calls
    it (None for a file), and the fingerprint is drawn from columns of the database. `own_ms` is
    the time (milliseconds) that our last write noted there, which is no activity of its agent.
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

    @property
    def in_database(self) -> bool:
        """Whether it lies in a database of its agent."""
        return self.key is not None

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    @property
    def session(self) -> str:
        """The session id: the file name without `.jsonl`."""
        return self.name.removesuffix(".jsonl")

    @property
    def title(self) -> str:
        """The session as people address it: `agent/id`."""
        return f"{self.agent}/{self.session}"


class Signs(Protocol):
    """What shows whether an agent is at work on the session."""

    def read(self) -> str | None:
        """Return what shows it at work, or None; this may take its time."""

    def changed(self) -> str | None:
        """Say that something changed since it was read, or None; this takes no time."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A place below a root that the walk could not look into, and why.

    It has not `failed` where nothing was expected there: a missing root that is not required.
    """

    root: str
    path: str
    why: str
    failed: bool = True


OFF_BRANCH = "off the active branch"
BEFORE_COMPACTION = "before the last compaction"
BEFORE_RESET = "before the last reset"
EDITED_AWAY = "taken out by a later edit of the context"


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look over a whole session says about its entries.

    The position of an entry is the number of messages that stand after it. `positions` maps the
    offset of a line to the position of its entry, for those less than `window` messages back; all
    others are OLD. `open_turn` is the reason why the last turn is not closed, or None.
    `last_user` is the offset of the user message that began the last round. `parent` names the
    session that this one was forked from. `dead_entries` maps the offset of an entry that the
    next request will not carry to the reason (OFF_BRANCH, BEFORE_COMPACTION and the like).
    `quiet` is for how many seconds the file must have been unchanged before its end can be
    trusted. `appends_anew` tells
    that the agent may write an entry anew under another id while the first one stays.

    `since` is the offset of the line that tells whether the last turn is closed, `cursor` what the
    lines that were looked over say of any in front of them: as long as that is the same, so are
    the branch there and what is dead. Both are None where a format cannot tell.
    """

    window: int
    positions: Mapping[int, int]
    open_turn: str | None
    last_user: int | None = None
    dead_entries: Mapping[int, str] = field(default_factory=dict)
    quiet: float = 0.0
    appends_anew: bool = False
    since: int | None = None
    cursor: str | None = None

    def position(self, offset: int | None) -> int:
        """Return how many messages stand after the entry whose line starts at `offset`."""
        return OLD if offset is None else self.positions.get(offset, OLD)

    def dead(self, offset: int | None) -> str | None:
        """Return why the next request does not carry the entry whose line starts at `offset`.

        None where it does. An entry off the active branch may come alive again when its user
        steps back in the conversation.
        """
        return None if offset is None else self.dead_entries.get(offset)

    def before_last_user(self, offset: int | None) -> bool:
        """Check whether an entry stands before the last user message.

        Without an offset, the entry is any that is old enough: before, if there is such a message.
        """
        return self.last_user is not None and (offset is None or offset < self.last_user)


# For a session that nobody has looked over: every entry counts as old.
NO_SURVEY = Survey(0, MappingProxyType({}), None)


@dataclass(frozen=True, slots=True)
class Resume:
    """What a look at a whole session file leaves to the next, which then reads the tail alone.

    Nothing in front of the line `number`, which begins at `offset`, can change its fate, however
    many lines are appended and however long one waits, as long as what stands behind it says the
    same of what stands in front of it (`cursor`). `fingerprint` is the file as it was looked at
    and `mark` a digest of bytes of it, by which one that only grew is known. `rules` are those
    that were looked with, `session_id` is the session's record and None where it had none.
    `placeholders` tells whether something of ours may stand in front.
    """

    fingerprint: Fingerprint
    mark: bytes
    rules: str
    format: str
    identity: str | None
    session_id: int | None
    offset: int
    number: int
    cursor: str
    placeholders: bool

    def may_go_on(self, now: Fingerprint) -> bool:
        """Check whether a file in this state may be the same one, grown or not changed at all."""
        then = self.fingerprint
        return now == then or (now.place == then.place and now.size > then.size)
