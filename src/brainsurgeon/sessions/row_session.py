"""Open one session that lies in an agent's database, and read it as lines."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from brainsurgeon import formats
from brainsurgeon.formats.openclaw import OpenClawRows
from brainsurgeon.hosts import openclaw_database, openclaw_gate, openclaw_schema, sqlite
from brainsurgeon.hosts.openclaw_database import Database, misplaced, unwritable
from brainsurgeon.sessions import leases
from brainsurgeon.sessions.reading import RefusedError, carry_on, head
from brainsurgeon.sessions.row_listing import RowIndex, RowLines, fingerprint, readable

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterator

    from brainsurgeon.formats.base import Format
    from brainsurgeon.hosts.openclaw_database import Presence, Selected
    from brainsurgeon.hosts.openclaw_gate import Closed, Gate
    from brainsurgeon.model.sessions import Fingerprint, SessionFile

UNTRIED = "SQLite's locks were not tried on this filesystem ({}), and its root is not `exclusive`"


class OpenRows:
    """A session in a database that is open for reading: how it is described, and its lines.

    `presence` says who is at work on the database. `file` is the session in the state in which it
    was opened.
    """

    def __init__(
        self, file: SessionFile, database: sqlite3.Connection, presence: Presence,
        check_stop: Callable[[], None], held: ExitStack,
    ) -> None:  # fmt: skip
        self.presence, self.check_stop, self._database, self._held = (
            presence,
            check_stop,
            database,
            held,
        )
        with readable():
            self.schema = openclaw_schema.examine(database)
        try:
            with readable():
                window = openclaw_gate.window(database, file.name)
                sizes = openclaw_schema.sizes(database, self.schema, file.name)
        except OSError as error:
            if self.schema.unknown:  # with a table or column of its own
                raise RefusedError(self.schema.unknown) from error
            raise
        if window is None:
            raise RefusedError("there is no such session in the database any more")
        self.window = window
        self.lines = RowLines(database, self.schema, file.name, RowIndex(sizes), check_stop)
        mark = fingerprint(file.directory, window, self.lines.index.size, file.own_ms)
        self.file = replace(file, fingerprint=mark, key=window.key)

    @property
    def fingerprint(self) -> Fingerprint:
        """What tells two states of the session apart."""
        return self.file.fingerprint

    @cached_property
    def _beginning(self) -> tuple[Format, str | None]:
        said = formats.recognise(head(self.lines), "auto", {"openclaw": OpenClawRows()})
        if said.form is None:
            raise RefusedError(said.reason)
        return said.form, said.identity

    @cached_property
    def format(self) -> Format:
        """The dialect of its events; raise RefusedError where it is none that is known."""
        return self._beginning[0]

    @cached_property
    def identity(self) -> str | None:
        """Which conversation it is; raise RefusedError where it is of no known format."""
        return self._beginning[1]

    @cached_property
    def selected(self) -> Selected:
        """What OpenClaw's configuration selects."""
        return openclaw_database.selected(Database.of(self.file).state_directory)

    @property
    def context_tokens(self) -> int | None:
        """How many tokens its model takes, as its agent noted; None where it did not."""
        with readable():
            return openclaw_gate.context_tokens(self._database, self.file.name)

    @property
    def obstacle(self) -> str | None:
        """Why its rows are never to be changed by us, or None."""
        if self.schema.unknown:
            return self.schema.unknown
        where = os.path.dirname(self.file.directory)
        unproven = None if self.file.exclusive else leases.unproven_at(where)
        return (
            misplaced(Database.of(self.file))
            or unwritable(self.file.directory)
            or (unproven and UNTRIED.format(unproven))
        )

    def gate(self, quiet: float) -> Gate:
        """Return the gate that its agent's signs are asked through; `quiet` is in seconds."""
        return openclaw_gate.Gate(quiet, self.presence, self.file.own_ms)

    def closed(self, quiet: float, now: float) -> Closed | None:
        """Return why it may not be changed now, or None; `quiet` is in seconds."""
        with readable():
            return openclaw_gate.refusal(
                self._database, self.schema, self.gate(quiet), self.window, now
            )

    def read(self, start: int, end: int) -> bytes:
        """Read the bytes from `start` to `end`; fewer where the lines end."""
        return self.lines.read(start, end)

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from `start` to `end` a few at a time."""
        return self.lines.stream(start, end)

    def release(self) -> None:
        """Close the database, so that it may be opened for writing; the lines are read no more.

        Raise BusyError where its agent began to use it while it was read without locks.
        """
        self._held.close()


@contextmanager
def open_rows(file: SessionFile, check_stop: Callable[[], None] = carry_on) -> Iterator[OpenRows]:
    """Open a session that lies in a database; raise RefusedError where it cannot be read."""
    presence = openclaw_database.presence(Database.of(file).state_directory, file.directory)
    with ExitStack() as held:
        reading = sqlite.reading(file.directory, owned=not presence.nobody)
        yield OpenRows(file, held.enter_context(reading), presence, check_stop, held)
