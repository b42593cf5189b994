"""What the store says: sessions, extractions, fields of ours, requests, rewrites under way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brainsurgeon.model.entries import EXTRACTABLE, placeholder_named
from brainsurgeon.model.turns import LINK

if TYPE_CHECKING:
    from brainsurgeon.model.entries import KeyPath
    from brainsurgeon.model.sessions import End, Fingerprint
    from brainsurgeon.model.turns import ArchiveRecord


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """A session in the catalogue: where its file was last seen, and whose it is.

    `identity` is the id that its agent gave it, None where its file says none. A session is
    `displaced` while another one has its path. `missed_at` is when a retention run first found
    nothing there (seconds since 1970), None while there is something.
    """

    id: int
    agent_id: int
    agent: str
    agent_directory: str
    name: str
    path: str
    root: str
    format: str
    identity: str | None = None
    displaced: bool = False
    missed_at: float | None = None

    @property
    def title(self) -> str:
        """The session as people address it."""
        return f"{self.agent}/{self.name}"


@dataclass(frozen=True, slots=True)
class Extraction:
    """A value that was extracted from an entry: what stands in its place, and where the value is.

    `name` is the id in its placeholder. Where a JSON token stands there instead (`replacement`:
    emptied thinking, a shortened restore call, an archive) it is the entry's id, or the one that
    the archive's text names. `chars` is the value's length in characters, `size` that of its bytes
    as they stood in the line, of which `digest` is the digest. `state` is `standing` (it was last
    seen to stand in some session), `restored` (in none) or `expired` (`blob_id` is None: only this
    tombstone is left). `anchor` is the id of the tool call that the value belongs to; of the link
    of an archive, that of the entry that was continued. `rest` is a digest of what else the line
    says, None where entry ids are random. `run_id` names the run that extracted it, `archive_id`
    the archive that it is a part of. `damaged` is set where reading the stored value failed.
    """

    id: int
    session_id: int
    entry_id: str
    name: str
    path: KeyPath
    kind: str
    tool: str | None
    block: bool
    replacement: str | None
    anchor: str | None
    rest: bytes | None
    chars: int
    size: int
    digest: bytes
    blob_id: int | None
    run_id: int | None
    archive_id: int | None
    extracted_at: float
    restored_at: float | None
    expired_at: float | None
    expired_why: str | None
    state: str
    damaged: bool = False

    @property
    def placeholder(self) -> str:
        """The placeholder's text, empty where something else stands for the value."""
        return "" if self.replacement is not None else placeholder_named(self.name)

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
    """A field of ours that was set in a session, and what undoing it puts back.

    `before` is the value, as JSON, that stood there first (None: the field was absent), `after`
    the bytes that stand there now, `value` the value that we set, as JSON, `rest` as in `Cut`.
    """

    id: int
    session_id: int
    entry_id: str
    name: str
    before: bytes | None
    after: bytes
    value: str
    run_id: int | None = None
    rest: bytes | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """Something asked for that waits until its session is idle.

    Without an `id` it is not recorded, but carried out at once. Without an `entry_id` it speaks of
    every entry, without `paths` of every value of the entry. `action` is `restore`, `set` (the
    field `_extractable`, to `value`), `relieve` (the session, as `value` says) or `redact` (the
    call whose answer is recognised by `answer`, a random id in it). A `pristine` restore takes the
    fields of ours out again, too. One that `rolls_back` a run is pristine, and speaks only of what
    that run cut and set.
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
        return self.entry_id is None or self.entry_id == entry_id

    def wants(self, one: Extraction) -> bool:
        """Check whether it is about this value."""
        return (
            self.speaks_of(one.entry_id)
            and (self.paths is None or one.path in self.paths)
            and self.rolls_back in (None, one.run_id)
        )


@dataclass(frozen=True, slots=True)
class Records:
    """What the store says of one session, `own` by the id of its row, and of what its file holds.

    `extractions` are those that the file's placeholders, archives and emptied or shortened parts
    may stand for, whatever session they were taken from, and all that the session was last seen to
    hold (`placed`, by their ids). `alike` are the rows of sessions with the same id. `fields` are
    the fields of ours that stand in the session, and those that we set on its entries anywhere
    else. `restores` says when each entry was last restored; `asked_until` is the newest request
    there is, open or not, and 0 without any.
    """

    extractions: tuple[Extraction, ...] = ()
    placed: frozenset[int] = frozenset()
    alike: frozenset[int] = frozenset()
    fields: tuple[FieldRecord, ...] = ()
    restores: dict[str, float] = field(default_factory=dict)
    requests: tuple[Request, ...] = ()
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
            one.entry_id: json.loads(one.value)
            for one in self.fields
            if one.name == EXTRACTABLE and one.session_id == self.own
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


@dataclass(frozen=True, slots=True)
class Confirmation:
    """What becomes true once a rewrite has happened.

    The ids of the extractions that were put back, of the field records that are no longer true and
    of the requests that are fulfilled, the ids of the entries that were restored, and the moment.
    `rows` are those that a rewrite in a database changes: the number of each event, and digests
    (as hexadecimal text) of what it says before and afterwards. `run_id` is the run that does it.
    `folded` are the prompts of the turns that fold beside the first of each archive.
    """

    put_back: list[int] = field(default_factory=list)
    fields_gone: list[int] = field(default_factory=list)
    requests: list[int] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    at: float = 0.0
    rows: list[tuple[int, str, str]] = field(default_factory=list)
    run_id: int | None = None
    folded: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class OpenRewrite:
    """A rewrite under way, or interrupted, as the journal has it.

    `inode` is the old file's, `new_inode` that of the new one (None until that is whole), `ends`
    are where the old and the new file ended. `confirmed` says that the rewrite has happened: what
    remains to be done is to remove the old file. `moving_to` is the inode of the file to which
    lines of the other were being moved, `stays` is why the old file could not go, if that was
    tried, `ended_at` since when no try could change that.

    Of a rewrite in a database `directory` is its path, `name` the session's id, and there is no
    temporary file.
    """

    id: int
    session_id: int
    root: str
    directory: str
    name: str
    temporary: str
    inode: int
    new_inode: int | None
    ends: tuple[End, End]
    confirmed: bool
    confirmation: Confirmation
    moving_to: int | None = None
    stays: str | None = None
    ended_at: float | None = None

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
class Held:
    """What a run knows of a stored value, in seconds since 1970 (UTC).

    `activity` is when a session changed in which its placeholder stands, `missed_at` when one of
    its sessions or entries was first missed; None where there is none. Both may be known, of
    several sessions; neither, when its placeholder was in sight and stands nowhere any more. Of one
    `unseen` nobody can say whether its sessions are there.
    """

    id: int
    session_id: int
    size: int
    extracted_at: float
    restored_at: float | None = None
    unplaced_at: float | None = None
    activity: float | None = None
    missed_at: float | None = None
    unseen: bool = False
