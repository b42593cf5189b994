"""structlog, set up once: to stderr, console on a terminal and JSON lines otherwise.

What a value says never gets here: events carry ids, paths of keys, counts and sizes.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections import defaultdict
from contextlib import suppress
from itertools import groupby
from typing import TYPE_CHECKING, Any

import structlog

from brainsurgeon.errors import BrainsurgeonError, UsageError
from brainsurgeon.model.entries import dotted
from brainsurgeon.model.text import readable

if TYPE_CHECKING:
    from brainsurgeon.config import Settings
    from brainsurgeon.model.plans import Outcome, Plan
    from brainsurgeon.model.reports import RestoreAnswer, RetentionReport, ScanReport


_FOR_PEOPLE = "%Y-%m-%d %H:%M:%S"


def set_up(settings: Settings) -> None:
    """Configure structlog as the settings say."""
    console = settings.log_format == "console" or (
        settings.log_format == "auto" and sys.stderr.isatty()
    )
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty() and not os.environ.get("NO_COLOR"))
        if console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt=_FOR_PEOPLE, utc=False)
            if console
            else structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([_for_a_terminal] if console else []),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[settings.log_level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _for_a_terminal(_logger: object, _method: str, event: Any) -> Any:
    """Escape what names, titles and ids could do to a terminal; JSON escapes them by itself."""
    if isinstance(event, str):
        return readable(event)
    if isinstance(event, dict):
        return {
            _for_a_terminal(_logger, _method, key): _for_a_terminal(_logger, _method, value)
            for key, value in event.items()
        }
    if isinstance(event, list):
        return [_for_a_terminal(_logger, _method, value) for value in event]
    return event


def scanned(report: ScanReport, said: set[str] | None = None) -> None:
    """Log a run: changes and failures with their reasons, its counts, each entry at debug.

    Of troubles that last, those in `said` were said before and are said at debug; the others are
    added to it.
    """
    log = structlog.get_logger()
    for outcome in report.sessions:
        _session(outcome, dry_run=report.dry_run)
    troubles = {problem.path: problem.why for problem in report.problems}
    if not report.enabled:
        troubles["enabled"] = "nothing is extracted: enabled = false in the configuration"
    known = set() if said is None else said
    news = {name: why for name, why in troubles.items() if f"{name}: {why}" not in known}
    for name, why in troubles.items():
        say = log.warning if name in news else log.debug
        if name == "enabled":
            say("scan_disabled", module="scan", reason=why)
        else:
            say("root_unreadable", module="scan", path=name, reason=why)
    known.clear()
    known.update(f"{name}: {why}" for name, why in troubles.items())
    idle = report.files_unchanged == report.files_seen and not news
    say = log.debug if idle else log.info
    say(
        "scan_finished", module="scan", files_seen=report.files_seen,
        files_unchanged=report.files_unchanged, files_deferred=report.files_deferred,
        files_failed=report.files_failed, sessions_changed=report.sessions_changed,
        values_extracted=report.values_extracted, values_restored=report.values_restored,
        bytes_before=report.bytes_before, bytes_after=report.bytes_after,
        duration_seconds=report.duration_seconds, dry_run=report.dry_run,
    )  # fmt: skip


def _session(outcome: Outcome, *, dry_run: bool) -> None:
    """Log what became of one session: at info what changed, else at debug why it was left."""
    log = structlog.get_logger()
    said = {"module": "scan", "session": outcome.session, "reason": outcome.reason}
    if outcome.outcome == "failed":
        log.error("session_failed", **said)
    elif outcome.outcome != "changed":
        log.debug("session_left", outcome=outcome.outcome, **said)
    elif not dry_run:
        log.info("session_changed", bytes_before=outcome.bytes_before,
                 bytes_after=outcome.bytes_after, **said)  # fmt: skip
        if outcome.plan is not None:
            _entries(outcome.session, outcome.plan)


def _entries(session: str, plan: Plan) -> None:
    log = structlog.get_logger()
    for entry_id, cuts in groupby(plan.extracted, key=lambda cut: cut.entry_id):
        sizes = {dotted(cut.path): cut.end - cut.start for cut in cuts}
        log.debug("extraction", module="extraction", entry_id=entry_id, session=session,
                  keys_extracted=list(sizes), sizes_bytes=sizes)  # fmt: skip
    back: dict[str, dict[str, int]] = defaultdict(dict)
    for edit in plan.putbacks:
        back[edit.entry_id][dotted(edit.path)] = edit.size
    redacted = any(cut.redacts for cut in plan.cuts)
    for entry_id, sizes in back.items():
        log.debug("restoration", module="restoration", entry_id=entry_id, session=session,
                  keys_restored=list(sizes), sizes_bytes=sizes, redacted=redacted)  # fmt: skip


def retained(report: RetentionReport) -> None:
    """Log a retention run: its counts, and each root where nothing was deleted."""
    log = structlog.get_logger()
    for root, why in report.held_back.items():
        log.warning("retention_held_back", module="retention", root=root, reason=why)
    log.info(
        "retention_finished",
        module="retention",
        values_held=report.values_held,
        values_deleted=report.values_deleted,
        bytes_deleted=report.bytes_deleted,
    )


def reason(error: Exception) -> str:
    """Return why in words that cannot quote content: ours, or the system's."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error) if isinstance(error, BrainsurgeonError) else type(error).__name__


def restored(answer: RestoreAnswer) -> None:
    """Log a restore at debug."""
    structlog.get_logger().debug(
        "restoration", module="restoration", entry_id=answer.entry_id, session=answer.session,
        keys_restored=list(answer.keys), sizes_bytes=answer.sizes, pending=answer.pending,
        redacted=answer.redacts,
    )  # fmt: skip


PRIVATE = 0o600
# For figures: whoever gathers them runs as another user, and there are no names in them.
READABLE = 0o644


def write_whole(path: str, text: str, mode: int) -> None:
    """Put a text into a file of this mode, in the place of one that is there.

    Raise UsageError where that cannot be done. Nothing is synced: it can be written again.
    """
    fresh = f"{path}.{secrets.token_hex(6)}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(fresh, flags, mode)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                os.fchmod(descriptor, mode)  # whatever the umask says
                file.write(text)
            os.rename(fresh, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(fresh)
            raise
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; name another file") from None
