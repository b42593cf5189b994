"""Let a command of the operator summarise turns before they fold; no lock is held meanwhile."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

from brainsurgeon.lookup import catalogue
from brainsurgeon.operations.turns import lines_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Plan
    from brainsurgeon.model.records import SessionRecord
    from brainsurgeon.rewrite.examine import Examination
    from brainsurgeon.store import Store

LONGEST = 8000
"""Characters of a summary; one that is longer, or says nothing, is none."""
_MOST_BYTES = 4 * LONGEST
_GLANCE = 0.2
"""Seconds between two looks at whether the pass is to end."""
STYLE = "BRAINSURGEON_STYLE"


class SummaryFailedError(Exception):
    """A command gave no summary: why, without a word of what it read or said."""


@dataclass(frozen=True, slots=True)
class Told:
    """Whose turns are summarised: an examined session, and what the store says of it."""

    one: Examination
    record: SessionRecord | None
    check_stop: Callable[[], None]


def summaries(
    told: Told, store: Store, planned: Plan
) -> tuple[Mapping[bytes, str], tuple[str, ...]]:
    """Give what the command says of the turns that a plan folds, and a warning for each failure.

    What it said is kept by the turn's digest: a rewrite that is refused does not run it again.
    """
    one = told.one
    settings = one.settings
    said: dict[bytes, str] = {}
    warnings = []
    for archive in planned.archives:
        if archive.depth > 1:
            continue
        known = store.archives.summary(archive.digest)
        if known is None:
            noted = catalogue.note(store, one.session)
            ends = archive.prompt_id, archive.entry_id
            lines = lines_of(settings, store, one.session, noted, *ends, one.now)
            turn = b"".join(line + b"\n" for line in lines)
            try:
                known = summarise(settings, turn, told.check_stop)
            except SummaryFailedError as why:
                warnings.append(f"turn of {archive.entry_id}: the summary is our own, {why}")
                _tell(store, noted, archive.entry_id, str(why), one.now)
                continue
            with store.transaction():
                store.archives.keep_summary(archive.digest, known, one.now)
        said[archive.digest] = known
    return said, tuple(warnings)


def _tell(store: Store, noted: SessionRecord, entry_id: str, why: str, now: float) -> None:
    """Note that a summary failed: a fact of its own, whatever becomes of the rewrite."""
    facts = {"entry_id": entry_id, "reason": why}
    with store.transaction():
        store.events.add(now, "summary_failed", noted.id, facts, store.passes.number())


def summarise(settings: Settings, turn: bytes, check_stop: Callable[[], None]) -> str:
    """Run the command on one turn; raise SummaryFailedError where it gives no summary."""
    table = settings.archive
    limit = float("inf") if table.command_timeout is None else float(table.command_timeout)
    try:
        process = subprocess.Popen(  # noqa: S603  it is the operator's own
            table.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, STYLE: table.style},
        )  # fmt: skip
    except OSError as error:
        raise SummaryFailedError(f"its command cannot be run: {error.strerror}") from None
    assert process.stdin is not None  # noqa: S101  both were asked for
    assert process.stdout is not None  # noqa: S101
    feeding = threading.Thread(target=_feed, args=(process.stdin, turn), daemon=True)
    feeding.start()
    try:
        said = _read(process, process.stdout, time.monotonic() + limit, check_stop)
    finally:
        with suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        feeding.join()
        process.stdout.close()
    return _understood(said, process.returncode)


def _feed(stdin: IO[bytes], turn: bytes) -> None:
    with suppress(OSError):  # it need not read everything
        stdin.write(turn)
    with suppress(OSError):
        stdin.close()


def _read(
    process: subprocess.Popen[bytes], stdout: IO[bytes], deadline: float,
    check_stop: Callable[[], None],
) -> bytes:  # fmt: skip
    """Read what a command says, until it ends; raise where that is too much or takes too long."""
    said = b""
    while True:
        check_stop()
        if time.monotonic() > deadline:
            raise SummaryFailedError("its command took too long")
        ready, _, _ = select.select([stdout], [], [], _GLANCE)
        if ready:
            chunk = os.read(stdout.fileno(), 65_536)
            said += chunk
            if not chunk:
                break
        if len(said) > _MOST_BYTES:
            raise SummaryFailedError("its command said too much")
    with suppress(subprocess.TimeoutExpired):
        process.wait(min(max(0.0, deadline - time.monotonic()), 5.0))
    return said


def _understood(said: bytes, code: int) -> str:
    if code != 0:
        raise SummaryFailedError(f"its command ended with {code}")
    try:
        text = said.decode().strip()
    except UnicodeDecodeError:
        raise SummaryFailedError("its command said something that is no text") from None
    if not 1 <= len(text) <= LONGEST:
        raise SummaryFailedError(f"its command said {len(text):,} characters")
    return text
