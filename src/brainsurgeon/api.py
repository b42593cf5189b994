"""For other Python programs: the verbs behind the commands, their values, and what may go wrong.

    import time
    from brainsurgeon import api

    settings, warnings = api.load()
    with api.open_store(settings.state_dir) as store:
        api.recover(store)
        report = api.scan(settings, store, clock=time.time, dry_run=True)
        answer = api.restore(settings, store, "4f9d2a11", clock=time.time)
        print(answer.pending, answer.content)

`open_store` creates the store where there is none; `open_to_read` never does, and gives None then,
which every verb that only looks takes. `recover` finishes what a crash left and comes before
whatever writes. Sessions and entries are named as on the command line. Nothing prints or logs.

Errors are subclasses of BrainsurgeonError; `exit_code` is the one of the command line, `facts()`
gives what a program can act on:

- ConfigError: the configuration is not understood; all problems are listed;
- NotFound, and its kinds NoSuchKey and Gone: no such session, entry or value;
- Ambiguous, and its kind Untold: a name, or none, fits several; `candidates` are they;
- Expired: the value is gone; `tombstones` say when and how big it was;
- Busy, Changed, Guarded: in another's hands, not as recorded, or not written any more;
- StoreUnusable, and its kind Damaged: the store cannot be used; nothing was touched;
- StoreFull, Failed: nothing was cut, or the session's file was left as it is.

Times are seconds since 1970 in UTC, sizes named `size` or `bytes` are bytes, `chars` characters.
"""

from brainsurgeon.config import Settings, load
from brainsurgeon.errors import (
    Ambiguous,
    BrainsurgeonError,
    Busy,
    Changed,
    ConfigError,
    Damaged,
    Expired,
    Failed,
    Gone,
    Guarded,
    NoSuchKey,
    NotFound,
    StoreFull,
    StoreUnusable,
    Untold,
)
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.check import Finding, check
from brainsurgeon.operations.context import Context, context
from brainsurgeon.operations.recover import recover
from brainsurgeon.operations.report import Report
from brainsurgeon.operations.restore import Restored, restore
from brainsurgeon.operations.restore_all import SessionRestored, restore_all
from brainsurgeon.operations.retention import RetentionReport, retention
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.sessions import Listed, sessions
from brainsurgeon.operations.set_extractable import Set, set_extractable
from brainsurgeon.operations.show import Shown, show
from brainsurgeon.operations.status import Status, status
from brainsurgeon.store import Store, open_store, open_to_read

__all__ = [
    "Ambiguous",
    "BrainsurgeonError",
    "Busy",
    "Changed",
    "ConfigError",
    "Context",
    "Damaged",
    "Expired",
    "Failed",
    "Finding",
    "Gone",
    "Guarded",
    "Listed",
    "NoSuchKey",
    "NotFound",
    "Report",
    "Restored",
    "RetentionReport",
    "SessionRestored",
    "Set",
    "Settings",
    "Shown",
    "Status",
    "Store",
    "StoreFull",
    "StoreUnusable",
    "Untold",
    "cat",
    "check",
    "context",
    "load",
    "open_store",
    "open_to_read",
    "recover",
    "restore",
    "restore_all",
    "retention",
    "scan",
    "sessions",
    "set_extractable",
    "show",
    "status",
]
