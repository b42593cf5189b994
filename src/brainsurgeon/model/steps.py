"""What `init` does, step by step, as plain values; nothing happens until a step is carried out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
