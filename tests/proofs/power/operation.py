"""One real operation on a small world, in a process of its own, so that it can be traced.

    python operation.py BASE VERB

BASE holds `agents/main/sessions/*.jsonl` and `state/`.
"""

import os
import sys

from brainsurgeon import config
from brainsurgeon.config.settings import ArchiveTable
from brainsurgeon.files import processes as clocks
from brainsurgeon.files import retire
from brainsurgeon.operations.relieve import relieve
from brainsurgeon.operations.restore import restore, restore_all, rollback
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.rewrite.recover import recover
from brainsurgeon.rewrite.relief import Wanted
from brainsurgeon.store import open_store

NOW = 1_795_000_000.0
DAY = 86_400.0
ENTRY = "00000003"
_LATE, _NEXT = (
    b'{"type":"custom","id":"%s","timestamp":"2026-11-01T11:00:%s.000Z"}\n' % pair
    for pair in ((b"late", b"01"), (b"next", b"02"))
)
_BEAT = b'{"type":"beat"}\n'
# What is written to the old file after an exchange, and then to the new one.
LINES = {"late": (_LATE,), "followed": (_LATE, _NEXT), "beat": (_BEAT, _BEAT)}


def settings_of(base):
    return config.Settings.model_validate({
        "roots": [{"path": f"{base}/agents"}], "state_dir": f"{base}/state",
        "quiet_seconds": 0, "min_reclaim": 0, "keep_recent": 0, "keep_after_restore_seconds": 600,
    })  # fmt: skip


class Clock:
    """A clock that the operation moves."""

    def __init__(self):
        self.now = NOW

    def __call__(self):
        return self.now

    def turn(self, seconds):
        self.now += seconds


def extract(settings, store, clock):
    scan(settings, store, clock=clock)


def archive(settings, store, clock):
    archiving = ArchiveTable(enabled=True, token_threshold=0, keep_turns=0)
    scan(settings.model_copy(update={"archive": archiving}), store, clock=clock)


def ease(settings, store, clock):
    recover(store)
    relieve(settings, store, "main/one", Wanted(to=200), clock=clock)


def pin(settings, store, clock):
    recover(store)
    set_extractable(settings, store, ENTRY, False, clock=clock)


def restored(settings, store, clock):
    recover(store)
    restore(settings, store, ENTRY, clock=clock)


def ask(settings, store, clock):
    """Restore an entry while its session is not idle: the request becomes pending."""
    recover(store)
    busy = settings.model_copy(update={"quiet": 10**9})
    restore(busy, store, ENTRY, clock=clock)


def undo(settings, store, clock):
    """Restore everything and remove every field of brainsurgeon."""
    recover(store)
    restore_all(settings, store, clock=clock, pristine=True)


def roll_back(settings, store, clock):
    recover(store)
    rollback(settings, store, 1, clock=clock)


def _with_lines(lines):
    """Extract everything while lines are appended to the old file, then to the new one."""

    def act(settings, store, clock):
        finish = retire.retire

        def finishing(place, **keywords):
            retire.retire = finish
            for name, line in zip((place.temporary, place.name), lines, strict=False):
                descriptor = os.open(name, os.O_WRONLY | os.O_APPEND, dir_fd=place.directory)
                os.write(descriptor, line)
                os.close(descriptor)
            return finish(place, **keywords)

        retire.retire = finishing
        extract(settings, store, clock)

    return act


def expire(settings, store, clock):
    """Expire what was restored a day ago; the first retention run in days deletes nothing."""
    retention(settings, store, clock=clock)
    clock.turn(1.5 * DAY)
    scan(settings.model_copy(update={"enabled": False}), store, clock=clock)
    retention(settings, store, clock=clock)


def undo_and_expire(settings, store, clock):
    """Restore everything, then expire the values."""
    undo(settings, store, clock)
    expire(settings, store, clock)


VERBS = {
    "scan": extract, "pin": pin, "restore-entry": restored, "ask": ask, "undo": undo,
    "expire": expire, "undo-and-expire": undo_and_expire, "rollback": roll_back,
    "follow": extract, "together": extract, "archive": archive, "unarchive": undo, "relieve": ease,
    **{verb: _with_lines(lines) for verb, lines in LINES.items()},
}  # fmt: skip


def act(base, verb):
    clock, before = Clock(), (clocks.boot_clock, retire.LOOK_BACK)
    clocks.boot_clock, retire.LOOK_BACK = clock, 0.02
    store = open_store(f"{base}/state")
    try:
        VERBS[verb](settings_of(base), store, clock)
    finally:
        store.close()
        clocks.boot_clock, retire.LOOK_BACK = before


if __name__ == "__main__":
    act(*sys.argv[1:])
