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
- NotFoundError, and its kinds NoSuchKeyError and GoneError: no such session, entry or value;
- AmbiguousError, and its kind UntoldError: a name, or none, fits several; `candidates` are they;
- ExpiredError: the value is gone; `tombstones` say when and how big it was;
- BusyError: in another's hands; trying again will do;
- ChangedError, GuardedError: not as recorded, or not written any more;
- StoreUnusableError, and its kinds StoreDamagedError and DamagedError: the store cannot be used;
  nothing was touched;
- StoreFullError, FailedError: nothing was cut, or the session's file was left as it is.

Times are seconds since 1970 in UTC, sizes named `size` or `bytes` are bytes, `chars` characters.
"""

from brainsurgeon.config import Settings, load
from brainsurgeon.errors import (
    AmbiguousError,
    BrainsurgeonError,
    BusyError,
    ChangedError,
    ConfigError,
    DamagedError,
    ExpiredError,
    FailedError,
    GoneError,
    GuardedError,
    NoSuchKeyError,
    NotFoundError,
    StoreDamagedError,
    StoreFullError,
    StoreUnusableError,
    UntoldError,
)
from brainsurgeon.model.reports import (
    Event,
    FieldAnswer,
    Relief,
    RestoreAnswer,
    RetentionReport,
    RollbackReport,
    Run,
    ScanReport,
    SessionRestore,
    SessionRollback,
)
from brainsurgeon.operations.archive import ArchiveAnswer, StandingArchive, archive, archives
from brainsurgeon.operations.cat import cat
from brainsurgeon.operations.context import Context, context
from brainsurgeon.operations.doctor import Finding, doctor
from brainsurgeon.operations.events import events, follow
from brainsurgeon.operations.relieve import relieve, would_relieve
from brainsurgeon.operations.restore import restore
from brainsurgeon.operations.restore_all import restore_all
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.rollback import rollback, runs
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.search import Hit, search
from brainsurgeon.operations.sessions import SessionSummary, sessions
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.operations.show import ShownValues, show, show_turn
from brainsurgeon.operations.status import Status, status
from brainsurgeon.rewrite.budget import Wanted
from brainsurgeon.rewrite.recover import recover
from brainsurgeon.rewrite.turns import ArchivedTurn
from brainsurgeon.store import Store, open_store, open_to_read

__all__ = [
    "AmbiguousError",
    "ArchiveAnswer",
    "ArchivedTurn",
    "BrainsurgeonError",
    "BusyError",
    "ChangedError",
    "ConfigError",
    "Context",
    "DamagedError",
    "Event",
    "ExpiredError",
    "FailedError",
    "FieldAnswer",
    "Finding",
    "GoneError",
    "GuardedError",
    "Hit",
    "NoSuchKeyError",
    "NotFoundError",
    "Relief",
    "RestoreAnswer",
    "RetentionReport",
    "RollbackReport",
    "Run",
    "ScanReport",
    "SessionRestore",
    "SessionRollback",
    "SessionSummary",
    "Settings",
    "ShownValues",
    "StandingArchive",
    "Status",
    "Store",
    "StoreDamagedError",
    "StoreFullError",
    "StoreUnusableError",
    "UntoldError",
    "Wanted",
    "archive",
    "archives",
    "cat",
    "context",
    "doctor",
    "events",
    "follow",
    "load",
    "open_store",
    "open_to_read",
    "recover",
    "relieve",
    "restore",
    "restore_all",
    "retention",
    "rollback",
    "runs",
    "scan",
    "search",
    "sessions",
    "set_extractable",
    "show",
    "show_turn",
    "status",
    "would_relieve",
]
