"""What the store says: sessions, extractions, fields of ours, wishes, rewrites under way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import EXTRACTABLE

if TYPE_CHECKING:
    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.sessions import End, Fingerprint


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session that the store knows; without an `id` it has no record of its own yet."""

    id: int | None
    agent_id: int
    agent: str
    agent_directory: str
    name: str
    path: str
    root: str
    format: str
    parent: str | None

    @property
    def title(self) -> str:
        """The session as people address it."""
        return f"{self.agent}/{self.name}"


@dataclass(frozen=True, slots=True)
class Extraction:
    """One swap. `size` is in bytes as stored in the line, `chars` in characters."""

    id: int
    session_id: int
    entry_id: str
    stub: str
    path: KeyPath
    kind: str
    tool: str | None
    block: bool
    chars: int
    size: int
    blob_id: int | None
    state: str
    extracted_at: float
    sighted_at: float
    restored_at: float | None
    expired_at: float | None
    expired_why: str | None
    digest: bytes
    replacement: str | None
    anchor: str | None
    exact: bool
    damaged: bool = False


@dataclass(frozen=True, slots=True)
class FieldRecord:
    """A field of ours that stands in a file, with the exact bytes before and after."""

    id: int
    entry_id: str
    name: str
    before: bytes | None
    after: bytes
    value: str


@dataclass(frozen=True, slots=True)
class Wish:
    """Something asked for that waits until its session is settled.

    Without an `id` it is not recorded: it is carried out at once or not at all. Without an
    `entry_id` it speaks of every entry, without `paths` of every value of the entry.
    """

    id: int | None
    session_id: int
    entry_id: str | None
    action: str
    paths: tuple[KeyPath, ...] | None
    value: Any
    pristine: bool
    asked_at: float
    lapses_at: float | None
    answer: bytes | None = None

    def speaks_of(self, entry_id: str) -> bool:
        """Tell whether it is about an entry."""
        return self.entry_id is None or self.entry_id == entry_id


@dataclass(frozen=True, slots=True)
class Records:
    """What the store says of one session (and of those it was forked from)."""

    extractions: tuple[Extraction, ...] = ()
    fields: tuple[FieldRecord, ...] = ()
    restores: dict[str, float] = field(default_factory=dict)
    wishes: tuple[Wish, ...] = ()
    asked_until: int = 0

    @property
    def pins(self) -> dict[str, bool | int]:
        """What `_extractable` was set to by us, also where an agent's rewrite lost the field."""
        return {
            one.entry_id: json.loads(one.value) for one in self.fields if one.name == EXTRACTABLE
        }


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as it was last looked at, under which rules, and when something falls due."""

    fingerprint: Fingerprint
    rules: str
    format: str | None
    outcome: str
    reason: str
    first_seen: float
    due_at: float | None
    looked_at: float


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What becomes true when a rewrite is confirmed: ids of records, and entries restored."""

    put_back: list[int] = field(default_factory=list)
    fields_gone: list[int] = field(default_factory=list)
    wishes: list[int] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class OpenRewrite:
    """A rewrite under way, or interrupted; `ends` are where the old and the new file ended."""

    id: int
    session_id: int
    root: str
    directory: str
    name: str
    temporary: str
    device: int
    inode: int
    new_inode: int | None
    ends: tuple[End, End]
    confirmed: bool
    note: Confirmation


@dataclass(frozen=True, slots=True)
class HeldValue:
    """A value that is held, with where it belongs."""

    id: int
    stub: str
    size: int
    extracted_at: float
    sighted_at: float
    restored_at: float | None
    marked_at: float | None
    root: str
    path: str
    agent_directory: str
    redaction: bool
