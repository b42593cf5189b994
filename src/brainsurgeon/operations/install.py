"""Carry out the steps of `init`, and undo exactly these.

Each step is recorded in the state directory before it is done, so that a crash leaves nothing
unrecorded. Files that exist already or were changed since are reported and kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import subprocess
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from brainsurgeon.errors import FailedError
from brainsurgeon.hosts import servers
from brainsurgeon.store.database import make_directory

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# The place of a step is empty, or holds our older version, the same content, or a foreign one.
State = Literal["new", "ours", "there", "other"]
Command = tuple[str, ...]
PATIENCE = 120  # seconds for a command of another program; an agent's own starts in a few


@dataclass(frozen=True, slots=True)
class FileStep:
    """Write a file; the commands `after` run after it was written or removed."""

    what: str
    path: str
    content: str
    state: State
    after: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandStep:
    """Run a command of another program; `undo` reverses it.

    `server` is the command line that an `agent` then has in its configuration. `path` is the file
    that the command depends on.
    """

    what: str
    command: Command
    undo: Command
    state: State
    agent: str = ""
    server: Command = ()
    path: str = ""


Step = FileStep | CommandStep


@dataclass(frozen=True, slots=True)
class Offer:
    """Steps that a person accepts or rejects together; `asked` if requested by an option.

    `note` is advice for the person.
    """

    title: str
    steps: tuple[Step, ...]
    asked: bool
    note: str = ""

    @property
    def waiting(self) -> list[Step]:
        """The steps that are not done yet."""
        return [step for step in self.steps if step.state in ("new", "ours")]


@dataclass(frozen=True, slots=True)
class Done:
    """The result of doing or undoing a step; `left` if it failed or was refused."""

    what: str
    said: str
    left: bool = False


@dataclass(slots=True)
class Record:
    """The steps done by `init`, in order, kept in the state directory."""

    directory: str
    entries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> str:
        return os.path.join(self.directory, "init.json")

    def of(self, **fields: object) -> dict[str, Any] | None:
        """Return the first entry with these fields, or None."""
        return next((entry for entry in self.entries if fields.items() <= entry.items()), None)

    def note(self, entry: dict[str, Any], *, instead: dict[str, Any] | None = None) -> None:
        """Add an entry, or replace the entry `instead`, and write the record."""
        if not self.entries:
            missing = _missing(self.directory)
            make_directory(self.directory)
            self.entries.append({"what": "state directory", "directories": missing})
        if instead is not None and instead in self.entries:
            entry["directories"] = [*instead.get("directories", ()), *entry.get("directories", ())]
            self.entries[self.entries.index(instead)] = entry
        else:
            self.entries.append(entry)
        self._keep()

    def forget(self, entry: dict[str, Any]) -> None:
        """Remove an entry that was undone; after the last one, also remove the record."""
        self.entries.remove(entry)
        if len(self.entries) > 1:
            self._keep()
            return
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        for first in self.entries:
            _remove_empty(first.get("directories", ()))
        self.entries.clear()

    def _keep(self) -> None:
        _write_anew(self.path, json.dumps({"done": self.entries}, indent=2))


def read_record(directory: str) -> Record:
    """Read the record of `init`; raise FailedError if it cannot be read."""
    record = Record(directory)
    try:
        with open(record.path, encoding="utf-8") as handle:
            record.entries = list(json.load(handle)["done"])
    except FileNotFoundError:
        pass
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it is damaged"
        raise FailedError(f"{record.path}: cannot be read: {reason}; move it away") from None
    return record


def state_of(path: str, content: str, record: Record) -> State:
    if not os.path.lexists(path):
        return "new"
    digest = digest_of(path)
    if digest == _digest(content.encode()):
        return "there"
    return "ours" if digest and record.of(path=path, digest=digest) else "other"


def digest_of(path: str) -> str | None:
    """Return the digest of a regular file; None if it is a link, missing or unreadable."""
    if os.path.islink(path):
        return None
    try:
        with open(path, "rb") as handle:
            return _digest(handle.read())
    except OSError:
        return None


def carry_out(steps: Iterable[Step], record: Record) -> list[Done]:
    """Do the steps in order, each recorded first; stop at the first that fails."""
    done = []
    for step in steps:
        done.append(_write(step, record) if isinstance(step, FileStep) else _run(step, record))
        if done[-1].left:
            break
    return done


def take_back(record: Record) -> list[Done]:
    """Undo the recorded steps, last first. Files changed since are kept and stay recorded."""
    done = []
    for entry in reversed(record.entries[1:]):
        result = _unwrite(entry) if "digest" in entry else _unrun(entry, record)
        if not result.left:
            record.forget(entry)
        done.append(result)
    return done


def _write(step: FileStep, record: Record) -> Done:
    older = record.of(path=step.path) if step.state == "ours" else None
    record.note({
        "what": step.what, "path": step.path, "digest": _digest(step.content.encode()),
        "directories": _missing(os.path.dirname(step.path)), "after": step.after,
    }, instead=older)  # fmt: skip
    try:
        os.makedirs(os.path.dirname(step.path), exist_ok=True)
        if step.state == "ours":
            _write_anew(step.path, step.content)
        else:
            with open(step.path, "x", encoding="utf-8") as handle:  # fails if it exists by now
                handle.write(step.content)
    except OSError as error:
        entry = record.of(path=step.path)
        if entry and not older:
            _remove_empty(entry["directories"])
            record.forget(entry)
        return Done(step.what, f"{step.path} cannot be written: {error.strerror}", left=True)
    for command in step.after:
        if trouble := _trouble(command):
            return Done(step.what, f"{step.path} is written, but {trouble}", left=True)
    return Done(step.what, f"{step.path} is written")


def _run(step: CommandStep, record: Record) -> Done:
    entry = {
        "what": step.what, "undo": step.undo, "agent": step.agent, "server": list(step.server),
        "path": step.path,
    }  # fmt: skip
    if step.state == "ours":
        _trouble(step.undo)
    record.note(entry, instead=record.of(what=step.what))
    if trouble := _trouble(step.command):
        record.forget(entry)
        return Done(step.what, trouble, left=True)
    return Done(step.what, f"done: {shlex.join(step.command)}")


def _unwrite(entry: dict[str, Any]) -> Done:
    what, path = entry["what"], entry["path"]
    exists = os.path.lexists(path)
    if exists and digest_of(path) != entry["digest"]:
        return Done(what, f"{path} was changed since: it stays", left=True)
    try:
        if exists:
            os.unlink(path)
    except OSError as error:
        return Done(what, f"{path} cannot be removed: {error.strerror}", left=True)
    _remove_empty(entry["directories"])
    for command in entry["after"]:
        _trouble(command)
    return Done(what, f"{path} is removed" if exists else f"{path} was gone already")


def _unrun(entry: dict[str, Any], record: Record) -> Done:
    what, undo = entry["what"], entry["undo"]
    if agent := entry["agent"]:
        now = servers.noted(agent)
        if now is None:
            return Done(what, "was gone already")
        if now != entry["server"]:
            return Done(what, f"was changed since: it stays ({shlex.join(undo)})", left=True)
    unit = record.of(path=entry["path"], what="user unit") if entry["path"] else None
    if unit and os.path.lexists(unit["path"]) and digest_of(unit["path"]) != unit["digest"]:
        return Done(what, f"{unit['path']} was changed since: it goes on", left=True)
    if trouble := _trouble(undo):
        return Done(what, trouble, left=True)
    return Done(what, f"undone: {shlex.join(undo)}")


def _trouble(command: Sequence[str]) -> str | None:
    """Run a command; return None, or an error message with the last line of its output."""
    shown = shlex.join(command)
    try:
        done = subprocess.run(  # noqa: S603  the user saw and accepted the command
            list(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=PATIENCE, check=False,
        )  # fmt: skip
    except OSError as error:
        return f"`{shown}` cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"`{shown}` did not end within {PATIENCE} s"
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"`{shown}` ended with {done.returncode}" + (f": {last[-1]}" if last else "")


def _missing(directory: str) -> list[str]:
    """Return the directory and its parents as far as they do not exist, deepest first."""
    missing = []
    while directory and not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing


def _remove_empty(directories: Iterable[str]) -> None:
    for directory in directories:
        with suppress(OSError):  # it is not empty
            os.rmdir(directory)


def _write_anew(path: str, content: str) -> None:
    """Replace a file atomically."""
    with open(f"{path}.new", "w", encoding="utf-8") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(f"{path}.new", path)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()


EXAMPLE = "config.toml.example"
USER_UNIT = "systemd/user/brainsurgeon.service"
# A wheel has these files below `packaged/`; a clone has them where the build takes them from.
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_INSTALLED = os.path.join(_PACKAGE, "packaged")
_CLONE = os.path.dirname(os.path.dirname(_PACKAGE))


def text(name: str) -> str:
    """Return the text of a file by its path in a clone, such as `config.toml.example`."""
    with open(os.path.join(directory(), name), encoding="utf-8") as handle:
        return handle.read()


def directory() -> str:
    """Return the directory that the files are in."""
    return _INSTALLED if os.path.isdir(_INSTALLED) else _CLONE
