"""A session at the time of planning."""

from msgspec import Struct

from brainsurgeon.formats.base import Format
from brainsurgeon.model.entries import Lines
from brainsurgeon.model.records import Records, Request
from brainsurgeon.model.sessions import Survey


class Habits(Struct, frozen=True):
    """Behaviour of an agent that concerns signatures.

    An agent that `drops_blocks` asks its provider to drop blocks with invalid signatures. One that
    `remembers` keeps a session in memory: its thinking may be signed together with values that were
    extracted from the file long ago.
    """

    drops_blocks: bool = False
    remembers: bool = False


class Snapshot(Struct, frozen=True):
    """A session at the moment `now`: its lines, their survey, and the store's records of it.

    All times are seconds since 1970. From `branches_die_at` on, entries off the active branch are
    dead. A request to redact ends without an answer if the session changed after it was made
    (`changed_at`), or after `patience` seconds.
    """

    lines: Lines
    form: Format
    survey: Survey
    records: Records
    now: float
    changed_at: float = 0.0
    patience: float = 0.0
    branches_die_at: float = 0.0
    habits: Habits = Habits()

    @property
    def sets(self) -> dict[str, Request]:
        return {
            request.entry_id: request
            for request in self.records.requests
            if request.action == "set" and request.entry_id
        }

    @property
    def restores(self) -> list[Request]:
        return [request for request in self.records.requests if request.action == "restore"]
