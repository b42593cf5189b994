"""Find the databases in which OpenClaw keeps its agents' sessions, below a root of agents.

The standard layout is `<state directory>/agents/<agent>/agent/openclaw-agent.sqlite`, so that a
root is the directory `agents`. A database anywhere else (`session.store`) is neither read nor
written: what OpenClaw does there was not tried.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

from brainsurgeon.errors import BusyError
from brainsurgeon.hosts import sqlite
from brainsurgeon.hosts.processes import lives
from brainsurgeon.model.sessions import Unreadable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from brainsurgeon.model.sessions import SessionFile


# `<state directory>/state/openclaw.sqlite` lists where each agent's database lies and which
# processes have one open, with the time at which each process started (openclaw 2026.9.6,
# `dist/openclaw-state-db-read-connection-*.mjs`; seen with 2026.8.1 to 2026.9.6).


_Said = TypeVar("_Said")
# The placements of a session that no worker on another machine carries on.
_HERE = ("local", "reclaimed", "failed")
# Milliseconds since 1970, further away than any clock.
_FOR_EVER = 9_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Owner:
    """A living process that has an agent's database open, since when (milliseconds, 1970)."""

    pid: int
    since: int


@dataclass(frozen=True, slots=True)
class Presence:
    """Who is at work on one agent's database.

    `owners` is None where that cannot be known, also where a lease says what cannot be understood:
    then no claim of a run counts as dead.
    `maintained` is until when (seconds since 1970) OpenClaw's doctor is at work, 0 without one;
    `elsewhere` are the sessions that a worker on another machine carries on.
    """

    owners: tuple[Owner, ...] | None
    maintained: float = 0.0
    elsewhere: frozenset[str] = frozenset()

    @property
    def nobody(self) -> bool:
        """Whether certainly no process has the database open."""
        return self.owners == ()


@dataclass(frozen=True, slots=True)
class Registered:
    """An agent's database as the state database lists it; the path is absolute."""

    agent: str
    path: str


def state_database(state_directory: str) -> str:
    return os.path.join(state_directory, "state", "openclaw.sqlite")


def registered(state_directory: str) -> tuple[Registered, ...] | None:
    """Return the databases that the state database lists, or None where it cannot be understood."""

    def ask(connection: sqlite3.Connection) -> tuple[Registered, ...] | None:
        rows = connection.execute("SELECT agent_id, path FROM agent_databases").fetchall()
        if not all(isinstance(agent, str) and _is_path(path) for agent, path in rows):
            return None
        return tuple(
            Registered(agent, os.path.normpath(os.path.join(state_directory, path)))
            for agent, path in sorted(rows)
        )

    return _asked(state_directory, ask)


def presence(state_directory: str, path: str, *, opened: bool = False) -> Presence:
    """Return who is at work on the database at `path`.

    `opened` says that this thread has that database open: then only what is listed is seen, not
    processes of another container.
    """

    def ask(connection: sqlite3.Connection) -> Presence:
        leases = connection.execute(
            "SELECT path, owner_pid, owner_start_time, opened_at FROM agent_database_leases"
        ).fetchall()
        owners = _owners(state_directory, path, leases)
        return Presence(owners, _maintained(connection), _elsewhere(connection))

    found = _asked(state_directory, ask) or Presence(None)
    if opened or found.owners:
        return found
    if sqlite.mode_of(path) is not None or sqlite.held_open(path):
        return Presence(None, found.maintained, found.elsewhere)  # a process out of our sight
    return found


def _asked(state_directory: str, ask: Callable[[sqlite3.Connection], _Said | None]) -> _Said | None:
    path = state_database(state_directory)
    with suppress(sqlite3.Error, OSError, BusyError):
        owned = sqlite.held_open(path)
        with sqlite.reading(path, owned=owned) as connection:
            return ask(connection)
    return None


def _owners(
    state_directory: str, path: str, leases: Iterable[tuple[object, ...]]
) -> tuple[Owner, ...] | None:
    """Return the living processes that have a database open, None where one cannot be told."""
    owners = []
    for leased, pid, started, since in leases:
        if not _is_path(leased):
            return None
        if _same(os.path.join(state_directory, leased), path):
            if not (isinstance(pid, int) and pid > 0 and isinstance(since, int)):
                return None
            if lives(pid, started):
                owners.append(Owner(pid, since))
    return tuple(owners)


def _is_path(said: object) -> TypeGuard[str]:
    return isinstance(said, str) and "\0" not in said


def _maintained(connection: sqlite3.Connection) -> float:
    """Return until when (seconds since 1970) a doctor is at work: for ever where that is unsaid."""
    leases = connection.execute(
        "SELECT expires_at FROM state_leases WHERE scope = 'core:agent-database-maintenance'"
    )
    ends = [until if isinstance(until, int) else _FOR_EVER for (until,) in leases]
    return max(ends, default=0) / 1000


def _elsewhere(connection: sqlite3.Connection) -> frozenset[str]:
    table = connection.execute(
        "SELECT 1 FROM sqlite_master WHERE name = 'worker_session_placements'"
    ).fetchone()
    if table is None:
        return frozenset()
    rows = connection.execute("SELECT session_id, state FROM worker_session_placements")
    return frozenset(session for session, state in rows if state not in _HERE)


def _same(one: str, other: str) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


# OpenClaw's own configuration is read that way by its program (JSON5). Each piece is turned into
# its plain form and the whole is given to the standard parser, so that what is understood here is
# understood as it was meant, or not at all.


_PIECE = re.compile(
    r"""
      (?P<space>[\s\ufeff]+)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    | (?P<word>[A-Za-z_$][\w$]*)
    | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))
    | (?P<mark>[{}\[\]:,])
    """,
    re.VERBOSE | re.DOTALL,
)
# What cannot stand in a plain string as it is: an escape, a quote, a tab.
_INNER = re.compile(r"\\(\r\n|.)|[\"\t]", re.DOTALL)
_PLAIN = {"'": "'", "0": "\\u0000", "v": "\\u000b", "\n": "", "\r\n": "", "\r": ""}
_WORDS = ("true", "false", "null")


def loads(text: str) -> object:
    """Parse a text; raise ValueError for what is no JSON5, and for its Infinity and NaN."""
    pieces: list[str] = []
    at = 0
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            raise ValueError("not JSON5")
        at = match.end()
        if match.lastgroup in ("space", "comment"):
            continue
        if match[0] in ("}", "]") and pieces and pieces[-1] == ",":
            pieces.pop()
        pieces.append(_plain(str(match.lastgroup), match[0]))
    return json.loads(" ".join(pieces))


def _plain(kind: str, piece: str) -> str:
    if kind == "string":
        return f'"{_INNER.sub(_escape, piece[1:-1])}"'
    if kind == "word":
        return piece if piece in _WORDS else f'"{piece}"'
    if kind == "number":
        return _number(piece)
    return piece


def _escape(match: re.Match[str]) -> str:
    letter = match[1]
    if letter is None:
        return '\\"' if match[0] == '"' else "\\t"
    if letter in _PLAIN:
        return _PLAIN[letter]
    if letter == "x":
        return "\\u00"
    return match[0] if letter in '"\\/bfnrtu' else letter


def _number(piece: str) -> str:
    sign = "-" if piece.startswith("-") else ""
    digits = piece.lstrip("+-")
    if digits[:2] in ("0x", "0X"):
        return f"{sign}{int(digits, 16)}"
    whole, dot, rest = digits.partition(".")
    if dot and not rest[:1].isdigit():
        rest = f"0{rest}"
    return sign + (whole or "0") + dot + rest


# `session.store` moves the sessions elsewhere, and `plugins.slots.contextEngine` selects another
# engine that may keep turns of its own (openclaw 2026.9.6, `dist/slots-*.mjs`, `dist/session-
# sqlite-target-*.mjs`). A value that is brought in from another file is not looked up.


# The context engine that OpenClaw brings along.
OWN_ENGINE = "legacy"
_INCLUDE = "$include"
_LARGEST = 16 << 20


@dataclass(frozen=True, slots=True)
class Selected:
    """What the configuration selects; None stands for OpenClaw's own way.

    `unreadable` says why the configuration could not be read for certain, or None.
    """

    store: str | None = None
    engine: str | None = None
    unreadable: str | None = None


def selected(state_directory: str) -> Selected:
    """Read the configuration of a state directory; without one nothing is selected.

    Where not even OpenClaw's state database stands, as in a container that was given the agents
    alone, the configuration may be anything.
    """
    try:
        with open(path(state_directory), encoding="utf-8") as handle:
            configured = loads(handle.read(_LARGEST))
    except FileNotFoundError:
        known = os.path.exists(state_database(state_directory))
        return Selected(unreadable=None if known else "its configuration is out of sight")
    except (OSError, ValueError, RecursionError):
        return Selected(unreadable="its configuration cannot be read")
    if not isinstance(configured, dict):
        return Selected(unreadable="its configuration cannot be read")
    plugins = _table(configured, "plugins")
    places = (configured, _table(configured, "session"), plugins, _table(plugins, "slots"))
    if any(_INCLUDE in place for place in places):
        return Selected(unreadable="its configuration includes other files")
    engine = _word(places[3].get("contextEngine"))
    own = engine is None or engine.lower() in (OWN_ENGINE, "none")
    return Selected(_word(places[1].get("store")), None if own else engine)


def path(state_directory: str) -> str:
    """Return the configuration's path; an environment that names one speaks of its own home."""
    named = os.environ.get("OPENCLAW_CONFIG_PATH", "").strip()
    home = os.environ.get("OPENCLAW_STATE_DIR", "").strip() or "~/.openclaw"
    if named and os.path.realpath(os.path.expanduser(home)) == os.path.realpath(state_directory):
        return os.path.abspath(os.path.expanduser(named))
    return os.path.join(state_directory, "openclaw.json")


def _table(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _word(value: object) -> str | None:
    return value.strip() or None if isinstance(value, str) else None


NAME = "openclaw-agent.sqlite"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Database:
    """The database of one agent; `root` is the directory of agents that it was found below."""

    root: str
    agent: str
    path: str

    @classmethod
    def of(cls, file: SessionFile) -> Database:
        """Return the database that a session lies in."""
        return cls(file.root, file.agent, file.directory)

    @property
    def agent_directory(self) -> str:
        return os.path.join(self.root, self.agent)

    @property
    def state_directory(self) -> str:
        """The directory in which OpenClaw keeps everything of its own."""
        return os.path.dirname(self.root)


def databases(root: str) -> Iterator[Database | Unreadable]:
    """Yield the databases below a root, and every place that could not be looked into.

    No link is followed below the root. A root that is no directory of agents has none.
    """
    top = os.path.realpath(root)
    try:
        at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return  # the walk over the files says what is wrong with a root
    try:
        for agent in sorted(os.listdir(at)):
            found = _stands(agent, at)
            if found is None:
                continue
            database = Database(top, agent, os.path.join(top, agent, "agent", NAME))
            yield database if found else Unreadable(top, database.path, "not a plain file")
    except OSError as error:
        yield Unreadable(top, top, error.strerror or "cannot be listed")
    finally:
        os.close(at)


def _stands(agent: str, top: int) -> bool | None:
    """Return whether an agent's database is a plain file; None where there is none."""
    try:
        own = os.open(agent, _DIRECTORY, dir_fd=top)
    except OSError:
        return None
    try:
        inner = os.open("agent", _DIRECTORY, dir_fd=own)
    except OSError:
        return None
    finally:
        os.close(own)
    try:
        return stat.S_ISREG(os.stat(NAME, dir_fd=inner, follow_symlinks=False).st_mode)
    except OSError:
        return None
    finally:
        os.close(inner)


def copies(database: Database) -> list[str]:
    """Name the copies that OpenClaw made of a database before it brought it up to date."""
    directory = os.path.dirname(database.path)
    return [
        os.path.join(directory, name)
        for name in sorted(os.listdir(directory))
        if name.startswith(f"{NAME}.") and name.endswith(".bak")
    ]


def misplaced(database: Database) -> str | None:
    """Return why this is not where OpenClaw keeps the agent's sessions now, or None."""
    listed = registered(database.state_directory)
    if listed is not None:
        places = {one.path for one in listed if one.agent == database.agent}
        if places and places != {database.path}:
            return "OpenClaw keeps this agent's sessions elsewhere, too (session.store)"
        shared = {one.agent for one in listed if one.path == database.path} - {database.agent}
        if shared:
            return "OpenClaw keeps the sessions of several agents in this database"
    chosen = selected(database.state_directory)
    if chosen.store is not None and not _standard(chosen.store):
        return "OpenClaw keeps its sessions elsewhere (session.store)"
    return None


def _standard(store: str) -> bool:
    """Return whether a configured store leads to the standard place."""
    return store.replace("\\", "/").endswith("/agents/{agentId}/sessions/sessions.json")


def unwritable(path: str) -> str | None:
    """Return why a database may not be written by this user, or None.

    Side files that another user's process creates could not be opened by their agent.
    """
    owner = os.stat(path, follow_symlinks=False).st_uid
    return None if os.geteuid() in (0, owner) else "the database belongs to another user"
