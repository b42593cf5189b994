"""Find the agents of this user, plan the steps of a setup, carry them out, and undo them.

Planning changes nothing. Each step is recorded before it is done, so that it can be undone after a
crash. Files that `init` did not write, or that were changed since, are reported and kept.
"""

import hashlib
import json
import os
import pwd
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from typing import Any

from msgspec import Struct, field

from brainsurgeon.agents import AGENTS, INSTALLS, homes_here, with_files_beside
from brainsurgeon.agents.agent import NAME, SKILL, Install, directory_named
from brainsurgeon.config import (
    RootTable,
    Settings,
    config_path,
    default_state_dir,
    load,
    user_config,
)
from brainsurgeon.errors import FailedError, UsageError
from brainsurgeon.files import configurations
from brainsurgeon.model.reports import (
    Command,
    CommandStep,
    Done,
    FileStep,
    FoundHome,
    Offer,
    State,
    Step,
    UnusedHome,
)
from brainsurgeon.sessions.discovery import links_below
from brainsurgeon.store.database import make_directory

COMMAND_SECONDS = 120  # after which a command of an agent is killed; they take a few
_SYSTEMCTL = ("systemctl", "--user")
_ADD_LINE = ("sh", "-c", "{ crontab -l 2>/dev/null; printf '%s\\n' \"$1\"; } | crontab -", "sh")
# Keeps a crontab that cannot be listed. Removes a crontab if the line is the only one.
_REMOVE = (
    'why=$(crontab -l 2>&1) || case $why in *"no crontab"*|*"o such file"*) exit 0;;'
    ' *) echo "$why" >&2; exit 1;; esac;'
    ' if crontab -l | grep -qvxF -- "$1"; then crontab -l | grep -vxF -- "$1" | crontab -;'
    ' elif crontab -l | grep -qxF -- "$1"; then crontab -r; fi'
)
_REMOVE_LINE = ("sh", "-c", _REMOVE, "sh")
_SERVICE, _LINE = "a user service", "a line for cron"


class Record(Struct):
    directory: str  # the state directory
    config: str = ""  # path of the configuration that new steps belong to
    # The first entry is about the state directory, the others are the steps done.
    entries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return os.path.join(self.directory, "init.json")

    def find(self, **fields: object) -> dict[str, Any] | None:
        return next((entry for entry in self.entries if fields.items() <= entry.items()), None)

    def steps(self, config: str | None = None) -> list[dict[str, Any]]:
        """Return the steps done; with `config`, only those that belong to this configuration.

        Steps that earlier versions recorded have no owner. They belong to the last configuration.
        """
        done = self.entries[1:]
        others = {_owner(entry) for entry in done} - {config, ""}
        return [
            entry for entry in done
            if config is None or _owner(entry) == config or not (_owner(entry) or others)
        ]  # fmt: skip

    def add(self, entry: dict[str, Any], *, replaced: dict[str, Any] | None = None) -> None:
        if not self.entries:
            state = {"what": "state directory", "directories": _missing(self.directory)}
            make_directory(self.directory)
            self.entries.append(state)
        entry["config"] = self.config
        if replaced is None:
            self.entries.append(entry)
        else:
            entry["directories"] = replaced.get("directories", []) + entry.get("directories", [])
            self.entries[self.entries.index(replaced)] = entry
        self._write()

    def forget(self, entry: dict[str, Any], older: dict[str, Any] | None = None) -> None:
        at = self.entries.index(entry)
        self.entries[at : at + 1] = [older] if older else []
        if len(self.entries) > 1:
            self._write()
            return
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        _remove_empty(self.entries.pop()["directories"])

    def _write(self) -> None:
        try:
            _replace_file(self.path, json.dumps({"done": self.entries}, indent=2))
        except OSError as error:
            raise FailedError(
                f"{self.path} cannot be written: {error.strerror}; nothing more was done. Remove"
                " the cause, and run it again"
            ) from None


def _owner(entry: dict[str, Any]) -> str:
    named = entry["path"] if entry["what"] == "configuration" else ""
    return str(entry.get("config") or named)


class Setup(Struct, frozen=True):
    homes: tuple[FoundHome, ...]
    foreign: tuple[FoundHome, ...]  # owned by other users
    settings: Settings  # in force once the offers are accepted
    record: Record
    offers: tuple[Offer, ...]
    warnings: tuple[str, ...]
    unused: tuple[UnusedHome, ...]


def set_up(
    program: Command, config: str | None, *, systemd: bool, cron: bool, mcp: Collection[str],
    plugin: str | None, offer_more: bool,
) -> Setup:  # fmt: skip
    """Plan the requested steps and, with `offer_more`, others. Raises UsageError."""
    asked = [*mcp, *([plugin] if plugin else ())]
    every_home = homes([INSTALLS[command].title for command in asked])
    foreign = tuple(
        home for home in every_home
        if os.path.exists(home.path) and os.stat(home.path).st_uid != os.geteuid()
    )  # fmt: skip
    own = [home for home in every_home if home not in foreign]
    path = os.path.abspath(config_path(config) or user_config())
    existing = path if os.path.lexists(path) else None
    settings, warnings = load(existing or os.devnull)
    if existing is None and not settings.roots:
        roots = tuple(RootTable(path=home.path) for home in own)
        settings = settings.model_copy(update={"roots": roots})
    record = read_record(settings.state_dir, path)
    state: State = "there" if existing else "new"
    step = FileStep("configuration", path, _configuration(own), state)
    man_path = os.path.expanduser("~/.local/share/man/man1/brainsurgeon.1")
    manual = _file_step("man page", man_path, _packaged_text("deploy/brainsurgeon.1"), record)
    # A service does not have the shell's XDG_CONFIG_HOME.
    default = os.path.expanduser("~/.config/brainsurgeon/config.toml")
    options = () if path == default or path.startswith("/etc/") else ("--config", path)
    completion = tuple(_completion(program, record))
    title = f"a configuration, the man page{', completion' if completion else ''}"
    offers = [Offer(title, (step, manual, *completion), asked=True)]
    if systemd or (offer_more and _systemd_runs()):
        offers.append(_systemd(program, options, settings, record, asked=systemd))
    if cron or (offer_more and shutil.which("crontab") and not _systemd_runs()):
        offers.append(_cron(program, options, asked=cron))
    if plugin:
        offers.append(_plugin(INSTALLS[plugin], options))
    offers += _tools(program, options, record, asked=mcp, plugin=plugin, offer_more=offer_more)
    unused = tuple(unused_homes(settings)) if existing else ()
    return Setup(
        tuple(every_home), foreign, settings, record, tuple(offers), tuple(warnings), unused
    )


def _completion(program: Command, record: Record) -> Iterator[FileStep]:
    """Yield the step for a shell that finds completions by the name of their file."""
    shell = os.path.basename(os.environ.get("SHELL", ""))
    if shell == "bash":
        directory = directory_named("XDG_DATA_HOME", "~/.local/share")
        path = f"{directory}/bash-completion/completions/brainsurgeon"
    elif shell == "fish":
        directory = directory_named("XDG_CONFIG_HOME", "~/.config")
        path = f"{directory}/fish/completions/brainsurgeon.fish"
    else:
        return
    with suppress(OSError, subprocess.TimeoutExpired):  # it can be installed later
        made = _call(("env", f"_BRAINSURGEON_COMPLETE=source_{shell}", *program), 20)
        if made.returncode == 0 and made.stdout:
            yield _file_step(f"completion for {shell}", path, made.stdout, record)


def _systemd(
    program: Command, options: Command, settings: Settings, record: Record, *, asked: bool
) -> Offer:
    if not _systemd_runs():
        why = f"no systemd runs for this user (systemctl --user): {_without_systemd()}"
        return Offer(_SERVICE, (), asked, why)
    path = os.path.expanduser("~/.config/systemd/user/brainsurgeon.service")
    text = _unit("systemd/user/brainsurgeon.service", (*program, "run", *options), settings)
    unit = _file_step("user unit", path, text, record, ((*_SYSTEMCTL, "daemon-reload"),))
    state = unit.state
    if state == "there":
        is_enabled = _systemctl("is-enabled", "brainsurgeon") == "enabled"
        is_active = _systemctl("is-active", "brainsurgeon") == "active"
        state = "there" if is_enabled and is_active else "new"
    start = CommandStep(
        "user service", (*_SYSTEMCTL, "enable", "--now", "brainsurgeon"),
        (*_SYSTEMCTL, "disable", "--now", "brainsurgeon"), state, path=path,
    )  # fmt: skip
    note = "to keep it running while you are logged out, also run: loginctl enable-linger"
    return Offer(_SERVICE, (unit, start), asked, note)


def system_unit(program: Command, config: str | None) -> str:
    settings, _ = load(config)
    path = config_path(config)
    options = ("--config", os.path.abspath(path)) if path else ()
    user = pwd.getpwuid(os.geteuid()).pw_name
    unit = _unit("systemd/brainsurgeon.service", (*program, "run", *options), settings, user)
    text = "[Unit]" + unit.partition("[Unit]")[2]
    return f"# Made by `brainsurgeon init --systemd --system` for {user}.\n\n{text}"


def _unit(name: str, command: Iterable[str], settings: Settings, user: str = "") -> str:
    text = _packaged_text(name)
    roots = [with_files_beside(root.path) for root in settings.root_directories()]
    written = dict.fromkeys((*roots, settings.state_dir))
    writable = [f"ReadWritePaths={_unit_word('-' + path)}\n" for path in written]
    state_dir = _unit_word(settings.state_dir)
    for pattern, wanted in (
        ("User=agent", f"User={user}"),
        (r"ExecStart=\S+ run", f"ExecStart={' '.join(map(_unit_word, command))}"),
        (r"(?:ReadWritePaths=.*\n)+", "".join(writable)),
        ("mkdir -p -m 0700 .*", f"mkdir -p -m 0700 {state_dir}"),
        ("' sh agent .*", f"' sh {user} {state_dir}"),
    ):
        text = re.sub(pattern, wanted.replace("\\", r"\\"), text)
    return text


def _cron(program: Command, options: Command, *, asked: bool) -> Offer:
    if shutil.which("crontab") is None:
        why = "run `brainsurgeon run` under this machine's process supervisor"
        return Offer(_LINE, (), asked, f"there is no command crontab: {why}")
    line = f"*/2 * * * * {shlex.join((*program, 'scan', '--once', *options))}".replace("%", r"\%")
    listed = _call(("crontab", "-l"), 20).stdout.splitlines()
    there = any(re.match(r"[^#].*brainsurgeon\S* +scan\b", job) for job in listed)
    step = CommandStep(
        "line for cron", (*_ADD_LINE, line), (*_REMOVE_LINE, line), "there" if there else "new",
        shown=f"add this line to your crontab: {line}",
    )  # fmt: skip
    return Offer(_LINE, (step,), asked, "the command prints nothing if nothing happened")


def _without_systemd() -> str:
    if shutil.which("crontab"):
        return "`brainsurgeon init --cron` adds a line for cron"
    return (
        "here are neither systemd nor cron: run `brainsurgeon run` under a process supervisor,"
        " as in deploy/compose.yaml"
    )


def command_for_service(setup: Setup) -> str | None:
    steps = [step for offer in setup.offers for step in offer.steps]
    if any(step.what in ("user service", "line for cron") for step in steps):
        return None
    return "`brainsurgeon init --systemd`" if _systemd_runs() else _without_systemd()


@cache
def _systemd_runs() -> bool:
    return shutil.which("systemctl") is not None and _systemctl("is-system-running") != "offline"


def _systemctl(*question: str) -> str:
    with suppress(OSError, subprocess.TimeoutExpired):
        return _call((*_SYSTEMCTL, *question), 20).stdout.strip() or "offline"
    return "offline"


def _call(command: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    # In a repository, opencode writes a file below .git, and others may mean its configuration.
    home = os.path.expanduser("~")
    return subprocess.run(  # noqa: S603  a question, or a command that the user accepted
        list(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        errors="replace", timeout=timeout, check=False, cwd=home if os.path.isdir(home) else None,
    )  # fmt: skip


def _plugin(install: Install, options: Command) -> Offer:
    if shutil.which(command := install.command) is None:
        raise UsageError(f"--hooks {command}: there is no command {command} in PATH")
    steps = tuple(install.plugin_steps(_packaged(install.plugin)))
    notes = []
    if install.configured() is not None:
        notes.append(f"remove the earlier tool: {shlex.join(install.remove())}")
    if options:
        notes.append(f"the plugin reads the default configuration, not {options[-1]}")
    searched = f"{os.environ.get('PATH', os.defpath)}:{os.path.expanduser('~/.local/bin')}"
    if shutil.which("brainsurgeon", path=searched) is None:
        notes.append("link brainsurgeon into PATH or ~/.local/bin, where the plugin looks")
    title = f"the plugin for {install.title}: tool, skill, hooks"
    return Offer(title, steps, asked=True, note="; ".join(notes))


def _tools(
    program: Command, options: Command, record: Record, *, asked: Collection[str],
    plugin: str | None, offer_more: bool,
) -> Iterator[Offer]:  # fmt: skip
    for command in asked:
        if shutil.which(command) is None:
            raise UsageError(f"--mcp {command}: there is no command {command} in PATH")
    if find_spec("mcp") is None:
        if asked:
            raise UsageError("the MCP server needs its extra: pip install 'brainsurgeon[mcp]'")
        return
    for command, install in INSTALLS.items():
        wanted = command in asked or (offer_more and shutil.which(command))
        if not wanted or command == plugin:
            continue
        title = install.title
        server = (*program, "mcp", *install.options(), *options)
        now = install.configured()
        state: State = "new"
        if now is not None:
            ours: State = "ours" if now and record.find(agent=command, server=now) else "other"
            state = "there" if now == list(server) else ours
        tool = CommandStep(
            f"tool of {title}", install.add(*server), install.remove(), state,
            agent=command, server=server,
        )  # fmt: skip
        text, path = _packaged_text(install.skill), os.path.join(install.directory(), SKILL)
        skill = _file_step(f"skill of {title}", path, text, record)
        yield Offer(
            f"the tool purge_control for {title}", (tool, skill), command in asked,
            install.advice(),
        )  # fmt: skip


def why_no_agent(setup: Setup) -> str | None:
    if any(home not in setup.foreign for home in setup.homes):
        return None
    if os.geteuid() == 0 and (user := os.environ.get("SUDO_USER")):
        return f"run `brainsurgeon init` without sudo, as the user who owns the agents ({user})"
    places = [f"  {agent.title}: {root}" for agent in AGENTS if (root := agent.home.root())]
    return "\n".join([
        "you have no sessions yet. Agents keep them here:", *places,
        "for the logs of other agents, see deploy/docs/describe.md",
    ])  # fmt: skip


def _configuration(homes: Iterable[FoundHome]) -> str:
    # Defaults become comments, so that new versions can change them.
    example = _packaged_text("config.toml.example")
    # A service does not have the shell's environment.
    state_dir = os.environ.get("BRAINSURGEON_STATE_DIR") or default_state_dir()
    if state_dir != os.path.expanduser("~/.local/state/brainsurgeon"):
        value = json.dumps(os.path.abspath(os.path.expanduser(state_dir)), ensure_ascii=False)
        example = re.sub(r"(?m)^# state_dir = .*$", lambda _: f"state_dir = {value}", example)
    head, samples, rest = example.partition("# [[roots]]\n")
    lines = [
        f"# {line}" if re.match(r"[a-z_]+ = ", line) and not line.startswith("state_dir") else line
        for line in head.splitlines()
    ]
    roots = "\n".join(
        f"# {home.agent}{f': {home.note}' if home.note else ''}\n"
        f"[[roots]]\npath = {json.dumps(home.path, ensure_ascii=False)}\n"
        for home in homes
    )
    return "\n".join(lines) + "\n" + (roots or samples + rest)


def _unit_word(text: str) -> str:
    """Escape a word for a unit file, where `%` begins a specifier and `$` a variable."""
    escaped = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$")
    quoted = escaped.replace('"', '\\"')
    return f'"{quoted}"' if re.search(r"[\s\"';]", text) else escaped


def homes(even_missing: Collection[str] = ()) -> list[FoundHome]:
    here = dict(homes_here())
    places = {agent: here.get(agent) or agent.home.root() for agent in AGENTS}
    return [
        FoundHome(agent.title, root, agent.home.note if agent in here else "no sessions yet")
        for agent, root in places.items()
        if root and (agent in here or agent.title in even_missing)
    ]


def used_homes(settings: Settings) -> list[FoundHome]:
    """Return the homes that are scanned although no configuration names a root."""
    roots = [] if settings.roots else settings.root_directories()
    paths = {os.path.realpath(root.path) for root in roots}
    return [home for home in homes() if os.path.realpath(home.path) in paths]


def unused_homes(settings: Settings) -> list[UnusedHome]:
    roots = [os.path.realpath(root.path) for root in settings.root_directories()]
    # Configured roots replace the default roots, so the lines must name these, too.
    kept = [] if settings.roots else [home.path for home in used_homes(settings)]
    unused = []
    for home in homes():
        path = os.path.realpath(home.path)
        if any(os.path.commonpath([path, root]) in (path, root) for root in roots):
            continue
        named = [json.dumps(root, ensure_ascii=False) for root in (*kept, home.path)]
        config = "\n".join(f"[[roots]]\npath = {root}" for root in named)
        unused.append(UnusedHome(home.agent, home.path, home.note, config))
    return [*unused, *linked(settings)]


def linked(settings: Settings) -> list[UnusedHome]:
    """Return the places behind symbolic links below the roots."""
    return [
        UnusedHome(
            "An agent", real, f"behind the link {link}",
            f"[[roots]]\npath = {json.dumps(real, ensure_ascii=False)}",
        )
        for link, real in links_below(settings.root_directories())
    ]  # fmt: skip


def read_record(directory: str, config: str = "") -> Record:
    record = Record(directory, config)
    try:
        record.entries = list(json.loads(configurations.read(record.path))["done"])
    except FileNotFoundError:
        pass
    except PermissionError:
        raise FailedError(
            f"{record.path}: cannot be read: {configurations.forbidding(record.path)}; nothing was"
            " done. Run as its owner, or correct its permissions"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        raise FailedError(f"{record.path}: cannot be read: {reason}; move the file away") from None
    return record


def _file_step(
    what: str, path: str, content: str, record: Record, after: tuple[Command, ...] = ()
) -> FileStep:
    digest = digest_of(path)
    state: State = "other"
    if not os.path.lexists(path):
        state = "new"
    elif digest == _digest(content.encode()):
        state = "there"
    elif digest and record.find(path=path, digest=digest):
        state = "ours"
    return FileStep(what, path, content, state, after)


def digest_of(path: str) -> str | None:
    if not os.path.islink(path):
        with suppress(OSError):
            return _digest(configurations.read(path))
    return None


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()


def carry_out(steps: Iterable[Step], record: Record) -> list[Done]:
    done = []
    for step in steps:
        done.append(
            _write_file(step, record) if isinstance(step, FileStep) else _do_command(step, record)
        )
        if done[-1].left:
            break
    return done


def undo(record: Record, config: str | None = None) -> list[Done]:
    done = []
    for entry in reversed(record.steps(config)):
        result = _remove_file(entry) if "digest" in entry else _undo_command(entry, record)
        if not result.left:
            record.forget(entry)
        done.append(result)
    return done


def _write_file(step: FileStep, record: Record) -> Done:
    older = record.find(what=step.what, path=step.path)
    directory = os.path.dirname(step.path)
    entry: dict[str, Any] = {
        "what": step.what, "path": step.path, "digest": _digest(step.content.encode()),
        "directories": _missing(directory), "after": step.after,
    }  # fmt: skip
    missing, is_new = entry["directories"], False
    record.add(entry, replaced=older)
    try:
        os.makedirs(directory, exist_ok=True)
        if step.state == "ours":
            _replace_file(step.path, step.content)
        else:
            with open(step.path, "x", encoding="utf-8") as handle:  # fails if the file exists
                is_new = True
                handle.write(step.content)
    except OSError as error:
        if is_new:  # an incomplete file would later count as the user's
            os.unlink(step.path)
        _remove_empty(missing)
        record.forget(entry, older)
        return Done(step.what, f"{step.path} cannot be written: {error.strerror}", left=True)
    for command in step.after:
        if failure := _run(command):
            return Done(step.what, f"{step.path} is written, but {failure}", left=True)
    return Done(step.what, f"{step.path} is written")


def _do_command(step: CommandStep, record: Record) -> Done:
    entry = {
        "what": step.what, "undo": step.undo, "agent": step.agent, "server": list(step.server),
        "path": step.path,
    }  # fmt: skip
    if step.state == "ours" and step.undo:
        _run(step.undo)
    older = record.find(what=step.what)
    record.add(entry, replaced=older)
    if failure := _run(step.command):
        if not step.path:  # a service may be enabled although it does not start
            record.forget(entry, older)
        return Done(step.what, failure, left=True)
    return Done(step.what, f"done: {shlex.join(step.command)}")


def _remove_file(entry: dict[str, Any]) -> Done:
    what, path, result = entry["what"], entry["path"], "is removed"
    if os.path.lexists(path) and digest_of(path) != entry["digest"]:
        return Done(what, f"{path} was changed and is kept", left=True)
    try:
        os.unlink(path)
    except FileNotFoundError:
        result = "was already removed"
    except OSError as error:
        return Done(what, f"{path} cannot be removed: {error.strerror}", left=True)
    _remove_empty(entry["directories"])
    for command in entry["after"]:
        _run(command)
    return Done(what, f"{path} {result}")


def _undo_command(entry: dict[str, Any], record: Record) -> Done:
    what, command = entry["what"], entry["undo"]
    if agent := entry["agent"]:
        now = INSTALLS[agent].configured()
        if now is None:
            return Done(what, "was already removed")
        if now != entry["server"]:
            by = shlex.join(command) or f"remove {NAME} from {INSTALLS[agent].configuration()}"
            return Done(what, f"was changed and is kept (undo: {by})", left=True)
    unit = record.find(path=entry["path"], what="user unit") if entry["path"] else None
    if unit and os.path.lexists(unit["path"]) and digest_of(unit["path"]) != unit["digest"]:
        return Done(what, f"{unit['path']} was changed: the service keeps running", left=True)
    if not command:
        return _remove_server(what, INSTALLS[agent])
    if failure := _run(command):
        if any(install.is_removed(command) for install in INSTALLS.values()):
            return Done(what, "was already removed")
        return Done(what, failure, left=True)
    return Done(what, f"undone: {shlex.join(command)}")


def _remove_server(what: str, install: Install) -> Done:
    path = install.configuration()
    try:
        text = configurations.read(path).decode()
        # Not a symbolic link to it: the user may keep the file elsewhere.
        _replace_file(os.path.realpath(path), configurations.without(text, install.keys))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no JSON, or a comment is in the way"
        return Done(what, f"{path} cannot be changed: {why}; remove {NAME} from it", left=True)
    return Done(what, f"{NAME} is removed from {path}")


def _run(command: Sequence[str]) -> str | None:
    shown = shlex.join(command)
    try:
        done = _call(command, COMMAND_SECONDS)
    except OSError as error:
        return f"`{shown}` cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"`{shown}` did not end within {COMMAND_SECONDS} s"
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"`{shown}` ended with {done.returncode}" + (f": {last[-1]}" if last else "")


def _missing(directory: str) -> list[str]:
    """Return the missing directories, deepest first."""
    missing = []
    while directory and not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing


def _remove_empty(directories: Iterable[str]) -> None:
    for directory in directories:
        with suppress(OSError):  # it is not empty
            os.rmdir(directory)


def _replace_file(path: str, content: str) -> None:
    # The name is new and the mode 0600: a configuration may contain secrets.
    directory, name = os.path.split(path)
    descriptor, fresh = tempfile.mkstemp(".new", f"{name}.", directory)
    try:
        with open(descriptor, "w", encoding="utf-8") as handle:
            if os.path.exists(path):
                shutil.copymode(path, fresh)
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(fresh, path)
    except OSError:
        with suppress(OSError):
            os.unlink(fresh)
        raise


def _packaged_text(name: str) -> str:
    with open(_packaged(name), encoding="utf-8") as handle:
        return handle.read()


def _packaged(name: str) -> str:
    # A wheel has these files in `packaged`.
    package = os.path.dirname(os.path.dirname(__file__))
    directory = os.path.join(package, "packaged")
    if not os.path.isdir(directory):
        directory = os.path.dirname(os.path.dirname(package))
    return os.path.join(directory, name)
