"""What an agent is: where it keeps sessions, when it is at work, how our tool is installed in it.

The defaults are those of an agent that tells nothing.
"""

# ruff: noqa: ARG002  the defaults use no argument

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from brainsurgeon.agents.rows import Databases
from brainsurgeon.files import configurations
from brainsurgeon.formats.base import Format
from brainsurgeon.model.reports import CommandStep
from brainsurgeon.model.session_files import BusyCheck, Moving

if TYPE_CHECKING:  # few commands need it
    from brainsurgeon.planning.budget import Measure

NAME = "brainsurgeon"  # of our server, plugin and marketplace in the configurations of agents
SKILL = "skills/brainsurgeon/SKILL.md"
UNREADABLE_LOCK_FILE = "there is a lock file that cannot be read"
KNOWN_OPEN = "an open {} has it in memory: waits for its exit"
MAYBE_OPEN = "{} may have it in memory: {}; waits"


class Owner(Struct, frozen=True):
    """The agent that keeps a session: its name in the session's title, and its directory."""

    name: str  # "" if only the file tells it
    directory: str
    started_by: str | None = None  # the title of the session that started this one


def directory_named(variable: str, default: str) -> str:
    """Return the directory in an environment variable. It need not exist."""
    path = os.environ.get(variable, "").strip() or default
    return os.path.abspath(os.path.expanduser(path))


class Home:
    """Where an agent keeps its sessions, and what it says there about them."""

    side_files = ""  # a regular expression that finds names `*.jsonl` of files that are no sessions
    archives = ""  # one that finds names of archived sessions; if not `*.jsonl*`, where it `holds`
    skipped: frozenset[str] = frozenset()  # names of directories without sessions
    copies: tuple[str, ...] = ()  # names of directories beside sessions with copies of values
    name_pattern = ""  # what matches the name of a session whose end, the group, is its id
    note = ""  # about its sessions, for the user
    call_delay = 0.0  # seconds within which it writes a tool call to the session
    forks = False  # a new session may begin with the entries of another
    any_format = False  # what has an owner here is its own, whatever its format
    masks: tuple[str, ...] = ()  # what it writes for a part of an argument that may be a secret
    root_name = ""  # of its root, if it also keeps files beside it

    def root(self) -> str:
        """Return the directory below which this user's sessions are by default, or ""."""
        return ""

    def note_roots(self, roots: Iterable[str]) -> None:
        """Learn from the roots where homes are. Called before each walk."""

    def holds(self, path: str) -> bool:
        """Check whether a path is in a home: then it is a session only if it has an owner."""
        return False

    def owner(self, path: str) -> Owner | None:
        """Return whose session would be at a path, or None if none would be there."""
        return None

    def names_before(self, name: str) -> tuple[str, ...]:
        """Return other names that earlier versions of brainsurgeon gave this agent."""
        return ()

    def named_in(self, head: Callable[[], bytes]) -> str | None:
        """Return the agent's name from a file's first bytes, for a path without an owner."""
        return None

    def directory_of(self, working_directory: str) -> str | None:
        return None

    def part(self, path: str) -> tuple[str, str] | None:
        """Return the name of a session that may have several files, and what orders these.

        Returns None if a session of the agent is one file. The last file goes on.
        """
        return None

    def superseded(self, agent_directory: str) -> bool:
        """Check whether the agent keeps its sessions in a database and no longer uses its files."""
        return False

    def keys(self, directory: str, name: str) -> list[str]:
        """Return the agent's own names for a session file."""
        return []

    def window(self, directory: str, name: str) -> int | None:
        """Return the size of the context window in tokens, if the agent states it."""
        return None

    def started(self, path: str, key: str | None) -> Callable[[str], bool]:
        """Return a check whether the session at `path` started the one at another path."""
        return lambda _path: False

    def index_problems(self, directory: str) -> list[tuple[str, str | None, str]]:
        """Return what is odd in an index of sessions: its path, the key or None, the reason."""
        return []


class Presence:
    """When an agent is at work on a session file."""

    remembers = False  # a process keeps a session in memory, and never reads its file again
    drops_blocks = False  # it can ask the provider to drop blocks with invalid signatures

    def busy_check(
        self, directory: int, path: str, clock: Callable[[], float], quiet: float,
        abandoned_after: float,
    ) -> BusyCheck:  # fmt: skip
        """Return the check of one session. `directory` is a descriptor of its directory."""
        return BusyCheck("nothing", lambda: None, lambda: None)

    def moving(self, path: str, *, shrinks: bool) -> Moving:
        """Return which edits may move lines of a file into which the agent stores offsets.

        `shrinks` is true if the user wants such a file to become smaller.
        """
        return "no edits"

    def mend(self, path: str, *, rewritten: bool = True) -> None:
        """Mend what names offsets into a file, or at which one it begins in another file.

        Does nothing if all is right. If the file was not `rewritten`, only its beginning counts.
        Raises OSError, RefusedError or BusyError: it is to be tried again.
        """

    def in_memory(self, path: str, now: float, abandoned_after: float) -> str | None:
        """Return why to wait if an idle process has, or may have, a session in memory."""
        return None

    def thread_in(self, meta: Mapping[str, Any]) -> str | None:
        """Return the id in the names of the calling session's files, by a tool call's metadata."""
        return None

    def calling_session(self) -> str | None:
        """Return the path of the session whose agent started this process."""
        return None


class Install(ABC):
    """How our MCP server and skill are registered. The agent's own commands change its files."""

    title: str  # of the agent
    command: str
    keys: tuple[str, ...]  # the path of our server in its configuration
    adds: tuple[str, ...] = ("add",)  # words behind `mcp` in its command to add our server
    removes: tuple[str, ...] = ("remove",)
    skill: str  # the path of the skill in a clone
    plugin = ""  # the directory in a clone with a marketplace of only our plugin
    resume = ""  # the command that goes on with the last session, if its hooks call ours

    @abstractmethod
    def configuration(self) -> str:
        """Return the path of the agent's configuration."""

    @staticmethod
    @abstractmethod
    def parsed(text: str, /) -> Any:
        """Parse a configuration. Raises ValueError."""

    @abstractmethod
    def directory(self) -> str:
        """Return the directory below which the agent reads skills."""

    def options(self) -> tuple[str, ...]:
        """Return options that limit `brainsurgeon mcp` to sessions of the agent, if possible."""
        return ()

    def add(self, *server: str) -> tuple[str, ...]:
        return (self.command, "mcp", *self.adds, NAME, "--", *server)

    def remove(self) -> tuple[str, ...]:
        """Return the command that removes our server; (): it has none, and its file is JSON."""
        return (self.command, "mcp", *self.removes, NAME)

    def advice(self) -> str:
        return ""

    def plugin_steps(self, directory: str) -> Iterator[CommandStep]:
        """Yield steps that install our plugin from the directory `plugin`."""
        yield from ()

    def is_removed(self, undo: list[str]) -> bool:
        """Check that what the command `undo` removes is not there."""
        return False

    def configured(self) -> list[str] | None:
        """Return our server's command line; None if not configured, [] if unreadable."""
        try:
            table = self.parsed(configurations.read(self.configuration()).decode())
        except FileNotFoundError:
            return None
        except (OSError, ValueError, RecursionError):
            return []
        for key in self.keys:
            table = table.get(key) if isinstance(table, dict) else None
        if table is None:
            return None
        try:
            command = table["command"]
            words = command if isinstance(command, list) else [command]
            return [*map(str, words), *map(str, table.get("args") or ())]
        except (TypeError, KeyError, AttributeError):
            return []


class Agent(Struct, frozen=True):
    form: Format  # of its sessions
    title: str  # for people
    prefix: str = ""  # of the names of its directories in titles, if not its format
    home: Home = Home()
    presence: Presence = Presence()
    install: Install | None = None
    databases: Databases | None = None
    measure: Callable[[], "Measure"] | None = None  # begins to measure the load of a session

    @property
    def format(self) -> str:
        """The name of its format."""
        return self.form.name
