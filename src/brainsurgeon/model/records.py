"""What the store says: sessions, extractions, fields of ours, wishes, rewrites under way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import EXTRACTABLE
from brainsurgeon.model.turns import LINK

if TYPE_CHECKING:
    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.sessions import End, Fingerprint, Identity, Place
    from brainsurgeon.model.turns import ArchiveRecord


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session as the store knows it; `id` is None while nothing has been recorded of it.

    `path` and `root` are where its file was last seen, `place` as which file; `homeless` says that
    another session stands there now, `earlier` are the paths before. `parent` names the session it
    was forked from, as its file says, `parent_id` is that one's record, or that of the session it
    was copied from. A record of an earlier version has no `identity` until its file is seen again.
    """

    id: int | None
    agent_id: int
    agent: str
    agent_directory: str
    name: str
    path: str
    root: str
    format: str
    parent: str | None
    parent_id: int | None = None
    identity: Identity | None = None
    place: Place | None = None
    homeless: bool = False
    earlier: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The session as people address it."""
        return f"{self.agent}/{self.name}"


@dataclass(frozen=True, slots=True)
class Extraction:
    """A value that was cut out of an entry: what stands in its place, and where the value is.

    `chars` is its length in characters, `size` that of its bytes as they stood in the line, of
    which `digest` is the digest. `stub` is the text that stands for it, or `replacement`, as JSON,
    where the agent's own call was shortened. `state` is `standing` (the stub was last known to
    stand in the file), `restored` (it was not) or `expired` (`blob_id` is None: only this
    tombstone is left). `sighted_at` is when the stub was last seen. `anchor` and `exact` are those
    of the cut. `damaged` is set where reading the stored value failed. `said` is the digest of the
    value as it was parsed, `whole` that of what its agent had said in the entry when nothing of
    ours stood in it; records of earlier versions have neither. `pass_id` names the pass that cut
    it, None where an earlier version did. `archive_id` names the archive that it is a part of; of
    the link of one `anchor` is the id of the entry that was continued.
    """

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
    said: bytes | None = None
    whole: bytes | None = None
    pass_id: int | None = None
    archive_id: int | None = None
    damaged: bool = False

    @property
    def links(self) -> bool:
        """Whether it is the link of an archive: which entry the closing one continues."""
        return self.archive_id is not None and self.path == LINK

    @property
    def redacts(self) -> bool:
        """Whether the agent's own call was shortened there, which a field of the entry says."""
        return self.replacement is not None and self.archive_id is None and self.kind != "thinking"


@dataclass(frozen=True, slots=True)
class FieldRecord:
    """A field of ours that stands in a file, and what undoing it puts back.

    `before` is the value, as JSON, that stood there first (None: the field was absent), `after`
    the bytes that stand there now, `value` the value that we set, as JSON.
    """

    id: int
    entry_id: str
    name: str
    before: bytes | None
    after: bytes
    value: str
    pass_id: int | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """Something asked for that waits until its session is settled.

    Without an `id` it is not recorded, but carried out at once. Without an `entry_id` it speaks of
    every entry, without `paths` of every value of the entry. `action` is `restore`, `set` (the
    field `_extractable`, to `value`), `relieve` (the session, as `value` says) or `redact` (the
    call whose answer is recognised by `answer`, which is a random id in it, or in older stores a
    digest of how it begins). A `pristine` restore takes the fields of ours out again, too. One
    that `rolls_back` a pass is pristine, and speaks only of what that pass cut and set.
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
    rolls_back: int | None = None

    def speaks_of(self, entry_id: str) -> bool:
        """Tell whether it is about this entry."""
        return self.entry_id is None or self.entry_id == entry_id

    def wants(self, one: Extraction) -> bool:
        """Tell whether it is about this value."""
        return (
            self.speaks_of(one.entry_id)
            and (self.paths is None or one.path in self.paths)
            and self.rolls_back in (None, one.pass_id)
        )


@dataclass(frozen=True, slots=True)
class Records:
    """What the store says of one session, `own`, and of those it was forked from.

    `restores` says when each entry was last restored; `asked_until` is the newest wish there is,
    open or not, and 0 without any.

    Of two extractions of one place the later in the list speaks: the session's own come last.
    `elsewhere` are those of other sessions that say the same of themselves: they are never put
    back here, but what stands there is ours.
    """

    extractions: tuple[Extraction, ...] = ()
    elsewhere: tuple[Extraction, ...] = ()
    fields: tuple[FieldRecord, ...] = ()
    restores: dict[str, float] = field(default_factory=dict)
    wishes: tuple[Wish, ...] = ()
    asked_until: int = 0
    own: int | None = None
    archives: tuple[ArchiveRecord, ...] = ()

    @property
    def to_archive(self) -> dict[str, str | None]:
        """What was asked to be archived: by the prompts of the turns, what is to be said there.

        What was asked of a session is not asked of its forks.
        """
        return {
            one.prompt_id: one.note
            for one in self.archives
            if one.state == "asked" and one.session_id == self.own
        }

    @property
    def pins(self) -> dict[str, bool | int]:
        """What we set `_extractable` to, by entry; it holds although the agent drops the field."""
        return {
            one.entry_id: json.loads(one.value) for one in self.fields if one.name == EXTRACTABLE
        }


@dataclass(frozen=True, slots=True)
class FileState:
    """A file as a scan last saw it, under which rules, and when a decision next changes.

    `first_seen` is when it was first seen in this state, `looked_at` when a scan last opened it.
    """

    fingerprint: Fingerprint
    rules: str
    format: str | None
    outcome: str
    reason: str
    first_seen: float
    due_at: float | None
    looked_at: float
    identity: Identity | None = None


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What becomes true once a rewrite has happened.

    The ids of the extractions that were put back, of the field records that are no longer true and
    of the wishes that are fulfilled, the ids of the entries that were restored, and the moment.
    `rows` are those that a rewrite in a database changes: the number of each event, and digests
    (as hexadecimal text) of what it says before and afterwards. `pass_id` is the pass that does it.
    `folded` are the prompts of the turns that fold beside the first of each archive.
    """

    put_back: list[int] = field(default_factory=list)
    fields_gone: list[int] = field(default_factory=list)
    wishes: list[int] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    at: float = 0.0
    rows: list[tuple[int, str, str]] = field(default_factory=list)
    pass_id: int | None = None
    folded: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OpenRewrite:
    """A rewrite under way, or interrupted, as the journal has it.

    `inode` is the old file's, `new_inode` that of the new one (None until that is whole), `ends`
    are where the old and the new file ended. `confirmed` says that the rewrite has happened: what
    remains to be done is to remove the old file. `moving_to` is the inode of the file to which
    lines of the other were being moved, `stays` is why the old file could not go, if that was
    tried.

    Of a rewrite in a database `directory` is its path, `name` the session's id, and there is no
    temporary file.
    """

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
    confirmation: Confirmation
    moving_to: int | None = None
    stays: str | None = None

    @property
    def beside(self) -> str:
        """The path of the file that stands beside the session meanwhile."""
        return f"{self.directory}/{self.temporary}"

    @property
    def path(self) -> str:
        """The path of the session file that is rewritten."""
        return f"{self.directory}/{self.name}"

    @property
    def in_database(self) -> bool:
        """Whether it changes rows of a database, not a file."""
        return not self.temporary


@dataclass(frozen=True, slots=True)
class HeldValue:
    """A stored value as retention sees it: which stub leads to it, and whose session it is from.

    A `redaction` is the agent's own call as it was before it was shortened: no stub leads to it.
    """

    id: int
    session_id: int
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
