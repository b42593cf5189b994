"""The daemon: scans by schedule and soon after changes, retention by cron, one thing at a time.

All work happens in the scheduler's one worker thread; the main thread only waits for signals and
a third one only says which path changed.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import stat
import threading
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from brainsurgeon import log
from brainsurgeon.errors import BrainsurgeonError, ConfigError, StoppedError, StoreUnusableError
from brainsurgeon.hosts.openclaw import is_session_name
from brainsurgeon.hosts.openclaw_database import NAME
from brainsurgeon.hosts.sqlite import LOG
from brainsurgeon.log import READABLE, write_whole
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.scan import scan
from brainsurgeon.operations.status import metrics
from brainsurgeon.render.status import metrics as render
from brainsurgeon.schedule import cron_trigger, scan_trigger
from brainsurgeon.store import open_store
from brainsurgeon.store.database import hold_daemon_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from brainsurgeon.config import Settings
    from brainsurgeon.model.reports import ScanReport
    from brainsurgeon.store import Store


# The protocol of sd_notify(3): a word on a socket that is named in the environment.


def notify(state: str) -> None:
    """Tell systemd how the service stands; nothing without systemd."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
        line.connect(address)
        line.sendall(state.encode())


class Watchdog:
    """A sign of life, given by whoever works: where the work stands still, none is given.

    It is asked at each step of the work and, while there is none, by a job that waits its turn
    among the others. So what is shown is that the worker gets on and that jobs are begun at all.
    """

    def __init__(self) -> None:
        self.interval = _watched() / 4
        """Seconds between two signs; 0 where nobody waits for one."""
        self._last = 0.0

    def beat(self) -> None:
        """Send a sign of life, unless the last one was sent just now."""
        if self.interval and time.monotonic() - self._last >= self.interval / 2:
            self._last = time.monotonic()
            notify("WATCHDOG=1")


def _watched() -> float:
    """Return the seconds without a sign after which systemd ends this process; 0 for never."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0.0
    said = os.environ.get("WATCHDOG_USEC", "")
    return int(said) / 1e6 if said.isdecimal() else 0.0


Identity = tuple[int, int]
# Blocked in every thread and waited for: a handler may run late or never, since Python calls it in
# the main thread only, while the kernel may interrupt any.
SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
# Seconds after which the watcher notices that a root came or went.
ROOTS_LOOKED_AT = 5.0
# Seconds between two looks of the watcher for what the kernel told: it wakes up for each, while
# nothing happens, too. Ending waits for the next one.
GLANCES = 1.5


def run(load: Callable[[], Settings]) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP loads the settings again.

    Raise BusyError when another daemon holds the state directory, StoreUnusableError when the
    store cannot be opened.
    """
    settings = load()
    log.set_up(settings)
    with ExitStack() as held:
        held.enter_context(hold_daemon_lock(settings.state_dir))
        store = open_store(settings.state_dir)
        held.callback(store.close)
        gc.freeze()  # what is loaded is no garbage: no collection has to go through it
        _Daemon(load, settings, store).run()


class _Daemon:
    """The state of a running daemon."""

    def __init__(self, load: Callable[[], Settings], settings: Settings, store: Store) -> None:
        self._load, self._settings, self._store = load, settings, store
        self._stop = threading.Event()
        self._log = structlog.get_logger()
        self._said: set[str] = set()
        self._lost: StoreUnusableError | None = None
        self._watchdog = Watchdog()
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
        )

    def run(self) -> None:
        """Start, wait for the word to stop, and end what is under way within two seconds."""
        logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        self._schedule()
        self._scheduler.start()
        try:
            watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
            watcher.start()
            notify("READY=1")
            self._log.info("daemon_started", module="daemon", pid=os.getpid())
            while signal.sigwait(SIGNALS) == signal.SIGHUP:
                self._reload()
        finally:
            self._stop.set()
            notify("STOPPING=1")
            self._scheduler.shutdown(wait=True)
        watcher.join(timeout=GLANCES + 0.25)
        self._log.info("daemon_stopped", module="daemon")
        if self._lost:
            raise self._lost

    def _schedule(self) -> None:
        """Lay down the jobs of the settings in force, and one scan at once.

        Never in the worker: the scheduler waits for it with a lock in hand that adding needs.
        """
        self._scheduler.add_job(self._scan)
        if self._watchdog.interval:
            self._scheduler.add_job(
                self._watchdog.beat, "interval", seconds=self._watchdog.interval, id="watchdog",
                replace_existing=True,
            )  # fmt: skip
        self._scheduler.add_job(
            self._scan, scan_trigger(self._settings), id="scan", replace_existing=True
        )
        if self._settings.retention_cron:
            self._scheduler.add_job(
                self._retain, cron_trigger(self._settings.retention_cron), id="retention",
                replace_existing=True,
            )  # fmt: skip

    def _check(self) -> None:
        """Raise StoppedError when it is to end; each step of the work comes by here."""
        if self._stop.is_set():
            raise StoppedError
        self._watchdog.beat()

    def _scan(self, *only: str) -> None:
        """Do one run, over everything or over one path that changed."""
        if self._stop.is_set():
            return
        try:
            report = scan(
                self._settings, self._store, clock=time.time, only=only, check_stop=self._check
            )
            log.scanned(report, self._said if not only else set(self._said))
            if not only:
                self._measure(report)
        except Exception as error:  # noqa: BLE001  the next run may succeed
            self._log.error("scan_failed", module="daemon", reason=log.reason(error))
        self._end_without_store()

    def _measure(self, report: ScanReport) -> None:
        """Write the figures of a whole run down where that is wanted."""
        path = self._settings.metrics_file
        if path is None:
            return
        text = render(metrics(self._settings, self._store, report))
        try:
            write_whole(path, text, READABLE)
        except BrainsurgeonError as error:
            self._log.warning("metrics_failed", module="daemon", reason=log.reason(error))

    def _retain(self) -> None:
        if self._stop.is_set():
            return
        try:
            log.retained(retention(
                self._settings, self._store, clock=time.time, check_stop=self._check
            ))  # fmt: skip
        except Exception as error:  # noqa: BLE001  the next run may succeed
            self._log.error("retention_failed", module="daemon", reason=log.reason(error))
        self._end_without_store()

    def _end_without_store(self) -> None:
        """End the daemon where its store is gone: what it would store could not be found again."""
        try:
            self._store.check_still_there()
        except StoreUnusableError as error:
            self._lost = error
            os.kill(os.getpid(), signal.SIGTERM)  # the main thread waits for signals only

    def _reload(self) -> None:
        """Load the settings again; bad ones are reported and the old ones stay."""
        try:
            settings = self._load()
        except ConfigError as error:
            self._log.error(
                "reload_failed", module="daemon", path=error.source, problems=error.problems,
                reason="the configuration has problems; the settings in force stay",
            )  # fmt: skip
            return
        except Exception as error:  # noqa: BLE001  whatever it is, the daemon goes on
            self._log.error("reload_failed", module="daemon", reason=log.reason(error))
            return
        if settings.state_dir != self._settings.state_dir:
            self._log.warning("state_dir_kept", module="daemon", reason="restart to move the store")
            settings = settings.model_copy(update={"state_dir": self._settings.state_dir})
        self._settings = settings
        self._said.clear()
        log.set_up(settings)
        self._schedule()
        self._log.info("reloaded", module="daemon")

    def _watch(self) -> None:
        """Mark the paths that change as due after the quiet time, until the daemon stops."""
        while not self._stop.is_set():
            roots = existing(self._settings) if self._settings.watch else {}
            if not roots:
                self._stop.wait(ROOTS_LOOKED_AT)
                continue
            try:
                for path in self._changes(roots):
                    self._due(path)
            except (OSError, RuntimeError) as error:  # watchfiles raises either
                self._log.warning(
                    "watch_failed", module="daemon", reason=log.reason(error),
                    advice="the schedule goes on; fs.inotify.max_user_watches may be too small",
                )  # fmt: skip
                self._stop.wait(60)

    def _changes(self, roots: dict[str, Identity]) -> Iterator[str]:
        """Yield the sessions that change below these roots, while they are the ones that exist."""
        try:
            yield from self._changes_below(roots, passing_over=False)
        except PermissionError:  # said by every run; only then, since it hides the limit too
            yield from self._changes_below(roots, passing_over=True)

    def _changes_below(self, roots: dict[str, Identity], *, passing_over: bool) -> Iterator[str]:
        from watchfiles import watch  # noqa: PLC0415  not needed where watch = false

        for changes in watch(
            *roots,
            watch_filter=lambda _, path: is_watched(os.path.basename(path)),
            stop_event=self._stop,
            step=int(GLANCES * 1000),
            rust_timeout=int(ROOTS_LOOKED_AT * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=passing_over,
        ):
            yield from sorted({changed(path) for _, path in changes})
            if existing(self._settings) != roots or not self._settings.watch:
                return

    def _due(self, path: str) -> None:
        """Have one path looked at once it has been quiet for long enough."""
        quiet = timedelta(seconds=self._settings.quiet_seconds + 0.5)
        self._scheduler.add_job(
            self._scan, "date", run_date=datetime.now(UTC) + quiet, args=[path],
            id=f"due:{path}", replace_existing=True,
        )  # fmt: skip


def is_watched(name: str) -> bool:
    """Return whether a change of a file of this name may mean a change of a session."""
    return is_session_name(name) or name in (NAME, NAME + LOG)


def changed(path: str) -> str:
    """Return the session or database that a changed file belongs to."""
    return path.removesuffix(LOG) if path.endswith(NAME + LOG) else path


def existing(settings: Settings) -> dict[str, Identity]:
    """Return the roots that exist now by their real paths, and which directories they are."""
    found = {}
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        with suppress(OSError):
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                found[path] = (status.st_dev, status.st_ino)
    return found
