"""The daemon: scans by schedule and soon after changes, retention by cron, one job at a time.

Only the scheduler's one worker thread scans and writes to the store. The main thread waits for
signals and reloads. Other threads watch the roots and the clock, and run `on_signal`.
"""

import gc
import logging
import os
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial

import structlog
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from brainsurgeon import log
from brainsurgeon.agents import is_database, is_session_name
from brainsurgeon.config import RootSettings, Settings
from brainsurgeon.errors import (
    BrainsurgeonError,
    ConfigError,
    StoppedError,
    StoreAccessError,
    StoreUnusableError,
)
from brainsurgeon.files.processes import boot_clock
from brainsurgeon.files.sqlite import LOG
from brainsurgeon.lookup.opening import check_store
from brainsurgeon.model.reports import Event, Watch
from brainsurgeon.operations.retention import retention
from brainsurgeon.operations.scan import Chosen, keep_transcripts, scan
from brainsurgeon.operations.signals import find_signals, note_failure, run_on_signal
from brainsurgeon.operations.troubles import BLOCKED, doubtful_roots
from brainsurgeon.render.runs import event_line
from brainsurgeon.schedule import cron_trigger, scan_trigger
from brainsurgeon.store import Store, open_store
from brainsurgeon.store.database import DatabaseError, explain, hold_daemon_lock

Load = Callable[[], tuple[Settings, list[str]]]  # returns warnings, too
Roots = dict[str, tuple[int, int]]  # device and inode of each existing root, by its real path
# Signals for sigwait(3). A handler might run late or never: Python runs it in the main thread only,
# but the kernel may interrupt another thread.
OS_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
ROOTS_INTERVAL = 5.0  # seconds between checks for new and removed roots
WAKE_INTERVAL = 1.5  # seconds after which the watcher notices that it must stop
# Seconds between checks of the clock if there is no watchdog, and the largest ignored change.
CLOCK_INTERVAL, CLOCK_TOLERANCE = 10.0, 1.0
MORE_TIME = 90.0  # seconds in which systemd expects the next message while the daemon begins
SIGNALS_INTERVAL = 5.0  # seconds between two searches of one path for signals (key `on_signal`)


def notify(state: str) -> None:
    """Send the state of the service to systemd by the protocol of sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.connect(address)
        connection.sendall(state.encode())


def run(load: Load) -> None:
    """Run until SIGTERM or SIGINT; SIGHUP loads the settings again.

    Exits with 6 if another daemon uses the store, and with 7 if the store is unusable.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, OS_SIGNALS)  # they wait until the daemon is ready
    settings, warnings = load()
    log.set_up(settings, warnings)
    try:
        check_store(settings, check_stop=_Beginning().check)
        with hold_daemon_lock(settings.state_dir), open_store(settings.state_dir) as store:
            gc.freeze()  # garbage collections need not examine the loaded modules
            _Daemon(load, settings, store).run()
    except BrainsurgeonError as error:
        structlog.get_logger().error("daemon_failed", module="daemon", reason=str(error))
        raise SystemExit(error.exit_code) from None
    except StoppedError:
        structlog.get_logger().info("daemon_stopped", module="daemon")


class _Beginning:
    """The time before the daemon is ready, in which it may have to read all sessions."""

    def __init__(self) -> None:
        self._last_notice = time.monotonic()

    def check(self) -> None:
        """Raise StoppedError after SIGTERM or SIGINT. Ask systemd for more time."""
        if signal.sigtimedwait(OS_SIGNALS - {signal.SIGHUP}, 0):
            raise StoppedError
        if time.monotonic() - self._last_notice > MORE_TIME / 3:
            self._last_notice = time.monotonic()
            notify(f"EXTEND_TIMEOUT_USEC={MORE_TIME * 1_000_000:.0f}")


class _Daemon:
    def __init__(self, load: Load, settings: Settings, store: Store) -> None:
        self._load, self._settings, self._store = load, settings, store
        self._stop = threading.Event()
        self._log = structlog.get_logger()
        self._logged_problems: set[str] = set()
        self._store_error: StoreUnusableError | None = None
        self._last_beat = 0.0
        self._searched_at: dict[str, float] = {}  # by path
        self._due_at: dict[str, float] = {}  # by changed path
        self._due_lock = threading.Lock()
        self._transcripts = keep_transcripts()
        self._messenger = futures.ThreadPoolExecutor(1)
        # Seconds between two watchdog messages; 0 if systemd expects none.
        limit = os.environ.get("WATCHDOG_USEC", "")  # microseconds
        is_for_us = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._beat_interval = int(limit) / 1e6 / 4 if is_for_us and limit.isdecimal() else 0.0
        self._scheduler = BackgroundScheduler(
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": None},
            timezone=UTC,
        )

    def run(self) -> None:
        logging.getLogger("apscheduler").setLevel(logging.CRITICAL)
        self._schedule()
        self._log.info("daemon_started", module="daemon", pid=os.getpid())
        self._scheduler.start()
        try:
            watcher = threading.Thread(target=self._watch, name="watcher", daemon=True)
            watcher.start()
            threading.Thread(target=self._follow_clock, name="clock", daemon=True).start()
            notify("READY=1")
            while signal.sigwait(OS_SIGNALS) == signal.SIGHUP:
                self._reload()
        finally:
            self._stop.set()
            notify("STOPPING=1")
            self._scheduler.shutdown(wait=True)
            self._messenger.shutdown(cancel_futures=True)
        watcher.join(timeout=WAKE_INTERVAL + 0.25)
        self._log.info("daemon_stopped", module="daemon")
        if self._store_error:
            raise self._store_error

    def _schedule(self) -> None:
        # Never call this in the worker: a shutdown waits for the worker and locks the list of jobs.
        self._scheduler.add_job(self._scan)
        add = partial(self._scheduler.add_job, replace_existing=True)
        if self._beat_interval:
            add(self._beat, "interval", seconds=self._beat_interval, id="watchdog")
        add(self._scan, scan_trigger(self._settings), id="scan")
        if self._settings.retention_cron:
            add(self._run_retention, cron_trigger(self._settings.retention_cron), id="retention")

    def _follow_clock(self) -> None:
        """Schedule the runs again if the wall clock was set: the scheduler depends on the clock."""
        offset = time.time() - boot_clock()
        while not self._stop.wait(self._beat_interval or CLOCK_INTERVAL):
            before, offset = offset, time.time() - boot_clock()
            if abs(offset - before) > CLOCK_TOLERANCE:
                self._log.warning("clock_set", module="daemon", seconds=round(offset - before))
                self._schedule()
                for path in list(self._due_at):
                    self._scan_soon(path)

    def _check_stop_and_beat(self) -> None:
        self._check_stop()
        self._beat()

    def _beat(self) -> None:
        if self._beat_interval and time.monotonic() - self._last_beat >= self._beat_interval / 2:
            self._last_beat = time.monotonic()
            notify("WATCHDOG=1")

    def _scan(self, *only: str) -> None:
        if self._stop.is_set():
            return
        try:
            self._store.check_still_there()
            report = scan(
                self._settings, self._store, clock=time.time, only=Chosen(only),
                watch=Watch(
                    check_stop=self._check_stop_and_beat, ended=log.session, alive=log.alive
                ),
                transcripts=self._transcripts,
            )  # fmt: skip
            if not only:
                report.unreadable += doubtful_roots(self._settings)
            log.scan_finished(report, set(self._logged_problems) if only else self._logged_problems)
            self._pass_on_signals()
        except Exception as error:  # noqa: BLE001  the next run may succeed
            self._log.error("scan_failed", module="daemon", reason=self._reason(error))

    def _scan_due(self) -> None:
        """Scan all changed paths that are due in one run: the end of each run takes a while."""
        now = time.time()
        with self._due_lock:
            due = [path for path, at in self._due_at.items() if at <= now]
            for path in due:
                del self._due_at[path]
        if due:
            self._scan(*due)

    def _find_signals(self, path: str) -> None:
        if self._stop.is_set():
            return
        now = time.monotonic()
        recent = (item for item in self._searched_at.items() if item[1] > now - SIGNALS_INTERVAL)
        self._searched_at = {**dict(recent), path: now}
        try:
            find_signals(self._settings, self._store, path, time.time(), self._transcripts)
        except Exception as error:  # noqa: BLE001  the next search may succeed
            self._log.error("signals_failed", module="daemon", reason=self._reason(error))
        self._pass_on_signals()

    def _pass_on_signals(self) -> None:
        signals = [(event, event_line(event)) for event in self._store.events.take_signals()]
        for event, _ in signals:
            self._log.warning(
                "signal", module="signals", session=event.session, signal=event.facts["signal"],
                reason=event.facts["reason"],
            )  # fmt: skip
        if signals and self._settings.signals.on_signal:
            self._messenger.submit(
                run_on_signal, self._settings, signals, self._check_stop, self._note_failure
            )

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise StoppedError

    def _note_failure(self, event: Event, why: str) -> None:
        # As a job, since only the worker writes to the store.
        self._scheduler.add_job(note_failure, args=[self._store, event, why, time.time()])

    def _run_retention(self) -> None:
        if self._stop.is_set():
            return
        try:
            self._store.check_still_there()
            log.retention_finished(retention(
                self._settings, self._store, clock=time.time, check_stop=self._check_stop_and_beat
            ))  # fmt: skip
            for path, why in self._store.files.blocked(time.time() - BLOCKED).items():
                self._log.warning("session_blocked", module="retention", path=path, reason=why)
        except Exception as error:  # noqa: BLE001  the next run may succeed
            self._log.error("retention_failed", module="daemon", reason=self._reason(error))

    def _reason(self, error: Exception) -> str:
        """Explain the error of a job. End the daemon if the store is gone, damaged or too new."""
        if isinstance(error, DatabaseError):
            error = explain(error, self._store.directory)
        if isinstance(error, StoreUnusableError) and not isinstance(error, StoreAccessError):
            self._store_error = error
            self._stop.set()  # no other job may begin
            os.kill(os.getpid(), signal.SIGTERM)  # ends the main thread, which waits for signals
        return log.reason(error)

    def _reload(self) -> None:
        try:
            settings, warnings = self._load()
        except ConfigError as error:
            self._log.error(
                "reload_failed", module="daemon", path=error.source, problems=error.problems,
                reason="the configuration has problems; the former settings stay in force",
            )  # fmt: skip
            return
        except Exception as error:  # noqa: BLE001  the daemon continues after any error
            self._log.error("reload_failed", module="daemon", reason=log.reason(error))
            return
        if settings.state_dir != self._settings.state_dir:
            reason = "restart to use the store in the new directory"
            self._log.warning("state_dir_kept", module="daemon", reason=reason)
            settings = settings.model_copy(update={"state_dir": self._settings.state_dir})
        self._settings = settings
        self._logged_problems.clear()
        log.set_up(settings, warnings)
        self._schedule()
        self._log.info("reloaded", module="daemon")

    def _watch(self) -> None:
        while not self._stop.is_set():
            roots = existing_roots(self._settings) if self._settings.watch else {}
            if not roots:
                self._stop.wait(ROOTS_INTERVAL)
                continue
            try:
                for path in self._changes(roots):
                    self._scan_soon(path)
                    self._find_signals_soon(path)
            except (OSError, RuntimeError) as error:  # watchfiles raises either
                self._log.warning(
                    "watch_failed", module="daemon", reason=log.reason(error),
                    advice="scheduled scans continue; fs.inotify.max_user_watches may be too small",
                )  # fmt: skip
                self._stop.wait(60)

    def _changes(self, roots: Roots) -> Iterator[str]:
        try:
            yield from self._changes_below(roots, ignore_denied=False)
        except PermissionError:
            # Every scan reports unreadable directories. `ignore_denied` comes second: it also hides
            # the error that the limit of inotify is reached.
            yield from self._changes_below(roots, ignore_denied=True)

    def _changes_below(self, roots: Roots, *, ignore_denied: bool) -> Iterator[str]:
        from watchfiles import watch  # noqa: PLC0415  not needed if watch = false

        def is_watched(_: object, path: str) -> bool:
            return is_session_name(os.path.basename(path)) or is_database(path.removesuffix(LOG))

        for changes in watch(
            *roots,
            watch_filter=is_watched,
            stop_event=self._stop,
            step=int(WAKE_INTERVAL * 1000),
            rust_timeout=int(ROOTS_INTERVAL * 1000),
            yield_on_timeout=True,
            raise_interrupt=False,
            ignore_permission_denied=ignore_denied,
        ):
            # A change of SQLite's write-ahead log is a change of its database.
            yield from sorted({
                path.removesuffix(LOG)
                for _, path in changes
            })  # fmt: skip
            if existing_roots(self._settings) != roots or not self._settings.watch:
                return

    def _scan_soon(self, path: str) -> None:
        due = datetime.now(UTC) + timedelta(seconds=self._settings.quiet + 0.5)
        with self._due_lock:
            self._due_at[path] = due.timestamp()
        self._scheduler.add_job(
            self._scan_due, "date", run_date=due, id=f"due:{path}", replace_existing=True
        )

    def _find_signals_soon(self, path: str) -> None:
        last = self._searched_at.get(path)
        wait = 0.0 if last is None else max(0.0, last + SIGNALS_INTERVAL - time.monotonic())
        self._scheduler.add_job(
            self._find_signals, "date", [path], id=f"signals:{path}", replace_existing=True,
            run_date=datetime.now(UTC) + timedelta(seconds=wait),
        )  # fmt: skip


def existing_roots(settings: RootSettings) -> Roots:
    roots = {}
    for root in settings.root_directories():
        path = os.path.realpath(root.path)
        with suppress(OSError):
            status = os.stat(path)
            if stat.S_ISDIR(status.st_mode):
                roots[path] = (status.st_dev, status.st_ino)
    return roots
