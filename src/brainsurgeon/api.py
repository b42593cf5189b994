"""For other Python programs: the functions behind the commands, their results, and their errors.

    import time
    from brainsurgeon import api

    settings, warnings = api.load()
    with api.open_store(settings.state_dir) as store:
        api.recover(store)
        report = api.scan(settings, store, clock=time.time, dry_run=True)
        answer = api.restore(settings, store, "4f9d2a11", clock=time.time)
        print(answer.pending, answer.content)

`open_store` creates a missing store. `open_to_read` returns an empty one instead, for functions
that only read. `recover` finishes rewrites that a crash interrupted; call it before every
function that writes. Sessions and entries are named as on the command line. Nothing prints or logs.

Results are classes of `reports`. Errors are classes of `errors`, subclasses of BrainsurgeonError:
`exit_code` is the exit code of the command line, `facts()` returns the facts that a program can act
on.

- ConfigError: the configuration is invalid; all problems are listed;
- NotFoundError, with the subclasses NoSuchKeyError and GoneError: no such session, entry or value;
- AmbiguousError: a name matches several things, listed in `candidates`; its subclass UnnamedError:
  no name was given, and several sessions are possible;
- ExpiredError: the value is gone; `tombstones` say when it expired and how big it was;
- BusyError: another process uses the store or the file; try again;
- ChangedError: the file differs from what was recorded;
- MovedError: the agent does not use the file any more, so the file is not written;
- StoreUnusableError, with the subclasses StoreDamagedError and DamagedError: the store cannot be
  used; nothing was touched;
- StoreFullError: no room for more values; FailedError: the session's file was left as it is.

Times are seconds since 1970 in UTC, sizes named `size` or `bytes` are bytes, `chars` characters.
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
from brainsurgeon.rewrite.budget import Wanted
from brainsurgeon.rewrite.recover import recover
from brainsurgeon.store import Store, open_store, open_to_read

__all__ = [
    "Chosen", "How", "Scope", "Settings", "Store", "Wanted", "archive", "archives", "cat",
    "context", "doctor", "errors", "events", "evidence", "follow", "load", "mount", "open_store",
    "open_to_read", "recover", "relieve", "reports", "restore", "restore_all", "retention",
    "rollback", "runs", "scan", "search", "sessions", "set_extractable", "show", "show_turn",
    "status", "would_archive", "would_relieve",
]  # fmt: skip
