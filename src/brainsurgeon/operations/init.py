"""Plan the setup: find the agents of this user and offer steps. Changes nothing."""

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


_STARTS = "ExecStart=%h/.local/bin/brainsurgeon run"
_WRITES = "ReadWritePaths="
_SPACE = re.compile(r"[\s\"';]")


def configuration(homes: Iterable[Home], state_dir: str | None) -> str:
    """Return a configuration for the given homes, with the defaults as comments.

    A value in the file would override a default that a later version changes. `state_dir` is
    needed if only the environment sets it: a service does not see that environment.
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
    roots = [_root(home) for home in homes]
    return "\n".join(lines) + "\n" + ("\n".join(roots) if roots else samples + rest)


def _root(home: Home) -> str:
    note = f", {home.note}" if home.note else ""
    return f"# {home.agent}{note}\n[[roots]]\n{_pair('path', home.path)}\n"


def _pair(key: str, text: str) -> str:
    return f"{key} = {json.dumps(text, ensure_ascii=False)}"


def user_unit(command: Sequence[str], writable: Iterable[str]) -> str:
    """Return a systemd user unit for a command, with more writable paths."""
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
    """Escape a word for a unit file: `%` begins a specifier there, `$` a variable."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    if not _SPACE.search(text):
        return escaped
    return '"' + escaped.replace('"', '\\"') + '"'


def beside(places: Iterable[str], usual: Iterable[str]) -> list[str]:
    """Return the distinct places that are not below a usual place."""
    above = [os.path.realpath(path) for path in usual]
    return list(dict.fromkeys(
        place for place in places
        if not any(os.path.commonpath([os.path.realpath(place), path]) == path for path in above)
    ))  # fmt: skip


def unused_homes(settings: Settings) -> list[UnusedHome]:
    """Return the homes that no root covers, with configuration lines. They are not read.

    The first configured root replaces OpenClaw's directory, which is walked by default: the lines
    then include that directory.
    """
    kept = (openclaw.agents_directory(),) if not settings.roots and openclaw.has_agents() else ()
    roots = [root.path for root in settings.root_directories()]
    return [
        UnusedHome(home.agent, home.path, home.note, "\n".join(map(_lines, (*kept, home.path))))
        for home in uncovered(roots)
    ]


def _lines(path: str) -> str:
    return f"[[roots]]\npath = {json.dumps(path)}"


_UNIT = "~/.config/systemd/user/brainsurgeon.service"
_SYSTEMCTL = ("systemctl", "--user")
# The writable paths in the unit file as shipped.
_WRITTEN = ("~/.openclaw", "~/.claude/projects", "~/.pi/agent/sessions", "~/.local/state")
NO_SYSTEMD = (
    "no systemd runs for this user (systemctl --user): let cron call `brainsurgeon scan --once`,"
    " or run `brainsurgeon run` under what supervises programs here"
)


@dataclass(frozen=True, slots=True)
class Setup:
    """The agent homes of this machine and the offers.

    `settings` are the settings after all offers are accepted, `foreign` the homes of other users.
    """

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
    """Plan the requested steps and, with `ask`, further steps that may be useful.

    `program` is the command that starts this program from any directory. Raises UsageError for a
    requested step that is impossible on this machine.
    """
    every_home = homes()
    own = [home for home in every_home if os.stat(home.path).st_uid == os.geteuid()]
    existing = config_path(config)
    existing = existing if existing and os.path.lexists(existing) else None
    settings, warnings = load(existing or os.devnull)
    text = configuration(own, _unusual_state())
    if existing is None and not settings.roots:
        roots = tuple(RootTable(path=home.path) for home in own)
        settings = settings.model_copy(update={"roots": roots})
    record = read_record(settings.state_dir)
    path = existing or config or _default_path()
    place = FileStep("configuration", path, text, "there" if existing else "new")
    more = () if path == _usual_path() or path.startswith("/etc/") else ("--config", path)
    offers = [
        Offer("a configuration", (place,), asked=True),
        *_systemd(program, more, settings, record, asked=systemd, ask=ask),
        *_tools(program, more, record, asked=mcp, ask=ask),
    ]
    foreign = tuple(home for home in every_home if home not in own)
    return Setup(
        tuple(every_home), foreign, settings, record, tuple(offers), tuple(warnings),
        tuple(unused_homes(settings)) if existing else (),
    )  # fmt: skip


def _usual_path() -> str:
    """Return the configuration path of a service, which does not see a shell's XDG_CONFIG_HOME."""
    return os.path.expanduser("~/.config/brainsurgeon/config.toml")


def _default_path() -> str:
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.environ.get("BRAINSURGEON_CONFIG") or os.path.join(home, "brainsurgeon/config.toml")


def _unusual_state() -> str | None:
    """Return the state directory if the environment changes it, else None."""
    named = os.environ.get("BRAINSURGEON_STATE_DIR") or default_state_dir()
    moved = named != os.path.expanduser("~/.local/state/brainsurgeon")
    return os.path.abspath(os.path.expanduser(named)) if moved else None


def _systemd(
    program: Command, more: Command, settings: Settings, record: Record, *, asked: bool, ask: bool
) -> Iterator[Offer]:
    """Offer the user unit and its start; raise UsageError if `asked` and no systemd runs."""
    runs = shutil.which("systemctl") is not None and _says("is-system-running") != "offline"
    if asked and not runs:
        raise UsageError(NO_SYSTEMD)
    if not (runs and (asked or ask)):
        return
    path = os.path.expanduser(_UNIT)
    roots = [root.path for root in settings.root_directories()]
    above = [
        os.path.dirname(path) if os.path.basename(path) == "agents" else path for path in roots
    ]
    usual = [os.path.expanduser(path) for path in _WRITTEN]
    writable = beside((*above, settings.state_dir), usual)
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
    """Return the answer of `systemctl --user`, or `offline` if it fails or prints nothing."""
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
    """Offer the MCP server for the agents that were named or, with `ask`, are installed."""
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
    if not others:
        return ""
    return (
        f"it serves {servers.openclaw_names()[0]} alone; {', '.join(others)} each want a server"
        " of their own, and a tool policy that gives each agent only its own"
    )


def why_nothing(setup: Setup) -> str | None:
    """Return why no session can be found, or None."""
    if any(home not in setup.foreign for home in setup.homes):
        return None
    if os.geteuid() == 0 and (user := os.environ.get("SUDO_USER")):
        return f"run it without sudo, as the user whose agents they are ({user})"
    return (
        f"no agent has sessions here yet; those of OpenClaw are looked for in"
        f" {openclaw.agents_directory()}"
    )
