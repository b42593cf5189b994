"""Claude Code's session files.

Seen with versions 2.0.76 to 2.1.330 on Linux. A home (`~/.claude`) has the sessions
`projects/<project>/<session>.jsonl` and, of sub-agents,
`projects/<project>/<session>/subagents/<name>.jsonl`. Those of workflows are deeper
(`subagents/workflows/<id>/agent-<id>.jsonl`), beside files that are no sessions (`journal.jsonl`).
"""

import os
import re
from collections.abc import Callable, Iterable
from glob import escape, glob

from msgspec import Struct

from brainsurgeon.agents.agent import Home, Owner, directory_named

FORMAT = "claude-code"
PROJECTS = "projects"
SUBAGENTS = "subagents"
_AGENT = re.compile("agent-")
_IN_A_PROJECT = re.compile(  # the name is a path, with `-` for all but letters and digits
    r"/projects/(?:[A-Za-z]-)?-[^/]*/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/"
)
_LONGEST_NAME = 200  # characters of a project directory's name (2.1.112 `cli.js`)


def home_directory() -> str:
    return directory_named("CLAUDE_CONFIG_DIR", "~/.claude")


class ClaudeHome(Home):
    # Claude Code collects lines for 100 ms (2.1.330), and a busy machine delays it.
    call_delay = 1.5
    forks = True
    copies = ("tool-results", "file-history")
    _homes: tuple[str, ...] = ()  # the real paths of known ones, each with a separator

    def root(self) -> str:
        return os.path.join(home_directory(), PROJECTS)

    def note_roots(self, roots: Iterable[str]) -> None:
        for path in (self.root(), *roots):
            note_root(path)
        known = os.path.realpath(home_directory()), *_linked
        self._homes = tuple(home + os.sep for home in known)

    def holds(self, path: str) -> bool:
        return path.startswith(self._homes) or _IN_A_PROJECT.search(path) is not None

    def owner(self, path: str) -> Owner | None:
        at = location(path)
        return None if at is None else Owner(at.agent, at.directory, at.started_by)

    def directory_of(self, working_directory: str) -> str:
        return project_of(working_directory)

    def started(self, path: str, key: str | None) -> Callable[[str], bool]:  # noqa: ARG002
        own = location(path)

        def is_started(other: str) -> bool:
            at = location(other)
            return (
                own is not None and own.subagent is None and at is not None
                and at.home == own.home and at.started_by == f"{own.agent}/{own.session}"
            )  # fmt: skip

        return is_started


class Location(Struct, frozen=True):
    home: str  # as the agent names it: the process records are there
    project: str
    session: str
    subagent: str | None = None
    projects: str = ""  # the real directory of all projects, perhaps behind a link

    @property
    def agent(self) -> str:
        return f"{FORMAT}:{self.project}"

    @property
    def directory(self) -> str:
        return os.path.join(self.projects or os.path.join(self.home, PROJECTS), self.project)

    @property
    def started_by(self) -> str | None:
        return f"{self.agent}/{self.session}" if self.subagent else None


# By the real path of a directory of projects: the home that names it, if it is behind a link.
_linked: dict[str, str] = {}


def note_root(path: str) -> None:
    """Remember the home of a root, in case its directory of projects is behind a link."""
    steps = os.path.abspath(path).split(os.sep)
    if PROJECTS in steps:
        at = len(steps) - 1 - steps[::-1].index(PROJECTS)
        named = os.sep.join(steps[: at + 1])
        if (real := os.path.realpath(named)) != named:
            _linked[real] = os.sep.join(steps[:at])


def location(path: str) -> Location | None:
    for real, home in _linked.items():
        if path.startswith(real + os.sep):
            return _located(home, path[len(real) + 1 :].split(os.sep), real)
    steps = path.split(os.sep)
    places = (
        _located(os.sep.join(steps[:at]), steps[at + 1 :])
        for at in range(len(steps) - 1, -1, -1) if steps[at] == PROJECTS
    )  # fmt: skip
    return next(filter(None, places), None)


def _located(home: str, steps: list[str], projects: str = "") -> Location | None:
    stem = steps[-1].removesuffix(".jsonl") if steps else ""
    if not stem or stem == steps[-1]:
        return None
    match steps:
        case [project, _]:
            return Location(home, project, stem, None, projects)
        case [project, session, "subagents", *between, _] if not between or _AGENT.match(stem):
            return Location(home, project, session, stem, projects)
    return None


def project_of(directory: str) -> str:
    projects = os.path.join(home_directory(), PROJECTS)
    directory = re.sub(r"[^\0-\uffff]", "--", directory)  # such a character is two in JavaScript
    name = re.sub(r"[^a-zA-Z0-9]", "-", directory)
    if len(name) > _LONGEST_NAME:  # Claude Code shortens the name and appends a digest
        known = glob(f"{escape(projects)}/{name[:_LONGEST_NAME]}-*")
        if len(known) == 1:
            return known[0]
    return os.path.join(projects, name)
