"""Records of the store: sessions, extractions, our fields, requests, unfinished rewrites."""

import json
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, Self

from msgspec import Struct, field

from brainsurgeon.model.entries import (
    JsonObject,
    KeyPath,
    RemovedValue,
    placeholder_named,
    value_at,
)
from brainsurgeon.model.session_files import End, Fingerprint
from brainsurgeon.model.turns import LINK, RATE, ArchiveRecord


class SessionRecord(Struct, frozen=True):
    """The store's record of a session, which may be gone."""

    id: int
    agent: str
    agent_directory: str
    name: str
    path: str  # the column `last_path`: also that of a displaced session
    root: str
    format: str
    identity: str | None = None  # the id of the conversation in its file
    displaced: bool = False  # another session is at this path now
    missed_at: float | None = None  # when a retention run first found no file at `path`

    @property
    def title(self) -> str:
        return f"{self.agent}/{self.name}"


class Tombstone(Struct, frozen=True):
    at: float
    why: str


class Extraction(RemovedValue, frozen=True):
    id: int
    session_id: int
    # The new JSON of emptied thinking, shortened restore calls and archives. None: a placeholder.
    replacement: str | None
    size: int  # of the value's bytes in its line
    digest: bytes  # of the same bytes
    blob_id: int | None  # None if the value expired
    run_id: int | None
    archive_id: int | None
    extracted_at: float
    restored_at: float | None
    tombstone: Tombstone | None
    state: str  # "expired"; "standing" while a session contains the placeholder; else "restored"

    def is_in(self, entry: JsonObject) -> bool:
        return bool(value_at(entry, self.path) == self.token)

    @property
    def token(self) -> Any:
        """What replaced the value."""
        if self.replacement is not None:
            return json.loads(self.replacement)
        text = self.placeholder
        return {"type": "text", "text": text} if self.block else text

    @property
    def placeholder(self) -> str:
        """The text of the placeholder, empty if something else replaced the value."""
        return "" if self.replacement is not None else placeholder_named(self.name)

    @property
    def sent(self) -> str:
        return self.placeholder if self.archive_id is None else json.loads(self.replacement or '""')

    @property
    def is_link(self) -> bool:
        """True if the value is the original parent id of an archived turn's last answer."""
        return self.archive_id is not None and self.path == LINK

    @property
    def is_archive(self) -> bool:
        """True if the value is the original text of an archived turn's last answer."""
        return self.archive_id is not None and self.path != LINK

    @property
    def is_redacted(self) -> bool:
        return self.replacement is not None and self.archive_id is None and self.kind != "thinking"


class FieldRecord(Struct, frozen=True):
    id: int
    session_id: int
    entry_id: str
    name: str
    before: bytes | None  # the original value as JSON; None if the field was absent
    after: bytes  # the new bytes: of the value, or of key and value if the field was absent
    value: str  # the new value as JSON
    run_id: int | None = None
    rest: bytes | None = None  # as in `RemovedValue`


class PrintedAnswer(Struct, frozen=True):
    """Finds the answer to a restore in the result of the agent's tool call."""

    ident: str  # the random id in the answer
    before: int  # number of characters before the id
    length: int  # characters
    digest: str

    @classmethod
    def of(cls, text: str, ident: str) -> Self:
        text = text.strip()  # as many hosts do
        return cls(ident, text.index(ident), len(text), _digest(text))

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        at = text.find(self.ident)
        while at != -1:
            start = at - self.before
            end = start + self.length
            if start >= 0 and _digest(text[start:end]) == self.digest:
                yield start, end
            at = text.find(self.ident, max(at + 1, end))


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class Request(Struct, frozen=True):
    """A request to change a session once it is idle. `action` is one of these.

    - `restore`: restore values, by default all
    - `set`: set the field `_extractable` to `value`, or remove the field (None)
    - `relieve`: relieve the session, with the options in `value`
    - `archive`: archive the turn whose prompt is the entry, with the note `value`
    - `redact`: shorten the result that contains `answer`, and the call of our tool that it answers
    """

    session_id: int
    action: str
    asked_at: float
    entry_id: str | None = None  # None: every entry
    paths: tuple[KeyPath, ...] | None = None  # None: every value of the entry
    value: Any = None
    pristine: bool = False  # a restore also removes our fields
    lapses_at: float | None = None
    answer: PrintedAnswer | None = None
    rolls_back: int | None = None  # restore only the values that the run with this id extracted
    id: int | None = None  # None if it was not recorded, but is carried out at once

    @property
    def restores_all(self) -> bool:
        return self.action == "restore" and self.entry_id is None and not self.rolls_back

    def concerns(self, entry_id: str) -> bool:
        return self.entry_id is None or self.entry_id == entry_id

    def includes(self, value: Extraction) -> bool:
        return (
            self.concerns(value.entry_id)
            and (self.paths is None or value.path in self.paths)
            and self.rolls_back in (None, value.run_id)
        )


# Restores all values and removes all our fields in the planned session. It is never recorded.
EVERYTHING = Request(0, "restore", 0.0, pristine=True)


class Others(Struct, frozen=True):
    sessions: frozenset[int] = frozenset()  # ids of their records
    names: frozenset[str] = frozenset()  # of values in the file that count only in their sessions


class Records(Struct, frozen=True):
    """The store's records of one session and of the values in its file."""

    # Extractions, from any session, whose placeholders or replacements may be in the file.
    extractions: tuple[Extraction, ...] = ()
    last_placed: frozenset[int] = frozenset()  # extractions in the file when it was last read
    same_identity: frozenset[int] = frozenset()  # session records (ids) with the same `identity`
    # Our fields in the session, and in entries with the same ids in other sessions.
    fields: tuple[FieldRecord, ...] = ()
    restores: dict[str, float] = field(default_factory=dict)  # times of the last restores, by entry
    requests: tuple[Request, ...] = ()
    asked_until: int = 0  # the id of the newest request, or 0
    own: int | None = None  # the id of the session's record
    archives: tuple[ArchiveRecord, ...] = ()
    rate: float = RATE  # tokens per character
    damaged: frozenset[int] = frozenset()  # extractions whose stored values cannot be read
    others: Others = Others()

    def requested(self, action: str) -> list[Request]:
        return [request for request in self.requests if request.action == action]

    @property
    def to_archive(self) -> dict[str, str | None]:
        return {one.entry_id: one.value for one in self.requested("archive") if one.entry_id}


class FileState(Struct, frozen=True):
    """The result of the last scan of a file."""

    fingerprint: Fingerprint
    rules: str
    format: str | None
    outcome: str
    reason: str
    first_seen: float  # when a run first saw this fingerprint
    due_at: float | None  # when the result may change though file and rules do not
    looked_at: float


class Confirmation(Struct, frozen=True):
    """The facts to record once a rewrite is complete."""

    restored_ids: list[int] = field(default_factory=list)  # ids of restored extractions
    fields_gone: list[int] = field(default_factory=list)  # ids of the records of undone fields
    requests: list[int] = field(default_factory=list)  # ids of fulfilled requests
    restored: list[str] = field(default_factory=list)  # ids of restored entries
    at: float = 0.0
    # Changed rows of a database: key, and digests (hexadecimal) before and after.
    rows: list[tuple[int | str, str, str]] = field(default_factory=list)
    run_id: int | None = None


class RewrittenFiles(Struct, frozen=True):
    """In a database, `directory` is its path, `name` the session's id, and `temporary` is empty."""

    root: str
    directory: str
    name: str
    temporary: str
    inode: int
    new_inode: int | None = None  # None until the new file is complete
    ends: tuple[End, End] = (End(0, b""), End(0, b""))  # of the old and the new file
    moving_to: int | None = None  # the inode of the file to which lines are being moved

    @property
    def temporary_path(self) -> str:
        return f"{self.directory}/{self.temporary}"

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.name}"

    @property
    def in_database(self) -> bool:
        return not self.temporary

    def which(self, inode: int | None) -> str:
        """Return the file with an inode: "old", "new", "other" or "none"."""
        # Device numbers are not compared: they may change whenever the system starts.
        files = {self.inode: "old", self.new_inode: "new", None: "none"}
        return files.get(inode, "other")


class OpenRewrite(RewrittenFiles, frozen=True, kw_only=True):
    id: int
    session_id: int
    confirmation: Confirmation
    confirmed: bool = False  # complete, except that the old file is still to be removed
    stays: str | None = None  # why the old file could not be removed
    ended_at: float | None = None  # when it was given up, since no retry could help: a mark
    moves: bool = False  # lines begin elsewhere in the new file


class Held(Struct, frozen=True):
    """What decides when a stored value expires. Times are counted (`Interval`)."""

    id: int
    session_id: int
    size: int
    unplaced_at: float | None = None  # since when no session has the placeholder
    activity: float | None = None  # the last activity of any session with the placeholder
    missed_at: float | None = None  # when a session or entry with the placeholder last went missing
    days_missed: int = 0  # on how many days runs saw that it was missing
    unseen: bool = False  # it is unknown whether a session has the placeholder
