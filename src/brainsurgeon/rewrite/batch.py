"""Sessions of a run whose plans are ready, until enough of them wait to be carried out together.

Each commit costs some five syncs, whatever it holds: sessions that go together share them. They
stay open meanwhile, so only small ones wait, and not for long; whether each may still be touched
is asked again right before its exchange.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from brainsurgeon.errors import StoppedError
from brainsurgeon.lookup import catalogue
from brainsurgeon.rewrite.apply import Change, apply_together
from brainsurgeon.rewrite.change import change
from brainsurgeon.rewrite.finish import TOGETHER
from brainsurgeon.sessions.reading import OpenSession

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from brainsurgeon.model.plans import Outcome, Plan
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.model.sessions import Resume, SessionFile
    from brainsurgeon.rewrite.change import AnyRewrite
    from brainsurgeon.rewrite.inspect import Examination
    from brainsurgeon.store import Store


# So much of sessions, as they are now, waits at most: what is to be cut of it is in memory.
_MOST_BYTES = 8 << 20
# Seconds for which one waits at most, unless looking at the next takes longer.
_LONGEST = 0.5


@dataclass(frozen=True, slots=True)
class Planned:
    """A session that is to be changed; it is open, and `held` closes it.

    `begin` is where a look at it may begin, as it was: nothing is changed in front of that.
    """

    file: SessionFile
    one: Examination
    record: SessionRecord | None
    plan: Plan
    outcome: Outcome
    held: ExitStack
    begin: Resume | None = None


class Batch:
    """What waits."""

    def __init__(self) -> None:
        self._waiting: list[Planned] = []
        self._since = 0.0

    @property
    def full(self) -> bool:
        """Whether it is time to carry out what waits."""
        size = sum(one.file.fingerprint.size for one in self._waiting)
        late = self._waiting and time.monotonic() > self._since + _LONGEST
        rows = any(one.file.in_database for one in self._waiting)  # their database is open
        return bool(rows or late or len(self._waiting) >= TOGETHER or size >= _MOST_BYTES)

    def leaves_room(self, file: SessionFile) -> bool:
        """Check whether a session is small enough that others may wait while it is looked at."""
        return not self._waiting or file.fingerprint.size < _MOST_BYTES

    def add(self, planned: Planned) -> None:
        self._since = self._since if self._waiting else time.monotonic()
        self._waiting.append(planned)

    def close(self) -> None:
        """Let go of what waits: it is not carried out."""
        with self.taken():
            pass

    @contextmanager
    def taken(self) -> Iterator[list[Planned]]:
        """Take out what waits; it is closed in the end."""
        waiting, self._waiting = self._waiting, []
        with ExitStack() as held:
            for one in waiting:
                held.push(one.held)
            yield waiting


def carry_out_together(
    store: Store, waiting: Sequence[Planned], clock: Callable[[], float]
) -> list[AnyRewrite | Exception]:
    """Carry out plans in as few commits as may be; give what came of each."""
    if not waiting:
        return []
    try:
        changes = _noted(store, waiting)
    except StoppedError:
        raise
    except Exception as error:  # noqa: BLE001  whose error it is, is found out one by one
        if len(waiting) == 1:
            return [error]
        return [carry_out_together(store, [one], clock)[0] for one in waiting]
    files = [change for change in changes if isinstance(change, Change)]
    done = iter(apply_together(store, files, clock))
    return [
        next(done) if isinstance(change, Change) else _rows_changed(store, *change, clock)
        for change in changes
    ]


def _noted(
    store: Store, waiting: Sequence[Planned]
) -> list[Change | tuple[Planned, SessionRecord]]:
    """Return each session a record, if it has none yet: all in one commit."""
    records = [one.record for one in waiting]
    if None in records:
        with store.transaction():
            records = [
                one.record or catalogue.note_within(store, one.one.session) for one in waiting
            ]
    return [
        Change(one.one, one.one.session, record, one.plan)
        if isinstance(one.one.session, OpenSession)
        else (one, record)
        for one, record in zip(waiting, records, strict=True)
        if record
    ]


def _rows_changed(
    store: Store, one: Planned, record: SessionRecord, clock: Callable[[], float]
) -> AnyRewrite | Exception:
    try:
        return change(store, one.one, record, one.plan, clock)
    except Exception as error:  # noqa: BLE001  the others have their results
        return error
