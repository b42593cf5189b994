"""Put in place what `init` was asked for, and take back exactly that.

Each step is noted before it is done, in the state directory, so that a crash leaves nothing that
is not known. What stands there already, and what somebody changed since, is named and left.
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


State = Literal["new", "ours", "there", "other"]
"""How a step finds its place: nothing there, an older one of ours, the same, or somebody else's."""
Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileStep:
    """A file that is written; `after` is run when it was written, and when it was taken away."""

    what: str
    path: str
    content: str
    state: State
    after: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class CommandStep:
    """A command of another program that is run, and the one that takes back what it did.

    `server` is what an `agent` notes by it. `path` is the file without which it means nothing.
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
    """Steps that belong together and are agreed to as one; `asked` says that they were named.

    `note` is what a person has to do beside them, or should know.
    """

    title: str
    steps: tuple[Step, ...]
    asked: bool
    note: str = ""

    @property
    def waiting(self) -> list[Step]:
        """The steps that have something to do."""
        return [step for step in self.steps if step.state in ("new", "ours")]


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one step, or of taking it back; `left` says that it is not as was meant."""

    what: str
    said: str
    left: bool = False


PATIENCE = 120
"""Seconds that another program may take; an agent's own command starts in a few."""


@dataclass(slots=True)
class Record:
    """What `init` did here, in its order, kept in the state directory."""

    directory: str
    entries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def path(self) -> str:
        """The file that keeps it."""
        return os.path.join(self.directory, "init.json")

    def of(self, **said: object) -> dict[str, Any] | None:
        """Give the entry that says all this, or None."""
        return next(
            (one for one in self.entries if all(one.get(key) == said[key] for key in said)), None
        )

    def note(self, entry: dict[str, Any], *, instead: dict[str, Any] | None = None) -> None:
        """Note one thing more, in the place of an older entry where there is one."""
        if not self.entries:
            made = _missing(self.directory)
            make_directory(self.directory)
            self.entries.append({"what": "state directory", "directories": made})
        if instead is not None and instead in self.entries:
            entry["directories"] = [*instead.get("directories", ()), *entry.get("directories", ())]
            self.entries[self.entries.index(instead)] = entry
        else:
            self.entries.append(entry)
        self._keep()

    def forget(self, entry: dict[str, Any]) -> None:
        """Let go of what was taken back; with the last of it goes the record, too."""
        self.entries.remove(entry)
        if len(self.entries) > 1:
            self._keep()
            return
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        for last in self.entries:
            _remove_empty(last.get("directories", ()))
        self.entries.clear()

    def _keep(self) -> None:
        _write_anew(self.path, json.dumps({"done": self.entries}, indent=2))


def read_record(directory: str) -> Record:
    """Read what `init` did; raise FailedError where that cannot be told."""
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
    """Tell how a file stands before it is written."""
    if not os.path.lexists(path):
        return "new"
    digest = digest_of(path)
    if digest == _digest(content.encode()):
        return "there"
    return "ours" if digest and record.of(path=path, digest=digest) else "other"


def digest_of(path: str) -> str | None:
    """Digest a plain file; None where there is none, or it cannot be read."""
    if os.path.islink(path):
        return None
    try:
        with open(path, "rb") as handle:
            return _digest(handle.read())
    except OSError:
        return None


def carry_out(steps: Iterable[Step], record: Record) -> list[Done]:
    """Do some steps in order, each noted first; the first that fails is the last."""
    done = []
    for step in steps:
        place = _write if isinstance(step, FileStep) else _run
        done.append(place(step, record))  # type: ignore[arg-type]  # the one that fits it
        if done[-1].left:
            break
    return done


def take_back(record: Record) -> list[Done]:
    """Undo everything that was noted, the last first; what was changed since stays, and is named.

    What stays is noted further on.
    """
    done = []
    for entry in reversed(record.entries[1:]):
        came = _unwrite(entry) if "digest" in entry else _unrun(entry, record)
        if not came.left:
            record.forget(entry)
        done.append(came)
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
            _write_new(step.path, step.content)
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
    there = os.path.lexists(path)
    if there and digest_of(path) != entry["digest"]:
        return Done(what, f"{path} was changed since: it stays", left=True)
    try:
        if there:
            os.unlink(path)
    except OSError as error:
        return Done(what, f"{path} cannot be removed: {error.strerror}", left=True)
    _remove_empty(entry["directories"])
    for command in entry["after"]:
        _trouble(command)
    return Done(what, f"{path} is removed" if there else f"{path} was gone already")


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
    """Run another program; say what went wrong, in its own last words, or None."""
    said = shlex.join(command)
    try:
        done = subprocess.run(  # noqa: S603  its words were shown and agreed to
            list(command), stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=PATIENCE, check=False,
        )  # fmt: skip
    except OSError as error:
        return f"`{said}` cannot be run: {error.strerror}"
    except subprocess.TimeoutExpired:
        return f"`{said}` did not end within {PATIENCE} s"
    if done.returncode == 0:
        return None
    last = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"`{said}` ended with {done.returncode}" + (f": {last[-1]}" if last else "")


def _missing(directory: str) -> list[str]:
    """Name the directories above a place that are not there yet, the deepest first."""
    missing = []
    while directory and not os.path.lexists(directory):
        missing.append(directory)
        directory = os.path.dirname(directory)
    return missing


def _remove_empty(directories: Iterable[str]) -> None:
    for directory in directories:
        with suppress(OSError):  # something else lies in it by now
            os.rmdir(directory)


def _write_new(path: str, content: str) -> None:
    """Write a file where none is: whatever came there in the meantime stays."""
    with open(path, "x", encoding="utf-8") as handle:
        handle.write(content)


def _write_anew(path: str, content: str) -> None:
    """Write a file of ours in the place of the older one, whole or not at all."""
    with open(f"{path}.new", "w", encoding="utf-8") as handle:
        handle.write(content)
        handle.flush()
        os.fsync(handle.fileno())
    os.replace(f"{path}.new", path)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=32).hexdigest()


# A wheel carries them below `packaged/`; in a clone they lie where its builder takes them from.


EXAMPLE = "config.toml.example"
USER_UNIT = "systemd/user/brainsurgeon.service"
_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_INSTALLED = os.path.join(_PACKAGE, "packaged")
_CLONE = os.path.dirname(os.path.dirname(_PACKAGE))


def text(name: str) -> str:
    """Give the text of a file by its path in a clone, such as `config.toml.example`."""
    with open(os.path.join(directory(), name), encoding="utf-8") as handle:
        return handle.read()


def directory() -> str:
    """Give the directory below which the files lie."""
    return _INSTALLED if os.path.isdir(_INSTALLED) else _CLONE
