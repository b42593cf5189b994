"""The functions behind the commands, with their results and errors, for other Python programs.

    import time
    from brainsurgeon import api

    settings, warnings = api.load()
    with api.open_store(settings.state_dir) as store:
        api.recover(store)
        report = api.scan(settings, store, clock=time.time, dry_run=True)
        answer = api.restore(settings, store, "4f9d2a11", clock=time.time)
        print(answer.pending, answer.content)

`open_store` creates a missing store, even if sessions have placeholders of another one (then
`status` reports a trouble). `open_to_read` is for functions that only read: it returns an
empty store if there is none. Call `recover` before a function that writes: it finishes or undoes
rewrites that a crash interrupted. Sessions and entries are named as on the command line. No
function prints or logs.

Most results are classes of `reports`. Each error is a BrainsurgeonError with the `exit_code` of the
command line, and with `facts()`. Docstrings in `errors` describe them: ConfigError, UsageError,
NotFoundError (with NoSuchKeyError and GoneError), AmbiguousError (with UnnamedError), ExpiredError,
BusyError, ChangedError, MovedError, FailedError, StoreUnusableError (with StoreDamagedError,
StoreAccessError and DamagedError), StoreFullError.

Times are seconds since 1970 in UTC (in tombstones: ISO 8601). Sizes named `size` or `bytes` are
bytes, `chars` characters.
"""

from brainsurgeon import errors
from brainsurgeon.config import Settings, load
from brainsurgeon.lookup.scope import Scope
from brainsurgeon.model import reports
from brainsurgeon.operations.archive import archive, archives, would_archive
from brainsurgeon.operations.doctor import doctor
from brainsurgeon.operations.evidence import evidence, mount
from brainsurgeon.operations.history import events, follow, runs
from brainsurgeon.operations.relieve import relieve, would_relieve
from brainsurgeon.operations.restore import How, restore, restore_all, rollback
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.scan import Chosen, scan
from brainsurgeon.operations.sessions import context, sessions
from brainsurgeon.operations.set_extractable import set_extractable
from brainsurgeon.operations.show import cat, search, show, show_turn
from brainsurgeon.operations.status import status
from brainsurgeon.rewrite.recover import recover
from brainsurgeon.rewrite.relief import Wanted
from brainsurgeon.store import Store, open_store, open_to_read

__all__ = [
    "Chosen", "How", "Scope", "Settings", "Store", "Wanted", "archive", "archives", "cat",
    "context", "doctor", "errors", "events", "evidence", "follow", "load", "mount", "open_store",
    "open_to_read", "recover", "relieve", "reports", "restore", "restore_all", "retention",
    "rollback", "runs", "scan", "search", "sessions", "set_extractable", "show", "show_turn",
    "status", "would_archive", "would_relieve",
]  # fmt: skip
