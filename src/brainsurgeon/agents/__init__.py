"""The agents on this machine: a folder each, and its line here."""

import errno
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from brainsurgeon.agents.agent import Agent, Home, Owner
from brainsurgeon.agents.claude_code import CLAUDE_CODE
from brainsurgeon.agents.codex import CODEX
from brainsurgeon.agents.copilot import COPILOT
from brainsurgeon.agents.described import DESCRIBED_AGENT, SHIPPED_FORMATS, described_format
from brainsurgeon.agents.gemini import GEMINI
from brainsurgeon.agents.openclaw import OPENCLAW
from brainsurgeon.agents.opencode import KILO, OPENCODE
from brainsurgeon.agents.pi import PI
from brainsurgeon.agents.rows import Databases
from brainsurgeon.formats.base import Format
from brainsurgeon.formats.description import ContradictionError
from brainsurgeon.model.session_files import ANY, AUTO, SessionFile

if TYPE_CHECKING:
    from brainsurgeon.planning.budget import Measure

# Of two agents with one format, the later has the sessions outside of the other's directories.
AGENTS = (OPENCLAW, CLAUDE_CODE, PI, CODEX, COPILOT, GEMINI, KILO, OPENCODE, DESCRIBED_AGENT)

_HOMES = tuple(agent.home for agent in AGENTS)
_KEEPERS = tuple(agent for agent in AGENTS if agent.home.any_format)
_WITH_OTHERS = tuple(home for home in _HOMES if type(home).holds is not Home.holds)
_IN_PARTS = tuple(home for home in _HOMES if type(home).part is not Home.part)
_BY_FORMAT = {agent.format: agent for agent in AGENTS}
# The first that recognises a file is its format. What repeats its entries is never another's.
_FORMS = [agent.form for agent in sorted(AGENTS, key=lambda one: not one.form.repeats)]
# Of all formats that recognise a file, the first is its own. Also those that are described.
FORMATS: dict[str, Format] = {form.name: form for form in (*_FORMS, *SHIPPED_FORMATS)}
OWN_FORMATS = tuple(FORMATS)
Formats = list[Format]
INSTALLS = {agent.install.command: agent.install for agent in AGENTS if agent.install}
PLUGINS = [command for command, install in INSTALLS.items() if install.plugin]
_SIDE_FILE, _ARCHIVE = (
    re.compile("|".join(filter(None, patterns)))
    for patterns in (
        [home.side_files for home in _HOMES], [home.archives for home in _HOMES],
    )
)  # fmt: skip
_NAMES = [home.name_pattern for home in _HOMES if home.name_pattern]
_NAMES_OF_ROOTS = {home.root_name for home in _HOMES}
COPIES = tuple(name for home in _HOMES for name in home.copies)
SKIPPED_DIRECTORIES = frozenset({"node_modules", ".git"}).union(*(one.skipped for one in _HOMES))
DATABASES = [agent.databases for agent in AGENTS if agent.databases]


def described_in(
    tables: Mapping[str, Mapping[str, Any]],
) -> tuple[Formats, list[tuple[str, str, str]]]:
    """Return the formats that a configuration describes, and what is wrong.

    That is the name of a format, the key in its table, and why.
    """
    taken = {*OWN_FORMATS, AUTO, ANY}
    why = "wants another name: this program has such a format"
    forms, wrong = Formats(), [(name, "", why) for name in tables if name in taken]
    for name, table in tables.items():
        try:
            forms += [described_format(name, table)] if name not in taken else []
        except ContradictionError as error:
            wrong.append((name, error.key, str(error)))
    return forms, wrong


def learn(forms: Formats) -> None:
    """Use the formats that a configuration describes, and no longer those of another."""
    known = {form.name: form for form in (*_FORMS, *forms, *SHIPPED_FORMATS)}
    FORMATS.clear()
    FORMATS.update(known)


def homes_here() -> list[tuple[Agent, str]]:
    """Return the agents whose sessions are on this machine, and the directories of these.

    A directory that this user may not look at counts as there: scans report it as unreadable. Of a
    link, the target is returned: a root must not be a link.
    """
    candidates = ((agent, _target(agent.home.root())) for agent in AGENTS)
    return [(agent, root) for agent, root in candidates if root and _may_be_directory(root)]


def _target(root: str) -> str:
    return os.path.realpath(root) if os.path.islink(root) else root


def _may_be_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except PermissionError:
        return True
    except OSError:
        return False


def default_roots() -> list[str]:
    """Return the roots of a configuration that names none.

    That is the root of the first agent if a session is below it or it cannot be read, else those
    of all agents.
    """
    here, first = [root for _, root in homes_here()], _target(AGENTS[0].home.root())
    return [first] if not here or _may_have_sessions(first) else here


def _may_have_sessions(root: str) -> bool:
    try:
        os.listdir(root)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return any(
        is_session_name(name) or is_database(os.path.join(directory, name))
        for directory, _, names in os.walk(root)
        for name in names
    )


def with_files_beside(root: str) -> str:
    """Return a root, or the directory above it if its agent also keeps files beside it."""
    above, name = os.path.split(root)
    return above if name and name in _NAMES_OF_ROOTS else root


def is_session_name(name: str) -> bool:
    return name.endswith(".jsonl") and len(name) > len(".jsonl") and not _SIDE_FILE.search(name)


def is_archive_name(name: str) -> bool:
    return is_session_name(name) or _ARCHIVE.search(name) is not None


def note_roots(paths: Iterable[str]) -> None:
    roots = list(paths)
    for home in _HOMES:
        home.note_roots(roots)


def is_no_session(path: str) -> bool:
    """Check whether what has the name of a session or an archive is neither, by its place."""
    name = os.path.basename(path)
    if ".jsonl" not in name and _ARCHIVE.search(name):
        return not any(
            home.archives and re.search(home.archives, name)
            and (home.holds(path) or home not in _WITH_OTHERS)
            for home in _HOMES
        )  # fmt: skip
    return any(home.holds(path) and home.owner(path) is None for home in _WITH_OTHERS)


def format_at(path: str) -> str | None:
    """Return the format of what is at a path in a home of an agent, or None if it is in none."""
    return next((agent.format for agent in AGENTS if agent.home.holds(path)), None)


def keeper_of(path: str) -> Owner | None:
    """Return whose session is at a path whatever its format, or None."""
    for agent in _KEEPERS:  # a loop: it runs for every file
        if owner := agent.home.owner(path):
            return owner
    return None


def agent_of(path: str, format_name: str | None) -> Agent:
    """Return the agent that writes a session of a known format."""
    agent = _BY_FORMAT.get(format_name or "", DESCRIBED_AGENT)
    if agent.home.owner(path):
        return agent
    return next((kept for kept in _KEEPERS if kept.home.owner(path)), agent)


def agent_at(path: str) -> Agent:
    """Return the agent in whose home a path is, whatever is there."""
    return next((agent for agent in AGENTS if agent.home.owner(path)), DESCRIBED_AGENT)


def owner_of(path: str, format_name: str, head: Callable[[], bytes]) -> Owner:
    """Return whose session is at a path. `head` returns the first bytes of the file."""
    agent = _BY_FORMAT.get(format_name)
    owner = agent.home.owner(path) if agent else None
    if owner and owner.name:
        return owner
    directory = os.path.dirname(path)
    name = f"{(agent and agent.prefix) or format_name}:{os.path.basename(directory)}"
    name = (agent and agent.home.named_in(head)) or name
    return Owner(name, owner.directory if owner else directory)


def measure(format_name: str) -> "Measure | None":
    """Begin to measure the load of a session whose agent records it."""
    agent = _BY_FORMAT.get(format_name)
    return agent.measure() if agent and agent.measure else None


def names_of(agent: str) -> tuple[str, ...]:
    """Return the name of an agent, and those that earlier versions printed."""
    return (agent, *chain.from_iterable(home.names_before(agent) for home in _HOMES))


def ids_in(name: str) -> list[str]:
    """Return the name of a session, and the id in it if agents put one there."""
    matches = (re.fullmatch(pattern, name, re.DOTALL) for pattern in _NAMES)
    return [name, *(match[1] for match in matches if match)]


def part_of(path: str) -> tuple[str, str] | None:
    """Return the name of a session that may have several files, and what orders these."""
    return next(filter(None, (home.part(path) for home in _IN_PARTS)), None)


def keys_of(file: SessionFile) -> list[str]:
    """Return the agent's own names for a session."""
    if file.key is not None:
        return [file.key]
    return [key for home in _HOMES for key in home.keys(file.directory, file.name)]


def keeps_rows(agent_directory: str) -> bool:
    """Check whether an agent keeps its sessions in a database now."""
    return any(home.superseded(agent_directory) for home in _HOMES)


def superseded(file: SessionFile) -> bool:
    return not file.in_database and keeps_rows(file.agent_directory)


def is_database(path: str) -> bool:
    """Check, by its path alone, whether a file may be a database with sessions."""
    return any(databases.has(path) for databases in DATABASES)


def databases_of(path: str) -> Databases:
    """Return whose database is at a path. Raises OSError if no agent knows the path."""
    for databases in DATABASES:
        if databases.has(path):
            return databases
    raise OSError(errno.ENODEV, "no agent has its database at this path")


def rereads(file: SessionFile) -> bool:
    """Check whether its agent reads a session again before each request."""
    return file.in_database and databases_of(file.directory).rereads


def started(path: str, key: str | None) -> Callable[[str], bool]:
    """Return a check whether the session at `path` started the one at another path."""
    # An index of sessions is read wherever it is. A database belongs to one agent.
    homes = _HOMES if key is None else (agent_at(path).home,)
    checks = [home.started(path, key) for home in homes]
    return lambda other: any(check(other) for check in checks)


def directories_of(working_directory: str) -> Iterator[str]:
    """Yield the directories of agents that work in a directory."""
    listed = (home.directory_of(working_directory) for home in _HOMES)
    return (directory for directory in listed if directory is not None)


def thread_in(meta: Mapping[str, Any]) -> str | None:
    """Return the id in the names of the session's files that a tool call's metadata name."""
    return next(filter(None, (agent.presence.thread_in(meta) for agent in AGENTS)), None)


def calling_session() -> str | None:
    """Return the path of the session whose agent started this process."""
    return next(filter(None, (agent.presence.calling_session() for agent in AGENTS)), None)


def index_problems(directory: str) -> list[tuple[str, str | None, str]]:
    return [problem for home in _HOMES for problem in home.index_problems(directory)]
