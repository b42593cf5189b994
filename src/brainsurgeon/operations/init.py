"""Find the agents of this user, and plan what setting up would do; nothing is done here."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from brainsurgeon.config import RootTable, config_path, default_state_dir, load
from brainsurgeon.errors import UsageError
from brainsurgeon.hosts import openclaw, servers
from brainsurgeon.hosts.homes import homes, uncovered
from brainsurgeon.model.reports import UnusedHome
from brainsurgeon.operations import install
from brainsurgeon.operations.install import CommandStep, FileStep, Offer, read_record, state_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from brainsurgeon.config import Settings
    from brainsurgeon.hosts.homes import Home
    from brainsurgeon.operations.install import Command, Record, State


# Pure but for reading these.


_STARTS = "ExecStart=%h/.local/bin/brainsurgeon run"
_WRITES = "ReadWritePaths="
_SPACE = re.compile(r"[\s\"';]")


def configuration(homes: Iterable[Home], state_dir: str | None) -> str:
    """Write a configuration for the homes that were found: defaults are comments, roots are not.

    A later version may change a default; what stands in a file would stay. `state_dir` is given
    where only the environment says it, which a service does not have.
    """
    example = install.text(install.EXAMPLE)
    if state_dir is not None:
        example = re.sub(
            r"(?m)^# state_dir = .*$", lambda _: _pair("state_dir", state_dir), example
        )
    head, samples, rest = example.partition("# [[roots]]\n")
    lines = [
        f"# {line}" if re.match(r"[a-z_]+ = ", line) and not line.startswith("state_dir") else line
        for line in head.splitlines()
    ]
    roots = [_root(one) for one in homes]
    return "\n".join(lines) + "\n" + ("\n".join(roots) if roots else samples + rest)


def _root(home: Home) -> str:
    note = f", {home.note}" if home.note else ""
    return f"# {home.agent}{note}\n[[roots]]\n{_pair('path', home.path)}\n"


def _pair(key: str, text: str) -> str:
    return f"{key} = {json.dumps(text, ensure_ascii=False)}"


def user_unit(command: Sequence[str], writable: Iterable[str]) -> str:
    """Write the unit of a user for this program, with what it has to write beside the usual."""
    lines = []
    for line in install.text(install.USER_UNIT).splitlines():
        if line == _STARTS:
            lines.append("ExecStart=" + " ".join(map(_word, command)))
        else:
            lines.append(line)
        if line.startswith(_WRITES):
            last = len(lines)
    more = [f"{_WRITES}{_word('-' + path)}" for path in writable]
    return "\n".join([*lines[:last], *more, *lines[last:]]) + "\n"


def _word(text: str) -> str:
    """Write a word of a unit: `%` begins a specifier there, `$` a variable."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if not _SPACE.search(text):
        return escaped
    return '"' + escaped.replace('"', '\\"') + '"'


def beside(places: Iterable[str], usual: Iterable[str]) -> list[str]:
    """Give the places that lie below none of the usual ones, each once."""
    around = [os.path.realpath(one) for one in usual]
    return list(dict.fromkeys(
        place for place in places
        if not any(os.path.commonpath([os.path.realpath(place), one]) == one for one in around)
    ))  # fmt: skip


def unused_homes(settings: Settings) -> list[UnusedHome]:
    """Name the homes that no root covers; nothing is read there without being asked for.

    The first root that is configured replaces OpenClaw's directory, which is walked by default,
    so that the lines name that again, too.
    """
    usual = [] if settings.roots else [openclaw.agents_directory()]
    kept = [path for path in usual if openclaw.has_agents()]
    roots = [root.path for root in settings.root_directories()]
    return [
        UnusedHome(one.agent, one.path, one.note, "\n".join(map(_lines, (*kept, one.path))))
        for one in uncovered(roots)
    ]


def _lines(path: str) -> str:
    return f"[[roots]]\npath = {json.dumps(path)}"


_UNIT = "~/.config/systemd/user/brainsurgeon.service"
_SYSTEMCTL = ("systemctl", "--user")
_WRITTEN = ("~/.openclaw", "~/.claude/projects", "~/.pi/agent/sessions", "~/.local/state")
"""What the user's unit may write as it comes."""
NO_SYSTEMD = (
    "no systemd runs for this user (systemctl --user): let cron call `brainsurgeon scan --once`,"
    " or run `brainsurgeon run` under what supervises programs here"
)


@dataclass(frozen=True, slots=True)
class Setup:
    """What was found, and what is offered; `settings` are in force once the offers are taken."""

    homes: tuple[Home, ...]
    foreign: tuple[Home, ...]
    settings: Settings
    record: Record
    offers: tuple[Offer, ...]
    warnings: tuple[str, ...]
    unused: tuple[UnusedHome, ...]


def set_up(
    program: Command, config: str | None, *, systemd: bool, mcp: Collection[str], ask: bool
) -> Setup:
    """Plan everything that is asked for; where one can `ask`, also what could be of use here.

    `program` are the words that start this program from anywhere. Raise UsageError for what is
    asked for and cannot be done here, before anything is.
    """
    found = homes()
    own = [one for one in found if os.stat(one.path).st_uid == os.geteuid()]
    there = config_path(config)
    there = there if there and os.path.lexists(there) else None
    settings, warnings = load(there or os.devnull)
    text = configuration(own, _unusual_state())
    if there is None and not settings.roots:
        roots = tuple(RootTable(path=one.path) for one in own)
        settings = settings.model_copy(update={"roots": roots})
    record = read_record(settings.state_dir)
    path = there or config or _default_path()
    place = FileStep("configuration", path, text, "there" if there else "new")
    more = () if path == _usual_path() or path.startswith("/etc/") else ("--config", path)
    offers = [
        Offer("a configuration", (place,), asked=True),
        *_systemd(program, more, settings, record, asked=systemd, ask=ask),
        *_tools(program, more, record, asked=mcp, ask=ask),
    ]
    foreign = tuple(one for one in found if one not in own)
    return Setup(
        tuple(found), foreign, settings, record, tuple(offers), tuple(warnings),
        tuple(unused_homes(settings)) if there else (),
    )  # fmt: skip


def _usual_path() -> str:
    """Give where the configuration lies for a service, which has no XDG_CONFIG_HOME of a shell."""
    return os.path.expanduser("~/.config/brainsurgeon/config.toml")


def _default_path() -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.environ.get("BRAINSURGEON_CONFIG") or os.path.join(home, "brainsurgeon/config.toml")


def _unusual_state() -> str | None:
    """Give the state directory where the environment moves it, else None."""
    named = os.environ.get("BRAINSURGEON_STATE_DIR") or default_state_dir()
    moved = named != os.path.expanduser("~/.local/state/brainsurgeon")
    return os.path.abspath(os.path.expanduser(named)) if moved else None


def _systemd(
    program: Command, more: Command, settings: Settings, record: Record, *, asked: bool, ask: bool
) -> Iterator[Offer]:
    """Offer the unit, where a manager of this user's services runs or it was asked for."""
    runs = shutil.which("systemctl") is not None and _says("is-system-running") != "offline"
    if asked and not runs:
        raise UsageError(NO_SYSTEMD)
    if not (runs and (asked or ask)):
        return
    path = os.path.expanduser(_UNIT)
    roots = [root.path for root in settings.root_directories()]
    around = [os.path.dirname(one) if os.path.basename(one) == "agents" else one for one in roots]
    usual = [os.path.expanduser(one) for one in _WRITTEN]
    writable = beside((*around, settings.state_dir), usual)
    text = user_unit((*program, "run", *more), writable)
    state = state_of(path, text, record)
    unit = FileStep("user unit", path, text, state, after=((*_SYSTEMCTL, "daemon-reload"),))
    on = state == "there" and _says("is-enabled") == "enabled" and _says("is-active") == "active"
    start = CommandStep(
        "user service", (*_SYSTEMCTL, "enable", "--now", "brainsurgeon"),
        (*_SYSTEMCTL, "disable", "--now", "brainsurgeon"),
        "there" if on else "new" if state == "there" else state, path=path,
    )  # fmt: skip
    note = "without a session at the desktop also: loginctl enable-linger"
    yield Offer("a service of your own", (unit, start), asked, note)


def _says(question: str) -> str:
    """Ask the user's manager about itself or about our service; what is no answer is `offline`."""
    named = ("brainsurgeon",) if question != "is-system-running" else ()
    try:
        done = subprocess.run(  # noqa: S603
            [*_SYSTEMCTL, question, *named], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=20, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return "offline"
    return done.stdout.strip() or "offline"


def _tools(
    program: Command, more: Command, record: Record, *, asked: Collection[str], ask: bool
) -> Iterator[Offer]:
    """Offer the tool to the agents that are here, or that were named."""
    for agent in asked:
        if shutil.which(agent) is None:
            raise UsageError(f"--mcp {agent}: there is no command {agent} in PATH to tell it by")
    if find_spec("mcp") is None:
        if asked:
            raise UsageError("the MCP server needs its extra: pip install 'brainsurgeon[mcp]'")
        return
    for agent in servers.AGENTS:
        if agent in asked or (ask and shutil.which(agent)):
            yield _tool(agent, program, more, record, asked=agent in asked)


def _tool(agent: str, program: Command, more: Command, record: Record, *, asked: bool) -> Offer:
    title = servers.TITLES[agent]
    server = (*program, "mcp", *servers.words(agent), *more)
    steps: list[CommandStep | FileStep] = [CommandStep(
        f"tool of {title}", servers.adding(agent, server), servers.removing(agent),
        _server_state(agent, server, record), agent=agent, server=server,
    )]  # fmt: skip
    if skill := servers.skill(agent):
        source, place = skill
        text = install.text(source)
        steps.append(FileStep(f"skill of {title}", place, text, state_of(place, text, record)))
    return Offer(f"the tool purge_control for {title}", tuple(steps), asked, _note(agent))


def _server_state(agent: str, server: Command, record: Record) -> State:
    now = servers.noted(agent)
    if now is None:
        return "new"
    if now == list(server):
        return "there"
    return "ours" if now and record.of(agent=agent, server=now) else "other"


def _note(agent: str) -> str:
    others = servers.openclaw_names()[1:] if agent == "openclaw" else []
    if others:
        return (
            f"it serves {servers.openclaw_names()[0]} alone; {', '.join(others)} each want a server"
            " of their own, and a tool policy that gives each agent only its own"
        )
    return ""


def why_nothing(setup: Setup) -> str | None:
    """Say what may be wrong where no session can be found, or None."""
    if any(one not in setup.foreign for one in setup.homes):
        return None
    if os.geteuid() == 0 and (user := os.environ.get("SUDO_USER")):
        return f"run it without sudo, as the user whose agents they are ({user})"
    return (
        f"no agent has sessions here yet; those of OpenClaw are looked for in"
        f" {openclaw.agents_directory()}"
    )
