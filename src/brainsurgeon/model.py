"""The nouns: frozen values that every room may hold.

Lengths named `chars` are Unicode code points, lengths named `size` are bytes, offsets are bytes
from the start of the session file, times are seconds since 1970 in UTC.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

KeyPath = tuple[str | int, ...]
Kind = Literal["thinking", "tool_call", "tool_result", "assistant", "user", "system", "custom"]
KINDS: tuple[Kind, ...] = (
    "thinking", "tool_call", "tool_result", "assistant", "user", "system", "custom",
)  # fmt: skip
Entry = dict[str, Any]

STUB = re.compile(rb"\[\[extracted-~?[A-Za-z0-9._-]{1,128}\]\]")
"""The text of a stub, wherever it stands in a file's bytes."""

OLD = sys.maxsize
"""The position of an entry beyond every window or off the active branch."""


def dotted(path: KeyPath) -> str:
    """Write a path as people do: `message.content.0.text`."""
    return ".".join(str(step) for step in path)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a session file, without its newline.

    `raw` is None for a line longer than the reader's cap: it is carried along, never looked into.
    """

    number: int
    offset: int
    raw: bytes | None
    terminated: bool = True


class Lines(Protocol):
    """The lines of one file, readable from either end as often as needed."""

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines from the first to the last."""

    def backward(self) -> Iterator[Line]:
        """Yield the lines from the last to the first; `number` is not known and 0."""


@dataclass(frozen=True, slots=True)
class Part:
    """One value inside an entry that could be cut.

    `block` says that the whole object at `path` gives way to a text block, because a stub inside
    it would be refused by the provider (images, signed thinking). `locked` is the reason why the
    value must stay whatever the rules say, or None.
    """

    path: KeyPath
    kind: Kind
    chars: int
    tool: str | None = None
    block: bool = False
    locked: str | None = None


@dataclass(frozen=True, slots=True)
class Survey:
    """What one look over a whole file says about its entries.

    `open_turn` is the reason why the last turn is not closed, or None. `positions` maps the
    offset of a line to its position, for the entries within `window`; all others are OLD.
    `last_user` is the offset of the last user message, -1 without one. `parent` names the session
    that this one was forked from.
    """

    window: int
    positions: Mapping[int, int]
    open_turn: str | None
    last_user: int = -1
    parent: str | None = None

    def position(self, offset: int) -> int:
        """Tell how many messages stand after the entry whose line starts at `offset`."""
        return self.positions.get(offset, OLD)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Which file it was and in what state, by `stat` alone."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int


@dataclass(frozen=True, slots=True)
class End:
    """Where a file ended, and a digest of its last bytes, by which one written anew is known."""

    size: int
    mark: bytes


@dataclass(frozen=True, slots=True)
class Found:
    """A session file as the walk found it: by descriptor-safe steps, without opening it."""

    root: str
    directory: str
    name: str
    agent: str
    agent_directory: str
    hint: str
    fingerprint: Fingerprint

    @property
    def path(self) -> str:
        """The absolute path of the session file."""
        return f"{self.directory}/{self.name}"

    @property
    def session(self) -> str:
        """The session id: the file name without `.jsonl`."""
        return self.name.removesuffix(".jsonl")

    @property
    def title(self) -> str:
        """The session as people address it: `agent/id`."""
        return f"{self.agent}/{self.session}"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A root or directory that the walk could not look into, and why."""

    root: str
    path: str
    why: str
    failed: bool = True


@dataclass(frozen=True, slots=True)
class Cut:
    """Bytes that leave a line and the stub that stands in for them.

    A cut that `redacts` puts a short text in their place instead of a stub. `anchor` is the id of
    the tool call that the value belongs to: an agent that writes its history anew gives entries
    new ids and keeps that one. An `exact` cut is never looked for under another entry id, since
    its stub's text stood elsewhere in the file before we put it there.
    """

    start: int
    end: int
    new: bytes
    entry_id: str
    stub: str
    path: KeyPath
    kind: Kind
    tool: str | None
    chars: int
    block: bool
    forced: bool
    reason: str
    redacts: bool = False
    anchor: str | None = None
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Putback:
    """A stub that gives way to the bytes it stood for."""

    start: int
    end: int
    extraction_id: int
    entry_id: str
    path: KeyPath
    size: int


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """A top-level field of ours that is set, or one recorded earlier that is taken out again.

    `before` is the token that stands there now (None: the field is absent). `undoes` is the
    record of the insertion that this edit takes back.
    """

    start: int
    end: int
    new: bytes
    entry_id: str
    name: str
    before: bytes | None
    undoes: int | None = None


Edit = Cut | Putback | FieldEdit


@dataclass(frozen=True, slots=True)
class KeptPart:
    """How many values of one kind and tool stay for one reason, and how long they are together."""

    kind: str
    tool: str | None
    reason: str
    values: int
    chars: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that would happen to one session, in the order of the file; acting is optional.

    `gain` is what the file would shrink by. `due_at` is when a decision next changes by time
    alone. `sighted` are the extractions whose stubs stand in the file. `missed` says, entry by
    entry, what was asked for and could not be done. `restored` names the entries that the store
    is to remember as restored, `wishes` the wishes that this plan settles. `asked_until` is the
    newest wish that it knew of.
    """

    edits: tuple[Edit, ...] = ()
    kept: tuple[KeptPart, ...] = ()
    gain: int = 0
    due_at: float | None = None
    sighted: tuple[int, ...] = ()
    wishes: tuple[int, ...] = ()
    asked_until: int = 0
    restored: tuple[str, ...] = ()
    missed: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The edits that take a value out, redactions included."""
        return tuple(edit for edit in self.edits if isinstance(edit, Cut))

    @property
    def extracted(self) -> tuple[Cut, ...]:
        """The cuts that leave a stub."""
        return tuple(cut for cut in self.cuts if not cut.redacts)

    @property
    def putbacks(self) -> tuple[Putback, ...]:
        """The edits that put a value back."""
        return tuple(edit for edit in self.edits if isinstance(edit, Putback))

    @property
    def fields(self) -> tuple[FieldEdit, ...]:
        """The edits that set or take out a field of ours."""
        return tuple(edit for edit in self.edits if isinstance(edit, FieldEdit))


Result = Literal["changed", "unchanged", "deferred", "skipped", "failed"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass did, or would do, with one session, and why."""

    session: str
    path: str
    format: str | None
    outcome: Result
    reason: str
    bytes_before: int
    bytes_after: int
    entries_extracted: int = 0
    values_extracted: int = 0
    values_restored: int = 0
    bytes_stored: int = 0
    seen: bool = False
    plan: Plan | None = field(default=None, compare=False, repr=False)
